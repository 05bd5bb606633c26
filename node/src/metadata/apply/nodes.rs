//! Nodes on their way out: drained, then removed.
//!
//! Invariants (I6): removing leaves the node's id, highest epoch and incarnation, and that incarnation stays out; nothing
//! of a node is removed that a recovery still needs. A drain never takes from the cluster the last node that could
//! have the streams. `draining` says what `draining_since_ms` does.

use weir_api::{NodeEpoch, NodeId, SessionId};

use super::super::command::{Answer, Outcome, Refusal};
use super::super::limits;
use super::super::state::{Node, Session, State};
use super::requests::Proposer;
use super::sessions::member;
use super::{at_most, moves};

/// Sent again it is answered again.
pub(super) fn remove(state: &mut State, id: &NodeId) -> Outcome {
    let node = state.nodes.get(id).ok_or(Refusal::NoSuchNode)?;
    if node.removed {
        return Ok(Answer::Done);
    }
    if let Some(session) = node.session.and_then(|no| state.live(no)) {
        return Err(Refusal::NodeAlive(session.id.clone()));
    }
    if let Some(ended) = sessions_of(state, id).next() {
        return Err(Refusal::AwaitingRecovery(ended.id.clone()));
    }
    let node = state.nodes.get_mut(id).expect("just found");
    *node = Node {
        slots_by: None,
        pinned: None,
        draining: false,
        removed: true,
        draining_since_ms: None,
        drain_gave_up: None,
        ..node.clone()
    };
    Ok(Answer::Done)
}

pub(super) fn set_draining(state: &mut State, id: &NodeId, draining: bool) -> Outcome {
    let node = member(state, id)?;
    if draining && node.draining && node.drain_gave_up.is_none() {
        return Ok(Answer::Done);
    }
    if draining && sessions_of(state, id).any(|s| s.assigned > 0) && !others_take(state, id) {
        return Err(Refusal::LastNode);
    }
    let (time_ms, session) = (state.time_ms, node.session);
    let node = state.nodes.get_mut(id).expect("just found");
    node.draining = draining;
    node.draining_since_ms = draining.then_some(time_ms);
    node.drain_gave_up = None;
    if let Some(no) = session.filter(|_| draining) {
        moves::target_drains(state, no);
    }
    Ok(Answer::Done)
}

pub(super) fn give_up_drain(state: &mut State, by: Proposer<'_>, why: &str) -> Outcome {
    at_most("bytes of why", why.len(), limits::TEXT_BYTES)?;
    let draining = state.nodes.get_mut(&by.id.node).filter(|n| n.draining);
    draining.ok_or(Refusal::NotDraining)?.drain_gave_up = Some(why.to_owned());
    Ok(Answer::Done)
}

/// A node's sessions that live or await recovery.
fn sessions_of<'a>(state: &'a State, id: &'a NodeId) -> impl Iterator<Item = &'a Session> {
    let first = SessionId { node: id.clone(), epoch: NodeEpoch(0) };
    let of_node = state.session_numbers.range(first..).take_while(move |(s, _)| s.node == *id);
    of_node.filter_map(|(_, no)| state.session(*no))
}

/// Whether some other node takes new streams.
fn others_take(state: &State, id: &NodeId) -> bool {
    let takes = |n: &Node| {
        let session = n.session.and_then(|no| state.live(no));
        session.is_some_and(|s| state.ineligible(&s.id).is_none())
    };
    state.nodes.iter().any(|(other, n)| other != id && takes(n))
}
