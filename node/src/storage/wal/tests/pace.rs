//! When puts start, how much waits, what counts against the bounds.

use std::time::Duration;

use super::rig::*;
use crate::storage::wal::*;

fn puts(rig: &Rig) -> u64 {
    rig.faults.as_ref().unwrap().counts().puts
}

#[tokio::test(start_paused = true)]
async fn a_second_put_starts_only_for_much_or_for_long() {
    let rig = bucket_in_memory();
    let (wal, _) = rig.pipeline(1, WalLimits::default()).await;
    rig.faults.as_ref().unwrap().hang_all(true);
    wal.enqueue(frame(1, 10)).unwrap();
    idle().await;
    assert_eq!(puts(&rig), 1, "the first starts at once");
    wal.enqueue(frame(2, 10)).unwrap();
    wal.enqueue(frame(3, 1000)).unwrap();
    idle().await;
    assert_eq!(puts(&rig), 1, "a little waits for the one under way");
    wal.enqueue(frame(4, 1 << 20)).unwrap();
    idle().await;
    assert_eq!(puts(&rig), 2, "1 MiB does not");
    wal.enqueue(frame(5, 3 << 20)).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(puts(&rig), 2, "never a third");
    assert_eq!(wal.status().waiting, 5);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_waits_for_the_interval_or_for_twice_the_put_time() {
    for interval in [None, Some(Duration::from_millis(500))] {
        let rig = bucket_in_memory();
        let (wal, _) = rig.pipeline(1, WalLimits { interval, ..WalLimits::default() }).await;
        rig.faults.as_ref().unwrap().hang_all(true);
        wal.enqueue(frame(1, 10)).unwrap();
        idle().await;
        wal.enqueue(frame(2, 10)).unwrap();
        // Unmeasured, a put is taken to last 100 ms.
        let wait = interval.unwrap_or(Duration::from_millis(200));
        tokio::time::sleep(wait - Duration::from_millis(2)).await;
        assert_eq!(puts(&rig), 1);
        tokio::time::sleep(Duration::from_millis(4)).await;
        assert_eq!(puts(&rig), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn put_time_is_measured() {
    let rig = bucket_in_memory();
    let (wal, _) = rig.pipeline(1, WalLimits::default()).await;
    rig.faults.as_ref().unwrap().hang_all(true);
    let ticket = wal.enqueue(frame(1, 10)).unwrap();
    idle().await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    rig.faults.as_ref().unwrap().release();
    ticket.wait().await.unwrap();
    let time = wal.status().put_time;
    assert!((700..710).contains(&time.as_millis()), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn objects_are_filled_up_to_their_size_and_a_larger_append_gets_its_own() {
    let rig = bucket_in_memory();
    let interval = Some(Duration::from_secs(3600));
    let limits = WalLimits { object_bytes: 10_000, interval, ..WalLimits::default() };
    let (wal, sink) = rig.pipeline(1, limits).await;
    for (n, bytes) in [10, 6000, 3000, 3000, 50_000, 10].into_iter().enumerate() {
        wal.enqueue(frame(n as u64, bytes)).unwrap();
        idle().await;
        if n == 0 {
            rig.faults.as_ref().unwrap().hang_all(true);
            wal.enqueue(frame(100, 10)).unwrap();
            wal.enqueue(frame(101, 10)).unwrap();
            idle().await;
        }
    }
    rig.faults.as_ref().unwrap().hang_all(false);
    rig.faults.as_ref().unwrap().release();
    wal.settled().await;
    let batches: Vec<Vec<u64>> = sink.batches.lock().iter().map(|(_, f)| f.clone()).collect();
    assert_eq!(batches, [vec![0], vec![100, 101], vec![1, 2], vec![3], vec![4], vec![5]]);
}

#[tokio::test(start_paused = true)]
async fn at_the_bound_appends_are_refused_until_segments_cover_some() {
    over_both_in_memory(async |rig| {
        let limits = WalLimits { backlog_bytes: 10_000, backlog_objects: 10, ..WalLimits::default() };
        let (wal, _) = rig.pipeline(1, limits).await;
        let mut taken = 0;
        loop {
            match wal.enqueue(frame(taken, 900)) {
                Ok(ticket) => ticket.wait().await.unwrap(),
                Err(e) => break assert_eq!(e, WalBusy::Full),
            }
            taken += 1;
        }
        assert!((8..=10).contains(&taken), "{taken}");
        let full = wal.status();
        assert!(full.backlog_bytes <= full.max_bytes && full.backlog_objects <= full.max_objects + 1);
        wal.covered(4);
        let less = wal.status();
        assert!(less.backlog_bytes < full.backlog_bytes && less.backlog_objects < full.backlog_objects);
        wal.covered(2);
        assert_eq!(wal.status(), less, "the start never goes down");
        wal.enqueue(frame(50, 900)).unwrap().wait().await.unwrap();
        wal.covered(u64::MAX);
        assert_eq!((wal.status().backlog_bytes, wal.status().backlog_objects), (0, 0));
        // Even more than the bound by itself, rather than never.
        wal.enqueue(frame(51, 20_000)).unwrap().wait().await.unwrap();
        rig.tasks.stop().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn small_appends_fill_the_bound_on_objects_in_a_bucket_but_not_in_a_folder() {
    over_both_in_memory(async |rig| {
        let limits = WalLimits { backlog_bytes: 1 << 20, backlog_objects: 16, ..WalLimits::default() };
        let (wal, _) = rig.pipeline(1, limits).await;
        let mut taken = 0;
        while taken < 100
            && let Ok(ticket) = wal.enqueue(frame(taken, 10))
        {
            ticket.wait().await.unwrap();
            taken += 1;
        }
        let local = rig.folder.is_some();
        assert_eq!(taken, if local { 100 } else { 16 });
        let status = wal.status();
        assert_eq!(status.backlog_objects, if local { status.backlog_bytes.div_ceil(1 << 16) } else { 16 });
        rig.tasks.stop().await;
    })
    .await;
}

#[tokio::test]
async fn what_fits_into_no_object_is_refused_for_good() {
    let rig = bucket();
    let (wal, _) = rig.pipeline(1, WalLimits::default()).await;
    assert!(matches!(wal.enqueue(frame(1, 65 << 20)), Err(WalBusy::TooLarge(_))));
    wal.enqueue(frame(2, 10)).unwrap().wait().await.unwrap();
    rig.tasks.stop().await;
}

#[tokio::test]
async fn segments_may_cover_an_object_before_the_pipeline_has_counted_it() {
    struct Eager(parking_lot::Mutex<Option<Wal>>);
    impl WalSink for Eager {
        fn durable(&self, batch: DurableBatch) {
            if let Some(wal) = &*self.0.lock() {
                wal.covered(batch.seq + 1);
            }
        }
    }
    let rig = bucket();
    let sink = Arc::new(Eager(parking_lot::Mutex::default()));
    let clock = crate::clock::Clock::default();
    let writer = rig.writer(1).await;
    let wal = Wal::start(&rig.tasks, &clock, writer, CLUSTER, session(1), WalLimits::default(), sink.clone());
    *sink.0.lock() = Some(wal.clone());
    wal.enqueue(frame(1, 10)).unwrap().wait().await.unwrap();
    assert_eq!((wal.status().backlog_bytes, wal.status().backlog_objects), (0, 0));
    rig.tasks.stop().await;
}
