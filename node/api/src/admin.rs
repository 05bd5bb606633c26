//! Request and response bodies of the admin API. JSON, camelCase. Errors are problem details (RFC 9457).
//!
//! Times are milliseconds since 1970. Where a field says "by the log", it is the replicated record as the answering
//! node has applied it; another node may be a moment ahead. A field that is absent in JSON is `None`.

mod members;
mod moves;

use serde::{Deserialize, Serialize};

pub use members::{MemberList, MemberStatus};
pub use moves::{
    DrainState, DrainStatus, FenceNode, RemovedNode, TransferState, TransferStatus, TransferStream,
};

use crate::{ClusterUid, Incarnation, NodeEpoch, NodeId, Offset, RaftId, Slots, StreamEpoch, StreamId};

/// `GET /admin/cluster`: the cluster as one node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Minted when the cluster was founded.
    pub uid: ClusterUid,
    /// The configured identity, if one was given at founding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Nodes it was configured for at founding.
    pub configured_size: u32,
    /// The format version that everything is written in.
    pub format_version: u32,
    /// Who answers.
    pub answered_by: AnsweredBy,
    /// The metadata log.
    pub log: LogStatus,
    /// Nodes registered and not removed.
    pub nodes: u64,
    /// Of these, nodes with a live session.
    pub nodes_alive: u64,
    /// Streams by the log, unborn ones and tombstones included.
    pub streams: u64,
    /// Of these, streams open at a live node.
    #[serde(default)]
    pub open_streams: u64,
    /// Voters that the metadata log aims at: the largest odd number not above the configured voters and the nodes.
    #[serde(default)]
    pub voter_target: u32,
    /// As in [`MemberList`]: known to the leader alone, absent elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum_healthy: Option<bool>,
    /// Why the cluster takes no client's writes yet, if so: its voters were never all together. For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unformed: Option<String>,
    /// Streams on their way from one node to another: how many.
    #[serde(default)]
    pub pending_transfers: u64,
    /// The first 100 of them.
    #[serde(default)]
    pub transfers: Vec<TransferStatus>,
    /// Ended sessions whose records are not recovered yet: how many.
    pub awaiting_recovery: u64,
    /// The first 100 of them.
    pub recoveries: Vec<RecoveryStatus>,
}

/// The node behind an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnsweredBy {
    /// Its id.
    pub node: NodeId,
    /// Its program version.
    pub version: String,
    /// For how long it may still speak for the present, in milliseconds; 0: its lease has run out. It is renewed
    /// several times within its length.
    #[serde(default)]
    pub lease_ms: u64,
}

/// The metadata log, as the answering node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogStatus {
    /// The leader's number, if this node knows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<RaftId>,
    /// The leader's node, if it has registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_node: Option<NodeId>,
    /// The term.
    pub term: u64,
    /// The last entry that this node has applied.
    pub applied_index: u64,
    /// The last entry in this node's log, applied or not.
    #[serde(default)]
    pub last_index: u64,
    /// The highest leader time among applied entries.
    pub time_ms: u64,
    /// A hash of the whole state at `applied_index`, 16 hexadecimal digits; only with `?hash=true`, for it takes about a
    /// second per million streams. Two nodes that have applied the same index give the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_hash: Option<String>,
}

/// An ended session that still has open streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryStatus {
    /// Whose session it was.
    pub node: NodeId,
    /// At which epoch.
    pub epoch: NodeEpoch,
    /// When it ended, by the log's time.
    pub ended_at_ms: u64,
    /// Streams open at it.
    pub open_streams: u64,
    /// Who recovers it, if the recovery was handed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<NodeId>,
    /// The WAL object that it cannot get past, if it is the answering node that recovers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_on: Option<StoppedOn>,
}

/// Damage that a recovery does not pass over by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoppedOn {
    /// The object's number in its session's WAL.
    pub seq: u64,
    /// Which object or file, and what is wrong with it. For people.
    pub why: String,
}

/// `POST /admin/recovery/skip`, at the node that recovers: gives up one damaged WAL object, which is then treated as one
/// without records. **Acknowledged records are lost**: those in it, and those that follow it in the same streams. Only
/// the object that the recovery has stopped on is skipped (`stoppedOn` in `GET /admin/cluster`). Held in memory: after
/// a restart that comes before the recovery's end it has to be said again.
///
/// Errors: 400 `bad-body`; 409 `not-stopped-there`; 503 `unavailable`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SkipDamage {
    /// Whose session it was.
    pub node: NodeId,
    /// At which epoch.
    pub epoch: NodeEpoch,
    /// The number of the object to give up.
    pub seq: u64,
}

/// The answer to [`SkipDamage`]: the order is taken, and the recovery tried again at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Skipped {
    /// As asked.
    pub node: NodeId,
    /// As asked.
    pub epoch: NodeEpoch,
    /// As asked.
    pub seq: u64,
    /// What was wrong with it.
    pub why: String,
}

/// `GET /admin/nodes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeList {
    /// Ordered by id. Removed nodes are not listed.
    pub nodes: Vec<NodeStatus>,
}

/// `GET /admin/nodes/{id}`: one node by the log. Also the answer to `POST /admin/nodes/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Its id.
    pub id: NodeId,
    /// The highest epoch registered.
    pub epoch: NodeEpoch,
    /// The incarnation that registered last; on Kubernetes the pod's UID.
    pub incarnation: Incarnation,
    /// Its data directory's number in the metadata log.
    pub raft_id: RaftId,
    /// Whether its session is alive by the log. A node that just died counts as alive until it is fenced.
    pub alive: bool,
    /// Takes no new streams and gives its own away.
    pub draining: bool,
    /// Since when it drains, by the log's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining_since_ms: Option<u64>,
    /// Why it gave up draining, if it did. For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_gave_up: Option<String>,
    /// Capacity weight, 0 to 1000000.
    pub slots: Slots,
    /// The resource that set the slots last, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots_set_by: Option<ResourceVersion>,
    /// Streams placed or open at its live session.
    pub assigned_streams: u64,
    /// Of these, open ones.
    pub open_streams: u64,
    /// Streams that it would have if all that live nodes have were spread by slots over those that take new ones,
    /// rounded; 0 if it takes none.
    #[serde(default)]
    pub fair_share: u64,
    /// Entries that its metadata log is behind the leader's. Known to the leader alone; absent elsewhere, and if it has
    /// never said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_lag: Option<u64>,
    /// For how long the leader has counted it silent, in milliseconds; at `node-timeout` it is fenced. Known to the
    /// leader alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// Only this incarnation may register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_to: Option<Incarnation>,
    /// Where clients and nodes reach its client listener.
    pub http_url: String,
    /// Where nodes reach its peer listener.
    pub peer_address: String,
    /// Lowest format version it reads.
    pub format_min: u32,
    /// Highest format version it reads.
    pub format_max: u32,
}

/// Which state of which resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceVersion {
    /// The resource's UID.
    pub uid: String,
    /// Its generation.
    pub generation: u64,
}

/// `POST /admin/nodes/{id}`: sets a node's weight. Idempotent. Streams that are placed stay where they are.
///
/// Errors: 400 `bad-body`, `bad-node-id`; 404 `no-such-node`; 409 `older-generation`; 503 `unavailable`; 504
/// `outcome-unknown` (ask `GET /admin/nodes`, or send it again).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetNode {
    /// The new weight, 0 to 1000000. 0: no new streams.
    pub slots: Slots,
    /// The resource in whose name this is said, at most 128 bytes; with `resource_generation` or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_uid: Option<String>,
    /// Its generation. One older than that of the last change under the same uid is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_generation: Option<u64>,
}

/// `GET /admin/streams/{name}`: a stream by the log. Its owner may be ahead of the log: records that are acknowledged
/// but not yet in segments count only in the protocol's own HEAD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamStatus {
    /// Its name.
    pub name: String,
    /// Its number. A name deleted and created anew is another stream.
    pub id: StreamId,
    /// As given at its creation.
    pub content_type: String,
    /// Configured time to live in seconds, renewed by reads and writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// When it expires, if nothing renews it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<u64>,
    /// Who has it.
    pub ownership: OwnershipStatus,
    /// The epoch it was opened at last; 0 if never.
    pub epoch: StreamEpoch,
    /// First offset kept.
    pub start_offset: Offset,
    /// Records below are in segments.
    pub committed_offset: Offset,
    /// The end of what is durable, if the answering node is the owner; at most behind it by what is being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail_offset: Option<Offset>,
    /// Closed for good: by the log, or by the owner if it answers.
    pub closed: bool,
    /// Created with first bytes that have not arrived: clients get 404.
    pub unborn: bool,
    /// Deleted, kept for its forks: clients get 410.
    pub tombstone: bool,
    /// Forks that need its records.
    pub forks: u64,
    /// Runs of its records in segments.
    pub extents: u64,
    /// Its transfer, while one is pending: it is still open at the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<TransferStatus>,
}

/// Who has a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnershipStatus {
    /// What it is.
    pub state: OwnershipState,
    /// The node concerned; absent if released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Its epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_epoch: Option<NodeEpoch>,
}

/// How a stream is had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OwnershipState {
    /// Nobody has it; the next to need it opens it.
    Released,
    /// Given to a node that has not opened it.
    Placed,
    /// Open at a node.
    Open,
    /// The session that had it has ended; nobody serves it until that is recovered.
    AwaitingRecovery,
}

/// `GET /readyz`, with status 200 or 503.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyStatus {
    /// Whether clients should be sent here.
    pub ready: bool,
    /// Why not; empty if ready.
    pub reasons: Vec<ReadyReason>,
}

/// One thing that keeps a node from serving.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyReason {
    /// Stable, for machines, such as `store-unreachable`.
    pub code: String,
    /// For people; at most 500 characters.
    pub detail: String,
    /// Since when.
    pub since_ms: u64,
}

/// An error: `application/problem+json` (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `https://weir.dev/problems/` and the code. An identifier; there is no page.
    pub r#type: String,
    /// Stable, for machines: `no-such-node` and so on.
    pub code: String,
    /// The kind of error, for people.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// This case, for people: names the field and what is allowed.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_camel_case_and_knows_no_other_fields() {
        let body: SetNode =
            serde_json::from_str(r#"{"slots": 3, "resourceUid": "u", "resourceGeneration": 7}"#).unwrap();
        assert_eq!(body.slots.get(), 3);
        assert_eq!((body.resource_uid.as_deref(), body.resource_generation), (Some("u"), Some(7)));
        assert!(serde_json::from_str::<SetNode>(r#"{"slots": 3, "slot": 4}"#).is_err());
        assert!(serde_json::from_str::<SetNode>(r#"{"slots": 1000001}"#).is_err());
        assert!(serde_json::from_str::<SetNode>("{}").is_err());
    }

    #[test]
    fn absent_fields_are_left_out() {
        let status =
            OwnershipStatus { state: OwnershipState::AwaitingRecovery, node: None, node_epoch: None };
        assert_eq!(serde_json::to_string(&status).unwrap(), r#"{"state":"awaitingRecovery"}"#);
    }
}
