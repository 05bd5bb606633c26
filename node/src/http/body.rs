//! Bodies: what a response sends, and how a request's is taken in.
//!
//! Invariant: a response's length is known before its first byte, unless it is a live one or comes from another node; a
//! request body takes no more than the limit, no longer than its time, and no more memory than this node sets aside for
//! all bodies together. Called by every verb.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::Stream;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::Reject;
use super::forward::Through;

/// A response's body.
#[derive(Debug)]
pub(crate) enum Body {
    /// All of it is here.
    Known(Parts),
    /// It is made as the client takes it.
    Live(Live),
    /// It comes from another node.
    Through(Box<Through>),
}

/// Parts sent as they are, one after another.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    first: Bytes,
    rest: VecDeque<Bytes>,
    left: u64,
}

/// Bytes to come.
pub(crate) struct Live(Pin<Box<dyn Stream<Item = Bytes> + Send>>);

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Live")
    }
}

impl Body {
    /// No bytes.
    pub(crate) fn empty() -> Self {
        Self::Known(Parts::default())
    }

    /// Bytes of the program.
    pub(crate) fn from_static(bytes: &'static [u8]) -> Self {
        Self::from(Bytes::from_static(bytes))
    }

    /// Parts, none of them copied.
    pub(crate) fn parts(parts: VecDeque<Bytes>) -> Self {
        let left = parts.iter().map(|p| p.len() as u64).sum();
        Self::Known(Parts { first: Bytes::new(), rest: parts, left })
    }

    /// Whatever the stream brings, until it ends.
    pub(crate) fn live(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::Live(Live(Box::pin(stream)))
    }

    /// What another node sends.
    pub(crate) fn through(through: Through) -> Self {
        Self::Through(Box::new(through))
    }
}

impl From<Bytes> for Body {
    fn from(first: Bytes) -> Self {
        let left = first.len() as u64;
        Self::Known(Parts { first, rest: VecDeque::new(), left })
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(Bytes::from(bytes))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let next = match self.get_mut() {
            Self::Known(parts) => parts.next(),
            Self::Live(live) => ready!(live.0.as_mut().poll_next(cx)),
            Self::Through(through) => return Pin::new(&mut **through).poll_frame(cx),
        };
        Poll::Ready(next.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Known(parts) => parts.left == 0,
            Self::Live(_) => false,
            Self::Through(through) => through.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Known(parts) => SizeHint::with_exact(parts.left),
            Self::Live(_) => SizeHint::default(),
            Self::Through(through) => through.size_hint(),
        }
    }
}

impl Parts {
    fn next(&mut self) -> Option<Bytes> {
        loop {
            let part = std::mem::take(&mut self.first);
            if !part.is_empty() {
                self.left -= part.len() as u64;
                return Some(part);
            }
            self.first = self.rest.pop_front()?;
        }
    }
}

/// Up to this a body costs no part of the budget: the bound on connections bounds those.
const FREE_BYTES: usize = 16 << 10;
/// What the budget is counted in.
const UNIT: usize = 16 << 10;

/// The memory that request bodies may take together.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Semaphore>);

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        let units = usize::try_from(bytes / UNIT as u64).unwrap_or(Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(units.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Takes what `held` lacks for a body of `bytes`.
    fn cover(&self, held: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> Result<(), Reject> {
        if bytes <= FREE_BYTES {
            return Ok(());
        }
        let have = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.div_ceil(UNIT).saturating_sub(have);
        if more == 0 {
            return Ok(());
        }
        let busy = |_e| Reject::Busy("this node holds as many request bodies as it may; nothing was done");
        let more = u32::try_from(more).map_err(|_e| Reject::Busy("the body does not fit in memory"))?;
        let permit = self.0.clone().try_acquire_many_owned(more).map_err(busy)?;
        match held {
            Some(held) => held.merge(permit),
            None => *held = Some(permit),
        }
        Ok(())
    }
}

/// A request's body, whole. Keep it until the request is done: it holds its part of the budget.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The bytes.
    pub(crate) bytes: Bytes,
    /// The bytes may share a larger buffer, which they would keep alive.
    pub(crate) shared: bool,
    _part: Option<OwnedSemaphorePermit>,
}

impl Taken {
    /// The bytes, in a buffer that holds little more than them.
    pub(crate) fn owned(&self) -> Bytes {
        // A large part fills most of the buffer that it was read into.
        if self.shared && self.bytes.len() < FREE_BYTES {
            Bytes::copy_from_slice(&self.bytes)
        } else {
            self.bytes.clone()
        }
    }
}

/// Takes in `body`, at most `max` bytes within `deadline`.
pub(crate) async fn take<B>(
    body: &mut B,
    max: u64,
    deadline: Duration,
    budget: &Budget,
) -> Result<Taken, Reject>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::error::Error,
{
    if body.size_hint().lower() > max {
        return Err(Reject::TooLarge { max });
    }
    if body.is_end_stream() {
        return Ok(Taken { bytes: Bytes::new(), shared: false, _part: None });
    }
    let late = |_e| Reject::BodyTimeout;
    tokio::time::timeout(deadline, take_all(body, max, budget)).await.map_err(late)?
}

async fn take_all<B>(body: &mut B, max: u64, budget: &Budget) -> Result<Taken, Reject>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::error::Error,
{
    let expected = body.size_hint().exact().and_then(|n| usize::try_from(n).ok());
    let mut part = None;
    let Some(first) = next_data(body).await? else {
        return Ok(Taken { bytes: Bytes::new(), shared: false, _part: None });
    };
    if first.len() as u64 > max {
        return Err(Reject::TooLarge { max });
    }
    budget.cover(&mut part, first.len())?;
    if expected == Some(first.len()) {
        return Ok(Taken { bytes: first, shared: true, _part: part });
    }
    // The claimed length is not believed before the bytes come.
    let mut all = BytesMut::with_capacity(expected.unwrap_or(0).min(4 * FREE_BYTES).max(first.len()));
    all.extend_from_slice(&first);
    drop(first);
    while let Some(data) = next_data(body).await? {
        if all.len() as u64 + data.len() as u64 > max {
            return Err(Reject::TooLarge { max });
        }
        budget.cover(&mut part, all.len() + data.len())?;
        all.extend_from_slice(&data);
    }
    Ok(Taken { bytes: all.freeze(), shared: false, _part: part })
}

/// The next bytes; trailers are passed over.
pub(crate) async fn next_data<B>(body: &mut B) -> Result<Option<Bytes>, Reject>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::error::Error,
{
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Reject::BodyBroken(innermost(&e)))?;
        if let Ok(data) = frame.into_data()
            && !data.is_empty()
        {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

/// Reads and drops what is left of `body` if that is at most `max` bytes and comes within `deadline`; else `false`.
pub(crate) async fn drain<B>(body: &mut B, max: u64, deadline: Duration) -> bool
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::error::Error,
{
    if body.size_hint().lower() > max {
        return false;
    }
    let all = async {
        let mut seen = 0;
        loop {
            match next_data(body).await {
                Ok(Some(data)) if seen + data.len() as u64 <= max => seen += data.len() as u64,
                Ok(None) => return true,
                Ok(Some(_)) | Err(_) => return false,
            }
        }
    };
    tokio::time::timeout(deadline, all).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    async fn whole(body: Body) -> Vec<u8> {
        body.collect().await.expect("it is all here").to_bytes().to_vec()
    }

    #[tokio::test]
    async fn parts_are_sent_in_order_and_their_length_is_known() {
        let parts: VecDeque<Bytes> = ["[", "", "1,", "2", "]"].into_iter().map(Bytes::from).collect();
        let body = Body::parts(parts);
        assert_eq!(body.size_hint().exact(), Some(5));
        assert_eq!(whole(body).await, b"[1,2]");
        assert!(Body::empty().is_end_stream());
        assert_eq!(whole(Body::from(b"abc".to_vec())).await, b"abc");
    }

    #[tokio::test]
    async fn the_budget_is_given_back_and_small_bodies_are_free() {
        let budget = Budget::new(2 * UNIT as u64);
        let day = Duration::from_secs(86_400);
        let large = vec![7; 2 * UNIT];
        let kept = take(&mut Full::from(large.clone()), 1 << 20, day, &budget).await.expect("fits");
        assert_eq!(kept.bytes, large);
        let busy = take(&mut Full::from(large.clone()), 1 << 20, day, &budget).await;
        assert!(matches!(busy, Err(Reject::Busy(_))), "{busy:?}");
        let small = take(&mut Full::from(vec![1; 100]), 1 << 20, day, &budget).await.expect("free");
        assert_eq!(small.owned(), vec![1; 100]);
        drop(kept);
        take(&mut Full::from(large), 1 << 20, day, &budget).await.expect("given back");
    }

    #[tokio::test]
    async fn the_limit_is_exact() {
        let budget = Budget::new(1 << 20);
        let day = Duration::from_secs(86_400);
        assert!(take(&mut Full::from(vec![0; 10]), 10, day, &budget).await.is_ok());
        let over = take(&mut Full::from(vec![0; 11]), 10, day, &budget).await;
        assert!(matches!(over, Err(Reject::TooLarge { max: 10 })));
    }
}
