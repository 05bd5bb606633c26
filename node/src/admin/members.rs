//! Members of the metadata log, and the ends of nodes: fence and removal.
//!
//! Invariant: pure. Used by `super`.

use weir_api::NodeId;
use weir_api::admin::{FenceNode, MemberList, MemberStatus, RemovedNode};

use super::Local;
use super::nodes::millis;
use crate::metadata::command::{Command, FenceReason};
use crate::metadata::state::State;

pub(super) fn list(local: &Local) -> MemberList {
    // What others have only the leader knows; of itself every node knows, which says nothing.
    let leads = local.quorum_healthy.is_some();
    let mut members: Vec<MemberStatus> = local
        .members
        .iter()
        .map(|m| MemberStatus {
            raft_id: m.raft_id,
            node: m.node.clone(),
            peer_address: m.address.clone(),
            voter: m.voter,
            leader: m.leader,
            matched_index: m.matched.filter(|_| leads),
            caught_up: leads.then_some(m.caught_up),
            heard_ms_ago: m.heard.map(|at| millis(at.elapsed())),
        })
        .collect();
    members.sort_by_key(|m| m.raft_id);
    MemberList { voter_target: local.voter_target, quorum_healthy: local.quorum_healthy, members }
}

/// The command that a body asks for.
pub(super) fn fence(node: NodeId, body: &FenceNode) -> Command {
    let FenceNode { epoch, incarnation } = body.clone();
    Command::Fence { node, epoch, incarnation, reason: FenceReason::Admin }
}

/// What is kept of a node that was removed.
pub(super) fn removed(state: &State, id: &NodeId) -> Option<RemovedNode> {
    let node = state.nodes.get(id).filter(|n| n.removed)?;
    Some(RemovedNode { id: id.clone(), epoch: node.epoch, incarnation: node.incarnation.clone() })
}

/// What was asked for is so, whoever did it.
pub(super) fn is_fenced(state: &State, node: &NodeId, body: &FenceNode) -> bool {
    let FenceNode { epoch, incarnation } = body;
    state.nodes.get(node).filter(|n| !n.removed).is_some_and(|n| {
        let named = incarnation.as_ref() == Some(&n.incarnation);
        let over = n.epoch > *epoch || (n.epoch == *epoch && n.session.is_none());
        let pinned = incarnation.is_none() || n.pinned == *incarnation;
        (over || named) && pinned
    })
}
