//! The only reader of wall time, monotonic time, boot time and randomness.
//!
//! Invariant: nothing else in the crate asks the system for them (clippy's `disallowed-methods` keeps it so), hence a
//! simulated or shifted clock is seen by all of it. Waiting is tokio's; it follows the runtime's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use weir_api::Nonce;

#[cfg(feature = "simulation")]
use crate::simulation::machine;

/// A handle on time. Clones share one offset.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    /// Added to the system's wall clock: tests set a node's clock back or forward through this door.
    wall_offset_ms: Arc<AtomicI64>,
    /// Added to the time since boot: tests let time pass through this door.
    boot_offset_ms: Arc<AtomicU64>,
}

impl Clock {
    /// The system's clock with `offset_ms` added to wall time.
    pub fn with_wall_offset_ms(offset_ms: i64) -> Self {
        Self { wall_offset_ms: Arc::new(AtomicI64::new(offset_ms)), ..Self::default() }
    }

    /// Moves wall time from now on.
    pub fn shift_wall_ms(&self, by: i64) {
        self.wall_offset_ms.fetch_add(by, Ordering::Relaxed);
    }

    /// Lets so much time have passed, on the wall clock and since boot, but not on the clock that measures waits.
    pub fn pass(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.boot_offset_ms.fetch_add(ms, Ordering::Relaxed);
        self.shift_wall_ms(i64::try_from(ms).unwrap_or(i64::MAX));
    }

    /// Wall time, milliseconds since 1970. Goes wherever the administrator sets it; never used for ordering.
    #[allow(clippy::disallowed_methods, reason = "this is the door")]
    pub fn wall_ms(&self) -> u64 {
        let now =
            || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        #[cfg(feature = "simulation")]
        let now = || machine().map_or_else(now, |machine| Duration::from_millis(machine.wall_ms()));
        let now = i64::try_from(now().as_millis()).unwrap_or(i64::MAX);
        u64::try_from(now.saturating_add(self.wall_offset_ms.load(Ordering::Relaxed))).unwrap_or(0)
    }

    /// Time since boot, suspension included: what leases are measured on.
    pub fn since_boot(&self) -> Duration {
        #[cfg(feature = "simulation")]
        if let Some(machine) = machine() {
            return machine.since_boot();
        }
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let secs = u64::try_from(t.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(t.tv_nsec).unwrap_or(0);
        let passed = Duration::from_millis(self.boot_offset_ms.load(Ordering::Relaxed));
        Duration::new(secs, nanos).saturating_add(passed)
    }

    /// Monotonic time for measuring how long something took.
    pub fn monotonic(&self) -> tokio::time::Instant {
        tokio::time::Instant::now()
    }
}

/// Sixteen random bytes as a nonce.
pub fn random_nonce() -> Nonce {
    let mut bytes = [0u8; 16];
    fill(&mut bytes);
    Nonce(u128::from_le_bytes(bytes))
}

/// A random number.
pub fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[allow(clippy::disallowed_methods, reason = "this is the door")]
fn fill(bytes: &mut [u8]) {
    #[cfg(feature = "simulation")]
    if let Some(machine) = machine() {
        return machine.random(bytes);
    }
    getrandom::fill(bytes).expect("the kernel's random source works once the system is up");
}

/// The kernel's boot id, if this system tells one.
pub fn boot_id() -> Option<Nonce> {
    #[cfg(feature = "simulation")]
    if let Some(machine) = machine() {
        return Some(machine.boot_id());
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    text.trim().replace('-', "").parse().ok()
}
