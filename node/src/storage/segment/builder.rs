//! Builds a segment object in one buffer.
//!
//! Invariants: content is copied once, from the frames into the object, and checksummed once; a refused stream leaves
//! the builder as it was. The work is a copy and a crc per byte: whoever builds a large one does so off the async
//! threads. Called by the flush and by recovery.

use bytes::Bytes;
use weir_api::{ClusterUid, Offset, SessionId, StreamEpoch, StreamId};

use super::chunk::{END_BYTES, MAX_CHUNK, write_ends};
use super::format::{self, SegmentIdentity, Trailer};
use crate::format::FOUNDED;
use crate::metadata::command::SegmentRange;
use crate::storage::index::{Entry, IndexBuilder, Kind};
use crate::storage::record::{Dedupe, Frame, Payload};

/// The caller's frames do not make a run of a stream; nothing was added. A fault in the caller: no retry helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// Streams come in increasing order, each once.
    #[error("stream {stream} comes after stream {before}")]
    Order {
        /// The stream refused.
        stream: StreamId,
        /// The last one added.
        before: StreamId,
    },
    /// A stream without frames has no place in a segment.
    #[error("stream {0} has no frames")]
    Empty(StreamId),
    /// Frames are gapless and of one stream and epoch.
    #[error("stream {stream}: the frame at {offset} does not continue the ones before it")]
    NotARun {
        /// The stream refused.
        stream: StreamId,
        /// The frame's offset.
        offset: Offset,
    },
    /// Bytes and JSON do not mix, and a JSON payload's ends fit its text.
    #[error("stream {stream}: the payload at {offset} is not well formed")]
    Payload {
        /// The stream refused.
        stream: StreamId,
        /// The frame's offset.
        offset: Offset,
    },
}

/// A finished segment.
#[derive(Debug, Clone)]
pub struct BuiltSegment {
    /// Its number within the session.
    pub number: u64,
    /// The object.
    pub object: Bytes,
    /// What it holds, by stream, as the commit wants it.
    pub ranges: Vec<SegmentRange>,
}

/// See the module.
#[derive(Debug)]
pub struct SegmentBuilder {
    identity: SegmentIdentity,
    version: u32,
    object: Vec<u8>,
    index: IndexBuilder,
    ranges: Vec<SegmentRange>,
    /// Ends of the JSON chunk under way; kept for its memory.
    ends: Vec<u32>,
}

impl SegmentBuilder {
    /// An empty segment.
    pub fn new(cluster: ClusterUid, session: SessionId, number: u64) -> Self {
        let identity = SegmentIdentity { cluster, session, number };
        let mut object = Vec::new();
        format::write_header(&identity, FOUNDED, &mut object);
        Self {
            identity,
            version: FOUNDED,
            object,
            index: IndexBuilder::default(),
            ranges: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Writes it in this version of the cluster's format. To be called before anything is added.
    #[must_use]
    pub fn in_format(mut self, version: u32) -> Self {
        debug_assert!(self.ranges.is_empty(), "nothing is added yet");
        self.version = version;
        self.object.clear();
        format::write_header(&self.identity, version, &mut self.object);
        self
    }

    /// Adds one stream's frames, gapless and in order, and its producer and sequence state after the last of them.
    pub fn add(
        &mut self,
        stream: StreamId,
        epoch: StreamEpoch,
        frames: &[&Frame],
        dedupe: Option<&Dedupe>,
    ) -> Result<(), BuildError> {
        let kind = self.check(stream, epoch, frames)?;
        let (Some(first), Some(last)) = (frames.first(), frames.last()) else {
            return Err(BuildError::Empty(stream));
        };
        self.object.reserve(frames.iter().map(|f| f.payload.size()).sum());
        let mut run = Run { stream, epoch, kind, start: first.offset, at: self.object.len() };
        for frame in frames {
            match &frame.payload {
                Payload::Bytes(bytes) => self.add_bytes(&mut run, bytes),
                Payload::Json { text, ends } => self.add_json(&mut run, text, ends),
            }
        }
        self.close_chunk(&mut run);
        if let Some(dedupe) = dedupe {
            dedupe.encode(&mut self.object);
            self.push(&Run { kind: Kind::Dedupe, ..run }, 0);
        }
        self.ranges.push(SegmentRange {
            stream,
            epoch,
            start: first.offset,
            end: last.end(),
            closed: frames.iter().any(|f| f.closes),
            born: frames.iter().any(|f| f.births),
            dedupe: dedupe.is_some(),
        });
        Ok(())
    }

    /// About how long the object would be if it were finished now.
    pub fn len_bytes(&self) -> usize {
        self.object.len() + self.index.len_bytes() + 128 + format::TRAILER
    }

    /// The object and what it holds.
    pub fn finish(mut self) -> BuiltSegment {
        let pages_at = self.object.len() as u64;
        let (pages, root) = self.index.finish(&self.identity, pages_at);
        self.object.extend_from_slice(&pages);
        let trailer = Trailer {
            root_at: self.object.len() as u64,
            root_len: u32::try_from(root.len()).expect("a root has some 20 bytes per 128 chunks"),
            root_crc: crc32c::crc32c(&root),
            version: self.version,
        };
        self.object.extend_from_slice(&root);
        trailer.encode(&mut self.object);
        BuiltSegment { number: self.identity.number, object: self.object.into(), ranges: self.ranges }
    }

    /// Says whether the frames are a run of one stream's records, and what of. Without content: bytes.
    fn check(&self, stream: StreamId, epoch: StreamEpoch, frames: &[&Frame]) -> Result<Kind, BuildError> {
        if let Some(before) = self.ranges.last().map(|r| r.stream).filter(|before| *before >= stream) {
            return Err(BuildError::Order { stream, before });
        }
        let mut next = frames.first().map_or(Offset(0), |f| f.offset);
        let mut kind = None;
        for frame in frames {
            let offset = frame.offset;
            let end = offset.0.checked_add(frame.payload.length()).map(Offset);
            let (true, Some(end)) = ((frame.stream, frame.epoch, offset) == (stream, epoch, next), end)
            else {
                return Err(BuildError::NotARun { stream, offset });
            };
            next = end;
            let found = well_formed(&frame.payload).ok_or(BuildError::Payload { stream, offset })?;
            if end > offset && *kind.get_or_insert(found) != found {
                return Err(BuildError::Payload { stream, offset });
            }
        }
        Ok(kind.unwrap_or(Kind::Bytes))
    }

    /// Small payloads share a chunk, large ones are cut: every chunk but the last is full.
    fn add_bytes(&mut self, run: &mut Run, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = MAX_CHUNK - (self.object.len() - run.at);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.object.extend_from_slice(now);
            bytes = later;
            if now.len() == room {
                self.close_chunk(run);
            }
        }
    }

    /// Whole elements, as many as fit; one that fits nowhere gets a chunk of its own.
    fn add_json(&mut self, run: &mut Run, text: &[u8], ends: &[u32]) {
        let (mut copied, mut next) = (0, 0);
        while next < ends.len() {
            let chunk_text = self.object.len() - run.at;
            let room = MAX_CHUNK.saturating_sub(chunk_text + END_BYTES * self.ends.len());
            let fits = |n: usize| ends[next + n - 1] as usize - copied + END_BYTES * n <= room;
            let mut n = 0;
            while next + n < ends.len() && fits(n + 1) {
                n += 1;
            }
            if n == 0 && !self.ends.is_empty() {
                self.close_chunk(run);
                continue;
            }
            let n = n.max(1);
            let stop = ends[next + n - 1] as usize;
            self.object.extend_from_slice(&text[copied..stop]);
            let moved = |end: &u32| chunk_end(chunk_text + (*end as usize - copied));
            self.ends.extend(ends[next..next + n].iter().map(moved));
            (copied, next) = (stop, next + n);
        }
    }

    /// Ends the chunk under way, if it holds anything; the next begins where it ends.
    fn close_chunk(&mut self, run: &mut Run) {
        let length = match run.kind {
            Kind::Json => self.ends.len(),
            Kind::Bytes | Kind::Dedupe => self.object.len() - run.at,
        };
        if length == 0 {
            return;
        }
        write_ends(&self.ends, &mut self.object);
        self.ends.clear();
        self.push(run, length as u64);
        run.start = Offset(run.start.0 + length as u64);
        run.at = self.object.len();
    }

    /// Indexes what was written since `run.at`.
    fn push(&mut self, run: &Run, length: u64) {
        let raw = &self.object[run.at..];
        self.index.push(Entry {
            stream: run.stream,
            epoch: run.epoch,
            kind: run.kind,
            start: run.start,
            end: Offset(run.start.0 + length),
            at: run.at as u64,
            bytes: raw.len() as u64,
            crc: crc32c::crc32c(raw),
        });
    }
}

/// The chunk under way.
#[derive(Debug, Clone, Copy)]
struct Run {
    stream: StreamId,
    epoch: StreamEpoch,
    kind: Kind,
    /// Its first offset.
    start: Offset,
    /// Where it begins in the object.
    at: usize,
}

/// A chunk with more than one element is at most `MAX_CHUNK` long; one with a single element ends where its payload
/// says, which is a u32.
fn chunk_end(n: usize) -> u32 {
    u32::try_from(n).expect("chunk ends are bounded by a chunk or by one payload")
}

fn well_formed(payload: &Payload) -> Option<Kind> {
    match payload {
        Payload::Bytes(_) => Some(Kind::Bytes),
        Payload::Json { text, ends } => {
            let mut before = 0u32;
            for &end in ends.iter() {
                // One byte of element at least, then its comma.
                if end as usize > text.len()
                    || end < before.saturating_add(2)
                    || text[end as usize - 1] != b','
                {
                    return None;
                }
                before = end;
            }
            (before as usize == text.len()).then_some(Kind::Json)
        }
    }
}
