//! How long a stream has left, and when the log has to hear of its use: arithmetic on times, nothing else.
//!
//! Invariant (I2): after every use that was told as [`Tell`] asks, the recorded deadline is at least a TTL away, so
//! that a crash, which forgets what only memory knows, never shortens a life. A TTL of an open stream is measured on
//! the clock that counts from boot, which nobody sets; the wall clock can only prolong it. Used by `open` and `expiry`.

use std::time::Duration;

use crate::metadata::command::{Expiry, StreamConfig};

/// One moment on both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// Since boot.
    pub(super) boot: Duration,
    /// Wall time, milliseconds since 1970.
    pub(super) wall_ms: u64,
}

/// Whether the log has to hear of a use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tell {
    /// No.
    Nothing,
    /// This deadline, some time soon, so that nobody has to wait for it later.
    Soon(u64),
    /// This deadline, before the use is answered.
    First(u64),
}

/// What a use at `wall_ms` means for a stream whose recorded deadline is `recorded_ms`.
pub(super) fn tell(config: &StreamConfig, recorded_ms: u64, wall_ms: u64) -> Tell {
    let Expiry::Ttl(seconds) = config.expiry else { return Tell::Nothing };
    let ttl = seconds.saturating_mul(1000);
    let least = wall_ms.saturating_add(ttl);
    let deadline = config.deadline_from(wall_ms).unwrap_or(u64::MAX);
    if recorded_ms < least {
        Tell::First(deadline)
    } else if recorded_ms < least.saturating_add(ttl / 20) {
        Tell::Soon(deadline)
    } else {
        Tell::Nothing
    }
}

/// The rest of an open stream's life.
#[derive(Debug, Clone, Copy)]
pub(super) enum Life {
    /// It does not end by itself.
    Endless,
    /// It ends at this wall time.
    Until {
        at_ms: u64,
        /// The log did not agree: not tried again before.
        again: Duration,
    },
    /// It ends this long after its last use.
    Used {
        ttl: Duration,
        /// When it ends, as far as uses are known.
        ends: Duration,
        /// The deadline in the log.
        recorded_ms: u64,
        /// See above.
        again: Duration,
    },
}

impl Life {
    /// Of a stream just opened: uses before that are known only as far as the log was told.
    pub(super) fn new(config: &StreamConfig, recorded_ms: Option<u64>, now: Now) -> Self {
        let again = Duration::ZERO;
        match config.expiry {
            Expiry::Never => Self::Endless,
            Expiry::At(at_ms) => Self::Until { at_ms, again },
            Expiry::Ttl(seconds) => {
                let recorded_ms = recorded_ms.or(config.deadline_from(now.wall_ms)).unwrap_or(u64::MAX);
                let left = Duration::from_millis(recorded_ms.saturating_sub(now.wall_ms));
                let ends = now.boot.saturating_add(left);
                Self::Used { ttl: Duration::from_secs(seconds), ends, recorded_ms, again }
            }
        }
    }

    /// It is used.
    pub(super) fn used(&mut self, boot: Duration) {
        if let Self::Used { ttl, ends, .. } = self {
            *ends = boot.saturating_add(*ttl);
        }
    }

    /// The log holds this deadline (or a later one).
    pub(super) fn recorded(&mut self, deadline_ms: u64) {
        if let Self::Used { recorded_ms, .. } = self {
            *recorded_ms = (*recorded_ms).max(deadline_ms);
        }
    }

    /// The deadline in the log, of a stream that has a TTL.
    pub(super) fn recorded_ms(&self) -> u64 {
        match self {
            Self::Endless | Self::Until { .. } => u64::MAX,
            Self::Used { recorded_ms, .. } => *recorded_ms,
        }
    }

    /// The log did not let it end: its clock is behind.
    pub(super) fn not_before(&mut self, boot: Duration) {
        match self {
            Self::Endless => {}
            Self::Until { again, .. } | Self::Used { again, .. } => *again = boot,
        }
    }

    /// Whether it is over.
    pub(super) fn is_over(&self, config: &StreamConfig, now: Now) -> bool {
        match *self {
            Self::Endless => false,
            Self::Until { at_ms, again } => now.wall_ms >= at_ms && now.boot >= again,
            Self::Used { ends, recorded_ms, again, .. } => {
                now.boot >= ends && now.boot >= again && now.wall_ms >= config.end_from(recorded_ms)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config(expiry: Expiry) -> StreamConfig {
        StreamConfig { content_type: "a/b".into(), expiry }
    }

    fn at(ms: u64) -> Now {
        Now { boot: Duration::from_millis(ms), wall_ms: 1_000_000 + ms }
    }

    #[test]
    fn a_ttl_ends_exactly_a_ttl_after_the_last_use() {
        let config = config(Expiry::Ttl(10));
        let mut life = Life::new(&config, config.deadline_from(at(0).wall_ms), at(0));
        assert!(!life.is_over(&config, at(10_999)), "uses before the open may not have been recorded");
        assert!(life.is_over(&config, at(11_000)));
        life.used(at(500).boot);
        assert!(!life.is_over(&config, at(10_499)));
        assert!(life.is_over(&config, at(10_500)));
    }

    #[test]
    fn a_wall_clock_that_jumps_ahead_ends_no_open_stream_and_one_set_back_prolongs_it() {
        let config = config(Expiry::Ttl(10));
        let mut life = Life::new(&config, config.deadline_from(at(0).wall_ms), at(0));
        life.used(at(0).boot);
        assert!(!life.is_over(&config, Now { wall_ms: u64::MAX, ..at(9_999) }));
        assert!(!life.is_over(&config, Now { wall_ms: at(0).wall_ms, ..at(60_000) }));
        assert!(life.is_over(&config, at(60_000)));
    }

    #[test]
    fn a_fixed_end_does_not_move() {
        let config = config(Expiry::At(1_000_500));
        let mut life = Life::new(&config, Some(1_000_500), at(0));
        life.used(at(400).boot);
        assert!(!life.is_over(&config, at(499)));
        assert!(life.is_over(&config, at(500)));
        life.not_before(at(700).boot);
        assert!(!life.is_over(&config, at(699)) && life.is_over(&config, at(700)));
        assert_eq!(tell(&config, 0, at(9_000).wall_ms), Tell::Nothing);
    }

    #[test]
    fn the_log_hears_of_a_use_once_a_tenth_of_the_ttl_has_gone_by() {
        let config = config(Expiry::Ttl(10));
        let recorded = config.deadline_from(at(0).wall_ms).unwrap();
        let told = |ms| tell(&config, recorded, at(ms).wall_ms);
        assert_eq!(told(0), Tell::Nothing);
        assert_eq!(told(500), Tell::Nothing);
        assert_eq!(told(501), Tell::Soon(recorded + 501));
        assert_eq!(told(1_000), Tell::Soon(recorded + 1_000));
        assert_eq!(told(1_001), Tell::First(recorded + 1_001));
    }

    proptest! {
        /// A crash right after any answered use leaves a deadline that is a TTL away or more, and at most 1.1 TTL.
        #[test]
        fn the_record_never_shortens_a_life(ttl in 0u64..100_000, steps in prop::collection::vec(0u64..200_000, 1..50)) {
            let config = config(Expiry::Ttl(ttl));
            let mut wall = 1_000_000;
            let mut recorded = config.deadline_from(wall).unwrap();
            for step in steps {
                wall += step;
                match tell(&config, recorded, wall) {
                    Tell::Nothing => {}
                    Tell::Soon(deadline) | Tell::First(deadline) => recorded = recorded.max(deadline),
                }
                prop_assert!(recorded >= wall + ttl * 1000);
                prop_assert!(recorded <= wall + ttl * 1100);
            }
        }
    }
}
