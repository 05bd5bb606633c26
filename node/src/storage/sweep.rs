//! Deletes what nothing needs: segments out of use, uploads that were never committed, WAL of sessions that are over,
//! names whose first bytes never came.
//!
//! Invariant (I2): age decides nothing. A segment goes after the log has forgotten it; an upload goes only if its
//! session has ended, so that no commit can still name it, and nothing refers to it; WAL goes only if its session has
//! ended and is recovered; a seal never goes. One vital task; the bucket's listing is a hint, the state the judge.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use weir_api::{NodeId, SessionId};

use super::keys::{self, Key};
use super::store::Store;
use super::wal::WalStore;
use crate::clock::Clock;
use crate::fault;
use crate::metadata::Metadata;
use crate::metadata::command::{Answer, Command, SegmentId};
use crate::metadata::limits::{SWEEP_GRACE_MS, UNBORN_MS};
use crate::mutant::{self, Mutant};
use crate::tasks::Tasks;

/// How often segments out of use are looked for.
const EVERY: Duration = Duration::from_secs(60);
/// Segments per command.
const PER_COMMAND: usize = 5_000;
/// Keys per listing at the start; what is left over is for the next start.
const LIST_AT_MOST: usize = 100_000;

/// What the sweep works with.
pub struct Sweep {
    /// The node's tasks.
    pub tasks: Tasks,
    /// The node's clock.
    pub clock: Clock,
    /// The metadata log.
    pub metadata: Metadata,
    /// This process's session.
    pub session: SessionId,
    /// Object storage.
    pub store: Store,
    /// The generation that its keys carry.
    pub generation: u64,
    /// The WAL's storage.
    pub wal_store: Arc<dyn WalStore>,
}

impl Sweep {
    /// Runs until the node stops.
    pub async fn run(self) -> anyhow::Result<()> {
        let stopping = self.tasks.stopping().clone();
        let work = async {
            self.leftovers().await;
            let mut tick = tokio::time::interval(EVERY);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                if self.metadata.leadership().borrow().me {
                    self.dead_segments().await;
                    self.unborn().await;
                }
            }
        };
        tokio::select! {
            () = stopping.cancelled() => Ok(()),
            () = work => Ok(()),
        }
    }

    /// What earlier sessions of this node left behind.
    async fn leftovers(&self) {
        // Only what a view taken after the listing says may be judged by: an ended session commits nothing more.
        let over: BTreeSet<SessionId> = self
            .listed(keys::wal_of(self.generation, &self.session.node))
            .await
            .iter()
            .filter_map(|key| keys::wal_session(self.generation, key))
            .filter(|session| self.is_over(session))
            .collect();
        for session in over {
            if let Err(e) = self.wal_store.trim(&session, u64::MAX).await {
                tracing::warn!(%session, error = %e, "old WAL not deleted; the next start tries again");
            }
        }
        self.uploads_of(&self.session.node).await;
        if mutant::on(Mutant::SweepByAge) {
            let nodes: Vec<NodeId> = self.metadata.read(|state| state.nodes.keys().cloned().collect());
            for node in nodes {
                self.uploads_of(&node).await;
            }
        }
    }

    /// Uploads of a node's earlier sessions that no commit names.
    async fn uploads_of(&self, node: &NodeId) {
        for key in self.listed(keys::segments_of(self.generation, node)).await {
            let Some(Key::Segment { session, number }) = keys::parse(self.generation, &key) else { continue };
            let upload = (session, number);
            let known = self.metadata.read(|state| state.segment_ids.contains_key(&upload));
            if (self.is_over(&upload.0) || mutant::on(Mutant::SweepByAge)) && !known {
                self.delete(&key).await;
            }
        }
    }

    /// The session has ended and nothing of it waits for recovery.
    fn is_over(&self, session: &SessionId) -> bool {
        self.metadata.read(|state| {
            let newer = state.nodes.get(&session.node).is_some_and(|n| n.epoch > session.epoch);
            newer && state.session_by_id(session).is_none()
        })
    }

    async fn listed(&self, prefix: String) -> Vec<String> {
        match self.store.list(&prefix, LIST_AT_MOST).await {
            Ok(listed) => listed.into_iter().map(|l| l.key).collect(),
            Err(e) => {
                tracing::warn!(prefix, error = %e, "not listed; the next start tries again");
                Vec::new()
            }
        }
    }

    /// Has the log forget segments out of use, then deletes their objects.
    async fn dead_segments(&self) {
        let now = self.clock.wall_ms();
        let due: Vec<(SegmentId, String)> = self.metadata.read(|state| {
            state
                .dead_segments
                .iter()
                .take_while(|(since, _)| since.saturating_add(SWEEP_GRACE_MS) <= now)
                .take(PER_COMMAND)
                .filter_map(|&(_, id)| {
                    let segment = state.segments.get(&id)?;
                    Some((id, keys::segment(self.generation, &segment.session, segment.number)))
                })
                .collect()
        });
        if due.is_empty() {
            return;
        }
        let segments = due.iter().map(|(id, _)| *id).collect();
        match self.metadata.propose(Command::Sweep { segments }).await {
            Ok(Answer::Swept(swept)) => {
                fault::point("sweep.forgotten");
                for (_, key) in due.iter().filter(|(id, _)| swept.contains(id)) {
                    self.delete(key).await;
                }
            }
            Ok(other) => tracing::warn!(?other, "unexpected answer to a sweep"),
            Err(e) => tracing::debug!(error = %e, "sweep not decided; the next one tries again"),
        }
    }

    /// Removes streams whose first bytes never came. One that is open is released as idle first.
    async fn unborn(&self) {
        let now = self.clock.wall_ms();
        let streams: Vec<_> = self.metadata.read(|state| {
            state
                .unborn
                .iter()
                .take_while(|(since, _)| since.saturating_add(UNBORN_MS) <= now)
                .take(PER_COMMAND)
                .map(|&(_, id)| (id, None))
                .collect()
        });
        if streams.is_empty() {
            return;
        }
        if let Err(e) = self.metadata.propose(Command::ReapUnborn { streams }).await {
            tracing::debug!(error = %e, "unborn streams not removed; the next sweep tries again");
        }
    }

    async fn delete(&self, key: &str) {
        if let Err(e) = self.store.delete(key).await {
            tracing::warn!(key, error = %e, "object not deleted; the sweep at the next start does it");
        }
    }
}
