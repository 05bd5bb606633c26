//! One run from its seed: plays it, judges it, and says what was found.
//!
//! Invariant: a run has a process of its own (`main`), because what time and chance are for libraries that ask the
//! system is the whole process's. Called by `main`; `farm` starts many.

use weir_tests::rng::Rng;

use crate::schedule::Schedule;
use crate::trace::Trace;
use crate::world::{Ran, World};

/// What a run showed.
pub struct Verdict {
    /// All that happened.
    pub trace: Trace,
    /// What was broken: the invariant's name and what was seen.
    pub broken: Vec<(String, String)>,
}

/// Plays the schedule that follows from `seed`. `tell` is told the time, in nanoseconds since the run began.
pub fn run(seed: u64, tell: fn(u64)) -> Verdict {
    let schedule = Schedule::draw(&mut Rng::new(seed));
    play(seed, schedule, tell)
}

/// Plays a schedule.
pub fn play(seed: u64, schedule: Schedule, tell: fn(u64)) -> Verdict {
    let Ran { trace, stuck } = World::new(seed, schedule, tell).run();
    let broken = stuck.into_iter().map(|what| ("progress".to_owned(), what)).collect();
    Verdict { trace, broken }
}
