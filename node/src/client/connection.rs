//! One HTTP/1.1 exchange, on a kept connection or a new one.
//!
//! Invariant: every wait has a deadline; "not sent" is said only if no byte of the request can have been acted on; a
//! connection is used again only after the answer before was read to its end. Used by `send`.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use super::origin::Origin;
use crate::clock::Clock;
use crate::net;
use crate::tasks::Tasks;

/// For a connection to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// For more of an answer's body to come.
pub(super) const BODY_IDLE: Duration = Duration::from_secs(30);
/// A kept connection is not used after it was idle for so long: servers close idle ones, and a request that meets the
/// end half way has no known outcome.
const KEPT: Duration = Duration::from_secs(10);
/// Idle connections kept.
const KEPT_MAX: usize = 4;

type Sender = SendRequest<Full<Bytes>>;

/// Why an exchange has no answer.
#[derive(Debug)]
pub(super) enum Broken {
    /// The server has acted on nothing.
    NotSent(String),
    /// It may have.
    Cut(String),
}

/// Idle connections, and what makes new ones.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    tasks: Tasks,
    clock: Clock,
    idle: Arc<Mutex<Vec<Idle>>>,
}

#[derive(Debug)]
struct Idle {
    address: String,
    sender: Sender,
    since: Instant,
}

impl Pool {
    pub(super) fn new(tasks: Tasks, clock: Clock) -> Self {
        Self { tasks, clock, idle: Arc::default() }
    }

    /// Sends a request and waits until `end` for the head of its answer.
    pub(super) async fn exchange(
        &self,
        origin: &Origin,
        request: Request<Full<Bytes>>,
        end: Instant,
    ) -> Result<(response::Parts, Body), Broken> {
        let mut request = request;
        // One that the server has just closed takes nothing and gives the request back.
        while let Some(mut sender) = self.take(&origin.address) {
            match timeout_at(end, sender.try_send_request(request)).await {
                Err(_late) => return Err(late()),
                Ok(Ok(response)) => return Ok(self.answered(origin, sender, response)),
                Ok(Err(mut e)) => match e.take_message() {
                    Some(back) => request = back,
                    None => return Err(Broken::Cut(format!("the connection was cut: {}", chain(e.error())))),
                },
            }
        }
        let mut sender = self.connect(origin, end).await?;
        match timeout_at(end, sender.try_send_request(request)).await {
            Err(_late) => Err(late()),
            Ok(Ok(response)) => Ok(self.answered(origin, sender, response)),
            Ok(Err(mut e)) => {
                let why = format!("the connection was cut: {}", chain(e.error()));
                Err(if e.take_message().is_some() { Broken::NotSent(why) } else { Broken::Cut(why) })
            }
        }
    }

    async fn connect(&self, origin: &Origin, end: Instant) -> Result<Sender, Broken> {
        let left = end.saturating_duration_since(self.clock.monotonic()).min(CONNECT);
        let failed = |e: std::io::Error| Broken::NotSent(format!("cannot connect to {origin}: {e}"));
        let stream = net::connect(&origin.address, left).await.map_err(failed)?;
        let shaken = timeout_at(end, handshake(TokioIo::new(stream))).await.map_err(|_late| late())?;
        let (sender, connection) = shaken.map_err(|e| Broken::NotSent(chain(&e)))?;
        self.tasks.spawn(async move {
            // Whoever waits for an answer hears of the error; nobody else needs to.
            drop(connection.await);
        });
        Ok(sender)
    }

    fn take(&self, address: &str) -> Option<Sender> {
        let mut idle = self.idle.lock();
        let now = self.clock.monotonic();
        idle.retain(|i| now.saturating_duration_since(i.since) < KEPT && !i.sender.is_closed());
        let at = idle.iter().rposition(|i| i.address == address && i.sender.is_ready())?;
        Some(idle.swap_remove(at).sender)
    }

    fn answered(
        &self,
        origin: &Origin,
        sender: Sender,
        response: http::Response<Incoming>,
    ) -> (response::Parts, Body) {
        let (head, incoming) = response.into_parts();
        let kept = Some((self.clone(), origin.address.clone(), sender));
        (head, Body { incoming, kept, idle: BODY_IDLE })
    }

    fn keep(&self, address: String, sender: Sender) {
        let mut idle = self.idle.lock();
        if idle.len() < KEPT_MAX {
            idle.push(Idle { address, sender, since: self.clock.monotonic() });
        }
    }
}

fn late() -> Broken {
    Broken::Cut("no answer in time".to_owned())
}

/// An answer's body as it comes.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    kept: Option<(Pool, String, Sender)>,
    idle: Duration,
}

impl Body {
    /// Waits up to `idle` for each part, instead of the usual time.
    pub fn patient(&mut self, idle: Duration) {
        self.idle = idle;
    }

    /// The next part; `None` at the end. The error says how the body broke off.
    pub async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            let frame = timeout(self.idle, self.incoming.frame()).await;
            let frame = frame.map_err(|_late| format!("no more of the answer came in {:?}", self.idle))?;
            match frame {
                None => {
                    self.release().await;
                    return Ok(None);
                }
                Some(Err(e)) => return Err(format!("the answer broke off: {}", chain(&e))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// All of it, if it is no longer than `max`.
    pub async fn whole(mut self, max: usize) -> Result<Bytes, String> {
        let mut all = BytesMut::new();
        while let Some(part) = self.next().await? {
            if all.len() + part.len() > max {
                return Err(format!("the answer is over {max} bytes"));
            }
            all.extend_from_slice(&part);
        }
        Ok(all.freeze())
    }

    async fn release(&mut self) {
        let Some((pool, address, mut sender)) = self.kept.take() else { return };
        // The end of the body is seen a moment before the connection is free again.
        if let Ok(Ok(())) = timeout(Duration::from_millis(100), sender.ready()).await {
            pool.keep(address, sender);
        }
    }
}

/// An error and what caused it.
fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut source = e.source();
    while let Some(e) = source {
        let more = e.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = e.source();
    }
    text
}
