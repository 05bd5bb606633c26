//! Nothing is stuck: from every state, what nodes and leader do by themselves leads to a session that takes appends.
//!
//! A fair run of theirs, step by step; a state in which it comes to no end is one that needs a person.

use super::rules::Life;
use super::{Action, Ownership, SESSIONS, State, Transfer};

/// No run takes longer: each step takes something away that stood in the way.
const STEPS: usize = 40;

/// Whether appends are taken again, as long as a session lives whose process is there.
pub(super) fn goes_on(model: &Transfer, state: &State) -> bool {
    let mut at = *state;
    if !(0..SESSIONS as u8).any(|s| able(&at, s)) {
        return true;
    }
    for _ in 0..STEPS {
        if takes_appends(&at) {
            return true;
        }
        let Some(next) = helpful(model, &at).find_map(|action| model.step(&at, action)) else {
            return false;
        };
        at = next;
    }
    false
}

fn able(state: &State, session: u8) -> bool {
    state.log.is_live(session) && !state.processes[usize::from(session)].down
}

fn takes_appends(state: &State) -> bool {
    let Ownership::Open(owner) = state.log.ownership else { return false };
    let open = state.processes[usize::from(owner)].open;
    able(state, owner) && open.is_some_and(|open| open.epoch == state.log.epoch && !open.stopped)
}

/// What is done by itself, the more pressing first.
fn helpful(model: &Transfer, state: &State) -> impl Iterator<Item = Action> {
    let all = || 0..SESSIONS as u8;
    let (state, aborts) = (*state, !model.faults.outlives_its_sides);
    let dead = all().filter(move |&s| state.log.is_live(s) && !able(&state, s)).map(Action::Fence);
    let ended = all()
        .filter(move |&s| state.log.life(s) == Life::Ended)
        .map(move |s| Action::Recover(s, state.processes[usize::from(s)].stored));
    let proposed = all().map(Action::Apply);
    // A source that has stopped gets on with it.
    let source = state.log.pending.map(|(source, _)| source).filter(|&s| able(&state, s)).into_iter();
    let stopped = source.flat_map(|s| [Action::Settle(s), Action::Commit(s), Action::Propose(s)]);
    // The leader's deadline for a transfer. (With the fault it does not look.)
    let late = aborts.then_some(Action::Abort).into_iter();
    let off = all().filter(move |&s| able(&state, s)).map(Action::Resume);
    let opens = all().filter(move |&s| able(&state, s)).map(Action::Open);
    dead.chain(ended).chain(proposed).chain(stopped).chain(late).chain(off).chain(opens)
}
