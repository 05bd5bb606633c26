//! Sends readers away from a stream that another node is to serve now.
//!
//! Invariant: whoever waits at the tail of a stream that is not open here is woken soon after the view says that it
//! was placed or opened elsewhere, or that it is gone; a stream that is open here costs nothing, since its own end wakes its readers.
//! Readers take a place with [`Inner::told_of_moves`] before they look at the stream for the last time: long-polls in
//! `read`, event streams in `follow`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_api::StreamId;

use super::Inner;
use super::signal::Signal;
use crate::metadata::query::Disposition;
use crate::metadata::state::{SessionNo, State};

/// However busy the metadata log is, readers are looked after this often at most.
const PAUSE: Duration = Duration::from_millis(100);
/// So many streams are looked up before apply gets its turn.
const SLICE: usize = 256;

/// See the file.
#[derive(Debug, Default)]
pub(super) struct IdleReaders {
    followed: Mutex<HashMap<StreamId, Followed>>,
    /// There are some, after there were none.
    some: Notify,
}

#[derive(Debug)]
struct Followed {
    readers: usize,
    signal: Arc<Signal>,
}

/// A reader's place. While it is held the reader is told of moves.
pub(super) struct Told<'a> {
    readers: &'a IdleReaders,
    id: StreamId,
}

impl IdleReaders {
    fn add(&self, id: StreamId, signal: &Arc<Signal>) -> Told<'_> {
        let mut followed = self.followed.lock();
        followed.entry(id).or_insert_with(|| Followed { readers: 0, signal: signal.clone() }).readers += 1;
        let first = followed.len() == 1;
        drop(followed);
        if first {
            self.some.notify_one();
        }
        Told { readers: self, id }
    }

    fn all(&self) -> Vec<(StreamId, Arc<Signal>)> {
        self.followed.lock().iter().map(|(id, f)| (*id, f.signal.clone())).collect()
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        let mut followed = self.readers.followed.lock();
        if let Some(entry) = followed.get_mut(&self.id) {
            entry.readers -= 1;
            if entry.readers == 0 {
                followed.remove(&self.id);
            }
        }
    }
}

impl Inner {
    /// A place for a reader of a stream that is not open here; none is needed where it is.
    pub(super) fn told_of_moves(&self, id: StreamId, signal: &Arc<Signal>) -> Option<Told<'_>> {
        self.registry.by_id(id).is_none().then(|| self.idle_readers.add(id, signal))
    }
}

/// Runs until the node stops.
pub(super) async fn run(inner: Arc<Inner>) -> anyhow::Result<()> {
    let stopping = inner.tasks.stopping().clone();
    let watching = async {
        let mut applied = inner.metadata.applied();
        loop {
            // In this order: a change after a reader's last look is seen either below or as a change.
            applied.borrow_and_update();
            let followed = inner.idle_readers.all();
            if followed.is_empty() {
                inner.idle_readers.some.notified().await;
                continue;
            }
            for some in followed.chunks(SLICE) {
                let moved: Vec<&Arc<Signal>> = inner.metadata.read(|state| {
                    let moved = |id| moved(state, inner.number, id);
                    some.iter().filter(|(id, _)| moved(*id)).map(|(_, signal)| signal).collect()
                });
                moved.iter().for_each(|signal| signal.wake());
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(PAUSE).await;
            // The log stopped: so does the node.
            if applied.changed().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = watching => stopping.cancelled().await,
        () = stopping.cancelled() => {}
    }
    Ok(())
}

/// Whether there is nothing to wait for here any more.
fn moved(state: &State, me: SessionNo, id: StreamId) -> bool {
    match state.disposition(id) {
        Some(Disposition::OpenAt(owner, _) | Disposition::PlacedAt(owner)) => owner != me,
        Some(Disposition::AwaitingRecovery(_) | Disposition::Released) => false,
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_followed_while_somebody_waits() {
        let readers = IdleReaders::default();
        let signal = Arc::new(Signal::default());
        let one = readers.add(StreamId(1), &signal);
        let two = readers.add(StreamId(1), &signal);
        let other = readers.add(StreamId(2), &signal);
        assert_eq!(readers.all().len(), 2);
        drop((one, other));
        assert_eq!(readers.all().len(), 1);
        drop(two);
        assert!(readers.all().is_empty());
    }
}
