//! Where a stream without an owner goes.
//!
//! Invariant (I7): a pure choice from the nodes alone; it moves nothing that is placed, and its cost does not depend on
//! how many streams there are. Called by `apply`, and by whoever wants to know what it would say.

use weir_api::{NodeId, SessionId};

use super::state::{Node, Session, SessionNo, State};
use crate::mutant::{self, Mutant};

/// The session with the lowest assigned/slots among those that take new streams; the lower node id breaks a tie.
pub fn pick(state: &State) -> Option<SessionNo> {
    let mut best: Option<(SessionNo, u64, u32)> = None;
    // Nodes come in order of their id, so a later one must be strictly better.
    for (id, node) in &state.nodes {
        let Some((no, session)) = candidate(state, id, node) else { continue };
        let slots = node.slots.get();
        let better = best.is_none_or(|(_, assigned, of)| {
            u128::from(session.assigned) * u128::from(of) < u128::from(assigned) * u128::from(slots)
        });
        if better {
            best = Some((no, session.assigned, slots));
        }
    }
    best.map(|(no, ..)| no)
}

/// The node's session, if it is alive and the node takes new streams.
fn candidate<'a>(state: &'a State, id: &NodeId, node: &Node) -> Option<(SessionNo, &'a Session)> {
    let mut no = node.session;
    if no.is_none() && mutant::on(Mutant::PlaceOnDeadNode) {
        no = state.session_by_id(&SessionId { node: id.clone(), epoch: node.epoch }).map(|(no, _)| no);
    }
    let no = no?;
    let draining = node.draining && !mutant::on(Mutant::PlaceOnDrainingNode);
    let takes = !node.removed && !draining && node.slots.get() > 0;
    let known = if node.session.is_some() { state.live(no) } else { state.session(no) };
    takes.then_some(no).zip(known)
}

#[cfg(test)]
mod tests;
