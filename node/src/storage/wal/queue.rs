//! The pipeline's state: what waits, what counts against the bounds, when the next put may start. Synchronous.
//!
//! Invariant: what is counted when a frame is taken is given back exactly once, when segments cover its object (or
//! never, once the session is over). Owned by `pipeline`, under its short lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::{FIRST_SEQ, WalLimits, WalStatus};
use crate::clock::Clock;
use crate::metrics::{PutOutcome, WalMeters};
use crate::storage::record::{Frame, codec};

/// Assumed until the first put was measured.
const FIRST_PUT_TIME: Duration = Duration::from_millis(100);

/// Why a frame was not taken. It is in no order; the same append may be sent again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WalBusy {
    /// The bound on what is not yet in segments: try again when some of it is.
    #[error("too many appends wait to be moved into segments")]
    Full,
    /// Puts fail: try again when the store is back.
    #[error("the WAL makes no progress: {0}")]
    Stalled(String),
    /// The frame fits into no object. Never try again.
    #[error("an append of {0} bytes is too large for the WAL")]
    TooLarge(u64),
    /// This session is over: fenced, failed, or stopped.
    #[error("this session takes no appends any more")]
    Sealed,
}

/// Why a pipeline is over.
#[derive(Debug)]
pub(super) enum Over {
    Sealed,
    Failed(String),
    Stopped,
}

/// One batch's outcome, shared by all its tickets.
#[derive(Debug, Default)]
pub(super) struct Completion {
    state: AtomicU8,
    notify: Notify,
}

const DURABLE: u8 = 1;
const NEVER: u8 = 2;

impl Completion {
    /// The first call decides.
    pub(super) fn resolve(&self, durable: bool) {
        let to = if durable { DURABLE } else { NEVER };
        if self.state.compare_exchange(0, to, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.notify.notify_waiters();
        }
    }

    pub(super) fn outcome(&self) -> Option<bool> {
        match self.state.load(Ordering::Acquire) {
            0 => None,
            state => Some(state == DURABLE),
        }
    }

    pub(super) async fn wait(&self) -> bool {
        loop {
            // Made before the look, so that a resolution in between wakes it.
            let notified = self.notify.notified();
            if let Some(durable) = self.outcome() {
                return durable;
            }
            notified.await;
        }
    }
}

/// Frames for one object.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) frames: Vec<Frame>,
    /// Upper bound of the object's size.
    pub(super) bytes: u64,
    pub(super) since: Instant,
    pub(super) done: Arc<Completion>,
}

/// What to do about the next put.
#[derive(Debug)]
pub(super) enum Start {
    Now(Batch),
    /// Not before then, if nothing else happens.
    At(Instant),
    /// Nothing to do until something happens.
    Later,
}

struct Failing {
    since: Instant,
    why: String,
    no_room: bool,
}

pub(super) struct Queue {
    limits: WalLimits,
    pays_per_object: bool,
    /// Not put yet; the last one is being filled.
    open: VecDeque<Batch>,
    open_bytes: u64,
    /// Since when the batches that are put now have waited.
    taken: VecDeque<Instant>,
    /// Durable, not covered.
    uncovered: VecDeque<(u64, u64)>,
    covered_below: u64,
    bytes: u64,
    objects: u64,
    waiting: u64,
    failing: BTreeMap<u64, Failing>,
    last: Option<Arc<Completion>>,
    /// Under way on the writer's thread, which cannot be told to stop.
    flying: Option<Arc<Completion>>,
    over: Option<Over>,
    put_time: Option<Duration>,
    durable_below: u64,
    puts: u64,
    durable_objects: u64,
    durable_frames: u64,
    meters: Arc<WalMeters>,
}

impl Queue {
    pub(super) fn new(limits: WalLimits, pays_per_object: bool) -> Self {
        Self {
            limits,
            pays_per_object,
            open: VecDeque::new(),
            open_bytes: 0,
            taken: VecDeque::new(),
            uncovered: VecDeque::new(),
            covered_below: FIRST_SEQ,
            bytes: 0,
            objects: 0,
            waiting: 0,
            failing: BTreeMap::new(),
            last: None,
            flying: None,
            over: None,
            put_time: None,
            durable_below: FIRST_SEQ,
            puts: 0,
            durable_objects: 0,
            durable_frames: 0,
            meters: Arc::default(),
        }
    }

    /// Takes a frame of at most `bytes` bytes, or says why not. With the batch's completion comes whether the pipeline
    /// has to look.
    pub(super) fn push(
        &mut self,
        frame: Frame,
        bytes: u64,
        clock: &Clock,
    ) -> Result<(Arc<Completion>, bool), WalBusy> {
        let fits = |batch: &Batch| batch.bytes + bytes <= self.limits.object_bytes;
        let joins = self.open.back().is_some_and(fits);
        let more = if joins { bytes } else { bytes + codec::HEADER as u64 };
        self.admit(bytes, more, joins, clock)?;
        let before = self.open_bytes;
        self.bytes += more;
        self.open_bytes += more;
        self.waiting += 1;
        if joins {
            let batch = self.open.back_mut().expect("a batch that the frame fits into");
            batch.frames.push(frame);
            batch.bytes += more;
            let crossed =
                before < self.limits.second_put_bytes && self.open_bytes >= self.limits.second_put_bytes;
            return Ok((batch.done.clone(), crossed));
        }
        let done = Arc::new(Completion::default());
        self.objects += 1;
        self.last = Some(done.clone());
        let mut frames = Vec::with_capacity(8);
        frames.push(frame);
        self.open.push_back(Batch { frames, bytes: more, since: clock.monotonic(), done: done.clone() });
        Ok((done, true))
    }

    fn admit(&self, bytes: u64, more: u64, joins: bool, clock: &Clock) -> Result<(), WalBusy> {
        if self.over.is_some() {
            return Err(WalBusy::Sealed);
        }
        if bytes > codec::MAX_BODY as u64 {
            return Err(WalBusy::TooLarge(bytes));
        }
        if !self.failing.is_empty()
            && let Some(failing) = self.stalled(clock.monotonic())
        {
            return Err(WalBusy::Stalled(failing.why.clone()));
        }
        // An empty backlog takes any one frame: a bound below a single append must not refuse it for ever.
        let too_many = self.pays_per_object && !joins && self.objects >= self.limits.backlog_objects;
        let too_much = self.bytes > 0 && self.bytes + more > self.limits.backlog_bytes;
        if too_many || too_much { Err(WalBusy::Full) } else { Ok(()) }
    }

    fn stalled(&self, now: Instant) -> Option<&Failing> {
        self.failing.values().find(|f| f.no_room || now - f.since >= self.limits.stall_after)
    }

    /// Hands out the next batch if a put may start: at once if none is under way, a second one if enough waits or has
    /// waited long enough, because puts cost money.
    pub(super) fn next(&mut self, under_way: usize, room: usize, now: Instant) -> Start {
        let Some(first) = self.open.front() else { return Start::Later };
        if room == 0 || self.over.is_some() {
            return Start::Later;
        }
        if under_way > 0 && self.open.len() == 1 && self.open_bytes < self.limits.second_put_bytes {
            let due = first.since + self.interval();
            if due > now {
                return Start::At(due);
            }
        }
        let batch = self.open.pop_front().expect("looked at above");
        self.open_bytes -= batch.bytes;
        self.taken.push_back(batch.since);
        Start::Now(batch)
    }

    fn interval(&self) -> Duration {
        self.limits.interval.unwrap_or_else(|| self.put_time.unwrap_or(FIRST_PUT_TIME) * 2)
    }

    /// The batch turned out to be an object of `bytes` bytes.
    pub(super) fn measured(&mut self, batch: &Batch, bytes: u64) {
        self.bytes = self.bytes - batch.bytes + bytes;
    }

    /// One try of a put ended: after how long, or why not, whether for lack of room, and when it began.
    pub(super) fn put_ended(&mut self, seq: u64, outcome: Result<Duration, (String, bool, Instant)>) {
        self.puts += 1;
        let ended = match &outcome {
            Ok(_) => PutOutcome::Stored,
            Err((_, true, _)) => PutOutcome::NoRoom,
            Err((_, false, _)) => PutOutcome::Unknown,
        };
        self.meters.puts.at(ended).inc();
        match outcome {
            Ok(took) => {
                self.meters.put_seconds.time(took);
                self.failing.remove(&seq);
                self.put_time = Some(self.put_time.map_or(took, |t| (t * 7 + took) / 8));
            }
            Err((why, no_room, begun)) => {
                let failing =
                    self.failing.entry(seq).or_insert(Failing { since: begun, why: String::new(), no_room });
                failing.why = why;
                failing.no_room = no_room;
            }
        }
    }

    /// An object is durable, with all before it.
    pub(super) fn durable(&mut self, seq: u64, bytes: u64, frames: u64) {
        if let Some(since) = self.taken.pop_front() {
            self.meters.durability_seconds.times(since.elapsed(), frames);
        }
        self.meters.object_records.observe(frames);
        self.meters.bytes.add(bytes);
        self.waiting -= frames;
        self.durable_below = seq + 1;
        self.durable_objects += 1;
        self.durable_frames += frames;
        self.uncovered.push_back((seq, bytes));
        // The sink hears first, so a segment may have covered it already.
        self.covered(self.covered_below);
    }

    pub(super) fn covered(&mut self, below: u64) {
        self.covered_below = self.covered_below.max(below);
        while let Some((_, bytes)) = self.uncovered.pop_front_if(|(seq, _)| *seq < self.covered_below) {
            self.bytes -= bytes;
            self.objects -= 1;
        }
    }

    pub(super) fn meters(&self) -> Arc<WalMeters> {
        self.meters.clone()
    }

    pub(super) fn last(&self) -> Option<Arc<Completion>> {
        self.last.clone()
    }

    /// Ends it; returns what waited. The first end counts.
    pub(super) fn end(&mut self, over: Over) -> Vec<Arc<Completion>> {
        let counted = match &over {
            Over::Sealed => Some(PutOutcome::Sealed),
            Over::Failed(_) => Some(PutOutcome::Failed),
            Over::Stopped => None,
        };
        if let (None, Some(outcome)) = (&self.over, counted) {
            self.meters.puts.at(outcome).inc();
        }
        self.over.get_or_insert(over);
        self.open_bytes = 0;
        let flying = self.flying.take();
        flying.into_iter().chain(self.open.drain(..).map(|b| b.done)).collect()
    }

    pub(super) fn over(&self) -> Option<&Over> {
        self.over.as_ref()
    }

    /// As [`Self::next`] for a writer that takes one put at a time, on its own thread.
    pub(super) fn next_alone(&mut self, now: Instant) -> Option<Batch> {
        match self.next(0, 1, now) {
            Start::Now(batch) => {
                self.flying = Some(batch.done.clone());
                Some(batch)
            }
            Start::At(_) | Start::Later => None,
        }
    }

    /// Something waits to be put.
    pub(super) fn has_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// At most how many bytes it is, if one frame waits, and no more.
    pub(super) fn alone(&self) -> Option<u64> {
        match self.open.front() {
            Some(batch) if self.open.len() == 1 && batch.frames.len() == 1 => Some(batch.bytes),
            _ => None,
        }
    }

    /// How long puts take on average.
    pub(super) fn put_time(&self) -> Duration {
        self.put_time.unwrap_or(FIRST_PUT_TIME)
    }

    /// The one put of [`Self::next_alone`] is stored.
    pub(super) fn landed(&mut self, seq: u64, bytes: u64, frames: u64) {
        self.flying = None;
        self.durable(seq, bytes, frames);
    }

    pub(super) fn status(&self, now: Instant) -> WalStatus {
        let WalLimits { backlog_bytes: max_bytes, backlog_objects: max_objects, .. } = self.limits;
        let oldest = self.taken.front().copied().or(self.open.front().map(|b| b.since));
        let per_object = (max_bytes / max_objects.max(1)).max(1);
        WalStatus {
            backlog_bytes: self.bytes,
            backlog_objects: if self.pays_per_object {
                self.objects
            } else {
                self.bytes.div_ceil(per_object)
            },
            max_bytes,
            max_objects,
            waiting: self.waiting,
            oldest_waiting: oldest.map(|since| now - since),
            error: self.failing.values().next().map(|f| (f.why.clone(), now - f.since)),
            stalled: self.stalled(now).is_some(),
            durable_below: self.durable_below,
            puts: self.puts,
            objects: self.durable_objects,
            frames: self.durable_frames,
            put_time: self.put_time.unwrap_or_default(),
            sealed: matches!(self.over, Some(Over::Sealed)),
            failed: match &self.over {
                Some(Over::Failed(why)) => Some(why.clone()),
                _ => None,
            },
        }
    }
}
