//! From frames to a committed segment: build, upload, commit. Shared by the flusher and by recovery.
//!
//! Invariant: the object is stored before the command that refers to it is proposed, its key is never used twice, and
//! the WAL start moves only with the last part of a commit, so that a crash between any two steps leaves the records
//! in the WAL. Dedupe state in a segment is exactly that of the frames it covers, never of later ones (pitfall: a
//! sequence number remembered, its record lost).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use weir_api::{Offset, SessionId, StreamEpoch, StreamId};

use super::keys;
use super::record::codec::Stamp;
use super::record::{Dedupe, Frame};
use super::segment::{BuildError, SegmentBuilder};
use super::store::{Put, Store, StoreError};
use crate::fault;
use crate::metadata::command::{Answer, Command, CommitOrigin, NewSegment, RangeOutcome, SegmentRange};
use crate::metadata::{Metadata, ProposeError};

/// Ranges per command: a range takes at most about 60 bytes, a command at most 256 KiB.
const RANGES_PER_COMMAND: usize = 4_000;

/// One stream's share of a segment.
#[derive(Debug)]
pub struct StreamPart {
    /// The epoch its frames carry.
    pub epoch: StreamEpoch,
    /// Contiguous, from the committed end on.
    pub frames: Vec<Frame>,
    /// Dedupe state before them, then (after [`Draft::build`]) after them.
    pub dedupe: Dedupe,
}

/// Frames on their way into one segment, by stream.
#[derive(Debug, Default)]
pub struct Draft {
    parts: BTreeMap<StreamId, StreamPart>,
    payload_bytes: u64,
}

/// A segment ready to upload, and what to say of it.
#[derive(Debug)]
pub struct Built {
    /// The object.
    pub object: Bytes,
    /// For the commit, by stream.
    pub ranges: Vec<SegmentRange>,
    /// What each stream comes to once committed, in the order of `ranges`.
    pub after: Vec<After>,
}

/// A stream's state once its range is committed.
#[derive(Debug)]
pub struct After {
    /// The stream.
    pub stream: StreamId,
    /// Its committed end.
    pub end: Offset,
    /// How many frames the segment covers.
    pub frames: u64,
    /// Dedupe state at `end`.
    pub dedupe: Dedupe,
}

impl Draft {
    /// Adds a frame. `base` is asked for the stream's dedupe state before its first frame here.
    pub fn push(&mut self, frame: Frame, base: impl FnOnce() -> Dedupe) {
        self.payload_bytes += frame.payload.size() as u64;
        self.parts
            .entry(frame.stream)
            .or_insert_with(|| StreamPart { epoch: frame.epoch, frames: Vec::new(), dedupe: base() })
            .frames
            .push(frame);
    }

    /// Has frames of this stream.
    pub fn has(&self, stream: StreamId) -> bool {
        self.parts.contains_key(&stream)
    }

    /// Where the next frame of this stream has to begin, if it has frames.
    pub fn end(&self, stream: StreamId) -> Option<Offset> {
        self.parts.get(&stream)?.frames.last().map(Frame::end)
    }

    /// Nothing in it.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Payload bytes in it.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Encodes the segment. Costs about a copy and a checksum of the payload: run it off the async threads.
    pub fn build(self, stamp: &Stamp, session: SessionId, number: u64) -> Result<Built, BuildError> {
        let mut builder = SegmentBuilder::new(stamp.cluster, session, number).in_format(stamp.writing.now());
        let mut after = Vec::with_capacity(self.parts.len());
        for (stream, mut part) in self.parts {
            let news = part.frames.iter().any(|f| f.producer.is_some() || f.seq.is_some());
            for frame in &part.frames {
                part.dedupe.absorb(frame);
            }
            let frames: Vec<&Frame> = part.frames.iter().collect();
            builder.add(stream, part.epoch, &frames, news.then_some(&part.dedupe))?;
            let end = frames.last().map_or(Offset(0), |f| f.end());
            after.push(After { stream, end, frames: frames.len() as u64, dedupe: part.dedupe });
        }
        let built = builder.finish();
        Ok(Built { object: built.object, ranges: built.ranges, after })
    }
}

/// Why a commit has no result.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The store did not take the object; try again, same bytes.
    #[error("the store has not taken segment {key}: {why}")]
    Upload {
        /// The object.
        key: String,
        /// What the store said.
        why: StoreError,
    },
    /// Another object has the key: two processes write under one session, which must not be.
    #[error("segment key {0} is taken by another object")]
    KeyTaken(String),
    /// The frames are not a run of records: a fault of this process.
    #[error("cannot build a segment: {0}")]
    Build(#[from] BuildError),
    /// The metadata log did not decide; try again.
    #[error("the metadata log has not taken segment {number}: {why}")]
    Propose {
        /// The segment.
        number: u64,
        /// What the log said.
        why: ProposeError,
    },
    /// The metadata log answered something that no commit is answered with.
    #[error("unexpected answer to a commit: {0:?}")]
    Unexpected(Answer),
}

/// Stores a segment under its key. Safe to call again with the same bytes.
pub async fn upload(
    store: &Store,
    generation: u64,
    session: &SessionId,
    number: u64,
    object: Bytes,
) -> Result<(), CommitError> {
    let key = keys::segment(generation, session, number);
    let failed = |why| CommitError::Upload { key: key.clone(), why };
    match store.put_if_absent(&key, object.clone()).await.map_err(failed)? {
        Put::Stored => Ok(()),
        // An earlier try may have landed although its reply was lost.
        Put::Exists => match store.get(&key).await.map_err(failed)? {
            Some(found) if found == object => Ok(()),
            _ => Err(CommitError::KeyTaken(key)),
        },
    }
}

/// Commits an uploaded segment, split into commands of bounded size; the WAL start rides on the last.
pub async fn commit(
    metadata: &Metadata,
    origin: &CommitOrigin,
    segment: Option<NewSegment>,
    ranges: &[SegmentRange],
    wal_covered: Option<u64>,
) -> Result<Vec<RangeOutcome>, CommitError> {
    let number = segment.as_ref().map_or(0, |s| s.number);
    let mut outcomes = Vec::with_capacity(ranges.len());
    let mut parts: Vec<&[SegmentRange]> = ranges.chunks(RANGES_PER_COMMAND).collect();
    if parts.is_empty() {
        parts.push(&[]);
    }
    let last = parts.len() - 1;
    for (i, part) in parts.into_iter().enumerate() {
        fault::point("commit.before_propose");
        let command = Command::CommitSegment {
            origin: origin.clone(),
            segment: segment.clone(),
            ranges: part.to_vec(),
            wal_covered: if i == last { wal_covered } else { None },
        };
        match metadata.propose(command).await {
            Ok(Answer::Committed(part)) => outcomes.extend(part),
            Ok(other) => return Err(CommitError::Unexpected(other)),
            Err(why) => return Err(CommitError::Propose { number, why }),
        }
        fault::point("commit.after_propose");
    }
    Ok(outcomes)
}

/// How long to wait before try `n` of something that failed: 50 ms doubling to 5 s.
pub fn backoff(n: u32) -> Duration {
    Duration::from_millis(50u64.saturating_mul(1 << n.min(7)).min(5_000))
}
