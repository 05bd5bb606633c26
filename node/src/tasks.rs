//! The only maker of tasks and threads: one set, one cancellation token.
//!
//! Invariant: no detached work. A task that ends before it was told to ends the process (its name in the log);
//! shutdown waits for all of them. `run` owns the set; everyone else holds a clone of this handle.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinError;
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
        drop(self.tracker.spawn(here(task)));
    }

    /// Runs `task` for the node's life: if it ends, by error or panic, before the node stops, the node fails.
    #[allow(clippy::disallowed_methods, reason = "this is the door")]
    pub fn spawn_vital<F>(&self, name: &'static str, task: F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let this = self.clone();
        let inner = self.tracker.spawn(here(task));
        drop(self.tracker.spawn(here(async move {
            let why = match inner.await {
                Ok(Ok(())) if this.stop.is_cancelled() => return,
                Ok(Ok(())) => anyhow::anyhow!("it ended"),
                Ok(Err(e)) => e,
                Err(e) => e.into(),
            };
            this.fail_with(why.context(format!("task {name}")));
        })));
    }

    /// Runs blocking `work` (file IO) outside the runtime's own threads and waits for it; shutdown waits too, even if
    /// the caller has gone. The error means that `work` panicked. On a simulated machine it is done at once.
    pub async fn blocking<T, F>(&self, work: F) -> Result<T, JoinError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        #[cfg(feature = "simulation")]
        if crate::simulation::machine().is_some() {
            tokio::task::yield_now().await;
            return Ok(work());
        }
        self.tracker.spawn_blocking(work).await
    }

    /// Runs `work` on a thread of its own; the node fails if it returns an error or panics. It must end once its
    /// input does, because shutdown waits for it.
    pub fn spawn_thread<F>(&self, name: &'static str, work: F) -> io::Result<()>
    where
        F: FnOnce() -> anyhow::Result<()> + Send + 'static,
    {
        let this = self.clone();
        let token = self.tracker.token();
        let run = move || {
            match catch_unwind(AssertUnwindSafe(work)) {
                Ok(Ok(())) => {}
                Ok(Err(e)) => this.fail(format!("thread {name}: {e:#}")),
                Err(_panic) => this.fail(format!("thread {name} panicked")),
            }
            drop(token);
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
    }

    /// Runs `work` on a thread of its own, for system calls that block by nature. It ends when its channel closes. Stopping
    /// does not wait for it: a thread inside a system call that hangs cannot be cancelled and must not hang shutdown, so
    /// what it has to finish is awaited through its channel. A panic fails the node.
    #[allow(clippy::disallowed_methods, reason = "this is the door")]
    pub fn spawn_unawaited_thread<F>(&self, name: &'static str, work: F) -> io::Result<()>
    where
        F: FnOnce() + Send + 'static,
    {
        let guard = FailOnPanic { name, tasks: self.clone() };
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            let _guard = guard;
            work();
        })?;
        Ok(())
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

/// Lets other tasks have a turn, for whoever waits by taking turns until it is late enough. On a simulated machine time
/// passes only while everybody waits, so that some does here.
pub async fn turn() {
    #[cfg(feature = "simulation")]
    if crate::simulation::machine().is_some() {
        return tokio::time::sleep(std::time::Duration::from_micros(100)).await;
    }
    tokio::task::yield_now().await;
}

/// The task as it is spawned: on the machine of whoever spawns it, where machines are simulated.
#[cfg(feature = "simulation")]
fn here<F: Future>(task: F) -> crate::simulation::On<F> {
    crate::simulation::On::here(task)
}

#[cfg(not(feature = "simulation"))]
fn here<F>(task: F) -> F {
    task
}

struct FailOnPanic {
    name: &'static str,
    tasks: Tasks,
}

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tasks.fail(format!("thread {}: panicked", self.name));
        }
    }
}
