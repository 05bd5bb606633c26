//! Tells the log of uses that move a deadline: batched, and waited for only where the record would fall short.
//!
//! Invariant (I2): who is told that a use is recorded can rely on it: this node's view holds the deadline. At most so
//! many streams wait at a time; past that a use that has to be recorded is refused, nothing done. One vital task.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use weir_api::StreamId;

use super::Inner;
use super::error::StreamError;
use super::flush::proposal_failed;
use crate::fault;
use crate::metadata::command::Command;

const AT_MOST: usize = 100_000;
/// A touch takes at most 20 bytes, a command at most 256 KiB.
const PER_COMMAND: usize = 5_000;

type Done = Option<Result<(), StreamError>>;

/// What waits for the next command.
#[derive(Debug)]
struct Batch {
    touches: BTreeMap<StreamId, u64>,
    done: watch::Sender<Done>,
}

impl Default for Batch {
    fn default() -> Self {
        Self { touches: BTreeMap::new(), done: watch::Sender::new(None) }
    }
}

/// See the file.
#[derive(Debug, Default)]
pub(super) struct Touches {
    next: Mutex<Batch>,
    wake: Notify,
}

impl Touches {
    /// Queues a deadline; `None`: no room.
    fn push(&self, id: StreamId, deadline_ms: u64) -> Option<watch::Receiver<Done>> {
        let mut next = self.next.lock();
        if next.touches.len() >= AT_MOST && !next.touches.contains_key(&id) {
            return None;
        }
        let queued = next.touches.entry(id).or_insert(deadline_ms);
        *queued = deadline_ms.max(*queued);
        let done = next.done.subscribe();
        drop(next);
        self.wake.notify_one();
        Some(done)
    }

    fn take(&self) -> Batch {
        std::mem::take(&mut *self.next.lock())
    }
}

impl Inner {
    /// The log should know this deadline soon; losing it costs a wait later.
    pub(super) fn note_touch(&self, id: StreamId, deadline_ms: u64) {
        drop(self.touches.push(id, deadline_ms));
    }

    /// Waits until the log holds this deadline. `false`: the stream has ended meanwhile; look again.
    pub(super) async fn record_touch(&self, id: StreamId, deadline_ms: u64) -> Result<bool, StreamError> {
        let Some(mut done) = self.touches.push(id, deadline_ms) else {
            return Err(StreamError::unavailable(format!(
                "{AT_MOST} streams wait for their use to be recorded"
            )));
        };
        let wait = async { done.wait_for(Option::is_some).await.ok().and_then(|done| done.clone()) };
        let recorded = self.patiently("the metadata log to record the use of the stream", wait).await?;
        recorded.unwrap_or(Err(StreamError::unavailable("this node stops")))?;
        Ok(self.metadata.read(|state| {
            let deadline = state.stream(id).filter(|s| !s.tombstone).and_then(|s| s.deadline_ms);
            deadline.is_some_and(|d| d >= deadline_ms)
        }))
    }

    async fn send_touches(&self, touches: BTreeMap<StreamId, u64>) -> Result<(), StreamError> {
        let touches: Vec<_> = touches.into_iter().collect();
        for part in touches.chunks(PER_COMMAND) {
            fault::point("touch.before_propose");
            self.metadata
                .propose(Command::Touch { touches: part.to_vec() })
                .await
                .map_err(proposal_failed)?;
            fault::point("touch.after_propose");
            for &(id, deadline_ms) in part {
                if let Some(stream) = self.registry.by_id(id) {
                    stream.recorded(deadline_ms);
                }
            }
        }
        Ok(())
    }
}

/// Runs until the node stops.
pub(super) async fn run(inner: Arc<Inner>) -> anyhow::Result<()> {
    let stopping = inner.tasks.stopping().clone();
    loop {
        tokio::select! {
            () = stopping.cancelled() => return Ok(()),
            () = inner.touches.wake.notified() => {}
        }
        loop {
            let Batch { touches, done } = inner.touches.take();
            if touches.is_empty() {
                break;
            }
            let result = inner.send_touches(touches).await;
            if let Err(e) = &result {
                tracing::debug!(error = %e, "uses not recorded");
            }
            done.send_replace(Some(result));
        }
    }
}
