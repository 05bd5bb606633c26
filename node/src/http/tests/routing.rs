//! Streams of other nodes: redirects and forwarding, over real sockets.
//!
//! The cluster is made of one metadata log in which more sessions are registered than there are processes. A *front* is
//! a client listener whose session is another than the one that has the streams: it sends everything on to the real
//! node, whose log it follows. A *stub* stands at a registered session's address and does what the test says.

use std::sync::Mutex;

use http_body_util::BodyExt;
use weir_api::{Incarnation, NodeEpoch, NodeId, Nonce, RaftId, SessionId, Slots};

use super::*;
use crate::config::RoutingMode;
use crate::metadata::Metadata;
use crate::metadata::command::{Command, FenceReason, Registration};

mod forwarding;
mod handover;
mod lanes;
mod redirects;
mod stub;

const TEXT: &str = "Content-Type: text/plain";

/// Registers a node that is not this process.
async fn register(metadata: &Metadata, node: &str, http_url: &str, slots: u64) -> SessionId {
    let node: NodeId = node.parse().unwrap();
    let number = node.to_string().bytes().fold(100, |n, b| n * 31 % 1_000_007 + u64::from(b));
    let session = SessionId { node, epoch: NodeEpoch(1) };
    let registration = Registration {
        session: session.clone(),
        nonce: Nonce(u128::from(number)),
        incarnation: "elsewhere".parse::<Incarnation>().unwrap(),
        raft_id: RaftId(number),
        boot_id: None,
        http_url: http_url.to_owned(),
        peer_address: "127.0.0.1:1".to_owned(),
        slots: Slots::try_from(slots).unwrap(),
        formats: (1, 1),
    };
    metadata.propose_founding(Command::Register(registration)).await.expect("registered");
    session
}

/// The session of the real node.
fn own(node: &Node) -> SessionId {
    let metadata = node.node.metadata();
    metadata
        .read(|s| s.nodes[&"node-0".parse::<NodeId>().unwrap()].session.map(|no| s.sessions[&no].id.clone()))
        .expect("the node has a session")
}

fn quick() -> PoolLimits {
    PoolLimits { slack: Duration::ZERO, ..PoolLimits::default() }
}

/// A client listener that routes.
struct Front {
    address: SocketAddr,
    stop: CancellationToken,
    metrics: Metrics,
    router: Router,
}

impl Front {
    /// Over `streams`, following `metadata` as `me`.
    async fn start(
        (streams, tasks): (&Streams, &Tasks),
        router: Router,
        change: impl FnOnce(&mut HttpLimits),
    ) -> Self {
        let listener = net::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a free port");
        Self::serve(listener, (streams, tasks), router, change)
    }

    fn serve(
        listener: net::TcpListener,
        (streams, tasks): (&Streams, &Tasks),
        router: Router,
        change: impl FnOnce(&mut HttpLimits),
    ) -> Self {
        let mut limits = HttpLimits { long_poll: Duration::from_millis(100), ..HttpLimits::default() };
        change(&mut limits);
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let metrics = Metrics::default();
        let app = App::new(streams.clone(), limits, None, Clock::default(), stop.clone())
            .counting(metrics.clone())
            .routed(router.clone());
        tasks.spawn(serve(listener, Arc::new(app), tasks.clone()));
        Self { address, stop, metrics, router }
    }

    async fn client(&self) -> Client {
        Client(net::connect(&self.address.to_string(), PATIENCE).await.expect("the server listens"))
    }

    async fn ask(&self, method: &str, path: &str, fields: &[&str], body: &str) -> Reply {
        self.client().await.request(method, path, fields, body).await
    }

    /// A line of the metrics.
    fn counted(&self, line: &str) -> bool {
        let text = self.metrics.text();
        text.lines().any(|l| l == format!("weir_{line}"))
    }

    /// Waits until something was counted.
    async fn until_counted(&self, line: &str) {
        let seen = async {
            while !self.counted(line) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, seen)
            .await
            .unwrap_or_else(|_| panic!("{line} in {}", self.metrics.text()));
    }
}

/// A node that has all streams, and a front before it that has none.
struct Pair {
    owner: Node,
    /// Whose streams layer the front would ask; nothing of it is ever open.
    other: Node,
    front: Front,
}

impl Pair {
    async fn start(mode: RoutingMode) -> Self {
        Self::with(mode, quick(), |_| {}).await
    }

    async fn with(mode: RoutingMode, pool: PoolLimits, change: impl FnOnce(&mut HttpLimits)) -> Self {
        let (owner, other) = (Node::start(|_| {}).await, Node::start(|_| {}).await);
        let me = register(owner.node.metadata(), "front", "http://127.0.0.1:1", 0).await;
        let router = Router::new(owner.node.metadata().clone(), me, mode, other.tasks.clone(), pool);
        let front = Front::start((other.node.streams(), &other.tasks), router, change).await;
        Self { owner, other, front }
    }

    /// Creates an empty text stream at the owner.
    async fn create(&self, name: &str) {
        assert_eq!(self.owner.ask("PUT", &format!("/v1/stream/{name}"), &[TEXT], "").await.status, 201);
    }

    async fn stop(self) {
        self.front.stop.cancel();
        self.other.stop().await;
        self.owner.stop().await;
    }
}
