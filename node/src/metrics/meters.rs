//! What each part of the node counts, in atomics that it owns.
//!
//! Invariant: counting takes no lock and allocates nothing. An append costs one addition here and its request three; the
//! rest is counted once per WAL object, segment or call. Parts make their own meters and hand them out; `admin::metrics`
//! reads them at each scrape.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::histogram::{Histogram, LATENCY, RECORDS, RECOVERY};
use super::labels::{
    AppendOutcome, DrainOutcome, FencedBy, Forwarded, LabelValue, LiveKind, Operation, Placement, PutOutcome,
    RecoveredOf, StoreCall, StoreFault, TransferOutcome,
};

/// A number that only grows, or a gauge that is moved up and down by the same amounts.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// One more.
    pub fn inc(&self) {
        self.add(1);
    }

    /// `n` more.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// One less.
    pub fn dec(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One cell for each value of a label.
#[derive(Debug)]
pub struct By<L, T> {
    cells: Box<[T]>,
    label: PhantomData<fn(L)>,
}

impl<L: LabelValue, T> By<L, T> {
    /// Cells that `make` makes.
    pub fn new(mut make: impl FnMut() -> T) -> Self {
        Self { cells: L::LABEL.values.iter().map(|_| make()).collect(), label: PhantomData }
    }

    /// The value's cell.
    pub fn at(&self, value: L) -> &T {
        &self.cells[value.index()]
    }

    /// All values with their cells.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, &T)> {
        L::LABEL.values.iter().copied().zip(&self.cells)
    }
}

impl<L: LabelValue, T: Default> Default for By<L, T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

/// Statuses that HTTP has: 100 to 599.
const STATUSES: usize = 500;
const FIRST_STATUS: u16 = 100;

/// Of the client listener.
#[derive(Debug)]
pub(super) struct HttpMeters {
    pub(super) seconds: By<Operation, Histogram>,
    answers: By<Operation, Box<[Count]>>,
    pub(super) live: By<LiveKind, Count>,
    pub(super) redirects: Count,
    pub(super) forwards: By<Forwarded, Count>,
    pub(super) hops_exceeded: Count,
}

impl Default for HttpMeters {
    fn default() -> Self {
        Self {
            seconds: By::new(|| Histogram::new(LATENCY)),
            answers: By::new(|| (0..STATUSES).map(|_| Count::default()).collect()),
            live: By::default(),
            redirects: Count::default(),
            forwards: By::default(),
            hops_exceeded: Count::default(),
        }
    }
}

impl HttpMeters {
    pub(super) fn answered(&self, operation: Operation, status: u16) {
        let at = usize::from(status.saturating_sub(FIRST_STATUS)).min(STATUSES - 1);
        self.answers.at(operation)[at].inc();
    }

    /// Operation, status and how many; only what there was.
    pub(super) fn answers(&self) -> impl Iterator<Item = (&'static str, u16, u64)> {
        self.answers.each().flat_map(|(operation, counts)| {
            let counted = (FIRST_STATUS..).zip(counts.iter().map(Count::get));
            counted.filter(|(_, n)| *n > 0).map(move |(status, n)| (operation, status, n))
        })
    }
}

/// Of one WAL pipeline.
#[derive(Debug)]
pub struct WalMeters {
    /// Tries by how they ended.
    pub puts: By<PutOutcome, Count>,
    /// How long a try took that stored the object.
    pub put_seconds: Histogram,
    /// Records of each durable object.
    pub object_records: Histogram,
    /// Bytes of all durable objects.
    pub bytes: Count,
    /// For each record: from when the first of its object was ordered to when it was durable.
    pub durability_seconds: Histogram,
}

impl Default for WalMeters {
    fn default() -> Self {
        Self {
            puts: By::default(),
            put_seconds: Histogram::new(LATENCY),
            object_records: Histogram::new(RECORDS),
            bytes: Count::default(),
            durability_seconds: Histogram::new(LATENCY),
        }
    }
}

/// Segments that were committed.
#[derive(Debug, Default)]
pub struct SegmentMeters {
    /// How many.
    pub count: Count,
    /// Their bytes.
    pub bytes: Count,
}

impl SegmentMeters {
    /// Counts one of `bytes` bytes.
    pub fn committed(&self, bytes: u64) {
        self.count.inc();
        self.bytes.add(bytes);
    }
}

/// Of the streams service.
#[derive(Debug, Default)]
pub struct StreamMeters {
    /// Appends by how they ended.
    pub appends: By<AppendOutcome, Count>,
    /// Segments made from the own WAL.
    pub segments: SegmentMeters,
    /// Forks made.
    pub forks: Count,
    /// Streams that this node ended because their time was over.
    pub expired: Count,
    /// Transfers and drains.
    pub moves: MoveMeters,
}

impl StreamMeters {
    /// Counts an append whose future is dropped before it ends as one whose outcome is unknown.
    pub fn append(&self) -> AppendMeter<'_> {
        AppendMeter { meters: self, outcome: AppendOutcome::Unknown }
    }
}

/// Counts one append when it is dropped.
#[derive(Debug)]
pub struct AppendMeter<'a> {
    meters: &'a StreamMeters,
    /// How it ended.
    pub outcome: AppendOutcome,
}

impl Drop for AppendMeter<'_> {
    fn drop(&mut self) {
        self.meters.appends.at(self.outcome).inc();
    }
}

/// Of recovery.
#[derive(Debug)]
pub struct RecoveryMeters {
    /// From the seal to the session's end in the log.
    pub seconds: Histogram,
    /// From the session's end in the log to the end of its recovery, by the log's time.
    pub takeover_seconds: By<RecoveredOf, Histogram>,
    /// Tries that have to be repeated.
    pub retries: Count,
    /// Segments made from the WALs of others.
    pub segments: SegmentMeters,
}

impl Default for RecoveryMeters {
    fn default() -> Self {
        Self {
            seconds: Histogram::new(RECOVERY),
            takeover_seconds: By::new(|| Histogram::new(RECOVERY)),
            retries: Count::default(),
            segments: SegmentMeters::default(),
        }
    }
}

/// Of streams that leave this node while it lives.
#[derive(Debug)]
pub struct MoveMeters {
    /// Transfers by how they ended, at the source.
    pub transfers: By<TransferOutcome, Count>,
    /// From when the source saw a transfer to its end there.
    pub transfer_seconds: Histogram,
    /// Drains of this node by how they ended.
    pub drains: By<DrainOutcome, Count>,
    /// From the beginning of a drain to its end.
    pub drain_seconds: Histogram,
    /// Streams that drains gave away.
    pub drained_streams: Count,
}

impl Default for MoveMeters {
    fn default() -> Self {
        Self {
            transfers: By::default(),
            transfer_seconds: Histogram::new(RECOVERY),
            drains: By::default(),
            drain_seconds: Histogram::new(RECOVERY),
            drained_streams: Count::default(),
        }
    }
}

impl MoveMeters {
    /// Counts the end of a drain.
    pub fn drained(&self, outcome: DrainOutcome, took: Duration) {
        self.drains.at(outcome).inc();
        self.drain_seconds.time(took);
    }

    /// Counts transfers that came to an end together.
    pub fn transferred(&self, handed_over: usize, aborted: usize, took: Duration) {
        for (outcome, n) in [(TransferOutcome::HandedOver, handed_over), (TransferOutcome::Aborted, aborted)]
        {
            self.transfers.at(outcome).add(n as u64);
            (0..n).for_each(|_| self.transfer_seconds.time(took));
        }
    }
}

/// Of commands that this node proposed.
#[derive(Debug, Default)]
pub struct LogMeters {
    /// Commands that may place a stream.
    pub placements: By<Placement, Count>,
    /// Fences that were decided.
    pub fences: By<FencedBy, Count>,
}

/// Of a bucket.
#[derive(Debug)]
pub struct StoreMeters {
    /// How long calls took, failed ones included.
    pub seconds: By<StoreCall, Histogram>,
    /// Calls that failed.
    pub errors: By<StoreCall, By<StoreFault, Count>>,
    /// Repetitions within calls.
    pub retries: By<StoreCall, Count>,
}

impl Default for StoreMeters {
    fn default() -> Self {
        Self { seconds: By::new(|| Histogram::new(LATENCY)), errors: By::default(), retries: By::default() }
    }
}
