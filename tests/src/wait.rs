//! Waiting on conditions: a bounded poll that backs off, and says what it waited for when it gives up.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// Polls `condition` until it gives a value; fails after `deadline`, naming `what`.
pub async fn until<T, F, Fut>(what: &str, deadline: Duration, mut condition: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>>>,
{
    let end = Instant::now() + deadline;
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(value) = condition().await? {
            return Ok(value);
        }
        if Instant::now() >= end {
            bail!("waited {deadline:?} for {what}");
        }
        sleep(pause).await;
        pause = (pause * 3 / 2).min(Duration::from_millis(50));
    }
}
