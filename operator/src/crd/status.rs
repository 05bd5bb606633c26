//! What the operator says of a cluster.
//!
//! Invariant: rebuilt in full from observation at each pass. What only the status remembers: the cluster uid (so that no
//! second log is founded), which pod and epoch a node had before, and since when things are as they are.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// What the operator says of a cluster.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamClusterStatus {
    /// The generation of the spec that all of this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// What the cluster is, or what is being done to it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known")]
    pub state: Option<ClusterState>,

    /// What it waits for, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,

    /// Nodes ready of nodes wanted, as 2/3.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ready: String,

    /// Pods, for the scale subresource.
    #[serde(default)]
    pub replicas: u32,

    /// Nodes that serve.
    #[serde(default)]
    pub ready_replicas: u32,

    /// Pods that have the newest template.
    #[serde(default)]
    pub updated_replicas: u32,

    /// Selects the pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,

    /// The uid of the metadata log; since it stands here, no other is founded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,

    /// The image in use. Where the spec names none it stays, also under a newer operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,

    /// The node that leads the metadata log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,

    /// The version that the nodes report; several, while they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// Streams in the cluster, refreshed about once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u64>,

    /// Sum of the weights that the nodes have applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u64>,

    /// The nodes, by ordinal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub nodes: Vec<NodeState>,

    /// What is being done to a node, if anything is: never more than one thing at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationState>,

    /// Ready, Progressing, Degraded, QuorumHealthy, SlotsSynced, StorageReady; Reconciling and Stalled for tools that know
    /// kstatus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// What a cluster is, or what is being done to it.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterState {
    /// Being put up.
    Creating,
    /// As wanted.
    Ready,
    /// Nodes are being started.
    ScalingUp,
    /// Nodes are being removed.
    ScalingDown,
    /// Pods are being restarted, one by one.
    Rolling,
    /// A node is being replaced.
    Replacing,
    /// A node gives its streams away.
    Draining,
    /// Something is not as wanted, and the operator waits for it.
    Waiting,
    /// Something has to be done by a person; the message says what.
    Blocked,
    /// Told to leave everything as it is.
    Paused,
}

/// One that another version of the operator has written is made anew at the next pass.
fn known<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ClusterState>, D::Error> {
    let written = Option::<String>::deserialize(from)?;
    Ok(written.and_then(|state| serde_json::from_value(state.into()).ok()))
}

/// One node.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    /// Its name, and its pod's.
    pub name: String,

    /// The number at the end of the name.
    pub ordinal: u32,

    /// Serves, as the cluster's record and Kubernetes both have it.
    pub ready: bool,

    /// The pod that is registered under this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,

    /// The epoch it registered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,

    /// Its data directory's number in the metadata log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raft_id: Option<u64>,

    /// Votes in the metadata log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub voter: bool,

    /// Its weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<SlotsState>,

    /// Streams it has, refreshed about once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u64>,

    /// Takes no streams and gives its own away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,

    /// Since when it drains, over attempts that it gave up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining_since: Option<Time>,

    /// Has the newest template.
    pub updated: bool,

    /// The host that its pod is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,

    /// Its volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,

    /// What keeps it from being ready.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A weight, wanted and had.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotsState {
    /// What the spec says.
    pub desired: u32,

    /// What the cluster's record says; absent while it does not know the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<u32>,
}

/// Something that is being done to a node.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationState {
    /// What: Remove, Restart, Replace, Drain.
    pub kind: String,

    /// To which node.
    pub node: String,

    /// Where it stands, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
}
