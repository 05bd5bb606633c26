//! A real S3 server behind a bad network: requests refused, late, in conflict; replies lost or cut. Whatever comes of
//! it, one put of a key wins, and what was acknowledged is what every sealer returns. `make s3` runs these.

#![allow(clippy::disallowed_methods, reason = "the test awaits what it spawns")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use weir_tests::rng::seed;
use weir_tests::s3::{FaultProxy, Faults, RealBucket};

use super::rig::*;
use crate::clock::Clock;
use crate::storage::real::open_at;
use crate::storage::store::{Put, Store};
use crate::storage::wal::*;
use crate::tasks::Tasks;

/// Far worse than a bad day: a third of all puts.
fn weather() -> Faults {
    let delay = Duration::from_millis(20);
    Faults {
        failed: 80,
        ambiguous: 120,
        late: 80,
        conflict: 50,
        reads: 60,
        slow: 100,
        delay,
        ..Faults::default()
    }
}

struct Bad {
    proxy: FaultProxy,
    bucket: RealBucket,
    seed: u64,
}

impl Bad {
    async fn new() -> Self {
        let (bucket, seed) = (RealBucket::new().unwrap(), seed());
        println!("WEIR_SEED={seed}");
        let proxy = FaultProxy::start(bucket.address(), seed).await;
        proxy.set(weather());
        Self { proxy, bucket, seed }
    }

    /// The bucket as others reach it: through the weather.
    fn store(&self) -> Store {
        open_at(&self.bucket, self.proxy.address())
    }

    /// The bucket as it is.
    fn truth(&self) -> Store {
        open_at(&self.bucket, self.bucket.address())
    }

    fn rig(&self, store: &Store) -> Rig {
        let tasks = Tasks::default();
        Rig { name: "proxied", wals: open(store, 1, CLUSTER, &tasks), tasks, faults: None, folder: None }
    }

    /// Each kind of fault has come to pass.
    fn is_bad(&self) -> bool {
        let met = self.proxy.met();
        [met.fine, met.refused, met.lost, met.late, met.conflict].iter().all(|n| *n > 0)
    }

    fn assert_bad(&self) {
        assert!(self.is_bad(), "{:?}, seed {}", self.proxy.met(), self.seed);
    }
}

/// A writer, once the weather lets it begin.
async fn writer(rig: &Rig, epoch: u64) -> Arc<dyn WalWriter> {
    loop {
        match rig.wals.create(&session(epoch)).await {
            Ok(writer) => return writer,
            Err(WalError::Unavailable(_)) => {}
            Err(e) => panic!("{e}"),
        }
    }
}

/// A seal, once the weather lets it through.
async fn seal_at_last(wals: &Arc<dyn WalStore>, ended: &SessionId, claim: u64) -> (u64, Vec<WalObject>) {
    loop {
        match seal(wals, ended, 0, claim).await {
            Ok(sealed) => return sealed,
            Err(WalError::Unavailable(_)) => {}
            Err(e) => panic!("{e}"),
        }
    }
}

/// Puts numbers until sealed, each until its outcome is known. Returns the first that was refused.
async fn write_until_sealed(writer: Arc<dyn WalWriter>, epoch: u64, acked: Arc<AtomicU64>) -> u64 {
    let s = session(epoch);
    for seq in 1.. {
        loop {
            match writer.put(seq, object(&s, seq, (seq % 5 * 100) as usize)).await {
                Ok(()) => break acked.store(seq, Ordering::SeqCst),
                Err(PutError::Sealed) => return seq,
                Err(PutError::Unknown(_)) => {}
                Err(e) => panic!("{e}"),
            }
        }
    }
    unreachable!("a sealer comes")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an S3 server: make s3"]
async fn of_racing_puts_at_most_one_is_stored_and_it_stays() {
    let bad = Bad::new().await;
    let truth = bad.truth();
    let mut won = 0;
    for round in 0..60 {
        let key = format!("race/{round}");
        let racers = [0u8, 1, 2, 3].map(|n| {
            let (store, key) = (bad.store(), key.clone());
            tokio::spawn(async move { store.put_if_absent(&key, Bytes::from(vec![n; 100])).await })
        });
        let mut winners = Vec::new();
        let mut exists = false;
        for (n, racer) in (0u8..).zip(racers) {
            match racer.await.unwrap() {
                Ok(Put::Stored) => winners.push(n),
                Ok(Put::Exists) => exists = true,
                Err(_unknown) => {}
            }
        }
        assert!(winners.len() <= 1, "round {round}, seed {}: {winners:?} won", bad.seed);
        bad.proxy.land_late().await;
        let there = truth.get(&key).await.unwrap();
        if let [winner] = winners[..] {
            won += 1;
            assert_eq!(there.as_deref(), Some(&[winner; 100][..]), "round {round}, seed {}", bad.seed);
        }
        assert!(!exists || there.is_some(), "round {round}, seed {}: it existed", bad.seed);
    }
    assert!(won > 0, "nobody ever won");
    bad.assert_bad();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an S3 server: make s3"]
async fn sealers_race_a_writer_on_a_bad_network() {
    let bad = Bad::new().await;
    let rig = bad.rig(&bad.store());
    for round in 1..=10 {
        let acked = Arc::new(AtomicU64::new(0));
        let writing = tokio::spawn(write_until_sealed(writer(&rig, round).await, round, acked.clone()));
        while acked.load(Ordering::SeqCst) < round % 4 * 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let sealers = [1, 2, 3].map(|claim| {
            let (rig, acked) = (bad.rig(&bad.store()), acked.clone());
            tokio::spawn(async move {
                let sealed = seal_at_last(&rig.wals, &session(round), claim).await;
                (sealed, acked.load(Ordering::SeqCst))
            })
        });
        let mut results = Vec::new();
        for sealer in sealers {
            let ((end, objects), acked_then) = sealer.await.unwrap();
            assert!(acked_then < end, "round {round}: {acked_then} was acknowledged, the WAL ends at {end}");
            results.push((end, objects));
        }
        writing.await.unwrap();
        bad.proxy.land_late().await;
        let (end, last) = (results[0].0, acked.load(Ordering::SeqCst));
        assert!(last < end, "round {round}: {last} was acknowledged after the WAL ended at {end}");
        assert!(results.windows(2).all(|w| w[0] == w[1]), "round {round}: sealers disagree");
        // When all that was late has come, seen without the weather: still the same.
        let truth = bad.rig(&bad.truth());
        assert_eq!(seal(&truth.wals, &session(round), 0, 9).await.unwrap(), results[0]);
    }
    bad.assert_bad();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an S3 server: make s3"]
async fn what_a_pipeline_acknowledged_is_there_whatever_was_lost_on_the_way() {
    const FRAMES: u64 = 150;
    /// By then a kind of fault that has not come to pass never will.
    const MOST: u64 = 20 * FRAMES;
    let bad = Bad::new().await;
    let rig = bad.rig(&bad.store());
    let sink = Arc::new(Sink::default());
    let first = writer(&rig, 1).await;
    let limits = WalLimits { interval: Some(Duration::ZERO), ..WalLimits::default() };
    let clock = Clock::default();
    let wal = Wal::start(&rig.tasks, &clock, first, CLUSTER, session(1), limits, sink.clone());
    let mut frames = 0;
    while frames < FRAMES || (!bad.is_bad() && frames < MOST) {
        let n = frames;
        frames += 1;
        let ticket = loop {
            match wal.enqueue(frame(n, 300)) {
                Ok(ticket) => break ticket,
                Err(WalBusy::Full | WalBusy::Stalled(_)) => {
                    tokio::time::sleep(Duration::from_millis(1)).await
                }
                Err(e) => panic!("{e}"),
            }
        };
        if n % 3 == 0 {
            ticket.wait().await.unwrap();
        }
    }
    wal.settled().await;
    assert_eq!(sink.frames(), (0..frames).collect::<Vec<_>>());
    let (_, objects) = seal_at_last(&rig.wals, &session(1), 1).await;
    let found: Vec<_> = objects.into_iter().flat_map(|o| o.frames).collect();
    assert_eq!(found, (0..frames).map(|n| frame(n, 300)).collect::<Vec<_>>());
    bad.assert_bad();
    rig.tasks.stop().await;
}
