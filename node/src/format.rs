//! Which versions of the cluster's format this build reads, and in which one it writes.
//!
//! Invariant: log entries, snapshots, WAL objects and segments are written in the version that the state names, never in
//! a newer one because this build could: the state goes up by a command, and only when every registered node reads the
//! next. Seals, `cluster.json`, records of the log store and calls between nodes have versions of their own: a process of
//! any build must understand them. Read by `metadata`, `storage` and `session`.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The version in which a cluster begins.
pub const FOUNDED: u32 = 1;
/// The lowest version this build reads.
pub const MIN: u32 = 1;
/// The highest version this build reads and writes.
const OWN: u32 = 1;

/// The highest version this process reads and writes: with the cargo feature `fault-points` (never in a release)
/// `WEIR_PRETEND_FORMAT` makes it one of a made-up build to come, whose versions differ by their number alone.
pub fn max() -> u32 {
    #[cfg(feature = "fault-points")]
    return pretended().unwrap_or(OWN);
    #[cfg(not(feature = "fault-points"))]
    OWN
}

#[cfg(feature = "fault-points")]
#[allow(clippy::disallowed_methods, reason = "a test switch, not configuration")]
fn pretended() -> Option<u32> {
    static PRETENDED: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
    *PRETENDED.get_or_init(|| std::env::var("WEIR_PRETEND_FORMAT").ok()?.parse().ok().filter(|v| *v >= OWN))
}

/// The versions this process reads. Unit tests read one more than they write, so that they see a state go up.
pub fn readable() -> RangeInclusive<u32> {
    MIN..=max() + u32::from(cfg!(test))
}

/// The versions this process reads, for people.
pub fn range() -> String {
    format!("{MIN} to {}", max())
}

/// The version in which this process writes: what its own view of the state says. Clones share it.
#[derive(Debug, Clone)]
pub struct Writing(Arc<AtomicU32>);

impl Default for Writing {
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(FOUNDED)))
    }
}

impl Writing {
    /// The version now.
    pub fn now(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// The state says this version.
    pub fn set(&self, version: u32) {
        self.0.store(version, Ordering::Release);
    }
}
