//! Appends in one piece, each with a connection to itself while it is under way.
//!
//! An append that passes through a node should cost little more than one that does not. So these connections are HTTP/1.1
//! and driven by the task that asks: nobody else is woken on the way there or back. Whatever waits, is long or is rare goes
//! over the shared connections of `pool`, and so does everything while there is none of those: that somebody is there is
//! found out once and not by every request.
//!
//! Invariant: as many connections as allowed; one is used again only if the answer before was read to its end, and was
//! not idle for so long that the owner is about to close it; a request is given back only if no byte of it had left. That
//! an owner closes a connection in the moment a request goes out over it cannot be excluded, as with any client: the
//! outcome of that request is unknown. Used by `pool`.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::task::noop_waker_ref;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::outgoing::Outgoing;
use crate::net::{self, TcpStream};

/// An answer to an append is a few fields, or a few sentences about what is wrong.
const ANSWER_MAX: usize = 64 << 10;

type Connection = http1::Connection<TokioIo<TcpStream>, Outgoing>;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Broken {
    /// Nothing was sent; here it is again.
    NotSent(Box<Request<Outgoing>>),
    /// It may have arrived.
    Unknown(String),
}

/// The connections to one owner.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Those that carry nothing; the one used last is last.
    idle: Mutex<Vec<Lane>>,
    all: Seats,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Lane {
    sender: http1::SendRequest<Outgoing>,
    /// `None` once it has ended.
    connection: Option<Pin<Box<Connection>>>,
    since: Instant,
    /// Here and among those of all owners.
    _seats: [Seat; 2],
}

/// How many there may be, and are.
#[derive(Debug)]
pub(super) struct Seats {
    most: usize,
    taken: Arc<AtomicUsize>,
}

/// A connection's part of them.
#[derive(Debug)]
struct Seat(Arc<AtomicUsize>);

impl Seats {
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    fn take(&self) -> Option<Seat> {
        let more = |taken: usize| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Seat(self.taken.clone()))
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lanes {
    /// At most so many.
    pub(super) fn new(most: usize) -> Self {
        Self { idle: Mutex::default(), all: Seats::new(most) }
    }

    /// One that was used within `idle` and is still there. Those that were not are closed.
    pub(super) fn take(&self, idle: Duration) -> Option<Lane> {
        let now = Instant::now();
        loop {
            let (old, last) = {
                let mut all = self.idle.lock();
                let old = all.partition_point(|lane| now.saturating_duration_since(lane.since) >= idle);
                (all.drain(..old).collect::<Vec<_>>(), all.pop())
            };
            // Closed, and looked at, without the lock.
            drop(old);
            if let Some(lane) = last?.still_there() {
                return Some(lane);
            }
        }
    }

    /// When one was last in use; `None` if there is none.
    pub(super) fn last_used(&self) -> Option<Instant> {
        let idle = self.idle.lock();
        if self.all.taken() > idle.len() {
            return Some(Instant::now());
        }
        idle.last().map(|lane| lane.since)
    }

    /// A new one; `None` if there are as many as allowed, here or among those of `everybody`, or the owner does not take it.
    pub(super) async fn open(&self, address: &str, everybody: &Seats, within: Duration) -> Option<Lane> {
        let seats = [self.all.take()?, everybody.take()?];
        let stream = net::connect(address, within).await.ok()?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        Some(Lane { sender, connection: Some(Box::pin(connection)), since: Instant::now(), _seats: seats })
    }

    /// Keeps it for the next request, if it can carry one.
    pub(super) fn put(&self, mut lane: Lane) {
        lane.since = Instant::now();
        if lane.connection.is_some() && lane.sender.is_ready() {
            self.idle.lock().push(lane);
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.all.taken()
    }
}

impl Lane {
    /// Nobody has looked at it since it was used: whether the other side has closed it is seen now.
    fn still_there(mut self) -> Option<Self> {
        self.look(&mut Context::from_waker(noop_waker_ref()));
        (self.connection.is_some() && self.sender.is_ready()).then_some(self)
    }

    fn look(&mut self, cx: &mut Context<'_>) {
        look(&mut self.connection, cx);
    }

    /// Sends a request and takes in the whole answer.
    pub(super) async fn exchange(&mut self, request: Request<Outgoing>) -> Result<Response<Bytes>, Broken> {
        let sending = self.sender.try_send_request(request);
        let response = driven(&mut self.connection, sending).await.map_err(|mut failed| {
            match failed.take_message() {
                Some(unsent) => Broken::NotSent(Box::new(unsent)),
                None => Broken::Unknown(failed.into_error().to_string()),
            }
        })?;
        let (head, body) = response.into_parts();
        let body = driven(&mut self.connection, Limited::new(body, ANSWER_MAX).collect()).await;
        let body = body.map_err(|e| Broken::Unknown(e.to_string()))?.to_bytes();
        // It is ready for the next once the connection has seen that the answer is over.
        drop(driven(&mut self.connection, self.sender.ready()).now_or_never());
        Ok(Response::from_parts(head, body))
    }
}

fn look(connection: &mut Option<Pin<Box<Connection>>>, cx: &mut Context<'_>) {
    // How it ended those hear who wait for it; dropped, it tells them.
    if connection.as_mut().is_some_and(|open| open.as_mut().poll(cx).is_ready()) {
        *connection = None;
    }
}

/// Does `work` and the connection's part in it.
async fn driven<T>(connection: &mut Option<Pin<Box<Connection>>>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|cx| {
        look(connection, cx);
        match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A request as HTTP/1.1 has it: the authority is a field.
pub(super) fn as_http1(mut request: Request<Outgoing>) -> io::Result<Request<Outgoing>> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    let authority = parts.authority.take().ok_or_else(|| io::Error::other("no authority"))?;
    parts.scheme = None;
    *request.uri_mut() = Uri::from_parts(parts).map_err(io::Error::other)?;
    let host = HeaderValue::from_str(authority.as_str()).map_err(io::Error::other)?;
    request.headers_mut().insert(HOST, host);
    Ok(request)
}
