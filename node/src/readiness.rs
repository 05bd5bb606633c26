//! Why this node should not be sent clients now.
//!
//! Invariant: reasons have names fixed in the code, so there are never many; each is set and cleared by the part that
//! knows. Ready means no reason. Read by `admin::health`; set by `run`, `session` and `storage`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_api::admin::{ReadyReason, ReadyStatus};

use crate::clock::Clock;

/// Longest detail, in characters.
const DETAIL_MAX: usize = 500;

/// The node's reasons. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    clock: Clock,
    reasons: Arc<Mutex<BTreeMap<&'static str, Reason>>>,
}

#[derive(Debug)]
struct Reason {
    detail: String,
    since_ms: u64,
}

impl Readiness {
    /// No reason so far; times are read from `clock`.
    pub fn new(clock: Clock) -> Self {
        Self { clock, reasons: Arc::default() }
    }

    /// Sets a reason, or the detail of one that stands.
    pub fn set(&self, code: &'static str, detail: impl AsRef<str>) {
        let detail: String = detail.as_ref().chars().take(DETAIL_MAX).collect();
        let mut reasons = self.reasons.lock();
        if let Some(standing) = reasons.get_mut(code) {
            standing.detail = detail;
            return;
        }
        tracing::info!(code, detail, "not ready");
        reasons.insert(code, Reason { detail, since_ms: self.clock.wall_ms() });
    }

    /// Clears a reason, if it stands.
    pub fn clear(&self, code: &'static str) {
        let mut reasons = self.reasons.lock();
        if reasons.remove(code).is_some() {
            tracing::info!(code, ready = reasons.is_empty(), "no longer a reason not to be ready");
        }
    }

    /// Whether no reason stands.
    pub fn is_ready(&self) -> bool {
        self.reasons.lock().is_empty()
    }

    /// All of it.
    pub fn status(&self) -> ReadyStatus {
        let reasons = self.reasons.lock();
        let shown = reasons.iter().map(|(code, Reason { detail, since_ms })| ReadyReason {
            code: (*code).to_owned(),
            detail: detail.clone(),
            since_ms: *since_ms,
        });
        let reasons: Vec<_> = shown.collect();
        ReadyStatus { ready: reasons.is_empty(), reasons }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_ready_when_every_reason_is_cleared() {
        let r = Readiness::default();
        r.set("starting", "the node is starting");
        r.set("store-unreachable", "put: timed out");
        r.clear("starting");
        assert!(!r.is_ready());
        assert_eq!(r.status().reasons[0].code, "store-unreachable");
        r.clear("store-unreachable");
        r.clear("never-set");
        assert!(r.is_ready());
        assert_eq!(r.status(), ReadyStatus { ready: true, reasons: vec![] });
    }

    #[test]
    fn setting_a_reason_again_keeps_its_beginning_and_changes_its_detail() {
        let clock = Clock::default();
        let r = Readiness::new(clock.clone());
        r.set("starting", "the node is starting");
        let since = r.status().reasons[0].since_ms;
        clock.shift_wall_ms(60_000);
        r.set("starting", "x".repeat(DETAIL_MAX + 1));
        let reason = r.status().reasons.remove(0);
        assert_eq!((reason.since_ms, reason.detail.len()), (since, DETAIL_MAX));
    }
}
