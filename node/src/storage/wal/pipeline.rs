//! Appends of all streams, batched into WAL objects, put in order, acknowledged in order.
//!
//! Invariant: a ticket resolves Ok only after its object and all before it are stored and the sink has seen them; once
//! the session is sealed, failed or stopped, no ticket ever resolves Ok. Nothing holds the lock over IO or encoding.
//! The pipeline is a task here; over a log that blocks it is a thread, or the append itself (`direct`).
//! Called by `streams` (enqueue, tickets), by whoever builds segments (covered, status) and by `run` (settled, sealed).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use weir_api::SessionId;

use super::direct::Direct;
use super::queue::{Batch, Completion, Over, Queue, Start};
use super::{FIRST_SEQ, PutError, WalLimits, WalStatus, WalWriter, direct};
use crate::clock::Clock;
use crate::fault;
use crate::metrics::WalMeters;
use crate::mutant::{self, Mutant};
use crate::storage::record::Frame;
use crate::storage::record::codec::{self, Stamp};
use crate::storage::store::jittered;
use crate::tasks::Tasks;
use crate::witness::{self, Seen};

pub use super::queue::WalBusy;

/// The first pause before a put is tried again, and the longest.
pub(super) const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Frames that became durable together.
#[derive(Debug)]
pub struct DurableBatch {
    /// The object's number.
    pub seq: u64,
    /// The object's size.
    pub bytes: u64,
    /// In the order of their enqueueing.
    pub frames: Vec<Frame>,
}

/// Who hears first what is durable. Called in order, before the tickets resolve, from the pipeline's task: must not
/// block.
pub trait WalSink: Send + Sync {
    /// Everything up to this batch is durable.
    fn durable(&self, batch: DurableBatch);
}

/// This process never acknowledges that append: it was fenced, or its WAL failed, or it stops. The outcome is unknown,
/// since whoever recovers the session may find the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session can no longer acknowledge; the outcome is unknown")]
pub struct Fenced;

/// Waits for one append's batch.
#[derive(Debug, Clone)]
pub struct Ticket(Arc<Completion>);

impl Ticket {
    /// Resolves once it is known.
    pub async fn wait(&self) -> Result<(), Fenced> {
        if self.0.wait().await { Ok(()) } else { Err(Fenced) }
    }

    /// Whether it is durable already.
    pub fn is_durable(&self) -> bool {
        self.0.outcome() == Some(true)
    }
}

/// A session's WAL pipeline. Clones are handles on one.
#[derive(Clone)]
pub struct Wal {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) queue: Mutex<Queue>,
    /// Wakes the pipeline's task …
    wake: Notify,
    /// … or its thread, if the log is one that blocks.
    pub(super) more: Condvar,
    pub(super) direct: Option<Direct>,
    pub(super) sealed: CancellationToken,
    pub(super) clock: Clock,
}

/// What [`Wal::order`] leaves to be done, once no lock is held.
#[must_use = "without it the frame may lie until another one comes"]
#[derive(Debug)]
pub struct Kick(bool);

impl Wal {
    /// Starts the pipeline of a new session; its objects are numbered from [`FIRST_SEQ`].
    pub fn start(
        tasks: &Tasks,
        clock: &Clock,
        writer: Arc<dyn WalWriter>,
        stamp: impl Into<Stamp>,
        session: SessionId,
        limits: WalLimits,
        sink: Arc<dyn WalSink>,
    ) -> Self {
        let stamp = stamp.into();
        let direct = writer
            .hand_over()
            .map(|log| Direct::new(log, stamp.clone(), session.clone(), sink.clone(), limits.alone_below));
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::new(limits, writer.pays_per_object())),
            wake: Notify::new(),
            more: Condvar::new(),
            direct,
            sealed: CancellationToken::new(),
            clock: clock.clone(),
        });
        if shared.direct.is_some() {
            direct::start(tasks, shared.clone());
            return Self { shared };
        }
        let stop = tasks.stopping().clone();
        let flusher = Flusher {
            shared: shared.clone(),
            writer,
            stamp,
            session,
            sink,
            next: FIRST_SEQ,
            row: VecDeque::new(),
            puts: FuturesUnordered::new(),
        };
        tasks.spawn_vital("wal", flusher.run(stop));
        Self { shared }
    }

    /// Takes a frame into the order. Never waits; the order of calls is the order in the WAL. After an error the frame
    /// is in no order. What is left to do is for [`Self::go`].
    pub fn order(&self, frame: Frame) -> Result<(Ticket, Kick), WalBusy> {
        let bytes = codec::size_bound(&frame) as u64;
        let (done, wake) = self.shared.queue.lock().push(frame, bytes, &self.shared.clock)?;
        Ok((Ticket(done), Kick(wake)))
    }

    /// Gets what was ordered on its way. On a fast local disk that may be done when this returns: to be called with no
    /// lock held.
    pub fn go(&self, kick: Kick) {
        let Kick(true) = kick else { return };
        match &self.shared.direct {
            None => self.shared.wake.notify_one(),
            Some(direct) if direct.lead(&self.shared) => {}
            Some(_) => drop(self.shared.more.notify_one()),
        }
    }

    /// Both steps.
    pub fn enqueue(&self, frame: Frame) -> Result<Ticket, WalBusy> {
        let (ticket, kick) = self.order(frame)?;
        self.go(kick);
        Ok(ticket)
    }

    /// Segments hold everything below this number.
    pub fn covered(&self, below: u64) {
        self.shared.queue.lock().covered(below);
    }

    /// Returns once everything enqueued so far is durable, or never will be.
    pub async fn settled(&self) {
        let last = self.shared.queue.lock().last();
        if let Some(last) = last {
            last.wait().await;
        }
    }

    /// What it holds and how it fares.
    pub fn status(&self) -> WalStatus {
        self.shared.queue.lock().status(self.shared.clock.monotonic())
    }

    /// What it counts.
    pub fn meters(&self) -> Arc<WalMeters> {
        self.shared.queue.lock().meters()
    }

    /// Cancelled once a seal fenced this session: the process must exit.
    pub fn sealed(&self) -> CancellationToken {
        self.shared.sealed.clone()
    }
}

/// How one object's puts ended.
enum Settled {
    Stored,
    Sealed,
    Failed(String),
}

/// A batch on its way; `stored` may come before its turn.
struct Flying {
    seq: u64,
    bytes: u64,
    frames: Vec<Frame>,
    done: Arc<Completion>,
    stored: bool,
}

/// The pipeline's one task.
struct Flusher {
    shared: Arc<Shared>,
    writer: Arc<dyn WalWriter>,
    stamp: Stamp,
    session: SessionId,
    sink: Arc<dyn WalSink>,
    next: u64,
    row: VecDeque<Flying>,
    puts: FuturesUnordered<BoxFuture<'static, (u64, Settled)>>,
}

impl Flusher {
    async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        loop {
            let look_again = self.start_puts();
            tokio::select! {
                () = stop.cancelled() => {
                    self.end(Over::Stopped);
                    return Ok(());
                }
                Some((seq, settled)) = self.puts.next() => match settled {
                    Settled::Stored => self.stored(seq),
                    Settled::Sealed => {
                        tracing::error!(session = %self.session, seq, "the WAL is sealed: this session is over");
                        self.end(Over::Sealed);
                        self.shared.sealed.cancel();
                        stop.cancelled().await;
                        return Ok(());
                    }
                    Settled::Failed(why) => {
                        self.end(Over::Failed(why.clone()));
                        return Err(anyhow!("WAL of session {} at object {seq}: {why}", self.session));
                    }
                },
                () = self.shared.wake.notified() => {}
                () = sleep_until(look_again) => {}
            }
        }
    }

    /// Starts what may start now; says when to look again if nothing else happens.
    fn start_puts(&mut self) -> Option<tokio::time::Instant> {
        loop {
            // Stored behind a number that is not counts too: a sealer takes a hole for damage where more than this
            // stands behind it.
            let room = self.writer.max_in_flight().saturating_sub(self.row.len());
            let now = self.shared.clock.monotonic();
            let start = self.shared.queue.lock().next(self.puts.len(), room, now);
            match start {
                Start::Now(batch) => self.start(batch),
                Start::At(when) => return Some(when),
                Start::Later => return None,
            }
        }
    }

    fn start(&mut self, batch: Batch) {
        let seq = self.next;
        self.next += 1;
        let object = codec::encode(&self.stamp, &self.session, seq, &batch.frames);
        let bytes = object.len() as u64;
        self.shared.queue.lock().measured(&batch, bytes);
        self.row.push_back(Flying { seq, bytes, frames: batch.frames, done: batch.done, stored: false });
        self.puts.push(put(self.shared.clone(), self.writer.clone(), seq, object).boxed());
        if mutant::on(Mutant::AckBeforePut) {
            self.stored(seq);
        }
    }

    fn stored(&mut self, seq: u64) {
        if let Some(flying) = self.row.iter_mut().find(|f| f.seq == seq) {
            flying.stored = true;
        }
        if mutant::on(Mutant::AckOutOfOrder) {
            self.row.make_contiguous().sort_by_key(|f| !f.stored);
        }
        while let Some(flying) = self.row.pop_front_if(|f| f.stored) {
            let Flying { seq, bytes, frames, done, .. } = flying;
            let count = frames.len() as u64;
            fault::point("wal.ack.before");
            witness::tell(Seen::Acknowledged { session: &self.session, seq, frames: &frames });
            self.sink.durable(DurableBatch { seq, bytes, frames });
            self.shared.queue.lock().durable(seq, bytes, count);
            done.resolve(true);
        }
    }

    /// Nothing is acknowledged from now on.
    fn end(&mut self, over: Over) {
        self.puts.clear();
        let waiting = self.shared.queue.lock().end(over);
        for done in self.row.drain(..).map(|f| f.done).chain(waiting) {
            done.resolve(false);
        }
    }
}

/// Puts the same bytes until the outcome is known.
async fn put(shared: Arc<Shared>, writer: Arc<dyn WalWriter>, seq: u64, object: Bytes) -> (u64, Settled) {
    let mut pause = PAUSE.0;
    loop {
        let begun = shared.clock.monotonic();
        let outcome = writer.put(seq, object.clone()).await;
        let now = shared.clock.monotonic();
        let (why, no_room) = match outcome {
            Ok(()) => {
                shared.queue.lock().put_ended(seq, Ok(now - begun));
                return (seq, Settled::Stored);
            }
            Err(PutError::Sealed) => return (seq, Settled::Sealed),
            Err(PutError::Failed(why)) => return (seq, Settled::Failed(why)),
            Err(PutError::Unknown(why)) => (why, false),
            Err(PutError::NoRoom(why)) => (why, true),
        };
        tracing::warn!(seq, error = why, "WAL put not confirmed; trying again");
        shared.queue.lock().put_ended(seq, Err((why, no_room, begun)));
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

async fn sleep_until(when: Option<tokio::time::Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
