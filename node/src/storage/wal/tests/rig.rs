//! A WAL of either kind with what a test needs around it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::mpsc;
use weir_api::{ClusterUid, NodeEpoch, Offset, SessionId, StreamEpoch, StreamId};

use crate::clock::Clock;
use crate::storage::faults::FaultStore;
use crate::storage::record::{Frame, Payload, codec};
use crate::storage::seal::SealNote;
use crate::storage::store::Store;
use crate::storage::wal::*;
use crate::tasks::Tasks;

pub(in super::super) const CLUSTER: ClusterUid = ClusterUid(0xc1);

pub(in super::super) fn session(epoch: u64) -> SessionId {
    SessionId { node: "n-0".parse().unwrap(), epoch: NodeEpoch(epoch) }
}

pub(in super::super) fn note(claim: u64) -> SealNote {
    SealNote { by: SessionId { node: "n-1".parse().unwrap(), epoch: NodeEpoch(99) }, claim }
}

/// A frame that tells its number and is about `bytes` long.
pub(in super::super) fn frame(n: u64, bytes: usize) -> Frame {
    Frame {
        stream: StreamId(n),
        epoch: StreamEpoch(1),
        offset: Offset(n),
        payload: Payload::Bytes(vec![(n % 251) as u8; bytes].into()),
        producer: None,
        seq: None,
        closes: false,
        births: false,
        intro: None,
    }
}

/// Object `seq` of a session, holding one frame.
pub(in super::super) fn object(session: &SessionId, seq: u64, bytes: usize) -> Bytes {
    codec::encode(&CLUSTER.into(), session, seq, &[frame(seq, bytes)])
}

pub(in super::super) struct Rig {
    pub(in super::super) name: &'static str,
    pub(in super::super) wals: Arc<dyn WalStore>,
    pub(in super::super) tasks: Tasks,
    /// What a bucket's rig can break.
    pub(in super::super) faults: Option<Arc<FaultStore>>,
    pub(in super::super) folder: Option<TempDir>,
}

/// A bucket of the kind that this run is about.
pub(in super::super) fn bucket() -> Rig {
    over(FaultStore::new())
}

/// A bucket in memory: for tests that stop the clock.
pub(in super::super) fn bucket_in_memory() -> Rig {
    over(FaultStore::in_memory())
}

fn over(faults: Arc<FaultStore>) -> Rig {
    let store = Store::over(faults.clone(), "p");
    let tasks = Tasks::default();
    Rig { name: "bucket", wals: open(&store, 1, CLUSTER, &tasks), tasks, faults: Some(faults), folder: None }
}

/// Small files, so that every test crosses several.
pub(in super::super) fn local() -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let tasks = Tasks::default();
    let wals = Arc::new(LocalWal::new(folder.path(), 1, CLUSTER, tasks.clone()).with_small_files());
    Rig { name: "local", wals, tasks, faults: None, folder: Some(folder) }
}

pub(in super::super) async fn over_both(test: impl AsyncFn(Rig)) {
    run_over([bucket(), local()], test).await;
}

/// The same for tests that stop the clock.
pub(in super::super) async fn over_both_in_memory(test: impl AsyncFn(Rig)) {
    run_over([bucket_in_memory(), local()], test).await;
}

async fn run_over(rigs: [Rig; 2], test: impl AsyncFn(Rig)) {
    for rig in rigs {
        println!("kind: {}", rig.name);
        test(rig).await;
    }
}

/// What a seal returned.
pub(in super::super) type Sealed = Result<(u64, Vec<WalObject>), WalError>;

pub(in super::super) async fn seal(
    wals: &Arc<dyn WalStore>,
    ended: &SessionId,
    from: u64,
    claim: u64,
) -> Sealed {
    seal_without(wals, ended, from, claim, &BTreeSet::new()).await
}

/// The same, with damage that may be passed over.
pub(in super::super) async fn seal_without(
    wals: &Arc<dyn WalStore>,
    ended: &SessionId,
    from: u64,
    claim: u64,
    skip: &BTreeSet<u64>,
) -> Sealed {
    let (each, mut got) = mpsc::channel(2);
    let note = note(claim);
    let (end, objects) = tokio::join!(wals.seal(ended, from, &note, skip, each), async {
        let mut objects = Vec::new();
        while let Some(o) = got.recv().await {
            objects.push(o);
        }
        objects
    });
    let end = end?;
    for (i, o) in objects.iter().enumerate() {
        assert_eq!(o.seq, from.max(FIRST_SEQ) + i as u64, "objects come in order");
    }
    assert_eq!(end, from.max(FIRST_SEQ) + objects.len() as u64, "all up to the end");
    Ok((end, objects))
}

/// Remembers what became durable.
#[derive(Default)]
pub(in super::super) struct Sink {
    pub(in super::super) batches: Mutex<Vec<(u64, Vec<u64>)>>,
}

impl WalSink for Sink {
    fn durable(&self, batch: DurableBatch) {
        let numbers = batch.frames.iter().map(|f| f.stream.0).collect();
        self.batches.lock().push((batch.seq, numbers));
    }
}

impl Sink {
    pub(in super::super) fn frames(&self) -> Vec<u64> {
        self.batches.lock().iter().flat_map(|(_, f)| f.clone()).collect()
    }
}

impl Rig {
    /// So many rounds, and fewer where each costs hundreds of requests.
    pub(in super::super) fn rounds(&self, rounds: u64) -> u64 {
        if self.faults.as_ref().is_some_and(|f| f.is_real()) { rounds / 10 } else { rounds }
    }

    pub(in super::super) async fn writer(&self, epoch: u64) -> Arc<dyn WalWriter> {
        self.wals.create(&session(epoch)).await.unwrap()
    }

    pub(in super::super) async fn pipeline(&self, epoch: u64, limits: WalLimits) -> (Wal, Arc<Sink>) {
        let sink = Arc::new(Sink::default());
        let writer = self.writer(epoch).await;
        let clock = Clock::default();
        let wal = Wal::start(&self.tasks, &clock, writer, CLUSTER, session(epoch), limits, sink.clone());
        (wal, sink)
    }
}

/// Lets every task run until all of them wait.
pub(in super::super) async fn idle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
