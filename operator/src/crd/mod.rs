//! `StreamCluster`: what a user says of a cluster, and what the operator answers.
//!
//! Invariant: whatever the API server admits is a cluster that could run; what the schema cannot see (a Secret that is
//! missing, a storage class that does not exist) leads to a condition instead. The rules are CEL in the schema, so that
//! no webhook is needed; each has a test in `tests/operator/crd_rules.rs`. The user's spec is never written. Generated into
//! `crds/streamcluster.yaml` by `bin/crdgen`. Read by `plan`, `resources` and `observe`.

#![warn(missing_docs)]
#![allow(unreachable_pub, reason = "derived schemas hold copies of the types inside functions")]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "what stands on a field is what `kubectl explain` prints: no Markdown"
)]

mod pod;
mod status;
mod store;
mod yaml;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use kube::core::Rule;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use pod::{EnvVar, PodTemplate, Resources};
pub use status::{ClusterState, NodeState, OperationState, SlotsState, StreamClusterStatus};
pub use store::{Credentials, ObjectStore};

/// Ordinals, and so nodes, that a cluster can have.
pub const MAX_NODES: u32 = 100;

/// Settings of `weir serve` that `spec.config` may hold: all but those that another field or the operator sets.
pub const CONFIG_KEYS: &[&str] = &[
    "cache-bytes",
    "idle-release",
    "lease",
    "log-format",
    "log-level",
    "long-poll-timeout",
    "max-body",
    "max-connections",
    "max-open-streams",
    "max-producers",
    "max-read-chunk",
    "max-streams",
    "max-waiters",
    "metrics-open",
    "node-timeout",
    "request-timeout",
    "segment-age",
    "segment-bytes",
    "segment-objects",
    "sse-lifetime",
    "wal-backlog-bytes",
    "wal-backlog-objects",
    "wal-interval",
    "wal-object-bytes",
];

/// Only those settings.
pub(crate) fn config_rule() -> Rule {
    let quoted: Vec<String> = CONFIG_KEYS.iter().map(|k| format!("'{k}'")).collect();
    Rule::new(format!("self.all(k, k in [{}])", quoted.join(", "))).message(
        format!("config takes settings of 'weir serve' that no other field sets: {}", CONFIG_KEYS.join(", "))
            .as_str(),
    )
}

/// A cluster of Weir nodes that share one metadata log and one place in a bucket.
///
/// "Restarts pods" below means: one at a time, drained first, the metadata log's leader last.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "weir.dev",
    version = "v1alpha1",
    kind = "StreamCluster",
    plural = "streamclusters",
    shortname = "strc",
    category = "all",
    category = "weir",
    namespaced,
    status = "StreamClusterStatus",
    derive = "PartialEq",
    doc = "A cluster of Weir nodes: append-only streams over HTTP, records in object storage.",
    cel,
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready", description = "Nodes ready of nodes wanted"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.state", description = "What the cluster is, or what is being done to it"),
    printcolumn(name = "Leader", type_ = "string", json_path = ".status.leader", description = "Leads the metadata log"),
    printcolumn(name = "Streams", type_ = "integer", json_path = ".status.streams", description = "Streams, refreshed about once a minute"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Slots", type_ = "integer", json_path = ".status.slots", description = "Sum of the nodes' weights", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 40").message("metadata.name must be 1 to 40 of a-z, 0-9 and '-', begin with a letter and end with a letter or digit: pods and DNS names are made of it"),
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.clusterUid) || !has(oldSelf.spec.objectStore.adoptClusterUid) || (has(self.spec.objectStore.adoptClusterUid) && self.spec.objectStore.adoptClusterUid == oldSelf.spec.objectStore.adoptClusterUid)").message("objectStore.adoptClusterUid must stay as it is once the cluster has been taken over (status.clusterUid): bucket and volumes still name the StreamCluster they were made for, and nodes would refuse to start").field_path(".spec.objectStore.adoptClusterUid")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.routing.mode != 'forward' || self.routing.advertisedUrl.startsWith('http://')").message("routing.mode forward needs an advertisedUrl that begins with http://: nodes pass requests on over plain HTTP/2").field_path(".routing.advertisedUrl"),
    validation = Rule::new("self.routing.mode != 'forward' || !has(self.nodes) || self.nodes.all(n, !has(n.advertisedUrl) || n.advertisedUrl.startsWith('http://'))").message("routing.mode forward needs nodes[].advertisedUrl to begin with http://: nodes pass requests on over plain HTTP/2").field_path(".nodes")
)]
pub struct StreamClusterSpec {
    /// How many nodes, 1 to 100. Default 3. Growing starts pods; shrinking drains the nodes of the highest ordinals first
    /// and removes them from the metadata log. Restarts nothing.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 100))]
    pub replicas: u32,

    /// Capacity weight of a node that has none of its own in `nodes`, 0 to 1000000. Default 1. New streams are placed in
    /// proportion; streams that are placed stay. 0: no new streams. Reaches the nodes in about a second; restarts nothing.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub slots: u32,

    /// What differs at single nodes, by ordinal, up to 100 entries. Default: nothing. Entries for ordinals that are not
    /// there are kept for later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["ordinal".into()]))]
    pub nodes: Vec<NodeSpec>,

    /// The nodes' container image, up to 500 characters. Default: the one that the operator had when the cluster was
    /// made. The cluster keeps it (`status.image`), also under a newer operator. Restarts pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    #[x_kube(validation = Rule::new("self.matches('^[^ \\t\\n]+$')").message("image must be an image reference such as registry.example/weir:1.2.3, without spaces"))]
    pub image: Option<String>,

    /// When the kubelet pulls the image. Default: IfNotPresent. Restarts pods.
    #[serde(default)]
    pub image_pull_policy: PullPolicy,

    /// Secrets, in this namespace, with credentials for the image's registry, up to 10. Default: none. Restarts pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub image_pull_secrets: Vec<LocalRef>,

    /// Where records live. The bucket is never deleted by the operator.
    pub object_store: ObjectStore,

    /// The metadata log, which the nodes replicate among themselves.
    #[serde(default)]
    pub metadata: MetadataLog,

    /// How clients reach the node that owns a stream.
    #[serde(default)]
    pub routing: Routing,

    /// The Service that clients connect to first, named like the cluster.
    #[serde(default)]
    pub service: ServiceSpec,

    /// One Service per node, named like its pod, for clients outside the cluster. In the values of its annotations {node} is
    /// the node's name and {ordinal} its number; {cluster}, {service} and {namespace} are as in `routing.advertisedUrl`;
    /// other braces stay. So external-dns can give each node a name. Default: none. Restarts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_services: Option<ServiceSpec>,

    /// Further settings of `weir serve`, by their names without dashes in front, such as `cache-bytes: 1GiB`: up to 40, each
    /// a text of up to 500 characters. Default: none. Restarts pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 40), schema_with = "config_schema")]
    #[x_kube(validation = config_rule())]
    pub config: BTreeMap<String, String>,

    /// The pods.
    #[serde(default)]
    pub pod_template: PodTemplate,

    /// How changes that restart pods are carried out.
    #[serde(default)]
    pub update: Update,

    /// What becomes of the nodes' volumes. Records are in the bucket and are not concerned.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// The CustomResourceDefinition as `crds/streamcluster.yaml` holds it.
pub fn yaml() -> String {
    let crd = serde_json::to_value(definition()).expect("a definition serializes");
    let head = "# Generated by `cargo run -p weir-operator --bin crdgen`: do not edit.\n";
    format!("{head}{}", yaml::document(&crd))
}

/// The definition, with a digest of its schema as an annotation, by which the operator sees that another is installed.
pub fn definition() -> CustomResourceDefinition {
    let mut crd = StreamCluster::crd();
    let versions = serde_json::to_vec(&crd.spec).expect("a definition serializes");
    let digest = crate::names::digest(&versions);
    crd.metadata.annotations.get_or_insert_default().insert(SCHEMA.to_owned(), digest);
    crd
}

/// Annotation of the definition: a digest of it.
pub const SCHEMA: &str = "weir.dev/schema";

fn config_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "additionalProperties": {"type": "string", "maxLength": 500}})
}

fn one() -> u32 {
    1
}

fn three() -> u32 {
    3
}

/// What differs at one node.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSpec {
    /// Which node: the number at the end of its name, 0 to 99.
    #[schemars(range(min = 0, max = 99))]
    pub ordinal: u32,

    /// Its capacity weight, 0 to 1000000. Default: `spec.slots`. Reaches it in about a second; restarts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub slots: Option<u32>,

    /// Give its streams away and take none, until this is false again. Default false. Restarts nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,

    /// Where clients reach it, http(s)://HOST[:PORT] of up to 500 characters, in place of `routing.advertisedUrl`; for an
    /// external name and port of its own. Default: by `routing.advertisedUrl`. Restarts its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    #[x_kube(validation = Rule::new("self.matches('^https?://[^/?#@{} ]+$')").message("advertisedUrl of a node must be http(s)://HOST[:PORT], without path and placeholders"))]
    pub advertised_url: Option<String>,
}

/// A name in the same namespace.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// The name, up to 253 characters.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// When an image is pulled.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PullPolicy {
    /// At each start.
    Always,
    /// If the host does not have it.
    #[default]
    IfNotPresent,
    /// Never: the host must have it.
    Never,
}

impl PullPolicy {
    /// As pods spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// The metadata log.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetadataLog {
    /// How many nodes vote at most: 1, 3 or 5. With fewer nodes the largest odd number of them votes. Default 3.
    /// Restarts pods.
    #[serde(default = "three")]
    #[x_kube(validation = Rule::new("self in [1, 3, 5]").message("metadata.voters must be 1, 3 or 5"))]
    pub voters: u32,

    /// Each node's volume, for its copy of the log.
    #[serde(default)]
    pub volume: Volume,
}

impl Default for MetadataLog {
    fn default() -> Self {
        Self { voters: three(), volume: Volume::default() }
    }
}

/// A node's volume.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Size, a Kubernetes quantity of up to 32 characters. Default 2Gi, which holds the log of some million streams.
    /// Growing resizes volumes in place, if their class allows it. A size below that of a volume has no effect on it.
    /// Restarts nothing.
    #[serde(default = "two_gi")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = Rule::new("isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))").message("metadata.volume.size must be a quantity above 0 such as 2Gi"))]
    pub size: String,

    /// Storage class of volumes made from now on, up to 253 characters. Default: the cluster's. Restarts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,
}

fn two_gi() -> String {
    "2Gi".to_owned()
}

impl Default for Volume {
    fn default() -> Self {
        Self { size: two_gi(), storage_class_name: None }
    }
}

/// What a node does with a request for another node's stream.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RoutingMode {
    /// Answers 307 with the owner's advertised address.
    #[default]
    Redirect,
    /// Passes it on, for clients that cannot follow redirects.
    Forward,
}

impl RoutingMode {
    /// As `--routing` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Redirect => "redirect",
            Self::Forward => "forward",
        }
    }
}

/// How clients reach nodes.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Routing {
    /// What a node does with a request for another node's stream. Default redirect. Restarts pods.
    #[serde(default)]
    pub mode: RoutingMode,

    /// Each node's address, to which redirects lead: http(s)://HOST[:PORT] with {node} or {ordinal} in it, and {cluster},
    /// {service} (the headless one) and {namespace}, up to 500 characters. Default: the pod's name in the cluster. Restarts
    /// pods.
    #[serde(default = "advertised")]
    #[schemars(length(max = 500))]
    #[x_kube(
        validation = Rule::new("self.matches('^https?://[^/?#@ ]+$')").message("routing.advertisedUrl must be http(s)://HOST[:PORT], without path"),
        validation = Rule::new("self.contains('{node}') || self.contains('{ordinal}')").message("routing.advertisedUrl must hold {node} or {ordinal}: nodes need addresses of their own"),
        validation = Rule::new("self.replace('{node}', '').replace('{ordinal}', '').replace('{cluster}', '').replace('{service}', '').replace('{namespace}', '').matches('^[^{}]*$')").message("routing.advertisedUrl knows {node}, {ordinal}, {cluster}, {service} and {namespace} and no other placeholders")
    )]
    pub advertised_url: String,

    /// Base of the Location of created streams, http(s)://HOST[:PORT] of up to 500 characters; for a load balancer in front.
    /// Default: the host that the request named. Restarts pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    #[x_kube(validation = Rule::new("self.matches('^https?://[^/?#@{} ]+$')").message("routing.publicUrl must be http(s)://HOST[:PORT], without path"))]
    pub public_url: Option<String>,

    /// The DNS domain of the Kubernetes cluster, such as cluster.local, where names must be complete, up to 200 characters.
    /// Default: none, names end in .svc and the pods' resolver completes them. Restarts pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')").message("routing.clusterDomain must be a DNS name such as cluster.local, without a dot at its ends"))]
    pub cluster_domain: Option<String>,
}

fn advertised() -> String {
    "http://{node}.{service}.{namespace}.svc:4437".to_owned()
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            mode: RoutingMode::default(),
            advertised_url: advertised(),
            public_url: None,
            cluster_domain: None,
        }
    }
}

/// How a Service is reached.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceType {
    /// Inside the cluster.
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// At a port of every host.
    NodePort,
    /// Through a load balancer of the cloud.
    LoadBalancer,
}

impl ServiceType {
    /// As Services spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// A Service.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    /// How it is reached. Default ClusterIP. Restarts nothing.
    #[serde(default, rename = "type")]
    pub service_type: ServiceType,

    /// Annotations, for a load balancer's settings, up to 50. Default: none. Restarts nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 50))]
    pub annotations: BTreeMap<String, String>,

    /// SingleStack, PreferDualStack or RequireDualStack. Default: the cluster's. Restarts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self in ['SingleStack', 'PreferDualStack', 'RequireDualStack']").message("ipFamilyPolicy must be SingleStack, PreferDualStack or RequireDualStack"))]
    pub ip_family_policy: Option<String>,

    /// IPv4, IPv6 or both, the first preferred. Default: the cluster's. If it is IPv4 alone, nodes listen on 0.0.0.0, else
    /// on [::], which takes both; that restarts pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), schema_with = "families_schema")]
    #[x_kube(validation = Rule::new("self.all(f, f in ['IPv4', 'IPv6']) && (size(self) < 2 || self[0] != self[1])").message("ipFamilies must be IPv4, IPv6 or both, each once"))]
    pub ip_families: Vec<String>,
}

fn families_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 8}})
}

/// Who restarts pods whose template has changed.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpdateStrategy {
    /// The operator. It drains and restarts one at a time, the metadata log's leader last. The first pod that does not
    /// become ready stops it.
    #[default]
    Rolling,
    /// Nobody: a pod that runs takes the new template when somebody deletes it. One that cannot start is made anew.
    OnDelete,
}

/// How changes are carried out.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Update {
    /// Who restarts pods whose template has changed. Default Rolling. Restarts nothing by itself.
    #[serde(default)]
    pub strategy: UpdateStrategy,

    /// How long a node may take to give its streams away before it is restarted all the same, in seconds, 1 to 86400.
    /// Default 300. The removal of a node has no such limit. Restarts nothing.
    #[serde(default = "drain_timeout")]
    #[schemars(range(min = 1, max = 86_400))]
    pub drain_timeout_seconds: u32,
}

fn drain_timeout() -> u32 {
    300
}

impl Default for Update {
    fn default() -> Self {
        Self { strategy: UpdateStrategy::default(), drain_timeout_seconds: drain_timeout() }
    }
}

/// Keep or delete.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// Keep it.
    #[default]
    Retain,
    /// Delete it.
    Delete,
}

/// What becomes of volumes.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionPolicy {
    /// When the StreamCluster is deleted. Default Retain: with `objectStore.adoptClusterUid` a StreamCluster of the same
    /// name takes them over. Delete: Kubernetes' garbage collector deletes them. Restarts nothing.
    #[serde(default)]
    pub when_deleted: Policy,

    /// When a node was removed by scaling down, or its volume was replaced. Default Retain. Restarts nothing.
    #[serde(default)]
    pub when_scaled: Policy,
}
