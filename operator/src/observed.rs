//! What there is, as values: the plan's input.
//!
//! Invariant: plain data of one moment, already restricted to this cluster's own objects; nothing here reads or decides.
//! Made by `observe`, and by tests. Times are milliseconds since 1970.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use weir_api::NodeId;
use weir_api::admin::{DrainStatus, MemberList, NodeStatus, ReadyStatus};

/// Everything that was observed in one pass.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// When.
    pub now_ms: i64,
    /// The cluster's pods.
    pub pods: Vec<PodView>,
    /// The cluster's volume claims, those of a deleted StreamCluster of the same name too.
    pub volumes: Vec<VolumeView>,
    /// Volume claims that are not the cluster's and have names that its nodes would get.
    pub foreign_claims: BTreeSet<String>,
    /// Pods that have names of its nodes and are not among `pods`.
    pub foreign_pods: BTreeMap<String, Stranger>,
    /// Hosts by name; `None` if the operator may not read them.
    pub hosts: Option<BTreeMap<String, HostView>>,
    /// Objects that are applied: Services, ConfigMaps and so on.
    pub objects: Vec<ObjectView>,
    /// The admin tokens.
    pub tokens: Tokens,
    /// The object store's Secret.
    pub credentials: CredentialsView,
    /// The cluster's own record, if a node shows it.
    pub log: Option<LogView>,
    /// What each pod's node said of itself, by pod name.
    pub probes: BTreeMap<String, Probe>,
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// Its number.
    pub ordinal: u32,
    /// Its UID: the node's incarnation.
    pub uid: String,
    /// When it was made.
    pub created_ms: i64,
    /// Since when it is being deleted.
    pub deleting_since_ms: Option<i64>,
    /// The template it was made from.
    pub template: String,
    /// Annotations of the operator.
    pub annotations: BTreeMap<String, String>,
    /// The image of the node's container.
    pub image: String,
    /// Failed or Succeeded: it will not run again.
    pub finished: Option<String>,
    /// The host it is on.
    pub host: Option<String>,
    /// Where it is reached.
    pub ip: Option<String>,
    /// Why it has no host.
    pub unscheduled: Option<String>,
    /// Ready, by the kubelet.
    pub ready: bool,
    /// Since when it is as ready, or unready, as it is.
    pub ready_changed_ms: i64,
    /// The node's container runs.
    pub running: bool,
    /// Why the node's container does not run, if it was tried: a reason of the kubelet, and text.
    pub waiting: Option<(String, String)>,
    /// The last end of the node's container: exit code and last words.
    pub ended: Option<(i32, String)>,
    /// A container beside the node's that does not come up, by name, and why: a sidecar, or one that has to end first.
    pub beside: Option<String>,
    /// The ConfigMap that its node's settings come from.
    pub config: Option<String>,
    /// The claim of its data volume.
    pub claim: String,
}

/// A pod in the place of a node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stranger {
    /// Somebody else's.
    Foreign,
    /// The cluster's own, without the label by which it is found.
    Unlabelled,
    /// It goes by itself: it is being deleted, or its StreamCluster, which had the same name, is no more.
    Leaving,
}

/// A volume claim.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VolumeView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Whose.
    pub ordinal: u32,
    /// Which of the node's.
    pub index: u32,
    /// When it was made.
    pub created_ms: i64,
    /// It is being deleted.
    pub deleting: bool,
    /// The volume behind it is gone for good.
    pub lost: bool,
    /// Marked not to be used again.
    pub abandoned: bool,
    /// The StreamCluster it was made for.
    pub resource_uid: String,
    /// The garbage collector deletes it with its StreamCluster.
    pub owned: bool,
    /// Its storage class; `None` for the cluster's default, where there is none.
    pub class: Option<String>,
    /// Size asked for, in bytes.
    pub requested: u64,
    /// Size that the volume has, in bytes; 0: not known.
    pub capacity: u64,
    /// What it was made from, if it says so: see `resources::volume::asked`.
    pub asked: Option<String>,
    /// It never had a volume, so there is nothing in it: its version in which that was so.
    pub empty_at: Option<String>,
    /// Why it could not be resized, if that was tried.
    pub resize_error: Option<String>,
}

/// A host (a Kubernetes node).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostView {
    /// Not ready since then.
    pub unready_since_ms: Option<i64>,
    /// Takes no new pods.
    pub cordoned: bool,
    /// Declared dead by an administrator (taint `node.kubernetes.io/out-of-service`).
    pub out_of_service: bool,
}

/// Kinds of objects that are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The nodes' identity in Kubernetes.
    ServiceAccount,
    /// For clients, and for names.
    Service,
    /// The nodes' settings.
    ConfigMap,
    /// How many pods may be evicted at once.
    PodDisruptionBudget,
}

/// An object that is applied, as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectView {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// It belongs to this StreamCluster.
    pub ours: bool,
    /// All of it.
    pub body: Value,
}

/// The Secret with the admin tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Tokens {
    /// There is none.
    #[default]
    Absent,
    /// It can be used.
    Present,
    /// It cannot, and a person has to see to it.
    Unusable(String),
}

/// The object store's Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CredentialsView {
    /// The spec names none.
    #[default]
    NotNeeded,
    /// It is there; a digest of what the pods take from it.
    Found(String),
    /// It, or a key in it, is missing.
    Missing(String),
}

/// The cluster's own record, as the node that is furthest showed it.
#[derive(Debug, Clone, PartialEq)]
pub struct LogView {
    /// The metadata log's uid.
    pub uid: String,
    /// The last entry applied there.
    pub applied_index: u64,
    /// The node that leads.
    pub leader: Option<NodeId>,
    /// Registered nodes.
    pub nodes: Vec<NodeStatus>,
    /// The members, if the leader itself answered.
    pub members: Option<MemberList>,
    /// Why the leader, if there is one, did not show the members.
    pub members_error: Option<String>,
    /// Drains under way.
    pub drains: BTreeMap<NodeId, DrainStatus>,
    /// Streams in the cluster.
    pub streams: u64,
    /// Ended sessions that wait for recovery.
    pub awaiting_recovery: u64,
}

/// What a node said of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Probe {
    /// Its readiness, with reasons.
    pub ready: Option<ReadyStatus>,
    /// Its version.
    pub version: Option<String>,
    /// Why it could not be asked.
    pub error: Option<String>,
}
