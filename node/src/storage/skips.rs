//! Where recoveries stand still because a WAL object does not verify, and which objects a person has told them to skip.
//!
//! Invariant: only the very object that a recovery has stopped on can be skipped, one at a time and by name, so that
//! nobody skips more than they were shown. Held in memory: an order that a restart forgets is given again. Filled by
//! `recovery`, asked by `admin`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_api::SessionId;

/// A handle; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Skips(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    sessions: Mutex<BTreeMap<SessionId, Recovering>>,
    ordered: Notify,
}

#[derive(Debug, Default)]
struct Recovering {
    at: Option<Stop>,
    skipped: BTreeSet<u64>,
}

/// What a recovery has stopped on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// Its number in the session's WAL.
    pub seq: u64,
    /// Which object or file, and what is wrong with it.
    pub why: String,
}

impl Skips {
    /// A recovery has stopped; `None`: not on an object that can be skipped.
    pub(crate) fn stopped(&self, session: &SessionId, at: Option<Stop>) {
        self.0.sessions.lock().entry(session.clone()).or_default().at = at;
    }

    /// The session is recovered, or another's to recover.
    pub(super) fn forget(&self, session: &SessionId) {
        self.0.sessions.lock().remove(session);
    }

    /// The numbers to skip in a session's WAL.
    pub(super) fn of(&self, session: &SessionId) -> BTreeSet<u64> {
        self.0.sessions.lock().get(session).map(|r| r.skipped.clone()).unwrap_or_default()
    }

    /// Resolves after the next order, or at once if one came since the last call.
    pub(super) async fn ordered(&self) {
        self.0.ordered.notified().await;
    }

    /// What the recovery of a session has stopped on here.
    pub fn stop_of(&self, session: &SessionId) -> Option<Stop> {
        self.0.sessions.lock().get(session)?.at.clone()
    }

    /// Orders that the recovery of `session` goes on without number `seq`. `Err`: what it has stopped on instead.
    pub fn order(&self, session: &SessionId, seq: u64) -> Result<Stop, Option<Stop>> {
        let mut sessions = self.0.sessions.lock();
        let Some(recovering) = sessions.get_mut(session) else { return Err(None) };
        match recovering.at.clone() {
            Some(stop) if stop.seq == seq => {
                recovering.skipped.insert(seq);
                recovering.at = None;
                tracing::error!(
                    %session,
                    seq,
                    why = stop.why,
                    "told to skip a damaged WAL object: the acknowledged records in it are lost, and with them all \
                     that follow in the same streams"
                );
                self.0.ordered.notify_one();
                Ok(stop)
            }
            other => Err(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_api::NodeEpoch;

    use super::*;

    fn session(epoch: u64) -> SessionId {
        SessionId { node: "n-0".parse().unwrap(), epoch: NodeEpoch(epoch) }
    }

    #[test]
    fn only_what_a_recovery_has_stopped_on_can_be_skipped() {
        let skips = Skips::default();
        assert_eq!(skips.order(&session(1), 7), Err(None));
        let stop = Stop { seq: 7, why: "it does not verify".to_owned() };
        skips.stopped(&session(1), Some(stop.clone()));
        assert_eq!(skips.order(&session(1), 8), Err(Some(stop.clone())));
        assert_eq!(skips.order(&session(2), 7), Err(None));
        assert!(skips.of(&session(1)).is_empty());
        assert_eq!(skips.order(&session(1), 7), Ok(stop));
        assert_eq!(skips.of(&session(1)), BTreeSet::from([7]));
        assert_eq!(skips.order(&session(1), 7), Err(None), "once is enough");
        skips.forget(&session(1));
        assert!(skips.of(&session(1)).is_empty());
    }
}
