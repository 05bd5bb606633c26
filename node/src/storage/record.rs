//! What a WAL object holds: frames, and the producer and sequence state that rides with them.
//!
//! Invariant: a frame is everything that one accepted append changes; replaying a stream's frames in order over its
//! last committed state gives the state its owner had. Pure: bytes in `codec` functions beside the types. Built by
//! `streams`, written by `wal`, replayed by `recovery`.

pub mod codec;

use bytes::Bytes;
use weir_api::{Offset, StreamEpoch, StreamId};

use crate::metadata::command::StreamConfig;

/// One accepted append (or close, or birth).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The stream.
    pub stream: StreamId,
    /// The epoch at which it was open.
    pub epoch: StreamEpoch,
    /// The tail before this frame.
    pub offset: Offset,
    /// What it adds; may be empty.
    pub payload: Payload,
    /// The producer that sent it, if it said so.
    pub producer: Option<ProducerStamp>,
    /// Its `Stream-Seq`, if any.
    pub seq: Option<Bytes>,
    /// It closes the stream.
    pub closes: bool,
    /// It gives an unborn stream its birth.
    pub births: bool,
    /// The stream's name and configuration: on its first frame in a session.
    pub intro: Option<Intro>,
}

impl Frame {
    /// The tail after this frame.
    pub fn end(&self) -> Offset {
        Offset(self.offset.0 + self.payload.length())
    }
}

/// A stream's name and configuration, so that a bucket explains itself without the metadata log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intro {
    /// The name.
    pub name: std::sync::Arc<str>,
    /// The configuration.
    pub config: std::sync::Arc<StreamConfig>,
}

/// A run of stream content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Bytes; one offset each.
    Bytes(Bytes),
    /// JSON elements; one offset each. `text` is every element's own text followed by one comma, so that any run of
    /// elements is a slice; `ends` are the positions in `text` after each element's comma.
    Json {
        /// The elements.
        text: Bytes,
        /// Where each ends (after its comma), strictly increasing, the last equal to `text.len()`.
        ends: std::sync::Arc<[u32]>,
    },
}

impl Payload {
    /// How many offsets it spans.
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(b) => b.len() as u64,
            Self::Json { ends, .. } => ends.len() as u64,
        }
    }

    /// How many bytes it holds.
    pub fn size(&self) -> usize {
        match self {
            Self::Bytes(b) => b.len(),
            Self::Json { text, .. } => text.len(),
        }
    }
}

/// An idempotent producer's stamp on one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerStamp {
    /// Chosen by the client, 1 to 256 bytes.
    pub id: std::sync::Arc<str>,
    /// At most 2^53 - 1.
    pub epoch: u64,
    /// At most 2^53 - 1.
    pub seq: u64,
}

/// A stream's producer and sequence state: what makes a retry a duplicate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dedupe {
    /// Each producer's last accepted epoch and sequence number.
    pub producers: imbl::OrdMap<std::sync::Arc<str>, ProducerState>,
    /// The last accepted `Stream-Seq`.
    pub last_seq: Option<Bytes>,
    /// The stamp of the request that closed the stream.
    pub closed_by: Option<ProducerStamp>,
}

/// See [`Dedupe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerState {
    /// Its epoch.
    pub epoch: u64,
    /// Its last accepted sequence number.
    pub seq: u64,
}

impl Dedupe {
    /// Replays one frame.
    pub fn absorb(&mut self, frame: &Frame) {
        if let Some(p) = &frame.producer {
            self.producers.insert(p.id.clone(), ProducerState { epoch: p.epoch, seq: p.seq });
        }
        if let Some(seq) = &frame.seq {
            self.last_seq = Some(seq.clone());
        }
        if frame.closes {
            self.closed_by = frame.producer.clone();
        }
    }

    /// Nothing to remember.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.last_seq.is_none() && self.closed_by.is_none()
    }
}
