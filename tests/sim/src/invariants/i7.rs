//! I7: changing slots moves no stream that is placed; it shifts where later placements land.
//!
//! No change of slots, in any run, touches who has what; and whatever the log placed stands where a full count of the
//! state before says: at the lowest ratio of streams to slots among nodes that live, do not drain and have slots.

use weir::metadata::command::{Answer, Command};
use weir::metadata::query::Disposition;
use weir::metadata::state::{Ownership, State};
use weir_api::{NodeId, SessionId};

use super::Verdict;
use super::log::{Log, Step};

/// A state with more streams is not counted anew at each placement.
const COUNTED: usize = 2_000;

pub(super) fn check(verdict: &mut Verdict, log: &Log) {
    log.replay(|before, after, step| {
        if let Command::SetSlots { node, .. } = step.command() {
            compare(verdict, before, after, &format!("entry {} sets slots of {node}", step.index));
        }
        if before.streams.len() <= COUNTED
            && let Some(chosen) = chosen(before, step)
        {
            check_choice(verdict, before, &chosen, step.index);
        }
    });
}

/// The session at which this step placed a stream that nobody had.
fn chosen(before: &State, step: Step<'_>) -> Option<SessionId> {
    let was_free = |id| before.disposition(id) == Some(Disposition::Released);
    match (step.command(), step.outcome) {
        // A retry is told the same again: it placed nothing.
        (_, Ok(Answer::Created { stream, owner })) => before.stream(*stream).is_none().then(|| owner.clone()),
        (Command::Place { stream } | Command::Open { stream }, Ok(Answer::Placed(owner))) => {
            was_free(*stream).then(|| owner.session.clone())
        }
        (Command::Open { stream }, Ok(Answer::Opened { .. })) => {
            let by = step.envelope.request.as_ref()?;
            was_free(*stream).then(|| by.session.clone())
        }
        _ => None,
    }
}

fn check_choice(verdict: &mut Verdict, before: &State, chosen: &SessionId, index: u64) {
    let due = reference(before);
    if due.as_ref() != Some(chosen) {
        verdict.report("I7", format!("entry {index} places a stream at {chosen}, not at {due:?}"));
    }
}

/// The rule, word by word, with everything counted anew.
fn reference(state: &State) -> Option<SessionId> {
    let mut candidates: Vec<(u128, u128, &NodeId, &SessionId)> = Vec::new();
    for (id, node) in state.nodes.iter().filter(|(_, n)| !n.removed && !n.draining && n.slots.get() > 0) {
        let Some((no, session)) = node.session.and_then(|no| Some((no, state.live(no)?))) else { continue };
        let here = |o: Ownership| o == Ownership::Placed(no) || o == Ownership::Open(no);
        let assigned = state.streams.values().filter(|s| here(s.ownership)).count() as u128;
        candidates.push((assigned, u128::from(node.slots.get()), id, &session.id));
    }
    let better = |a: &&(u128, u128, &NodeId, &SessionId), b: &&(u128, u128, &NodeId, &SessionId)| {
        (a.0 * b.1).cmp(&(b.0 * a.1)).then(a.2.cmp(b.2))
    };
    candidates.iter().min_by(better).map(|c| c.3.clone())
}

fn compare(verdict: &mut Verdict, before: &State, after: &State, what: &str) {
    let moved = before.streams.iter().find(|(id, stream)| {
        after
            .streams
            .get(*id)
            .is_none_or(|now| (now.ownership, now.epoch) != (stream.ownership, stream.epoch))
    });
    if let Some((id, stream)) = moved {
        verdict.report("I7", format!("{what} and moves stream {id} from {:?}", stream.ownership));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir::metadata::command::Owner;

    use super::super::sample::{Made, breaks, holds};
    use super::*;

    #[test]
    fn slots_changed_under_placed_streams() {
        let mut run = Made::new();
        let (a, _) = (run.session("a", 1), run.session("b", 1));
        let s = run.stream("s");
        run.open(&a, s, 1);
        run.stream("t");
        for slots in [0, 7] {
            let slots = slots.try_into().unwrap();
            run.command(&a, Command::SetSlots { node: a.node.clone(), slots, resource: None }, None);
        }
        holds(&run, "I7");
    }

    #[test]
    fn placements_where_they_belong() {
        let mut run = Made::new();
        run.session("a", 1);
        run.session("b", 1);
        ["s", "t", "u"].into_iter().for_each(|name| assert!(run.stream(name).0 > 0));
        holds(&run, "I7");
    }

    #[test]
    fn a_placement_elsewhere() {
        let mut run = Made::new();
        let (a, b) = (run.session("a", 1), run.session("b", 1));
        run.stream("s");
        // a has one, b has none: the next is b's.
        let owner = Owner { session: a.clone(), open: None };
        let s = run.stream("t");
        run.open(&b, s, 1);
        run.release(&b, s, 1, 0);
        run.command(&b, Command::Place { stream: s }, Some(Ok(Answer::Placed(owner))));
        breaks(&run, "I7", "places a stream at a");
    }

    #[test]
    fn a_stream_moved() {
        let mut run = Made::new();
        run.session("a", 1);
        let s = run.stream("s");
        let before = run.state.clone();
        let mut after = before.clone();
        Arc::make_mut(after.streams.get_mut(&s).unwrap()).ownership = Ownership::Released;
        let mut verdict = Verdict::default();
        compare(&mut verdict, &before, &after, "slots are set");
        assert!(verdict.0[0].message.contains("moves stream"), "{verdict:?}");
    }
}
