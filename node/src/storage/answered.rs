//! Waiting at the start for a store that does not answer.
//!
//! Invariant: while it waits, `/readyz` gives the reason `store`; it ends with an answer, with a refusal that no waiting
//! mends, or with the process's stop. Called by `run` (the probe) and `founding`.

use std::time::Duration;

use super::commit::backoff;
use super::store::{StoreError, jittered};
use crate::readiness::Readiness;
use crate::tasks::Tasks;

/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer<E> {
    /// The process stops.
    Stopped,
    /// Waiting does not help.
    Refused(E),
}

/// Asks until the store answers. `unanswered` tells the error that says so from a refusal.
pub async fn until_answered<T, E>(
    tasks: &Tasks,
    readiness: &Readiness,
    ask: impl AsyncFn() -> Result<T, E>,
    unanswered: impl Fn(E) -> Result<StoreError, E>,
) -> Result<T, NoAnswer<E>> {
    let mut tries = 0;
    loop {
        match ask().await {
            Ok(answer) => {
                readiness.clear("store");
                return Ok(answer);
            }
            Err(e) => {
                let e = unanswered(e).map_err(NoAnswer::Refused)?;
                tracing::warn!(error = %e, tries, "the store does not answer");
                readiness.set("store", format!("the store does not answer: {e}"));
            }
        }
        tokio::select! {
            () = tasks.stopping().cancelled() => return Err(NoAnswer::Stopped),
            () = tokio::time::sleep(jittered(backoff(tries).min(PAUSE_MAX))) => {}
        }
        tries += 1;
    }
}
