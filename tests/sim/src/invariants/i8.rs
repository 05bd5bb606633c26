//! I8: a stale view costs extra hops, and hops end: no redirect loops, no redirect to a node known dead, and each hop
//! knows at least as much as the last.

use std::collections::BTreeMap;

use weir::metadata::state::State;

use super::Verdict;
use super::log::Log;
use crate::trace::{Call, Trace, What};

/// A request is sent on at most so often.
const HOPS: u32 = 3;

pub(super) fn check(verdict: &mut Verdict, trace: &Trace, log: &Log) {
    let redirected = trace.events.iter().any(|e| matches!(e.what, What::Redirected { .. }));
    if !redirected {
        return;
    }
    let states = log.states();
    let mut hops: BTreeMap<Call, (u32, u64)> = BTreeMap::new();
    for event in &trace.events {
        let What::Redirected { call, by, to, index, hops: said } = &event.what else { continue };
        let (count, last) = *hops.entry(*call).and_modify(|h| h.0 += 1).or_insert((1, 0));
        let what = format!("call {}, sent on by {} to {to}", call.0, trace.name(*by));
        if count > HOPS || *said > HOPS {
            verdict.report("I8", format!("{what}: hop {count}, and it says {said}"));
        }
        if *index < last {
            verdict.report("I8", format!("{what}: it knows entry {index}, and a hop before knew {last}"));
        }
        hops.insert(*call, (count, *index));
        // It names what its sender's view held. Of what is beyond the log's end here nothing is known.
        let known = states.last_key_value().is_some_and(|(last, _)| last >= index);
        let view = states.range(..=*index).next_back().filter(|_| known);
        if let Some((at, state)) = view
            && !is_alive(state, to)
        {
            verdict.report("I8", format!("{what}: as of entry {at} no live session is there"));
        }
    }
}

/// Whether a live session has its client listener at `origin`.
fn is_alive(state: &State, origin: &str) -> bool {
    let here = |url: &str| url.trim_end_matches('/') == origin.trim_end_matches('/');
    state
        .nodes
        .values()
        .any(|node| here(&node.http_url) && node.session.is_some_and(|no| state.live(no).is_some()))
}

#[cfg(test)]
mod tests {
    use weir::metadata::command::{Command, FenceReason};
    use weir_api::NodeEpoch;
    use weir_tests::history::Action;

    use super::super::sample::{Made, breaks, holds};
    use crate::trace::{Call, What};

    fn redirect(run: &mut Made, call: Call, to: &str, index: u64, hops: u32) {
        let (by, to) = (run.trace.host("first"), to.to_owned());
        run.event(What::Redirected { call, by, to, index, hops });
    }

    #[test]
    fn three_hops_each_wiser() {
        let mut run = Made::new();
        run.session("a", 1);
        let call = run.asked("s", Action::Head);
        (1..=3).for_each(|n| redirect(&mut run, call, "http://a:1", 1 + u64::from(n), n));
        holds(&run, "I8");
    }

    #[test]
    fn a_fourth_hop() {
        let mut run = Made::new();
        run.session("a", 1);
        let call = run.asked("s", Action::Head);
        (1..=4).for_each(|n| redirect(&mut run, call, "http://a:1", 1, n));
        breaks(&run, "I8", "hop 4");
    }

    #[test]
    fn hops_that_are_counted_anew() {
        let mut run = Made::new();
        run.session("a", 1);
        let call = run.asked("s", Action::Head);
        (1..=4).for_each(|_| redirect(&mut run, call, "http://a:1", 1, 1));
        breaks(&run, "I8", "hop 4");
    }

    #[test]
    fn a_hop_that_knows_less() {
        let mut run = Made::new();
        run.session("a", 1);
        let call = run.asked("s", Action::Head);
        redirect(&mut run, call, "http://a:1", 2, 1);
        redirect(&mut run, call, "http://a:1", 1, 2);
        breaks(&run, "I8", "a hop before knew 2");
    }

    #[test]
    fn sent_to_the_dead() {
        let mut run = Made::new();
        let (a, b) = (run.session("a", 1), run.session("b", 1));
        let fence = Command::Fence {
            node: a.node,
            epoch: NodeEpoch(1),
            incarnation: None,
            reason: FenceReason::Silence,
        };
        run.command(&b, fence, None);
        let call = run.asked("s", Action::Head);
        redirect(&mut run, call, "http://a:1", 4, 1);
        breaks(&run, "I8", "no live session");
    }
}
