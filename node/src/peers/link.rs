//! One connection to one address: made when a call needs it, given up when the other side is silent, made anew.
//!
//! Invariant: at most one attempt at a time, at most so many calls in flight; after a failed attempt calls fail at once
//! until a pause, which grows and is drawn at random within bounds, is over. Making a connection does not depend on the
//! deadline of the call that asked for it. Used by `super`.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::{Body, Inner};
use crate::tasks::Tasks;
use crate::{clock, net};

/// Calls in flight over one connection.
const IN_FLIGHT: usize = 256;
/// Name, connection and handshake.
const CONNECT: Duration = Duration::from_secs(3);
/// How often the other side is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(2);
/// The pause after a first failed attempt, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(400));
/// Bytes on their way to us that were not taken yet: of one answer, of all.
pub(super) const WINDOWS: (u32, u32) = (512 << 10, 8 << 20);

/// A connection, or the want of one.
pub(super) struct Link {
    address: String,
    state: watch::Sender<State>,
    places: Arc<Semaphore>,
}

#[derive(Clone)]
enum State {
    Idle,
    Connecting,
    Up(SendRequest<Body>),
    Down { why: String, until: Instant, failed: u32 },
}

impl Link {
    pub(super) fn new(address: &str) -> Self {
        let places = Arc::new(Semaphore::new(IN_FLIGHT));
        Self { address: address.to_owned(), state: watch::Sender::new(State::Idle), places }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(*self.state.borrow(), State::Up(_) | State::Connecting)
    }

    /// A connection that takes a request, and a place on it. The error says why there is none.
    pub(super) async fn ready(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
    ) -> Result<(SendRequest<Body>, OwnedSemaphorePermit), String> {
        let place = self.places.clone().acquire_owned().await.map_err(|e| e.to_string())?;
        let mut state = self.state.subscribe();
        loop {
            let now = state.borrow_and_update().clone();
            match now {
                State::Up(sender) if !sender.is_closed() => return Ok((sender, place)),
                State::Down { why, until, .. } if Instant::now() < until => return Err(why),
                State::Connecting => {}
                State::Up(_) | State::Down { .. } | State::Idle => self.connect(inner),
            }
            // The sender is `self`'s own.
            state.changed().await.map_err(|e| e.to_string())?;
        }
    }

    /// Begins an attempt unless one is under way.
    fn connect(self: &Arc<Self>, inner: &Arc<Inner>) {
        let mut failed = 0;
        let begins = self.state.send_if_modified(|state| {
            failed = match state {
                State::Connecting => return false,
                State::Up(sender) if !sender.is_closed() => return false,
                State::Down { failed, .. } => *failed,
                State::Up(_) | State::Idle => 0,
            };
            *state = State::Connecting;
            true
        });
        if begins {
            let (link, inner) = (self.clone(), inner.clone());
            inner.tasks.clone().spawn(async move { link.run(&inner, failed).await });
        }
    }

    /// One attempt, after so many that failed, and the connection's life if it succeeds.
    async fn run(&self, inner: &Inner, failed: u32) {
        let stopping = inner.tasks.stopping();
        let mut cut = inner.cut.subscribe();
        let attempt = async {
            if *inner.cut.borrow() {
                return Err("the network is cut".to_owned());
            }
            match tokio::time::timeout(CONNECT, self.handshake(&inner.tasks)).await {
                Ok(made) => made,
                Err(_late) => Err(format!("no connection within {CONNECT:?}")),
            }
        };
        let attempt = tokio::select! {
            () = stopping.cancelled() => Err("this node stops".to_owned()),
            attempt = attempt => attempt,
        };
        let (sender, connection) = match attempt {
            Ok(made) => made,
            Err(why) => {
                let until = Instant::now() + pause(failed);
                self.state.send_replace(State::Down { why, until, failed: failed.saturating_add(1) });
                return;
            }
        };
        self.state.send_replace(State::Up(sender));
        tokio::select! {
            () = stopping.cancelled() => {}
            _ = cut.wait_for(|cut| *cut) => {}
            ended = connection => if let Err(error) = ended {
                tracing::debug!(address = self.address, error = chain(&error), "a connection to a peer has ended");
            }
        }
        self.state.send_replace(State::Idle);
    }

    async fn handshake(&self, tasks: &Tasks) -> Result<(SendRequest<Body>, Connection), String> {
        let stream = net::connect(&self.address, CONNECT).await.map_err(|e| e.to_string())?;
        let mut http = http2::Builder::new(OnTasks(tasks.clone()));
        http.timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1);
        http.handshake(TokioIo::new(stream)).await.map_err(|e| chain(&e))
    }
}

/// Half of the pause at least, the rest by chance: nodes that lost the same peer do not return in step.
fn pause(failed: u32) -> Duration {
    let whole = PAUSE.0.saturating_mul(1 << failed.min(8)).min(PAUSE.1);
    let half = u64::try_from(whole.as_millis() / 2).unwrap_or(u64::MAX).max(1);
    Duration::from_millis(half + clock::random_u64() % half)
}

type Connection = http2::Connection<TokioIo<net::TcpStream>, Body, OnTasks>;

/// Where HTTP/2 runs its own tasks.
#[derive(Clone)]
pub(super) struct OnTasks(pub(super) Tasks);

impl<F> Executor<F> for OnTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, work: F) {
        self.0.spawn(work);
    }
}

/// An error with its causes.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
