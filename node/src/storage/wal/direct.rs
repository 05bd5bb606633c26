//! The pipeline over a log that blocks: take what waits, encode, put, tell, and again.
//!
//! A thread of its own does that. An append that finds everything idle, on a disk that is fast, does it for itself, on the
//! thread it is on: waking another thread and being woken by it takes as long as the disk does. Invariant: as in
//! `pipeline`. A thread in a system call cannot be told to stop, so that the end of a session and a put that lands just then
//! meet under one lock: whichever comes first decides for the batch, and after an end no batch is told of. One put at a time,
//! so everything before it is stored. Started by `pipeline`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_api::SessionId;

use super::pipeline::{DurableBatch, PAUSE, Shared, WalSink};
use super::queue::{Batch, Over};
use super::{BlockingLog, FIRST_SEQ, PutError};
use crate::fault;
use crate::storage::record::codec::{self, Stamp};
use crate::storage::store::jittered;
use crate::tasks::Tasks;

/// A buffer that one large batch has grown is not kept.
const KEEP: usize = 1 << 20;
/// An append above this is left to the writer's thread: encoding and syncing it would hold a thread that serves others.
const LEAD_MAX: u64 = 256 << 10;
/// After a batch of more appends than this it is better to gather than to hurry.
const FEW: usize = 2;
/// How often the thread looks after appends that put for themselves, and how long one may take before it helps.
const LOOK: Duration = Duration::from_millis(20);
/// Looks without anything to see, after which it sleeps until it is called.
const LOOKS: u32 = 50;

pub(super) struct Direct {
    pump: Mutex<Pump>,
    stamp: Stamp,
    session: SessionId,
    sink: Arc<dyn WalSink>,
    /// Held while a stored batch is told of, and while the session is ended.
    telling: Mutex<()>,
    ended: CancellationToken,
    /// The last batch was small and the disk is fast.
    calm: AtomicBool,
    /// A batch is left to the thread.
    left: AtomicBool,
    born: Instant,
    /// When an append began to put for itself, in microseconds from `born`; 0: none does.
    leading: AtomicU64,
    leads: AtomicU64,
    watching: AtomicBool,
    runtime: Handle,
    /// Appends put for themselves while puts take less; slower ones are the thread's, for nobody else waits for a slow
    /// disk. Zero where the runtime has no other thread for everything else.
    fast: Duration,
}

/// Whoever holds it puts.
struct Pump {
    log: Box<dyn BlockingLog>,
    next: u64,
    /// What is put under `next - 1`, if it is not stored yet.
    flying: Option<Batch>,
    object: Vec<u8>,
}

/// What a try to put came to.
enum Tried {
    Stored,
    /// The same again, later.
    Again,
    /// The session is over.
    Over,
}

impl Direct {
    /// To be called within the runtime whose tasks append.
    pub(super) fn new(
        log: Box<dyn BlockingLog>,
        stamp: Stamp,
        session: SessionId,
        sink: Arc<dyn WalSink>,
        alone_below: Duration,
    ) -> Self {
        let runtime = Handle::current();
        Self {
            pump: Mutex::new(Pump { log, next: FIRST_SEQ, flying: None, object: Vec::new() }),
            stamp,
            session,
            sink,
            telling: Mutex::new(()),
            ended: CancellationToken::new(),
            calm: AtomicBool::new(false),
            left: AtomicBool::new(false),
            born: Instant::now(),
            leading: AtomicU64::new(0),
            leads: AtomicU64::new(0),
            watching: AtomicBool::new(false),
            fast: if runtime.metrics().num_workers() > 1 { alone_below } else { Duration::ZERO },
            runtime,
        }
    }

    /// Puts what waits, if that is one append alone on an idle pipeline. `false`: call the thread.
    pub(super) fn lead(&self, shared: &Shared) -> bool {
        if !self.calm.load(Ordering::Relaxed) {
            return false;
        }
        let Some(mut pump) = self.pump.try_lock() else { return false };
        let now = shared.clock.monotonic();
        let batch = {
            let mut queue = shared.queue.lock();
            let alone = queue.alone().is_some_and(|bytes| bytes <= LEAD_MAX && pump.log.has_room(bytes));
            if !alone || pump.flying.is_some() {
                return false;
            }
            queue.next_alone(now)
        };
        let Some(batch) = batch else { return false };
        self.leading.store(self.micros(now), Ordering::Relaxed);
        self.leads.fetch_add(1, Ordering::Relaxed);
        if !self.watching.swap(true, Ordering::Relaxed) {
            shared.more.notify_one();
        }
        self.load(&mut pump, shared, batch);
        let tried = self.attempt(&mut pump, shared);
        self.leading.store(0, Ordering::Relaxed);
        if matches!(tried, Tried::Again) {
            self.left.store(true, Ordering::Relaxed);
            let _queue = shared.queue.lock();
            shared.more.notify_one();
        }
        true
    }

    fn micros(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.born).as_micros()).unwrap_or(u64::MAX).max(1)
    }

    /// Until the session is over.
    fn run(&self, shared: &Shared) {
        while let Some(mut pump) = self.wait(shared) {
            self.left.store(false, Ordering::Relaxed);
            if pump.flying.is_none() {
                let Some(batch) = shared.queue.lock().next_alone(shared.clock.monotonic()) else { continue };
                self.load(&mut pump, shared, batch);
            }
            let mut pause = PAUSE.0;
            loop {
                match self.attempt(&mut pump, shared) {
                    Tried::Stored => break,
                    Tried::Over => return,
                    Tried::Again => {
                        if !sleep(shared, jittered(pause)) {
                            return;
                        }
                        pause = (pause * 2).min(PAUSE.1);
                    }
                }
            }
        }
    }

    /// Until there is something to put and nobody else does. `None`: the session is over.
    fn wait(&self, shared: &Shared) -> Option<MutexGuard<'_, Pump>> {
        let mut idle = 0;
        let mut seen = self.leads.load(Ordering::Relaxed);
        let mut queue = shared.queue.lock();
        loop {
            if queue.over().is_some() {
                return None;
            }
            if queue.has_waiting() || self.left.load(Ordering::Relaxed) {
                drop(queue);
                if let Some(pump) = self.pump.try_lock_for(LOOK) {
                    return Some(pump);
                }
                self.help(shared);
                queue = shared.queue.lock();
                continue;
            }
            if !self.watching.load(Ordering::Relaxed) {
                shared.more.wait(&mut queue);
            } else if shared.more.wait_for(&mut queue, LOOK).timed_out() {
                let leads = self.leads.load(Ordering::Relaxed);
                idle = if leads == seen { idle + 1 } else { 0 };
                seen = leads;
                if idle > LOOKS {
                    idle = 0;
                    self.watching.store(false, Ordering::Relaxed);
                }
                self.help(shared);
            }
        }
    }

    /// An append that hangs in a put holds a thread of the runtime, perhaps the one that watches the sockets: with a task
    /// from outside another one wakes up and takes over.
    fn help(&self, shared: &Shared) {
        let since = self.leading.load(Ordering::Relaxed);
        let now = self.micros(shared.clock.monotonic());
        if since != 0 && u128::from(now.saturating_sub(since)) >= LOOK.as_micros() / 2 {
            drop(self.runtime.spawn(async {}));
        }
    }

    /// Encodes the next batch.
    fn load(&self, pump: &mut Pump, shared: &Shared, batch: Batch) {
        let seq = pump.next;
        pump.next += 1;
        codec::encode_into(&mut pump.object, &self.stamp, &self.session, seq, &batch.frames);
        shared.queue.lock().measured(&batch, pump.object.len() as u64);
        pump.flying = Some(batch);
    }

    /// Puts the batch that is loaded, once.
    fn attempt(&self, pump: &mut Pump, shared: &Shared) -> Tried {
        let seq = pump.next - 1;
        let begun = shared.clock.monotonic();
        let outcome = pump.log.put(seq, &pump.object);
        let took = shared.clock.monotonic() - begun;
        let (why, no_room) = match outcome {
            Ok(()) => {
                let put_time = {
                    let mut queue = shared.queue.lock();
                    queue.put_ended(seq, Ok(took));
                    queue.put_time()
                };
                let Some(batch) = pump.flying.take() else { return Tried::Stored };
                self.calm.store(batch.frames.len() <= FEW && put_time < self.fast, Ordering::Relaxed);
                self.tell(shared, seq, pump.object.len() as u64, batch);
                if pump.object.capacity() > KEEP {
                    pump.object = Vec::new();
                }
                return Tried::Stored;
            }
            Err(PutError::Sealed) => {
                tracing::error!(session = %self.session, seq, "the WAL is sealed: this session is over");
                self.end(shared, Over::Sealed);
                shared.sealed.cancel();
                return Tried::Over;
            }
            Err(PutError::Failed(why)) => {
                self.end(shared, Over::Failed(format!("object {seq}: {why}")));
                return Tried::Over;
            }
            Err(PutError::Unknown(why)) => (why, false),
            Err(PutError::NoRoom(why)) => (why, true),
        };
        tracing::warn!(seq, error = why, "WAL put not confirmed; trying again");
        self.calm.store(false, Ordering::Relaxed);
        shared.queue.lock().put_ended(seq, Err((why, no_room, begun)));
        Tried::Again
    }

    fn tell(&self, shared: &Shared, seq: u64, bytes: u64, batch: Batch) {
        let count = batch.frames.len() as u64;
        fault::point("wal.ack.before");
        let _telling = self.telling.lock();
        // An end that came first has told its waiters so.
        if shared.queue.lock().over().is_some() {
            return;
        }
        self.sink.durable(DurableBatch { seq, bytes, frames: batch.frames });
        shared.queue.lock().landed(seq, bytes, count);
        batch.done.resolve(true);
    }

    /// Nothing is acknowledged from now on.
    fn end(&self, shared: &Shared, over: Over) {
        let _telling = self.telling.lock();
        let waiting = shared.queue.lock().end(over);
        shared.more.notify_all();
        for done in waiting {
            done.resolve(false);
        }
        self.ended.cancel();
    }
}

/// Waits between two tries. `false`: the session is over.
fn sleep(shared: &Shared, time: Duration) -> bool {
    let until = shared.clock.monotonic() + time;
    let mut queue = shared.queue.lock();
    while queue.over().is_none() {
        let left = until.saturating_duration_since(shared.clock.monotonic());
        // Frames that come meanwhile wake it too.
        if left.is_zero() || shared.more.wait_for(&mut queue, left).timed_out() {
            break;
        }
    }
    queue.over().is_none()
}

/// Starts the thread, and the task that ends it.
pub(super) fn start(tasks: &Tasks, shared: Arc<Shared>) {
    let thread = shared.clone();
    let spawned = tasks.spawn_unawaited_thread("weir-wal", move || {
        if let Some(direct) = &thread.direct {
            direct.run(&thread);
        }
    });
    let stop = tasks.stopping().clone();
    tasks.spawn_vital("wal", async move {
        let Some(direct) = &shared.direct else { return Ok(()) };
        if let Err(e) = spawned {
            direct.end(&shared, Over::Failed(format!("no thread: {e}")));
        }
        tokio::select! {
            () = stop.cancelled() => direct.end(&shared, Over::Stopped),
            () = direct.ended.cancelled() => {}
        }
        let failed = match shared.queue.lock().over() {
            Some(Over::Failed(why)) => Some(why.clone()),
            Some(Over::Sealed | Over::Stopped) | None => None,
        };
        match failed {
            Some(why) => Err(anyhow!("WAL of session {}: {why}", direct.session)),
            None => {
                stop.cancelled().await;
                Ok(())
            }
        }
    });
}
