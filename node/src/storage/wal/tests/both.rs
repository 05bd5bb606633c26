//! The promises of `WalStore`, `WalWriter` and the pipeline that hold whatever lies below.

use super::rig::*;
use crate::storage::wal::*;
use std::collections::BTreeSet;

#[tokio::test]
async fn what_was_stored_comes_back_in_order_from_any_start() {
    over_both(async |rig| {
        let (s, writer) = (session(1), rig.writer(1).await);
        for seq in 1..=40 {
            writer.put(seq, object(&s, seq, (seq * 31 % 700) as usize)).await.unwrap();
        }
        let (end, all) = seal(&rig.wals, &s, 0, 1).await.unwrap();
        assert_eq!(end, 41);
        for o in &all {
            assert_eq!(o.frames, [frame(o.seq, (o.seq * 31 % 700) as usize)]);
        }
        for from in [1, 2, 17, 40, 41] {
            let (end, objects) = seal(&rig.wals, &s, from, 2).await.unwrap();
            assert_eq!((end, &objects[..]), (41, &all[from as usize - 1..]), "from {from}");
        }
    })
    .await;
}

#[tokio::test]
async fn after_the_seal_nothing_is_stored_any_more() {
    over_both(async |rig| {
        let (s, writer) = (session(1), rig.writer(1).await);
        writer.put(1, object(&s, 1, 10)).await.unwrap();
        let (end, objects) = seal(&rig.wals, &s, 1, 1).await.unwrap();
        assert_eq!((end, objects.len()), (2, 1));
        assert_eq!(writer.put(2, object(&s, 2, 10)).await, Err(PutError::Sealed));
        assert_eq!(writer.put(2, object(&s, 2, 10)).await, Err(PutError::Sealed));
        assert_eq!(seal(&rig.wals, &s, 1, 2).await.unwrap(), (end, objects), "nor seen by a second sealer");
    })
    .await;
}

#[tokio::test]
async fn a_session_that_wrote_nothing_is_sealed_too() {
    over_both(async |rig| {
        let s = session(1);
        let writer = rig.writer(1).await;
        assert_eq!(seal(&rig.wals, &s, 0, 1).await.unwrap(), (1, vec![]));
        assert_eq!(writer.put(1, object(&s, 1, 10)).await, Err(PutError::Sealed));
        // Sealed even before its writer came.
        let s = session(2);
        assert_eq!(seal(&rig.wals, &s, 0, 1).await.unwrap(), (1, vec![]));
        let writer = rig.writer(2).await;
        assert_eq!(writer.put(1, object(&s, 1, 10)).await, Err(PutError::Sealed));
    })
    .await;
}

#[tokio::test]
async fn a_session_has_one_writer() {
    over_both(async |rig| {
        let (s, writer) = (session(1), rig.writer(1).await);
        writer.put(1, object(&s, 1, 10)).await.unwrap();
        assert_eq!(rig.wals.create(&s).await.err(), Some(WalError::SessionExists(s.clone())));
        let other = rig.writer(2).await;
        other.put(1, object(&session(2), 1, 10)).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_recovery_that_breaks_off_can_be_repeated() {
    over_both(async |rig| {
        let (s, writer) = (session(1), rig.writer(1).await);
        for seq in 1..=50 {
            writer.put(seq, object(&s, seq, 300)).await.unwrap();
        }
        let (each, mut got) = mpsc::channel(1);
        let (by, none) = (note(1), BTreeSet::new());
        let broken = tokio::join!(rig.wals.seal(&s, 1, &by, &none, each), async {
            got.recv().await.unwrap();
            drop(got);
        });
        assert_eq!(broken.0, Err(WalError::Abandoned));
        assert_eq!(seal(&rig.wals, &s, 1, 2).await.unwrap().0, 51);
        assert_eq!(seal(&rig.wals, &s, 1, 3).await.unwrap().0, 51);
    })
    .await;
}

#[tokio::test]
async fn trimming_keeps_everything_from_its_bound_on_and_the_seal() {
    over_both(async |rig| {
        let (s, writer) = (session(1), rig.writer(1).await);
        for seq in 1..=60 {
            writer.put(seq, object(&s, seq, 400)).await.unwrap();
            if seq % 7 == 0 {
                rig.wals.trim(&s, seq - 5).await.unwrap();
            }
        }
        let (end, objects) = seal(&rig.wals, &s, 51, 1).await.unwrap();
        assert_eq!((end, objects.len()), (61, 10));
        rig.wals.trim(&s, 55).await.unwrap();
        assert_eq!(seal(&rig.wals, &s, 55, 1).await.unwrap().1, objects[4..]);
        // Recovered: everything goes but the seal.
        rig.wals.trim(&s, end).await.unwrap();
        assert_eq!(seal(&rig.wals, &s, end, 2).await.unwrap(), (end, vec![]));
        assert_eq!(writer.put(61, object(&s, 61, 10)).await, Err(PutError::Sealed));
        rig.wals.trim(&s, u64::MAX).await.unwrap();
        assert_eq!(seal(&rig.wals, &s, end, 3).await.unwrap(), (end, vec![]), "not even then the seal");
    })
    .await;
}

#[tokio::test]
async fn another_clusters_records_stop_the_recovery() {
    over_both(async |rig| {
        let (s, writer) = (session(1), rig.writer(1).await);
        let foreign = codec::encode(&ClusterUid(0xbad).into(), &s, 1, &[frame(1, 10)]);
        writer.put(1, foreign).await.unwrap();
        let error = seal(&rig.wals, &s, 1, 1).await.unwrap_err();
        assert!(
            matches!(&error, WalError::Corrupt { why, .. } if why.contains("belongs to cluster")),
            "{error}"
        );
    })
    .await;
}

#[tokio::test]
async fn acknowledgements_come_in_order_and_after_the_sink() {
    over_both(async |rig| {
        let (wal, sink) = rig.pipeline(1, WalLimits::default()).await;
        let mut tickets = Vec::new();
        for n in 0..500 {
            tickets.push(wal.enqueue(frame(n, 50)).unwrap());
            if n % 20 == 0 {
                tickets[n as usize / 2].wait().await.unwrap();
                assert!(sink.frames().contains(&(n / 2)), "the sink hears before the ticket resolves");
            }
        }
        wal.settled().await;
        assert!(tickets.iter().all(Ticket::is_durable));
        assert_eq!(sink.frames(), (0..500).collect::<Vec<_>>());
        let seqs: Vec<u64> = sink.batches.lock().iter().map(|(seq, _)| *seq).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
        let status = wal.status();
        assert_eq!((status.waiting, status.frames, status.durable_below), (0, 500, seqs.len() as u64 + 1));
        rig.tasks.stop().await;
        let (_, objects) = seal(&rig.wals, &session(1), 0, 1).await.unwrap();
        let sizes: u64 = objects.iter().map(|o| o.bytes).sum();
        assert_eq!(status.backlog_bytes, sizes, "the backlog counts what recovery would read");
        let frames: Vec<_> = objects.into_iter().flat_map(|o| o.frames).collect();
        assert_eq!(frames, (0..500).map(|n| frame(n, 50)).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn a_fenced_pipeline_acknowledges_nothing_more() {
    over_both(async |rig| {
        let (wal, sink) = rig.pipeline(1, WalLimits::default()).await;
        wal.enqueue(frame(0, 10)).unwrap().wait().await.unwrap();
        let (end, _) = seal(&rig.wals, &session(1), 0, 1).await.unwrap();
        assert_eq!(end, 2);
        let late = wal.enqueue(frame(1, 10)).unwrap();
        assert_eq!(late.wait().await, Err(Fenced));
        assert!(!late.is_durable());
        wal.sealed().cancelled().await;
        assert_eq!(wal.enqueue(frame(2, 10)).unwrap_err(), WalBusy::Sealed);
        wal.settled().await;
        assert_eq!(sink.frames(), [0]);
        assert!(wal.status().sealed);
        rig.tasks.stop().await;
    })
    .await;
}

#[tokio::test]
async fn stopping_fences_what_waits_and_ends() {
    over_both(async |rig| {
        let (wal, _) = rig.pipeline(1, WalLimits::default()).await;
        if let Some(faults) = &rig.faults {
            faults.hang_all(true);
            let ticket = wal.enqueue(frame(0, 10)).unwrap();
            idle().await;
            rig.tasks.stop().await;
            assert_eq!(ticket.wait().await, Err(Fenced));
        }
        rig.tasks.stop().await;
        assert_eq!(wal.enqueue(frame(2, 10)).unwrap_err(), WalBusy::Sealed);
        wal.settled().await;
    })
    .await;
}
