//! Where a stream without an owner goes.
//!
//! Invariant (I7): a pure choice from the nodes alone; it moves nothing that is placed, and its cost does not depend on
//! how many streams there are. Called by `apply`, and by whoever wants to know what it would say.

use super::state::{Node, Session, SessionNo, State};

/// The session with the lowest assigned/slots among those that take new streams; the lower node id breaks a tie.
pub fn pick(state: &State) -> Option<SessionNo> {
    let mut best: Option<(SessionNo, u64, u32)> = None;
    // Nodes come in order of their id, so a later one must be strictly better.
    for node in state.nodes.values() {
        let Some((no, session)) = candidate(state, node) else { continue };
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
fn candidate<'a>(state: &'a State, node: &Node) -> Option<(SessionNo, &'a Session)> {
    let no = node.session?;
    let takes = !node.removed && !node.draining && node.slots.get() > 0;
    takes.then_some(no).zip(state.live(no))
}

#[cfg(test)]
mod tests;
