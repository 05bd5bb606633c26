//! One stream's records committed ahead of the backlog, because somebody forks it and the log forks only what is
//! committed.
//!
//! Invariant: what is taken are the oldest frames of the stream that are not committed, without a gap; they stay in the
//! backlog, and the open stream counts them, so that `flush` passes over them there. Whoever waits at the same time is
//! served by one segment. Called by `fork` and by the flusher.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use weir_api::{Offset, StreamId};

use super::Inner;
use super::error::StreamError;
use crate::metadata::state::Stream;
use crate::storage::record::Frame;

/// Durable records come to the backlog a moment after readers see them.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Inner {
    /// Waits, bounded, until the stream's records below `to`, and the one that gave it birth, all of them durable, are
    /// in segments (or it is gone).
    pub(super) async fn committed_to(&self, id: StreamId, to: Offset) -> Result<(), StreamError> {
        let mut applied = self.metadata.applied();
        let missing = |s: &Stream| s.committed < to || s.unborn_since_ms.is_some();
        let wait = async {
            while self.metadata.read(|state| state.stream(id).is_some_and(missing)) {
                self.backlog.want_ahead(id);
                if matches!(tokio::time::timeout(LOOK_AGAIN, applied.changed()).await, Ok(Err(_stopped))) {
                    break;
                }
            }
        };
        self.patiently("the source's records to reach a segment", wait).await
    }

    /// Frames of the streams that somebody waits for, about a segment's worth at most.
    pub(super) fn take_ahead(&self) -> Vec<Frame> {
        let mut left = BTreeMap::new();
        for id in self.backlog.take_wanted() {
            // Not open any more: it has nothing in the backlog that is not committed.
            if let Some(stream) = self.registry.by_id(id) {
                left.insert(id, (stream.epoch, stream.committed_ahead()));
            }
        }
        let mut taken = Vec::new();
        if left.is_empty() {
            return taken;
        }
        let mut bytes = 0;
        self.backlog.each_waiting(|frame| {
            let Some((epoch, before)) = left.get_mut(&frame.stream) else { return ControlFlow::Continue(()) };
            if frame.epoch != *epoch {
                return ControlFlow::Continue(());
            }
            if *before > 0 {
                *before -= 1;
                return ControlFlow::Continue(());
            }
            taken.push(frame.clone());
            bytes += frame.payload.size() as u64;
            if bytes < self.limits.segment_bytes { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        taken
    }
}
