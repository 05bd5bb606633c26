//! An answer's body on its way from the owner to the client.
//!
//! Invariant: nothing is gathered: a part is asked for when the client has taken the one before. If the owner goes in
//! the middle, or is silent for too long, the client's connection is cut, so that a part never looks like the whole; if
//! the client goes, this is dropped and the owner told. When the node stops, or the owner's session is over, an event
//! stream ends between two events.
//! Made by `forward`, sent as a [`super::super::body::Body`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::pool::Place;
use crate::metrics::{Forwarded, Metrics};

/// When an event stream is to end.
pub(super) type End = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// See the file.
pub(crate) struct Through {
    from: Incoming,
    _place: Place,
    metrics: Metrics,
    /// How long the owner may send nothing.
    patience: Duration,
    silence: Pin<Box<Sleep>>,
    /// The silence began when this was last set.
    waiting: bool,
    /// For an event stream: when to end, and how the last part ended.
    events: Option<Events>,
    failed: bool,
}

struct Events {
    stop: End,
    stopped: bool,
    /// The last two bytes.
    last: [u8; 2],
}

impl Events {
    /// Nothing of an event that has begun is missing.
    fn between(&self) -> bool {
        self.last == *b"\n\n"
    }

    fn passed(&mut self, part: &[u8]) {
        if let Some(last) = part.last_chunk::<2>() {
            self.last = *last;
        } else if let [one] = part {
            self.last = [self.last[1], *one];
        }
    }
}

impl Through {
    /// `stop`: for an event stream, when to end it.
    pub(super) fn new(
        from: Incoming,
        place: Place,
        metrics: Metrics,
        patience: Duration,
        stop: Option<End>,
    ) -> Self {
        let events = stop.map(|stop| Events { stop, stopped: false, last: *b"\n\n" });
        let silence = Box::pin(sleep(patience));
        Self { from, _place: place, metrics, patience, silence, waiting: false, events, failed: false }
    }

    fn cut(&mut self, why: io::Error) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.failed = true;
        self.metrics.forwarded(Forwarded::Cut);
        Poll::Ready(Some(Err(why)))
    }
}

impl std::fmt::Debug for Through {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Through").field("from", &self.from).finish_non_exhaustive()
    }
}

impl Body for Through {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        if this.failed {
            return Poll::Ready(None);
        }
        if let Some(events) = &mut this.events {
            events.stopped = events.stopped || events.stop.as_mut().poll(cx).is_ready();
            if events.stopped && events.between() {
                return Poll::Ready(None);
            }
        }
        match Pin::new(&mut this.from).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.waiting = false;
                if let (Some(events), Some(part)) = (&mut this.events, frame.data_ref()) {
                    events.passed(part);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(e))) => this.cut(io::Error::other(e)),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                if !this.waiting {
                    this.waiting = true;
                    let until = Instant::now() + this.patience;
                    this.silence.as_mut().reset(until);
                }
                ready!(this.silence.as_mut().poll(cx));
                this.cut(io::Error::new(io::ErrorKind::TimedOut, "the owner stopped sending"))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.failed || self.from.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.events.is_some() { SizeHint::default() } else { self.from.size_hint() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_event_stream_is_between_events_after_an_empty_line() {
        let stop = tokio_util::sync::CancellationToken::new().cancelled_owned();
        let mut events = Events { stop: Box::pin(stop), stopped: false, last: *b"\n\n" };
        for (part, between) in [
            ("", true),
            ("event: data\n", false),
            ("data: x\n\n", true),
            ("data: y", false),
            ("\n", false),
            ("\n", true),
            (": comment\n", false),
            ("\n", true),
        ] {
            events.passed(part.as_bytes());
            assert_eq!(events.between(), between, "{part:?}");
        }
    }
}
