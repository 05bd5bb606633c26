//! Notices to the metadata log that nobody waits for: births (and later touches), batched.
//!
//! Invariant: losing a notice loses nothing: the WAL record that gave birth is what counts, and the commit that covers
//! it says the same. Bounded: past the bound notices are dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_api::{StreamEpoch, StreamId};

use super::Inner;
use crate::metadata::command::Command;

const AT_MOST: usize = 10_000;
const PER_COMMAND: usize = 2_000;
/// Notices gather this long, so that a burst of creates costs one command.
const GATHER: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Notices {
    born: Mutex<BTreeMap<StreamId, StreamEpoch>>,
    wake: Notify,
}

impl Notices {
    pub(super) fn born(&self, id: StreamId, epoch: StreamEpoch) {
        let mut born = self.born.lock();
        if born.len() < AT_MOST {
            born.insert(id, epoch);
            drop(born);
            self.wake.notify_one();
        }
    }
}

/// Runs until the node stops.
pub(super) async fn run(inner: Arc<Inner>) -> anyhow::Result<()> {
    let stopping = inner.tasks.stopping().clone();
    loop {
        tokio::select! {
            () = stopping.cancelled() => return Ok(()),
            () = inner.notices.wake.notified() => {}
        }
        tokio::select! {
            () = stopping.cancelled() => return Ok(()),
            () = tokio::time::sleep(GATHER) => {}
        }
        loop {
            let streams: Vec<_> = {
                let mut born = inner.notices.born.lock();
                std::iter::from_fn(|| born.pop_first()).take(PER_COMMAND).collect()
            };
            if streams.is_empty() {
                break;
            }
            if let Err(e) = inner.metadata.propose(Command::Born { streams }).await {
                tracing::debug!(error = %e, "births not told; the next commit tells them");
                break;
            }
        }
    }
}
