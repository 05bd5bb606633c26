//! Counts operations: when they may start, which are measured, how long they took, how they failed.
//!
//! Invariant: what ended before the warm-up was over, or after the time was up, is in no figure. One lock, held for the few
//! instructions of a histogram's update: with one thread, which is the default, nobody ever waits for it. Used by every load.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::{Common, PATIENCE, PAUSE};

/// The longest latency that is told apart from a longer one.
const LONGEST_NS: u64 = 600_000_000_000;

/// A histogram of nanoseconds, exact to three digits.
pub fn histogram() -> Histogram<u64> {
    let mut histogram =
        Histogram::new_with_bounds(1_000, LONGEST_NS, 3).expect("the bounds and digits are in range");
    histogram.auto(false);
    histogram
}

/// What was counted.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Nanoseconds of each operation.
    pub latency: Histogram<u64>,
    /// Operations that succeeded.
    pub operations: u64,
    /// Bytes of content they moved.
    pub bytes: u64,
    /// Failures: a status, or what became of the connection.
    pub errors: BTreeMap<String, u64>,
    /// The longest time in which no operation at all ended.
    pub longest_stall: Duration,
    /// How long was measured.
    pub measured: Duration,
    last: Option<Instant>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            latency: histogram(),
            operations: 0,
            bytes: 0,
            errors: BTreeMap::new(),
            longest_stall: Duration::ZERO,
            measured: Duration::ZERO,
            last: None,
        }
    }
}

impl Tally {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        per_second(self.operations, self.measured)
    }

    /// Bytes a second.
    pub fn byte_rate(&self) -> f64 {
        per_second(self.bytes, self.measured)
    }

    /// Failures of all kinds.
    pub fn failures(&self) -> u64 {
        self.errors.values().sum()
    }

    fn count(&mut self, from: Instant, begun: Instant, now: Instant, bytes: u64) {
        self.operations += 1;
        self.bytes += bytes;
        self.latency.saturating_record(nanoseconds(now.saturating_duration_since(begun)));
        let gap = now.saturating_duration_since(self.last.unwrap_or(from));
        self.longest_stall = self.longest_stall.max(gap);
        self.last = Some(self.last.map_or(now, |last| last.max(now)));
    }

    /// A percentile (0 to 100) in milliseconds.
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    pub fn percentile_ms(&self, percentile: f64) -> f64 {
        self.latency.value_at_percentile(percentile) as f64 / 1e6
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn per_second(n: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { n as f64 / time.as_secs_f64() }
}

/// The clock and the count of one run; shared by its connections.
#[derive(Debug)]
pub(super) struct Meter {
    from: Instant,
    until: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How many more may start.
    left: Option<u64>,
    tally: Tally,
}

impl Meter {
    /// The warm-up begins now.
    pub(super) fn start(common: &Common) -> Self {
        let from = Instant::now() + common.warmup;
        let until = from + common.duration;
        Self { from, until, state: Mutex::new(State { left: common.count, tally: Tally::default() }) }
    }

    /// Another one over the same time.
    pub(super) fn sibling(&self, common: &Common) -> Self {
        let state = Mutex::new(State { left: common.count, tally: Tally::default() });
        Self { from: self.from, until: self.until, state }
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Whether one more operation may start at `now`.
    pub(super) fn may_start(&self, now: Instant) -> bool {
        if now >= self.until {
            return false;
        }
        if now < self.from {
            return true;
        }
        match &mut self.state.lock().left {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    /// An operation succeeded; it began at `begun` and ends at `now`.
    pub(super) fn done(&self, begun: Instant, now: Instant, bytes: u64) {
        let mut state = self.state.lock();
        // With a count, what began in the warm-up is none of the counted.
        let first = if state.left.is_some() { begun } else { now };
        if first < self.from || now > self.until {
            return;
        }
        state.tally.count(self.from, begun, now, bytes);
    }

    /// Bytes came that belong to an operation under way: of one that takes long, what came in time counts.
    pub(super) fn moved(&self, now: Instant, bytes: u64) {
        if (self.from..=self.until).contains(&now) {
            self.state.lock().tally.bytes += bytes;
        }
    }

    /// What began at `begun`, while it was measured, was seen at `now`, be it later.
    pub(super) fn observed(&self, begun: Instant, now: Instant, bytes: u64) {
        if (self.from..=self.until).contains(&begun) {
            self.state.lock().tally.count(self.from, begun, now, bytes);
        }
    }

    /// An operation failed.
    pub(super) fn failed(&self, why: &str) {
        let mut state = self.state.lock();
        match state.tally.errors.get_mut(why) {
            Some(n) => *n += 1,
            None => drop(state.tally.errors.insert(why.to_owned(), 1)),
        }
    }

    /// Ends the run.
    pub(super) fn finish(self) -> Tally {
        let state = self.state.into_inner();
        let mut tally = state.tally;
        let last = tally.last.unwrap_or(self.from);
        // A count that was used up ended the run before its time.
        let end = if state.left == Some(0) { last } else { self.until.min(Instant::now()) };
        tally.measured = end.saturating_duration_since(self.from);
        tally.longest_stall = tally.longest_stall.max(end.saturating_duration_since(last));
        tally
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How an error is counted.
pub(super) fn name_of(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset => "connection reset".to_owned(),
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => "connection closed".to_owned(),
        io::ErrorKind::TimedOut => "timeout".to_owned(),
        _ => error.to_string(),
    }
}

/// Failures in a row on one connection: how long to wait, and when to give up.
#[derive(Debug, Default)]
pub(super) struct Patience(u32);

impl Patience {
    pub(super) fn succeeded(&mut self) {
        self.0 = 0;
    }

    /// The last try failed.
    pub(super) fn is_failing(&self) -> bool {
        self.0 > 0
    }

    /// Counts a failure and waits. `false`: give up.
    pub(super) async fn failed(&mut self, meter: &Meter, why: &str) -> bool {
        meter.failed(why);
        self.0 += 1;
        let next = Instant::now() + PAUSE * self.0;
        sleep_until(next.min(meter.until())).await;
        self.0 < PATIENCE
    }
}
