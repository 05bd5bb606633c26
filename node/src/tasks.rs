//! The only maker of tasks and threads: one set, one cancellation token.
//!
//! Invariant: no detached work. A task that ends before it was told to ends the process (its name in the log);
//! shutdown waits for all of them. `run` owns the set; everyone else holds a clone of this handle.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A handle on the node's set of tasks.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    failed: CancellationToken,
    first_failure: Arc<Mutex<Option<anyhow::Error>>>,
}

impl Tasks {
    /// Cancelled when the node stops; every long task selects on it.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// Runs `task` until it ends by itself. For work that is bounded, such as serving one connection.
    #[allow(clippy::disallowed_methods, reason = "this is the door")]
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        drop(self.tracker.spawn(task));
    }

    /// Runs `task` for the node's life: if it ends, by error or panic, before the node stops, the node fails.
    #[allow(clippy::disallowed_methods, reason = "this is the door")]
    pub fn spawn_vital<F>(&self, name: &'static str, task: F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let this = self.clone();
        let inner = self.tracker.spawn(task);
        drop(self.tracker.spawn(async move {
            let why = match inner.await {
                Ok(Ok(())) if this.stop.is_cancelled() => return,
                Ok(Ok(())) => anyhow::anyhow!("it ended"),
                Ok(Err(e)) => e,
                Err(e) => e.into(),
            };
            this.fail_with(why.context(format!("task {name}")));
        }));
    }

    /// Runs work that blocks or computes for long on a thread where it holds up no task.
    #[allow(clippy::disallowed_methods, reason = "this is the door")]
    pub async fn blocking<T, F>(&self, work: F) -> anyhow::Result<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Ok(self.tracker.spawn_blocking(work).await?)
    }

    /// Declares the node failed: `run` stops it with this message.
    pub fn fail(&self, why: String) {
        self.fail_with(anyhow::Error::msg(why));
    }

    /// As [`Self::fail`], with an error that `run` may recognise.
    pub fn fail_with(&self, why: anyhow::Error) {
        self.first_failure.lock().get_or_insert(why);
        self.failed.cancel();
    }

    /// Resolves with the first failure.
    pub async fn failed(&self) -> anyhow::Error {
        self.failed.cancelled().await;
        self.first_failure.lock().take().unwrap_or_else(|| anyhow::anyhow!("the node failed"))
    }

    /// Tells every task to stop and waits until all have.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// As [`Self::stop`], but gives up waiting after `grace`: the process ends anyway.
    pub async fn stop_within(&self, grace: std::time::Duration) {
        if tokio::time::timeout(grace, self.stop()).await.is_err() {
            tracing::warn!(?grace, tasks = self.tracker.len(), "tasks did not stop in time");
        }
    }
}
