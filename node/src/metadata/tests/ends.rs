//! However a process ends: the next has what was answered, and nothing twice.

use super::*;

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
    // Whoever learns of the failure only by trying cannot know what became of it.
    let late = node.create("c").await.unwrap_err();
    assert!(matches!(late, ProposeError::Unavailable(_) | ProposeError::Unknown), "{late:?}");
    assert!(!node.has("c"));
    node.stop().await;
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
