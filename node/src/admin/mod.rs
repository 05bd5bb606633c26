//! The admin listener: health, metrics, and what people and the operator ask of a cluster.
//!
//! Invariant: nothing here is reachable on the client listener; without a token only loopback binds (`config` checks
//! that), and no web page but its own reaches it (`callers`). Reads the view, proposes commands, decides nothing. Started
//! by `run`.

mod callers;
mod health;
mod members;
mod metrics;
mod moves;
mod nodes;
mod page;
mod problem;
mod recovery;
mod route;
mod server;
mod streams;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use parking_lot::RwLock;
use weir_api::admin::{ClusterStatus, FenceNode, NodeStatus, SetNode, TransferStream};
use weir_api::{NodeEpoch, NodeId, Offset, RaftId, SessionId, StreamId};

use crate::config::{ConfigError, ServeConfig};
use crate::metadata::command::{Command, Refusal};
use crate::metadata::state::State;
use crate::metadata::{MemberStatus, Metadata, codec};
use crate::metrics::{Metrics, catalog};
use crate::net::TcpListener;
use crate::readiness::Readiness;
use crate::storage::reader::SegmentReader;
use crate::storage::skips::Skips;
use crate::streams::Streams;
use crate::tasks::Tasks;
use crate::tokens::Tokens;
use moves::Named;
use problem::Error;
use route::{Endpoint, route};

const BODY_MAX: usize = 16 << 10;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The metadata state as this node has applied it, and where the log stands.
#[derive(Debug, Clone)]
pub struct Seen {
    /// A cheap clone.
    pub state: State,
    /// Last entry applied.
    pub applied: u64,
    /// The log's leader, if known.
    pub leader: Option<RaftId>,
    /// The log's term.
    pub term: u64,
}

/// What the answering node knows beside the state.
#[derive(Debug, Clone, Default)]
pub struct Local {
    /// Its epoch.
    pub epoch: NodeEpoch,
    /// The log has its session alive.
    pub alive: bool,
    /// It is told to give its streams away.
    pub draining: bool,
    /// For how long its lease runs yet.
    pub lease: Duration,
    /// Who takes part in the log.
    pub members: Vec<MemberStatus>,
    /// How many of them should vote.
    pub voter_target: u32,
    /// If it leads: whether a majority of voters is there.
    pub quorum_healthy: Option<bool>,
    /// The last entry in its log.
    pub last_index: u64,
    /// Why the cluster takes no writes yet.
    pub unformed: Option<String>,
    /// If it leads: for how long live sessions have been silent.
    pub silent: BTreeMap<SessionId, Duration>,
}

/// Asks for what the node knows now.
pub type Know = Arc<dyn Fn(&State) -> Local + Send + Sync>;

/// Asks for what is seen now.
pub type View = Arc<dyn Fn() -> Seen + Send + Sync>;

/// Proposes a command under this node's session; resolves after the view holds its effect.
pub type Propose = Arc<dyn Fn(Command) -> BoxFuture<'static, Result<(), ProposeFailure>> + Send + Sync>;

/// Why a proposal has no answer to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposeFailure {
    /// The state refuses it.
    Refused(Refusal),
    /// It was surely not applied.
    Unavailable(String),
    /// It may have been applied.
    Unknown,
}

/// The durable end of a stream that is open at this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// The next offset.
    pub end: Offset,
    /// Ended for good.
    pub closed: bool,
}

/// What there is to ask: first of the metadata log, then of all of a node with a session.
#[derive(Clone)]
pub struct Sources {
    /// The metadata state.
    pub view: View,
    /// The metadata log.
    pub propose: Propose,
    /// The node itself.
    pub local: Know,
    /// Recoveries of this node that have stopped.
    pub skips: Skips,
    /// Streams open at this node.
    pub tail: Arc<dyn Fn(StreamId) -> Option<Tail> + Send + Sync>,
}

/// Where `run` puts the sources when they are there; health and metrics are served before.
#[derive(Clone, Default)]
pub struct Slot {
    metrics: Metrics,
    sources: Arc<RwLock<Option<Sources>>>,
    filled: Arc<OnceLock<()>>,
}

impl Slot {
    /// The node's metric families.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// From now on it is answered what a node can tell and do that has no session yet. Such a node must be reached: it may
    /// be pinned to another incarnation, and every other may be in the same place.
    pub fn open_with(&self, sources: Sources) {
        self.sources.write().get_or_insert(sources);
    }

    /// From now on everything is answered. The first filling stands.
    pub fn fill_with(&self, sources: Sources) {
        if self.filled.set(()).is_ok() {
            let (view, local) = (Arc::clone(&sources.view), Arc::clone(&sources.local));
            *self.sources.write() = Some(sources);
            metrics::register(&self.metrics, view, local);
        }
    }

    /// From now on `/metrics` shows what these count.
    pub fn watch(&self, metadata: Metadata, streams: Streams, reader: SegmentReader) {
        metrics::register_node(&self.metrics, metadata, streams, reader);
    }
}

/// Serves `listener` until the node stops. An error is one of the token file.
pub fn serve(
    listener: TcpListener,
    config: &ServeConfig,
    slot: Slot,
    readiness: Readiness,
    tasks: &Tasks,
) -> Result<(), ConfigError> {
    let tokens = config.admin_token_file.clone().map(Tokens::open).transpose();
    let tokens = tokens.map_err(|why| ConfigError::Together(format!("--admin-token-file: {why}")))?;
    let ready = readiness.clone();
    slot.metrics.gauge(&catalog::READY, move || f64::from(u8::from(ready.is_ready())));
    let admin = Admin {
        node: config.node_id.clone(),
        slot,
        readiness,
        tokens,
        metrics_open: config.metrics_open,
        tasks: tasks.clone(),
    };
    tasks.spawn_vital("admin", server::accept(listener, Arc::new(admin), tasks.clone()));
    Ok(())
}

/// The admin API of one node.
struct Admin {
    node: NodeId,
    slot: Slot,
    readiness: Readiness,
    /// `None`: no token is asked for; the listener is on loopback then.
    tokens: Option<Tokens>,
    metrics_open: bool,
    tasks: Tasks,
}

impl Admin {
    async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        self.try_answer(request).await.unwrap_or_else(|e| e.response())
    }

    async fn try_answer<B>(&self, request: Request<B>) -> Result<Response<Full<Bytes>>, Error>
    where
        B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let (head, body) = request.into_parts();
        let endpoint = route(&head.method, head.uri.path());
        // Who may not in must not learn what there is: only what needs no token is told apart before.
        let open = match &endpoint {
            Ok(Endpoint::Livez | Endpoint::Readyz | Endpoint::Page(_)) => true,
            Ok(Endpoint::Metrics) => self.metrics_open,
            Ok(
                Endpoint::Cluster
                | Endpoint::Members
                | Endpoint::Nodes
                | Endpoint::Node(_)
                | Endpoint::SetNode(_)
                | Endpoint::RemoveNode(_)
                | Endpoint::Fence(_)
                | Endpoint::Stream(_)
                | Endpoint::SkipDamage
                | Endpoint::Drain(_)
                | Endpoint::BeginDrain(_)
                | Endpoint::CancelDrain(_)
                | Endpoint::BeginTransfer
                | Endpoint::AbortTransfer,
            )
            | Err(_) => false,
        };
        callers::same_origin(&head.headers)?;
        match &self.tokens {
            Some(tokens) if !open => tokens.check(head.headers.get(AUTHORIZATION))?,
            Some(_) => {}
            None => callers::local_host(&head.headers)?,
        }
        match endpoint? {
            Endpoint::Page(file) => Ok(file.response()),
            Endpoint::Livez => Ok(health::live()),
            Endpoint::Readyz => Ok(health::ready(&self.readiness)),
            Endpoint::Metrics => Ok(metrics::scrape(&self.slot.metrics)),
            Endpoint::Cluster => {
                let hash = wants_hash(head.uri.query())?;
                Ok(problem::json(StatusCode::OK, &self.cluster(hash).await?))
            }
            Endpoint::Members => {
                let local = self.local(&self.seen()?.state)?;
                Ok(problem::json(StatusCode::OK, &members::list(&local)))
            }
            Endpoint::Nodes => {
                let state = self.seen()?.state;
                Ok(problem::json(StatusCode::OK, &nodes::list(&state, &self.local(&state)?)))
            }
            Endpoint::Node(id) => Ok(problem::json(StatusCode::OK, &self.node(&id)?)),
            Endpoint::Stream(name) => {
                let Sources { view, tail, .. } = self.sources()?;
                Ok(problem::json(StatusCode::OK, &streams::one(&view().state, &name, tail.as_ref())?))
            }
            Endpoint::SkipDamage => {
                let body = json_body(&head.headers, body).await?;
                Ok(problem::json(StatusCode::OK, &recovery::skip(body, &self.sources()?.skips)?))
            }
            Endpoint::SetNode(id) => {
                let body: SetNode = json_body(&head.headers, body).await?;
                self.propose(nodes::set_slots(id.clone(), body)?, |refusal| self.refused(&id, refusal))
                    .await?;
                Ok(problem::json(StatusCode::OK, &self.node(&id)?))
            }
            Endpoint::RemoveNode(id) => {
                let command = Command::RemoveNode { node: id.clone() };
                self.propose(command, |refusal| self.refused(&id, refusal)).await?;
                let state = self.seen()?.state;
                let removed = members::removed(&state, &id).ok_or_else(|| nodes::unknown(&state, &id))?;
                Ok(problem::json(StatusCode::OK, &removed))
            }
            Endpoint::Fence(id) => {
                let body: FenceNode = json_body(&head.headers, body).await?;
                let command = members::fence(id.clone(), &body);
                match self.propose(command, |refusal| self.refused(&id, refusal)).await {
                    // A node that was told to fence itself may be over before it learns that it did.
                    Err(Error::Unavailable(_) | Error::OutcomeUnknown)
                        if members::is_fenced(&self.seen()?.state, &id, &body) => {}
                    fenced => fenced?,
                }
                Ok(problem::json(StatusCode::OK, &self.node(&id)?))
            }
            Endpoint::Drain(id) => {
                Ok(problem::json(StatusCode::OK, &moves::drain(&self.seen()?.state, &id)?))
            }
            Endpoint::BeginDrain(id) => self.set_draining(id, true).await,
            Endpoint::CancelDrain(id) => self.set_draining(id, false).await,
            Endpoint::BeginTransfer => self.begin_transfer(json_body(&head.headers, body).await?).await,
            Endpoint::AbortTransfer => self.abort_transfer(json_body(&head.headers, body).await?).await,
        }
    }

    async fn set_draining(&self, id: NodeId, draining: bool) -> Result<Response<Full<Bytes>>, Error> {
        let command = moves::set_draining(id.clone(), draining);
        self.propose(command, |refusal| moves::refused(&id, None, refusal)).await?;
        let status = moves::drain(&self.seen()?.state, &id)?;
        Ok(problem::json(moves::drain_code(&status), &status))
    }

    async fn begin_transfer(&self, body: TransferStream) -> Result<Response<Full<Bytes>>, Error> {
        let Named { id, to } = moves::named(&self.seen()?.state, &body)?;
        let command = Command::BeginTransfer { stream: id, to };
        self.propose(command, |refusal| moves::refused(&body.to_node, Some(&body), refusal)).await?;
        let status = moves::transfer(&self.seen()?.state, &body)?;
        Ok(problem::json(moves::transfer_code(&status), &status))
    }

    async fn abort_transfer(&self, body: TransferStream) -> Result<Response<Full<Bytes>>, Error> {
        let Named { id, to } = moves::pending(&self.seen()?.state, &body)?;
        let command = Command::AbortTransfer { stream: id, to };
        self.propose(command, |refusal| moves::refused(&body.to_node, Some(&body), refusal)).await?;
        let status = moves::transfer(&self.seen()?.state, &body)?;
        Ok(problem::json(StatusCode::OK, &status))
    }

    /// Proposes a command and waits until this node's view holds its effect.
    async fn propose(&self, command: Command, refused: impl FnOnce(Refusal) -> Error) -> Result<(), Error> {
        let propose = self.sources()?.propose;
        let proposed = tokio::time::timeout(PROPOSE_TIMEOUT, propose(command)).await;
        match proposed.unwrap_or(Err(ProposeFailure::Unknown)) {
            Ok(()) => Ok(()),
            Err(ProposeFailure::Refused(refusal)) => Err(refused(refusal)),
            Err(ProposeFailure::Unavailable(why)) => Err(Error::Unavailable(why)),
            Err(ProposeFailure::Unknown) => Err(Error::OutcomeUnknown),
        }
    }

    async fn cluster(&self, hash: bool) -> Result<ClusterStatus, Error> {
        let seen = self.seen()?;
        let local = self.local(&seen.state)?;
        let skips = self.sources()?.skips;
        let mut status = nodes::cluster(&seen, &local, &self.node, &|session| skips.stop_of(session))?;
        if hash {
            // As long as the state is large: not on a thread that serves others.
            let hashed = self.tasks.blocking(move || codec::state_hash(&seen.state)).await;
            let hash = hashed.map_err(|e| Error::Unavailable(e.to_string()))?;
            status.log.state_hash = Some(format!("{hash:016x}"));
        }
        Ok(status)
    }

    fn sources(&self) -> Result<Sources, Error> {
        let sources = self.slot.sources.read().clone();
        sources.ok_or_else(|| Error::Unavailable("the node is starting".to_owned()))
    }

    fn seen(&self) -> Result<Seen, Error> {
        Ok((self.sources()?.view)())
    }

    fn local(&self, state: &State) -> Result<Local, Error> {
        Ok((self.sources()?.local)(state))
    }

    fn node(&self, id: &NodeId) -> Result<NodeStatus, Error> {
        let state = self.seen()?.state;
        nodes::one(&state, id, &self.local(&state)?).ok_or_else(|| nodes::unknown(&state, id))
    }

    /// What a refusal of a command about a node means to the caller.
    fn refused(&self, id: &NodeId, refusal: Refusal) -> Error {
        self.seen().map_or_else(|e| e, |seen| nodes::refused(&seen.state, id, refusal))
    }
}

/// The query of `/admin/cluster`: nothing, or `hash=true`.
fn wants_hash(query: Option<&str>) -> Result<bool, Error> {
    match query {
        None | Some("" | "hash=false") => Ok(false),
        Some("hash=true") => Ok(true),
        Some(other) => Err(Error::BadQuery(other.chars().take(200).collect())),
    }
}

async fn json_body<B, T>(headers: &HeaderMap, body: B) -> Result<T, Error>
where
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    T: serde::de::DeserializeOwned,
{
    let kind = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(Error::MediaType);
    }
    let declared = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|n| n > BODY_MAX) {
        return Err(Error::TooLarge(BODY_MAX));
    }
    let collected = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_MAX).collect()).await;
    let bytes = match collected {
        Err(_elapsed) => return Err(Error::TooSlow(BODY_TIMEOUT.as_secs())),
        Ok(Err(e)) if e.is::<http_body_util::LengthLimitError>() => return Err(Error::TooLarge(BODY_MAX)),
        Ok(Err(e)) => return Err(Error::BadBody(format!("the body could not be read: {e}"))),
        Ok(Ok(collected)) => collected.to_bytes(),
    };
    let mut reader = serde_json::Deserializer::from_slice(&bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|e| {
        let at = e.path().to_string();
        let field = if at == "." || at == "?" { "body".to_owned() } else { at };
        Error::BadBody(format!("{field}: {}", e.inner()))
    })?;
    reader.end().map_err(|e| Error::BadBody(format!("body: {e}")))?;
    Ok(value)
}
