//! I7: changing slots moves no stream that is placed; it shifts where later placements land.
//!
//! Where placements land is shown exhaustively beside `placement`. Here: no change of slots, in any run, touches who has
//! what.

use weir::metadata::command::Command;
use weir::metadata::state::State;

use super::Verdict;
use super::log::Log;

pub(super) fn check(verdict: &mut Verdict, log: &Log) {
    log.replay(|before, after, step| {
        if let Command::SetSlots { node, .. } = step.command() {
            compare(verdict, before, after, &format!("entry {} sets slots of {node}", step.index));
        }
    });
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

    use weir::metadata::command::Command;
    use weir::metadata::state::Ownership;

    use super::super::Verdict;
    use super::super::sample::{Made, holds};
    use super::compare;

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
