//! The steps of a node's start, in order: [`Member`], [`Life`], [`Records`], streams, clients.
//!
//! Invariant: each step gets only what the steps before it made, so that nobody can serve before the session is
//! registered, or register before directory and store are known to belong together. Called by `Node::start`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use weir_api::SessionId;

use super::{Addresses, RunError, http_limits, stream_limits, wal_limits};
use crate::admin;
use crate::clock::Clock;
use crate::config::ServeConfig;
use crate::data_dir::{DataDir, DirIdentity};
use crate::founding::{self, FoundingError, Wanted};
use crate::http::{self, App, Router};
use crate::joining::Joining;
use crate::metadata::{LeftLog, Metadata, MetadataConfig};
use crate::net::TcpListener;
use crate::peers::Peers;
use crate::readiness::Readiness;
use crate::session::duties::{self, Duties};
use crate::session::heartbeat::Heartbeats;
use crate::session::{self, Identity, Keeper, Lease};
use crate::storage::answered::{NoAnswer, until_answered};
use crate::storage::probe::{self, ProbeError};
use crate::storage::progress::Progress;
use crate::storage::reader::SegmentReader;
use crate::storage::recovery::{FIRST_RECOVERY_SEGMENT, Recovery};
use crate::storage::skips::Skips;
use crate::storage::store::Store;
use crate::storage::sweep::Sweep;
use crate::storage::wal::{self, WalStore};
use crate::streams::{self, Streams};
use crate::tasks::Tasks;

/// How often `/readyz` is told anew why this node does not take part yet.
const SAY_AGAIN: Duration = Duration::from_millis(250);

/// What every step of a start needs.
pub(super) struct Common {
    pub(super) config: ServeConfig,
    pub(super) clock: Clock,
    pub(super) tasks: Tasks,
    pub(super) readiness: Readiness,
    pub(super) peers: Peers,
}

/// A directory and a store that belong together, and their cluster's log.
pub(super) struct Member {
    identity: DirIdentity,
    store: Store,
    pub(super) metadata: Metadata,
}

impl Member {
    /// Opens the store and the log; founds the cluster if there is none, or joins it.
    pub(super) async fn find(
        common: &Common,
        dir: &DataDir,
        store: Option<Store>,
        addresses: Addresses,
    ) -> Result<Self, RunError> {
        let Common { config, tasks, readiness, .. } = common;
        let store = match store {
            Some(store) => store,
            None => Store::open(&config.store, config.s3.clone()).map_err(anyhow::Error::from)?,
        };
        probe_store(&store, common).await?;
        let wanted = Wanted {
            node: config.node_id.clone(),
            may_found: config.bootstrap,
            may_join: !config.join.is_empty(),
            identity: config.cluster_identity.clone(),
            adopt: config.adopt_cluster_uid,
            size: config.cluster_size,
        };
        let mut found = founding::begin(dir, &store, &wanted, tasks, readiness).await?;
        loop {
            let identity = match found.take() {
                Some(identity) => identity,
                None => join(common, dir, &store, &wanted).await?,
            };
            let raft_id = identity.raft_id;
            let metadata = start_log(common, dir, &identity, addresses).await?;
            let why =
                match founding::finish(dir, identity, &store, &metadata, &wanted, tasks, readiness).await {
                    Ok(identity) => {
                        common.peers.set_cluster(Some(identity.cluster));
                        match take_part(common, &metadata).await? {
                            Ok(()) => return Ok(Self { identity, store, metadata }),
                            Err(left) => left.to_string(),
                        }
                    }
                    Err(e @ FoundingError::Outrun(_)) => e.to_string(),
                    Err(e) => return Err(e.into()),
                };
            tracing::warn!("{why}");
            common.peers.set_cluster(None);
            metadata.stop().await;
            founding::set_aside(dir, raft_id)?;
            if !wanted.may_join {
                return Err(RunError::Foreign(format!("{why}: name nodes of the cluster with --join")));
            }
        }
    }
}

async fn join(
    common: &Common,
    dir: &DataDir,
    store: &Store,
    wanted: &Wanted,
) -> Result<DirIdentity, FoundingError> {
    let Common { config, tasks, readiness, peers, .. } = common;
    Joining { readiness, tasks, peers, seeds: &config.join }.join(dir, store, wanted).await
}

async fn start_log(
    common: &Common,
    dir: &DataDir,
    identity: &DirIdentity,
    addresses: Addresses,
) -> Result<Metadata, RunError> {
    let Common { config, clock, tasks, peers, .. } = common;
    // What stays behind a snapshot is meant to be less than what cuts one.
    let half = usize::try_from(config.snapshot_log_bytes / 2).unwrap_or(usize::MAX);
    let defaults = MetadataConfig::new(dir.path().join("metadata"), identity.raft_id, identity.provisional);
    let config = MetadataConfig {
        peers: Some(peers.clone()),
        peer_address: config.advertised_peer(addresses.peer),
        seeds: config.join.clone(),
        voters: config.metadata_voters,
        snapshot_log_bytes: config.snapshot_log_bytes,
        log_cache_bytes: defaults.log_cache_bytes.min(half),
        ..defaults
    };
    if !identity.provisional {
        // The others' calls carry the log that this node waits for.
        peers.set_cluster(Some(identity.cluster));
    }
    Ok(Metadata::start(config, tasks, clock).await.map_err(anyhow::Error::from)?)
}

/// Waits until this node is a member that hears its leader. The inner error: it must not be one under its raft id.
async fn take_part(common: &Common, metadata: &Metadata) -> Result<Result<(), LeftLog>, RunError> {
    let Common { tasks, readiness, .. } = common;
    let settled = metadata.settled();
    tokio::pin!(settled);
    loop {
        tokio::select! {
            () = tasks.stopping().cancelled() => return Err(FoundingError::Stopped.into()),
            settled = &mut settled => {
                readiness.clear("joining");
                return Ok(settled);
            }
            () = tokio::time::sleep(SAY_AGAIN) => {
                let why = match metadata.leader_address() {
                    None => "no leader of the metadata log is known: are enough of its voters up?".to_owned(),
                    Some((id, address)) => {
                        format!("not heard from the metadata log's leader yet, raft id {id} at {address}")
                    }
                };
                readiness.set("joining", why);
            }
        }
    }
}

/// This process's registered session, kept alive.
pub(super) struct Life {
    pub(super) session: SessionId,
    pub(super) lease: Lease,
    pub(super) heartbeats: Heartbeats,
    progress: Progress,
    pub(super) leaving: CancellationToken,
}

impl Life {
    pub(super) async fn begin(
        common: &Common,
        dir: &DataDir,
        member: &Member,
        addresses: Addresses,
    ) -> Result<Self, RunError> {
        let Common { config, clock, tasks, readiness, .. } = common;
        let Member { identity, metadata, .. } = member;
        let me = Identity {
            node: config.node_id.clone(),
            raft_id: identity.raft_id,
            incarnation: config.incarnation.clone(),
            http_url: config.advertised_url(addresses.client),
            peer_address: config.advertised_peer(addresses.peer),
            slots: config.slots,
        };
        // This node may lead before it has a session.
        let heartbeats = Heartbeats::answer(metadata, &common.peers, clock, config.node_timeout);
        let session = tokio::select! {
            registered = session::register(&me, metadata, clock, tasks, readiness, dir.path()) => registered?,
            never = duties::decline(metadata) => match never {},
        };
        let progress = Progress::default();
        let lease = Lease::new(config.lease);
        let leaving = CancellationToken::new();
        let keeper = Keeper {
            session: session.clone(),
            lease: lease.clone(),
            metadata: metadata.clone(),
            heartbeats: heartbeats.clone(),
            recovering: progress.clone(),
            clock: clock.clone(),
            tasks: tasks.clone(),
            readiness: readiness.clone(),
            data_dir: dir.path().to_owned(),
            leaving: leaving.clone(),
        };
        // Who is served finds the lease held.
        keeper.heartbeat(config.lease).await;
        tasks.spawn_vital("session", keeper.run());
        let duties = Duties {
            heartbeats: heartbeats.clone(),
            metadata: metadata.clone(),
            clock: clock.clone(),
            tasks: tasks.clone(),
            node_timeout: config.node_timeout,
        };
        tasks.spawn_vital("leader-duties", duties.run());
        Ok(Self { session, lease, heartbeats, progress, leaving })
    }
}

/// Where records are, with what recovers them and cleans up behind.
pub(super) struct Records {
    generation: u64,
    wal_store: Arc<dyn WalStore>,
    pub(super) reader: SegmentReader,
    pub(super) skips: Skips,
}

impl Records {
    pub(super) fn open(common: &Common, member: &Member, life: &Life, admin_slot: &admin::Slot) -> Self {
        let Common { config, clock, tasks, readiness, .. } = common;
        let Member { identity, store, metadata } = member;
        let generation = 0;
        let wal_store = wal::open(store, generation, identity.cluster, tasks);
        let reader = SegmentReader::new(store.clone(), config.cache_bytes);
        let skips = Skips::default();
        let recovery = Recovery {
            tasks: tasks.clone(),
            clock: clock.clone(),
            metadata: metadata.clone(),
            cluster: identity.cluster,
            session: life.session.clone(),
            store: store.clone(),
            generation,
            wal_store: wal_store.clone(),
            reader: reader.clone(),
            readiness: readiness.clone(),
            skips: skips.clone(),
            lease: config.lease,
            segment_bytes: config.segment_bytes,
            meters: admin_slot.metrics().recovery(),
            progress: life.progress.clone(),
            next_segment: AtomicU64::new(FIRST_RECOVERY_SEGMENT),
        };
        tasks.spawn_vital("recovery", recovery.run());
        let sweep = Sweep {
            tasks: tasks.clone(),
            clock: clock.clone(),
            metadata: metadata.clone(),
            session: life.session.clone(),
            store: store.clone(),
            generation,
            wal_store: wal_store.clone(),
        };
        tasks.spawn_vital("sweep", sweep.run());
        Self { generation, wal_store, reader, skips }
    }
}

pub(super) fn stream_parts(common: &Common, member: Member, life: Life, records: Records) -> streams::Parts {
    let Common { config, clock, tasks, readiness, .. } = common;
    streams::Parts {
        tasks: tasks.clone(),
        clock: clock.clone(),
        metadata: member.metadata,
        cluster: member.identity.cluster,
        session: life.session,
        lease: life.lease,
        store: member.store,
        generation: records.generation,
        wal_store: records.wal_store,
        reader: records.reader,
        readiness: readiness.clone(),
        limits: stream_limits(config),
        wal_limits: wal_limits(config),
    }
}

/// Begins to serve clients; gives what stops that, and what tells that it has stopped.
pub(super) fn serve_clients(
    common: &Common,
    listener: TcpListener,
    streams: &Streams,
    router: Router,
    admin_slot: &admin::Slot,
) -> (CancellationToken, oneshot::Receiver<()>) {
    let Common { config, clock, tasks, .. } = common;
    let http_stop = CancellationToken::new();
    let app = App::new(
        streams.clone(),
        http_limits(config),
        config.public_url.clone(),
        clock.clone(),
        http_stop.clone(),
    )
    .counting(admin_slot.metrics().clone())
    .routed(router);
    let (http_ended, http_done) = oneshot::channel();
    let serving = http::serve(listener, Arc::new(app), tasks.clone());
    tasks.spawn(async move {
        serving.await;
        // Nobody waits for it unless the node stops in order.
        http_ended.send(()).ok();
    });
    (http_stop, http_done)
}

/// A store that does not answer is waited for; one that lacks a property is refused.
async fn probe_store(store: &Store, common: &Common) -> Result<(), RunError> {
    let unanswered = |e| match e {
        ProbeError::Store(e) => Ok(e),
        unfit => Err(unfit),
    };
    let probe = async || probe::probe(store).await;
    until_answered(&common.tasks, &common.readiness, probe, unanswered).await.map_err(|e| match e {
        NoAnswer::Stopped => FoundingError::Stopped.into(),
        NoAnswer::Refused(unfit) => RunError::StoreUnfit(unfit.to_string()),
    })
}
