//! The pipeline on its writer's own thread: take what waits, encode, put, tell, and again.
//!
//! Invariant: as in `pipeline`. A thread in a system call cannot be told to stop, so that the end of a session and a put
//! that lands just then meet under one lock: whichever comes first decides for the batch, and after an end no batch is told
//! of. One put at a time, so everything before it is stored. Started by `pipeline`.

use std::sync::Arc;

use anyhow::anyhow;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use weir_api::{ClusterUid, SessionId};

use super::pipeline::{DurableBatch, PAUSE, Shared, WalSink};
use super::queue::{Batch, Over};
use super::{FIRST_SEQ, Put, PutError, WalWriter};
use crate::fault;
use crate::storage::record::codec;
use crate::storage::store::jittered;
use crate::tasks::Tasks;

/// A buffer that one large batch has grown is not kept.
const KEEP: usize = 1 << 20;

/// Starts it on the writer's thread.
pub(super) fn start(
    tasks: &Tasks,
    shared: Arc<Shared>,
    writer: &dyn WalWriter,
    cluster: ClusterUid,
    session: SessionId,
    sink: Arc<dyn WalSink>,
) {
    let turn = Arc::new(Turn::default());
    let direct = Direct {
        shared: shared.clone(),
        turn: turn.clone(),
        cluster,
        session: session.clone(),
        sink,
        next: FIRST_SEQ,
        object: Vec::new(),
    };
    if let Err(e) = writer.drive(Box::new(move |put| direct.run(put))) {
        turn.end(&shared, Over::Failed(e.to_string()));
    }
    let stop = tasks.stopping().clone();
    tasks.spawn_vital("wal", async move {
        tokio::select! {
            () = stop.cancelled() => turn.end(&shared, Over::Stopped),
            () = turn.ended.cancelled() => {}
        }
        let failed = match shared.queue.lock().over() {
            Some(Over::Failed(why)) => Some(why.clone()),
            Some(Over::Sealed | Over::Stopped) | None => None,
        };
        match failed {
            Some(why) => Err(anyhow!("WAL of session {session}: {why}")),
            None => {
                stop.cancelled().await;
                Ok(())
            }
        }
    });
}

/// Where the thread and whoever ends the session meet.
#[derive(Default)]
struct Turn {
    /// Held while a stored batch is told of, and while the session is ended.
    telling: Mutex<()>,
    ended: CancellationToken,
}

impl Turn {
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

/// What the thread runs.
struct Direct {
    shared: Arc<Shared>,
    turn: Arc<Turn>,
    cluster: ClusterUid,
    session: SessionId,
    sink: Arc<dyn WalSink>,
    next: u64,
    object: Vec<u8>,
}

impl Direct {
    /// Until the session is over.
    fn run(mut self, put: &mut Put<'_>) {
        while let Some(batch) = self.next_batch() {
            let seq = self.next;
            self.next += 1;
            codec::encode_into(&mut self.object, self.cluster, &self.session, seq, &batch.frames);
            self.shared.queue.lock().measured(&batch, self.object.len() as u64);
            if !self.store(seq, put) {
                return;
            }
            self.tell(seq, batch);
            if self.object.capacity() > KEEP {
                self.object = Vec::new();
            }
        }
    }

    fn next_batch(&self) -> Option<Batch> {
        let mut queue = self.shared.queue.lock();
        loop {
            if queue.over().is_some() {
                return None;
            }
            if let Some(batch) = queue.next_alone(self.shared.clock.monotonic()) {
                return Some(batch);
            }
            self.shared.more.wait(&mut queue);
        }
    }

    /// Puts the same bytes until they are stored. `false`: the session is over.
    fn store(&self, seq: u64, put: &mut Put<'_>) -> bool {
        let mut pause = PAUSE.0;
        loop {
            let begun = self.shared.clock.monotonic();
            let outcome = put(seq, &self.object);
            let took = self.shared.clock.monotonic() - begun;
            let (why, no_room) = match outcome {
                Ok(()) => {
                    self.shared.queue.lock().put_ended(seq, Ok(took));
                    return true;
                }
                Err(PutError::Sealed) => {
                    tracing::error!(session = %self.session, seq, "the WAL is sealed: this session is over");
                    self.turn.end(&self.shared, Over::Sealed);
                    self.shared.sealed.cancel();
                    return false;
                }
                Err(PutError::Failed(why)) => {
                    self.turn.end(&self.shared, Over::Failed(format!("object {seq}: {why}")));
                    return false;
                }
                Err(PutError::Unknown(why)) => (why, false),
                Err(PutError::NoRoom(why)) => (why, true),
            };
            tracing::warn!(seq, error = why, "WAL put not confirmed; trying again");
            let mut queue = self.shared.queue.lock();
            queue.put_ended(seq, Err((why, no_room, begun)));
            let until = self.shared.clock.monotonic() + jittered(pause);
            pause = (pause * 2).min(PAUSE.1);
            while queue.over().is_none() {
                let left = until.saturating_duration_since(self.shared.clock.monotonic());
                // Frames that come meanwhile wake it too.
                if left.is_zero() || self.shared.more.wait_for(&mut queue, left).timed_out() {
                    break;
                }
            }
            if queue.over().is_some() {
                return false;
            }
        }
    }

    fn tell(&self, seq: u64, batch: Batch) {
        let bytes = self.object.len() as u64;
        let count = batch.frames.len() as u64;
        fault::point("wal.ack.before");
        let _telling = self.turn.telling.lock();
        // An end that came first has told its waiters so.
        if self.shared.queue.lock().over().is_some() {
            return;
        }
        self.sink.durable(DurableBatch { seq, bytes, frames: batch.frames });
        self.shared.queue.lock().landed(seq, bytes, count);
        batch.done.resolve(true);
    }
}
