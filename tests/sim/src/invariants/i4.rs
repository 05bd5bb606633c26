//! I4: a retried producer append has effect exactly once.
//!
//! What producers are told is `linear`'s to judge. Here: no session acknowledges as new what one before it, or itself,
//! has.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_api::{Offset, StreamId};

use super::Verdict;
use crate::linear::Violation;
use crate::trace::{Trace, What};

pub(super) fn check(verdict: &mut Verdict, trace: &Trace, said: &[Violation]) {
    for violation in said.iter().filter(|v| v.invariant() == "I4") {
        verdict.report("I4", violation.to_string());
    }
    let mut taken: BTreeMap<(StreamId, Arc<str>, u64, u64), Offset> = BTreeMap::new();
    for event in &trace.events {
        let What::Acknowledged { session, appends, .. } = &event.what else { continue };
        for a in appends {
            let Some((id, epoch, seq)) = &a.producer else { continue };
            let key = (a.stream, id.clone(), *epoch, *seq);
            let first = *taken.entry(key).or_insert(a.start);
            if first != a.start {
                let m = format!(
                    "stream {}: {session} acknowledged ({id}, {epoch}, {seq}) at {}, and it stands at {first}",
                    a.stream, a.start
                );
                verdict.report("I4", m);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Made, breaks, holds};

    #[test]
    fn each_number_once() {
        let mut run = Made::new();
        let a = run.session("a", 1);
        let s = run.stream("s");
        run.open(&a, s, 1).produced(&a, s, 1, 0, 5, 0).produced(&a, s, 1, 5, 9, 1);
        holds(&run, "I4");
    }

    #[test]
    fn a_number_taken_again_after_a_takeover() {
        let mut run = Made::new();
        let (a, b) = (run.session("a", 1), run.session("b", 1));
        let s = run.stream("s");
        run.open(&a, s, 1).produced(&a, s, 1, 0, 5, 0).open(&b, s, 2).produced(&b, s, 2, 5, 10, 0);
        breaks(&run, "I4", "it stands at 0");
    }
}
