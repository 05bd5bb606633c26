//! Opens, releases and deletes streams, and finds out who has one.
//!
//! Invariant: an open stream is released or deleted only by this node, after it stopped appends, settled its puts and
//! (for a release) committed everything; appends resume if the log did not decide so. A stream that the log says is
//! open at this session but that is not in memory (a load that failed) is released at its committed end first.

use std::sync::Arc;
use std::time::Duration;

use weir_api::{SessionId, StreamId};

use super::error::StreamError;
use super::flush::proposal_failed;
use super::handover::Way;
use super::name::StreamName;
use super::open::OpenStream;
use super::{Inner, Streams};
use crate::fault;
use crate::metadata::ProposeError;
use crate::metadata::command::{Answer, Command, Owner, Refusal};
use crate::metadata::query::Disposition;
use crate::metadata::state::{State, Stream};
use crate::mutant::{self, Mutant};
use crate::storage::keys;
use crate::storage::record::Dedupe;

/// Streams per `Release` command.
const RELEASE_BATCH: usize = 2_000;
/// One in so many open streams is released when there are too many.
const HURRIED_SHARE: usize = 16;
/// How often an operation looks again after losing a race before it gives up.
const ATTEMPTS: usize = 8;

/// A stream as this node may speak of it now.
pub(super) enum Current {
    /// Open here: the stream itself knows.
    Open(Arc<OpenStream>),
    /// Not open anywhere; this is the state at a read index.
    Idle(StreamId, Arc<Stream>),
}

/// What a name means in the view.
pub(super) enum Named {
    Missing,
    Tombstone,
    Known(StreamId, Arc<Stream>, Disposition),
}

pub(super) fn look(state: &State, name: &str) -> Named {
    let Some(id) = state.names.get(name).copied() else { return Named::Missing };
    let Some(stream) = state.streams.get(&id) else { return Named::Missing };
    if stream.tombstone {
        return Named::Tombstone;
    }
    Named::Known(id, stream.clone(), state.disposition_of(stream))
}

impl Streams {
    /// Removes the stream and frees its name.
    pub async fn delete(&self, name: &StreamName) -> Result<(), StreamError> {
        let inner = self.inner.clone();
        let name = name.clone();
        self.inner.to_the_end(async move { inner.delete(&name).await }).await
    }
}

impl Inner {
    /// The stream, if it is open here and not on its way out.
    pub(super) async fn serving_by_name(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<Option<Arc<OpenStream>>, StreamError> {
        loop {
            let Some(stream) = self.registry.by_name(name) else { return Ok(None) };
            if self.until_settled(&stream).await? && !self.is_over(&stream).await? {
                return Ok(Some(stream));
            }
        }
    }

    /// Waits while the stream is being released or deleted. `false`: it is gone.
    async fn until_settled(&self, stream: &OpenStream) -> Result<bool, StreamError> {
        while !stream.is_serving() {
            let signal = stream.signal.next();
            tokio::pin!(signal);
            signal.as_mut().enable();
            if stream.is_serving() {
                break;
            }
            if self.registry.by_id(stream.id).is_none_or(|s| !std::ptr::eq(&raw const *s, stream)) {
                return Ok(false);
            }
            self.patiently("another operation on the stream", signal).await?;
        }
        Ok(true)
    }

    /// Where the stream stands, as of now.
    pub(super) async fn current(self: &Arc<Self>, name: &StreamName) -> Result<Current, StreamError> {
        for _ in 0..ATTEMPTS {
            if let Some(stream) = self.serving_by_name(name.as_str()).await? {
                return Ok(Current::Open(stream));
            }
            if !self.view_will_do(name) {
                self.read_index().await?;
            }
            match self.metadata.read(|state| look(state, name.as_str())) {
                Named::Missing => {
                    self.check_lease()?;
                    return Err(StreamError::NotFound);
                }
                Named::Tombstone => {
                    self.check_lease()?;
                    return Err(StreamError::Gone);
                }
                Named::Known(id, stream, disposition) => match disposition {
                    Disposition::Released => {
                        if !self.ended_idle(id, &stream).await? {
                            return idle(id, stream);
                        }
                    }
                    Disposition::PlacedAt(owner) if owner == self.number => {
                        if !self.ended_idle(id, &stream).await? {
                            return idle(id, stream);
                        }
                    }
                    Disposition::OpenAt(owner, _) if owner == self.number => drop(self.open(id).await?),
                    Disposition::AwaitingRecovery(_) => self.recovered(id).await?,
                    Disposition::PlacedAt(_) | Disposition::OpenAt(..)
                        if self.metadata.read(|state| self.is_coming(state, id)) =>
                    {
                        self.handed_over(id).await?;
                    }
                    Disposition::PlacedAt(_) | Disposition::OpenAt(..) => {
                        let owner = self.metadata.read(|state| state.owner_of(&stream));
                        // Nobody any more: the next look finds out more.
                        let Some(owner) = owner else { continue };
                        return Err(elsewhere(&owner.session));
                    }
                },
            }
        }
        Err(StreamError::unavailable("the stream keeps changing hands"))
    }

    /// (A mistake: what the view says is taken for how it is.)
    fn view_will_do(&self, name: &StreamName) -> bool {
        let missing = || self.metadata.read(|state| matches!(look(state, name.as_str()), Named::Missing));
        mutant::on(Mutant::CurrentByTheView) || (mutant::on(Mutant::MissingByTheView) && missing())
    }

    /// Confirms that the view is as new as this moment.
    pub(super) async fn read_index(&self) -> Result<(), StreamError> {
        self.metadata.read_index(self.limits.patience).await.map_err(proposal_failed)?;
        Ok(())
    }

    /// Waits, bounded, until the stream no longer waits for a recovery.
    pub(super) async fn recovered(&self, id: StreamId) -> Result<(), StreamError> {
        let mut applied = self.metadata.applied();
        let waits = |state: &State| matches!(state.disposition(id), Some(Disposition::AwaitingRecovery(_)));
        let wait = async { while self.metadata.read(waits) && applied.changed().await.is_ok() {} };
        self.patiently("the recovery of the stream's last session", wait).await
    }

    pub(super) async fn open_by_name(
        self: &Arc<Self>,
        name: &StreamName,
    ) -> Result<Arc<OpenStream>, StreamError> {
        // The view may lag. What it does not know has to be confirmed, and so has a stream that proves to be gone: its
        // name may be another's since.
        let mut confirmed = false;
        loop {
            match self.metadata.read(|state| look(state, name.as_str())) {
                Named::Known(id, ..) => match self.open(id).await {
                    Err(StreamError::NotFound | StreamError::Gone) if !confirmed => {}
                    opened => return opened,
                },
                Named::Missing if confirmed => return Err(StreamError::NotFound),
                Named::Tombstone if confirmed => return Err(StreamError::Gone),
                Named::Missing | Named::Tombstone => {}
            }
            self.read_index().await?;
            self.check_lease()?;
            confirmed = true;
        }
    }

    /// Takes the stream, so that this node serves it.
    pub(super) async fn open(self: &Arc<Self>, id: StreamId) -> Result<Arc<OpenStream>, StreamError> {
        if let Some(stream) = self.registry.by_id(id)
            && stream.is_serving()
        {
            return Ok(stream);
        }
        let this = self.clone();
        self.to_the_end(async move { this.open_now(id).await }).await
    }

    async fn open_now(self: &Arc<Self>, id: StreamId) -> Result<Arc<OpenStream>, StreamError> {
        let gate = self.registry.gate(id);
        for _ in 0..ATTEMPTS {
            let held = self.patiently("another operation on the stream", gate.lock()).await?;
            if let Some(stream) = self.registry.by_id(id) {
                drop(held);
                if self.until_settled(&stream).await? {
                    return Ok(stream);
                }
                continue;
            }
            if self.registry.len() >= self.limits.max_open {
                self.backlog.hurry();
                let max = self.limits.max_open;
                return Err(StreamError::unavailable(format!(
                    "{max} streams are open here, which is the limit"
                )));
            }
            match self.metadata.propose(Command::Open { stream: id }).await {
                Ok(Answer::Opened { epoch }) => {
                    fault::point("open.before_load");
                    return self.load(id, epoch).await;
                }
                Ok(Answer::Placed(Owner { session, .. })) if session == self.session => {}
                Ok(Answer::Placed(owner)) => return Err(elsewhere(&owner.session)),
                Ok(other) => return Err(StreamError::unavailable(format!("unexpected answer {other:?}"))),
                Err(ProposeError::Refused(Refusal::AwaitingRecovery(_))) => {
                    drop(held);
                    self.recovered(id).await?;
                }
                Err(ProposeError::Refused(Refusal::TransferPending { .. })) => {
                    drop(held);
                    self.handed_over(id).await?;
                }
                Err(ProposeError::Refused(Refusal::AlreadyOpen { .. })) => self.release_unloaded(id).await?,
                Err(ProposeError::Refused(Refusal::NotOwner(owner))) => {
                    return Err(elsewhere(&owner.session));
                }
                Err(e) => return Err(proposal_failed(e)),
            }
        }
        Err(StreamError::unavailable("the stream keeps changing hands"))
    }

    /// Loads what an open stream needs, and registers it.
    async fn load(
        self: &Arc<Self>,
        id: StreamId,
        epoch: weir_api::StreamEpoch,
    ) -> Result<Arc<OpenStream>, StreamError> {
        let committed = self.metadata.read(|state| state.streams.get(&id).cloned());
        let Some(committed) = committed.filter(|s| s.epoch == epoch) else {
            return Err(StreamError::NotFound);
        };
        let dedupe = match self.committed_dedupe(id, &committed).await {
            Ok(dedupe) => dedupe,
            Err(e) => {
                // Best effort: an open that finds it still open here does the same.
                drop(self.release_unloaded(id).await);
                return Err(e);
            }
        };
        let signal = self.registry.signal(id);
        let now = self.now();
        let stream = Arc::new(OpenStream::new(id, epoch, &committed, dedupe, signal, now));
        self.registry.insert(stream.clone());
        // Followers who waited on the released stream look again.
        stream.signal.wake();
        Ok(stream)
    }

    async fn committed_dedupe(&self, id: StreamId, stream: &Stream) -> Result<Dedupe, StreamError> {
        let Some(segment) = stream.dedupe.filter(|_| !mutant::on(Mutant::ProducersForgotten)) else {
            return Ok(Dedupe::default());
        };
        let found = self.metadata.read(|state| state.segments.get(&segment).cloned());
        let Some(found) = found else {
            return Err(StreamError::unavailable("the segment with the stream's producer state is unknown"));
        };
        let key = keys::segment(self.generation, &found.session, found.number);
        self.reader.dedupe(&key, found.bytes, id).await.map_err(|e| {
            tracing::warn!(stream = %id, error = %e, "producer state not readable");
            StreamError::unavailable(format!("the stream's producer state is not readable now: {e}"))
        })
    }

    /// Releases a stream that is open at this session but not in memory: nothing of it can be in flight.
    async fn release_unloaded(&self, id: StreamId) -> Result<(), StreamError> {
        let at = self.metadata.read(|state| state.streams.get(&id).map(|s| (s.epoch, s.committed)));
        let Some((epoch, committed)) = at else { return Ok(()) };
        let command = Command::Release { streams: vec![(id, epoch, committed)] };
        self.metadata.propose(command).await.map_err(proposal_failed)?;
        Ok(())
    }

    async fn delete(self: &Arc<Self>, name: &StreamName) -> Result<(), StreamError> {
        for _ in 0..ATTEMPTS {
            match self.current(name).await? {
                Current::Open(stream) => {
                    if stream.durable().born || stream.birth_ordered() {
                        if self.delete_open(&stream).await? {
                            return Ok(());
                        }
                    } else {
                        return Err(StreamError::NotFound);
                    }
                }
                Current::Idle(id, _) => {
                    let gate = self.registry.gate(id);
                    let _held = self.patiently("another operation on the stream", gate.lock()).await?;
                    if self.registry.by_id(id).is_some() {
                        continue;
                    }
                    match self.metadata.propose(Command::Delete { stream: id, epoch: None }).await {
                        Ok(_) => {
                            self.registry.signal(id).wake();
                            return Ok(());
                        }
                        Err(ProposeError::Refused(Refusal::NotOwner(_) | Refusal::AwaitingRecovery(_))) => {}
                        Err(e) => return Err(proposal_failed(e)),
                    }
                }
            }
        }
        Err(StreamError::unavailable("the stream keeps changing hands"))
    }

    /// Deletes a stream that is open here. `false`: it was on its way out already; look again.
    pub(super) async fn delete_open(&self, stream: &Arc<OpenStream>) -> Result<bool, StreamError> {
        if !stream.stop() {
            self.until_settled(stream).await?;
            return Ok(false);
        }
        self.delete_stopped(stream).await?;
        Ok(true)
    }

    /// Deletes a stream that this operation has stopped, or resumes it.
    pub(super) async fn delete_stopped(&self, stream: &Arc<OpenStream>) -> Result<(), StreamError> {
        if let Some(newest) = stream.newest() {
            let settled = self.patiently("the stream's records to be stored", newest.wait()).await;
            if !matches!(settled, Ok(Ok(()))) {
                stream.resume();
                return Err(settled
                    .err()
                    .unwrap_or(StreamError::unavailable("this node's session was fenced")));
            }
        }
        fault::point("delete.before_propose");
        let command = Command::Delete { stream: stream.id, epoch: Some(stream.epoch) };
        match self.metadata.propose(command).await {
            Ok(_) => {
                self.registry.remove(stream);
                stream.gone();
                Ok(())
            }
            Err(e) => {
                self.undecided(stream, &e);
                Err(proposal_failed(e))
            }
        }
    }

    /// A release or delete that did not come to pass: resume, unless it may have.
    pub(super) fn undecided(&self, stream: &Arc<OpenStream>, e: &ProposeError) {
        if matches!(e, ProposeError::Unknown) {
            // The proposal may still be applied: appending on could acknowledge what is then lost. The process ends
            // and recovers instead; the handle gives up only when the log itself has failed.
            self.tasks.fail(format!("the outcome of ending stream {} is not known", stream.id));
        } else {
            stream.resume();
        }
    }

    /// Releases the streams that nobody used for a while and whose records are all committed. Where too many are open,
    /// also those that were used the longest ago.
    pub(super) async fn release_idle(self: &Arc<Self>) {
        let now = self.clock.since_boot();
        let mut idle_since = now.saturating_sub(self.limits.idle_release);
        if self.backlog.take_hurry() {
            let mut used: Vec<Duration> = self.registry.all().iter().map(|s| s.last_used()).collect();
            used.sort_unstable();
            let some = used.len() / HURRIED_SHARE;
            idle_since = used.get(some).copied().unwrap_or(now).max(idle_since);
        }
        self.release_settled(Some(idle_since)).await;
    }

    /// Releases settled streams in batches; answers how many.
    async fn release_settled(&self, idle_since: Option<Duration>) -> usize {
        let mut released = 0;
        let mut batch = Vec::new();
        for stream in self.registry.all() {
            if let Some(tail) = stream.stop_if_settled(idle_since) {
                batch.push((stream, tail));
            }
            if batch.len() == RELEASE_BATCH {
                released += self.release_batch(std::mem::take(&mut batch), Way::Release).await;
            }
        }
        if !batch.is_empty() {
            released += self.release_batch(batch, Way::Release).await;
        }
        released
    }

    /// Lets go of stopped streams; those that the log keeps here resume.
    pub(super) async fn release_batch(
        &self,
        batch: Vec<(Arc<OpenStream>, weir_api::Offset)>,
        way: Way,
    ) -> usize {
        fault::point("release.before_propose");
        let answers = match self.metadata.propose(Self::let_go_command(&batch, way)).await {
            Ok(Answer::Released(answers)) => answers,
            Ok(other) => {
                self.tasks.fail(format!("unexpected answer to a release: {other:?}"));
                return 0;
            }
            Err(e) => {
                for (stream, _) in &batch {
                    self.undecided(stream, &e);
                }
                return 0;
            }
        };
        fault::point("release.after_propose");
        let mut released = 0;
        for ((stream, _), answer) in batch.iter().zip(answers) {
            match answer {
                Ok(()) => {
                    self.registry.remove(stream);
                    stream.gone();
                    released += 1;
                }
                Err(refusal) => {
                    tracing::warn!(stream = %stream.id, %refusal, "not released");
                    stream.resume();
                }
            }
        }
        released
    }

    /// Flushes once for all and releases everything; gives up when nothing could be committed for ten seconds.
    pub(super) async fn drain(self: &Arc<Self>) -> Result<(), String> {
        const STUCK: Duration = Duration::from_secs(10);
        // The flusher may be releasing some of them itself: then a pass finds nothing to do, and the next one less.
        const PAUSE: Duration = Duration::from_millis(10);
        let mut progress = self.clock.monotonic();
        let mut before = usize::MAX;
        loop {
            let open = self.registry.len();
            if open == 0 && self.backlog.is_empty() {
                return Ok(());
            }
            if open < before {
                (before, progress) = (open, self.clock.monotonic());
            }
            let left = STUCK.saturating_sub(progress.elapsed());
            let pass = async {
                self.wal.settled().await;
                self.backlog.flush().await;
                if self.release_settled(None).await == 0 {
                    tokio::time::sleep(PAUSE).await;
                }
            };
            if left.is_zero() || tokio::time::timeout(left, pass).await.is_err() {
                return Err(format!(
                    "nothing could be committed or released for {STUCK:?}; {open} streams are open"
                ));
            }
        }
    }
}

fn idle(id: StreamId, stream: Arc<Stream>) -> Result<Current, StreamError> {
    if stream.unborn_since_ms.is_some() {
        return Err(StreamError::NotFound);
    }
    Ok(Current::Idle(id, stream))
}

pub(super) fn elsewhere(owner: &SessionId) -> StreamError {
    StreamError::Elsewhere { owner: owner.clone() }
}
