//! What the leader does for the sessions: fences the silent, hands out what the ended left behind, calls off transfers
//! that take too long.
//!
//! Invariant: acts only while this process leads, and fences only in the term in which the silence was counted: a fence
//! that another leader applied could end a session to which that leader has just given a lease. One vital task of every
//! node, started with its session.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::MissedTickBehavior;
use weir_api::SessionId;

use super::claims::HandOut;
use super::heartbeat::Heartbeats;
use super::transfers::Pending;
use crate::clock::Clock;
use crate::fault;
use crate::metadata::command::{Command, FenceReason, Refusal};
use crate::metadata::{Metadata, ProposeError};
use crate::tasks::Tasks;

/// How often claims are looked at where nothing new is in the view.
const CLAIMS_EVERY: Duration = Duration::from_secs(1);
/// How often pending transfers are looked at.
const TRANSFERS_EVERY: Duration = Duration::from_secs(1);
/// So many are called off at a time.
const ABORTS: usize = 256;
/// Between two looks at them.
const REST: Duration = Duration::from_millis(10);
/// A claim that could not be proposed is tried again after this.
const AGAIN: Duration = Duration::from_millis(200);
/// How long a leader may take to get its session before another should lead.
const UNREGISTERED: Duration = Duration::from_secs(5);

/// The task.
pub struct Duties {
    /// What was heard.
    pub heartbeats: Heartbeats,
    /// The metadata log.
    pub metadata: Metadata,
    /// The node's clock.
    pub clock: Clock,
    /// The node's tasks.
    pub tasks: Tasks,
    /// Silence after which a session is fenced.
    pub node_timeout: Duration,
}

impl Duties {
    /// Runs until the node stops.
    pub async fn run(self) -> anyhow::Result<()> {
        let stopping = self.tasks.stopping().clone();
        tokio::select! {
            () = stopping.cancelled() => {}
            () = self.fence() => {}
            () = self.hand_out() => {}
            () = self.call_off() => {}
        }
        // They end before the node does only with the metadata log.
        stopping.cancelled().await;
        Ok(())
    }

    fn term(&self) -> Option<u64> {
        let now = *self.metadata.leadership().borrow();
        now.me.then_some(now.term)
    }

    /// Looks at who is silent, a few times per timeout.
    async fn fence(&self) {
        let every = (self.node_timeout / 20).clamp(Duration::from_millis(25), Duration::from_millis(500));
        let mut tick = tokio::time::interval(every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let Some(term) = self.term() else { continue };
            if self.metadata.read_index(self.node_timeout / 8).await.is_err() || self.term() != Some(term) {
                continue;
            }
            let live = self.metadata.read(|state| {
                let live = state.nodes.values().filter_map(|node| state.live(node.session?));
                live.map(|session| session.id.clone()).collect::<BTreeSet<_>>()
            });
            let now = self.clock.since_boot();
            let silent = self.heartbeats.book().lock().silence.look(term, now, live);
            for session in silent {
                self.fence_one(&session, term).await;
            }
        }
    }

    async fn fence_one(&self, session: &SessionId, term: u64) {
        tracing::warn!(%session, timeout = ?self.node_timeout, "silent for too long: fencing it");
        let command = Command::Fence {
            node: session.node.clone(),
            epoch: session.epoch,
            incarnation: None,
            reason: FenceReason::Silence,
        };
        fault::point("fence.before_propose");
        let proposed = self.metadata.propose_as_leader(command, term);
        match tokio::time::timeout(self.node_timeout / 8, proposed).await {
            Ok(Ok(_)) => {
                fault::point("fence.fenced");
                tracing::info!(%session, "fenced");
            }
            // The next look comes back to it if it still lives.
            Ok(Err(why)) => tracing::warn!(%session, %why, "not fenced"),
            Err(_late) => tracing::warn!(%session, "not known to be fenced yet"),
        }
    }

    /// Gives ended sessions to those that can recover them.
    async fn hand_out(&self) {
        let mut applied = self.metadata.applied();
        let mut known: Option<(u64, HandOut)> = None;
        loop {
            let mut pause = CLAIMS_EVERY;
            match self.term() {
                None => known = None,
                Some(term) => {
                    let (_, mut hand_out) =
                        known.take().filter(|(of, _)| *of == term).unwrap_or((term, HandOut::default()));
                    for claim in self.due(&mut hand_out) {
                        if let Err(why) = self.claim(claim).await {
                            tracing::warn!(%why, "a recovery is not handed out yet");
                            pause = AGAIN;
                        }
                    }
                    known = Some((term, hand_out));
                }
            }
            let news = async {
                if applied.changed().await.is_err() {
                    // The log has stopped.
                    std::future::pending::<Infallible>().await;
                }
            };
            // However fast the view changes, it is not looked at more often.
            tokio::time::sleep(REST).await;
            tokio::select! {
                () = news => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn due(&self, hand_out: &mut HandOut) -> Vec<Command> {
        let now = self.clock.since_boot();
        let mut book = self.heartbeats.book().lock();
        self.metadata.read(|state| {
            let claims: BTreeSet<u64> =
                state.sessions.values().filter_map(|s| s.claim.as_ref().map(|c| c.number)).collect();
            book.steps.retain(|claim, _| claims.contains(claim));
            hand_out.look(now, state, |claim| book.steps.get(&claim).copied())
        })
    }

    async fn claim(&self, command: Command) -> Result<(), ProposeError> {
        let said = format!("{command:?}");
        match self.metadata.propose(command).await {
            Ok(_) => {
                fault::point("claim.handed_out");
                tracing::info!(claim = said, "recovery handed out");
                Ok(())
            }
            // Overtaken by the view: look again.
            Err(ProposeError::Refused(Refusal::ClaimNotCurrent { .. } | Refusal::ClaimantNotLive)) => Ok(()),
            Err(why) => Err(why),
        }
    }
}

impl Duties {
    /// Ends transfers that do not complete.
    async fn call_off(&self) {
        let mut tick = tokio::time::interval(TRANSFERS_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut known: Option<(u64, Pending)> = None;
        loop {
            tick.tick().await;
            let Some(term) = self.term() else {
                known = None;
                continue;
            };
            let (_, mut pending) =
                known.take().filter(|(of, _)| *of == term).unwrap_or((term, Pending::default()));
            let (state, _) = self.metadata.snapshot();
            let late = pending.look(self.clock.since_boot(), &state);
            // Side by side: none is held up by the others.
            let aborts = futures::stream::iter(late).map(|abort| self.abort(abort)).buffer_unordered(ABORTS);
            let failed: Vec<ProposeError> = aborts.filter_map(|why| ready(why)).collect().await;
            if let Some(why) = failed.first() {
                tracing::warn!(%why, transfers = failed.len(), "transfers that take too long are not called off yet");
            }
            known = Some((term, pending));
        }
    }

    /// Why it could not be said.
    async fn abort(&self, abort: Command) -> Option<ProposeError> {
        let said = format!("{abort:?}");
        match self.metadata.propose(abort).await {
            Ok(_) => tracing::warn!(transfer = said, "took too long: called off"),
            // It has completed, or ended otherwise.
            Err(ProposeError::Refused(_)) => {}
            Err(why) => return Some(why),
        }
        None
    }
}

/// Gives the leadership away while this process has no session, without which it can do no duties. Never resolves.
pub async fn decline(metadata: &Metadata) -> Infallible {
    loop {
        tokio::time::sleep(UNREGISTERED).await;
        if metadata.leadership().borrow().me
            && let Err(why) = metadata.hand_over(UNREGISTERED).await
        {
            tracing::warn!(why, "this node leads without a session and finds nobody to lead instead");
        }
    }
}
