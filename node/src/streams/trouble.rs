//! Tells `/readyz` when this node cannot take appends: the store does not answer, or the backlog is full.
//!
//! Invariant: a node that would refuse or hold up every append says so within seconds, by reason, and takes it back by
//! itself. Looks at what the WAL says of itself; an idle node asks the store. One vital task.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use crate::storage::cluster_file::CLUSTER_KEY;
use crate::storage::wal::WalStatus;

/// How often the WAL's own state is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How often the store is asked although nobody appends.
const ASK: Duration = Duration::from_secs(5);
/// For the answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// A put that fails or takes longer than this is trouble.
pub(super) const SLOW: Duration = Duration::from_secs(2);

/// Runs until the node stops.
pub(super) async fn run(inner: Arc<Inner>) -> anyhow::Result<()> {
    let stopping = inner.tasks.stopping().clone();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut asked = inner.clock.monotonic();
    let mut silent: Option<String> = None;
    loop {
        tokio::select! {
            () = stopping.cancelled() => return Ok(()),
            _ = look.tick() => {}
        }
        if asked.elapsed() >= ASK {
            silent = tokio::select! {
                () = stopping.cancelled() => return Ok(()),
                silent = unanswered(&inner) => silent,
            };
            asked = inner.clock.monotonic();
        }
        let status = inner.wal.status();
        tell(&inner, "store", store_trouble(&status).or_else(|| silent.clone()));
        tell(&inner, "backlog", backlog_trouble(&status));
    }
}

fn tell(inner: &Inner, code: &'static str, trouble: Option<String>) {
    match trouble {
        Some(why) => inner.readiness.set(code, why),
        None => inner.readiness.clear(code),
    }
}

/// Asks the store for something small that is always there; says what is wrong with the answer.
async fn unanswered(inner: &Inner) -> Option<String> {
    match tokio::time::timeout(ANSWER_WITHIN, inner.store.get(CLUSTER_KEY)).await {
        Ok(Ok(Some(_))) => None,
        Ok(Ok(None)) => Some(format!("the store has no {CLUSTER_KEY} any more")),
        Ok(Err(e)) => Some(format!("the store does not answer: {e}")),
        Err(_late) => Some(format!("the store has not answered within {ANSWER_WITHIN:?}")),
    }
}

fn store_trouble(status: &WalStatus) -> Option<String> {
    if let Some((error, since)) = &status.error
        && (status.stalled || *since >= SLOW)
    {
        return Some(format!("the store has not taken WAL objects for {} s: {error}", since.as_secs()));
    }
    let waiting = status.oldest_waiting.filter(|w| *w >= SLOW)?;
    Some(format!("the store has held up {} appends for {} s", status.waiting, waiting.as_secs()))
}

fn backlog_trouble(status: &WalStatus) -> Option<String> {
    let full = status.backlog_bytes >= status.max_bytes || status.backlog_objects >= status.max_objects;
    full.then(|| {
        format!(
            "{} bytes in {} WAL objects are not in segments yet; the bounds are {} and {}",
            status.backlog_bytes, status.backlog_objects, status.max_bytes, status.max_objects
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calm() -> WalStatus {
        WalStatus { max_bytes: 100, max_objects: 10, ..WalStatus::default() }
    }

    #[test]
    fn a_wal_without_trouble_says_nothing() {
        assert_eq!(store_trouble(&calm()), None);
        assert_eq!(backlog_trouble(&calm()), None);
    }

    #[test]
    fn a_put_that_fails_briefly_is_no_trouble_and_a_stalled_one_is() {
        let brief = WalStatus { error: Some(("503".into(), Duration::from_millis(300))), ..calm() };
        assert_eq!(store_trouble(&brief), None);
        let stalled = WalStatus { stalled: true, ..brief };
        assert!(store_trouble(&stalled).unwrap().contains("503"));
    }

    #[test]
    fn appends_that_wait_on_a_silent_store_are_trouble() {
        let silent = WalStatus { waiting: 3, oldest_waiting: Some(Duration::from_secs(4)), ..calm() };
        assert!(store_trouble(&silent).unwrap().contains("3 appends for 4 s"));
    }

    #[test]
    fn a_full_backlog_is_told_with_its_bounds() {
        let full = WalStatus { backlog_objects: 10, backlog_bytes: 7, ..calm() };
        assert!(backlog_trouble(&full).unwrap().contains("7 bytes in 10 WAL objects"));
    }
}
