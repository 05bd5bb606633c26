//! Who takes part in the metadata log.

use serde::{Deserialize, Serialize};

use crate::{NodeId, RaftId};

/// `GET /admin/members`: the metadata log's members as the answering node knows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberList {
    /// Voters that the cluster aims at: the largest odd number not above the configured voters and the nodes.
    pub voter_target: u32,
    /// Whether a majority of the voters has been heard of within an election time-out. Known to the leader alone;
    /// absent elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum_healthy: Option<bool>,
    /// Ordered by raft id.
    pub members: Vec<MemberStatus>,
}

/// One data directory's part in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Its number.
    pub raft_id: RaftId,
    /// Whose directory it is, if that node has registered under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Its peer listener, as the membership says: `host:port`.
    pub peer_address: String,
    /// It votes; otherwise it learns.
    pub voter: bool,
    /// It leads, as far as the answering node knows.
    pub leader: bool,
    /// The last log index it is known to hold. Known to the leader alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched_index: Option<u64>,
    /// Whether it holds all of the log, or almost. Known to the leader alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caught_up: Option<bool>,
    /// Milliseconds since the answering process heard of it; absent if never, or for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_ms_ago: Option<u64>,
}
