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

/// Who is looked for, and in how many runs.
const MUTANTS: &[(Mutant, u64)] = &[
    (Mutant::NoSeal, 40),
    (Mutant::SealDeleted, 40),
    (Mutant::AckBeforePut, 20),
    (Mutant::AckOutOfOrder, 80),
    (Mutant::RecoveryIgnoresStreamEpoch, 80),
    (Mutant::RecoveredWithinLease, 80),
    (Mutant::DuplicateBeforeDurable, 80),
    (Mutant::ReadPastDurable, 20),
    (Mutant::ProducersForgotten, 20),
    (Mutant::MissingByTheView, 20),
    (Mutant::CurrentByTheView, 20),
    (Mutant::UnknownCalledFailure, 40),
    (Mutant::NoLease, 40),
    (Mutant::LeaseFromArrival, 80),
    (Mutant::RedirectToTheDead, 20),
    (Mutant::SweepByAge, 80),
];

/// The first run that breaks an invariant, and what it says.
fn find(mutant: Mutant, within: u64) -> Option<(u64, String)> {
    (1..=within).find_map(|seed| {
        let report = play(SIM, seed, &["--mutant", &format!("{mutant:?}")]);
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
    let chosen = |m: &&(Mutant, u64)| only.as_ref().is_none_or(|name| *name == format!("{:?}", m.0));
    let mutants: Vec<(Mutant, u64)> = MUTANTS.iter().filter(chosen).copied().collect();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&(mutant, within)) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match find(mutant, within) {
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
