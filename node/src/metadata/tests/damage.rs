//! Files that are damaged, half there, or another's: a start has everything, or names what is wrong.

use super::*;

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
