//! Recovers ended sessions: seal their WAL, move what it holds into segments, mark them recovered.
//!
//! Invariant (I2): a session is marked recovered only after its WAL is sealed and everything before the seal is
//! committed; the WAL start is read after this claim was applied; only frames of the epoch at which the state says the
//! stream is open count, from the committed end on. Any step may be cut short and done again, by this process or
//! another node: whoever has the claim. One vital task of every node; the leader hands the claims out (`session::duties`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_api::{ClusterUid, SessionId, StreamId};

use super::commit::{self, CommitError, Draft};
use super::keys;
use super::progress::Progress;
use super::reader::SegmentReader;
use super::record::codec::Stamp;
use super::record::{Dedupe, Frame};
use super::seal::SealNote;
use super::skips::{Skips, Stop};
use super::store::Store;
use super::wal::{WalError, WalStore};
use crate::clock::Clock;
use crate::fault;
use crate::metadata::command::{Command, CommitOrigin, NewSegment, Refusal};
use crate::metadata::state::Ownership;
use crate::metadata::{Metadata, ProposeError};
use crate::metrics::{RecoveredOf, RecoveryMeters};
use crate::mutant::{self, Mutant};
use crate::readiness::Readiness;
use crate::tasks::Tasks;

/// What recovery works with.
pub struct Recovery {
    /// The node's tasks.
    pub tasks: Tasks,
    /// The node's clock.
    pub clock: Clock,
    /// The metadata log.
    pub metadata: Metadata,
    /// The cluster.
    pub cluster: ClusterUid,
    /// This process's session.
    pub session: SessionId,
    /// Object storage.
    pub store: Store,
    /// The generation that its keys carry.
    pub generation: u64,
    /// The WAL's storage.
    pub wal_store: Arc<dyn WalStore>,
    /// Reads dedupe state of earlier commits.
    pub reader: SegmentReader,
    /// Where troubles are told.
    pub readiness: Readiness,
    /// What a person has said to go on without.
    pub skips: Skips,
    /// How long a session may speak for the present after its last heartbeat.
    pub lease: Duration,
    /// Payload bytes per recovered segment.
    pub segment_bytes: u64,
    /// What it counts.
    pub meters: Arc<RecoveryMeters>,
    /// Tells the leader that a claim gets on.
    pub progress: Progress,
    /// Numbers recovery's segments: above the flusher's, so that no key is used twice.
    pub next_segment: AtomicU64,
}

/// The first number of recovery's segments; the flusher counts from 1.
pub const FIRST_RECOVERY_SEGMENT: u64 = 1 << 62;

/// How often a recovery that waits says that it is not stuck.
const STEP: Duration = Duration::from_secs(1);

/// A recovery that is this session's to do.
#[derive(Debug, Clone)]
struct Claimed {
    ended: SessionId,
    number: u64,
    wal_start: u64,
    lease_over: bool,
    ended_at_ms: u64,
}

/// Why a recovery stopped.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    /// The claim is another's now, or the session is recovered: nothing to do.
    #[error("the claim is no longer this session's")]
    NotOurs,
    /// Try again.
    #[error("{0}")]
    Again(String),
    /// This node's session is over: whoever keeps it ends the process and says why.
    #[error("this node's session is over")]
    Over,
    /// This process must not go on.
    #[error("{0}")]
    Broken(String),
}

impl From<CommitError> for Stopped {
    fn from(e: CommitError) -> Self {
        match e {
            CommitError::Propose { why: ProposeError::Refused(Refusal::ClaimNotCurrent { .. }), .. } => {
                Self::NotOurs
            }
            CommitError::Propose { why: ProposeError::SessionOver, .. }
            | CommitError::Propose { why: ProposeError::Refused(Refusal::SessionNotCurrent), .. } => {
                Self::Over
            }
            other => Self::Again(other.to_string()),
        }
    }
}

impl Recovery {
    /// Runs until the node stops.
    pub async fn run(self) -> anyhow::Result<()> {
        let stopping = self.tasks.stopping().clone();
        let mut applied = self.metadata.applied();
        // When this process first saw that a session had ended, on its own clock.
        let mut seen: BTreeMap<SessionId, Duration> = BTreeMap::new();
        let mut tries: BTreeMap<SessionId, u32> = BTreeMap::new();
        loop {
            let now = self.clock.since_boot();
            let ended = self.ended();
            seen.retain(|session, _| ended.contains(session));
            tries.retain(|session, _| ended.contains(session));
            for session in &ended {
                seen.entry(session.clone()).or_insert(now);
            }
            let mine = ended.iter().filter_map(|session| self.claimed(session)).map(|claimed| claimed.number);
            self.progress.retain(&mine.collect());
            let mut again = None;
            let mut troubles = Vec::new();
            for session in ended {
                let since = seen.get(&session).copied().unwrap_or(now);
                let done = tokio::select! {
                    () = stopping.cancelled() => return Ok(()),
                    done = self.attend(&session, since) => done,
                };
                match done {
                    Ok(()) | Err(Stopped::NotOurs) => {}
                    Err(Stopped::Over) => {
                        stopping.cancelled().await;
                        return Ok(());
                    }
                    Err(Stopped::Broken(why)) => anyhow::bail!(why),
                    Err(Stopped::Again(why)) => {
                        self.meters.retries.inc();
                        let n = tries.entry(session.clone()).or_insert(0);
                        tracing::warn!(%session, tries = *n, why, "recovery has to be tried again");
                        troubles.push(format!("session {session}: {why}"));
                        again = Some(commit::backoff(*n));
                        *n += 1;
                    }
                }
            }
            // Once a pass: one session's success says nothing of another's damage.
            if troubles.is_empty() {
                self.readiness.clear("recovery");
            } else {
                self.readiness.set("recovery", troubles.join("; "));
            }
            tokio::select! {
                () = stopping.cancelled() => return Ok(()),
                changed = applied.changed() => changed?,
                () = self.skips.ordered() => {}
                () = tokio::time::sleep(again.unwrap_or(Duration::MAX)), if again.is_some() => {}
            }
        }
    }

    /// Sessions that ended and are not recovered, oldest first.
    fn ended(&self) -> Vec<SessionId> {
        self.metadata.read(|state| {
            state.sessions.values().filter(|s| s.ended.is_some()).map(|s| s.id.clone()).collect()
        })
    }

    /// Does the recovery if it is this session's.
    async fn attend(&self, ended: &SessionId, since: Duration) -> Result<(), Stopped> {
        let Some(claimed) = self.claimed(ended) else {
            self.skips.forget(ended);
            return Ok(());
        };
        fault::point("recovery.claimed");
        self.recover(&claimed, since).await
    }

    fn claimed(&self, ended: &SessionId) -> Option<Claimed> {
        self.metadata.read(|state| {
            let (_, session) = state.session_by_id(ended)?;
            let claim = session.claim.as_ref().filter(|c| c.claimant == self.session)?;
            Some(Claimed {
                ended: ended.clone(),
                number: claim.number,
                wal_start: session.wal_start,
                lease_over: session.ended.as_ref().is_some_and(|e| e.lease_over),
                ended_at_ms: session.ended.as_ref().map_or(state.time_ms, |e| e.at_ms),
            })
        })
    }

    async fn recover(&self, claimed: &Claimed, since: Duration) -> Result<(), Stopped> {
        let began = self.clock.monotonic();
        tracing::info!(session = %claimed.ended, claim = claimed.number, wal_start = claimed.wal_start, "recovering");
        let note = SealNote { by: self.session.clone(), claim: claimed.number };
        // Bounded, so that memory stays at about one segment's worth.
        let (objects, mut incoming) = tokio::sync::mpsc::channel(4);
        let skip = self.skips.of(&claimed.ended);
        let sealing = self.wal_store.seal(&claimed.ended, claimed.wal_start, &note, &skip, objects);
        // Owns the receiver: committing that fails must end the sealing, which else waits for room for ever.
        let lossy = !skip.is_empty();
        let committing = async move {
            let mut cut = BTreeSet::new();
            let mut frames_in = 0u64;
            let mut draft = Draft::default();
            let mut covered = claimed.wal_start;
            while let Some(object) = incoming.recv().await {
                for frame in object.frames {
                    frames_in += 1;
                    if lossy && self.follows_a_gap(claimed, &draft, &frame) {
                        if cut.insert(frame.stream) {
                            tracing::error!(stream = %frame.stream, from = %frame.offset, "records behind a skipped WAL object are dropped");
                        }
                        continue;
                    }
                    self.take(claimed, &mut draft, frame).await?;
                }
                covered = object.seq + 1;
                self.progress.reached(claimed.number, object.seq);
                if draft.payload_bytes() >= self.segment_bytes {
                    self.commit(claimed, std::mem::take(&mut draft), covered).await?;
                }
            }
            Ok::<_, Stopped>((draft, covered, frames_in))
        };
        let (sealed, committed) = tokio::join!(sealing, committing);
        let (draft, covered, frames) = committed?;
        let end = sealed.map_err(|e| self.stopped(claimed, &e))?;
        fault::point("recovery.sealed");
        self.commit(claimed, draft, covered.max(end)).await?;
        fault::point("recovery.committed");
        self.outwait_lease(claimed, since).await;
        let command = Command::Recovered { ended: claimed.ended.clone(), claim: claimed.number };
        match self.metadata.propose(command).await {
            Ok(_) => {}
            Err(ProposeError::Refused(Refusal::ClaimNotCurrent { .. })) => return Err(Stopped::NotOurs),
            Err(ProposeError::SessionOver) => return Err(Stopped::Over),
            Err(e) => return Err(Stopped::Again(e.to_string())),
        }
        self.skips.forget(&claimed.ended);
        let took = began.elapsed();
        self.meters.seconds.time(took);
        let of = if claimed.ended.node == self.session.node { RecoveredOf::Own } else { RecoveredOf::Other };
        let without_owner = self.metadata.read(|state| state.time_ms.saturating_sub(claimed.ended_at_ms));
        self.meters.takeover_seconds.at(of).time(Duration::from_millis(without_owner));
        fault::point("recovery.recovered");
        tracing::info!(session = %claimed.ended, objects = end.saturating_sub(claimed.wal_start), frames, ?took, "recovered");
        if let Err(e) = self.wal_store.trim(&claimed.ended, end).await {
            tracing::warn!(session = %claimed.ended, error = %e, "recovered WAL not deleted; the sweep at the next start does it");
        }
        Ok(())
    }

    /// Why the WAL could not be read to its end; where a person may help, `skips` knows.
    fn stopped(&self, claimed: &Claimed, e: &WalError) -> Stopped {
        let at = match e {
            WalError::Corrupt { seq: Some(seq), .. } => Some(Stop { seq: *seq, why: e.to_string() }),
            WalError::Corrupt { seq: None, .. }
            | WalError::Unavailable(_)
            | WalError::SessionExists(_)
            | WalError::Abandoned => None,
        };
        let advice = if let Some(Stop { seq, .. }) = &at {
            // It would stop everybody, and a person is to find it where it is.
            self.progress.step(claimed.number);
            format!(" (object {seq}; restore it, or see POST /admin/recovery/skip)")
        } else {
            String::new()
        };
        self.skips.stopped(&claimed.ended, at);
        Stopped::Again(format!("{e}{advice}"))
    }

    /// What this frame follows was in an object that was skipped.
    fn follows_a_gap(&self, claimed: &Claimed, draft: &Draft, frame: &Frame) -> bool {
        let due = draft.end(frame.stream).or_else(|| {
            self.metadata.read(|state| {
                let (ended, _) = state.session_by_id(&claimed.ended)?;
                let stream = state.streams.get(&frame.stream)?;
                let counts = stream.ownership == Ownership::Open(ended) && stream.epoch == frame.epoch;
                counts.then_some(stream.committed)
            })
        });
        due.is_some_and(|due| frame.offset > due)
    }

    /// Takes a frame into the draft if it counts.
    async fn take(&self, claimed: &Claimed, draft: &mut Draft, frame: Frame) -> Result<(), Stopped> {
        let id = frame.stream;
        let stream = self.metadata.read(|state| {
            let (ended, _) = state.session_by_id(&claimed.ended)?;
            let stream = state.streams.get(&id)?;
            let now = stream.epoch == frame.epoch || mutant::on(Mutant::RecoveryIgnoresStreamEpoch);
            let counts = stream.ownership == Ownership::Open(ended) && now;
            counts.then(|| stream.clone())
        });
        let Some(stream) = stream else { return Ok(()) };
        // Committed already. An empty frame at the end may or may not be; absorbing it again changes nothing.
        let empty = frame.payload.length() == 0;
        if frame.end() < stream.committed || (frame.end() == stream.committed && !empty) {
            return Ok(());
        }
        let base = if draft.has(id) { Dedupe::default() } else { self.base(id, stream.dedupe).await? };
        draft.push(frame, || base);
        Ok(())
    }

    async fn base(
        &self,
        id: StreamId,
        segment: Option<crate::metadata::command::SegmentId>,
    ) -> Result<Dedupe, Stopped> {
        let Some(segment) = segment else { return Ok(Dedupe::default()) };
        let found = self.metadata.read(|state| state.segments.get(&segment).cloned());
        let Some(found) = found else {
            return Err(Stopped::Again(format!("segment {} is unknown", segment.0)));
        };
        let key = keys::segment(self.generation, &found.session, found.number);
        self.reader.dedupe(&key, found.bytes, id).await.map_err(|e| Stopped::Again(format!("{key}: {e}")))
    }

    async fn commit(&self, claimed: &Claimed, draft: Draft, covered: u64) -> Result<(), Stopped> {
        let origin = CommitOrigin::Recovery { ended: claimed.ended.clone(), claim: claimed.number };
        let mut segment = None;
        let mut ranges = Vec::new();
        if !draft.is_empty() {
            let number = self.next_segment.fetch_add(1, Ordering::Relaxed);
            let stamp = Stamp { cluster: self.cluster, writing: self.metadata.writing() };
            let session = self.session.clone();
            let built = self
                .tasks
                .blocking(move || draft.build(&stamp, session, number))
                .await
                .map_err(|e| Stopped::Broken(e.to_string()))?
                .map_err(CommitError::from)?;
            segment = Some(NewSegment { number, bytes: built.object.len() as u64 });
            commit::upload(&self.store, self.generation, &self.session, number, built.object).await?;
            fault::point("recovery.uploaded");
            ranges = built.ranges;
        }
        let bytes = segment.as_ref().map(|s| s.bytes);
        commit::commit(&self.metadata, &origin, segment, &ranges, Some(covered)).await?;
        if let Some(bytes) = bytes {
            self.meters.segments.committed(bytes);
        }
        Ok(())
    }

    /// The ended process may hold its lease, and so answer reads, until it has run out on any clock.
    async fn outwait_lease(&self, claimed: &Claimed, since: Duration) {
        if claimed.lease_over || mutant::on(Mutant::RecoveredWithinLease) {
            return;
        }
        let until = since + self.lease + self.lease / 10;
        loop {
            let left = until.saturating_sub(self.clock.since_boot());
            if left.is_zero() {
                return;
            }
            self.progress.step(claimed.number);
            tokio::time::sleep(left.min(STEP)).await;
        }
    }
}
