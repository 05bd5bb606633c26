//! An open stream's log as a pure value: what the next append may be, and what it changes.
//!
//! Invariant (I3, I4): `check` takes `&self` and decides everything; `accept` cannot fail. One accepted append is one
//! [`Frame`]; absorbing a stream's frames over its last committed state gives exactly this value again, which is how
//! recovery finds what the owner knew. Called by [`super::open::OpenStream`] under its lock.

use bytes::Bytes;
use weir_api::Offset;

use super::error::StreamError;
use crate::storage::record::{Dedupe, Frame, Payload, ProducerStamp, ProducerState};

/// One append as the client asked for it.
#[derive(Debug, Clone)]
pub struct Append {
    /// What to add. `None`: nothing, only close. `Err`: the content is bad; answer that unless the stream is closed.
    pub content: Option<Result<Payload, StreamError>>,
    /// An idempotent producer's stamp.
    pub producer: Option<ProducerStamp>,
    /// `Stream-Seq`.
    pub seq: Option<Bytes>,
    /// Close the stream with this request.
    pub closes: bool,
}

/// What an accepted append (or a duplicate of one) comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// It had been accepted before.
    pub duplicate: bool,
    /// The tail after it; for a duplicate the tail now.
    pub next: Offset,
    /// The stream is closed.
    pub closed: bool,
    /// For a request with a producer: the highest accepted epoch and sequence number.
    pub producer: Option<ProducerState>,
}

/// What `check` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Append it.
    Accept,
    /// It is in the log already (or, close-only, has nothing left to do).
    Already(Appended),
}

/// Tail, closure, birth and dedupe state of an open stream, frames not yet durable included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamLog {
    /// The next offset.
    pub tail: Offset,
    /// Ended for good.
    pub closed: bool,
    /// Has had its first bytes (or needs none).
    pub born: bool,
    /// Producer and sequence state.
    pub dedupe: Dedupe,
}

impl StreamLog {
    /// Decides on `append`. `max_producers` bounds how many producer ids a stream remembers.
    pub fn check(&self, append: &Append, max_producers: usize) -> Result<Verdict, StreamError> {
        if !self.born {
            return Err(StreamError::NotFound);
        }
        if self.closed {
            return self.check_closed(append);
        }
        if let Some(Err(bad)) = &append.content {
            return Err(bad.clone());
        }
        if let Some(stamp) = &append.producer
            && let Some(seen) = self.check_producer(stamp, max_producers)?
        {
            return Ok(Verdict::Already(self.already(Some(seen))));
        }
        match (&append.seq, &self.dedupe.last_seq) {
            (Some(new), Some(last)) if new <= last => Err(StreamError::SeqConflict),
            _ => Ok(Verdict::Accept),
        }
    }

    /// A closed stream knows the request that closed it, and a plain close is repeatable; all else is refused.
    fn check_closed(&self, append: &Append) -> Result<Verdict, StreamError> {
        match &append.producer {
            Some(stamp) if self.dedupe.closed_by.as_ref() == Some(stamp) => {
                let seen = ProducerState { epoch: stamp.epoch, seq: stamp.seq };
                Ok(Verdict::Already(self.already(Some(seen))))
            }
            None if append.content.is_none() && append.closes => Ok(Verdict::Already(self.already(None))),
            _ => Err(StreamError::Closed { next: self.tail }),
        }
    }

    /// `Some` if the stamp is a duplicate, with the highest accepted one; `None` if it is the next.
    fn check_producer(
        &self,
        stamp: &ProducerStamp,
        max_producers: usize,
    ) -> Result<Option<ProducerState>, StreamError> {
        let Some(known) = self.dedupe.producers.get(&stamp.id) else {
            if stamp.seq != 0 {
                return Err(StreamError::ProducerGap { expected: 0, received: stamp.seq });
            }
            if self.dedupe.producers.len() >= max_producers {
                return Err(StreamError::Limit(format!(
                    "the stream remembers {max_producers} producer ids, which is the limit: reuse one, with a higher epoch"
                )));
            }
            return Ok(None);
        };
        if stamp.epoch < known.epoch {
            return Err(StreamError::ProducerFenced { epoch: known.epoch });
        }
        if stamp.epoch > known.epoch {
            return if stamp.seq == 0 { Ok(None) } else { Err(StreamError::ProducerStart) };
        }
        if stamp.seq <= known.seq {
            return Ok(Some(*known));
        }
        if stamp.seq == known.seq + 1 {
            return Ok(None);
        }
        Err(StreamError::ProducerGap { expected: known.seq + 1, received: stamp.seq })
    }

    fn already(&self, producer: Option<ProducerState>) -> Appended {
        Appended { duplicate: true, next: self.tail, closed: self.closed, producer }
    }

    /// Takes a frame that was checked and begins at the tail.
    pub fn accept(&mut self, frame: &Frame) -> Appended {
        debug_assert_eq!(frame.offset, self.tail, "frames are contiguous");
        self.tail = frame.end();
        self.closed |= frame.closes;
        self.born |= frame.births;
        self.dedupe.absorb(frame);
        let producer = frame.producer.as_ref().map(|p| ProducerState { epoch: p.epoch, seq: p.seq });
        Appended { duplicate: false, next: self.tail, closed: self.closed, producer }
    }
}

#[cfg(test)]
mod tests;
