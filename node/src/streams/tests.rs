//! Operations on one stream that meet: over a whole node whose bucket holds puts back until told.

use std::sync::Arc;

use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::http::tests::config_in;
use crate::metadata::command::{Answer, Command, Expiry};
use crate::run;
use crate::storage::faults::FaultStore;
use crate::storage::record::{Payload, ProducerStamp};

mod handover;

/// A hang is a failure after this long.
const PATIENCE: Duration = Duration::from_secs(60);

struct Rig {
    node: run::Node,
    bucket: Arc<FaultStore>,
    clock: Clock,
    tasks: Tasks,
    _dir: TempDir,
}

impl Rig {
    async fn start() -> Self {
        Self::start_with(None, |_| {}).await
    }

    /// `patience`: how long an operation waits for another.
    async fn start_with(
        patience: Option<Duration>,
        change: impl FnOnce(&mut crate::config::ServeConfig),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config_in(dir.path());
        config.wal_backlog_bytes = 1 << 20;
        // Sessions that a test makes up are silent.
        config.node_timeout = Duration::from_secs(600);
        // A wait that is wrong is to be seen as such, not as a refusal in the end.
        config.request_timeout = PATIENCE;
        change(&mut config);
        let bucket = FaultStore::new();
        let clock = Clock::default();
        let store = Some(Store::over(bucket.clone(), ""));
        let doors = run::Doors { store, clock: clock.clone(), patience };
        let tasks = Tasks::default();
        let node = run::Node::start(config, doors, tasks.clone()).await.unwrap();
        Self { node, bucket, clock, tasks, _dir: dir }
    }

    /// Runs beside the test, as another client's request does.
    fn beside<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> {
        let (done, result) = tokio::sync::oneshot::channel();
        self.tasks.spawn(async move { drop(done.send(work.await)) });
        async { timeout(PATIENCE, result).await.expect("it ends").expect("it is not dropped") }
    }

    fn create(
        &self,
        name: &'static str,
        spec: CreateSpec,
    ) -> impl Future<Output = Result<Created, StreamError>> {
        let streams = self.node.streams().clone();
        self.beside(async move { streams.create(&name.parse().unwrap(), spec).await })
    }

    fn append(
        &self,
        name: &'static str,
        bytes: usize,
    ) -> impl Future<Output = Result<Appended, StreamError>> {
        let streams = self.node.streams().clone();
        self.beside(async move {
            let append =
                Append { content: Some(Ok(payload(bytes))), producer: None, seq: None, closes: false };
            streams.writer(&name.parse().unwrap()).await?.append(append).await
        })
    }

    /// Appends as a producer does.
    fn produce(&self, name: &'static str, seq: u64) -> impl Future<Output = Result<Appended, StreamError>> {
        let streams = self.node.streams().clone();
        self.beside(async move {
            let producer = Some(ProducerStamp { id: "p".into(), epoch: 0, seq });
            let append = Append { content: Some(Ok(payload(1))), producer, seq: None, closes: false };
            streams.writer(&name.parse().unwrap()).await?.append(append).await
        })
    }

    fn delete(&self, name: &'static str) -> impl Future<Output = Result<(), StreamError>> {
        let streams = self.node.streams().clone();
        self.beside(async move { streams.delete(&name.parse().unwrap()).await })
    }

    /// Registers a name whose first bytes never came, as a process that died in between leaves it.
    async fn unborn(&self, name: &str, of: &CreateSpec) -> StreamId {
        let command =
            Command::Create { name: name.into(), config: of.config.clone(), closed: false, unborn: true };
        match self.node.metadata().propose(command).await.unwrap() {
            Answer::Created { stream, .. } => stream,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until so many puts hang.
    async fn hanging(&self, puts: u64) {
        let hang = async {
            while self.bucket.counts().hanging < puts {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, hang).await.expect("a put comes");
    }

    fn release(&self) {
        self.bucket.hang_all(false);
        self.bucket.release();
    }

    async fn stop(self) {
        self.node.stop(PATIENCE).await;
    }
}

fn payload(bytes: usize) -> Payload {
    Payload::Bytes(vec![b'x'; bytes].into())
}

fn spec(content_type: &str, first: Option<usize>) -> CreateSpec {
    let config = StreamConfig { content_type: content_type.into(), expiry: Expiry::Never };
    CreateSpec { config, closed: false, first: first.map(payload) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_was_never_born_is_taken_over_by_another_configuration() {
    let rig = Rig::start().await;
    let first = rig.unborn("n", &spec("text/plain", None)).await;
    assert_eq!(rig.append("n", 1).await, Err(StreamError::NotFound), "to others it is not there");
    let created = rig.create("n", spec("application/octet-stream", Some(3))).await.unwrap();
    assert!(created.new && created.info.id != first, "{created:?}");
    assert_eq!(created.info.config.content_type.as_str(), "application/octet-stream");
    let again = rig.create("n", spec("text/plain", None)).await;
    assert_eq!(again.unwrap_err(), StreamError::ConfigMismatch, "now it is");
    // Of the same configuration the bytes give birth to what is there.
    let second = rig.unborn("m", &spec("text/plain", None)).await;
    let created = rig.create("m", spec("text/plain", Some(3))).await.unwrap();
    assert_eq!((created.new, created.info.id, created.info.next), (true, second, Offset(3)));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_birth_under_way_is_waited_for_and_not_taken_over() {
    let rig = Rig::start().await;
    rig.bucket.hang_all(true);
    let born = rig.create("n", spec("text/plain", Some(3)));
    rig.hanging(1).await;
    let other = rig.create("n", spec("application/octet-stream", Some(5)));
    let same = rig.create("n", spec("text/plain", Some(3)));
    rig.release();
    let born = born.await.unwrap();
    assert_eq!((born.new, born.info.next), (true, Offset(3)));
    assert_eq!(other.await.unwrap_err(), StreamError::ConfigMismatch);
    let same = same.await.unwrap();
    assert_eq!((same.new, same.info.id), (false, born.info.id));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_that_a_delete_undoes_is_answered_as_what_it_was() {
    let rig = Rig::start().await;
    for round in 0..150 {
        // Two configurations, so that an answer about somebody else's stream would show.
        let first = (round % 3 == 0).then_some(3);
        let deletes = (rig.delete("n"), rig.delete("n"));
        let created = rig.create("n", spec("text/plain", first));
        let more = rig.delete("n");
        let (created, one, two, three) = tokio::join!(created, deletes.0, deletes.1, more);
        let created = created.unwrap_or_else(|e| panic!("round {round}: {e}"));
        assert!(created.new, "round {round}: there was none");
        assert_eq!(created.info.next, Offset(first.unwrap_or(0) as u64), "round {round}");
        for deleted in [one, two, three] {
            assert!(matches!(deleted, Ok(()) | Err(StreamError::NotFound)), "round {round}: {deleted:?}");
        }
        let last = rig.delete("n").await;
        assert!(matches!(last, Ok(()) | Err(StreamError::NotFound)), "round {round}: {last:?}");
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_wal_does_not_take_is_refused_at_once() {
    let rig = Rig::start().await;
    rig.create("n", spec("text/plain", None)).await.unwrap();
    rig.bucket.hang_all(true);
    let taken = rig.append("n", 700 << 10);
    rig.hanging(1).await;
    // The first is not answered before the release, so that waiting for it would never end.
    let refused = rig.append("n", 700 << 10).await.unwrap_err();
    assert!(matches!(refused, StreamError::Unavailable { .. }), "{refused:?}");
    rig.release();
    assert_eq!(taken.await.unwrap().next, Offset(700 << 10));
    rig.stop().await;
}

fn of_ttl(seconds: u64) -> CreateSpec {
    let config = StreamConfig { content_type: "text/plain".into(), expiry: Expiry::Ttl(seconds) };
    CreateSpec { config, closed: false, first: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_whose_stream_was_released_and_is_over_by_now_appends_nothing() {
    let rig = Rig::start().await;
    rig.create("n", of_ttl(10)).await.unwrap();
    let writer = rig.node.streams().writer(&"n".parse().unwrap()).await.unwrap();
    rig.node.streams().drain().await.unwrap();
    assert_eq!(rig.node.streams().open_count(), 0);
    rig.clock.pass(Duration::from_secs(60));
    let append = Append { content: Some(Ok(payload(3))), producer: None, seq: None, closes: false };
    let late = timeout(PATIENCE, writer.append(append)).await.expect("it ends");
    assert_eq!(late, Err(StreamError::NotFound));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_does_not_go_round_and_round_over_streams_that_others_are_ending() {
    // As many as one sweep takes.
    const MANY: usize = 1_000;
    let rig = Rig::start().await;
    let inner = rig.node.streams().inner.clone();
    let name = |n: usize| format!("n-{n}").parse::<StreamName>().unwrap();
    let creating = (0..MANY).map(|n| {
        let (inner, name) = (inner.clone(), name(n));
        async move {
            let created = inner.create(&name, create::Wanted::Plain(&of_ttl(10))).await.unwrap();
            inner.open(created.info.id).await.unwrap()
        }
    });
    let open = futures::future::join_all(creating).await;
    assert!(open.iter().all(|stream| stream.stop()), "nobody else ends them yet");
    rig.clock.pass(Duration::from_secs(60));
    let sweeping = {
        let inner = inner.clone();
        rig.beside(async move { inner.sweep_expired().await })
    };
    assert!(!sweeping.await, "there is nothing that another look would find");
    open.iter().for_each(|stream| stream.resume());
    rig.stop().await;
}

/// Nobody but its successor knows what was appended since. What enters the order is another matter: the seal decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_be_fenced_tells_no_producer_what_its_next_number_is() {
    // Renewed long after the test has ended.
    let rig = Rig::start_with(None, |config| config.lease = Duration::from_secs(400)).await;
    rig.create("n", spec("text/plain", None)).await.unwrap();
    assert!(rig.produce("n", 0).await.is_ok());
    let gap = rig.produce("n", 5).await;
    assert_eq!(gap, Err(StreamError::ProducerGap { expected: 1, received: 5 }));
    assert!(rig.produce("n", 0).await.unwrap().duplicate);

    rig.clock.pass(Duration::from_secs(500));
    for seq in [0, 5] {
        let told = rig.produce("n", seq).await;
        assert!(matches!(told, Err(StreamError::Unavailable { .. })), "{seq}: {told:?}");
    }
    let next = rig.produce("n", 1).await.unwrap();
    assert!(!next.duplicate);
    rig.stop().await;
}
