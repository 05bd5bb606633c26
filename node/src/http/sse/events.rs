//! One reader's event stream: what it is sent next, and when it ends.
//!
//! Invariant: every data event is followed by a control event that says where it ends; a claim to be at the tail is
//! true when it is made (I3); offsets and cursors never go back. A reader holds no queue: it takes what lies beyond its
//! offset when its connection takes bytes, and of what it does not share with others one chunk at a time. Polled by
//! the connection, as a body.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use weir_api::Offset;

use super::encode::{self, CONTROL_BYTES, Coding, Control};
use super::share::{self, Piece, Shelf};
use crate::clock::{self, Clock};
use crate::http::live;
use crate::metrics::LiveReader;
use crate::streams::{Claim, Follower, Look, ReadChunk};

/// About the most content in one event, bytes. What a reader holds that does not read is a small multiple of it.
pub(super) const CHUNK: usize = 64 << 10;

/// From this size on one piece is on its way at a time. hyper takes up to 16 pieces ahead of the socket, which for
/// small ones is little.
const LARGE: usize = 4 << 10;

/// Says that the connection is alive.
const COMMENT: Bytes = Bytes::from_static(b": \n\n");

/// After its stream was released, a reader is sent away within this part of its lifetime.
const AFTER_RELEASE: u32 = 6;

/// What a reader is given.
pub(super) struct Place {
    pub(super) streams: Follower,
    pub(super) shelf: Arc<Shelf>,
    pub(super) clock: Clock,
    /// Of the first control event.
    pub(super) cursor: u64,
    pub(super) lifetime: Duration,
    pub(super) keep_alive: Duration,
    /// For a read of history.
    pub(super) patience: Duration,
    pub(super) counted: (OwnedSemaphorePermit, LiveReader),
}

/// See the file.
pub(super) struct Events {
    streams: Follower,
    shelf: share::Place,
    clock: Clock,
    coding: Coding,
    /// Read before the response began.
    first: Option<ReadChunk>,
    /// Everything below is sent.
    at: Offset,
    /// What lies between `at` and here is the beginning of a character.
    unfinished: Offset,
    /// What the last control event claimed; `None` before the first.
    told: Option<Claim>,
    cursor: u64,
    was_open: bool,
    /// What the last step went by. As long as that holds, another comes to the same.
    seen: Option<Look>,
    /// The last step sent all there was and told that it is all: unless the stream looks otherwise by now, there is
    /// nothing to do but wait.
    rests: bool,
    flight: Arc<Flight>,
    timer: Pin<Box<Sleep>>,
    ends: Instant,
    sent: Instant,
    keep_alive: Duration,
    patience: Duration,
    _counted: (OwnedSemaphorePermit, LiveReader),
}

/// What to do next.
enum Next {
    Send(Bytes),
    Wait,
}

/// The response ends.
struct End;

/// Why there is no piece in memory.
enum NoPiece {
    /// It is in segments.
    Below,
    /// Only the beginning of a character.
    Unfinished,
}

impl Events {
    /// Events from `first` on.
    pub(super) fn begin(
        place: Place,
        coding: Coding,
        first: ReadChunk,
    ) -> impl Stream<Item = Bytes> + Send + use<> {
        let now = place.clock.monotonic();
        let ends = now + place.lifetime;
        let this = Self {
            streams: place.streams,
            shelf: share::Place::at(place.shelf),
            coding,
            at: first.start,
            unfinished: first.start,
            first: Some(first),
            told: None,
            cursor: place.cursor,
            was_open: false,
            seen: None,
            rests: false,
            flight: Arc::default(),
            timer: Box::pin(sleep_until(ends.min(now + place.keep_alive))),
            ends,
            sent: now,
            keep_alive: place.keep_alive,
            patience: place.patience,
            clock: place.clock,
            _counted: place.counted,
        };
        futures::stream::unfold(this, Self::next)
    }

    async fn next(mut self) -> Option<(Bytes, Self)> {
        let bytes = self.wait_for_next().await?;
        self.sent = self.clock.monotonic();
        Some((bytes, self))
    }

    async fn wait_for_next(&mut self) -> Option<Bytes> {
        loop {
            // Until the connection has taken the last large piece there is no use in another.
            self.flight.landed().await;
            if self.told == Some(Claim::Closed) || self.is_over() {
                return None;
            }
            let next = match self.first.take() {
                Some(chunk) => self.send_chunk(chunk),
                None if std::mem::take(&mut self.rests) => Ok(Next::Wait),
                None => self.step().await,
            };
            match next {
                Ok(Next::Send(bytes)) => return Some(bytes),
                Ok(Next::Wait) => {}
                Err(End) => return None,
            }
            let (streams, timer) = (&self.streams, &mut self.timer);
            let news = streams.news(self.seen);
            let timed_out = tokio::select! {
                () = news => false,
                () = timer.as_mut() => true,
            };
            if timed_out && let ControlFlow::Break(bytes) = self.tick() {
                return bytes;
            }
        }
    }

    /// The node leaves, or the response has lasted long enough.
    fn is_over(&self) -> bool {
        self.streams.leaving() || self.clock.monotonic() >= self.ends
    }

    /// The timer went off: for the end, for a sign of life, or too early because something was sent meanwhile.
    fn tick(&mut self) -> ControlFlow<Option<Bytes>> {
        let now = self.clock.monotonic();
        if now >= self.ends {
            return ControlFlow::Break(None);
        }
        let quiet = now >= self.sent + self.keep_alive;
        let from = if quiet { now } else { self.sent };
        self.timer.as_mut().reset(self.ends.min(from + self.keep_alive));
        if quiet { ControlFlow::Break(Some(COMMENT)) } else { ControlFlow::Continue(()) }
    }

    /// Looks what there is to send.
    async fn step(&mut self) -> Result<Next, End> {
        let look = self.streams.look();
        self.seen = Some(look);
        let (end, closed) = match look {
            Look::Gone => return Err(End),
            Look::Open(durable) => {
                self.was_open = true;
                (durable.end, durable.closed)
            }
            Look::Idle { end, closed } => {
                self.released();
                (end, closed)
            }
        };
        let more = end > self.unfinished || (closed && end > self.at);
        if !more {
            return if self.was_open { Ok(self.claim()) } else { self.claim_released(closed).await };
        }
        if !self.was_open {
            return self.catch_up().await;
        }
        let (at, coding, streams) = (self.at, self.coding, &self.streams);
        let found = self.shelf.take(at, || {
            let mut parts = streams.recent(at, CHUNK).ok_or(NoPiece::Below)?;
            if coding == Coding::Text && !closed {
                let unfinished = encode::unfinished(&parts, false);
                encode::cut(&mut parts, unfinished);
            }
            if parts.is_empty() { Err(NoPiece::Unfinished) } else { Ok(Piece::new(at, coding, parts)) }
        });
        match found {
            Ok(piece) => {
                let bytes = self.shared(&piece);
                self.rests = piece.next == end && self.told == Some(Claim::UpToDate);
                Ok(Next::Send(bytes))
            }
            Err(NoPiece::Below) => self.catch_up().await,
            Err(NoPiece::Unfinished) => {
                self.unfinished = end;
                Ok(self.claim())
            }
        }
    }

    /// The stream is not open here any more. It may open again, here or elsewhere, so that readers are sent to look;
    /// not all at once, as thousands of streams may be released together.
    fn released(&mut self) {
        if std::mem::take(&mut self.was_open) {
            let soon = (self.ends - self.clock.monotonic()) / AFTER_RELEASE;
            let part = f64::from(u32::try_from(clock::random_u64() % 1000).unwrap_or(0)) / 1000.0;
            self.ends = self.clock.monotonic() + soon.mul_f64(part);
            let next = self.ends.min(self.sent + self.keep_alive);
            self.timer.as_mut().reset(next);
        }
    }

    /// Sends what others send too.
    fn shared(&mut self, piece: &Piece) -> Bytes {
        let claim = self.streams.claim(piece.next);
        self.at = piece.next;
        self.unfinished = piece.next;
        self.told = Some(claim);
        let wire = piece.wire(claim, self.now());
        let (bytes, cursor) = wire.whole();
        if cursor >= self.cursor || claim == Claim::Closed {
            self.cursor = self.cursor.max(cursor);
            return if bytes.len() < LARGE { bytes } else { self.flight.take_off(bytes) };
        }
        // This reader has a later cursor: the control event is its own.
        let mut own = Vec::with_capacity(wire.data().len() + CONTROL_BYTES);
        own.extend_from_slice(wire.data());
        self.control(&mut own, claim);
        self.flight.take_off(own.into())
    }

    /// Nothing to send here but where the reader stands, if that is news.
    fn claim(&mut self) -> Next {
        let claim = self.streams.claim(self.at);
        if self.told.is_some() && (claim == Claim::Nothing || self.told == Some(claim)) {
            return Next::Wait;
        }
        let mut out = Vec::with_capacity(CONTROL_BYTES);
        self.control(&mut out, claim);
        Next::Send(out.into())
    }

    /// The same where it takes a look at the metadata log.
    async fn claim_released(&mut self, closed: bool) -> Result<Next, End> {
        match self.told {
            Some(Claim::UpToDate) if !closed => Ok(Next::Wait),
            _ => self.catch_up().await,
        }
    }

    /// Reads what is not in memory, or not here.
    async fn catch_up(&mut self) -> Result<Next, End> {
        // In a box, for a reader at the tail is not to carry the room for it.
        match timeout(self.patience, Box::pin(self.streams.read(self.at, CHUNK))).await {
            Ok(Ok(Some(chunk))) => self.send_chunk(chunk),
            // It is gone, or cannot be read now: the client asks again, and is told why.
            Ok(Ok(None) | Err(_)) | Err(_) => Err(End),
        }
    }

    fn send_chunk(&mut self, mut chunk: ReadChunk) -> Result<Next, End> {
        if chunk.start != self.at {
            return Err(End);
        }
        if self.coding == Coding::Text && !chunk.closed {
            let unfinished = encode::unfinished(&chunk.parts, !chunk.up_to_date);
            encode::cut(&mut chunk.parts, unfinished);
        }
        let length: u64 = chunk.parts.iter().map(crate::storage::record::Payload::length).sum();
        self.at = Offset(chunk.start.0 + length);
        // If there is more, it may finish the character.
        self.unfinished = if chunk.up_to_date { chunk.next } else { self.at };
        let claim = match (chunk.closed, chunk.up_to_date) {
            _ if self.at != chunk.next => Claim::Nothing,
            (true, _) => Claim::Closed,
            (false, true) => Claim::UpToDate,
            (false, false) => Claim::Nothing,
        };
        if chunk.parts.is_empty() {
            if self.told.is_some() && (claim == Claim::Nothing || self.told == Some(claim)) {
                return Ok(Next::Wait);
            }
            let mut out = Vec::with_capacity(CONTROL_BYTES);
            self.control(&mut out, claim);
            return Ok(Next::Send(out.into()));
        }
        let mut out = Vec::new();
        encode::data(&mut out, self.coding, &chunk.parts);
        self.control(&mut out, claim);
        Ok(Next::Send(self.flight.take_off(out.into())))
    }

    fn control(&mut self, out: &mut Vec<u8>, claim: Claim) {
        self.told = Some(claim);
        self.cursor = self.cursor.max(self.now());
        encode::control(out, &Control { next: self.at, claim, cursor: self.cursor });
    }

    fn now(&self) -> u64 {
        live::cursor(self.clock.wall_ms(), None, 0)
    }
}

/// Whether a piece is on its way to the client.
#[derive(Debug, Default)]
struct Flight {
    up: AtomicBool,
    landing: Notify,
}

/// The piece's bytes; the connection drops them when it has written them.
struct Passenger {
    bytes: Bytes,
    flight: Arc<Flight>,
}

impl AsRef<[u8]> for Passenger {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Passenger {
    fn drop(&mut self) {
        self.flight.up.store(false, Ordering::Release);
        self.flight.landing.notify_one();
    }
}

impl Flight {
    fn take_off(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.up.store(true, Ordering::Release);
        Bytes::from_owner(Passenger { bytes, flight: self.clone() })
    }

    async fn landed(&self) {
        while self.up.load(Ordering::Acquire) {
            self.landing.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn the_next_chunk_waits_until_the_last_byte_of_this_one_is_gone() {
        let flight = Arc::new(Flight::default());
        assert!(flight.landed().now_or_never().is_some());
        let mut bytes = flight.take_off(Bytes::from_static(&[7; 10]));
        let first = bytes.split_to(4);
        drop(first);
        assert!(flight.landed().now_or_never().is_none());
        drop(bytes);
        assert!(flight.landed().now_or_never().is_some());
        assert!(flight.landed().now_or_never().is_some());
    }
}
