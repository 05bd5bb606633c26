//! Moving streams and ending nodes: drain, transfer, fence, removal.

use serde::{Deserialize, Serialize};

use crate::{Incarnation, NodeEpoch, NodeId, StreamId};

/// How far a drain is: the answer to `POST`, `GET` and `DELETE /admin/nodes/{id}/drain`, at any node.
///
/// `POST` (no body) begins a drain or leaves the one under way alone: the node takes no new streams and gives its own
/// away, in batches. Status 202 while streams remain, 200 once none does. The node stays drained, over restarts too,
/// until `DELETE` cancels it or it is removed.
///
/// Errors: 400 `bad-node-id`; 404 `no-such-node`; 409 `last-node` (no other node that is alive, not draining and has
/// slots could take the streams); 503 `unavailable`; 504 `outcome-unknown` (ask with `GET`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainStatus {
    /// The node.
    pub node: NodeId,
    /// The highest epoch registered.
    pub epoch: NodeEpoch,
    /// Where it stands.
    pub state: DrainState,
    /// Streams that the node still has: placed or open at its live session, or open at an ended one that is not
    /// recovered yet.
    pub remaining_streams: u64,
    /// Of these, open ones.
    pub open_streams: u64,
    /// When the drain began, by the log's time; absent if not draining.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// What it waits for, or why it gave up. For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Where a drain stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DrainState {
    /// The node takes streams.
    NotDraining,
    /// It takes none, and has some left.
    Draining,
    /// It takes none and has none.
    Drained,
    /// It takes none and has some left, and nothing could be committed for 10 s: ask again with `POST`, or cancel.
    GaveUp,
}

/// `POST /admin/transfer`: hands one stream over. Status 202: pending; 200: it is there already. `DELETE` with the same
/// body aborts it, if it has not completed. The leader aborts what has not completed within 30 s, or lost a side.
///
/// Errors: 400 `bad-body`, `bad-stream-name`; 404 `no-such-stream`, `no-such-node`, `no-such-transfer` (`DELETE`);
/// 409 `not-eligible` (the target is not alive, draining, or has no slots; the detail says which),
/// `transfer-pending` (to another node), `awaiting-recovery`; 503 `unavailable`; 504 `outcome-unknown`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TransferStream {
    /// The stream's name.
    pub stream: String,
    /// Where it is to go.
    pub to_node: NodeId,
}

/// A transfer, as the log has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TransferStatus {
    /// The stream's name.
    pub stream: String,
    /// Its number.
    pub id: StreamId,
    /// Who gives it away; absent if nobody had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_node: Option<NodeId>,
    /// Who gets it.
    pub to_node: NodeId,
    /// How far it is.
    pub state: TransferState,
    /// When it began, by the log's time; absent if the stream was there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
}

/// How far a transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TransferState {
    /// The source still has it, or is letting go.
    Pending,
    /// The source has let go; only the target may open it.
    HandedOver,
    /// The target has it.
    Done,
    /// It was called off; the source keeps it, or anybody may have it.
    Aborted,
}

/// `POST /admin/nodes/{id}/fence`: ends a session, whether or not its process is gone. The answer is the node's
/// `NodeStatus`.
///
/// Accepted if the node's epoch is `epoch` (its session ends, unless it is of that incarnation), or if its registered
/// incarnation is the one named. With an incarnation the node is pinned to it: no other may register, until another
/// fence names another, or the node is removed. Without one, only the session ends. Idempotent.
///
/// Errors: 400 `bad-body`, `bad-node-id`; 404 `no-such-node`; 409 `other-epoch` (the detail says which is
/// registered); 503 `unavailable`; 504 `outcome-unknown`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FenceNode {
    /// The epoch to end.
    pub epoch: NodeEpoch,
    /// The only incarnation that may register from now on; on Kubernetes the pod's UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
}

/// The answer to `DELETE /admin/nodes/{id}`: what is kept of a removed node. Its incarnation never registers again, and
/// its next one registers above this epoch. The node leaves the metadata log's members soon after. Idempotent.
///
/// Errors: 400 `bad-node-id`; 404 `no-such-node` (never registered); 409 `node-alive` (fence it, or drain it and stop
/// it first), `awaiting-recovery`; 503 `unavailable`; 504 `outcome-unknown`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovedNode {
    /// The node.
    pub id: NodeId,
    /// The highest epoch that it registered.
    pub epoch: NodeEpoch,
    /// The incarnation that registered last.
    pub incarnation: Incarnation,
}
