//! Random choices that replay from a seed (splitmix64).

use std::time::{SystemTime, UNIX_EPOCH};

/// A seeded source of choices.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A source that always makes the same choices for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n` (0 if `n` is 0).
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.bits() % n }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// An index into a slice of `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// An independent source: for a task of its own.
    pub fn fork(&mut self) -> Self {
        Self(self.bits())
    }
}

/// The run's seed: `WEIR_SEED`, else a fresh one.
pub fn seed() -> u64 {
    match std::env::var("WEIR_SEED") {
        Ok(text) => text.parse().expect("WEIR_SEED is a whole number"),
        Err(_unset) => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            since.as_nanos() as u64 ^ (u64::from(std::process::id()) << 32)
        }
    }
}
