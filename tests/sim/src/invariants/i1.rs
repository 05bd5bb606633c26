//! I1: for each stream and stream epoch at most one session ever gets an append acknowledged.
//!
//! Stronger, because what follows from it is easier to miss: the one session is that to which the log gave the epoch,
//! and the log gives each epoch of a stream once.

use std::collections::BTreeMap;

use weir::metadata::command::{Answer, Command};
use weir_api::{SessionId, StreamEpoch, StreamId};

use super::Verdict;
use super::log::Log;
use crate::trace::{Trace, What};

pub(super) fn check(verdict: &mut Verdict, trace: &Trace, log: &Log) {
    let opened = openings(verdict, log);
    let mut acknowledged: BTreeMap<(StreamId, StreamEpoch), &SessionId> = BTreeMap::new();
    for event in &trace.events {
        let What::Acknowledged { session, appends, .. } = &event.what else { continue };
        for a in appends {
            let first = *acknowledged.entry((a.stream, a.epoch)).or_insert(session);
            let at = format!("stream {} at epoch {}", a.stream, a.epoch);
            if first != session {
                verdict.report("I1", format!("{at}: {first} and {session} both acknowledged appends"));
            }
            if opened.get(&(a.stream, a.epoch)).is_none_or(|by| by != session) {
                verdict
                    .report("I1", format!("{at}: {session} acknowledged, and the log never opened it there"));
            }
        }
    }
}

/// Who opened what, and that nothing was opened twice.
fn openings(verdict: &mut Verdict, log: &Log) -> BTreeMap<(StreamId, StreamEpoch), SessionId> {
    let mut opened: BTreeMap<(StreamId, StreamEpoch), SessionId> = BTreeMap::new();
    for step in log.steps() {
        let (Command::Open { stream }, Ok(Answer::Opened { epoch })) = (step.command(), step.outcome) else {
            continue;
        };
        let Some(request) = &step.envelope.request else { continue };
        // A retry is told the same again.
        let first = opened.entry((*stream, *epoch)).or_insert_with(|| request.session.clone());
        if *first != request.session {
            let m = format!("stream {stream} was opened at epoch {epoch} by {first} and {}", request.session);
            verdict.report("I1", m);
        }
    }
    opened
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Made, breaks, holds};

    #[test]
    fn each_epoch_has_its_session() {
        let mut run = Made::new();
        let (a, b) = (run.session("a", 1), run.session("b", 1));
        let s = run.stream("s");
        run.open(&a, s, 1).acked(&a, s, 1, 0, 5).open(&b, s, 2).acked(&b, s, 2, 5, 9);
        holds(&run, "I1");
    }

    #[test]
    fn two_sessions_at_one_epoch() {
        let mut run = Made::new();
        let (a, b) = (run.session("a", 1), run.session("b", 1));
        let s = run.stream("s");
        run.open(&a, s, 1).acked(&a, s, 1, 0, 5).acked(&b, s, 1, 5, 9);
        breaks(&run, "I1", "both acknowledged");
    }

    #[test]
    fn an_epoch_given_twice() {
        let mut run = Made::new();
        let (a, b) = (run.session("a", 1), run.session("b", 1));
        let s = run.stream("s");
        run.open(&a, s, 1).open(&b, s, 1);
        breaks(&run, "I1", "was opened at epoch");
    }

    #[test]
    fn an_epoch_that_nobody_gave() {
        let mut run = Made::new();
        let a = run.session("a", 1);
        let s = run.stream("s");
        run.open(&a, s, 1).acked(&a, s, 2, 0, 5);
        breaks(&run, "I1", "never opened");
    }
}
