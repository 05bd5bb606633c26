//! Deliberate mistakes in what nodes do around the log are found by whole nodes under faults.
//!
//! Each within the seeds stated here, from 1 on; `docs/mutants.md` says by which and what it broke. (Mistakes in the log
//! itself are `walk`'s to find, which is much cheaper; the models have their own.)

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a test, outside of the node's doors")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use weir::mutant::Mutant;
use weir_sim::farm::play;

const SIM: &str = env!("CARGO_BIN_EXE_weir-sim");

/// Runs that give a mistake chances.
#[derive(Clone, Copy)]
enum Runs {
    /// Schedules by chance.
    Any,
    /// This scenario.
    Of(&'static str),
}

const ZOMBIES: Runs = Runs::Of("zombies");
const STALE_VIEWS: Runs = Runs::Of("stale-views");

/// Who is found, in which runs, and within how many.
const MUTANTS: &[(Mutant, Runs, u64)] = &[
    (Mutant::NoSeal, ZOMBIES, 20),
    (Mutant::SealDeleted, ZOMBIES, 10),
    (Mutant::AckBeforePut, ZOMBIES, 20),
    (Mutant::RecoveredWithinLease, ZOMBIES, 60),
    (Mutant::SweepByAge, Runs::Any, 30),
    (Mutant::ProducersForgotten, Runs::Any, 10),
];

/// Who is not found yet, or was not looked for to the end: only by name.
const OPEN: &[(Mutant, Runs, u64)] = &[
    (Mutant::RecoveryIgnoresStreamEpoch, Runs::Any, 200),
    (Mutant::DuplicateBeforeDurable, ZOMBIES, 100),
    (Mutant::ReadPastDurable, ZOMBIES, 40),
    (Mutant::MissingByTheView, STALE_VIEWS, 40),
    (Mutant::CurrentByTheView, STALE_VIEWS, 40),
    (Mutant::UnknownCalledFailure, ZOMBIES, 60),
    (Mutant::NoLease, ZOMBIES, 40),
    (Mutant::LeaseFromArrival, ZOMBIES, 100),
    (Mutant::RedirectToTheDead, ZOMBIES, 40),
];

/// The first run that breaks an invariant, and what it says.
fn find(mutant: Mutant, runs: Runs, within: u64) -> Option<(u64, String)> {
    let name = format!("{mutant:?}");
    let mut more = vec!["--mutant", &*name];
    if let Runs::Of(scenario) = runs {
        more.extend(["--scenario", scenario]);
    }
    (1..=within).find_map(|seed| {
        let report = play(SIM, seed, &more);
        let broken = report.text.lines().filter_map(|line| line.strip_prefix("BROKEN "));
        // That a run came to no end shows little; that an invariant broke shows all.
        let broken = broken.filter(|b| b.starts_with('I') || b.contains("panicked"));
        Some((seed, broken.map(str::to_owned).next()?))
    })
}

#[test]
#[ignore = "many runs of the simulation: make mutants"]
fn every_mistake_in_the_nodes_is_found() {
    let only = std::env::var("WEIR_MUTANT").ok().filter(|name| !name.is_empty());
    let mutants: Vec<(Mutant, Runs, u64)> = match only {
        None => MUTANTS.to_vec(),
        Some(name) => {
            let named = |m: &&(Mutant, Runs, u64)| name == format!("{:?}", m.0);
            MUTANTS.iter().chain(OPEN).filter(named).copied().collect()
        }
    };
    assert!(!mutants.is_empty(), "no such mutant of nodes; those of the log are found by walks");
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&(mutant, runs, within)) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match find(mutant, runs, within) {
                        Some((seed, what)) => println!("{mutant:?}: seed {seed} of {within}: {what}"),
                        None => missed.lock().unwrap_or_else(PoisonError::into_inner).push((mutant, within)),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
