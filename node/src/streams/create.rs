//! Creating a stream, with or without first bytes.
//!
//! Invariant: a stream whose first bytes came with its creation exists for others only once they are durable: its name
//! is registered unborn, the record with the bytes gives it birth, and only then the create is answered. A retry after
//! a crash in between finds it unborn and supplies the bytes again.

use std::sync::Arc;

use weir_api::{Offset, StreamId};

use super::error::StreamError;
use super::flush::proposal_failed;
use super::fork::ForkSpec;
use super::log::Append;
use super::name::StreamName;
use super::open::Birth;
use super::ownership::{Current, Named, elsewhere, look};
use super::{Inner, StreamInfo, Streams};
use crate::fault;
use crate::metadata::ProposeError;
use crate::metadata::command::{Answer, Command, Refusal, StreamConfig};
use crate::metadata::state::State;
use crate::storage::record::Payload;

/// What to create.
#[derive(Debug, Clone)]
pub struct CreateSpec {
    /// Its configuration.
    pub config: StreamConfig,
    /// Closed from the start (after the first bytes, if any).
    pub closed: bool,
    /// First bytes. Ignored if the stream exists.
    pub first: Option<Payload>,
}

/// What came of a create.
#[derive(Debug, Clone)]
pub struct Created {
    /// This request created it.
    pub new: bool,
    /// The stream.
    pub info: StreamInfo,
}

/// What a PUT wants under a name.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'a> {
    Plain(&'a CreateSpec),
    Fork(&'a ForkSpec),
}

impl Wanted<'_> {
    /// Whether the stream was created by such a request, its closed state aside. That never changes.
    fn is(&self, state: &State, id: StreamId) -> bool {
        let Some(stream) = state.stream(id) else { return false };
        match self {
            Self::Plain(spec) => stream.forked_from.is_none() && stream.config.same_as(&spec.config),
            Self::Fork(spec) => spec.is(state, stream),
        }
    }

    fn closed(&self) -> bool {
        match self {
            Self::Plain(spec) => spec.closed,
            Self::Fork(spec) => spec.closed,
        }
    }

    fn first(&self) -> Option<&Payload> {
        match self {
            Self::Plain(spec) => spec.first.as_ref(),
            Self::Fork(spec) => spec.first.as_ref(),
        }
    }
}

/// How one look at the name ended.
pub(super) enum Step {
    Finished(Created),
    LookAgain,
}

const ATTEMPTS: usize = 8;

impl Streams {
    /// Creates the stream, or finds that it exists with the same configuration.
    pub async fn create(&self, name: &StreamName, spec: CreateSpec) -> Result<Created, StreamError> {
        let inner = self.inner.clone();
        let name = name.clone();
        self.inner.to_the_end(async move { inner.create(&name, Wanted::Plain(&spec)).await }).await
    }
}

impl Inner {
    pub(super) async fn create(
        self: &Arc<Self>,
        name: &StreamName,
        wanted: Wanted<'_>,
    ) -> Result<Created, StreamError> {
        for _ in 0..ATTEMPTS {
            let step = match self.metadata.read(|state| look(state, name.as_str())) {
                Named::Missing => match wanted {
                    Wanted::Plain(spec) => self.create_new(name, spec).await?,
                    Wanted::Fork(spec) => self.fork_new(name, spec).await?,
                },
                Named::Tombstone if self.is_tombstone(name).await? => {
                    return Err(StreamError::ConfigMismatch);
                }
                Named::Tombstone => Step::LookAgain,
                Named::Known(id, stream, _) if stream.unborn_since_ms.is_some() => {
                    self.create_unborn(id, wanted).await?
                }
                Named::Known(..) => self.create_existing(name, wanted).await?,
            };
            if let Step::Finished(created) = step {
                return Ok(created);
            }
        }
        Err(StreamError::unavailable("the stream keeps changing hands"))
    }

    async fn create_new(self: &Arc<Self>, name: &StreamName, spec: &CreateSpec) -> Result<Step, StreamError> {
        self.room_for_one()?;
        let unborn = spec.first.is_some();
        let command = Command::Create {
            name: name.shared(),
            config: spec.config.clone(),
            closed: spec.closed && !unborn,
            unborn,
        };
        match self.metadata.propose(command).await {
            // The first bytes are for the owner to order: the same create, sent there, finds the stream unborn.
            Ok(Answer::Created { owner, .. }) if unborn && owner != self.session => Err(elsewhere(&owner)),
            Ok(Answer::Created { stream, .. }) if unborn => {
                fault::point("create.before_birth");
                self.create_unborn(stream, Wanted::Plain(spec)).await
            }
            Ok(Answer::Created { stream, .. }) => {
                // As it was created: somebody may have gone on, or deleted it, since.
                let info = StreamInfo {
                    id: stream,
                    config: Arc::new(spec.config.clone()),
                    start: Offset(0),
                    next: Offset(0),
                    closed: spec.closed,
                };
                Ok(Step::Finished(Created { new: true, info }))
            }
            Ok(Answer::Exists { .. }) => Ok(Step::LookAgain),
            Ok(other) => Err(StreamError::unavailable(format!("unexpected answer {other:?}"))),
            // Born or not, alike or not: the next look compares with what is there.
            Err(ProposeError::Refused(Refusal::ConfigMismatch { .. })) => Ok(Step::LookAgain),
            Err(ProposeError::Refused(Refusal::Tombstone)) => Err(StreamError::ConfigMismatch),
            Err(e) => Err(proposal_failed(e)),
        }
    }

    pub(super) fn room_for_one(&self) -> Result<(), StreamError> {
        let max = self.limits.max_streams;
        if self.metadata.read(|state| state.streams.len()) >= max {
            return Err(StreamError::Limit(format!(
                "there are {max} streams, which is the limit: delete some"
            )));
        }
        Ok(())
    }

    /// The name is registered, its first bytes are missing as far as the view knows.
    pub(super) async fn create_unborn(
        self: &Arc<Self>,
        id: StreamId,
        wanted: Wanted<'_>,
    ) -> Result<Step, StreamError> {
        let stream = match self.open(id).await {
            Ok(stream) => stream,
            Err(StreamError::NotFound) => return Ok(Step::LookAgain),
            Err(e) => return Err(e),
        };
        // Unborn and of another configuration: it gives way, unless a birth is ordered first.
        if !self.metadata.read(|state| wanted.is(state, id)) && stream.stop_if_unborn() {
            self.delete_stopped(&stream).await?;
            return Ok(Step::LookAgain);
        }
        // It may have waited for its birth longer than its TTL.
        if !self.touched(&stream).await? {
            return Ok(Step::LookAgain);
        }
        let first = wanted.first();
        if first.is_some_and(|f| matches!(f, Payload::Json { .. }) != stream.config.is_json()) {
            // The body was read before this node knew of the fork's source.
            return Err(StreamError::unavailable("the source of the fork was created just now"));
        }
        let content = first.cloned().map(Ok);
        let first = Append { content, producer: None, seq: None, closes: wanted.closed() };
        match stream.give_birth(&first, &self.wal, self.clock.since_boot()) {
            Birth::Given(done, ticket) => {
                ticket.wait().await.map_err(|_fenced| StreamError::OutcomeUnknown)?;
                self.notices.born(stream.id, stream.epoch);
                let mut info = StreamInfo::open(&stream, stream.durable());
                info.next = done.next;
                info.closed = done.closed;
                Ok(Step::Finished(Created { new: true, info }))
            }
            Birth::Before(ticket) => {
                if let Some(ticket) = ticket {
                    ticket.wait().await.map_err(|_fenced| StreamError::OutcomeUnknown)?;
                }
                self.check_lease()?;
                self.compare(&StreamInfo::open(&stream, stream.durable()), wanted)
            }
            Birth::Refused(e) => Err(e),
            Birth::Stopping | Birth::Gone => {
                // Released or taken over meanwhile; the wait happens where the stream is looked up again.
                drop(self.serving_by_name(&stream.name).await?);
                Ok(Step::LookAgain)
            }
        }
    }

    async fn create_existing(
        self: &Arc<Self>,
        name: &StreamName,
        wanted: Wanted<'_>,
    ) -> Result<Step, StreamError> {
        let info = match self.current(name).await {
            Ok(Current::Open(stream)) => {
                let durable = stream.durable();
                if !durable.born {
                    return Ok(Step::LookAgain);
                }
                StreamInfo::open(&stream, durable)
            }
            Ok(Current::Idle(id, stream)) => StreamInfo::idle(id, &stream),
            Err(StreamError::NotFound) => return Ok(Step::LookAgain),
            Err(StreamError::Gone) => return Err(StreamError::ConfigMismatch),
            Err(e) => return Err(e),
        };
        self.check_lease()?;
        self.compare(&info, wanted)
    }

    fn compare(&self, info: &StreamInfo, wanted: Wanted<'_>) -> Result<Step, StreamError> {
        if self.metadata.read(|state| state.stream(info.id).is_none()) {
            return Ok(Step::LookAgain);
        }
        if info.closed == wanted.closed() && self.metadata.read(|state| wanted.is(state, info.id)) {
            Ok(Step::Finished(Created { new: false, info: info.clone() }))
        } else {
            Err(StreamError::ConfigMismatch)
        }
    }
}
