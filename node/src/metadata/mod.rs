//! The metadata log's handle and the pure state machine behind it.
//!
//! Invariant: everyone else sees this handle, never the engine: *propose*, *read the view*, *wait for an index*, *read
//! index*, on any node, whoever leads. A proposer has its answer only after this node's view holds the result. If the log
//! fails, the node fails.
//! `run` starts and stops it; session, streams, storage and admin propose and read.

mod announce;
pub mod apply;
mod as_leader;
pub mod codec;
pub mod command;
pub mod consistency;
mod forward;
mod handover;
mod health;
pub mod limits;
pub mod placement;
mod proposer;
pub mod query;
mod raft;
mod reads;
mod requests;
pub mod state;
mod tend;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redb::StorageBackend;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use weir_api::{RaftId, SessionId};

use self::announce::Announcer;
pub use self::announce::{Joined, LeftLog, join};
use self::command::{Answer, Command, Refusal};
use self::forward::Leader;
pub use self::proposer::COMMAND_MAX;
use self::proposer::{Ask, Proposer};
use self::raft::Log;
pub use self::raft::MemberStatus;
use self::reads::{ReadAsk, Reads};
use self::requests::Requests;
use self::state::State;
use crate::clock::Clock;
use crate::format::Writing;
use crate::metrics::{FencedBy, LogMeters};
use crate::peers::Peers;
use crate::tasks::Tasks;

/// Commands that may wait for their answers, and reads for their index.
const WAITING: usize = 8192;

/// What the log is started with.
#[derive(Clone)]
pub struct MetadataConfig {
    /// Holds `log.redb` and `snapshots/`. Made if missing.
    pub dir: PathBuf,
    /// This data directory's number in the log.
    pub raft_id: RaftId,
    /// Founds a log of one voter if the folder is empty; ignored on a used one.
    pub found: bool,
    /// The other nodes. `None`: there are none, and never will be.
    pub peers: Option<Peers>,
    /// Where other members reach this one.
    pub peer_address: String,
    /// Addresses at which other members may be found.
    pub seeds: Vec<String>,
    /// How many members should vote, at most.
    pub voters: u32,
    /// Silence after which a voter gives its vote to another.
    pub voter_timeout: Duration,
    /// How often a leader looks after the members.
    pub tend_every: Duration,
    /// A snapshot is taken once this many bytes of log were applied since the last.
    pub snapshot_log_bytes: u64,
    /// Bytes of recent entries kept in memory and, behind a snapshot, on disk.
    pub log_cache_bytes: usize,
    /// How often a leader makes itself heard.
    pub heartbeat: Duration,
    /// Silence after which another is elected: drawn between the two, the second at most 1.5 s.
    pub election_timeout: (Duration, Duration),
    /// How long a command waits to enter the log before it is refused as unavailable.
    pub leader_wait: Duration,
}

impl MetadataConfig {
    /// The defaults for a folder.
    pub fn new(dir: impl Into<PathBuf>, raft_id: RaftId, found: bool) -> Self {
        Self {
            dir: dir.into(),
            raft_id,
            found,
            peers: None,
            peer_address: String::new(),
            seeds: Vec::new(),
            voters: 3,
            voter_timeout: Duration::from_secs(600),
            tend_every: Duration::from_millis(500),
            snapshot_log_bytes: 16 << 20,
            log_cache_bytes: 8 << 20,
            heartbeat: Duration::from_millis(250),
            election_timeout: (Duration::from_millis(800), Duration::from_millis(1500)),
            leader_wait: Duration::from_secs(5),
        }
    }
}

/// Why the log did not start. All but `Busy` need a person.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings contradict each other.
    #[error("metadata log settings: {0}")]
    Config(String),
    /// The folder cannot be used.
    #[error("{path}: {source}")]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another process has it.
    #[error("{0}")]
    Busy(String),
    /// It belongs to another member.
    #[error("{0}")]
    Foreign(String),
    /// It does not verify, or the log did not come up. Names the file.
    #[error("{0}")]
    Log(String),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// The command was decided and changed nothing.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The command is longer than the log takes: split it.
    #[error("the command is {bytes} bytes long, the most is {COMMAND_MAX}")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// Surely not applied, now or later: try again later.
    #[error("metadata log unavailable: {0}")]
    Unavailable(String),
    /// Perhaps applied: this process has lost sight of it, because it stops or fails.
    #[error("the outcome of the metadata command is unknown")]
    Unknown,
    /// The session has ended: stop. If the answer to an earlier attempt was lost, that attempt may have been applied.
    #[error("the session is over")]
    SessionOver,
}

/// Who leads, as far as this node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leadership {
    /// The leader, if there is one.
    pub leader: Option<RaftId>,
    /// The term; one process leads at most once in a term.
    pub term: u64,
    /// This node leads.
    pub me: bool,
}

impl Leadership {
    fn is_known(&self) -> bool {
        self.me || self.leader.is_some()
    }
}

/// Numbers about the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogStats {
    /// Index of the last entry.
    pub last_log: u64,
    /// Index of the last entry in the view.
    pub applied: u64,
    /// Index up to which the newest snapshot goes; 0 without one.
    pub snapshot: u64,
    /// Index up to which entries were dropped.
    pub purged: u64,
    /// Bytes applied since the newest snapshot.
    pub log_bytes: u64,
    /// Bytes of entries in memory.
    pub cached_bytes: u64,
    /// Who leads.
    pub leadership: Leadership,
    /// Commands without an answer yet.
    pub waiting: usize,
}

/// The handle. Clones share the log.
#[derive(Clone)]
pub struct Metadata {
    shared: Arc<Shared>,
}

struct Shared {
    log: Log,
    asks: mpsc::Sender<Ask>,
    reads: mpsc::Sender<ReadAsk>,
    waiting: Arc<Semaphore>,
    requests: Arc<Mutex<Requests>>,
    leadership: watch::Receiver<Leadership>,
    peers: Option<Peers>,
    voters: usize,
    /// The others say that this directory's raft id has left the log.
    left: watch::Receiver<bool>,
    closing: CancellationToken,
    stopped: CancellationToken,
    leader_wait: Duration,
    election_timeout: Duration,
    meters: LogMeters,
    clock: Clock,
    tasks: Tasks,
}

impl Metadata {
    /// Starts the log in `cfg.dir`. A sole voter leads and its view holds the whole log when this returns. If the log
    /// fails later, the node does.
    pub async fn start(cfg: MetadataConfig, tasks: &Tasks, clock: &Clock) -> Result<Self, StartError> {
        let dir = cfg.dir.clone();
        let folder = |source| StartError::Folder { path: cfg.dir.clone(), source };
        #[cfg(feature = "simulation")]
        if let Some(backend) = raft::simulated_backend(&cfg.dir).map_err(folder)? {
            return Self::start_on(cfg, backend, tasks, clock).await;
        }
        let opened = tasks.blocking(move || raft::file_backend(&dir)).await;
        let backend = opened.map_err(std::io::Error::other).and_then(|b| b).map_err(folder)?;
        Self::start_on(cfg, backend, tasks, clock).await
    }

    /// As [`Self::start`], the log in `backend` instead of a file. Snapshots are in `cfg.dir`.
    pub async fn start_on(
        cfg: MetadataConfig,
        backend: impl StorageBackend,
        tasks: &Tasks,
        clock: &Clock,
    ) -> Result<Self, StartError> {
        let log = Box::pin(Log::start(&cfg, backend, tasks)).await?;
        let (asks, asked) = mpsc::channel(WAITING);
        let (reads, read) = mpsc::channel(WAITING);
        let (leads, leadership) = watch::channel(log.leadership());
        let closing = tasks.stopping().child_token();
        let (leaving, left) = watch::channel(false);
        let shared = Arc::new(Shared {
            log: log.clone(),
            asks,
            reads,
            waiting: Arc::new(Semaphore::new(WAITING)),
            requests: Arc::default(),
            leadership: leadership.clone(),
            peers: cfg.peers.clone(),
            voters: usize::try_from(cfg.voters).unwrap_or(usize::MAX),
            left,
            closing: closing.clone(),
            stopped: CancellationToken::new(),
            leader_wait: cfg.leader_wait,
            election_timeout: cfg.election_timeout.1,
            meters: LogMeters::default(),
            clock: clock.clone(),
            tasks: tasks.clone(),
        });
        let drained = CancellationToken::new();
        let proposer = Proposer {
            log: log.clone(),
            peers: cfg.peers.clone(),
            requests: shared.requests.clone(),
            clock: clock.clone(),
            tasks: tasks.clone(),
            asks: asked,
            leadership: leadership.clone(),
            leader_wait: cfg.leader_wait,
            closing: closing.clone(),
            drained: drained.clone(),
        };
        vital(tasks, "metadata-proposer", proposer.run());
        let reads = Reads { log: log.clone(), peers: cfg.peers.clone(), leadership: leadership.clone() };
        vital(tasks, "metadata-reads", reads.run(read, closing.clone()));
        let this = Self { shared: shared.clone() };
        if let Some(peers) = cfg.peers.clone() {
            let leader = Leader {
                log: log.clone(),
                clock: clock.clone(),
                leadership: leadership.clone(),
                reads: shared.reads.clone(),
            };
            leader.answer(&peers);
            let asking = announce::answer(&this, &peers);
            let announcer = Announcer { metadata: this.clone(), peers, cfg: cfg.clone(), left: leaving };
            vital(tasks, "metadata-announce", announcer.run(closing.clone()));
            vital(tasks, "metadata-members", tend::run(this.clone(), cfg, asking, closing.clone()));
        }
        let (stopped, all, peers) = (shared.stopped.clone(), tasks.clone(), shared.peers.clone());
        tasks.spawn_vital("metadata-log", async move {
            let tended = log.tend(&leads, &drained).await;
            closing.cancel();
            if let Some(peers) = peers {
                peers.forget(&forward::CALLS);
                peers.forget(&announce::CALLS);
            }
            log.stop().await;
            leads.send_replace(Leadership::default());
            stopped.cancel();
            tended.map_err(anyhow::Error::msg)?;
            all.stopping().cancelled().await;
            Ok(())
        });
        Ok(this)
    }

    /// Looks at the view, under a lock that apply waits for: be short. Scans take a [`Self::snapshot`].
    pub fn read<T>(&self, f: impl FnOnce(&State) -> T) -> T {
        self.shared.log.read(f)
    }

    /// The format version to write in, as it changes.
    pub fn writing(&self) -> Writing {
        self.shared.log.writing()
    }

    /// The view as a value (cheap, whatever its size) and the index of the last entry in it.
    pub fn snapshot(&self) -> (State, u64) {
        self.shared.log.snapshot()
    }

    /// The index of the last entry in the view; changes after the view holds it.
    pub fn applied(&self) -> watch::Receiver<u64> {
        self.shared.log.applied()
    }

    /// Proposes one of the commands that come before a session: `Found`, `AllocateRaftId`, `Register`, and `Fence` by an
    /// administrator. They carry their own idempotence, and are retried as [`Self::propose`] does.
    pub async fn propose_founding(&self, command: Command) -> Result<Answer, ProposeError> {
        self.ask(command, true).await
    }

    /// From now on commands are this session's, whose `Register` was answered; request numbers begin at 1.
    pub fn begin_session(&self, session: SessionId) {
        self.shared.requests.lock().begin(session);
    }

    /// Proposes a command under the session and waits until this node's view holds its effect. Once the command has
    /// entered the log its outcome is followed up even if the caller goes away.
    pub async fn propose(&self, command: Command) -> Result<Answer, ProposeError> {
        if let Err(why) = self.shared.requests.lock().check() {
            return Err(why.into());
        }
        // All that clients write is in a stream that somebody created.
        if matches!(command, Command::Create { .. } | Command::Fork { .. })
            && let Some(why) = self.unformed()
        {
            return Err(ProposeError::Unavailable(why));
        }
        let fences = matches!(command, Command::Fence { .. }).then_some(FencedBy::Admin);
        let answered = self.ask(command, false).await;
        self.count(fences, &answered);
        answered
    }

    /// Proposes a command that may enter only here, and only while this node leads in `term`. `Unknown` means that the
    /// leadership was lost over it; it is never tried again. To give up waiting is no harm.
    pub async fn propose_as_leader(&self, command: Command, term: u64) -> Result<Answer, ProposeError> {
        let fences = matches!(command, Command::Fence { .. }).then_some(FencedBy::Silence);
        let answered = as_leader::propose(self, command, term).await;
        self.count(fences, &answered);
        answered
    }

    async fn ask(&self, command: Command, founding: bool) -> Result<Answer, ProposeError> {
        let shared = &self.shared;
        let bytes = proposer::size(&command);
        if bytes > COMMAND_MAX {
            return Err(ProposeError::TooLarge { bytes });
        }
        let many = |_e| ProposeError::Unavailable(format!("{WAITING} commands wait already"));
        let permit = shared.waiting.clone().try_acquire_owned().map_err(many)?;
        let (reply, mut answer) = oneshot::channel();
        let taken = Arc::new(AtomicBool::new(false));
        let ask = Ask { command, founding, bytes, taken: taken.clone(), reply, permit };
        // There is room for every permit: only a stopped log refuses.
        let stopped = |_e| ProposeError::Unavailable("the metadata log has stopped".to_owned());
        shared.asks.try_send(ask).map_err(stopped)?;
        let answered = match tokio::time::timeout(shared.leader_wait, &mut answer).await {
            Err(_late) if !taken.swap(true, Ordering::SeqCst) => {
                let leader = shared.leadership.borrow().leader;
                let why = match leader {
                    None => "the metadata log has no leader".to_owned(),
                    Some(id) => {
                        format!("raft id {id} leads the metadata log and this node waits for it in vain")
                    }
                };
                return Err(ProposeError::Unavailable(why));
            }
            Err(_late) => answer.await,
            Ok(answered) => answered,
        };
        answered.unwrap_or(Err(ProposeError::Unknown))
    }

    /// A read index: confirmed by the leader after this was called, and applied to the view when it returns. Shared
    /// by all who ask at once.
    pub async fn read_index(&self, deadline: Duration) -> Result<u64, ProposeError> {
        let unavailable = |why: &str| ProposeError::Unavailable(why.to_owned());
        let (reply, index) = oneshot::channel();
        let ask = ReadAsk { reply, of_peer: false };
        self.shared.reads.try_send(ask).map_err(|e| unavailable(&format!("read index: {e}")))?;
        let read = async {
            let index = index.await.map_err(|_gone| unavailable("the metadata log has stopped"))?;
            let index = index.map_err(|why| unavailable(&why))?;
            let mut applied = self.applied();
            let reached = applied.wait_for(|applied| *applied >= index).await;
            reached.map(|_| index).map_err(|_gone| unavailable("the metadata log has stopped"))
        };
        match tokio::time::timeout(deadline, read).await {
            Ok(index) => index,
            Err(_late) => Err(unavailable(&format!("no read index within {deadline:?}"))),
        }
    }

    /// Who leads.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.shared.leadership.clone()
    }

    /// The leader and where its peer listener is, as far as this node knows.
    pub fn leader_address(&self) -> Option<(RaftId, String)> {
        let leader = self.shared.leadership.borrow().leader?;
        self.shared.log.address_of(leader.0).map(|address| (leader, address))
    }

    /// Who takes part in the log.
    pub fn members(&self) -> Vec<MemberStatus> {
        self.shared.log.members()
    }

    /// Why the cluster takes no client's writes yet: it was configured for several nodes, and its voters were never all
    /// together. `None` once they were; a stream shows that.
    pub fn unformed(&self) -> Option<String> {
        let size = self.read(|state| match state.next.stream {
            1 => state.cluster.as_ref().map(|cluster| cluster.size),
            _ => None,
        })?;
        let wanted = raft::membership::voter_target(self.shared.voters, size as usize);
        let voters = self.members().iter().filter(|m| m.voter).count();
        (voters < wanted).then(|| {
            format!(
                "the cluster is forming: {voters} of the {wanted} voters that its {size} nodes need are there"
            )
        })
    }

    /// Waits until this node takes part in the log and hears its leader, or is told that it must not.
    pub async fn settled(&self) -> Result<(), LeftLog> {
        announce::settled(self).await
    }

    /// Resolves when the others say that this directory's raft id has left the log for good.
    pub async fn left(&self) -> LeftLog {
        let mut left = self.shared.left.clone();
        let told = left.wait_for(|left| *left).await.is_ok();
        if !told {
            // The log has stopped.
            std::future::pending::<()>().await;
        }
        LeftLog(RaftId(self.shared.log.me()))
    }

    /// Gives the leadership to a voter that has all of the log, if this node leads and there is one; within `deadline`.
    /// Nothing enters the log at this node meanwhile.
    pub async fn hand_over(&self, deadline: Duration) -> Result<(), String> {
        handover::hand_over(self, deadline).await
    }

    /// Numbers for metrics and readiness.
    pub fn stats(&self) -> LogStats {
        let waiting = WAITING - self.shared.waiting.available_permits();
        LogStats { waiting, ..self.shared.log.stats() }
    }

    /// A hash of the view's state (I5). Walks all of it, on a thread for blocking work.
    pub async fn state_hash(&self) -> u64 {
        let (state, _) = self.snapshot();
        let hash = self.shared.tasks.blocking(move || codec::state_hash(&state)).await;
        hash.expect("hashing plain values does not panic")
    }

    /// Takes a snapshot of what is applied, unless there is one, and waits until it is on disk.
    pub async fn trigger_snapshot(&self) -> Result<(), ProposeError> {
        self.shared.log.take_snapshot().await.map_err(ProposeError::Unavailable)
    }

    /// Refuses new commands, finishes those under way, stops taking part and closes the files.
    pub async fn stop(&self) {
        self.shared.closing.cancel();
        self.shared.stopped.cancelled().await;
    }
}

/// Runs a task that may end when the log stops, but keeps its place until the node does.
fn vital(tasks: &Tasks, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
    let all = tasks.clone();
    tasks.spawn_vital(name, async move {
        task.await;
        all.stopping().cancelled().await;
        Ok(())
    });
}

#[cfg(test)]
mod tests;
