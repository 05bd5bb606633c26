//! A histogram that costs two additions per observation: no lock, no allocation, no floating point.
//!
//! Invariant: the count is the sum of the buckets, so that what a scrape shows is consistent in itself; the sum may be an
//! observation ahead or behind. Values are whole numbers of a small unit (nanoseconds, records).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::float;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Upper bounds of buckets, and how many of the small unit the unit shown has.
#[derive(Debug)]
pub struct Scale {
    bounds: &'static [u64],
    per_unit: u64,
}

/// From an append to a local disk to the longest long-poll.
pub(super) const LATENCY: Scale = Scale {
    bounds: &[
        100 * US,
        250 * US,
        500 * US,
        MS,
        2_500 * US,
        5 * MS,
        10 * MS,
        25 * MS,
        50 * MS,
        100 * MS,
        250 * MS,
        500 * MS,
        S,
        2_500 * MS,
        10 * S,
        30 * S,
    ],
    per_unit: S,
};

/// From a handful of records to a WAL of all that may wait, with a lease to outwait.
pub(super) const RECOVERY: Scale = Scale {
    bounds: &[100 * MS, 500 * MS, S, 2_500 * MS, 5 * S, 10 * S, 30 * S, 60 * S, 120 * S, 300 * S, 600 * S],
    per_unit: S,
};

/// Records in one WAL object.
pub(super) const RECORDS: Scale =
    Scale { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 4_096, 16_384], per_unit: 1 };

/// See the file.
#[derive(Debug)]
pub struct Histogram {
    scale: Scale,
    /// One more than bounds: the last is for what is above them all.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A histogram as a scrape shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Upper bounds and how many observations lie between each and the one before.
    pub buckets: Vec<(f64, u64)>,
    /// All observations.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

impl Histogram {
    /// An empty one.
    pub fn new(scale: Scale) -> Self {
        let buckets = (0..=scale.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { scale, buckets, sum: AtomicU64::new(0) }
    }

    /// Counts one value.
    pub fn observe(&self, value: u64) {
        self.observe_many(value, 1);
    }

    /// Counts the same value `times` times.
    pub fn observe_many(&self, value: u64, times: u64) {
        let at = self.scale.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(times, Ordering::Relaxed);
        }
        self.sum.fetch_add(value.saturating_mul(times), Ordering::Relaxed);
    }

    /// Counts one time, on a scale of nanoseconds.
    pub fn time(&self, took: Duration) {
        self.times(took, 1);
    }

    /// Counts the same time `times` times.
    pub fn times(&self, took: Duration, times: u64) {
        self.observe_many(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), times);
    }

    /// How many observations there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// What there is to show.
    pub fn read(&self) -> Reading {
        let unit = float(self.scale.per_unit);
        let bounds = self.scale.bounds.iter().map(|bound| float(*bound) / unit).chain([f64::INFINITY]);
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, n)| n).sum();
        Reading { buckets, count, sum: float(self.sum.load(Ordering::Relaxed)) / unit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_into_the_first_bucket_that_is_not_below_it() {
        let h = Histogram::new(RECORDS);
        for value in [0, 1, 2, 3, 16_384, 16_385] {
            h.observe(value);
        }
        h.observe_many(5, 10);
        let read = h.read();
        let expected = [(1.0, 2), (2.0, 1), (4.0, 1), (8.0, 10), (16_384.0, 1), (f64::INFINITY, 1)];
        let filled: Vec<_> = read.buckets.iter().copied().filter(|(_, n)| *n > 0).collect();
        assert_eq!(filled, expected);
        assert_eq!((read.count, h.count()), (16, 16));
        assert!((read.sum - 32_825.0).abs() < f64::EPSILON, "{}", read.sum);
    }

    #[test]
    fn times_are_shown_in_seconds() {
        let h = Histogram::new(LATENCY);
        h.time(Duration::from_micros(300));
        h.times(Duration::from_secs(40), 2);
        let read = h.read();
        assert_eq!(read.buckets.iter().find(|(_, n)| *n > 0), Some(&(0.000_5, 1)));
        assert_eq!(read.buckets.last(), Some(&(f64::INFINITY, 2)));
        assert!((read.sum - 80.000_3).abs() < 1e-9, "{}", read.sum);
    }

    #[test]
    fn bounds_rise() {
        for scale in [LATENCY, RECOVERY, RECORDS] {
            assert!(scale.bounds.is_sorted_by(|a, b| a < b), "{scale:?}");
        }
    }
}
