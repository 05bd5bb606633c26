//! Disks that are full, or fail.

use super::*;
use crate::clock::Clock;
use crate::storage::wal::tests::rig::{Sink, frame, object, seal};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

#[tokio::test]
async fn a_full_disk_refuses_and_then_goes_on_where_it_was() {
    for step in ["reserve", "create", "write", "rename"] {
        let bench = Bench::new();
        let (wals, faults) = bench.process();
        let s = session(1);
        let writer = wals.create(&s).await.unwrap();
        let mut refused = 0;
        for seq in 1..=40 {
            if seq == 10 {
                faults.fail(step, ENOSPC, 12);
            }
            loop {
                match writer.put(seq, object(&s, seq, 900)).await {
                    Ok(()) => break,
                    Err(PutError::NoRoom(why)) => {
                        assert!(why.contains("No space left"), "{why}");
                        refused += 1;
                    }
                    Err(e) => panic!("{step}: {e}"),
                }
            }
        }
        assert!(refused > 0, "{step}");
        assert_eq!(seal(&wals, &s, 1, 1).await.unwrap().0, 41, "{step}");
        assert!(bench.names().iter().all(|n| !n.starts_with("tmp-")), "{:?}", bench.names());
    }
}

/// The kernel reports a failed write-back once and may drop the pages: the next sync's success would mean nothing.
#[tokio::test]
async fn after_a_failed_sync_nothing_is_acknowledged_any_more() {
    for (step, errno) in [("sync", EIO), ("sync", ENOSPC), ("write", EIO), ("sync-folder", EIO)] {
        let bench = Bench::new();
        let (wals, faults) = bench.process();
        let s = session(1);
        let writer = wals.create(&s).await.unwrap();
        let mut acked = 0;
        let mut failed = None;
        for seq in 1..=60 {
            if seq == 5 {
                faults.fail(step, errno, 1);
            }
            match writer.put(seq, object(&s, seq, 900)).await {
                Ok(()) => acked = seq,
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
        }
        // The spare's thread may have met the failure instead; then there was none for the log.
        let Some(failed) = failed else { continue };
        assert!(matches!(failed, PutError::Failed(_)), "{step}: {failed}");
        faults.heal();
        let again = writer.put(acked + 1, object(&s, acked + 1, 900)).await;
        assert_eq!(again, Err(failed), "{step}");
        let (end, _) = seal(&wals, &s, 1, 1).await.unwrap();
        assert!(end > acked, "{step}: {acked} was acknowledged, the WAL ends at {end}");
    }
}

#[tokio::test]
async fn an_unanswered_look_for_the_seal_is_no_acknowledgement() {
    let bench = Bench::new();
    let (wals, faults) = bench.process();
    let s = session(1);
    let writer = wals.create(&s).await.unwrap();
    writer.put(1, object(&s, 1, 10)).await.unwrap();
    faults.fail("look", EIO, 1);
    assert!(matches!(writer.put(2, object(&s, 2, 10)).await, Err(PutError::Unknown(_))));
    assert_eq!(seal(&wals, &s, 1, 1).await.unwrap().0, 3, "it is there all the same");
    assert_eq!(writer.put(2, object(&s, 2, 10)).await, Err(PutError::Sealed));
}

#[tokio::test]
async fn a_pipeline_on_a_full_disk_takes_nothing_new_and_recovers() {
    let bench = Bench::new();
    let (wals, faults) = bench.process();
    let tasks = Tasks::default();
    let sink = Arc::new(Sink::default());
    let writer = wals.create(&session(1)).await.unwrap();
    let limits = super::super::super::WalLimits::default();
    let wal = super::super::super::Wal::start(
        &tasks,
        &Clock::default(),
        writer,
        CLUSTER,
        session(1),
        limits,
        sink.clone(),
    );
    wal.enqueue(frame(1, 10)).unwrap().wait().await.unwrap();
    for step in ["write", "create", "reserve"] {
        faults.fail(step, ENOSPC, u32::MAX);
    }
    let caught = wal.enqueue(frame(2, 10)).unwrap();
    while !wal.status().stalled {
        tokio::task::yield_now().await;
    }
    assert!(wal.enqueue(frame(3, 10)).unwrap_err().to_string().contains("No space left"));
    assert!(!caught.is_durable());
    faults.heal();
    caught.wait().await.unwrap();
    wal.enqueue(frame(4, 10)).unwrap().wait().await.unwrap();
    assert_eq!(sink.frames(), [1, 2, 4]);
    assert_eq!(wal.status().error, None);
    tasks.stop().await;
}

#[tokio::test]
async fn a_failed_sync_fails_the_node() {
    let bench = Bench::new();
    let (wals, faults) = bench.process();
    let tasks = Tasks::default();
    let writer = wals.create(&session(1)).await.unwrap();
    let limits = super::super::super::WalLimits::default();
    let sink = Arc::new(Sink::default());
    let clock = Clock::default();
    let wal =
        super::super::super::Wal::start(&tasks, &clock, writer, CLUSTER, session(1), limits, sink.clone());
    wal.enqueue(frame(1, 10)).unwrap().wait().await.unwrap();
    faults.fail("sync", EIO, u32::MAX);
    let ticket = wal.enqueue(frame(2, 10)).unwrap();
    assert!(ticket.wait().await.is_err());
    assert!(format!("{:#}", tasks.failed().await).contains("fdatasync"));
    assert_eq!(sink.frames(), [1]);
    assert!(wal.status().failed.unwrap().contains("fdatasync"));
}
