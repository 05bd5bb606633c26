//! What only the log knows: creates that are placed elsewhere, streams that open elsewhere.

use super::stub::{Deed, Stub};
use super::*;

/// A node that routes, and a stub that gets all placements.
struct Rig {
    node: Node,
    front: Front,
    stub: Stub,
}

impl Rig {
    async fn start(mode: RoutingMode) -> Self {
        let node = Node::start(|_| {}).await;
        let stub = Stub::start(&node.tasks).await;
        let metadata = node.node.metadata();
        let router = Router::new(metadata.clone(), own(&node), mode, node.tasks.clone(), quick());
        let patient = |l: &mut HttpLimits| l.long_poll = PATIENCE;
        let front = Front::start((node.node.streams(), &node.tasks), router, patient).await;
        Self { node, front, stub }
    }

    /// From now on what is placed goes to the stub.
    async fn place_at_stub(&self) {
        // Before "node-0", so that a tie is its own.
        register(self.node.node.metadata(), "a-stub", &self.stub.url, 1000).await;
    }

    async fn stop(self) {
        self.front.stop.cancel();
        self.node.stop().await;
    }
}

#[tokio::test]
async fn a_create_without_a_body_is_answered_where_it_lands() {
    let rig = Rig::start(RoutingMode::Redirect).await;
    rig.place_at_stub().await;
    let created = rig.front.ask("PUT", "/v1/stream/s", &[TEXT], "").await;
    assert_eq!((created.status, created.get("location")), (201, Some("http://test.example:80/v1/stream/s")));
    let again = rig.front.ask("PUT", "/v1/stream/s", &[TEXT], "").await;
    assert_eq!(again.status, 307, "it is the owner's to confirm");
    rig.stop().await;
}

#[tokio::test]
async fn first_bytes_go_to_the_owner_with_the_same_create() {
    let mut rig = Rig::start(RoutingMode::Forward).await;
    rig.place_at_stub().await;
    rig.stub.then(Deed::Answer(201, ""));
    let created = rig.front.ask("PUT", "/v1/stream/s?x=1", &[TEXT, "Stream-Closed: true"], "first").await;
    assert_eq!(created.status, 201);
    let seen = rig.stub.next().await;
    assert_eq!((seen.method, seen.body.as_deref()), (Method::PUT, Some(&b"first"[..])));
    assert_eq!(seen.uri, "http://test.example:80/v1/stream/s?x=1", "the host that the client asked for");
    assert_eq!(seen.fields["stream-closed"], "true");
    let hop = seen.fields["weir-hop"].to_str().unwrap();
    let (index, hops) = hop.split_once('.').unwrap();
    assert_eq!(hops, "1");
    // The owner's view will hold the create.
    let metadata = rig.node.node.metadata();
    assert!(index.parse::<u64>().unwrap() <= *metadata.applied().borrow());
    assert!(metadata.read(|s| s.stream_by_name("s").unwrap().1.unborn_since_ms.is_some()));

    // Another try of the client's, at this node: the name is known now.
    rig.stub.then(Deed::Answer(201, ""));
    assert_eq!(rig.front.ask("PUT", "/v1/stream/s", &[TEXT], "first").await.status, 201);
    assert_eq!(rig.stub.next().await.body.as_deref(), Some(&b"first"[..]));
    rig.stop().await;

    let rig = Rig::start(RoutingMode::Redirect).await;
    rig.place_at_stub().await;
    let mut client = rig.front.client().await;
    let reply = client.request("PUT", "/v1/stream/s", &[TEXT], "first").await;
    let at_stub = format!("{}/v1/stream/s?weir-hop=", rig.stub.url);
    assert_eq!(reply.status, 307);
    assert!(reply.get("location").unwrap().starts_with(&at_stub), "{reply:?}");
    assert_eq!(client.request("GET", "/health", &[], "").await.status, 200, "the connection goes on");
    rig.stop().await;
}

#[tokio::test]
async fn a_create_whose_body_is_invalid_is_refused_before_anything_is_registered() {
    let rig = Rig::start(RoutingMode::Forward).await;
    rig.place_at_stub().await;
    let reply = rig.front.ask("PUT", "/v1/stream/j", &["Content-Type: application/json"], "[1,").await;
    assert_eq!((reply.status, reply.field().as_str()), (400, "body"));
    assert!(rig.node.node.metadata().read(|s| s.stream_by_name("j").is_none()));
    rig.stop().await;
}

/// Creates a stream here and lets go of it.
async fn released(rig: &Rig, name: &str) {
    let path = format!("/v1/stream/{name}");
    assert_eq!(rig.front.ask("PUT", &path, &[TEXT], "hello").await.status, 201);
    rig.node.node.streams().drain().await.expect("released");
}

#[tokio::test]
async fn a_released_stream_is_read_where_it_is_asked_for_and_appends_go_where_it_opens() {
    let mut rig = Rig::start(RoutingMode::Forward).await;
    released(&rig, "s").await;
    rig.place_at_stub().await;
    let read = rig.front.ask("GET", "/v1/stream/s", &[], "").await;
    assert_eq!(
        (read.status, read.body.as_str(), read.get("stream-up-to-date")),
        (200, "hello", Some("true"))
    );
    let head = rig.front.ask("HEAD", "/v1/stream/s", &[], "").await;
    assert_eq!(head.get("stream-next-offset"), Some("00000000000000000005"));
    let owner = || rig.node.node.metadata().read(|s| s.owner_of(s.stream_by_name("s").unwrap().1));
    assert_eq!(owner(), None, "reading claims nothing");

    // The body was taken in before the log said that the stream opens elsewhere.
    rig.stub.then(Deed::Answer(204, ""));
    let appended = rig.front.ask("POST", "/v1/stream/s", &[TEXT, "Producer-Id: p"], " world").await;
    assert_eq!(appended.status, 400, "what is malformed goes nowhere");
    let appended = rig.front.ask("POST", "/v1/stream/s", &[TEXT], " world").await;
    assert_eq!(appended.status, 204);
    assert_eq!(owner().unwrap().session.node.to_string(), "a-stub");
    let seen = rig.stub.next().await;
    assert_eq!((seen.method, seen.body.as_deref()), (Method::POST, Some(&b" world"[..])));
    assert_eq!(seen.fields["content-length"], "6");
    rig.stop().await;
}

#[tokio::test]
async fn a_reader_who_waits_at_a_released_stream_is_sent_to_where_it_opens() {
    let rig = Rig::start(RoutingMode::Redirect).await;
    released(&rig, "s").await;
    let mut waiting = rig.front.client().await;
    waiting.send("GET /v1/stream/s?offset=now&live=long-poll HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let early = tokio::time::timeout(Duration::from_millis(20), waiting.byte()).await;
    assert!(early.is_err(), "it waits");
    rig.place_at_stub().await;
    assert_eq!(rig.front.ask("POST", "/v1/stream/s", &[TEXT], "x").await.status, 307);
    let reply = waiting.reply("GET").await;
    assert_eq!(reply.status, 307);
    let there = format!("{}/v1/stream/s?offset=now&live=long-poll&weir-hop=", rig.stub.url);
    assert!(reply.get("location").unwrap().starts_with(&there), "{reply:?}");
    rig.stop().await;
}

#[tokio::test]
async fn without_a_node_that_takes_streams_the_answer_is_later_and_not_never() {
    let rig = Rig::start(RoutingMode::Redirect).await;
    released(&rig, "s").await;
    let none = Command::SetSlots {
        node: "node-0".parse().unwrap(),
        slots: Slots::try_from(0).unwrap(),
        resource: None,
    };
    rig.node.node.metadata().propose(none).await.unwrap();
    for (method, name) in [("POST", "s"), ("PUT", "new")] {
        let reply = rig.front.ask(method, &format!("/v1/stream/{name}"), &[TEXT], "x").await;
        assert_eq!((reply.status, reply.get("retry-after")), (503, Some("1")), "{method}");
    }
    rig.stop().await;
}
