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
#[derive(Debug, Clone, Copy)]
enum Runs {
    /// Schedules by chance.
    Any,
    /// This scenario.
    Of(&'static str),
}

const ZOMBIES: Runs = Runs::Of("zombies");
const ISLANDS: Runs = Runs::Of("islands");
const SLEEPERS: Runs = Runs::Of("sleepers");
const STALE_VIEWS: Runs = Runs::Of("stale-views");

/// Who is found, in which runs, and within how many.
const MUTANTS: &[(Mutant, Runs, u64)] = &[
    (Mutant::NoSeal, ZOMBIES, 20),
    (Mutant::SealDeleted, ZOMBIES, 10),
    (Mutant::AckBeforePut, ZOMBIES, 20),
    (Mutant::RecoveredWithinLease, ISLANDS, 60),
    (Mutant::SweepByAge, Runs::Any, 30),
    (Mutant::DuplicateBeforeDurable, ISLANDS, 40),
    (Mutant::ReadPastDurable, ISLANDS, 10),
    (Mutant::ProducersForgotten, Runs::Any, 10),
    (Mutant::MissingByTheView, STALE_VIEWS, 30),
    (Mutant::CurrentByTheView, ISLANDS, 30),
    (Mutant::UnknownCalledFailure, ISLANDS, 60),
    (Mutant::NoLease, ISLANDS, 10),
    (Mutant::LeaseFromArrival, SLEEPERS, 100),
    (Mutant::RedirectToTheDead, ISLANDS, 30),
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

/// Looks for all of them, as many at a time as there are processors.
fn find_all(mutants: &[(Mutant, Runs, u64)]) {
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

/// In every gate, so that those who find them do not rot.
#[test]
fn the_quickest_mistakes_are_found() {
    let quick: Vec<_> = MUTANTS.iter().filter(|(.., within)| *within <= 10).copied().collect();
    assert!(quick.len() >= 3, "{quick:?}");
    find_all(&quick);
}

#[test]
#[ignore = "many runs of the simulation: make mutants"]
fn every_mistake_in_the_nodes_is_found() {
    let only = std::env::var("WEIR_MUTANT").ok().filter(|name| !name.is_empty());
    let mutants: Vec<_> = match only {
        None => MUTANTS.to_vec(),
        Some(name) if Mutant::named(&name).is_none() => panic!("no such mutant: {name}"),
        Some(name) => MUTANTS.iter().filter(|m| name == format!("{:?}", m.0)).copied().collect(),
    };
    // One of the log or of the WAL is for walks and races to find.
    find_all(&mutants);
}
