//! What a user may say of the pods.

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::LocalRef;

/// The pods. What is not here goes into `overlay`.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// Labels, up to 64. Keys of the operator (weir.dev/, app.kubernetes.io/) are refused. Default: none. Restarts pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "texts")]
    #[x_kube(validation = Rule::new("self.all(k, !k.startsWith('weir.dev/') && !k.startsWith('app.kubernetes.io/'))").message("podTemplate.labels may not hold keys that begin with weir.dev/ or app.kubernetes.io/: the operator sets them"))]
    pub labels: BTreeMap<String, String>,

    /// Annotations, up to 64, each of up to 4096 characters. Keys of the operator (weir.dev/) are refused. Default: none.
    /// Restarts pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "texts")]
    #[x_kube(validation = Rule::new("self.all(k, !k.startsWith('weir.dev/'))").message("podTemplate.annotations may not hold keys that begin with weir.dev/: the operator sets them"))]
    pub annotations: BTreeMap<String, String>,

    /// Compute resources of the node's container. Default: none, which is for trials only: see requests. Restarts pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// Further environment variables of the node's container, up to 50. Default: none. Restarts pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub env: Vec<EnvVar>,

    /// Labels that a host must have, up to 64. Default: none. Restarts pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "texts")]
    pub node_selector: BTreeMap<String, String>,

    /// `affinity` of a pod. Default: none. Restarts pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub affinity: Option<Value>,

    /// `tolerations` of a pod, up to 50. Default: none. Restarts pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), schema_with = "any_objects")]
    pub tolerations: Vec<Value>,

    /// `topologySpreadConstraints` of a pod, up to 50, in place of the default: spread over hosts and zones where possible.
    /// Restarts pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_objects")]
    pub topology_spread_constraints: Option<Vec<Value>>,

    /// Priority class, up to 253 characters. Default: none. Restarts pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,

    /// Service account, for example one with access to the bucket. Default: one named like the cluster, made by the
    /// operator. Restarts pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<LocalRef>,

    /// Annotations of the service account that the operator makes, for workload identity, up to 64. Default: none. Restarts
    /// nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "texts")]
    pub service_account_annotations: BTreeMap<String, String>,

    /// Seconds between SIGTERM and the end, in which a node gives its streams away, 15 to 3600. Default 60. Restarts pods.
    #[serde(default = "grace")]
    #[schemars(range(min = 15, max = 3600))]
    pub termination_grace_period_seconds: u32,

    /// `securityContext` of the pod, in place of the default (user, group and fsGroup 65532, not root, seccomp
    /// RuntimeDefault). On OpenShift: `{}`. Restarts pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub security_context: Option<Value>,

    /// A part of a pod (`metadata`, `spec`) that is laid over the rendered one last: objects are merged, lists with names
    /// by name, all else replaced. What a node cannot do without is refused, with a condition that says so. Default: none.
    /// Restarts pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub overlay: Option<Value>,
}

impl Default for PodTemplate {
    fn default() -> Self {
        Self {
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            resources: None,
            env: Vec::new(),
            node_selector: BTreeMap::new(),
            affinity: None,
            tolerations: Vec::new(),
            topology_spread_constraints: None,
            priority_class_name: None,
            service_account: None,
            service_account_annotations: BTreeMap::new(),
            termination_grace_period_seconds: grace(),
            security_context: None,
            overlay: None,
        }
    }
}

fn grace() -> u32 {
    60
}

/// Compute resources.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What is set aside, such as `cpu: 500m`, `memory: 1Gi`, up to 16 kinds. Default: none. A node needs what `cache-bytes`
    /// and `wal-backlog-bytes` say, 256 MiB each, and about as much again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub requests: BTreeMap<String, Value>,

    /// What is not exceeded, up to 16 kinds. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub limits: BTreeMap<String, Value>,
}

/// An environment variable.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvVar {
    /// Its name, up to 200 characters. Names that begin with WEIR_ are refused (see `spec.config`), and the AWS_ names that `objectStore` sets.
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = Rule::new("!self.startsWith('WEIR_') && !(self in ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN', 'AWS_ENDPOINT_URL', 'AWS_REGION', 'AWS_ALLOW_HTTP'])").message("podTemplate.env may not set WEIR_ names (see spec.config) nor the AWS_ names of spec.objectStore"))]
    pub name: String,

    /// Its value, up to 4096 characters. Default: empty, or `valueFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub value: Option<String>,

    /// `valueFrom` of a container's environment variable. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub value_from: Option<Value>,
}

fn texts(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 4096}})
}

fn quantities(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "maxProperties": 16, "additionalProperties": {"x-kubernetes-int-or-string": true}})
}

fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn any_objects(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "array", "maxItems": 50, "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}})
}
