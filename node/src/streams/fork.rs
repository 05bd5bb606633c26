//! Forking a stream: one that begins with another's records, by reference.
//!
//! Invariant: a fork exists only once the log holds it, and with it its own claim on every segment it begins with; the
//! log forks only what is committed, so the source's records up to the point go to a segment first, ahead of the
//! rest. First bytes of the fork's own come as those of any create: unborn until they are durable. What the fork is
//! compared with when it is asked for again never changes, and outlives the source (which stays as a tombstone).

use std::sync::Arc;

use weir_api::{Offset, StreamId};

use super::create::{Created, Step, Wanted};
use super::error::{ForkError, StreamError};
use super::flush::proposal_failed;
use super::name::StreamName;
use super::ownership::{Current, Named, look};
use super::{Inner, StreamInfo, Streams};
use crate::fault;
use crate::metadata::ProposeError;
use crate::metadata::command::{Answer, Command, Expiry, Refusal, StreamConfig};
use crate::metadata::limits::FORK_EXTENTS;
use crate::metadata::state::{State, Stream};
use crate::storage::record::Payload;

/// What to fork, and what the fork is to be.
#[derive(Debug, Clone)]
pub struct ForkSpec {
    /// The source.
    pub source: StreamName,
    /// Where the fork leaves the source; `None`: at its tail.
    pub offset: Option<Offset>,
    /// How much further. Only with an offset.
    pub sub_offset: u64,
    /// If given, it has to be the source's.
    pub content_type: Option<String>,
    /// `None`: as the source's.
    pub expiry: Option<Expiry>,
    /// Closed from the start (after the first bytes, if any).
    pub closed: bool,
    /// First bytes of its own. Ignored if the fork exists.
    pub first: Option<Payload>,
}

/// The source as it is now.
struct Source {
    id: StreamId,
    config: Arc<StreamConfig>,
    start: Offset,
    tail: Offset,
}

impl ForkSpec {
    /// Whether `stream` is the fork asked for. Without an offset it may have left the source anywhere: a repeated
    /// request finds its fork although the source has gone on.
    pub(super) fn is(&self, state: &State, stream: &Stream) -> bool {
        let Some(point) = stream.forked_from.as_deref() else { return false };
        let Some(source) = state.stream(point.source) else { return false };
        *source.name == *self.source.as_str()
            && self.offset.is_none_or(|o| o.0.checked_add(self.sub_offset) == Some(point.at.0))
            && self.content_type.as_deref().is_none_or(|t| same_type(t, &stream.config.content_type))
            && stream.config.expiry == self.expiry.unwrap_or(source.config.expiry)
    }

    /// Where the fork leaves the source.
    fn point(&self, source: &Source) -> Result<Offset, StreamError> {
        let tail = source.tail;
        let Some(offset) = self.offset else { return Ok(tail) };
        if offset < source.start {
            return Err(StreamError::BeforeStart { start: source.start });
        }
        if offset > tail {
            return Err(ForkError::BeyondTail { tail }.into());
        }
        let at = offset.0.checked_add(self.sub_offset).filter(|at| *at <= tail.0);
        at.map(Offset).ok_or(ForkError::SubBeyondTail { left: tail.0 - offset.0 }.into())
    }
}

/// The same media type, whatever its case and parameters.
fn same_type(a: &str, b: &str) -> bool {
    let essence = |t: &str| t.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence(a) == essence(b)
}

impl Streams {
    /// Forks a stream, or finds that the fork exists.
    pub async fn fork(&self, name: &StreamName, spec: ForkSpec) -> Result<Created, StreamError> {
        let inner = self.inner.clone();
        let name = name.clone();
        self.inner.to_the_end(async move { inner.create(&name, Wanted::Fork(&spec)).await }).await
    }

    /// The content type that a fork of `source` at `name` has or would get, as far as this node knows at once.
    pub fn fork_type(&self, name: &StreamName, source: &StreamName) -> Option<String> {
        self.inner.metadata.read(|state| {
            let known = |name: &StreamName| state.stream_by_name(name.as_str()).map(|(_, s)| s.clone());
            let fork = known(name).filter(|s| s.forked_from.is_some());
            fork.or_else(|| known(source)).map(|s| s.config.content_type.clone())
        })
    }
}

impl Inner {
    /// The name is free, as far as the view knows.
    pub(super) async fn fork_new(
        self: &Arc<Self>,
        name: &StreamName,
        spec: &ForkSpec,
    ) -> Result<Step, StreamError> {
        let source = self.fork_source(&spec.source).await?;
        let config = StreamConfig {
            content_type: source.config.content_type.clone(),
            expiry: spec.expiry.unwrap_or(source.config.expiry),
        };
        if spec.content_type.as_deref().is_some_and(|t| !same_type(t, &config.content_type)) {
            return Err(ForkError::TypeMismatch { expected: config.content_type }.into());
        }
        let at = spec.point(&source)?;
        self.room_for_one()?;
        self.committed_to(source.id, at).await?;
        fault::point("fork.committed");
        self.few_enough_extents(source.id, at)?;
        let unborn = spec.first.is_some();
        let command = Command::Fork {
            source: source.id,
            offset: at,
            name: name.shared(),
            config: config.clone(),
            closed: spec.closed && !unborn,
            unborn,
        };
        match self.metadata.propose(command).await {
            Ok(Answer::Created { stream, .. }) => {
                fault::point("fork.created");
                self.meters.forks.inc();
                if unborn {
                    return self.create_unborn(stream, Wanted::Fork(spec)).await;
                }
                // As it was created: somebody may have gone on, or deleted it, since.
                let info = StreamInfo {
                    id: stream,
                    config: Arc::new(config),
                    start: source.start,
                    next: at,
                    closed: spec.closed,
                };
                Ok(Step::Finished(Created { new: true, info }))
            }
            Ok(Answer::Exists { .. }) => Ok(Step::LookAgain),
            Ok(other) => Err(StreamError::unavailable(format!("unexpected answer {other:?}"))),
            // The source or the name has changed meanwhile: the next look says how.
            Err(ProposeError::Refused(
                Refusal::ConfigMismatch { .. }
                | Refusal::Tombstone
                | Refusal::NoSuchStream
                | Refusal::NotCommitted { .. }
                | Refusal::AwaitingRecovery(_)
                | Refusal::NotOwner(_)
                | Refusal::AlreadyOpen { .. },
            )) => Ok(Step::LookAgain),
            Err(e) => Err(proposal_failed(e)),
        }
    }

    /// The source as of now. Forking is no use of it: its TTL goes on.
    async fn fork_source(self: &Arc<Self>, name: &StreamName) -> Result<Source, StreamError> {
        let missing = |e| match e {
            StreamError::NotFound => ForkError::SourceMissing.into(),
            StreamError::Gone => ForkError::SourceDeleted.into(),
            other => other,
        };
        let source = match self.current(name).await.map_err(missing)? {
            Current::Open(stream) => {
                let durable = stream.durable();
                if !durable.born {
                    return Err(ForkError::SourceMissing.into());
                }
                let (id, config, start) = (stream.id, stream.config.clone(), stream.start);
                Source { id, config, start, tail: durable.end }
            }
            Current::Idle(id, stream) => {
                let (config, start) = (stream.config.clone(), stream.start);
                Source { id, config, start, tail: stream.committed }
            }
        };
        self.check_lease()?;
        Ok(source)
    }

    /// A fork holds a copy of the list of its source's extents; there is a bound to that.
    fn few_enough_extents(&self, source: StreamId, at: Offset) -> Result<(), StreamError> {
        let extents = self
            .metadata
            .read(|state| state.stream(source).map_or(0, |s| s.extents.partition_point(|e| e.start < at)));
        if extents > FORK_EXTENTS {
            return Err(ForkError::TooManyExtents { extents, max: FORK_EXTENTS }.into());
        }
        Ok(())
    }

    /// Whether the name still is, at a read index, that of a deleted stream with forks.
    pub(super) async fn is_tombstone(&self, name: &StreamName) -> Result<bool, StreamError> {
        self.read_index().await?;
        self.check_lease()?;
        Ok(matches!(self.metadata.read(|state| look(state, name.as_str())), Named::Tombstone))
    }
}
