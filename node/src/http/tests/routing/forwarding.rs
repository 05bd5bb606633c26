//! `forward` mode: bodies, waits, and what goes wrong.

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::mpsc;

use super::stub::{Deed, Rig};
use super::*;

#[tokio::test]
async fn a_client_cannot_tell_a_node_that_forwards_from_the_owner() {
    let pair = Pair::start(RoutingMode::Forward).await;
    pair.create("s").await;
    let mut client = pair.front.client().await;
    let confirmed = client.request("PUT", "/v1/stream/s", &[TEXT], "").await;
    assert_eq!(confirmed.status, 200);
    let one = client
        .request(
            "POST",
            "/v1/stream/s",
            &[TEXT, "Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 0"],
            "one",
        )
        .await;
    assert_eq!((one.status, one.get("producer-seq")), (200, Some("0")));
    let large = "x".repeat(5 << 20);
    let two = client.request("POST", "/v1/stream/s", &[TEXT], &large).await;
    assert_eq!((two.status, two.get("stream-next-offset")), (204, Some("00000000000005242883")));
    let wrong = client.request("POST", "/v1/stream/s", &["Content-Type: application/json"], "1").await;
    assert_eq!((wrong.status, wrong.field().as_str()), (409, "Content-Type"));

    // As the owner answers there itself.
    let owner = pair.owner.node.addresses().client.to_string();
    let mut direct = Client(net::connect(&owner, PATIENCE).await.unwrap());
    let mut got = String::new();
    let mut offset = "-1".to_owned();
    loop {
        let path = format!("/v1/stream/s?offset={offset}");
        let here = client.request("GET", &path, &[], "").await;
        let there = direct.request("GET", &path, &[], "").await;
        assert_eq!(here.status, 200);
        assert!(here.body == there.body, "{} and {} bytes", here.body.len(), there.body.len());
        for field in [
            "etag",
            "content-type",
            "content-length",
            "stream-next-offset",
            "cache-control",
            "x-content-type-options",
        ] {
            assert_eq!(here.get(field), there.get(field), "{field}");
        }
        got.push_str(&here.body);
        offset = here.get("stream-next-offset").unwrap().to_owned();
        if here.get("stream-up-to-date").is_some() {
            break;
        }
    }
    assert!(got == format!("one{large}"), "{} bytes", got.len());
    let read = client.request("GET", &format!("/v1/stream/s?offset={offset}"), &[], "").await;
    let known = format!("If-None-Match: {}", read.get("etag").unwrap());
    assert_eq!(
        client.request("GET", &format!("/v1/stream/s?offset={offset}"), &[&known], "").await.status,
        304
    );
    let head = client.request("HEAD", "/v1/stream/s", &[], "").await;
    assert_eq!((head.status, head.get("stream-next-offset")), (200, Some(offset.as_str())));
    assert_eq!(client.request("DELETE", "/v1/stream/s", &[], "").await.status, 204);
    assert_eq!(pair.owner.ask("HEAD", "/v1/stream/s", &[], "").await.status, 404);
    assert_eq!(pair.front.router.connections(), 1, "one connection for one after another");
    pair.stop().await;
}

#[tokio::test]
async fn http_2_clients_are_forwarded_too() {
    let pair = Pair::start(RoutingMode::Forward).await;
    pair.create("s").await;
    let io = TokioIo::new(pair.front.client().await.0);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let asking = async {
        static BIG: [u8; 300_000] = [b'x'; 300_000];
        let request = Request::post("http://h2.example/v1/stream/s").header("content-type", "text/plain");
        let response =
            sender.send_request(request.body(Full::new(Bytes::from_static(&BIG))).unwrap()).await.unwrap();
        assert_eq!(response.status(), 204);
        let request = Request::get("http://h2.example/v1/stream/s").body(Full::default()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), &BIG[..]);
        drop(sender);
    };
    tokio::join!(async { drop(connection.await) }, asking);
    pair.stop().await;
}

#[tokio::test]
async fn a_long_poll_waits_at_the_owner_and_ends_with_its_client() {
    let pair = Pair::with(RoutingMode::Forward, quick(), |l| l.long_poll = PATIENCE).await;
    pair.create("s").await;
    let poll = "GET /v1/stream/s?offset=00000000000000000000&live=long-poll HTTP/1.1\r\nHost: x\r\n\r\n";
    // The owner's own limit: 204 at once, more or less.
    let mut client = pair.front.client().await;
    client.send(poll).await;
    let idle = client.reply("GET").await;
    assert_eq!((idle.status, idle.get("stream-up-to-date")), (204, Some("true")));
    assert!(idle.get("stream-cursor").is_some());
    let told = async {
        loop {
            client.send(poll).await;
            let reply = client.reply("GET").await;
            if reply.status == 200 {
                break reply;
            }
        }
    };
    let (told, appended) = tokio::join!(told, pair.owner.ask("POST", "/v1/stream/s", &[TEXT], "news"));
    assert_eq!((told.body.as_str(), appended.status), ("news", 204));
    pair.stop().await;
}

#[tokio::test]
async fn fields_of_a_connection_do_not_pass() {
    for lanes in [0, 1] {
        fields_over(lanes).await;
    }
}

async fn fields_over(lanes: usize) {
    let mut rig = Rig::with(PoolLimits { lanes, ..quick() }, |_| {}).await;
    rig.meet().await;
    rig.stub.then(Deed::Answer(204, ""));
    let fields = [
        TEXT,
        "Connection: X-Private, keep-alive",
        "X-Private: 1",
        "TE: trailers",
        "Authorization: Bearer t",
    ];
    let reply = rig.front.ask("POST", "/v1/stream/s?a=b&weir-hop=1.1", &fields, "x").await;
    assert_eq!((reply.status, reply.get("connection-id")), (204, Some("kept")));
    let seen = rig.stub.next().await;
    assert_eq!(rig.front.router.lanes(), lanes);
    for gone in ["connection", "x-private", "te", "expect", "transfer-encoding"] {
        assert_eq!(seen.fields.get(gone), None, "{gone}");
    }
    let host = seen.fields.get("host").map(|h| h.to_str().unwrap());
    assert_eq!(
        host.or(seen.uri.authority().map(|a| a.as_str())),
        Some("test.example:80"),
        "whom the client asked for"
    );
    assert_eq!(seen.fields["authorization"], "Bearer t");
    assert_eq!(seen.fields["via"], "1.1 weir");
    assert_eq!(seen.uri.path_and_query().unwrap(), "/v1/stream/s?a=b");
    assert!(seen.fields["weir-hop"].to_str().unwrap().ends_with(".2"), "{seen:?}");
    rig.stop().await;
}

#[tokio::test]
async fn an_owner_that_cannot_be_reached_is_503_and_nothing_was_sent() {
    let node = Node::start(|_| {}).await;
    // Bound and closed again: nobody listens there.
    let free = net::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap().local_addr().unwrap();
    let metadata = node.node.metadata();
    register(metadata, "a-gone", &format!("http://{free}"), 1000).await;
    let router = Router::new(metadata.clone(), own(&node), RoutingMode::Forward, node.tasks.clone(), quick());
    let front = Front::start((node.node.streams(), &node.tasks), router, |_| {}).await;
    assert_eq!(front.ask("PUT", "/v1/stream/s", &[TEXT], "").await.status, 201);
    for (method, body) in [("GET", ""), ("HEAD", ""), ("POST", "x"), ("PUT", ""), ("DELETE", "")] {
        let reply = front.ask(method, "/v1/stream/s", &[TEXT], body).await;
        assert_eq!((reply.status, reply.get("retry-after")), (503, Some("1")), "{method}");
    }
    assert!(front.counted("forwards_total{outcome=\"unreachable\"} 5"), "{}", front.metrics.text());
    // A large body is not even asked for.
    let mut client = front.client().await;
    let head = format!("POST /v1/stream/s HTTP/1.1\r\nHost: x\r\n{TEXT}\r\nContent-Length: 1000000");
    client.send(format!("{head}\r\nExpect: 100-continue\r\n\r\n")).await;
    assert_eq!(client.reply("POST").await.status, 503);
    front.stop.cancel();
    node.stop().await;
}

#[tokio::test]
async fn an_owner_that_dies_with_a_request_leaves_its_outcome_unknown() {
    let mut rig = Rig::start(|_| {}).await;
    let large = "x".repeat(1 << 20);
    for (method, body, status) in [
        ("POST", "x", 504),
        ("POST", large.as_str(), 504),
        ("PUT", "", 504),
        ("DELETE", "", 504),
        ("GET", "", 503),
        ("HEAD", "", 503),
    ] {
        rig.stub.then(Deed::Die);
        let reply = rig.front.ask(method, "/v1/stream/s", &[TEXT], body).await;
        let retry = (status == 503).then_some("1");
        assert_eq!((reply.status, reply.get("retry-after")), (status, retry), "{method}");
        assert_eq!(rig.stub.next().await.body.unwrap(), body.as_bytes());
    }
    assert!(rig.stub.seen.try_recv().is_err(), "nothing was sent twice");
    // The next goes over a new connection.
    rig.stub.then(Deed::Answer(204, ""));
    assert_eq!(rig.front.ask("POST", "/v1/stream/s", &[TEXT], "x").await.status, 204);
    rig.stop().await;
}

#[tokio::test]
async fn an_owner_that_does_not_answer_is_not_waited_for_for_ever() {
    let mut rig = Rig::start(|l| {
        l.request_timeout = Duration::from_millis(20);
        l.long_poll = Duration::from_millis(20);
    })
    .await;
    for (method, target, body, status) in [
        ("POST", "/v1/stream/s", "x", 504),
        // The first had a shared connection, this one has its own.
        ("POST", "/v1/stream/s", "x", 504),
        ("GET", "/v1/stream/s", "", 503),
        ("GET", "/v1/stream/s?offset=now&live=long-poll", "", 503),
    ] {
        rig.stub.then(Deed::Hold);
        assert_eq!(rig.front.ask(method, target, &[TEXT], body).await.status, status, "{method} {target}");
        drop(rig.stub.next().await);
    }
    rig.stop().await;
}

#[tokio::test]
async fn an_owner_whose_session_is_over_is_not_waited_for() {
    let hour = Duration::from_secs(3_600);
    let mut rig = Rig::start(|l| (l.request_timeout, l.long_poll) = (hour, hour)).await;
    let mut waiting = Vec::new();
    let post = format!("/v1/stream/s HTTP/1.1\r\nHost: x\r\n{TEXT}\r\nContent-Length: 1\r\n\r\nx");
    for (method, rest, status) in [
        // The first has a shared connection, the second its own.
        ("POST", post.clone(), 504),
        ("POST", post, 504),
        ("GET", "/v1/stream/s?offset=now&live=long-poll HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), 503),
    ] {
        rig.stub.then(Deed::Hold);
        let mut client = rig.front.client().await;
        client.send(format!("{method} {rest}")).await;
        drop(rig.stub.next().await);
        waiting.push((client, method, status));
    }
    assert_eq!(rig.front.router.lanes(), 1);
    let (parts, answer) = mpsc::channel(4);
    rig.stub.then(Deed::Stream("text/event-stream", answer));
    let mut following = rig.front.client().await;
    following.send("GET /v1/stream/s?offset=-1&live=sse HTTP/1.1\r\nHost: x\r\n\r\n").await;
    drop(rig.stub.next().await);
    assert_eq!(following.reply("GET").await.status, 200);

    let (node, epoch) = ("a-stub".parse().unwrap(), NodeEpoch(1));
    let fence = Command::Fence { node, epoch, incarnation: None, reason: FenceReason::Admin };
    rig.node.node.metadata().propose(fence).await.unwrap();
    for (mut client, method, status) in waiting {
        assert_eq!(client.reply(method).await.status, status, "{method}");
    }
    let mut rest = [0; 5];
    tokio::time::timeout(PATIENCE, following.0.read_exact(&mut rest)).await.expect("the end").unwrap();
    assert_eq!(&rest, b"0\r\n\r\n", "an event stream ends in order");
    drop(parts);
    rig.stop().await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_taken_for_the_whole() {
    let mut rig = Rig::start(|_| {}).await;
    let (parts, answer) = mpsc::channel(1);
    rig.stub.then(Deed::Stream("text/plain", answer));
    let mut client = rig.front.client().await;
    client.send("GET /v1/stream/s HTTP/1.1\r\nHost: x\r\n\r\n").await;
    drop(rig.stub.next().await);
    parts.send(Ok(Bytes::from_static(b"half"))).await.unwrap();
    let reply = client.reply("GET").await;
    assert_eq!((reply.status, reply.get("transfer-encoding")), (200, Some("chunked")));
    let mut rest = vec![0; 9];
    client.0.read_exact(&mut rest).await.unwrap();
    parts.send(Err(std::io::Error::other("gone"))).await.unwrap();
    // Whether or not the end is a reset: it is not the end of the chunks.
    drop(tokio::time::timeout(PATIENCE, client.0.read_to_end(&mut rest)).await.expect("the end"));
    let rest = String::from_utf8(rest).unwrap();
    assert_eq!(rest, "4\r\nhalf\r\n", "and not the last chunk");
    rig.front.until_counted("forwards_total{outcome=\"cut\"} 1").await;
    rig.stop().await;
}

#[tokio::test]
async fn an_owner_that_falls_silent_in_an_answer_is_given_up() {
    let mut rig = Rig::start(|l| l.request_timeout = Duration::from_millis(30)).await;
    let (parts, answer) = mpsc::channel(1);
    parts.send(Ok(Bytes::from_static(b"half"))).await.unwrap();
    rig.stub.then(Deed::Stream("text/plain", answer));
    let mut client = rig.front.client().await;
    client.send("GET /v1/stream/s HTTP/1.1\r\nHost: x\r\n\r\n").await;
    drop(rig.stub.next().await);
    assert_eq!(client.reply("GET").await.status, 200);
    let mut rest = Vec::new();
    drop(tokio::time::timeout(PATIENCE, client.0.read_to_end(&mut rest)).await.expect("the end"));
    tokio::time::timeout(PATIENCE, parts.closed()).await.expect("the owner is told");
    rig.stop().await;
}

#[tokio::test]
async fn when_the_client_goes_the_owner_is_told() {
    let mut rig = Rig::start(|l| l.long_poll = PATIENCE).await;
    // In the middle of an answer.
    let (parts, answer) = mpsc::channel(1);
    rig.stub.then(Deed::Stream("text/event-stream", answer));
    let mut client = rig.front.client().await;
    client.send("GET /v1/stream/s?offset=-1&live=sse HTTP/1.1\r\nHost: x\r\n\r\n").await;
    drop(rig.stub.next().await);
    parts.send(Ok(Bytes::from_static(b"event: data\n\n"))).await.unwrap();
    assert_eq!(client.reply("GET").await.get("content-type"), Some("text/event-stream"));
    drop(client);
    tokio::time::timeout(PATIENCE, parts.closed()).await.expect("the owner's answer is dropped");
    // In the middle of a request.
    let mut client = rig.front.client().await;
    client
        .send(format!("POST /v1/stream/s HTTP/1.1\r\nHost: x\r\n{TEXT}\r\nContent-Length: 1000000\r\n\r\n"))
        .await;
    client.send("x".repeat(500_000)).await;
    drop(client);
    assert_eq!(rig.stub.next().await.body, None, "broken off, not shorter");
    // Waiting for an answer.
    rig.stub.then(Deed::Hold);
    let mut client = rig.front.client().await;
    client.send("GET /v1/stream/s?offset=now&live=long-poll HTTP/1.1\r\nHost: x\r\n\r\n").await;
    drop(rig.stub.next().await);
    drop(client);
    rig.front.until_counted("forwards_total{outcome=\"abandoned\"} 1").await;
    rig.stop().await;
}

#[tokio::test]
async fn a_body_over_the_limit_or_too_slow_is_refused_on_the_way() {
    let mut rig = Rig::start(|l| {
        l.max_body = 200_000;
        l.body_timeout = Duration::from_millis(100);
    })
    .await;
    let head = format!("POST /v1/stream/s HTTP/1.1\r\nHost: x\r\n{TEXT}\r\n");
    let mut client = rig.front.client().await;
    client.send(format!("{head}Content-Length: 200001\r\n\r\n")).await;
    assert_eq!(client.reply("POST").await.status, 413);
    let mut client = rig.front.client().await;
    client
        .send(format!("{head}Transfer-Encoding: chunked\r\n\r\n30d41\r\n{}\r\n", "x".repeat(200_001)))
        .await;
    let over = client.reply("POST").await;
    assert_eq!((over.status, over.get("connection")), (413, Some("close")));
    assert_eq!(rig.stub.next().await.body, None);
    let mut client = rig.front.client().await;
    client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")).await;
    let slow = client.reply("POST").await;
    assert_eq!((slow.status, slow.get("connection")), (408, Some("close")));
    assert_eq!(rig.stub.next().await.body, None);
    assert!(rig.front.counted("forwards_total{outcome=\"bad-body\"} 3"), "{}", rig.front.metrics.text());
    rig.stop().await;
}

#[tokio::test]
async fn a_client_that_reads_slowly_holds_the_owner_back() {
    const PART: usize = 64 << 10;
    let mut rig = Rig::start(|_| {}).await;
    let (parts, answer) = mpsc::channel(1);
    rig.stub.then(Deed::Stream("application/octet-stream", answer));
    let sent = Arc::new(Mutex::new(0));
    let count = sent.clone();
    rig.node.tasks.spawn(async move {
        // A gigabyte, if anybody took it.
        for _ in 0..16_384 {
            if parts.send(Ok(Bytes::from(vec![b'x'; PART]))).await.is_err() {
                return;
            }
            *count.lock().unwrap() += PART;
        }
    });
    let mut client = rig.front.client().await;
    client.send("GET /v1/stream/s HTTP/1.1\r\nHost: x\r\n\r\n").await;
    drop(rig.stub.next().await);
    assert_eq!(client.reply("GET").await.status, 200);
    let mut read = vec![0; 4 << 20];
    for _ in 0..20 {
        client.0.read_exact(&mut read).await.unwrap();
    }
    // What lies between: two windows and the sockets' buffers.
    let ahead = *sent.lock().unwrap() - 20 * read.len();
    assert!(ahead < 64 << 20, "{ahead} bytes ahead of the reader");
    drop(client);
    rig.stop().await;
}

#[tokio::test]
async fn requests_to_one_owner_are_bounded() {
    let one = PoolLimits { connections: 1, requests: 1, lanes: 0, ..quick() };
    let mut rig = Rig::with(one, |l| l.long_poll = PATIENCE).await;
    rig.stub.then(Deed::Hold);
    let mut waiting = rig.front.client().await;
    waiting.send("GET /v1/stream/s?offset=now&live=long-poll HTTP/1.1\r\nHost: x\r\n\r\n").await;
    drop(rig.stub.next().await);
    let busy = rig.front.ask("POST", "/v1/stream/s", &[TEXT], "x").await;
    assert_eq!((busy.status, busy.get("retry-after")), (503, Some("1")));
    assert!(rig.front.counted("forwards_total{outcome=\"busy\"} 1"));
    drop(waiting);
    rig.front.until_counted("forwards_total{outcome=\"abandoned\"} 1").await;
    rig.stub.then(Deed::Answer(204, ""));
    assert_eq!(rig.front.ask("POST", "/v1/stream/s", &[TEXT], "x").await.status, 204);
    rig.stop().await;
}

#[tokio::test]
async fn connections_follow_the_load_and_go_when_idle() {
    let limits =
        PoolLimits { connections: 3, requests: 2, spread: 1, idle: Duration::from_millis(50), ..quick() };
    let mut rig = Rig::with(limits, |l| l.long_poll = PATIENCE).await;
    let mut waiting = Vec::new();
    for n in 1..=6 {
        rig.stub.then(Deed::Hold);
        let mut client = rig.front.client().await;
        client.send("GET /v1/stream/s?offset=now&live=long-poll HTTP/1.1\r\nHost: x\r\n\r\n").await;
        drop(rig.stub.next().await);
        waiting.push(client);
        assert_eq!(rig.front.router.connections(), n.min(3));
    }
    drop(waiting);
    let gone = async {
        while rig.front.router.connections() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("idle connections are closed");
    rig.stop().await;
}

#[tokio::test]
async fn a_stop_ends_what_waits_at_the_owner() {
    let mut rig = Rig::start(|l| l.long_poll = PATIENCE).await;
    rig.stub.then(Deed::Hold);
    let mut polling = rig.front.client().await;
    polling.send("GET /v1/stream/s?offset=now&live=long-poll HTTP/1.1\r\nHost: x\r\n\r\n").await;
    drop(rig.stub.next().await);
    let (parts, answer) = mpsc::channel(4);
    rig.stub.then(Deed::Stream("text/event-stream", answer));
    let mut following = rig.front.client().await;
    following.send("GET /v1/stream/s?offset=-1&live=sse HTTP/1.1\r\nHost: x\r\n\r\n").await;
    drop(rig.stub.next().await);
    parts.send(Ok(Bytes::from_static(b"event: data\ndata: x\n"))).await.unwrap();
    assert_eq!(following.reply("GET").await.status, 200);
    let mut begun = vec![0; "14\r\nevent: data\ndata: x\n\r\n".len()];
    following.0.read_exact(&mut begun).await.unwrap();
    rig.front.stop.cancel();
    let reply = polling.reply("GET").await;
    assert_eq!(
        (reply.status, reply.get("retry-after"), reply.get("connection")),
        (503, Some("1"), Some("close"))
    );
    polling.ended().await;
    parts.send(Ok(Bytes::from_static(b"\n"))).await.unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, following.0.read_to_end(&mut rest)).await.expect("the end").unwrap();
    let rest = String::from_utf8(rest).unwrap();
    assert_eq!(rest, "1\r\n\n\r\n0\r\n\r\n", "the event is whole and so is the answer");
    rig.stop().await;
}
