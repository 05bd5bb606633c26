//! Read indexes, one confirmation of leadership for all that ask at once.
//!
//! Invariant: a caller is answered by a confirmation that began after it asked. Who asks while one is under way waits
//! for the next. Run as one task by `metadata`.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::raft::Log;

/// Where the index, or why there is none, goes.
pub(super) type ReadAsk = oneshot::Sender<Result<u64, String>>;

/// A confirmation that takes longer is given up; callers have deadlines of their own.
const CONFIRM: Duration = Duration::from_secs(5);

/// Serves until `closing`.
pub(super) async fn run(log: Log, mut asks: mpsc::Receiver<ReadAsk>, closing: CancellationToken) {
    loop {
        let first = tokio::select! {
            biased;
            () = closing.cancelled() => return,
            ask = asks.recv() => ask,
        };
        let Some(first) = first else { return };
        let mut waiting = vec![first];
        while let Ok(ask) = asks.try_recv() {
            waiting.push(ask);
        }
        let index = match tokio::time::timeout(CONFIRM, log.confirm()).await {
            Ok(index) => index,
            Err(_late) => Err(format!("leadership not confirmed within {CONFIRM:?}")),
        };
        for ask in waiting {
            // The caller may have gone.
            drop(ask.send(index.clone()));
        }
    }
}
