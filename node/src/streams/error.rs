//! What can go wrong with a stream operation, as what the caller should do about it.
//!
//! Invariant: `Unavailable` means that nothing entered the stream's order, so a blind retry is safe; when the outcome
//! is not known the error is `OutcomeUnknown`, never a refusal. `http::error` alone turns these into status codes.

use weir_api::{Offset, SessionId};

/// Seconds after which a client may try again when nobody can say better.
pub const RETRY_AFTER_S: u32 = 1;

/// Why a stream operation has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// No stream of that name.
    #[error("no such stream")]
    NotFound,
    /// The stream was deleted; forks still need it, so its name stays taken.
    #[error("the stream was deleted")]
    Gone,
    /// Create: the name is taken by a stream of another configuration.
    #[error("the stream exists with another configuration")]
    ConfigMismatch,
    /// Append: not the stream's content type.
    #[error("the stream's content type is {expected}")]
    TypeMismatch {
        /// What the stream was created with.
        expected: String,
    },
    /// Append: the stream has ended for good.
    #[error("the stream is closed")]
    Closed {
        /// Its final offset.
        next: Offset,
    },
    /// Append: `Stream-Seq` is not above the last one.
    #[error("Stream-Seq is not above the last accepted one")]
    SeqConflict,
    /// Append: a newer epoch of this producer has spoken.
    #[error("a newer epoch of the producer has written")]
    ProducerFenced {
        /// The newest.
        epoch: u64,
    },
    /// Append: the producer left out a sequence number.
    #[error("the producer's next sequence number is {expected}")]
    ProducerGap {
        /// What would be accepted.
        expected: u64,
        /// What came.
        received: u64,
    },
    /// Append: a new producer epoch has to begin with sequence number 0.
    #[error("a new producer epoch begins with Producer-Seq 0")]
    ProducerStart,
    /// The request makes no sense; the text names the part and what is allowed.
    #[error("{0}")]
    Invalid(String),
    /// The body is over the limit.
    #[error("the body is over {max} bytes")]
    TooLarge {
        /// The limit, bytes.
        max: u64,
    },
    /// Read: records before `start` are no longer kept.
    #[error("the stream begins at {start}")]
    BeforeStart {
        /// The first offset kept.
        start: Offset,
    },
    /// Fork: not from that source, or not there.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// A limit of the service; the text names it.
    #[error("{0}")]
    Limit(String),
    /// Not now; nothing entered the order.
    #[error("{why}")]
    Unavailable {
        /// For people.
        why: String,
        /// When to try again, seconds.
        retry_after_s: u32,
    },
    /// Another session has the stream; nothing entered the order here. Ask its node.
    #[error("the stream is served by {owner}")]
    Elsewhere {
        /// Which, as of a moment ago.
        owner: SessionId,
    },
    /// It may or may not have happened.
    #[error("the outcome is not known")]
    OutcomeUnknown,
}

/// Why there is no fork.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForkError {
    /// No stream has the source's name.
    #[error("there is no stream to fork from at that path")]
    SourceMissing,
    /// The source was deleted; forks still need it.
    #[error("the stream to fork from was deleted; only the forks it had live on")]
    SourceDeleted,
    /// The fork was to have another content type than its source.
    #[error("the source's content type is {expected}: send that, or none")]
    TypeMismatch {
        /// The source's.
        expected: String,
    },
    /// The offset is beyond the source's tail.
    #[error("the source ends at offset {tail}: fork at that or a lower one")]
    BeyondTail {
        /// The source's tail.
        tail: Offset,
    },
    /// The offset is not, but the sub-offset leads there.
    #[error(
        "the source has {left} bytes (of a JSON stream: messages) after that offset, which is the most a sub-offset may be"
    )]
    SubBeyondTail {
        /// What there is after the offset.
        left: u64,
    },
    /// The records lie in too many pieces.
    #[error(
        "the source's records up to that offset lie in {extents} pieces, and a fork takes at most {max}: fork at a lower offset"
    )]
    TooManyExtents {
        /// How many.
        extents: usize,
        /// The bound.
        max: usize,
    },
}

impl StreamError {
    /// Not now, for this reason.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::Unavailable { why: why.into(), retry_after_s: RETRY_AFTER_S }
    }
}
