//! One run from its seed: plays it, judges it, and says what was found.
//!
//! Invariant: a run has a process of its own (`main`), because what time and chance are for libraries that ask the
//! system is the whole process's. Called by `main`; `farm` starts many.

use weir_tests::rng::Rng;

use crate::invariants::{self, Broken};
use crate::schedule::{Scenario, Schedule};
use crate::trace::{Fault, Trace, What};
use crate::world::{Ran, World};

/// What a run showed.
pub struct Verdict {
    /// All that happened.
    pub trace: Trace,
    /// What was broken.
    pub broken: Vec<Broken>,
}

/// Plays the schedule that follows from `seed`, or the scenario's. `tell` is told the time, in nanoseconds since the run
/// began.
pub fn run(seed: u64, scenario: Option<Scenario>, tell: fn(u64)) -> Verdict {
    let mut rng = Rng::new(seed);
    let schedule = match scenario {
        Some(scenario) => scenario.schedule(&mut rng),
        None => Schedule::draw(&mut rng),
    };
    let mut verdict = play(seed, schedule, tell);
    if scenario == Some(Scenario::StaleViews) {
        verdict.broken.extend(stale_views(&verdict.trace));
    }
    verdict
}

/// Views did lag: requests went round, were refused after waiting for what the sender knew, and never more than so far.
fn stale_views(trace: &Trace) -> Option<Broken> {
    let told = || {
        trace.events.iter().filter_map(|e| match &e.what {
            What::Answered { told, .. } => Some(told),
            _ => None,
        })
    };
    let most = told().map(|t| t.hops).max().unwrap_or(0);
    let refused = told().filter(|t| t.hops > 0 && t.status == 503).count();
    let seen = format!("{most} hops at most, {refused} times 503 after one");
    let broken = |invariant| Some(Broken { invariant, message: seen.clone() });
    match (most, refused) {
        (4.., _) => broken("I8"),
        (1..4, 1..) => None,
        _ => broken("run"),
    }
}

/// Nodes do listen to the administrator: orders that are not heard move nothing and fence nobody, and no invariant
/// would notice.
fn strange_administrator(trace: &Trace) -> Option<Broken> {
    let refused = |text: &&str| [": 401 ", ": 403 ", ": 421 "].iter().any(|status| text.contains(status));
    let mut said = trace.events.iter().filter_map(|e| match &e.what {
        What::Fault(Fault::Other(text)) => Some(&**text),
        _ => None,
    });
    said.find(refused)
        .map(|text| Broken { invariant: "run", message: format!("an order was not heard: {text}") })
}

/// Plays a schedule.
pub fn play(seed: u64, schedule: Schedule, tell: fn(u64)) -> Verdict {
    let Ran { trace, stuck } = World::new(seed, schedule, tell).run();
    let mut broken = invariants::check(&trace);
    broken.extend(strange_administrator(&trace));
    broken.extend(stuck.into_iter().map(|message| Broken { invariant: "progress", message }));
    Verdict { trace, broken }
}
