//! Transfers and drains, seen from the node that has the streams. The others are sessions in its log, without processes.

use weir_api::{Incarnation, NodeEpoch, NodeId, Nonce, RaftId, Slots, StreamEpoch};

use super::*;
use crate::metadata::command::{FenceReason, Registration};
use crate::metadata::query::Disposition;
use crate::metadata::state::State;

fn node(id: &str) -> NodeId {
    id.parse().unwrap()
}

impl Rig {
    async fn with_another() -> (Self, SessionId) {
        let rig = Self::start().await;
        let session = rig.register("b").await;
        (rig, session)
    }

    /// Registers a node that is not this process.
    async fn register(&self, id: &str) -> SessionId {
        let session = SessionId { node: node(id), epoch: NodeEpoch(1) };
        let registration = Registration {
            session: session.clone(),
            nonce: Nonce(u128::from(id.as_bytes()[0])),
            incarnation: "elsewhere".parse::<Incarnation>().unwrap(),
            raft_id: RaftId(u64::from(id.as_bytes()[0])),
            boot_id: None,
            http_url: "http://127.0.0.1:1".to_owned(),
            peer_address: "127.0.0.1:1".to_owned(),
            slots: Slots::ONE,
            formats: (1, 1),
        };
        let registered = self.node.metadata().propose_founding(Command::Register(registration)).await;
        registered.expect("registered");
        session
    }

    /// A stream that is open here and took so many bytes.
    async fn open(&self, name: &'static str, bytes: usize) -> StreamId {
        let id = self.create(name, spec("text/plain", None)).await.unwrap().info.id;
        let own = self.node.streams().inner.session.clone();
        self.propose(Command::BeginTransfer { stream: id, to: own }).await;
        self.append(name, bytes).await.unwrap();
        id
    }

    async fn propose(&self, command: Command) -> Answer {
        self.node.metadata().propose(command).await.unwrap()
    }

    async fn drain(&self, draining: bool) {
        self.propose(Command::SetDraining { node: self.me(), draining }).await;
    }

    fn me(&self) -> NodeId {
        self.node.streams().inner.session.node.clone()
    }

    /// Waits until the view is as told.
    async fn until(&self, what: &str, seen: impl Fn(&State) -> bool) {
        let metadata = self.node.metadata();
        let mut applied = metadata.applied();
        let wait = async {
            while !metadata.read(&seen) {
                applied.changed().await.expect("the log goes on");
            }
        };
        timeout(PATIENCE, wait).await.unwrap_or_else(|_late| panic!("{what}"));
    }

    /// Waits until appends to the stream are stopped.
    async fn stopped(&self, id: StreamId) {
        let inner = &self.node.streams().inner;
        let wait = async {
            while inner.registry.by_id(id).expect("it is open here").is_serving() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, wait).await.expect("it is stopped");
    }

    fn stream(&self, id: StreamId) -> state::Stream {
        self.node.metadata().read(|state| state.stream(id).expect("it exists").clone())
    }

    fn owner(&self, id: StreamId) -> Option<SessionId> {
        self.node.metadata().read(|state| Some(state.owner_of(state.stream(id)?)?.session))
    }

    fn assigned(&self) -> (u64, u64) {
        let number = self.node.streams().inner.number;
        self.node.metadata().read(|state| state.live(number).map(|s| (s.assigned, s.open)).unwrap())
    }
}

fn placed_at(state: &State, id: StreamId, to: &SessionId) -> bool {
    let Some(Disposition::PlacedAt(no)) = state.disposition(id) else { return false };
    state.session(no).is_some_and(|s| s.id == *to)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_takes_the_stream_away_with_all_that_it_accepted() {
    let (rig, b) = Rig::with_another().await;
    let id = rig.open("n", 5).await;
    let other = rig.open("other", 7).await;
    let waiting = {
        let streams = rig.node.streams().clone();
        let name = "n".parse().unwrap();
        rig.beside(async move { streams.wait(&name, ReadFrom::Now, 100, PATIENCE).await })
    };
    rig.propose(Command::BeginTransfer { stream: id, to: b.clone() }).await;
    rig.until("it is handed over", |state| placed_at(state, id, &b)).await;
    assert_eq!((rig.stream(id).committed, rig.stream(id).epoch), (Offset(5), StreamEpoch(1)));
    let elsewhere = StreamError::Elsewhere { owner: b.clone() };
    assert_eq!(waiting.await.unwrap_err(), elsewhere, "who waits at its tail is sent there");
    assert_eq!(rig.append("n", 1).await.unwrap_err(), elsewhere);
    assert_eq!(rig.node.streams().head(&"n".parse().unwrap()).await.unwrap_err(), elsewhere);
    assert_eq!(rig.append("other", 1).await.unwrap().next, Offset(8), "the others stay");
    assert_eq!(rig.owner(other).map(|s| s.node), Some(rig.me()));
    rig.stop().await;
}

/// A transfer that ends before the stream was let go of: it goes on as if nothing had been, and an append that came
/// meanwhile with it.
async fn called_off(ends: impl AsyncFnOnce(&Rig, StreamId, &SessionId)) {
    let (rig, b) = Rig::with_another().await;
    let id = rig.open("n", 5).await;
    rig.bucket.hang_all(true);
    rig.propose(Command::BeginTransfer { stream: id, to: b.clone() }).await;
    rig.stopped(id).await;
    rig.hanging(1).await;
    let waits = rig.append("n", 2);
    ends(&rig, id, &b).await;
    rig.release();
    assert_eq!(waits.await.unwrap().next, Offset(7));
    assert_eq!(rig.append("n", 1).await.unwrap().next, Offset(8));
    assert_eq!(rig.stream(id).epoch, StreamEpoch(1), "it was open all the time");
    assert_eq!(rig.owner(id).map(|s| s.node), Some(rig.me()));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_whose_transfer_is_aborted_goes_on() {
    called_off(async |rig, stream, to| {
        rig.propose(Command::AbortTransfer { stream, to: to.clone() }).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_whose_target_ends_goes_on() {
    called_off(async |rig, _, to| {
        let (node, epoch) = (to.node.clone(), to.epoch);
        let fence = Command::Fence { node, epoch, incarnation: None, reason: FenceReason::Silence };
        rig.propose(fence).await;
    })
    .await;
}

/// The leader looks once a second, so that what it has seen for half a minute by the node's clock is called off soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_does_not_let_go_keeps_the_stream_after_thirty_seconds() {
    called_off(async |rig, stream, to| {
        let pending = |state: &State| state.transfer(stream).is_some();
        let waited = async {
            while rig.node.metadata().read(pending) {
                rig.clock.pass(Duration::from_secs(31));
                let over = rig.until("it is called off", |state| !pending(state));
                drop(timeout(Duration::from_secs(3), over).await);
            }
        };
        timeout(PATIENCE, waited).await.expect("the leader calls it off");
        let alive = rig.node.metadata().read(|state| state.nodes[&to.node].session.is_some());
        assert!(alive, "and not because the target is gone");
    })
    .await;
}

/// With a patience that no test outlasts: whoever waited for another would wait for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_cannot_be_committed_holds_up_no_other() {
    let rig = Rig::start_with(Some(Duration::from_secs(3_600)), |_| {}).await;
    let b = rig.register("b").await;
    let begun = [rig.open("quick", 5).await, rig.open("later", 5).await];
    rig.node.streams().inner.backlog.flush().await;
    let slow = rig.open("slow", 5).await;
    rig.bucket.hang_all(true);
    // In one look, as far as the log brings them together.
    for id in [slow, begun[0]] {
        rig.propose(Command::BeginTransfer { stream: id, to: b.clone() }).await;
    }
    rig.stopped(slow).await;
    rig.until("it is handed over", |state| placed_at(state, begun[0], &b)).await;
    // And one that comes later.
    rig.propose(Command::BeginTransfer { stream: begun[1], to: b.clone() }).await;
    rig.until("it is handed over", |state| placed_at(state, begun[1], &b)).await;
    assert_eq!(rig.owner(slow).map(|s| s.node), Some(rig.me()));
    rig.release();
    rig.until("it is handed over", |state| placed_at(state, slow, &b)).await;
    assert_eq!(rig.stream(slow).committed, Offset(5));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_handed_to_a_node_that_ended_is_opened_by_whoever_is_asked() {
    let (rig, b) = Rig::with_another().await;
    let id = rig.open("n", 5).await;
    rig.propose(Command::BeginTransfer { stream: id, to: b.clone() }).await;
    rig.until("it is handed over", |state| placed_at(state, id, &b)).await;
    let fence =
        Command::Fence { node: b.node, epoch: b.epoch, incarnation: None, reason: FenceReason::Silence };
    rig.propose(fence).await;
    assert_eq!(rig.append("n", 1).await.unwrap().next, Offset(6));
    assert_eq!(rig.stream(id).epoch, StreamEpoch(2));
    rig.stop().await;
}

/// As a load leaves it that failed: the log says that it is open here, and it is not in memory.
async fn unloaded(rig: &Rig, name: &'static str) -> StreamId {
    let id = rig.create(name, spec("text/plain", None)).await.unwrap().info.id;
    let own = rig.node.streams().inner.session.clone();
    rig.propose(Command::BeginTransfer { stream: id, to: own }).await;
    rig.propose(Command::Open { stream: id }).await;
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_open_but_not_in_memory_is_handed_over_too() {
    let (rig, b) = Rig::with_another().await;
    let id = unloaded(&rig, "n").await;
    rig.propose(Command::BeginTransfer { stream: id, to: b.clone() }).await;
    rig.until("it is handed over", |state| placed_at(state, id, &b)).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_gives_away_what_is_open_what_is_placed_and_what_is_half_open() {
    let (rig, b) = Rig::with_another().await;
    let open = [rig.open("one", 5).await, rig.open("two", 0x1000).await];
    let own = rig.node.streams().inner.session.clone();
    let placed = rig.create("placed", spec("text/plain", None)).await.unwrap().info.id;
    rig.propose(Command::BeginTransfer { stream: placed, to: own }).await;
    let half = unloaded(&rig, "half").await;
    assert_eq!(rig.assigned(), (4, 3));
    rig.drain(true).await;
    let number = rig.node.streams().inner.number;
    rig.until("it has none", |state| state.live(number).is_some_and(|s| s.assigned == 0)).await;
    for id in open.into_iter().chain([placed, half]) {
        assert_eq!(rig.owner(id).as_ref(), Some(&b));
    }
    assert_eq!((rig.stream(open[0]).committed, rig.stream(open[1]).committed), (Offset(5), Offset(0x1000)));
    let elsewhere = StreamError::Elsewhere { owner: b.clone() };
    assert_eq!(rig.append("one", 1).await.unwrap_err(), elsewhere);
    // Cancelled, it takes streams again; what has left stays where it is.
    rig.drain(false).await;
    assert_eq!(rig.append("one", 1).await.unwrap_err(), elsewhere);
    rig.open("three", 3).await;
    rig.stop().await;
}

/// Appends go on all the while: each is acknowledged here, or nothing of it is, and what was acknowledged went along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_under_appends_loses_and_doubles_nothing() {
    const NAMES: [&str; 12] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"];
    let (rig, _) = Rig::with_another().await;
    let mut ids = Vec::new();
    for name in NAMES {
        ids.push(rig.open(name, 1).await);
    }
    let begun = CancellationToken::new();
    let writers = NAMES.map(|name| {
        let (streams, begun) = (rig.node.streams().clone(), begun.clone());
        rig.beside(async move {
            let name: StreamName = name.parse().unwrap();
            for acknowledged in 1.. {
                let append =
                    Append { content: Some(Ok(payload(1))), producer: None, seq: None, closes: false };
                let done = match streams.writer(&name).await {
                    Ok(writer) => writer.append(append).await,
                    Err(e) => Err(e),
                };
                match done {
                    Ok(done) => assert_eq!(done.next, Offset(acknowledged + 1)),
                    Err(e) => return (acknowledged, e),
                }
                if acknowledged == 20 {
                    begun.cancel();
                }
            }
            unreachable!("it ends when the stream leaves");
        })
    });
    timeout(PATIENCE, begun.cancelled()).await.expect("appends go on");
    rig.drain(true).await;
    for (writer, id) in writers.into_iter().zip(ids) {
        let (acknowledged, why) = writer.await;
        assert!(matches!(why, StreamError::Elsewhere { .. }), "{why:?}");
        assert_eq!(rig.stream(id).committed, Offset(acknowledged));
    }
    assert_eq!(rig.assigned(), (0, 0));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_that_is_cancelled_midway_resumes_what_it_stopped() {
    let (rig, _) = Rig::with_another().await;
    let id = rig.open("n", 5).await;
    rig.bucket.hang_all(true);
    rig.drain(true).await;
    rig.stopped(id).await;
    let waits = rig.append("n", 2);
    rig.drain(false).await;
    rig.release();
    assert_eq!(waits.await.unwrap().next, Offset(7));
    assert_eq!(rig.stream(id).epoch, StreamEpoch(1));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_that_cannot_commit_gives_up_says_so_and_can_be_tried_again() {
    let (rig, b) = Rig::with_another().await;
    let id = rig.open("n", 5).await;
    let me = rig.me();
    let gave_up = |state: &State| state.nodes[&me].drain_gave_up.clone();
    rig.bucket.hang_all(true);
    rig.drain(true).await;
    rig.stopped(id).await;
    // Ten seconds without progress.
    rig.clock.pass(Duration::from_secs(11));
    rig.until("it gives up", |state| gave_up(state).is_some()).await;
    let why = rig.node.metadata().read(gave_up).unwrap();
    assert!(why.contains("nothing could be committed") && why.contains("streams left: 1"), "{why}");
    let waits = rig.append("n", 2);
    rig.release();
    assert_eq!(waits.await.unwrap().next, Offset(7), "meanwhile it serves what it has");
    assert_eq!(rig.owner(id).map(|s| s.node), Some(me.clone()));
    rig.drain(true).await;
    rig.until("it is handed over", |state| placed_at(state, id, &b)).await;
    rig.stop().await;
}
