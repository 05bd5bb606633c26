//! This node's own connections to the nodes that it forwards to: shared ones here, those of appends in `lanes`.
//!
//! Invariant: per owner there are at most so many connections and over each at most so many requests at a time; who
//! finds no place is told so at once and nothing was sent. A connection is HTTP/2 without TLS, so that many readers that
//! wait share one; its windows are such that a client that stops reading holds up nobody else on it. One that is silent
//! with requests on it is asked whether it lives; one without requests is closed after a while. Used by `forward`.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::lanes::{Broken, Lanes, Seats};
use super::outgoing::Outgoing;
use crate::http::serve::OnTasks;
use crate::net;
use crate::tasks::Tasks;

/// What the pool may take.
#[derive(Debug, Clone)]
pub struct PoolLimits {
    /// Connections to one owner.
    pub connections: usize,
    /// Requests at a time over one connection. (A node takes 256.)
    pub requests: usize,
    /// With so many on every connection, another is made.
    pub spread: usize,
    /// Connections to one owner besides, of one append at a time.
    pub lanes: usize,
    /// Those to all owners together.
    pub all_lanes: usize,
    /// For a connection to be made.
    pub connect: Duration,
    /// After so long without a request a connection is closed. (A node closes those of its clients after 75 s.)
    pub idle: Duration,
    /// What an owner may take longer than this node's own limits say.
    pub slack: Duration,
    /// How often a silent connection with requests on it is asked, and how long it may take to answer. Where it cannot be
    /// asked the owner is connected to anew.
    pub ping: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            connections: 32,
            requests: 200,
            spread: 50,
            lanes: 64,
            // With the shared ones within what a node keeps of its files for itself.
            all_lanes: 256,
            connect: Duration::from_secs(2),
            idle: Duration::from_secs(60),
            slack: Duration::from_secs(5),
            ping: Duration::from_secs(10),
        }
    }
}

/// What one answer may hold in memory on its way through.
const ANSWER_WINDOW: u32 = 128 << 10;
/// What one request may hold beyond what the connection takes.
const SEND_BUFFER: usize = 128 << 10;

/// Why there is no place for a request. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPlace {
    #[error("as many requests are forwarded to the node that serves the stream as this node allows")]
    Busy,
    #[error("the node that serves the stream does not answer: {0}")]
    Unreachable(String),
}

/// A handle; clones share the connections.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    tasks: Tasks,
    limits: PoolLimits,
    owners: Mutex<HashMap<String, Arc<Owner>>>,
    /// The lanes of all.
    lanes: Seats,
}

/// One owner's connections.
struct Owner {
    connections: Mutex<Vec<Connection>>,
    /// Held while a connection is made, with how the last attempt failed: those who waited for it share that.
    connecting: tokio::sync::Mutex<Option<(Instant, String)>>,
    lanes: Lanes,
}

/// Why an append has no answer from a connection of its own.
#[derive(Debug)]
pub(super) enum NotAlone {
    /// There is none for it, and nothing was sent: the shared ones are there.
    NoLane,
    /// It may have arrived.
    Unknown(String),
}

struct Connection {
    sender: http2::SendRequest<Outgoing>,
    load: Arc<Mutex<Load>>,
}

#[derive(Debug)]
struct Load {
    requests: usize,
    /// Since when there are none.
    idle_since: Instant,
}

/// A place on a connection, until it is dropped.
pub(crate) struct Place {
    pub(super) sender: http2::SendRequest<Outgoing>,
    load: Arc<Mutex<Load>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut load = self.load.lock();
        load.requests -= 1;
        load.idle_since = Instant::now();
    }
}

/// What a look at the connections came to.
enum Found {
    Place(Place),
    /// Make another first.
    Grow,
    Full,
}

impl Pool {
    pub(crate) fn new(tasks: Tasks, limits: PoolLimits) -> Self {
        let lanes = Seats::new(limits.all_lanes);
        Self(Arc::new(Shared { tasks, limits, owners: Mutex::default(), lanes }))
    }

    /// A place for a request to the node at `address`.
    pub(super) async fn place(&self, address: &str) -> Result<Place, NoPlace> {
        let asked = Instant::now();
        let owner = {
            let mut owners = self.0.owners.lock();
            let new = || Arc::new(Owner::new(&self.0.limits));
            owners.entry(address.to_owned()).or_insert_with(new).clone()
        };
        match owner.find(&self.0.limits) {
            Found::Place(place) => return Ok(place),
            Found::Full => return Err(NoPlace::Busy),
            Found::Grow => {}
        }
        let mut failed = owner.connecting.lock().await;
        match owner.find(&self.0.limits) {
            Found::Place(place) => return Ok(place),
            Found::Full => return Err(NoPlace::Busy),
            Found::Grow => {}
        }
        if let Some((_, why)) = failed.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(NoPlace::Unreachable(why.clone()));
        }
        match self.connect(address, &owner).await {
            Ok(place) => {
                *failed = None;
                Ok(place)
            }
            Err(e) => {
                *failed = Some((Instant::now(), e.to_string()));
                Err(NoPlace::Unreachable(e.to_string()))
            }
        }
    }

    /// Sends a request over a connection of its own and takes in the whole answer.
    pub(super) async fn alone(
        &self,
        address: &str,
        mut request: Request<Outgoing>,
        within: Duration,
    ) -> Result<Response<Bytes>, NotAlone> {
        let limits = &self.0.limits;
        let owner = self.0.owners.lock().get(address).cloned();
        let owner = owner.filter(|owner| owner.is_connected()).ok_or(NotAlone::NoLane)?;
        loop {
            let kept = owner.lanes.take(limits.idle);
            let fresh = kept.is_none();
            let mut lane = match kept {
                Some(lane) => lane,
                None => {
                    let new = owner.lanes.open(address, &self.0.lanes, limits.connect).await;
                    new.ok_or(NotAlone::NoLane)?
                }
            };
            match self.answered(address, lane.exchange(request), within).await? {
                Ok(response) => {
                    owner.lanes.put(lane);
                    return Ok(response);
                }
                // The other side closed it in this moment.
                Err(Broken::NotSent(unsent)) if !fresh => request = *unsent,
                Err(Broken::NotSent(_)) => return Err(NotAlone::NoLane),
                Err(Broken::Unknown(why)) => return Err(NotAlone::Unknown(why)),
            }
        }
    }

    /// Waits for an answer, as long as the owner can be reached. HTTP/1.1 has nothing to ask a silent connection with.
    async fn answered<T>(
        &self,
        address: &str,
        answer: impl Future<Output = T>,
        within: Duration,
    ) -> Result<T, NotAlone> {
        let (limits, until) = (&self.0.limits, Instant::now() + within);
        let mut answer = pin!(answer);
        loop {
            let look = until.min(Instant::now() + limits.ping);
            if let Ok(answered) = timeout_at(look, answer.as_mut()).await {
                return Ok(answered);
            }
            if look >= until {
                return Err(NotAlone::Unknown(format!("no answer in {within:?}")));
            }
            tokio::select! {
                biased;
                answered = answer.as_mut() => return Ok(answered),
                reached = net::connect(address, limits.connect) => {
                    reached.map_err(|e| NotAlone::Unknown(format!("no answer, and {e}")))?;
                }
            }
        }
    }

    async fn connect(&self, address: &str, owner: &Arc<Owner>) -> io::Result<Place> {
        let limits = &self.0.limits;
        let window = u32::try_from(limits.requests).unwrap_or(u32::MAX).saturating_mul(ANSWER_WINDOW);
        let making = async {
            let stream = net::connect(address, limits.connect).await?;
            let handshake = http2::Builder::new(OnTasks(self.0.tasks.clone()))
                .timer(TokioTimer::new())
                .initial_stream_window_size(ANSWER_WINDOW)
                .initial_connection_window_size(window.min(i32::MAX as u32))
                .initial_max_send_streams(limits.requests)
                .max_send_buf_size(SEND_BUFFER)
                .keep_alive_interval(limits.ping)
                .keep_alive_timeout(limits.ping)
                .handshake::<_, Outgoing>(TokioIo::new(stream));
            handshake.await.map_err(io::Error::other)
        };
        let late = |_e| io::Error::new(io::ErrorKind::TimedOut, "no connection in time");
        let (sender, connection) = timeout(limits.connect, making).await.map_err(late)??;
        let load = Arc::new(Mutex::new(Load { requests: 1, idle_since: Instant::now() }));
        owner.connections.lock().push(Connection { sender: sender.clone(), load: load.clone() });
        let (pool, address, owner, watched) = (self.clone(), address.to_owned(), owner.clone(), load.clone());
        self.0.tasks.spawn(async move {
            let stopping = pool.0.tasks.stopping().clone();
            tokio::pin!(connection);
            let idle = owner.idle(&watched, pool.0.limits.idle);
            tokio::select! {
                ended = &mut connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, address, "a forwarding connection ended");
                    }
                }
                // Nobody has it any more: it ends by itself, or is dropped.
                _never = idle => drop(timeout(pool.0.limits.ping, connection).await),
                () = stopping.cancelled() => {}
            }
            pool.forget(&address, &owner, &watched);
        });
        Ok(Place { sender, load })
    }

    fn forget(&self, address: &str, owner: &Arc<Owner>, load: &Arc<Mutex<Load>>) {
        let mut owners = self.0.owners.lock();
        let mut connections = owner.connections.lock();
        connections.retain(|c| !Arc::ptr_eq(&c.load, load));
        // One that is being connected to has another holder.
        if connections.is_empty()
            && owners.get(address).is_some_and(|o| Arc::ptr_eq(o, owner))
            && owner.connecting.try_lock().is_ok()
        {
            owners.remove(address);
        }
    }

    pub(super) fn slack(&self) -> Duration {
        self.0.limits.slack
    }

    /// Connections now, to all owners.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.0.owners.lock().values().map(|o| o.connections.lock().len()).sum()
    }

    /// Those of appends.
    #[cfg(test)]
    pub(crate) fn lanes(&self) -> usize {
        let count = self.0.owners.lock().values().map(|o| o.lanes.count()).sum();
        assert!(count <= self.0.lanes.taken());
        count
    }
}

impl Owner {
    fn new(limits: &PoolLimits) -> Self {
        let (connections, connecting) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { connections, connecting, lanes: Lanes::new(limits.lanes) }
    }

    /// Whether somebody was there when last asked.
    fn is_connected(&self) -> bool {
        self.connections.lock().iter().any(|c| !c.sender.is_closed())
    }

    /// A place on the connection with the fewest requests.
    fn find(&self, limits: &PoolLimits) -> Found {
        let mut connections = self.connections.lock();
        connections.retain(|c| !c.sender.is_closed());
        let Some(best) = connections.iter().min_by_key(|c| c.load.lock().requests) else {
            return Found::Grow;
        };
        let mut load = best.load.lock();
        if load.requests >= limits.spread && connections.len() < limits.connections {
            return Found::Grow;
        }
        if load.requests >= limits.requests {
            return Found::Full;
        }
        load.requests += 1;
        drop(load);
        Found::Place(Place { sender: best.sender.clone(), load: best.load.clone() })
    }

    /// Takes the connection out once it has been without requests for `idle`; the last one once lanes have been as well.
    async fn idle(&self, load: &Arc<Mutex<Load>>, idle: Duration) -> Infallible {
        loop {
            let due = {
                let mut connections = self.connections.lock();
                let now = load.lock();
                // The last one says that somebody is there to those that need no place on it.
                let besides = if connections.len() == 1 { self.lanes.last_used() } else { None };
                let due = besides.map_or(now.idle_since, |used| used.max(now.idle_since)) + idle;
                if now.requests == 0 && due <= Instant::now() {
                    drop(now);
                    connections.retain(|c| !Arc::ptr_eq(&c.load, load));
                    None
                } else if now.requests == 0 {
                    Some(due)
                } else {
                    Some(Instant::now() + idle)
                }
            };
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        }
    }
}
