//! The handle, one voter, on a real folder or a disk in memory: what is answered is there, after whatever end.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use tempfile::TempDir;
use weir_api::{ClusterUid, NodeEpoch, Nonce, Slots, StreamId};

use super::command::{Batch, Envelope, Expiry, Registration, RequestId, StreamConfig};
use super::raft::tests::{TestDisk, lead};
use super::*;

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

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_the_state_in_a_new_term() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    node.register(1).await;
    for i in 0..20 {
        node.create(&format!("s{i}")).await.unwrap();
    }
    let (hash, term) = (node.metadata.state_hash().await, node.metadata.leadership().borrow().term);
    node.stop().await;
    let node = start(dir.path()).await;
    assert_eq!(node.metadata.state_hash().await, hash);
    assert!(node.metadata.leadership().borrow().term > term);
    node.register(2).await;
    node.create("after").await.unwrap();
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_leaves_what_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    let node = try_start(small(dir.path())).await.unwrap();
    node.register(1).await;
    for i in 0..300 {
        node.create(&format!("stream-with-some-name-{i}")).await.unwrap();
    }
    let hash = node.metadata.state_hash().await;
    let image = copy(dir.path());
    let again = try_start(small(image.path())).await.unwrap();
    assert_eq!(again.metadata.state_hash().await, hash);
    again.stop().await;
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
    let submit = async || log.submit(codec::encode_batch(&batch)).await.unwrap().outcomes().await.unwrap();
    let first = submit().await;
    // The answer gets lost; meanwhile another command takes the next stream id.
    node.metadata.shared.requests.lock().take().unwrap();
    node.create("b").await.unwrap();
    assert_eq!(submit().await, first);
    assert_eq!(node.metadata.read(|s| s.names.len()), 2);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_cut_by_size_and_the_log_is_purged_behind_them() {
    let dir = tempfile::tempdir().unwrap();
    let node = try_start(small(dir.path())).await.unwrap();
    node.register(1).await;
    let mut i = 0;
    while node.metadata.stats().purged == 0 || node.metadata.stats().snapshot < 500 {
        node.create(&format!("stream-with-some-name-{i}")).await.unwrap();
        i += 1;
        assert!(i < 20_000, "no snapshot was ever taken");
    }
    let stats = node.metadata.stats();
    assert!(stats.purged <= stats.snapshot && stats.snapshot <= stats.applied, "{stats:?}");
    node.metadata.trigger_snapshot().await.unwrap();
    assert!(node.metadata.stats().snapshot >= stats.applied);
    assert_eq!(snapshot_files(dir.path()).len(), 1);
    node.create("after the snapshot").await.unwrap();
    let hash = node.metadata.state_hash().await;
    node.stop().await;

    let node = try_start(small(dir.path())).await.unwrap();
    assert_eq!(node.metadata.state_hash().await, hash);
    node.register(2).await;
    // A retry from before the snapshot would still be recognised: the session's answers are part of the state.
    assert!(node.has("stream-with-some-name-0") && node.has("after the snapshot"));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_snapshot_stops_the_start_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    node.register(1).await;
    for i in 0..50 {
        node.create(&format!("s{i}")).await.unwrap();
    }
    node.metadata.trigger_snapshot().await.unwrap();
    node.stop().await;
    let file = snapshot_files(dir.path()).pop().unwrap();
    let good = fs::read(&file).unwrap();
    let mut bads = vec![Vec::new(), good[..5].to_vec(), good[..good.len() / 2].to_vec()];
    bads.push(good[..good.len() - 1].to_vec());
    bads.push([good.as_slice(), b"x"].concat());
    for at in (0..good.len()).step_by(good.len() / 23) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        bads.push(bad);
    }
    for (n, bad) in bads.into_iter().enumerate() {
        fs::write(&file, bad).unwrap();
        let why = refused(MetadataConfig::new(dir.path(), RaftId(1), true)).await;
        assert!(why.contains(file.to_str().unwrap()), "{n}: {why}");
    }
    fs::write(&file, good).unwrap();
    start(dir.path()).await.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_of_the_files_is_not_taken_for_a_whole_log() {
    let dir = tempfile::tempdir().unwrap();
    let node = try_start(small(dir.path())).await.unwrap();
    node.register(1).await;
    for i in 0..50 {
        node.create(&format!("s{i}")).await.unwrap();
    }
    node.metadata.trigger_snapshot().await.unwrap();
    until("the log is purged", || node.metadata.stats().purged > 0).await;
    node.create("after").await.unwrap();
    node.stop().await;

    let no_log = copy(dir.path());
    fs::remove_file(no_log.path().join("log.redb")).unwrap();
    for _ in 0..2 {
        let why = refused(small(no_log.path())).await;
        assert!(why.contains("log.redb") && why.contains("lost"), "{why}");
    }
    let no_snapshot = copy(dir.path());
    fs::remove_file(snapshot_files(no_snapshot.path()).pop().unwrap()).unwrap();
    let why = refused(small(no_snapshot.path())).await;
    assert!(why.contains("no snapshot"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_between_writing_and_renaming_a_snapshot_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    node.register(1).await;
    node.create("a").await.unwrap();
    node.metadata.trigger_snapshot().await.unwrap();
    let hash = node.metadata.state_hash().await;
    node.stop().await;
    fs::write(dir.path().join("snapshots/7.tmp"), b"half of one").unwrap();
    // Between rename and removal there are two.
    let newest = snapshot_files(dir.path()).into_iter().find(|f| f.extension().unwrap() == "snap").unwrap();
    fs::copy(&newest, dir.path().join("snapshots/00000000000000000001.snap")).unwrap();
    let node = start(dir.path()).await;
    assert_eq!(node.metadata.state_hash().await, hash);
    assert_eq!(snapshot_files(dir.path()), [newest]);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_log_is_an_error_or_the_whole_state() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    node.register(1).await;
    for i in 0..200 {
        node.create(&format!("stream-{i}")).await.unwrap();
    }
    let hash = node.metadata.state_hash().await;
    node.stop().await;
    let image = copy(dir.path());
    let file = image.path().join("log.redb");
    let good = fs::read(&file).unwrap();
    let page = 4096;
    let mut bads: Vec<(String, Vec<u8>)> = vec![("garbage".into(), vec![0xa5; good.len()])];
    for cut in [1, page, 3 * page, good.len() / 2, good.len() - 100] {
        bads.push((format!("cut by {cut}"), good[..good.len() - cut].to_vec()));
    }
    for at in (0..good.len()).step_by((good.len() / 40).next_multiple_of(page)) {
        let mut bad = good.clone();
        let end = good.len().min(at + page);
        bad[at + 100..end].fill(0xa5);
        bads.push((format!("garbage at {at}"), bad));
    }
    bads.push(("garbage behind the end".into(), [good.as_slice(), &[0xa5; 5000]].concat()));
    let mut errors = 0;
    for (what, bad) in bads {
        fs::write(&file, bad).unwrap();
        match try_start(MetadataConfig::new(image.path(), RaftId(1), true)).await {
            Ok(node) => {
                assert_eq!(node.metadata.state_hash().await, hash, "{what}");
                node.stop().await;
            }
            Err(e) => {
                errors += 1;
                let path = image.path().to_str().unwrap();
                assert!(e.to_string().contains(path), "{what}: {e}");
            }
        }
    }
    assert!(errors > 0, "some damage must have been noticed");
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_to_what_was_just_acknowledged_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let disk = TestDisk::default();
    let tasks = Tasks::default();
    let cfg = MetadataConfig::new(dir.path(), RaftId(1), true);
    let metadata = Metadata::start_on(cfg.clone(), disk.clone(), &tasks, &Clock::default()).await.unwrap();
    let node = Node { metadata, tasks };
    node.register(1).await;
    for i in 0..20 {
        node.create(&format!("s{i}")).await.unwrap();
    }
    // As a kill at this moment leaves it.
    let (hash, good) = (node.metadata.state_hash().await, disk.synced());
    node.stop().await;
    let mut errors = 0;
    let pages = (0..good.len().min(60 * 4096)).step_by(4096).map(|at| at + 200..at + 1200);
    // What says which transaction is the newest, byte by byte.
    let head = (0..24).map(|at| at..at + 1);
    for at in head.chain(pages) {
        let mut bad = good.clone();
        bad[at.clone()].iter_mut().for_each(|byte| *byte ^= 0x5b);
        let tasks = Tasks::default();
        let damaged = TestDisk::holding(bad);
        match Metadata::start_on(cfg.clone(), damaged, &tasks, &Clock::default()).await {
            Err(_) => errors += 1,
            Ok(metadata) => {
                assert_eq!(metadata.state_hash().await, hash, "damage at {at:?}");
                metadata.stop().await;
            }
        }
        tasks.stop().await;
    }
    assert!(errors > 0, "some damage must have been noticed");
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
        requests: Arc::default(),
        clock: Clock::default(),
        tasks: tasks.clone(),
        asks: asked,
        leadership,
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
async fn the_power_may_go_at_any_moment() {
    for seed in 0..30_u64 {
        let dir = tempfile::tempdir().unwrap();
        let disk = TestDisk::default();
        let tasks = Tasks::default();
        let cfg = MetadataConfig::new(dir.path(), RaftId(1), true);
        let metadata =
            Metadata::start_on(cfg.clone(), disk.clone(), &tasks, &Clock::default()).await.unwrap();
        let node = Arc::new(Node { metadata, tasks });
        node.register(1).await;
        let answered = Arc::new(AtomicU64::new(0));
        let load = {
            let (node, answered) = (node.clone(), answered.clone());
            spawn(async move {
                for i in 0..2000 {
                    node.create(&format!("s{i}")).await.unwrap();
                    answered.store(i + 1, Ordering::SeqCst);
                }
            })
        };
        until("some are answered", || answered.load(Ordering::SeqCst) > seed * 7 % 60).await;
        let mut random = seed;
        let mut draw = move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize
        };
        let must = answered.load(Ordering::SeqCst);
        let left = disk.cut(|len| (draw() % 2 == 0).then(|| draw() % (len + 1)));
        load.abort();
        let again = tempfile::tempdir().unwrap();
        let cfg = MetadataConfig { dir: again.path().to_owned(), ..cfg };
        let tasks = Tasks::default();
        let metadata = Metadata::start_on(cfg, left, &tasks, &Clock::default()).await.unwrap();
        let after = Node { metadata, tasks };
        for i in 0..must {
            assert!(after.has(&format!("s{i}")), "seed {seed}: {i} of {must} is gone");
        }
        after.stop().await;
        drop(load.await);
        node.metadata.stop().await;
        node.tasks.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_fails_the_node_and_acknowledges_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = TestDisk::default();
    let tasks = Tasks::default();
    let cfg = MetadataConfig::new(dir.path(), RaftId(1), true);
    let metadata = Metadata::start_on(cfg, disk.clone(), &tasks, &Clock::default()).await.unwrap();
    let node = Node { metadata, tasks };
    node.register(1).await;
    node.create("a").await.unwrap();
    disk.fail_sync.store(true, Ordering::SeqCst);
    assert_eq!(node.create("b").await, Err(ProposeError::Unknown));
    let why = format!("{:#}", node.tasks.failed().await);
    assert!(why.contains("metadata-log") && why.contains("this disk fails"), "{why}");
    assert!(!node.has("b"));
    let late = node.create("c").await.unwrap_err();
    assert!(matches!(late, ProposeError::Unavailable(_)), "{late:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_does_not_decode_stops_the_node_and_its_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    let submitted = node.metadata.shared.log.submit(vec![0xff; 40]).await;
    drop(submitted);
    let why = format!("{:#}", node.tasks.failed().await);
    assert!(why.contains("does not decode"), "{why}");
    node.stop().await;
    let why = refused(MetadataConfig::new(dir.path(), RaftId(1), true)).await;
    assert!(why.contains("does not decode"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_has_one_process_and_one_raft_id() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path()).await;
    let second = try_start(MetadataConfig::new(dir.path(), RaftId(1), true)).await.map(drop).unwrap_err();
    assert!(matches!(second, StartError::Busy(_)), "{second}");
    node.stop().await;
    let other = try_start(MetadataConfig::new(dir.path(), RaftId(2), true)).await.map(drop).unwrap_err();
    assert!(matches!(other, StartError::Foreign(_)), "{other}");
    start(dir.path()).await.stop().await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_under_load_loses_no_answer_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Arc::new(start(dir.path()).await);
    node.register(1).await;
    let load: Vec<_> = (0..16)
        .map(|p| {
            let node = node.clone();
            spawn(async move {
                for i in 0.. {
                    let name = format!("{p}-{i}");
                    if let Err(e) = node.create(&name).await {
                        return (i, e);
                    }
                }
                unreachable!()
            })
        })
        .collect();
    until("there is load", || node.metadata.read(|s| s.names.len()) > 200).await;
    node.metadata.stop().await;
    let mut ends = Vec::new();
    for load in load {
        ends.push(load.await.unwrap());
    }
    Arc::into_inner(node).unwrap().stop().await;
    let node = start(dir.path()).await;
    for (p, (answered, end)) in ends.into_iter().enumerate() {
        for i in 0..answered {
            assert!(node.has(&format!("{p}-{i}")));
        }
        match end {
            ProposeError::Unavailable(_) => assert!(!node.has(&format!("{p}-{answered}"))),
            ProposeError::Unknown => {}
            other => panic!("{other:?}"),
        }
    }
    node.stop().await;
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
