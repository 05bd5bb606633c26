//! `weir serve`: configuration, logging, runtime, and the exit code of how it ended.
//!
//! Invariant: once the node has stopped, or given up waiting for what does not, the process ends: a thread that hangs in
//! the disk does not keep it.

use tokio::runtime::Runtime;

use super::{ExitCode, complain, logging};
use crate::config::{self, SettingArgs};
use crate::run::{self, RunError};

pub(super) fn run(settings: &SettingArgs) -> ExitCode {
    let config = match config::load(settings, &config::process_environment) {
        Ok(loaded) => loaded.config,
        Err(e) => return complain(&e.to_string(), ExitCode::Usage),
    };
    logging::start(&config.log);
    tracing::info!(pid = std::process::id(), version = env!("CARGO_PKG_VERSION"), "starting");
    if let Some(parent) = config.parent
        && let Err(why) = die_with(parent)
    {
        return complain(&why, ExitCode::Failure);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("weir").build() {
        Ok(r) => r,
        Err(e) => return complain(&format!("cannot start threads: {e}"), ExitCode::Failure),
    };
    match to_the_end(runtime, run::serve(config)) {
        Ok(()) => ExitCode::Ok,
        Err(e) => {
            let code = code(&e);
            tracing::error!(exit_code = code as u8, "{e:#}");
            code
        }
    }
}

/// Lets the kernel kill this process when the one that started it is gone, however that ends: `weir dev up` leaves nothing
/// behind. What is acknowledged survives that, as it survives everything.
fn die_with(parent: u32) -> Result<(), String> {
    let failed = |e: rustix::io::Errno| format!("cannot be made to end with process {parent}: {e}");
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).map_err(failed)?;
    // It may have gone before it was watched.
    let now = rustix::process::getppid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
    if now == Some(parent) {
        Ok(())
    } else {
        Err(format!("process {parent} has gone, or did not start this one"))
    }
}

/// Runs `work`. Dropping the runtime would wait for its threads, and an append on a local disk puts for itself, on one of
/// those: with a disk that hangs they never come back.
fn to_the_end<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let done = runtime.block_on(Box::pin(work));
    runtime.shutdown_background();
    done
}

fn code(e: &RunError) -> ExitCode {
    match e {
        RunError::Config(_) => ExitCode::Usage,
        RunError::Foreign(_) => ExitCode::Foreign,
        RunError::Superseded(_) => ExitCode::Superseded,
        RunError::StoreUnfit(_) => ExitCode::StoreUnfit,
        RunError::InUse(_) => ExitCode::InUse,
        RunError::Failed(_) => ExitCode::Failure,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::tasks::Tasks;

    #[test]
    fn threads_that_hang_in_the_disk_do_not_keep_the_process() {
        let (disk, hangs) = mpsc::channel::<()>();
        let (blocking_disk, blocking_hangs) = mpsc::channel::<()>();
        let (ended, end) = mpsc::channel();
        let tasks = Tasks::default();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
            to_the_end(runtime, async {
                let (put, begins) = tokio::sync::oneshot::channel();
                let (trim, also) = tokio::sync::oneshot::channel();
                let tasks = Tasks::default();
                // As an append that puts for itself …
                tasks.spawn(async move {
                    put.send(()).unwrap();
                    hangs.recv().unwrap_err();
                });
                // … and as whatever else waits for a file.
                let trimming = tasks.clone();
                tasks.spawn(async move {
                    let work = move || {
                        trim.send(()).unwrap();
                        blocking_hangs.recv().unwrap_err();
                    };
                    drop(trimming.blocking(work).await);
                });
                begins.await.unwrap();
                also.await.unwrap();
            });
            ended.send(()).unwrap();
        };
        tasks.spawn_unawaited_thread("serve", run).unwrap();
        end.recv_timeout(Duration::from_secs(60)).expect("it does not wait for them");
        drop((disk, blocking_disk));
    }
}
