//! Reading: history in bounded chunks, and waiting at the tail.
//!
//! Invariant (I3): nobody reads past the durable tail, and only an answer that was checked against the open stream, or
//! against the state at a read index, says that it reached it. Reads hold nothing that appends wait for; reading a
//! stream that is not open does not open it.

use std::sync::Arc;
use std::time::Duration;

use weir_api::{Offset, StreamId};

use super::error::StreamError;
use super::name::StreamName;
use super::open::OpenStream;
use super::ownership::{Current, Named, look};
use super::{Inner, StreamInfo, Streams};
use crate::metadata::query::Disposition;
use crate::metadata::state::Stream;
use crate::storage::keys;
use crate::storage::reader::ReadError;
use crate::storage::record::Payload;

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrom {
    /// At the first offset kept.
    Start,
    /// At the tail as it is when asked.
    Now,
    /// Here; beyond the tail means at the tail.
    At(Offset),
}

/// A run of a stream's content.
#[derive(Debug, Clone)]
pub struct ReadChunk {
    /// The stream as of this answer.
    pub info: StreamInfo,
    /// Where the content begins.
    pub start: Offset,
    /// The offset after it.
    pub next: Offset,
    /// The content, in order.
    pub parts: Vec<Payload>,
    /// It reached the tail.
    pub up_to_date: bool,
    /// It reached the end of a closed stream.
    pub closed: bool,
}

impl ReadChunk {
    /// Nothing new.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

const ATTEMPTS: usize = 8;

impl Streams {
    /// At most about `max_bytes` of content, at least one element if there is any.
    pub async fn read(
        &self,
        name: &StreamName,
        from: ReadFrom,
        max_bytes: usize,
    ) -> Result<ReadChunk, StreamError> {
        self.inner.touched_by_name(name).await?;
        self.inner.read(name, from, max_bytes).await
    }

    /// As [`Self::read`], but at the tail of an open-ended stream it waits for more, up to `timeout`.
    pub async fn wait(
        &self,
        name: &StreamName,
        from: ReadFrom,
        max_bytes: usize,
        timeout: Duration,
    ) -> Result<ReadChunk, StreamError> {
        let deadline = self.inner.clock.monotonic() + timeout;
        self.inner.touched_by_name(name).await?;
        let mut chunk = self.inner.read(name, from, max_bytes).await?;
        let beyond = match from {
            ReadFrom::At(offset) => offset,
            ReadFrom::Start | ReadFrom::Now => chunk.next,
        };
        while chunk.is_empty() && !chunk.closed {
            let signal = self.inner.registry.signal(chunk.info.id);
            let _counted = signal.follow();
            let more = signal.news();
            tokio::pin!(more);
            more.as_mut().enable();
            // What came between the read and the enabling would wake nobody.
            let id = chunk.info.id;
            let _told = self.inner.told_of_moves(id, &signal);
            chunk = self.inner.read(name, ReadFrom::At(beyond.max(chunk.next)), max_bytes).await?;
            if chunk.info.id != id || !chunk.is_empty() || chunk.closed {
                break;
            }
            tokio::select! {
                () = more => {}
                () = tokio::time::sleep_until(deadline) => break,
                () = self.inner.leaving.cancelled() => break,
            }
        }
        Ok(chunk)
    }
}

impl Inner {
    pub(super) async fn read(
        self: &Arc<Self>,
        name: &StreamName,
        from: ReadFrom,
        max_bytes: usize,
    ) -> Result<ReadChunk, StreamError> {
        for _ in 0..ATTEMPTS {
            if let Some(chunk) = self.history(name, from, max_bytes).await? {
                return Ok(chunk);
            }
            let chunk = match self.current(name).await? {
                Current::Open(stream) => self.read_open(&stream, from, max_bytes).await?,
                Current::Idle(id, stream) => self.read_idle(name, id, &stream, from, max_bytes).await?,
            };
            if let Some(chunk) = chunk {
                self.check_lease()?;
                return Ok(chunk);
            }
        }
        Err(StreamError::unavailable("the stream keeps changing hands"))
    }

    /// Plain history of a stream that is not open here needs no confirmation: it says nothing about the tail.
    async fn history(
        self: &Arc<Self>,
        name: &StreamName,
        from: ReadFrom,
        max_bytes: usize,
    ) -> Result<Option<ReadChunk>, StreamError> {
        if self.registry.by_name(name.as_str()).is_some() {
            return Ok(None);
        }
        let Named::Known(id, stream, disposition) = self.metadata.read(|state| look(state, name.as_str()))
        else {
            return Ok(None);
        };
        let start = match from {
            ReadFrom::Start => stream.start,
            ReadFrom::At(offset) if offset < stream.committed => offset,
            ReadFrom::At(_) | ReadFrom::Now => return Ok(None),
        };
        let ours = match &disposition {
            Disposition::OpenAt(owner, _) | Disposition::PlacedAt(owner) => *owner == self.number,
            Disposition::AwaitingRecovery(_) | Disposition::Released => true,
        };
        if !ours || start >= stream.committed || start < stream.start || stream.unborn_since_ms.is_some() {
            return Ok(None);
        }
        let Some(parts) = self.segments(id, &stream, start, max_bytes).await? else { return Ok(None) };
        let chunk = chunk(StreamInfo::idle(id, &stream), start, parts);
        // Reaching the committed end would be a claim.
        Ok((chunk.next < stream.committed).then_some(chunk))
    }

    /// `None`: an object went away meanwhile; look again.
    async fn read_open(
        &self,
        stream: &Arc<OpenStream>,
        from: ReadFrom,
        max_bytes: usize,
    ) -> Result<Option<ReadChunk>, StreamError> {
        let durable = stream.durable();
        if !durable.born {
            return Err(StreamError::NotFound);
        }
        let start = start_of(from, stream.start, durable.end)?;
        let mut parts = Vec::new();
        if start < durable.end {
            let now = self.clock.since_boot();
            parts = match stream.read_tail(start, max_bytes, now) {
                Some(parts) => parts,
                None => {
                    let committed = self.metadata.read(|state| state.streams.get(&stream.id).cloned());
                    let Some(committed) = committed else { return Ok(None) };
                    let Some(mut parts) = self.segments(stream.id, &committed, start, max_bytes).await?
                    else {
                        return Ok(None);
                    };
                    // Over the border into memory, as far as there is room.
                    let at = Offset(start.0 + parts.iter().map(Payload::length).sum::<u64>());
                    let room = max_bytes.saturating_sub(parts.iter().map(Payload::size).sum());
                    if room > 0 {
                        parts.extend(stream.read_tail(at, room, now).unwrap_or_default());
                    }
                    parts
                }
            };
        }
        // The claims below are about now, so they are made from what is durable now.
        let durable = stream.durable();
        let mut chunk = chunk(StreamInfo::open(stream, durable), start, parts);
        chunk.up_to_date = chunk.next >= durable.end;
        chunk.closed = chunk.up_to_date && durable.closed;
        if !stream.is_serving() && chunk.up_to_date {
            return Ok(None);
        }
        Ok(Some(chunk))
    }

    /// `None`: something changed meanwhile; look again.
    async fn read_idle(
        self: &Arc<Self>,
        name: &StreamName,
        id: StreamId,
        stream: &Stream,
        from: ReadFrom,
        max_bytes: usize,
    ) -> Result<Option<ReadChunk>, StreamError> {
        let start = start_of(from, stream.start, stream.committed)?;
        let mut parts = Vec::new();
        if start < stream.committed {
            match self.segments(id, stream, start, max_bytes).await? {
                Some(found) => parts = found,
                None => return Ok(None),
            }
        }
        let mut chunk = chunk(StreamInfo::idle(id, stream), start, parts);
        chunk.up_to_date = chunk.next >= stream.committed;
        chunk.closed = chunk.up_to_date && stream.closed;
        // Fetching may have taken a while: the claim has to hold at its end.
        if chunk.up_to_date && !chunk.parts.is_empty() {
            match self.current(name).await? {
                Current::Idle(again, now) if again == id && now.committed == stream.committed => {
                    chunk.closed = now.closed;
                    chunk.info.closed = now.closed;
                }
                Current::Idle(..) | Current::Open(_) => {
                    chunk.up_to_date = false;
                    chunk.closed = false;
                }
            }
        }
        Ok(Some(chunk))
    }

    /// Content from segments. `None`: an object is gone, so the extents are out of date.
    async fn segments(
        &self,
        id: StreamId,
        stream: &Stream,
        start: Offset,
        max_bytes: usize,
    ) -> Result<Option<Vec<Payload>>, StreamError> {
        let mut parts = Vec::new();
        let mut at = start;
        let mut size = 0;
        let first = stream.extents.partition_point(|e| e.end <= start);
        for extent in stream.extents.iter().skip(first) {
            let found = self.metadata.read(|state| state.segments.get(&extent.segment).cloned());
            let Some(found) = found else { return Ok(None) };
            let key = keys::segment(self.generation, &found.session, found.number);
            let room = max_bytes.saturating_sub(size);
            match self.reader.read(&key, found.bytes, extent, at, room).await {
                Ok(more) => {
                    for part in more {
                        at = Offset(at.0 + part.length());
                        size += part.size();
                        parts.push(part);
                    }
                }
                // What was read so far is good; the next call meets the error.
                Err(_) if !parts.is_empty() => break,
                Err(ReadError::NotFound(_)) => return Ok(None),
                Err(e) => {
                    tracing::warn!(stream = %id, key, error = %e, "read failed");
                    return Err(StreamError::unavailable(format!("records are not readable now: {e}")));
                }
            }
            if size >= max_bytes || at < extent.end {
                break;
            }
        }
        Ok(Some(parts))
    }
}

fn start_of(from: ReadFrom, first: Offset, tail: Offset) -> Result<Offset, StreamError> {
    match from {
        ReadFrom::Start => Ok(first),
        ReadFrom::Now => Ok(tail),
        ReadFrom::At(offset) if offset < first => Err(StreamError::BeforeStart { start: first }),
        ReadFrom::At(offset) => Ok(offset.min(tail)),
    }
}

fn chunk(info: StreamInfo, start: Offset, parts: Vec<Payload>) -> ReadChunk {
    let length: u64 = parts.iter().map(Payload::length).sum();
    ReadChunk { info, start, next: Offset(start.0 + length), parts, up_to_date: false, closed: false }
}
