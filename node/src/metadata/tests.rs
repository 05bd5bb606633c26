//! The handle, one voter, on a real folder or a disk in memory: what is answered is there. `ends` and `damage` beside it
//! try what may happen to a process and to its files.

mod cluster;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use tempfile::TempDir;
use weir_api::{ClusterUid, NodeEpoch, Nonce, Slots, StreamId};

use super::command::{Batch, Envelope, Expiry, Registration, RequestId, StreamConfig};
use super::raft::tests::{TestDisk, lead};
use super::*;

mod damage;
mod ends;

struct Node {
    metadata: Metadata,
    tasks: Tasks,
}

fn small(dir: &Path) -> MetadataConfig {
    MetadataConfig {
        snapshot_log_bytes: 32 << 10,
        log_cache_bytes: 4 << 10,
        ..MetadataConfig::new(dir, RaftId(1), true)
    }
}

async fn try_start(cfg: MetadataConfig) -> Result<Node, StartError> {
    let tasks = Tasks::default();
    let metadata = Metadata::start(cfg, &tasks, &Clock::default()).await?;
    Ok(Node { metadata, tasks })
}

async fn start(dir: &Path) -> Node {
    try_start(MetadataConfig::new(dir, RaftId(1), true)).await.unwrap()
}

/// The error of a start that must fail.
async fn refused(cfg: MetadataConfig) -> String {
    match try_start(cfg).await {
        Ok(_node) => panic!("it started"),
        Err(e) => e.to_string(),
    }
}

impl Node {
    async fn register(&self, epoch: u64) {
        let session = session(epoch);
        let registration = Registration {
            session: session.clone(),
            nonce: Nonce(epoch.into()),
            incarnation: format!("i{epoch}").parse().unwrap(),
            raft_id: RaftId(1),
            boot_id: None,
            http_url: "http://127.0.0.1:1".into(),
            peer_address: "127.0.0.1:2".into(),
            slots: Slots::ONE,
            formats: (1, 1),
        };
        let found = Command::Found { uid: ClusterUid(1), identity: None, size: 1 };
        self.metadata.propose_founding(found).await.unwrap();
        let answer = self.metadata.propose_founding(Command::Register(registration)).await.unwrap();
        assert!(matches!(answer, Answer::Registered { .. }), "{answer:?}");
        self.metadata.begin_session(session);
    }

    async fn create(&self, name: &str) -> Result<StreamId, ProposeError> {
        match self.metadata.propose(create(name)).await? {
            Answer::Created { stream, .. } | Answer::Exists { stream } => Ok(stream),
            other => panic!("{other:?}"),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.metadata.read(|s| s.names.contains_key(name))
    }

    async fn stop(self) {
        self.metadata.stop().await;
        self.tasks.stop().await;
    }
}

#[allow(clippy::disallowed_methods, reason = "a test's own tasks, which it awaits")]
fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    tokio::task::spawn(task)
}

fn session(epoch: u64) -> SessionId {
    SessionId { node: "n-0".parse().unwrap(), epoch: NodeEpoch(epoch) }
}

fn create(name: &str) -> Command {
    let config = StreamConfig { content_type: "text/plain".into(), expiry: Expiry::Never };
    Command::Create { name: name.into(), config, closed: false, unborn: false }
}

fn copy(from: &Path) -> TempDir {
    fn all(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => all(&entry.path(), &to),
                false => drop(fs::copy(entry.path(), to).unwrap()),
            }
        }
    }
    let to = tempfile::tempdir().unwrap();
    all(from, to.path());
    to
}

fn snapshot_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(dir.join("snapshots")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Waits for a condition that other tasks bring about.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_comes_after_the_view_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    node.register(1).await;
    let a = node.create("a").await.unwrap();
    assert_eq!(node.metadata.read(|s| s.names.get("a").copied()), Some(a));
    let b = node.create("b").await.unwrap();
    assert_ne!(a, b);
    assert!(node.metadata.leadership().borrow().me);
    let stats = node.metadata.stats();
    assert_eq!((stats.waiting, stats.applied), (0, *node.metadata.applied().borrow()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_commands_share_entries_and_each_has_its_own_answer() {
    let dir = tempfile::tempdir().unwrap();
    let node = Arc::new(start(dir.path()).await);
    node.register(1).await;
    let before = node.metadata.stats().last_log;
    let proposers = (0..32).map(|p| {
        let node = node.clone();
        async move {
            let mut ids = Vec::new();
            for i in 0..50 {
                ids.push(node.create(&format!("{p}-{i}")).await.unwrap());
            }
            ids
        }
    });
    let proposers: Vec<_> = proposers.map(spawn).collect();
    let mut ids = BTreeSet::new();
    for proposer in proposers {
        ids.extend(proposer.await.unwrap());
    }
    assert_eq!(ids.len(), 1600);
    let entries = node.metadata.stats().last_log - before;
    assert!(entries < 800, "{entries} entries for 1600 commands");
    Arc::into_inner(node).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_asked_for_again_under_the_same_number() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    node.register(1).await;
    let log = &node.metadata.shared.log;
    let request = RequestId { session: session(1), number: 1, lowest_unanswered: 1 };
    let batch =
        Batch { time_ms: 1, commands: vec![Envelope { request: Some(request), command: create("a") }] };
    let submit =
        async || log.submit(codec::encode_batch(&batch, 1)).await.unwrap().outcomes().await.unwrap().1;
    let first = submit().await;
    // The answer gets lost; meanwhile another command takes the next stream id.
    node.metadata.shared.requests.lock().take().unwrap();
    node.create("b").await.unwrap();
    assert_eq!(submit().await, first);
    assert_eq!(node.metadata.read(|s| s.names.len()), 2);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_unknown_fate_is_submitted_until_it_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = Tasks::default();
    let cfg = MetadataConfig::new(dir.path(), RaftId(2), false);
    let log = Log::start(&cfg, TestDisk::default(), &tasks).await.unwrap();
    let (asks, asked) = mpsc::channel(8);
    let (leads, leadership) = watch::channel(Leadership { me: true, ..Leadership::default() });
    let closing = CancellationToken::new();
    let proposer = Proposer {
        log: log.clone(),
        peers: None,
        requests: Arc::default(),
        clock: Clock::default(),
        tasks: tasks.clone(),
        asks: asked,
        leadership,
        leader_wait: Duration::from_secs(60),
        closing: closing.clone(),
        drained: CancellationToken::new(),
    };
    let running = spawn(proposer.run());
    let ask = |reply| Ask {
        command: Command::Found { uid: ClusterUid(7), identity: None, size: 1 },
        founding: true,
        bytes: 10,
        taken: Arc::default(),
        reply,
        permit: Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap(),
    };
    let (reply, answer) = oneshot::channel();
    // Said to lead, it does not: the log refuses the entry, and the proposer cannot know what became of it.
    assert!(asks.send(ask(reply)).await.is_ok());
    until("the command has entered", || asks.capacity() == asks.max_capacity()).await;
    leads.send_replace(Leadership::default());
    lead(&log, 2).await;
    let mut applied = log.applied();
    applied.wait_for(|index| *index > 0).await.unwrap();
    leads.send_replace(Leadership { me: true, ..Leadership::default() });
    assert_eq!(answer.await.unwrap(), Ok(Answer::Founded { uid: ClusterUid(7) }));
    // One that nobody waits for any more, or whose caller took it back, never enters.
    let before = log.stats().last_log;
    let (reply, gone) = oneshot::channel();
    drop(gone);
    assert!(asks.send(ask(reply)).await.is_ok());
    let (reply, taken_back) = oneshot::channel();
    assert!(asks.send(Ask { taken: Arc::new(AtomicBool::new(true)), ..ask(reply) }).await.is_ok());
    assert!(taken_back.await.is_err());
    assert_eq!(log.stats().last_log, before);
    closing.cancel();
    running.await.unwrap();
    log.stop().await;
    tasks.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_need_a_session_that_is_current() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    let none = node.create("a").await.unwrap_err();
    assert!(matches!(none, ProposeError::Unavailable(_)), "{none:?}");
    node.register(1).await;
    node.create("a").await.unwrap();
    let ended = node.metadata.propose(Command::EndSession).await.unwrap();
    assert!(matches!(ended, Answer::SessionEnded { .. }), "{ended:?}");
    assert_eq!(node.create("b").await, Err(ProposeError::SessionOver));
    node.register(2).await;
    node.create("b").await.unwrap();
    // Registered again behind this one's back: refused by the log, and from then on at once.
    node.register(3).await;
    node.metadata.begin_session(session(2));
    assert_eq!(node.create("c").await, Err(ProposeError::SessionOver));
    let before = node.metadata.stats().last_log;
    assert_eq!(node.create("c").await, Err(ProposeError::SessionOver));
    assert_eq!(node.metadata.stats().last_log, before);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_bounded_and_large_ones_share_entries_within_the_bound() {
    let dir = tempfile::tempdir().unwrap();
    let node = Arc::new(start(dir.path()).await);
    node.register(1).await;
    let touch =
        |n: u64| Command::Touch { touches: (0..n).map(|i| (StreamId(i + (1 << 40)), u64::MAX)).collect() };
    let too_large = node.metadata.propose(touch(20_000)).await.unwrap_err();
    assert!(matches!(too_large, ProposeError::TooLarge { bytes } if bytes > COMMAND_MAX), "{too_large:?}");
    let large: Vec<_> = (0..20)
        .map(|_| {
            let (node, command) = (node.clone(), touch(14_000));
            spawn(async move { node.metadata.propose(command).await })
        })
        .collect();
    for answer in large {
        let answer = answer.await.unwrap();
        assert!(matches!(answer, Ok(_) | Err(ProposeError::Refused(_))), "{answer:?}");
    }
    Arc::into_inner(node).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_leader_a_command_is_unavailable_and_never_enters() {
    let dir = tempfile::tempdir().unwrap();
    let cfg = MetadataConfig {
        leader_wait: Duration::from_millis(20),
        ..MetadataConfig::new(dir.path(), RaftId(2), false)
    };
    let node = try_start(cfg).await.unwrap();
    let found = Command::Found { uid: ClusterUid(1), identity: None, size: 1 };
    let no = node.metadata.propose_founding(found).await.unwrap_err();
    assert!(matches!(no, ProposeError::Unavailable(_)), "{no:?}");
    let no = node.metadata.read_index(Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(no, ProposeError::Unavailable(_)), "{no:?}");
    assert_eq!(node.metadata.stats().last_log, 0);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_index_is_as_new_as_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let node = Arc::new(start(dir.path()).await);
    node.register(1).await;
    for round in 0..20 {
        node.create(&format!("s{round}")).await.unwrap();
        let seen = *node.metadata.applied().borrow();
        let reads: Vec<_> = (0..50)
            .map(|_| {
                let node = node.clone();
                spawn(async move { node.metadata.read_index(Duration::from_secs(60)).await })
            })
            .collect();
        for read in reads {
            assert!(read.await.unwrap().unwrap() >= seen);
        }
    }
    Arc::into_inner(node).unwrap().stop().await;
}

/// Not part of the gate: `cargo test -p weir --lib metadata::tests::rate -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn rate() {
    let at = option_env!("WEIR_RATE_DIR").unwrap_or("/var/tmp");
    let dir = TempDir::new_in(at).unwrap();
    let node = Arc::new(start(dir.path()).await);
    node.register(1).await;
    let clock = Clock::default();
    for proposers in [1, 8, 32, 128] {
        let (began, before) = (clock.monotonic(), node.metadata.stats().last_log);
        let each = 8000 / proposers;
        let load: Vec<_> = (0..proposers)
            .map(|p| {
                let node = node.clone();
                spawn(async move {
                    for i in 0..each {
                        node.create(&format!("{proposers}-{p}-{i}")).await.unwrap();
                    }
                })
            })
            .collect();
        for load in load {
            load.await.unwrap();
        }
        let took = began.elapsed();
        let entries = node.metadata.stats().last_log - before;
        let rate = f64::from(each * proposers) / took.as_secs_f64();
        println!("{proposers} proposers: {rate:.0} commands/s, {entries} entries");
    }
    Arc::into_inner(node).unwrap().stop().await;
    let began = clock.monotonic();
    let node = start(dir.path()).await;
    println!("restart: {:?}", began.elapsed());
    node.stop().await;
}
