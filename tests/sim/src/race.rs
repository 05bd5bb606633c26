//! A writer and its sealers over the simulated bucket: the node's WAL pipeline and recovery's seal, and nothing else.
//!
//! The whole simulation has this race too, a few times in a run. Here it is all there is, so that a seed takes
//! milliseconds and a mistake in the WAL has many chances. The writer appends until it is told that it is fenced, or
//! dies; one or two sealers end its WAL meanwhile, and the first deletes what it has read. Whatever the bucket does on the
//! way: what was acknowledged, ever, is what every sealer was sent (I2).

#![allow(clippy::disallowed_methods, reason = "a test's own tasks, which end with its runtime")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use weir::clock::Clock;
use weir::storage::record::{Frame, Payload};
use weir::storage::seal::SealNote;
use weir::storage::store::Store;
use weir::storage::wal::{DurableBatch, ObjectWal, Wal, WalLimits, WalSink, WalStore};
use weir::tasks::Tasks;
use weir_api::{ClusterUid, NodeEpoch, Offset, SessionId, StreamEpoch, StreamId};
use weir_tests::rng::Rng;

use crate::bucket::{Bucket, Door, Weather};
use crate::invariants::Broken;
use crate::machine::Time;
use crate::trace::Recorder;

const CLUSTER: ClusterUid = ClusterUid(7);
/// Records that a writer has at most.
const RECORDS: u64 = 60;
/// How often a sealer tries.
const TRIES: u32 = 600;
/// By then a writer has met the seal, or has nothing more to write.
const AFTER: Duration = Duration::from_secs(12);

/// Frame numbers.
type Numbers = Arc<Mutex<BTreeSet<u64>>>;

struct Deaf;

impl WalSink for Deaf {
    fn durable(&self, _batch: DurableBatch) {}
}

/// What the race of this seed breaks.
pub fn run(seed: u64) -> Option<Broken> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime of one thread").block_on(race(seed))
}

fn session(node: &str) -> SessionId {
    SessionId { node: node.parse().expect("valid"), epoch: NodeEpoch(1) }
}

fn frame(n: u64) -> Frame {
    Frame {
        stream: StreamId(n),
        epoch: StreamEpoch(1),
        offset: Offset(0),
        payload: Payload::Bytes(vec![b'x'; 40].into()),
        producer: None,
        seq: None,
        closes: false,
        births: false,
        intro: None,
    }
}

fn weather(rng: &mut Rng) -> Weather {
    let mut share = |most: u64| if rng.one_in(2) { 0 } else { rng.below(most) };
    Weather {
        slow: share(150),
        lost: share(300),
        silent: 0,
        late: share(200),
        ambiguous: share(200),
        doubled: share(200),
        conflict: share(100),
    }
}

async fn race(seed: u64) -> Option<Broken> {
    let mut rng = Rng::new(seed);
    let time = Time::default();
    let clock = time.clone();
    let recorder = Recorder::new(seed, move || clock.us());
    let bucket = Bucket::new(&time, rng.fork(), &recorder);
    tokio::spawn(pass(time, bucket.clone()));
    let store = |host: &str| Store::over(Arc::new(Door::new(&bucket, recorder.host(host))), "");
    let writer = ObjectWal::new(store("writer"), 0, CLUSTER).create(&session("w")).await.ok()?;
    bucket.weather(weather(&mut rng));

    let tasks = Tasks::default();
    // Two objects at once as often as may be.
    let limits = WalLimits { second_put_bytes: 1, interval: Some(Duration::ZERO), ..WalLimits::default() };
    let (clock, sink) = (Clock::default(), Arc::new(Deaf));
    let wal = Wal::start(&tasks, &clock, writer, CLUSTER, session("w"), limits, sink);
    let acked = Numbers::default();
    let writing = tokio::spawn(write(wal, acked.clone(), rng.fork()));

    let mut sealers = Vec::new();
    let first = rng.between(20, 700);
    let several = rng.between(1, 2);
    for n in 0..several {
        let wals = ObjectWal::new(store(&format!("sealer-{n}")), 0, CLUSTER);
        let begin = first + n * rng.below(60);
        // Whoever reads on behind a delete reads for a claim that holds no more: nobody uses it.
        let trims = (several == 1).then(|| rng.below(300));
        sealers.push(tokio::spawn(seal(wals, n + 1, begin, trims)));
    }
    // Its process dies, before the seal or about then; its requests go on.
    if rng.one_in(3) {
        sleep(Duration::from_millis((first + rng.below(60)).saturating_sub(50))).await;
        tasks.stop().await;
    }
    let mut sealed = Vec::new();
    for sealer in sealers {
        match sealer.await.expect("sealing does not panic") {
            Ok(read) => sealed.push(read),
            Err(message) => return Some(Broken { invariant: "I2", message }),
        }
    }
    sleep(AFTER).await;
    writing.abort();
    tasks.stop().await;
    let acked = acked.lock().clone();
    sealed.iter().find_map(|read| {
        let lost: Vec<&u64> = acked.difference(read).collect();
        (!lost.is_empty()).then(|| Broken {
            invariant: "I2",
            message: format!("{} acknowledged records are not among those recovered: {lost:?}", lost.len()),
        })
    })
}

/// Time passes.
async fn pass(time: Time, bucket: Arc<Bucket>) {
    let began = Instant::now();
    loop {
        sleep(Duration::from_millis(1)).await;
        time.step(began.elapsed());
        bucket.advance();
    }
}

/// Appends until nothing more is taken.
async fn write(wal: Wal, acked: Numbers, mut rng: Rng) {
    let lively = rng.between(2, 60);
    for n in 0..RECORDS {
        sleep(Duration::from_millis(rng.below(lively))).await;
        let Ok(ticket) = wal.enqueue(frame(n)) else { continue };
        let acked = acked.clone();
        tokio::spawn(async move {
            if ticket.wait().await.is_ok() {
                acked.lock().insert(n);
            }
        });
    }
    std::future::pending::<()>().await;
}

/// Ends the WAL, however often that takes; deletes what it read, if `trims` says after how long. The frames' numbers,
/// or why they cannot be had: a minute of a bucket that answers most of the time is enough.
async fn seal(wals: ObjectWal, claim: u64, begin: u64, trims: Option<u64>) -> Result<BTreeSet<u64>, String> {
    sleep(Duration::from_millis(begin)).await;
    let (ended, note) = (session("w"), SealNote { by: session("s"), claim });
    let mut why = String::new();
    for _ in 0..TRIES {
        let (each, mut incoming) = mpsc::channel(4);
        let nothing = BTreeSet::new();
        let (sealed, read) = tokio::join!(wals.seal(&ended, 1, &note, &nothing, each), async {
            let mut read = BTreeSet::new();
            while let Some(object) = incoming.recv().await {
                read.extend(object.frames.iter().map(|f| f.stream.0));
            }
            read
        });
        match sealed {
            Ok(end) => {
                if let Some(after) = trims {
                    sleep(Duration::from_millis(1_000 + after)).await;
                    drop(wals.trim(&ended, end).await);
                }
                return Ok(read);
            }
            Err(e) => why = e.to_string(),
        }
        sleep(Duration::from_millis(100)).await;
    }
    Err(format!("the WAL cannot be recovered: {why}"))
}

#[cfg(test)]
mod tests {
    use weir::mutant::Mutant;

    use super::run;
    use crate::mutants::{find_broken, judge_broken};

    #[test]
    fn what_is_acknowledged_is_recovered() {
        for seed in 0..300 {
            assert_eq!(judge_broken(None, seed, run), None, "seed {seed}");
        }
    }

    /// Mistakes in the WAL, and within how many races they are found.
    const MUTANTS: &[(Mutant, u64)] = &[
        (Mutant::NoSeal, 300),
        (Mutant::SealDeleted, 1_000),
        (Mutant::AckBeforePut, 300),
        (Mutant::AckOutOfOrder, 1_000),
    ];

    #[test]
    fn every_mistake_in_the_wal_is_found() {
        let mut missed = Vec::new();
        for &(mutant, within) in MUTANTS {
            match find_broken(mutant, 0..within, run) {
                Some(found) => println!("{mutant:?}: seed {} of {within}: {}", found.seed, found.broken),
                None => missed.push(mutant),
            }
        }
        assert!(missed.is_empty(), "not found: {missed:?}");
    }
}
