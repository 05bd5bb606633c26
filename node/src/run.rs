//! Builds the parts, binds listeners, spawns every task in one set, orders shutdown.
//!
//! Invariant: nobody is served before the session is registered and the WAL is open; at the end appends in flight are
//! answered first, then streams are flushed and released, then the session ends, then leadership goes to another, then
//! the log stops. Each step of a
//! shutdown is bounded; what a step could not do, the next start recovers. Called by `cli::serve` and by tests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use weir_api::{NodeEpoch, NodeId, SessionId};

use crate::admin;
use crate::clock::Clock;
use crate::config::{ConfigError, ServeConfig};
use crate::data_dir::{DataDir, DataDirError};
use crate::founding::FoundingError;
use crate::http::{HttpLimits, PoolLimits, Router};
use crate::metadata::command::Command;
use crate::metadata::{Metadata, ProposeError};
use crate::net::{self, TcpListener};
use crate::peers::{self, Peers};
use crate::readiness::Readiness;
use crate::session::{self, SessionError};
use crate::storage::skips::Skips;
use crate::storage::store::Store;
use crate::storage::wal::WalLimits;
use crate::streams::{self, Streams};
use crate::tasks::Tasks;
use crate::tokens::Tokens;

mod start;

use start::{Common, Life, Member, Records, serve_clients, stream_parts};

/// Why a node ended other than by being asked to. Each says what the caller should do.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Change the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data directory or the bucket belongs to another cluster or node: point elsewhere, or adopt.
    #[error("{0}")]
    Foreign(String),
    /// Another process serves as this node now, or other nodes serve its streams: do not restart at once.
    #[error("{0}")]
    Superseded(String),
    /// The store lacks a property: use another.
    #[error("{0}")]
    StoreUnfit(String),
    /// Another process has the data directory: stop it first.
    #[error("{0}")]
    InUse(String),
    /// Anything else: look at the message, start again.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

impl From<FoundingError> for RunError {
    fn from(e: FoundingError) -> Self {
        match e {
            FoundingError::Foreign(why) => Self::Foreign(why),
            FoundingError::DataDir(e) => e.into(),
            other => Self::Failed(other.into()),
        }
    }
}

impl From<DataDirError> for RunError {
    fn from(e: DataDirError) -> Self {
        match e {
            DataDirError::InUse(_) => Self::InUse(e.to_string()),
            other => Self::Failed(other.into()),
        }
    }
}

impl From<SessionError> for RunError {
    fn from(e: SessionError) -> Self {
        match e {
            SessionError::Superseded(why) | SessionError::Fenced(why) => Self::Superseded(why),
            other => Self::Failed(other.into()),
        }
    }
}

/// The addresses a node has bound, written to `addresses.json` in the data directory: a port of 0 is known only then.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Addresses {
    /// Clients.
    pub client: SocketAddr,
    /// Other nodes.
    pub peer: SocketAddr,
    /// Administration.
    pub admin: SocketAddr,
}

/// What tests replace.
#[derive(Debug, Clone, Default)]
pub struct Doors {
    /// The clock.
    pub clock: Clock,
    /// The store, instead of the configured one.
    pub store: Option<Store>,
    /// How long an operation on a stream waits for another, instead of up to 10 s.
    pub patience: Option<Duration>,
}

/// How often this cluster was restored from its bucket: never yet.
const GENERATION: u64 = 0;
/// A leader that stops looks for a successor for this long.
const HAND_OVER: Duration = Duration::from_secs(4);
/// How long a stop waits for the record to take the session's end. Where all nodes stop at once, the last ones have no
/// majority any more, and would wait for it through all of the grace period.
const SESSION_END: Duration = Duration::from_secs(10);

struct Listeners {
    client: TcpListener,
    peer: TcpListener,
    admin: TcpListener,
}

/// A node that serves.
pub struct Node {
    tasks: Tasks,
    streams: Streams,
    metadata: Metadata,
    session: SessionId,
    readiness: Readiness,
    addresses: Addresses,
    /// Told first at a shutdown: no new connections, answers for those in flight.
    http_stop: CancellationToken,
    http_done: oneshot::Receiver<()>,
    /// Told before the session is ended by this process's own wish.
    leaving: CancellationToken,
    /// Keeps the directory locked.
    dir: DataDir,
}

/// Serves until told to stop by SIGTERM or SIGINT.
pub async fn serve(config: ServeConfig) -> Result<(), RunError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(anyhow::Error::from)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(anyhow::Error::from)?;
    let asked = async {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    };
    let clock = Clock::with_wall_offset_ms(config.clock_offset_ms);
    serve_until(asked, config, Doors { clock, ..Doors::default() }).await
}

/// Serves until `asked`, which says what it was that asked.
pub async fn serve_until(
    asked: impl Future<Output = &'static str>,
    config: ServeConfig,
    doors: Doors,
) -> Result<(), RunError> {
    let grace = config.shutdown_grace;
    let tasks = Tasks::default();
    tokio::pin!(asked);
    let starting = Node::start(config, doors, tasks.clone());
    let node = tokio::select! {
        started = starting => match started {
            Ok(node) => node,
            Err(e) => {
                tasks.stop_within(grace).await;
                return Err(e);
            }
        },
        failure = failed(&tasks) => {
            tasks.stop_within(grace).await;
            return Err(failure);
        }
        signal = &mut asked => {
            tracing::info!(signal, "stopping before the start was complete");
            tasks.stop_within(grace).await;
            return Ok(());
        }
    };
    tokio::select! {
        signal = asked => {
            tracing::info!(signal, "stopping");
            node.stop(grace).await;
            Ok(())
        }
        failure = node.failed() => {
            // Nothing is settled here: what was acknowledged is in the WAL, and the next start recovers it.
            node.abandon(grace).await;
            Err(failure)
        }
    }
}

impl Node {
    /// Starts a node; it serves when this returns.
    pub async fn start(config: ServeConfig, doors: Doors, tasks: Tasks) -> Result<Self, RunError> {
        let Doors { clock, store, patience } = doors;
        let readiness = Readiness::new(clock.clone());
        let tokens = config.admin_token_file.clone().map(Tokens::open).transpose();
        let tokens = tokens.map_err(|why| ConfigError::Together(format!("--admin-token-file: {why}")))?;
        let peers = Peers::new(config.node_id.clone(), GENERATION, tokens, &tasks);
        let common = Common { config, clock, tasks, readiness, peers };
        let dir = DataDir::open(&common.config.data_dir)?;
        let listeners = bind(&common.config).await?;
        let addresses = listeners.addresses()?;
        common.readiness.set("starting", "the node is starting");

        let admin_slot = admin::Slot::default();
        let Common { config, readiness, tasks, .. } = &common;
        admin::serve(listeners.admin, config, admin_slot.clone(), readiness.clone(), tasks)?;
        dir.replace("addresses.json", &serde_json::to_vec(&addresses).map_err(anyhow::Error::from)?)?;

        // Nobody is answered before it is known whose node this is.
        common.tasks.spawn_vital("peers", peers::serve(listeners.peer, common.peers.clone()));
        let member = Member::find(&common, &dir, store, addresses).await?;
        admin_slot.open_with(admin_sources_before_the_session(&member.metadata, &common.config.node_id));
        let life = Life::begin(&common, &dir, &member, addresses).await?;
        let session = life.session.clone();
        let (metadata, leaving) = (member.metadata.clone(), life.leaving.clone());
        let records = Records::open(&common, &member, &life, &admin_slot);
        let (reader, skips) = (records.reader.clone(), records.skips.clone());
        let knows = admin_local(&metadata, &life, &common.clock);
        let mut parts = stream_parts(&common, member, life, records);
        parts.limits.patience = patience.unwrap_or(parts.limits.patience);
        let streams = Streams::start(parts).await?;
        watch_seal(&common.tasks, streams.clone(), &metadata, &session, dir.path());

        admin_slot.fill_with(admin_sources(&metadata, &streams, skips, knows));
        admin_slot.watch(metadata.clone(), streams.clone(), reader);
        let (mode, tasks) = (common.config.routing, common.tasks.clone());
        let router = Router::new(metadata.clone(), session.clone(), mode, tasks, PoolLimits::default());
        let (http_stop, http_done) = serve_clients(&common, listeners.client, &streams, router, &admin_slot);
        watch_membership(&common, &metadata);
        let Common { readiness, tasks, .. } = common;
        readiness.clear("starting");
        tracing::info!(client = %addresses.client, admin = %addresses.admin, %session, "serving");
        Ok(Self {
            tasks,
            streams,
            metadata,
            session,
            readiness,
            addresses,
            http_stop,
            http_done,
            leaving,
            dir,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// What it serves, for tests that serve it their own way.
    #[cfg(test)]
    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Its log, for tests that propose what a client cannot.
    #[cfg(test)]
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Resolves when the node cannot go on.
    pub async fn failed(&self) -> RunError {
        match failed(&self.tasks).await {
            told @ RunError::Superseded(_) => told,
            // When the session is over many parts fail, and any may be the first.
            other => match session::why_over(&self.metadata, &self.session, self.dir.path()) {
                Ok(Some(over)) => over.into(),
                Ok(None) | Err(_) => other,
            },
        }
    }

    /// Stops in order, within `grace`: answers, drains, ends the session, stops the log.
    pub async fn stop(self, grace: Duration) {
        let Self { tasks, streams, metadata, readiness, http_stop, http_done, leaving, dir, .. } = self;
        readiness.set("stopping", "the node is stopping");
        let orderly = async {
            streams.leave();
            http_stop.cancel();
            // The sender goes away with the server, however that ends.
            drop(http_done.await);
            let drained = streams.drain().await;
            leaving.cancel();
            match drained {
                Ok(()) => match tokio::time::timeout(SESSION_END, session::end(&metadata)).await {
                    Ok(Ok(clean)) => tracing::info!(clean, "session ended"),
                    Ok(Err(e)) => tracing::warn!(error = %e, "session not ended; the next start recovers it"),
                    Err(_late) => {
                        tracing::warn!("session not ended: no majority answers; the next start recovers it");
                    }
                },
                Err(why) => tracing::warn!(why, "not drained; the next start recovers it"),
            }
            if let Err(why) = metadata.hand_over(HAND_OVER.min(grace / 4)).await {
                tracing::warn!(
                    why,
                    "the leadership of the metadata log is not handed over; the others elect"
                );
            }
            metadata.stop().await;
        };
        if tokio::time::timeout(grace, orderly).await.is_err() {
            tracing::warn!(?grace, "not stopped in order within the grace period; the next start recovers");
        }
        tasks.stop_within(grace / 4).await;
        drop(dir);
    }

    /// Stops without settling anything.
    pub async fn abandon(self, grace: Duration) {
        self.streams.leave();
        self.http_stop.cancel();
        self.tasks.stop_within(grace / 4).await;
        drop(self.dir);
    }
}

/// Resolves when a part that the node cannot do without has ended.
async fn failed(tasks: &Tasks) -> RunError {
    match tasks.failed().await.downcast::<SessionError>() {
        Ok(session) => session.into(),
        Err(other) => RunError::Failed(other),
    }
}

impl Listeners {
    fn addresses(&self) -> anyhow::Result<Addresses> {
        Ok(Addresses {
            client: self.client.local_addr()?,
            peer: self.peer.local_addr()?,
            admin: self.admin.local_addr()?,
        })
    }
}

async fn bind(config: &ServeConfig) -> anyhow::Result<Listeners> {
    Ok(Listeners {
        client: net::bind(config.listen).await?,
        peer: net::bind(config.peer_listen).await?,
        admin: net::bind(config.admin_listen).await?,
    })
}

fn stream_limits(config: &ServeConfig) -> streams::Limits {
    streams::Limits {
        max_streams: usize::try_from(config.max_streams).unwrap_or(usize::MAX),
        max_open: usize::try_from(config.max_open_streams).unwrap_or(usize::MAX),
        max_producers: config.max_producers as usize,
        idle_release: config.idle_release,
        sweep_interval: (config.idle_release / 2).clamp(Duration::from_millis(50), Duration::from_secs(10)),
        segment_bytes: config.segment_bytes,
        segment_objects: config.segment_objects,
        segment_age: config.segment_age,
        patience: config.request_timeout.min(Duration::from_secs(10)),
    }
}

fn wal_limits(config: &ServeConfig) -> WalLimits {
    WalLimits {
        object_bytes: config.wal_object_bytes,
        backlog_bytes: config.wal_backlog_bytes,
        backlog_objects: config.wal_backlog_objects,
        interval: config.wal_interval,
        ..WalLimits::default()
    }
}

fn http_limits(config: &ServeConfig) -> HttpLimits {
    let whole = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    HttpLimits {
        max_body: config.max_body,
        max_read_chunk: whole(config.max_read_chunk),
        max_connections: whole(connections(config.max_connections)),
        max_waiters: whole(config.max_waiters),
        long_poll: config.long_poll_timeout,
        sse_lifetime: config.sse_lifetime,
        request_timeout: config.request_timeout,
        shutdown_grace: config.shutdown_grace / 2,
        ..HttpLimits::default()
    }
}

/// As many connections as wanted, if the limit on open files has room for them and for the node's own files.
fn connections(wanted: u64) -> u64 {
    const OWN_FILES: u64 = 1_024;
    let limit = net::raise_descriptor_limit();
    let room = limit - (limit / 4).min(OWN_FILES);
    if room < wanted {
        tracing::info!(wanted, room, "the limit on open files bounds the connections");
    }
    wanted.min(room)
}

/// What the admin listener asks of the parts.
fn admin_sources(metadata: &Metadata, streams: &Streams, skips: Skips, local: admin::Know) -> admin::Sources {
    let (proposed, streams) = (metadata.clone(), streams.clone());
    admin::Sources {
        view: admin_view(metadata),
        propose: Arc::new(move |command| {
            let metadata = proposed.clone();
            Box::pin(async move { metadata.propose(command).await.map(drop).map_err(admin_failure) })
        }),
        skips,
        local,
        tail: Arc::new(move |id| streams.open_tail(id).map(|(end, closed)| admin::Tail { end, closed })),
    }
}

/// The same while there is no session: what the log says, and the one command that may be what a session waits for.
fn admin_sources_before_the_session(metadata: &Metadata, node: &NodeId) -> admin::Sources {
    let (asked, proposed, node) = (metadata.clone(), metadata.clone(), node.clone());
    admin::Sources {
        view: admin_view(metadata),
        propose: Arc::new(move |command| {
            let metadata = proposed.clone();
            Box::pin(async move {
                if !matches!(command, Command::Fence { .. }) {
                    let why = "this node is not registered yet, and takes no command but a fence";
                    return Err(admin::ProposeFailure::Unavailable(why.to_owned()));
                }
                metadata.propose_founding(command).await.map(drop).map_err(admin_failure)
            })
        }),
        skips: Skips::default(),
        local: Arc::new(move |state| {
            let recorded = state.nodes.get(&node);
            admin::Local {
                epoch: recorded.map_or(NodeEpoch(0), |n| n.epoch),
                draining: recorded.is_some_and(|n| n.draining),
                ..of_the_log(&asked)
            }
        }),
        tail: Arc::new(|_none_is_open| None),
    }
}

fn admin_view(metadata: &Metadata) -> admin::View {
    let metadata = metadata.clone();
    Arc::new(move || {
        let (state, applied) = metadata.snapshot();
        let leadership = *metadata.leadership().borrow();
        admin::Seen { state, applied, leader: leadership.leader, term: leadership.term }
    })
}

fn admin_failure(e: ProposeError) -> admin::ProposeFailure {
    match e {
        ProposeError::Refused(refusal) => admin::ProposeFailure::Refused(refusal),
        ProposeError::Unknown => admin::ProposeFailure::Unknown,
        e @ (ProposeError::TooLarge { .. } | ProposeError::Unavailable(_) | ProposeError::SessionOver) => {
            admin::ProposeFailure::Unavailable(e.to_string())
        }
    }
}

/// What this node knows beside the state.
fn admin_local(metadata: &Metadata, life: &Life, clock: &Clock) -> admin::Know {
    let (metadata, clock) = (metadata.clone(), clock.clone());
    let (session, lease, heartbeats) = (life.session.clone(), life.lease.clone(), life.heartbeats.clone());
    Arc::new(move |state| {
        let live = state.nodes.values().filter_map(|node| state.live(node.session?));
        let live: Vec<SessionId> = live.map(|session| session.id.clone()).collect();
        let silent = heartbeats.silent(&live);
        admin::Local {
            epoch: session.epoch,
            alive: state.is_current(&session),
            draining: state.nodes.get(&session.node).is_some_and(|node| node.draining),
            lease: lease.remaining(&clock),
            silent: live.into_iter().zip(silent).filter_map(|(of, silent)| Some((of, silent?))).collect(),
            ..of_the_log(&metadata)
        }
    })
}

/// What it knows of the log; nothing of a session.
fn of_the_log(metadata: &Metadata) -> admin::Local {
    admin::Local {
        epoch: NodeEpoch(0),
        alive: false,
        draining: false,
        lease: Duration::ZERO,
        members: metadata.members(),
        voter_target: metadata.voter_target(),
        quorum_healthy: metadata.quorum_healthy(),
        last_index: metadata.stats().last_log,
        unformed: metadata.unformed(),
        silent: BTreeMap::new(),
    }
}

/// A seal by another session means that this one was fenced: nothing unacknowledged ever will be.
fn watch_seal(tasks: &Tasks, streams: Streams, metadata: &Metadata, session: &SessionId, data_dir: &Path) {
    let (stopping, failing) = (tasks.stopping().clone(), tasks.clone());
    let (metadata, session, data_dir) = (metadata.clone(), session.clone(), data_dir.to_owned());
    tasks.spawn(async move {
        let over = async {
            streams.sealed().await;
            session::learn_why_over(&metadata, &session, &data_dir).await
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            over = over => failing.fail_with(over.into()),
        }
    });
}

/// Tells `/readyz` while the cluster is forming, and ends the process if its directory has left the log.
fn watch_membership(common: &Common, metadata: &Metadata) {
    let (stopping, failing) = (common.tasks.stopping().clone(), common.tasks.clone());
    let left = metadata.clone();
    common.tasks.spawn(async move {
        tokio::select! {
            () = stopping.cancelled() => {}
            left = left.left() => {
                failing.fail(format!("{left}: start the process again, which sets the log aside and joins anew"));
            }
        }
    });
    let (stopping, readiness, forming) =
        (common.tasks.stopping().clone(), common.readiness.clone(), metadata.clone());
    common.tasks.spawn(async move {
        while let Some(why) = forming.unformed() {
            readiness.set("forming", why);
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
            }
        }
        readiness.clear("forming");
    });
}
