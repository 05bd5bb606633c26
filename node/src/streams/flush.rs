//! Moves durable records from the WAL into segments, in the background.
//!
//! Invariant: one commit in flight per session, in WAL order; a batch leaves the backlog only after the log holds the
//! commit that covers it. For a fork one stream's records may be committed *ahead* of the backlog: its oldest frames
//! there, all of them or so many, which are counted and passed over when the backlog comes to them; the WAL start stays
//! where it is. Idle streams are released behind a commit or by the periodic sweep, never by a flush of
//! their own. `Flusher` is one vital task; the WAL's sink feeds it, drains and back-pressure hurry it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use weir_api::StreamId;

use super::Inner;
use super::error::StreamError;
use super::open::OpenStream;
use super::ownership::elsewhere;
use super::trouble::SLOW;
use crate::fault;
use crate::metadata::command::{CommitOrigin, NewSegment, RangeOutcome};
use crate::metadata::{ProposeError, command::Refusal};
use crate::storage::commit::{self, CommitError, Draft};
use crate::storage::record::Frame;
use crate::storage::record::codec::Stamp;
use crate::storage::wal::{DurableBatch, WalSink};

/// Durable batches that no segment covers yet, and what hurries the flusher.
#[derive(Debug)]
pub(super) struct Backlog {
    queue: Mutex<Queue>,
    wake: Notify,
    /// Flush everything below this WAL number without waiting for size or age.
    wanted: AtomicU64,
    /// Everything below this WAL number is in segments.
    covered: watch::Sender<u64>,
    /// Too many streams are open: release whatever is settled at the next chance.
    hurry: AtomicBool,
    /// Streams to be committed ahead of the rest.
    ahead: Mutex<BTreeSet<StreamId>>,
}

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Waiting>,
    bytes: u64,
    /// One above the highest number that came.
    end: u64,
}

#[derive(Debug)]
struct Waiting {
    batch: DurableBatch,
    since: Duration,
}

impl Default for Backlog {
    fn default() -> Self {
        Self {
            queue: Mutex::default(),
            wake: Notify::new(),
            wanted: AtomicU64::new(0),
            covered: watch::Sender::new(0),
            hurry: AtomicBool::new(false),
            ahead: Mutex::default(),
        }
    }
}

impl Backlog {
    fn push(&self, batch: DurableBatch, now: Duration) {
        let mut queue = self.queue.lock();
        queue.bytes += batch.bytes;
        queue.end = batch.seq + 1;
        queue.batches.push_back(Waiting { batch, since: now });
        drop(queue);
        self.wake.notify_one();
    }

    /// Asks for open streams to be flushed and released, used lately or not.
    pub(super) fn hurry(&self) {
        if !self.hurry.swap(true, Ordering::Relaxed) {
            self.wanted.fetch_max(self.queue.lock().end, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    pub(super) fn take_hurry(&self) -> bool {
        self.hurry.swap(false, Ordering::Relaxed)
    }

    /// Asks for this stream's records to be committed ahead of the rest.
    pub(super) fn want_ahead(&self, id: StreamId) {
        self.ahead.lock().insert(id);
        self.wake.notify_one();
    }

    /// What was asked for since.
    pub(super) fn take_wanted(&self) -> BTreeSet<StreamId> {
        std::mem::take(&mut *self.ahead.lock())
    }

    /// Looks at the frames that wait, oldest first, until `see` says that it has enough. Holds up the WAL's
    /// acknowledgements: to be short.
    pub(super) fn each_waiting(&self, mut see: impl FnMut(&Frame) -> ControlFlow<()>) {
        let queue = self.queue.lock();
        let frames = queue.batches.iter().flat_map(|waiting| &waiting.batch.frames);
        for frame in frames {
            if see(frame).is_break() {
                break;
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let queue = self.queue.lock();
        queue.batches.is_empty() && *self.covered.borrow() >= queue.end
    }

    /// Waits until everything that is durable now is in segments.
    pub(super) async fn flush(&self) {
        let end = self.queue.lock().end;
        self.wanted.fetch_max(end, Ordering::Relaxed);
        self.wake.notify_one();
        let mut covered = self.covered.subscribe();
        // The sender lives as long as this backlog, so waiting cannot fail.
        drop(covered.wait_for(|c| *c >= end).await);
    }
}

/// Receives durable batches: shows them to readers, then queues them for segments.
pub(super) struct Sink {
    pub(super) inner: std::sync::Weak<Inner>,
}

impl WalSink for Sink {
    fn durable(&self, batch: DurableBatch) {
        let Some(inner) = self.inner.upgrade() else { return };
        let now = inner.clock.since_boot();
        let mut last: Option<Arc<OpenStream>> = None;
        let mut news: Vec<Arc<OpenStream>> = Vec::new();
        for frame in &batch.frames {
            // Neighbouring frames are often of one stream.
            if last.as_ref().is_none_or(|s| s.id != frame.stream) {
                last = inner.registry.by_id(frame.stream);
            }
            if let Some(stream) = &last
                && stream.on_durable(frame, now)
            {
                news.push(stream.clone());
            }
        }
        // One wake-up for all that a batch brings a stream.
        for stream in news {
            stream.announced();
            inner.wakes.records(&stream.signal);
        }
        inner.backlog.push(batch, now);
    }
}

/// Runs until the node stops.
pub(super) async fn run(inner: Arc<Inner>) -> anyhow::Result<()> {
    let stopping = inner.tasks.stopping().clone();
    let mut next_number = 1;
    let mut was_ahead = false;
    let mut sweep = tokio::time::interval(inner.limits.sweep_interval);
    sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let due = inner.due();
        tokio::select! {
            () = stopping.cancelled() => return Ok(()),
            () = inner.backlog.wake.notified(), if due.is_none_or(|d| !d.is_zero()) => {}
            () = tokio::time::sleep(due.unwrap_or(Duration::MAX)), if due.is_some() => {
                let backlog_due = inner.backlog_due().is_some_and(|d| d.is_zero());
                // In turns, so that forks never hold the backlog up.
                let ahead = if backlog_due && was_ahead { None } else { Work::ahead(inner.take_ahead()) };
                let backlog = || if backlog_due { Work::backlog(inner.take()) } else { None };
                let Some(work) = ahead.or_else(backlog) else { continue };
                was_ahead = work.covered.is_none();
                tokio::select! {
                    () = stopping.cancelled() => return Ok(()),
                    done = flush(&inner, work, next_number) => done?,
                }
                next_number += 1;
                if !was_ahead {
                    inner.release_idle().await;
                }
            }
            _ = sweep.tick() => inner.release_idle().await,
        }
    }
}

impl Inner {
    /// How long until there is something to flush; `None`: nothing waits.
    fn due(&self) -> Option<Duration> {
        if self.backlog.ahead.lock().is_empty() { self.backlog_due() } else { Some(Duration::ZERO) }
    }

    /// How long until the backlog should be flushed; `None`: it is empty.
    fn backlog_due(&self) -> Option<Duration> {
        let queue = self.backlog.queue.lock();
        let oldest = queue.batches.front()?;
        let limits = &self.limits;
        let full = queue.bytes >= limits.segment_bytes
            || self.wal.status().backlog_objects >= limits.segment_objects
            || oldest.batch.seq < self.backlog.wanted.load(Ordering::Relaxed);
        if full {
            return Some(Duration::ZERO);
        }
        let age = self.clock.since_boot().saturating_sub(oldest.since);
        Some(limits.segment_age.saturating_sub(age))
    }

    /// The oldest batches, up to a segment's worth.
    fn take(&self) -> Vec<DurableBatch> {
        let mut queue = self.backlog.queue.lock();
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some(first) = queue.batches.front() {
            if !taken.is_empty() && bytes + first.batch.bytes > self.limits.segment_bytes {
                break;
            }
            bytes += first.batch.bytes;
            queue.bytes -= first.batch.bytes;
            taken.extend(queue.batches.pop_front().map(|w| w.batch));
        }
        taken
    }
}

/// What one segment is to hold.
struct Work {
    frames: Vec<Frame>,
    /// The WAL number below which everything is covered then; `None`: the frames stay in the backlog.
    covered: Option<u64>,
}

impl Work {
    fn backlog(taken: Vec<DurableBatch>) -> Option<Self> {
        let covered = Some(taken.last()?.seq + 1);
        Some(Self { frames: taken.into_iter().flat_map(|b| b.frames).collect(), covered })
    }

    fn ahead(frames: Vec<Frame>) -> Option<Self> {
        (!frames.is_empty()).then_some(Self { frames, covered: None })
    }
}

/// A stream in a segment that is being made.
struct Base {
    stream: Arc<OpenStream>,
    /// Frames of it that are still to be passed over.
    skip: u64,
}

/// Builds, uploads and commits one segment, for as long as it takes.
async fn flush(inner: &Arc<Inner>, work: Work, number: u64) -> anyhow::Result<()> {
    let Work { frames, covered } = work;
    let mut draft = Draft::default();
    let mut bases: BTreeMap<StreamId, Option<Base>> = BTreeMap::new();
    for frame in frames {
        let base = bases.entry(frame.stream).or_insert_with(|| {
            let stream = inner.registry.by_id(frame.stream)?;
            let skip = if covered.is_some() { stream.committed_ahead() } else { 0 };
            Some(Base { stream, skip })
        });
        // Not open any more: the stream was deleted, and its records with it. Opened anew: it was released before,
        // and so committed.
        let Some(Base { stream, skip }) = base.as_mut().filter(|b| b.stream.epoch == frame.epoch) else {
            continue;
        };
        if *skip > 0 {
            *skip -= 1;
        } else {
            draft.push(frame, || stream.committed_dedupe());
        }
    }
    let before = *inner.backlog.covered.borrow();
    let stamp = Stamp { cluster: inner.cluster, writing: inner.metadata.writing() };
    let session = inner.session.clone();
    let built = inner.tasks.blocking(move || draft.build(&stamp, session, number)).await??;
    let mut tries = 0;
    let since = inner.clock.monotonic();
    let outcomes = loop {
        match store_and_commit(inner, &built, number, covered.unwrap_or(before)).await {
            Ok(outcomes) => break outcomes,
            Err(CommitError::Propose { why: ProposeError::SessionOver, .. }) => {
                anyhow::bail!("this node's session was ended by another process or a fence")
            }
            Err(CommitError::Propose { why: ProposeError::Refused(refusal), .. }) => {
                anyhow::bail!("the metadata log refused segment {number}: {refusal}")
            }
            Err(e @ (CommitError::KeyTaken(_) | CommitError::Unexpected(_) | CommitError::Build(_))) => {
                return Err(e.into());
            }
            Err(e) => {
                // Every store fails now and then; who looks at readiness wants to know what lasts.
                if since.elapsed() >= SLOW {
                    inner.readiness.set("segments", e.to_string());
                }
                tracing::warn!(error = %e, tries, "segment not committed yet");
            }
        }
        tokio::time::sleep(commit::backoff(tries)).await;
        tries += 1;
    };
    inner.readiness.clear("segments");
    if !built.ranges.is_empty() {
        inner.meters.segments.committed(built.object.len() as u64);
    }
    for (outcome, after) in outcomes.iter().zip(built.after) {
        let Some(Base { stream, .. }) = bases.get(&after.stream).and_then(Option::as_ref) else { continue };
        // A part of an earlier try may have been committed: then this try skipped it.
        let committed = *outcome == RangeOutcome::Committed
            || inner.metadata.read(|state| {
                let known = state.streams.get(&after.stream);
                known.is_some_and(|s| s.epoch == stream.epoch && s.committed >= after.end)
            });
        if committed {
            stream.on_committed(after.end, after.frames, after.dedupe);
            if covered.is_none() {
                stream.set_committed_ahead(stream.committed_ahead() + after.frames);
            }
        }
    }
    let Some(covered) = covered else { return Ok(()) };
    for Base { stream, skip } in bases.into_values().flatten() {
        stream.set_committed_ahead(skip);
    }
    inner.backlog.covered.send_replace(covered);
    inner.wal.covered(covered);
    fault::point("flush.before_trim");
    if let Err(e) = inner.wal_store.trim(&inner.session, covered).await {
        tracing::warn!(error = %e, "WAL not trimmed; the next commit tries again");
    }
    Ok(())
}

async fn store_and_commit(
    inner: &Inner,
    built: &commit::Built,
    number: u64,
    covered: u64,
) -> Result<Vec<RangeOutcome>, CommitError> {
    let mut segment = None;
    if !built.ranges.is_empty() {
        fault::point("flush.before_upload");
        commit::upload(&inner.store, inner.generation, &inner.session, number, built.object.clone()).await?;
        fault::point("flush.after_upload");
        segment = Some(NewSegment { number, bytes: built.object.len() as u64 });
    }
    commit::commit(&inner.metadata, &CommitOrigin::Own, segment, &built.ranges, Some(covered)).await
}

/// Whether a refusal of a stream command means that this session is over.
pub(super) fn session_over(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::SessionNotCurrent)
}

/// A proposal that failed, as the client sees it.
pub(super) fn proposal_failed(e: ProposeError) -> StreamError {
    match e {
        ProposeError::Refused(refusal) if session_over(&refusal) => {
            StreamError::unavailable("this node's session is over")
        }
        ProposeError::Refused(Refusal::NoSuchStream) => StreamError::NotFound,
        ProposeError::Refused(Refusal::Tombstone) => StreamError::Gone,
        ProposeError::Refused(Refusal::NotOwner(owner)) => elsewhere(&owner.session),
        ProposeError::Refused(Refusal::Limit(what)) => StreamError::Limit(what),
        ProposeError::Refused(other) => StreamError::unavailable(other.to_string()),
        ProposeError::Unavailable(why) => StreamError::unavailable(why),
        ProposeError::SessionOver => StreamError::unavailable("this node's session is over"),
        ProposeError::Unknown => StreamError::OutcomeUnknown,
        other => StreamError::unavailable(other.to_string()),
    }
}
