//! This process's session: mints and registers the node epoch, keeps the lease, ends.
//!
//! Invariant (I1, I6): one process serves under one session, registered through the log before it serves; a process
//! that the log has replaced stops for good and says so. A lease runs from when its heartbeat was sent, on a clock
//! that counts suspension. Started and ended by `run`; `streams` asks the lease before every current answer. What the
//! leader does for all sessions is in `duties`.

mod claims;
pub mod duties;
pub mod heartbeat;
mod mark;
mod silence;
mod transfers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use weir_api::{Incarnation, NodeEpoch, NodeId, Nonce, RaftId, SessionId, Slots};

use self::heartbeat::{Heartbeats, REPORTED};
use self::mark::SupersededMark;
use crate::clock::{self, Clock};
use crate::fault;
use crate::format;
use crate::metadata::command::{Answer, Command, Refusal, Registration};
use crate::metadata::{Metadata, ProposeError};
use crate::mutant::{self, Mutant};
use crate::readiness::Readiness;
use crate::storage::progress::Progress;
use crate::tasks::Tasks;

/// How often a registration that cannot be decided now is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// A session that has lasted this long ends the row.
const SUPERSEDED_FORGET: Duration = Duration::from_secs(600);
/// How long a process whose WAL is sealed waits for the log to say why.
const LEARN: Duration = Duration::from_secs(5);

/// What this process says of itself.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The node.
    pub node: NodeId,
    /// The data directory's number in the log.
    pub raft_id: RaftId,
    /// The pod UID on Kubernetes; else the nonce is used.
    pub incarnation: Option<Incarnation>,
    /// Advertised client URL.
    pub http_url: String,
    /// Advertised peer address.
    pub peer_address: String,
    /// Weight of a node new to the log.
    pub slots: Slots,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Another process of this node id was registered after this one.
    #[error("{0}")]
    Superseded(String),
    /// The cluster has ended this process's session.
    #[error("{0}")]
    Fenced(String),
    /// This build cannot take part in this cluster.
    #[error("{0}")]
    Refused(String),
    /// The data directory could not be read or written.
    #[error("{path}: {error}")]
    DataDir {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The node stopped before it was registered.
    #[error("stopped before the session was registered")]
    Stopped,
}

/// Until when this process may speak for the present.
#[derive(Debug, Clone)]
pub struct Lease {
    length: Duration,
    /// Milliseconds since boot.
    until_ms: Arc<AtomicU64>,
}

impl Lease {
    /// A lease of this length, not held yet.
    pub fn new(length: Duration) -> Self {
        Self { length, until_ms: Arc::new(AtomicU64::new(0)) }
    }

    /// It is held now.
    pub fn holds(&self, clock: &Clock) -> bool {
        let until = Duration::from_millis(self.until_ms.load(Ordering::Acquire));
        clock.since_boot() < until || mutant::on(Mutant::NoLease)
    }

    /// For how long it is held yet.
    pub fn remaining(&self, clock: &Clock) -> Duration {
        Duration::from_millis(self.until_ms.load(Ordering::Acquire)).saturating_sub(clock.since_boot())
    }

    /// A heartbeat sent at `sent` was answered.
    fn extend(&self, sent: Duration) {
        let until = u64::try_from((sent + self.length).as_millis()).unwrap_or(u64::MAX);
        self.until_ms.fetch_max(until, Ordering::AcqRel);
    }
}

/// Registers this process, minting again above the recorded epoch where the clock is behind.
pub async fn register(
    identity: &Identity,
    metadata: &Metadata,
    clock: &Clock,
    tasks: &Tasks,
    readiness: &Readiness,
    data_dir: &Path,
) -> Result<SessionId, SessionError> {
    let mark = SupersededMark::new(data_dir);
    mark.wait_out(&identity.node, metadata, tasks, readiness).await?;
    let nonce = clock::random_nonce();
    let mut epoch = NodeEpoch(clock.wall_ms());
    let mut told = None;
    loop {
        let session = SessionId { node: identity.node.clone(), epoch };
        let command = Command::Register(registration(identity, &session, nonce));
        let tried = tokio::select! {
            () = tasks.stopping().cancelled() => return Err(SessionError::Stopped),
            tried = metadata.propose_founding(command) => tried,
        };
        match tried {
            Ok(Answer::Registered { slots, format }) => {
                tracing::info!(%session, %slots, format, "session registered");
                readiness.clear("session");
                fault::point("session.registered");
                metadata.begin_session(session.clone());
                return Ok(session);
            }
            Ok(other) => return Err(SessionError::Refused(format!("unexpected answer {other:?}"))),
            Err(ProposeError::Refused(Refusal::EpochTooLow { recorded })) => {
                tracing::warn!(%recorded, minted = %epoch, "this host's clock is behind: minting above the recorded epoch");
                epoch = recorded.next();
            }
            Err(ProposeError::Refused(Refusal::Superseded { by })) => {
                mark.set()?;
                return Err(superseded(&identity.node, by));
            }
            Err(ProposeError::Refused(
                refusal @ (Refusal::FormatUnreadable { .. } | Refusal::WrongCluster(_)),
            )) => {
                return Err(SessionError::Refused(format!("node {}: {refusal}", identity.node)));
            }
            // Ending would only have it started again.
            Err(ProposeError::Refused(refusal @ Refusal::Removed)) => {
                let why = format!("node {}: {refusal} for good: stop this process", identity.node);
                tracing::error!("{why}");
                readiness.set("removed", why);
                tasks.stopping().cancelled().await;
                return Err(SessionError::Stopped);
            }
            // Pinned to another incarnation, or the log cannot decide now: again, with the same epoch and nonce.
            Err(e) => {
                let why = format!("not registered yet: {e}");
                // Several times a second, and perhaps for long.
                if told.as_ref() != Some(&why) {
                    tracing::warn!("{why}");
                    readiness.set("session", why.clone());
                    told = Some(why);
                }
                tokio::select! {
                    () = tasks.stopping().cancelled() => return Err(SessionError::Stopped),
                    () = tokio::time::sleep(RETRY) => {}
                }
            }
        }
    }
}

fn registration(identity: &Identity, session: &SessionId, nonce: Nonce) -> Registration {
    let own = || nonce.to_string().parse().expect("a nonce's digits are a valid incarnation");
    Registration {
        session: session.clone(),
        nonce,
        incarnation: identity.incarnation.clone().unwrap_or_else(own),
        raft_id: identity.raft_id,
        boot_id: clock::boot_id(),
        http_url: identity.http_url.clone(),
        peer_address: identity.peer_address.clone(),
        slots: identity.slots,
        formats: (format::MIN, format::max()),
    }
}

fn superseded(node: &NodeId, by: NodeEpoch) -> SessionError {
    SessionError::Superseded(format!(
        "another process has registered as node {node} at epoch {by}: this one stops for good. \
         Two processes must not share a node id; give one of them another --node-id"
    ))
}

/// The message of a session that the cluster has ended.
fn fenced(session: &SessionId) -> SessionError {
    SessionError::Fenced(format!(
        "the cluster has fenced session {session}: it was silent for longer than --node-timeout, or an administrator \
         said so. Other nodes serve its streams now; this process stops for good, and may be started again"
    ))
}

/// Keeps the lease while a confirmed leader answers; ends the process when the session is over. Once `leaving`
/// is cancelled the session ends by this process's own wish, which is no replacement.
pub struct Keeper {
    /// The session to keep.
    pub session: SessionId,
    /// Its lease.
    pub lease: Lease,
    /// The metadata log.
    pub metadata: Metadata,
    /// Reach the leader.
    pub heartbeats: Heartbeats,
    /// Told with each of them.
    pub recovering: Progress,
    /// The node's clock.
    pub clock: Clock,
    /// The node's tasks.
    pub tasks: Tasks,
    /// Where troubles are told.
    pub readiness: Readiness,
    /// Gets a mark if the session is replaced.
    pub data_dir: PathBuf,
    /// Cancelled before this process ends its session.
    pub leaving: CancellationToken,
}

impl Keeper {
    /// Runs until the node stops.
    pub async fn run(self) -> anyhow::Result<()> {
        let stopping = self.tasks.stopping();
        tokio::select! {
            biased;
            () = self.leaving.cancelled() => {}
            () = stopping.cancelled() => {}
            over = self.hold() => over?,
        }
        stopping.cancelled().await;
        Ok(())
    }

    /// Until the session is over.
    async fn hold(&self) -> anyhow::Result<()> {
        let every = self.lease.length / 4;
        let began = self.clock.since_boot();
        let mark = SupersededMark::new(&self.data_dir);
        let mut applied = self.metadata.applied();
        loop {
            self.heartbeat(every).await;
            // Whoever duels with a sibling does not last that long.
            if self.clock.since_boot().saturating_sub(began) >= SUPERSEDED_FORGET {
                mark.clear()?;
            }
            let pause = tokio::time::sleep(every);
            tokio::pin!(pause);
            loop {
                if let Some(over) = why_over(&self.metadata, &self.session, &self.data_dir)? {
                    return Err(over.into());
                }
                tokio::select! {
                    () = &mut pause => break,
                    changed = applied.changed() => changed?,
                }
            }
        }
    }

    /// One heartbeat. The lease runs from when it was sent.
    pub async fn heartbeat(&self, within: Duration) {
        match self.heartbeats.send(&self.session, self.recovering.report(REPORTED), within).await {
            Ok(sent) => {
                let late = mutant::on(Mutant::LeaseFromArrival);
                self.lease.extend(if late { self.clock.since_boot() } else { sent });
                self.readiness.clear("lease");
            }
            Err(e) if !self.lease.holds(&self.clock) => {
                self.readiness.set("lease", format!("no leader answers this node's heartbeats: {e}"));
            }
            Err(_) => {}
        }
    }
}

/// Why the session is over, if the view says that it is. Who was replaced leaves a mark: two processes must not duel.
pub fn why_over(
    metadata: &Metadata,
    session: &SessionId,
    data_dir: &Path,
) -> Result<Option<SessionError>, SessionError> {
    let epoch = metadata.read(|state| {
        let over = !state.is_current(session);
        over.then(|| state.nodes.get(&session.node).map_or(session.epoch, |n| n.epoch))
    });
    match epoch {
        None => Ok(None),
        Some(by) if by > session.epoch => {
            SupersededMark::new(data_dir).set()?;
            Ok(Some(superseded(&session.node, by)))
        }
        Some(_) => Ok(Some(fenced(session))),
    }
}

/// As [`why_over`], for who knows by other means that the session is over: waits a while until the view says why.
pub async fn learn_why_over(metadata: &Metadata, session: &SessionId, data_dir: &Path) -> SessionError {
    let mut applied = metadata.applied();
    let learnt = async {
        loop {
            match why_over(metadata, session, data_dir) {
                Ok(None) => {}
                Ok(Some(over)) | Err(over) => return over,
            }
            if applied.changed().await.is_err() {
                // The log has stopped: no more news.
                std::future::pending::<()>().await;
            }
        }
    };
    match tokio::time::timeout(LEARN, learnt).await {
        Ok(over) => over,
        // It may be a sibling's doing: the next start finds that out.
        Err(_late) => match SupersededMark::new(data_dir).set_unsure(session.epoch) {
            Ok(()) => SessionError::Superseded(format!(
                "another session has sealed the WAL of {session}: it was fenced or replaced, and this process stops for good"
            )),
            Err(e) => e,
        },
    }
}

/// Ends the session; `Ok(true)` if nothing is left to recover.
pub async fn end(metadata: &Metadata) -> Result<bool, ProposeError> {
    fault::point("session.before_end");
    let answer = metadata.propose(Command::EndSession).await?;
    fault::point("session.ended");
    Ok(matches!(answer, Answer::SessionEnded { clean: true }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_runs_from_when_its_heartbeat_was_sent() {
        let clock = Clock::default();
        let lease = Lease::new(Duration::from_secs(5));
        assert!(!lease.holds(&clock));
        lease.extend(clock.since_boot().saturating_sub(Duration::from_secs(6)));
        assert!(!lease.holds(&clock), "the answer came too late");
        assert_eq!(lease.remaining(&clock), Duration::ZERO);
        lease.extend(clock.since_boot());
        assert!(lease.holds(&clock));
        assert!((1..=5_000).contains(&lease.remaining(&clock).as_millis()));
    }
}
