//! A live reader's place at one stream: what is new beyond an offset, what may be claimed there, and waiting for more.
//!
//! Invariant (I3): a claim to be at the tail is made from the open stream while it serves, under the session's lease,
//! as in `read`; what is not open here is claimed through `read` alone. Nothing is queued per follower: it asks for
//! what lies beyond its own offset when it can take it. Following does not open a stream. Used by `http::sse`.

use std::sync::Arc;

use weir_api::{Offset, StreamId};

use super::error::StreamError;
use super::name::StreamName;
use super::open::Durable;
use super::read::{ReadChunk, ReadFrom};
use super::signal::Signal;
use super::{Inner, Streams};
use crate::metadata::query::Disposition;
use crate::storage::record::Payload;

/// A reader of one stream (not of whatever its name may mean later).
#[derive(Clone)]
pub struct Follower {
    inner: Arc<Inner>,
    name: StreamName,
    id: StreamId,
    signal: Arc<Signal>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Where the stream stands as far as this node knows. Reading up to there is safe; nothing more is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Open here.
    Open(Durable),
    /// Not open here.
    Idle {
        /// The committed end.
        end: Offset,
        /// It ends there for good.
        closed: bool,
    },
    /// Deleted, or served elsewhere: ask again.
    Gone,
}

/// What may be said of an offset now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Nothing: there is more, or this node cannot know.
    Nothing,
    /// It is the tail.
    UpToDate,
    /// It is the end.
    Closed,
}

impl Streams {
    /// The first chunk from `from` on, and a handle on what follows it.
    pub async fn follow(
        &self,
        name: &StreamName,
        from: ReadFrom,
        max_bytes: usize,
    ) -> Result<(Follower, ReadChunk), StreamError> {
        self.inner.touched_by_name(name).await?;
        let chunk = self.inner.read(name, from, max_bytes).await?;
        let (inner, id) = (self.inner.clone(), chunk.info.id);
        let signal = inner.registry.signal(id);
        Ok((Follower { inner, name: name.clone(), id, signal }, chunk))
    }
}

impl Follower {
    /// The stream.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// See [`Look`].
    pub fn look(&self) -> Look {
        if let Some(stream) = self.inner.registry.by_id(self.id) {
            return Look::Open(stream.durable());
        }
        let me = self.inner.number;
        self.inner.metadata.read(|state| {
            let Some(stream) = state.streams.get(&self.id).filter(|s| !s.tombstone) else {
                return Look::Gone;
            };
            match state.disposition_of(stream) {
                Disposition::OpenAt(owner, _) | Disposition::PlacedAt(owner) if owner != me => Look::Gone,
                Disposition::OpenAt(..)
                | Disposition::PlacedAt(_)
                | Disposition::AwaitingRecovery(_)
                | Disposition::Released => Look::Idle { end: stream.committed, closed: stream.closed },
            }
        })
    }

    /// What may be claimed of `at` if the stream is open here.
    pub fn claim(&self, at: Offset) -> Claim {
        let Some(stream) = self.inner.registry.by_id(self.id) else { return Claim::Nothing };
        let durable = stream.durable();
        // In this order: what was true of a serving stream under the lease was true of the stream.
        if durable.end != at || !stream.is_serving() || self.inner.check_lease().is_err() {
            return Claim::Nothing;
        }
        if durable.closed { Claim::Closed } else { Claim::UpToDate }
    }

    /// At most about `max_bytes` of durable records from `from` on that are still in memory. `None`: they are not.
    pub fn recent(&self, from: Offset, max_bytes: usize) -> Option<Vec<Payload>> {
        let now = self.inner.clock.since_boot();
        self.inner.registry.by_id(self.id)?.read_tail(from, max_bytes, now)
    }

    /// Reads as any reader does, from wherever the records are. `None`: the stream is not there any more.
    pub async fn read(&self, from: Offset, max_bytes: usize) -> Result<Option<ReadChunk>, StreamError> {
        match self.inner.read(&self.name, ReadFrom::At(from), max_bytes).await {
            Ok(chunk) => Ok((chunk.info.id == self.id).then_some(chunk)),
            Err(StreamError::NotFound | StreamError::Gone) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Waits until something may be new: until the stream does not look like `seen` any more, or the node is leaving.
    pub async fn news(&self, seen: Option<Look>) {
        let _counted = self.signal.follow();
        let news = self.signal.news();
        tokio::pin!(news);
        news.as_mut().enable();
        // What came between the last look and the enabling would wake nobody.
        let mut look = self.look();
        // An open stream's own end wakes its readers. Else the place comes first, then the look that counts.
        let place = match look {
            Look::Open(_) => None,
            Look::Idle { .. } | Look::Gone => self.inner.told_of_moves(self.id, &self.signal),
        };
        if place.is_some() {
            look = self.look();
        }
        if Some(look) == seen && !self.leaving() {
            news.await;
        }
        drop(place);
    }

    /// The node is leaving: whoever waits is to ask again.
    pub fn leaving(&self) -> bool {
        self.inner.leaving.is_cancelled()
    }
}
