//! The only importer of openraft: the log as the handle above needs it, in plain types.
//!
//! Invariant: nothing of openraft's leaves this folder. openraft spawns its own tasks (core, state machine, ticks) on
//! the tokio runtime, the one exception to `tasks` as the door; `Log::stop` awaits its core, and what still runs after
//! that touches no file. When the node is simulated they run on its machine (`runtime`). Used by `metadata` only.

mod book;
mod bytes;
mod disk;
mod log_store;
mod members;
pub(super) mod membership;
mod network;
#[cfg(feature = "simulation")]
mod runtime;
mod snapshot;
mod state_machine;
mod wire;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use openraft::error::{ClientWriteError, RaftError};
use openraft::impls::OneshotResponder;
use openraft::raft::ClientWriteResult;
use openraft::{BasicNode, Config, Raft, ServerState, SnapshotPolicy};
use redb::StorageBackend;
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use weir_api::RaftId;

use super::command::Outcome;
use super::state::State;
use super::{Leadership, LogStats, MetadataConfig, StartError};
use crate::format::Writing;
use crate::peers::Peers;
use crate::tasks::Tasks;
use book::Book;
use log_store::LogStore;
pub use members::MemberStatus;
use network::Network;
#[cfg(not(feature = "simulation"))]
use openraft::TokioRuntime as Runtime;
#[cfg(feature = "simulation")]
use runtime::Runtime;
use snapshot::{SnapshotFile, Snapshots};
use state_machine::{StateMachine, View};

/// What an entry carries: a batch's own bytes, shared between log, cache and apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EntryData(Arc<[u8]>);

/// What applying an entry came to, command by command.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Outcomes(Vec<Outcome>);

openraft::declare_raft_types!(
    /// openraft's types as this log uses them.
    pub(crate) TypeConfig:
        D = EntryData,
        R = Outcomes,
        NodeId = u64,
        Node = BasicNode,
        Entry = openraft::Entry<TypeConfig>,
        SnapshotData = SnapshotFile,
        Responder = OneshotResponder<TypeConfig>,
        AsyncRuntime = Runtime,
);

type Entry = openraft::Entry<TypeConfig>;
type LogId = openraft::LogId<u64>;
type Vote = openraft::Vote<u64>;
type StorageError = openraft::StorageError<u64>;

/// How long a log of one may take at start until it leads and has applied all it holds.
const START: Duration = Duration::from_secs(60);

/// The running log.
#[derive(Clone)]
pub(super) struct Log {
    raft: Raft<TypeConfig>,
    view: Arc<View>,
    store: LogStore,
    me: u64,
    book: Arc<Book>,
    peers: Option<Peers>,
    /// This node hands its leadership over: nothing enters the log here.
    yielding: Arc<AtomicBool>,
}

/// An entry that has been handed to the log's order.
pub(super) struct Submitted(oneshot::Receiver<ClientWriteResult<TypeConfig>>);

/// An entry whose fate this node does not know.
#[derive(Debug)]
pub(super) enum SubmitError {
    /// This node does not lead (any more). The entry may or may not stand in the log: submit it again.
    NotLeading,
    /// The log has stopped here.
    Stopped,
}

impl Submitted {
    /// Waits until the entry is applied to this node's view. Its index, and what each command came to.
    pub(super) async fn outcomes(self) -> Result<(u64, Vec<Outcome>), SubmitError> {
        match self.0.await {
            Ok(Ok(response)) => Ok((response.log_id.index, response.data.0)),
            Ok(Err(ClientWriteError::ForwardToLeader(_))) => Err(SubmitError::NotLeading),
            Ok(Err(ClientWriteError::ChangeMembershipError(_))) | Err(_) => Err(SubmitError::Stopped),
        }
    }
}

impl Log {
    /// Opens what `cfg.dir` holds and starts taking part. A sole voter has elected itself and applied everything
    /// when this returns.
    pub(super) async fn start(
        cfg: &MetadataConfig,
        backend: impl StorageBackend,
        tasks: &Tasks,
    ) -> Result<Self, StartError> {
        let (store, view, snapshots) = open(cfg, backend, tasks).await?;
        let started = Self::join(cfg, &store, view, snapshots, tasks).await;
        if started.is_err() {
            store.close().await;
        }
        started
    }

    async fn join(
        cfg: &MetadataConfig,
        store: &LogStore,
        view: Arc<View>,
        snapshots: Arc<Snapshots>,
        tasks: &Tasks,
    ) -> Result<Self, StartError> {
        let me = cfg.raft_id.0;
        let pristine = store.is_pristine() && snapshots.meta().is_none();
        let machine = StateMachine::new(view.clone(), snapshots, tasks.clone());
        let config = Arc::new(raft_config(cfg)?);
        let book = Arc::new(Book::default());
        let network = Network { peers: cfg.peers.clone(), book: book.clone(), me };
        let new = Raft::new(me, config, network, store.clone(), machine);
        let raft = Box::pin(new).await.map_err(|e| StartError::Log(e.to_string()))?;
        if let Some(peers) = &cfg.peers {
            network::answer(&raft, peers, &book, me, tasks);
        }
        let (store, peers, yielding) = (store.clone(), cfg.peers.clone(), Arc::default());
        let log = Self { raft, view, store, me, book, peers, yielding };
        let started = log.lead_if_sole(cfg, pristine).await;
        if started.is_err() {
            log.shut_down().await;
        }
        started.map(|()| log)
    }

    /// Founds the log if that was asked for, and does not wait for a time-out where there is nobody to wait for.
    async fn lead_if_sole(&self, cfg: &MetadataConfig, pristine: bool) -> Result<(), StartError> {
        let me = cfg.raft_id.0;
        if cfg.found && pristine {
            let founder = membership::entry(cfg.peers.as_ref().map(Peers::node), &cfg.peer_address);
            let members = BTreeMap::from([(me, founder)]);
            self.raft.initialize(members).await.map_err(|e| StartError::Log(e.to_string()))?;
        }
        let sole = self
            .raft
            .with_raft_state(move |s| {
                membership::is_sole_voter(s.membership_state.effective().membership(), me)
            })
            .await
            .map_err(|e| StartError::Log(e.to_string()))?;
        if !sole {
            return Ok(());
        }
        let lead = async {
            self.raft.trigger().elect().await.map_err(|e| e.to_string())?;
            let leads = |m: &openraft::RaftMetrics<u64, BasicNode>| m.state == ServerState::Leader;
            if self.raft.wait(None).metrics(leads, "lead").await.is_err() {
                return Err(self.ended());
            }
            let index = self.confirm().await?;
            // The watch ends only with the view, which `self` holds.
            let applied = self.applied().wait_for(|applied| *applied >= index).await.map(drop);
            applied.map_err(|e| e.to_string())
        };
        tokio::select! {
            led = tokio::time::timeout(START, lead) => match led {
                Ok(led) => led.map_err(StartError::Log),
                Err(_late) => Err(StartError::Log(format!("not leading and caught up after {START:?}"))),
            },
            why = self.until_ended() => Err(StartError::Log(why)),
        }
    }

    /// Hands an entry to the log, in the order of the calls.
    pub(super) async fn submit(&self, batch: Vec<u8>) -> Result<Submitted, SubmitError> {
        let data = EntryData(Arc::from(batch));
        self.raft.client_write_ff(data).await.map(Submitted).map_err(|_fatal| SubmitError::Stopped)
    }

    /// Confirms that this node leads, and returns the index up to which a view must have applied to be as new as
    /// this call. The error says why not.
    pub(super) async fn confirm(&self) -> Result<u64, String> {
        match self.raft.get_read_log_id().await {
            Ok((id, _)) => Ok(id.map_or(0, |id| id.index)),
            Err(RaftError::APIError(e)) => Err(e.to_string()),
            Err(RaftError::Fatal(e)) => Err(e.to_string()),
        }
    }

    /// See `View`.
    pub(super) fn read<T>(&self, f: impl FnOnce(&State) -> T) -> T {
        self.view.read(f)
    }

    /// See `View`.
    pub(super) fn snapshot(&self) -> (State, u64) {
        self.view.snapshot()
    }

    /// The format version to write an entry in.
    pub(super) fn format(&self) -> u32 {
        self.view.writing().now()
    }

    /// The same, as it changes.
    pub(super) fn writing(&self) -> Writing {
        self.view.writing().clone()
    }

    /// See `View`.
    pub(super) fn applied(&self) -> watch::Receiver<u64> {
        self.view.applied()
    }

    /// Who leads, by what this node last heard.
    pub(super) fn leadership(&self) -> Leadership {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow();
        Leadership {
            leader: metrics.current_leader.map(RaftId),
            term: metrics.vote.leader_id.term,
            me: metrics.state == ServerState::Leader,
        }
    }

    /// Numbers about the log; the queue is the handle's.
    pub(super) fn stats(&self) -> LogStats {
        let data = self.raft.data_metrics();
        let data = data.borrow();
        let index = |id: Option<LogId>| id.map_or(0, |id| id.index);
        LogStats {
            last_log: index(data.last_log),
            applied: *self.view.applied().borrow(),
            snapshot: index(data.snapshot),
            purged: index(data.purged),
            log_bytes: self.view.log_bytes(),
            cached_bytes: self.store.cached_bytes(),
            leadership: self.leadership(),
            waiting: 0,
        }
    }

    /// Takes a snapshot of what is applied now, unless there is one, and waits for it.
    pub(super) async fn take_snapshot(&self) -> Result<(), String> {
        let wanted = *self.view.applied().borrow();
        if wanted == 0 {
            return Ok(());
        }
        let mut data = self.raft.data_metrics();
        loop {
            if data.borrow_and_update().snapshot.is_some_and(|id| id.index >= wanted) {
                return Ok(());
            }
            // Ignored while one is being taken; the next round asks again.
            self.raft.trigger().snapshot().await.map_err(|e| e.to_string())?;
            data.changed().await.map_err(|_gone| self.ended())?;
        }
    }

    /// Tends the log until `stop`: tells who leads, takes snapshots when they are due, purges behind them. Returns
    /// early, with the reason, if the log has failed.
    pub(super) async fn tend(
        &self,
        leadership: &watch::Sender<Leadership>,
        stop: &CancellationToken,
    ) -> Result<(), String> {
        let mut server = self.raft.server_metrics();
        let mut data = self.raft.data_metrics();
        let mut snapshot = data.borrow_and_update().snapshot;
        let mut asked = false;
        loop {
            let now = self.leadership();
            leadership.send_if_modified(|was| std::mem::replace(was, now) != now);
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                changed = server.changed() => if changed.is_err() { return Err(self.ended()) },
                changed = data.changed() => {
                    if changed.is_err() {
                        return Err(self.ended());
                    }
                    let newest = data.borrow_and_update().snapshot;
                    if newest != snapshot {
                        snapshot = newest;
                        asked = false;
                        self.purge(newest).await.map_err(|_e| self.ended())?;
                        if self.view.is_due() {
                            self.view.grown.notify_one();
                        }
                    }
                }
                () = self.view.grown.notified(), if !asked => {
                    asked = true;
                    self.raft.trigger().snapshot().await.map_err(|_e| self.ended())?;
                }
            }
        }
    }

    /// Drops the entries that are both in the snapshot and no longer in memory: what remains serves members that are
    /// a little behind.
    async fn purge(&self, snapshot: Option<LogId>) -> Result<(), openraft::error::Fatal<u64>> {
        let upto = snapshot.map(|id| id.index).min(self.store.below_cache());
        match upto {
            Some(upto) => self.raft.trigger().purge_log(upto).await,
            None => Ok(()),
        }
    }

    /// Stops taking part and closes the files.
    pub(super) async fn stop(&self) {
        self.shut_down().await;
        self.store.close().await;
    }

    async fn shut_down(&self) {
        if let Some(peers) = &self.peers {
            peers.forget(&network::CALLS);
        }
        if let Err(e) = self.raft.shutdown().await {
            tracing::warn!("the metadata log's core did not stop cleanly: {e}");
        }
    }

    /// Resolves with the reason when the core has ended.
    async fn until_ended(&self) -> String {
        let mut server = self.raft.server_metrics();
        while server.changed().await.is_ok() {}
        self.ended()
    }

    /// Why the core has ended.
    fn ended(&self) -> String {
        match &self.raft.metrics().borrow().running_state {
            Ok(()) => "the metadata log's core panicked".to_owned(),
            Err(e) => format!("the metadata log has failed: {e}"),
        }
    }
}

fn raft_config(cfg: &MetadataConfig) -> Result<Config, StartError> {
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    let config = Config {
        cluster_name: "weir".to_owned(),
        heartbeat_interval: ms(cfg.heartbeat),
        election_timeout_min: ms(cfg.election_timeout.0),
        election_timeout_max: ms(cfg.election_timeout.1),
        install_snapshot_timeout: 60_000,
        // Both by bytes, in `tend`.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        ..Config::default()
    };
    config.validate().map_err(|e| StartError::Config(e.to_string()))
}

type Opened = (LogStore, Arc<View>, Arc<Snapshots>);

/// Opens snapshots and log and checks that they belong together.
async fn open(
    cfg: &MetadataConfig,
    backend: impl StorageBackend,
    tasks: &Tasks,
) -> Result<Opened, StartError> {
    let MetadataConfig { dir, raft_id, snapshot_log_bytes, log_cache_bytes, .. } = cfg.clone();
    let its = tasks.clone();
    let work = move || {
        let (snapshots, loaded) =
            Snapshots::open(&dir.join("snapshots")).map_err(|e| StartError::Log(e.to_string()))?;
        let name = dir.join("log.redb").display().to_string();
        let store =
            LogStore::open(name.clone(), backend, raft_id.0, loaded.is_some(), log_cache_bytes, &its)?;
        let covered = loaded.as_ref().and_then(|(meta, _)| meta.last_log_id).map(|id| id.index);
        if store.purged() > covered {
            let purged = store.purged().unwrap_or_default();
            return Err(StartError::Log(format!(
                "{name} begins after entry {purged}, but no snapshot in {} covers that",
                dir.join("snapshots").display()
            )));
        }
        Ok((store, Arc::new(View::new(loaded, snapshot_log_bytes)), Arc::new(snapshots)))
    };
    // A damaged file must not take the process down without its name.
    match tasks.blocking(work).await {
        Ok(opened) => opened,
        Err(panicked) => Err(StartError::Log(format!("{}: {panicked}", cfg.dir.display()))),
    }
}

/// The backend of a log in a folder, which is made if missing. Blocks.
pub(super) fn file_backend(dir: &Path) -> std::io::Result<impl StorageBackend + use<>> {
    std::fs::create_dir_all(dir)?;
    if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::File::open(parent)?.sync_all()?;
    }
    disk::file_backend(&dir.join("log.redb"))
}

/// The same on a simulated disk. `None`: the machine is no simulated one.
#[cfg(feature = "simulation")]
pub(super) fn simulated_backend(dir: &Path) -> std::io::Result<Option<impl StorageBackend + use<>>> {
    if crate::simulation::machine().is_none() {
        return Ok(None);
    }
    crate::files::create_dir_all(dir)?;
    if let Some(parent) = dir.parent() {
        crate::files::sync_dir(parent)?;
    }
    crate::files::simulated_database(&dir.join("log.redb"))
}

impl From<disk::DiskError> for StartError {
    fn from(e: disk::DiskError) -> Self {
        match e {
            disk::DiskError::Busy(_) => Self::Busy(e.to_string()),
            disk::DiskError::Foreign { .. } => Self::Foreign(e.to_string()),
            disk::DiskError::Corrupt { .. }
            | disk::DiskError::Io { .. }
            | disk::DiskError::Lost(_)
            | disk::DiskError::Closed(_) => Self::Log(e.to_string()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
