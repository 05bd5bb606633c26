//! Walks hold, and walks over a log with a mistake in it do not.

use weir::mutant::Mutant;
use weir_tests::history::Outcome;

use super::run;
use crate::mutants::{find, judge};
use crate::trace::What;

/// Seeds of the gate.
const SEEDS: u64 = 300;

#[test]
fn honest_walks_keep_every_invariant() {
    for seed in 0..SEEDS {
        let broken = judge(None, seed, run);
        assert_eq!(broken, None, "seed {seed}");
    }
}

#[test]
fn the_same_seed_walks_the_same_way() {
    for seed in 0..20 {
        assert_eq!(run(seed).hash(), run(seed).hash());
    }
}

/// What walks are for is in them.
#[test]
fn walks_get_around() {
    let (mut acked, mut seals, mut recovered, mut opened, mut forks, mut deleted, mut moved) =
        (0, 0, 0, 0, 0, 0, 0);
    for seed in 0..50 {
        for event in &run(seed).events {
            match &event.what {
                What::Acknowledged { appends, .. } => acked += appends.len(),
                What::Store { seal: true, .. } => seals += 1,
                What::Answered { told, .. } if told.outcome == Outcome::Deleted => deleted += 1,
                What::Applied { batch: Some(batch), outcomes, .. } if outcomes[0].is_ok() => {
                    use weir::metadata::command::Command;
                    match &batch.commands[0].command {
                        Command::Recovered { .. } => recovered += 1,
                        Command::Open { .. } => opened += 1,
                        Command::Fork { .. } => forks += 1,
                        Command::BeginTransfer { .. } => moved += 1,
                        _ => {}
                    }
                }
                _ => {}
            }
        }
    }
    let all = [acked, seals, recovered, opened, forks, deleted, moved];
    assert!(all.iter().all(|n| *n > 20), "{all:?}");
}

/// Mistakes in the log, and within how many walks they are found.
const MUTANTS: &[(Mutant, u64)] = &[
    (Mutant::NoStreamEpochCheck, 100),
    (Mutant::NoOwnerCheck, 100),
    (Mutant::EqualEpochAccepted, 100),
    (Mutant::RemintAfterSuperseded, 100),
    (Mutant::FenceWithoutPin, 100),
    (Mutant::CleanEndWithOpenStreams, 100),
    (Mutant::ClaimNotChecked, 2_000),
    (Mutant::OpenBeforeRecovered, 100),
    (Mutant::EpochNotBumped, 100),
    (Mutant::ReleaseAtWrongTail, 100),
    (Mutant::RetryAppliedTwice, 100),
    (Mutant::PlaceOnDeadNode, 100),
    (Mutant::PlaceOnDrainingNode, 100),
    (Mutant::SlotsMoveStreams, 100),
    (Mutant::AbortedTransferCompletes, 100),
    (Mutant::DeleteByAnyone, 1_000),
    (Mutant::ForkBeyondCommitted, 100),
    (Mutant::ForkWithoutReference, 100),
    // What a node's recovery looks at is looked at by the walk's, too.
    (Mutant::RecoveryIgnoresStreamEpoch, 300),
];

#[test]
fn every_mistake_in_the_log_is_found() {
    let mut missed = Vec::new();
    for &(mutant, within) in MUTANTS {
        match find(mutant, 0..within, run) {
            Some(found) => println!("{mutant:?}: seed {} of {within}: {}", found.seed, found.broken),
            None => missed.push(format!("{mutant:?} in {within} walks")),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
