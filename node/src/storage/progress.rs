//! How far this node's recoveries are, for the leader, which passes on what does not get on.
//!
//! Invariant: a count changes when a recovery has got further than it ever was under its claim, or waits for something
//! that another claimant would wait for too; not by trying the same again. Written by `recovery`, sent with heartbeats.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

/// A handle; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Mutex<BTreeMap<u64, Step>>>);

#[derive(Debug, Default)]
struct Step {
    steps: u64,
    /// The number after the last WAL object that was read.
    reached: u64,
}

impl Progress {
    /// Something was done, or is rightly waited for.
    pub(super) fn step(&self, claim: u64) {
        self.0.lock().entry(claim).or_default().steps += 1;
    }

    /// The WAL was read up to here.
    pub(super) fn reached(&self, claim: u64, seq: u64) {
        let mut all = self.0.lock();
        let step = all.entry(claim).or_default();
        if seq + 1 > step.reached {
            step.reached = seq + 1;
            step.steps += 1;
        }
    }

    /// Forgets all but these claims.
    pub(super) fn retain(&self, claims: &BTreeSet<u64>) {
        self.0.lock().retain(|claim, _| claims.contains(claim));
    }

    /// The count of each claim, at most so many.
    pub fn report(&self, most: usize) -> Vec<(u64, u64)> {
        self.0.lock().iter().take(most).map(|(claim, step)| (*claim, step.steps)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_the_same_again_is_no_progress() {
        let progress = Progress::default();
        progress.reached(7, 3);
        let first = progress.report(9);
        progress.reached(7, 2);
        progress.reached(7, 3);
        assert_eq!(progress.report(9), first);
        progress.reached(7, 4);
        assert_ne!(progress.report(9), first);
        progress.retain(&BTreeSet::new());
        assert!(progress.report(9).is_empty());
    }
}
