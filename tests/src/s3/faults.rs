//! What may go wrong with a bucket.

use std::time::Duration;

use crate::rng::Rng;

/// The whole bucket is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// Every request is answered 503.
    Errors,
    /// Every connection is cut.
    Cuts,
    /// No request is ever answered.
    Hangs,
}

/// Faults in force. Chances are out of 1,000 puts, if nothing else is said.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    pub outage: Option<Outage>,
    /// Refused with 500 and not stored.
    pub failed: u64,
    /// Stored, and then answered 500 or cut.
    pub ambiguous: u64,
    /// Answered 500, and stored a while later all the same.
    pub late: u64,
    /// Answered 409, which says nothing.
    pub conflict: u64,
    /// Out of 1,000 requests that are no puts: half of them refused, half of them done and their reply broken. The fake
    /// bucket has no such days, a proxy before a real one does.
    pub reads: u64,
    /// Out of 1,000 requests: delayed by up to `delay`.
    pub slow: u64,
    pub delay: Duration,
    /// Puts of keys that contain this are never answered.
    pub held: Option<&'static str>,
    /// `If-None-Match` is ignored.
    pub overwrites: bool,
}

impl Faults {
    /// A bucket on a bad day, which keeps its promises all the same.
    pub fn bad_day() -> Self {
        Self {
            failed: 30,
            ambiguous: 40,
            late: 30,
            conflict: 20,
            reads: 30,
            slow: 100,
            delay: Duration::from_millis(80),
            ..Self::default()
        }
    }
}

/// What happens to one put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Fine,
    Failed,
    Ambiguous { cut: bool },
    Late(Duration),
    Conflict,
}

impl Faults {
    pub(super) fn fate(&self, rng: &mut Rng) -> Fate {
        let mut dice = rng.below(1000);
        let mut within = |chance: u64| {
            let hit = dice < chance;
            dice = dice.wrapping_sub(if hit { 0 } else { chance });
            hit
        };
        if within(self.failed) {
            Fate::Failed
        } else if within(self.ambiguous) {
            Fate::Ambiguous { cut: rng.one_in(2) }
        } else if within(self.late) {
            Fate::Late(Duration::from_millis(rng.between(1, 400)))
        } else if within(self.conflict) {
            Fate::Conflict
        } else {
            Fate::Fine
        }
    }

    /// What happens to a request that is no put.
    pub(super) fn read(&self, rng: &mut Rng) -> Fate {
        match rng.below(2000) {
            n if n < self.reads => Fate::Failed,
            n if n < 2 * self.reads => Fate::Ambiguous { cut: rng.one_in(2) },
            _ => Fate::Fine,
        }
    }

    pub(super) fn pause(&self, rng: &mut Rng) -> Option<Duration> {
        (rng.below(1000) < self.slow).then(|| self.delay.mul_f64(rng.below(1000) as f64 / 1000.0))
    }
}
