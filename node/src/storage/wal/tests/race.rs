//! Writers against sealers, on real threads: whatever the schedule, what was acknowledged is what every sealer returns.

#![allow(clippy::disallowed_methods, reason = "the test awaits what it spawns")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::rig::*;
use crate::storage::wal::*;

/// As a pipeline's backlog bound ends a zombie that nobody can stop otherwise.
const BOUND: u64 = 300;

/// Puts records until sealed; `acked` is the last one that was acknowledged. Returns the first that was not.
async fn write_until_sealed(writer: Arc<dyn WalWriter>, epoch: u64, acked: Arc<AtomicU64>) -> u64 {
    let s = session(epoch);
    for seq in 1..=BOUND {
        for _ in 0..crate::clock::random_u64() % 4 {
            tokio::task::yield_now().await;
        }
        match writer.put(seq, object(&s, seq, (seq % 5 * 100) as usize)).await {
            Ok(()) => acked.store(seq, Ordering::SeqCst),
            Err(PutError::Sealed) => return seq,
            Err(e) => panic!("{e}"),
        }
    }
    BOUND + 1
}

async fn rounds(rig: Rig, rounds: u64) {
    for round in 1..=rig.rounds(rounds) {
        let acked = Arc::new(AtomicU64::new(0));
        let writer = rig.writer(round).await;
        let writing = tokio::spawn(write_until_sealed(writer, round, acked.clone()));
        while acked.load(Ordering::SeqCst) < round % 4 {
            tokio::task::yield_now().await;
        }
        let sealers = [1, 2, 3].map(|claim| {
            let (wals, acked) = (rig.wals.clone(), acked.clone());
            tokio::spawn(async move {
                let sealed = seal(&wals, &session(round), 0, claim).await;
                (sealed, acked.load(Ordering::SeqCst))
            })
        });
        let mut results = Vec::new();
        for sealer in sealers {
            let (sealed, acked_then) = sealer.await.unwrap();
            let (end, objects) = sealed.unwrap_or_else(|e| panic!("round {round}: {e}"));
            assert!(acked_then < end, "round {round}: {acked_then} was acknowledged, the WAL ends at {end}");
            results.push((end, objects));
        }
        let refused = writing.await.unwrap();
        let (end, last) = (results[0].0, acked.load(Ordering::SeqCst));
        assert_eq!(last + 1, refused);
        assert!(last < end, "round {round}: {last} was acknowledged after the WAL ended at {end}");
        assert!(end <= refused + 1);
        assert!(results.windows(2).all(|w| w[0] == w[1]), "round {round}: sealers disagree");
        // Much later still the same.
        assert_eq!(seal(&rig.wals, &session(round), 0, 9).await.unwrap(), results[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sealers_race_a_writer_in_a_bucket() {
    rounds(bucket(), 400).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sealers_race_a_writer_in_a_folder() {
    rounds(local(), 150).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fenced_pipeline_under_load_keeps_its_word() {
    over_both(async |rig| {
        for round in 1..=rig.rounds(30) {
            // What bounds a zombie: its commits are refused, so that its backlog fills up.
            let limits = WalLimits { backlog_objects: 64, backlog_bytes: 1 << 20, ..WalLimits::default() };
            let (wal, sink) = rig.pipeline(round, limits).await;
            let feeding = tokio::spawn({
                let wal = wal.clone();
                async move {
                    let mut tickets = Vec::new();
                    loop {
                        match wal.enqueue(frame(tickets.len() as u64, 100)) {
                            Ok(ticket) => tickets.push(ticket),
                            Err(WalBusy::Full) => tokio::task::yield_now().await,
                            Err(_) => return tickets,
                        }
                        if tickets.len() % 10 == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                }
            });
            while wal.status().frames < 10 {
                tokio::task::yield_now().await;
            }
            let (_, objects) = seal(&rig.wals, &session(round), 0, 1).await.unwrap();
            let recovered = objects.iter().map(|o| o.frames.len()).sum::<usize>() as u64;
            assert!(wal.status().frames <= recovered);
            // A full one learns of the seal only with its next put.
            wal.covered(u64::MAX);
            wal.sealed().cancelled().await;
            let tickets = feeding.await.unwrap();
            let mut acked = 0;
            for ticket in &tickets {
                acked += u64::from(ticket.wait().await.is_ok());
            }
            assert!(tickets[..acked as usize].iter().all(Ticket::is_durable), "acknowledged in order");
            assert!(acked <= recovered, "{acked} acknowledged, {recovered} recovered");
            assert_eq!(sink.frames().len() as u64, acked);
        }
        rig.tasks.stop().await;
    })
    .await;
}
