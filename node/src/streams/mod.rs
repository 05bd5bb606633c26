//! The streams service of one node: create, append, read, wait, head, delete.
//!
//! Invariant (I1, I3): this node takes appends only for streams that the metadata log says are open at its session,
//! and answers that claim to be current come from the open stream itself or from the state at a read index, under the
//! session's lease. Called by `http` and `admin`; built and drained by `run`.
//!
//! One idea a file: `log` decides on an append, `open` is one open stream, `registry` knows which are open,
//! `ownership` opens, releases and deletes, `create`, `fork`, `read` and `list` are the operations, `life` says when a
//! stream is over and `expiry` ends it, `flush` moves records to segments, `ahead` those of a fork's source first,
//! `follow` is a live reader's place, `signal` and `wakes` are how it hears of news, `moves` sends it away from a stream
//! that another node is to serve, `handover` gives streams away and takes them, `touches`, `notices` and `trouble` tell the log and `/readyz` what happened.

mod ahead;
mod create;
pub mod error;
mod expiry;
mod flush;
mod follow;
mod fork;
mod handover;
mod life;
pub mod list;
pub mod log;
mod moves;
pub mod name;
mod notices;
mod open;
mod ownership;
mod read;
mod registry;
mod signal;
mod touches;
mod trouble;
mod wakes;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio_util::sync::CancellationToken;
use weir_api::{ClusterUid, Offset, SessionId, StreamId};

pub use create::{CreateSpec, Created};
pub use error::{ForkError, StreamError};
pub use follow::{Claim, Follower, Look};
pub use fork::ForkSpec;
pub use list::{Listed, Listing, Page};
pub use log::{Append, Appended};
pub use name::StreamName;
pub use open::OpenStream;
pub use read::{ReadChunk, ReadFrom};
pub(crate) use registry::Weaks;

use crate::clock::Clock;
use crate::metadata::Metadata;
use crate::metadata::command::StreamConfig;
use crate::metadata::state::{self, SessionNo};
use crate::metrics::{AppendOutcome, StoreMeters, StreamMeters, WalMeters};
use crate::mutant::{self, Mutant};
use crate::readiness::Readiness;
use crate::session::Lease;
use crate::storage::reader::SegmentReader;
use crate::storage::record::codec::Stamp;
use crate::storage::store::Store;
use crate::storage::wal::{Wal, WalLimits, WalStatus, WalStore};
use crate::tasks::Tasks;
use flush::Backlog;
use open::Attempt;
use registry::Registry;

/// What bounds the service.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Streams in the cluster: at this many no node creates more.
    pub max_streams: usize,
    /// Streams open here at once.
    pub max_open: usize,
    /// Producer ids that one stream remembers.
    pub max_producers: usize,
    /// A stream nobody used for this long is released.
    pub idle_release: Duration,
    /// How often idle streams are looked for.
    pub sweep_interval: Duration,
    /// A segment is due at this many WAL bytes …
    pub segment_bytes: u64,
    /// … or WAL objects …
    pub segment_objects: u64,
    /// … or when the oldest is this old.
    pub segment_age: Duration,
    /// How long an operation waits for the metadata log, for a recovery or for another operation on its stream.
    pub patience: Duration,
}

/// What the service is built from.
pub struct Parts {
    /// The node's tasks.
    pub tasks: Tasks,
    /// The node's clock.
    pub clock: Clock,
    /// The metadata log.
    pub metadata: Metadata,
    /// The cluster.
    pub cluster: ClusterUid,
    /// This process's session, registered.
    pub session: SessionId,
    /// The session's lease.
    pub lease: Lease,
    /// Object storage.
    pub store: Store,
    /// The generation that its keys carry.
    pub generation: u64,
    /// The WAL's storage.
    pub wal_store: Arc<dyn WalStore>,
    /// The segments' reader.
    pub reader: SegmentReader,
    /// Where troubles are told.
    pub readiness: Readiness,
    /// Bounds.
    pub limits: Limits,
    /// The WAL's bounds.
    pub wal_limits: WalLimits,
}

/// A handle on the service; clones share it.
#[derive(Clone)]
pub struct Streams {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams").field("session", &self.inner.session).finish_non_exhaustive()
    }
}

/// The service itself.
pub(crate) struct Inner {
    tasks: Tasks,
    clock: Clock,
    metadata: Metadata,
    cluster: ClusterUid,
    session: SessionId,
    /// The session's number in the metadata state.
    number: SessionNo,
    lease: Lease,
    store: Store,
    generation: u64,
    wal_store: Arc<dyn WalStore>,
    wal: Wal,
    reader: SegmentReader,
    readiness: Readiness,
    limits: Limits,
    registry: Registry,
    /// Who waits at the tail of a stream that is not open here.
    idle_readers: moves::IdleReaders,
    backlog: Backlog,
    notices: notices::Notices,
    wakes: wakes::Wakes,
    touches: touches::Touches,
    meters: StreamMeters,
    /// Cancelled when the node begins to leave: waiting readers are answered.
    leaving: CancellationToken,
}

/// A stream as an answer describes it.
#[derive(Debug, Clone)]
pub struct StreamInfo {
    /// Its number.
    pub id: StreamId,
    /// Its configuration.
    pub config: Arc<StreamConfig>,
    /// First offset kept.
    pub start: Offset,
    /// The tail.
    pub next: Offset,
    /// Ended for good.
    pub closed: bool,
}

impl StreamInfo {
    fn idle(id: StreamId, stream: &state::Stream) -> Self {
        Self {
            id,
            config: stream.config.clone(),
            start: stream.start,
            next: stream.committed,
            closed: stream.closed,
        }
    }

    fn open(stream: &OpenStream, durable: open::Durable) -> Self {
        Self {
            id: stream.id,
            config: stream.config.clone(),
            start: stream.start,
            next: durable.end,
            closed: durable.closed,
        }
    }
}

/// How often an operation looks again after losing a race before it gives up.
const ATTEMPTS: usize = 8;

/// A stream to append to: its configuration is known, so the body can be parsed.
pub struct Writer {
    inner: Arc<Inner>,
    stream: Arc<OpenStream>,
}

impl Streams {
    /// Opens the session's WAL and starts the background tasks.
    pub async fn start(parts: Parts) -> anyhow::Result<Self> {
        let Parts { tasks, clock, metadata, cluster, session, lease, .. } = parts;
        let number = metadata.read(|state| state.live_by_id(&session).map(|(number, _)| number));
        let number = number.with_context(|| format!("session {session} is over before it began to serve"))?;
        let Parts { store, generation, wal_store, reader, readiness, limits, wal_limits, .. } = parts;
        let writer = wal_store.create(&session).await?;
        let inner = Arc::new_cyclic(|weak| {
            let sink = Arc::new(flush::Sink { inner: weak.clone() });
            let stamp = Stamp { cluster, writing: metadata.writing() };
            let wal = Wal::start(&tasks, &clock, writer, stamp, session.clone(), wal_limits, sink);
            Inner {
                tasks,
                clock,
                metadata,
                cluster,
                session,
                number,
                lease,
                store,
                generation,
                wal_store,
                wal,
                reader,
                readiness,
                limits,
                registry: Registry::default(),
                idle_readers: moves::IdleReaders::default(),
                backlog: Backlog::default(),
                notices: notices::Notices::default(),
                wakes: wakes::Wakes::default(),
                touches: touches::Touches::default(),
                meters: StreamMeters::default(),
                leaving: CancellationToken::new(),
            }
        });
        inner.tasks.spawn_vital("flusher", flush::run(inner.clone()));
        inner.tasks.spawn_vital("notices", notices::run(inner.clone()));
        inner.tasks.spawn_vital("wakes", wakes::run(inner.clone()));
        inner.tasks.spawn_vital("moves", moves::run(inner.clone()));
        inner.tasks.spawn_vital("handover", handover::run(inner.clone()));
        inner.tasks.spawn_vital("trouble", trouble::run(inner.clone()));
        inner.tasks.spawn_vital("touches", touches::run(inner.clone()));
        inner.tasks.spawn_vital("expiry", expiry::run(inner.clone()));
        Ok(Self { inner })
    }

    /// The stream is open here, as far as is known without asking: the way there is short.
    pub fn has(&self, name: &StreamName) -> bool {
        self.inner.registry.by_name(name.as_str()).is_some()
    }

    /// Opens the stream here if need be.
    pub async fn writer(&self, name: &StreamName) -> Result<Writer, StreamError> {
        for _ in 0..ATTEMPTS {
            let stream = match self.inner.serving_by_name(name.as_str()).await? {
                Some(stream) => stream,
                None => self.inner.open_by_name(name).await?,
            };
            // Before the append: what the log refuses to record must not have entered the order.
            if self.inner.touched(&stream).await? {
                return Ok(Writer { inner: self.inner.clone(), stream });
            }
        }
        Err(StreamError::unavailable("the stream keeps changing hands"))
    }

    /// What the stream is now.
    pub async fn head(&self, name: &StreamName) -> Result<StreamInfo, StreamError> {
        let info = match self.inner.current(name).await? {
            ownership::Current::Open(stream) => {
                let durable = stream.durable();
                if !durable.born {
                    return Err(StreamError::NotFound);
                }
                StreamInfo::open(&stream, durable)
            }
            ownership::Current::Idle(id, stream) => StreamInfo::idle(id, &stream),
        };
        self.inner.check_lease()?;
        Ok(info)
    }

    /// Answers everyone who waits at a tail, now and from now on.
    pub fn leave(&self) {
        self.inner.leaving.cancel();
        self.inner.registry.wake_all();
    }

    /// Flushes and releases every stream. `Err` says what remains.
    pub async fn drain(&self) -> Result<(), String> {
        self.inner.drain().await
    }

    /// Streams open here.
    pub fn open_count(&self) -> usize {
        self.inner.registry.len()
    }

    /// Streams that the cluster may have.
    pub fn max_streams(&self) -> usize {
        self.inner.limits.max_streams
    }

    /// The WAL's state.
    pub fn wal_status(&self) -> WalStatus {
        self.inner.wal.status()
    }

    /// What the service counts.
    pub fn meters(&self) -> &StreamMeters {
        &self.inner.meters
    }

    /// What the WAL counts.
    pub fn wal_meters(&self) -> Arc<WalMeters> {
        self.inner.wal.meters()
    }

    /// What the bucket was asked.
    pub fn store_meters(&self) -> &StoreMeters {
        self.inner.store.meters()
    }

    /// Resolves when a seal says that this session was fenced.
    pub async fn sealed(&self) {
        self.inner.wal.sealed().cancelled().await;
    }

    /// A stream that is open here: its durable tail, for the admin API.
    pub fn open_tail(&self, id: StreamId) -> Option<(Offset, bool)> {
        let durable = self.inner.registry.by_id(id)?.durable();
        Some((durable.end, durable.closed))
    }
}

impl Writer {
    /// What the stream was created with.
    pub fn config(&self) -> &Arc<StreamConfig> {
        &self.stream.config
    }

    /// Appends, and answers once the answer can be relied on.
    pub async fn append(&self, append: Append) -> Result<Appended, StreamError> {
        let inner = &self.inner;
        let mut meter = inner.meters.append();
        let done = self.append_counted(append).await;
        meter.outcome = outcome(&done);
        done
    }

    async fn append_counted(&self, append: Append) -> Result<Appended, StreamError> {
        let inner = &self.inner;
        let mut stream = self.stream.clone();
        loop {
            let waiting = stream.signal.clone();
            let signal = waiting.next();
            tokio::pin!(signal);
            signal.as_mut().enable();
            match stream.append(&append, &inner.wal, inner.limits.max_producers, inner.clock.since_boot()) {
                Attempt::Decided(result, ticket) => {
                    if let Some(ticket) = ticket {
                        ticket.wait().await.map_err(|_fenced| unknown())?;
                    }
                    // A record that is stored shows that this session was not over when it was. Any other answer tells
                    // how the stream is now, and a successor may know better.
                    if !matches!(result, Ok(Appended { duplicate: false, .. })) {
                        inner.check_lease()?;
                    }
                    return result;
                }
                Attempt::Stopping => inner.patiently("another operation on the stream", signal).await?,
                Attempt::Gone => {
                    stream = inner.open(stream.id).await?;
                    // The wait may have outlasted its TTL, or the deadline that was recorded before it.
                    if !inner.touched(&stream).await? {
                        continue;
                    }
                }
            }
        }
    }
}

/// An append was ordered, and what became of it is unknown.
fn unknown() -> StreamError {
    if mutant::on(Mutant::UnknownCalledFailure) {
        return StreamError::unavailable("this node's session was fenced");
    }
    StreamError::OutcomeUnknown
}

/// As what an append is counted.
fn outcome(done: &Result<Appended, StreamError>) -> AppendOutcome {
    match done {
        Ok(Appended { duplicate: false, .. }) => AppendOutcome::Accepted,
        Ok(Appended { duplicate: true, .. }) => AppendOutcome::Duplicate,
        Err(StreamError::OutcomeUnknown) => AppendOutcome::Unknown,
        Err(StreamError::Unavailable { .. }) => AppendOutcome::Unavailable,
        Err(_what_is_wrong_with_it) => AppendOutcome::Refused,
    }
}

impl Inner {
    /// No answer that claims to be current goes out without the lease.
    fn check_lease(&self) -> Result<(), StreamError> {
        if self.lease.holds(&self.clock) {
            Ok(())
        } else {
            Err(StreamError::unavailable("this node has lost touch with the metadata log"))
        }
    }

    /// Waits for something within the operation's patience.
    async fn patiently<T>(&self, what: &str, wait: impl Future<Output = T>) -> Result<T, StreamError> {
        let late = |_e| StreamError::unavailable(format!("still waiting for {what}"));
        tokio::time::timeout(self.limits.patience, wait).await.map_err(late)
    }

    /// Runs an operation of several steps to its end even if the client that asked for it goes away.
    async fn to_the_end<T: Send + 'static>(
        self: &Arc<Self>,
        operation: impl Future<Output = Result<T, StreamError>> + Send + 'static,
    ) -> Result<T, StreamError> {
        let (done, result) = tokio::sync::oneshot::channel();
        self.tasks.spawn(async move {
            // Whoever asked may have gone.
            drop(done.send(operation.await));
        });
        result.await.unwrap_or(Err(StreamError::OutcomeUnknown))
    }
}

#[cfg(test)]
mod tests;
