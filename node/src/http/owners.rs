//! Whose session is over, told once to all requests that wait for its answer.
//!
//! Invariant: one watcher per session that requests were sent to, so that a change of the view costs by nodes and not by
//! requests under way; it ends with the session. Asked by `route`.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use weir_api::SessionId;

use crate::metadata::Metadata;
use crate::tasks::Tasks;

/// A handle; clones share the watchers.
#[derive(Clone)]
pub(super) struct Owners {
    metadata: Metadata,
    tasks: Tasks,
    watched: Arc<Mutex<HashMap<SessionId, CancellationToken>>>,
}

impl Owners {
    pub(super) fn new(metadata: Metadata, tasks: Tasks) -> Self {
        Self { metadata, tasks, watched: Arc::default() }
    }

    /// Cancelled once the view says that the session is over.
    pub(super) fn over(&self, session: &SessionId) -> CancellationToken {
        let mut watched = self.watched.lock();
        if let Some(over) = watched.get(session) {
            return over.clone();
        }
        let over = CancellationToken::new();
        watched.insert(session.clone(), over.clone());
        let (this, session, told) = (self.clone(), session.clone(), over.clone());
        self.tasks.spawn(async move {
            let stopping = this.tasks.stopping().clone();
            let mut applied = this.metadata.applied();
            while this.metadata.read(|state| state.live_by_id(&session).is_some()) {
                tokio::select! {
                    () = stopping.cancelled() => return,
                    changed = applied.changed() => if changed.is_err() {
                        return;
                    },
                }
            }
            this.watched.lock().remove(&session);
            told.cancel();
        });
        over
    }
}
