//! I5: same log, same state, at every node, in every process, through snapshots too; and the state fits together.

use std::collections::BTreeMap;

use weir::metadata::codec::state_hash;
use weir::metadata::consistency::check_consistency;

use super::Verdict;
use crate::trace::{Host, Trace, What};

pub(super) fn check(verdict: &mut Verdict, trace: &Trace) {
    check_entries(verdict, trace);
    check_hashes(verdict, trace);
    for (host, index, state) in &trace.states {
        if let Err(why) = check_consistency(state) {
            verdict.report("I5", format!("{} at {index}: {why}", trace.name(*host)));
        }
    }
}

/// An index holds one entry, which comes to one outcome.
fn check_entries(verdict: &mut Verdict, trace: &Trace) {
    let mut first = BTreeMap::new();
    for event in &trace.events {
        let What::Applied { host, index, batch, outcomes, .. } = &event.what else { continue };
        let (by, known, came_to) = *first.entry(*index).or_insert((*host, batch, outcomes));
        let (a, b) = (trace.name(by), trace.name(*host));
        if known != batch {
            verdict.report("I5", format!("entry {index} is another at {b} than at {a}"));
        } else if came_to != outcomes {
            let m = format!("entry {index} came to {outcomes:?} at {b}, to {came_to:?} at {a}");
            verdict.report("I5", m);
        }
    }
}

/// After an index there is one state.
fn check_hashes(verdict: &mut Verdict, trace: &Trace) {
    let mut first: BTreeMap<u64, (Host, u64)> = BTreeMap::new();
    let seen = trace.events.iter().filter_map(|event| match event.what {
        What::Applied { host, index, hash: Some(hash), .. }
        | What::Installed { host, index, hash: Some(hash) } => Some((host, index, hash)),
        _ => None,
    });
    let last = trace.states.iter().map(|(host, index, state)| (*host, *index, state_hash(state)));
    for (host, index, hash) in seen.chain(last) {
        let (by, known) = *first.entry(index).or_insert((host, hash));
        if known != hash {
            let (a, b) = (trace.name(by), trace.name(host));
            verdict.report("I5", format!("after entry {index} the state at {b} is not that at {a}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Made, breaks, holds};
    use crate::trace::What;

    #[test]
    fn two_nodes_alike() {
        let mut run = Made::new();
        run.session("a", 1);
        run.stream("s");
        run.also_at("other").end();
        holds(&run, "I5");
    }

    #[test]
    fn another_outcome() {
        let mut run = Made::new();
        run.session("a", 1);
        run.also_at("other");
        let last = run.trace.events.iter_mut().rev().find_map(|e| match &mut e.what {
            What::Applied { outcomes, .. } if !outcomes.is_empty() => Some(outcomes),
            _ => None,
        });
        last.unwrap().pop();
        breaks(&run, "I5", "came to");
    }

    #[test]
    fn another_entry() {
        let mut run = Made::new();
        run.session("a", 1);
        run.also_at("other");
        if let Some(What::Applied { batch, .. }) = run.trace.events.last_mut().map(|e| &mut e.what) {
            *batch = None;
        }
        breaks(&run, "I5", "is another");
    }

    #[test]
    fn another_state_after_a_snapshot() {
        let mut run = Made::new();
        run.session("a", 1);
        let (index, host) = (run.index(), run.trace.host("other"));
        run.event(What::Installed { host, index, hash: Some(0) });
        breaks(&run, "I5", "the state at other");
    }

    #[test]
    fn a_state_that_does_not_fit_together() {
        let mut run = Made::new();
        run.session("a", 1);
        run.stream("s");
        run.end();
        run.trace.states[0].2.names.clear();
        breaks(&run, "I5", "does not have its name");
    }
}
