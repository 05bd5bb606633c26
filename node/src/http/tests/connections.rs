//! Connections: framing, limits, deadlines, stopping.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;

const CREATE: &str = "PUT /v1/stream/s HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n\r\n";

/// A node with an empty text stream `s`.
async fn with_stream(change: impl FnOnce(&mut HttpLimits)) -> Node {
    let node = Node::start(change).await;
    let mut client = node.client().await;
    client.send(CREATE).await;
    assert_eq!(client.reply("PUT").await.status, 201);
    node
}

/// How long the stream `s` is.
async fn length(node: &Node) -> u64 {
    let head = node.ask("HEAD", "/v1/stream/s", &[], "").await;
    head.get("stream-next-offset").unwrap().parse().unwrap()
}

fn post(fields: &str, body: &str) -> String {
    format!("POST /v1/stream/s HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n{fields}\r\n\r\n{body}")
}

#[tokio::test]
async fn a_request_framed_in_two_ways_is_refused_and_nothing_behind_it_is_heard() {
    let node = with_stream(|_| {}).await;
    let smuggled = post("Content-Length: 3", "bad");
    for (fields, field) in [
        ("Content-Length: 5\r\nContent-Length: 5", "Content-Length"),
        ("Content-Length: 0\r\nContent-Length: 0", "Content-Length"),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", "Content-Length"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", "Content-Length"),
        ("Transfer-Encoding: gzip, chunked", "Transfer-Encoding"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Transfer-Encoding"),
    ] {
        for body in ["0\r\n\r\n", "", "hello"] {
            let mut client = node.client().await;
            client.send(post(fields, &format!("{body}{smuggled}"))).await;
            let reply = client.reply("POST").await;
            assert_eq!((reply.status, reply.field().as_str()), (400, field), "{fields}");
            assert_eq!(reply.get("connection"), Some("close"));
            client.ended().await;
        }
    }
    // What hyper itself refuses.
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: -5",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: identity",
        "Content-Length : 5",
        "X: y\r\n folded: z",
        "Bad Name: x",
    ] {
        let mut client = node.client().await;
        client.send(post(fields, &format!("hello{smuggled}"))).await;
        assert_eq!(client.reply("POST").await.status, 400, "{fields}");
        client.ended().await;
    }
    assert_eq!(length(&node).await, 0, "not one byte was appended");
    node.stop().await;
}

#[tokio::test]
async fn a_refusal_does_not_touch_the_requests_before_it() {
    let node = with_stream(|_| {}).await;
    let mut client = node.client().await;
    let good = post("Content-Length: 2", "ok");
    let bad = post("Transfer-Encoding: chunked\r\nContent-Length: 5", "0\r\n\r\n");
    client.send(format!("{good}{good}{bad}{good}")).await;
    for status in [204, 204, 400] {
        assert_eq!(client.reply("POST").await.status, status);
    }
    client.ended().await;
    assert_eq!(length(&node).await, 4);
    node.stop().await;
}

#[tokio::test]
async fn malformed_chunks_append_nothing_and_end_the_connection() {
    let node = with_stream(|_| {}).await;
    for body in [
        "x\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "-1\r\n",
        "5 5\r\n",
        "fffffffffffffffff\r\n",
        "3\r\nabc\r\n0\r\nx: y\n\r\n\r\n",
    ] {
        let mut client = node.client().await;
        client.send(post("Transfer-Encoding: chunked", body)).await;
        let reply = client.reply("POST").await;
        assert_eq!((reply.status, reply.field().as_str()), (400, "body"), "{body:?}");
        client.ended().await;
    }
    let mut client = node.client().await;
    client.send(post("Transfer-Encoding: chunked", "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nx: y\r\n\r\n")).await;
    assert_eq!(client.reply("POST").await.status, 204);
    client.send(post("Content-Length: 1", "f")).await;
    assert_eq!(client.reply("POST").await.status, 204, "the connection goes on");
    assert_eq!(node.ask("GET", "/v1/stream/s", &[], "").await.body, "abcdef");
    node.stop().await;
}

#[tokio::test]
async fn a_body_that_ends_early_appends_nothing() {
    let node = with_stream(|_| {}).await;
    for start in [post("Content-Length: 10", "hello"), post("Transfer-Encoding: chunked", "5\r\nhello\r\n")] {
        let mut client = node.client().await;
        client.send(start).await;
        client.0.shutdown().await.unwrap();
        drop(client.try_reply("POST").await);
    }
    assert_eq!(length(&node).await, 0);
    node.stop().await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_and_the_client_can_read_that() {
    let node = with_stream(|limits| limits.max_body = 1000).await;
    let big = "x".repeat(3_000_000);
    let chunked = format!("{:x}\r\n{big}\r\n0\r\n\r\n", big.len());
    for (fields, body) in
        [(format!("Content-Length: {}", big.len()), &big), ("Transfer-Encoding: chunked".into(), &chunked)]
    {
        let mut client = node.client().await;
        client.send(post(&fields, body)).await;
        let reply = client.reply("POST").await;
        assert_eq!((reply.status, reply.field().as_str()), (413, "body"));
        assert!(reply.body.contains("1000"), "{reply:?}");
        client.ended().await;
    }
    let mut client = node.client().await;
    client.send(post("Content-Length: 1001\r\nExpect: 100-continue", "")).await;
    assert_eq!(client.reply("POST").await.status, 413, "before the body is sent");
    assert_eq!(
        node.ask("POST", "/v1/stream/s", &["Content-Type: text/plain"], &big[..1000]).await.status,
        204
    );
    assert_eq!(length(&node).await, 1000);
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let node = with_stream(|_| {}).await;
    let mut client = node.client().await;
    client.send(post("Content-Length: 5\r\nExpect: 100-continue", "")).await;
    assert_eq!(client.reply("POST").await.status, 100);
    client.send("hello").await;
    assert_eq!(client.reply("POST").await.status, 204);
    // Refused before the body: the client must not send it as the next request.
    client
        .send("POST /v1/stream/a//b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        .await;
    let refused = client.reply("POST").await;
    assert_eq!((refused.status, refused.get("connection")), (400, Some("close")));
    client.ended().await;
    node.stop().await;
}

#[tokio::test]
async fn an_early_error_leaves_the_connection_usable_when_the_body_is_small() {
    let node = with_stream(|_| {}).await;
    let mut client = node.client().await;
    for _ in 0..3 {
        let reply = client.request("POST", "/v1/stream/a//b", &[], "some body").await;
        assert_eq!((reply.status, reply.get("connection")), (400, None));
        let reply = client.request("GET", "/v1/stream/s", &[], "a body that nobody asked for").await;
        assert_eq!(reply.status, 200);
    }
    node.stop().await;
}

#[tokio::test]
async fn heads_are_bounded() {
    let node = with_stream(|limits| limits.max_head = 8192).await;
    let long = "x".repeat(10_000);
    for (request, status) in [
        (format!("GET /v1/stream/s HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n"), 431),
        (format!("GET /v1/stream/s HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(200)), 431),
        (format!("GET /v1/stream/{long} HTTP/1.1\r\n"), 431),
        ("GET /v1/stream/s HTTP/1.1\r\n\r\n".into(), 400),
        ("GET /v1/stream/s HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n".into(), 400),
        ("BAD\r\n\r\n".into(), 400),
        ("GET /v1/stream/s HTTP/3.0\r\n\r\n".into(), 400),
        ("\0\0\0\0".into(), 400),
    ] {
        let mut client = node.client().await;
        client.send(&request).await;
        assert_eq!(client.reply("GET").await.status, status, "{}", &request[..request.len().min(60)]);
    }
    let name = node.ask("GET", &format!("/v1/stream/{}", "n".repeat(1025)), &[], "").await;
    assert_eq!((name.status, name.field().as_str()), (400, "stream name"));
    node.stop().await;

    let node = Node::start(|limits| limits.max_uri = 100).await;
    let reply = node.ask("GET", &format!("/v1/stream/s?x={}", "y".repeat(100)), &[], "").await;
    assert_eq!((reply.status, reply.field().as_str()), (414, "request target"));
    node.stop().await;
}

#[tokio::test]
async fn a_body_that_dawdles_is_408() {
    let node = with_stream(|limits| limits.body_timeout = Duration::from_millis(50)).await;
    let mut client = node.client().await;
    client.send(post("Content-Length: 10", "hello")).await;
    let reply = client.reply("POST").await;
    assert_eq!((reply.status, reply.field().as_str()), (408, "body"));
    client.ended().await;
    assert_eq!(length(&node).await, 0);
    node.stop().await;
}

#[tokio::test]
async fn a_head_that_dawdles_ends_the_connection() {
    let node = Node::start(|limits| limits.head_timeout = Duration::from_millis(50)).await;
    for part in ["", "G", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\nHos"] {
        let mut client = node.client().await;
        client.send(part).await;
        client.ended().await;
    }
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_stops_reading_is_given_up() {
    let node = Node::start(|limits| {
        limits.write_timeout = Duration::from_millis(50);
        limits.max_read_chunk = 16 << 20;
        limits.max_connections = 1;
    })
    .await;
    let body = "x".repeat(15 << 20);
    assert_eq!(node.ask("PUT", "/v1/stream/big", &[], &body).await.status, 201);
    let mut deaf = node.client().await;
    for _ in 0..4 {
        deaf.send("GET /v1/stream/big HTTP/1.1\r\nHost: x\r\n\r\n").await;
    }
    // There is one place: another client is served once the first has lost it.
    assert_eq!(node.ask("GET", "/health", &[], "").await.status, 200);
    drop(deaf);
    node.stop().await;
}

#[tokio::test]
async fn waiters_are_bounded() {
    let node = with_stream(|limits| {
        limits.max_waiters = 1;
        limits.long_poll = Duration::from_secs(3600);
    })
    .await;
    let poll = "GET /v1/stream/s?offset=now&live=long-poll HTTP/1.1\r\nHost: x\r\n\r\n";
    let (mut one, mut two) = (node.client().await, node.client().await);
    one.send(poll).await;
    two.send(poll).await;
    let reply = tokio::select! {
        reply = one.reply("GET") => reply,
        reply = two.reply("GET") => reply,
    };
    assert_eq!((reply.status, reply.get("retry-after")), (503, Some("1")));
    assert_eq!(node.ask("GET", "/v1/stream/s", &[], "").await.status, 200, "other reads go on");
    node.stop().await;
}

#[tokio::test]
async fn connections_are_bounded_and_the_next_waits_its_turn() {
    let node = with_stream(|limits| limits.max_connections = 1).await;
    let mut first = node.client().await;
    assert_eq!(first.request("GET", "/health", &[], "").await.status, 200);
    let mut second = node.client().await;
    second.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let early = tokio::time::timeout(Duration::from_millis(50), second.byte()).await;
    assert!(early.is_err(), "no place yet");
    drop(first);
    assert_eq!(second.reply("GET").await.status, 200);
    drop(second);
    node.stop().await;
}

#[tokio::test]
async fn stopping_answers_what_is_under_way_and_closes_politely() {
    let node = with_stream(|limits| limits.long_poll = Duration::from_secs(3600)).await;
    let mut polling = node.client().await;
    polling.send("GET /v1/stream/s?offset=now&live=long-poll HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut sending = node.client().await;
    sending.send(post("Content-Length: 5", "hel")).await;
    let mut idle = node.client().await;
    assert_eq!(idle.request("GET", "/health", &[], "").await.status, 200);
    let mut silent = node.client().await;
    let mut http2 = hyper::client::conn::http2::handshake::<_, _, Full<Bytes>>(
        TokioExecutor::new(),
        TokioIo::new(node.client().await.0),
    )
    .await
    .unwrap();
    let http2_alive = async {
        tokio::select! {
            _ = &mut http2.1 => {}
            ready = http2.0.ready() => { ready.unwrap(); (&mut http2.1).await.unwrap() }
        }
    };

    node.stop.cancel();
    let told = async {
        // A request that was on its way when the node was told to stop.
        let late = idle.request("GET", "/health", &[], "").await;
        assert_eq!((late.status, late.get("connection")), (200, Some("close")));
        idle.ended().await;
        let poll = polling.reply("GET").await;
        assert_eq!((poll.status, poll.get("connection")), (204, Some("close")));
        polling.ended().await;
        sending.send("lo").await;
        assert_eq!(sending.reply("POST").await.status, 204);
        sending.ended().await;
        silent.ended().await;
    };
    tokio::join!(told, http2_alive);
    drop((idle, polling, sending, silent));
    node.stop().await;
}

#[tokio::test]
async fn http_2_with_prior_knowledge_is_served() {
    let node = with_stream(|limits| limits.max_body = 200_000).await;
    let io = TokioIo::new(node.client().await.0);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let driving = async { drop(connection.await) };
    let asking = async {
        let mut ask = async |method: &str, path: &str, body: &'static [u8]| {
            let request = Request::builder()
                .method(method)
                .uri(format!("http://h2.example{path}"))
                .header("content-type", "text/plain")
                .body(Full::new(Bytes::from_static(body)))
                .unwrap();
            let response = sender.send_request(request).await.unwrap();
            let (head, body) = response.into_parts();
            (head, body.collect().await.unwrap().to_bytes())
        };
        static BIG: [u8; 150_000] = [b'x'; 150_000];
        static TOO_BIG: [u8; 200_001] = [b'x'; 200_001];
        let (created, _) = ask("PUT", "/v1/stream/two", b"").await;
        assert_eq!(
            (created.status.as_u16(), &created.headers["location"]),
            (201, &"http://h2.example/v1/stream/two".parse().unwrap())
        );
        assert_eq!(ask("POST", "/v1/stream/two", &BIG).await.0.status, 204);
        let (over, _) = ask("POST", "/v1/stream/two", &TOO_BIG).await;
        assert_eq!(over.status, 413);
        assert!(over.headers.get("connection").is_none());
        let (head, body) = ask("GET", "/v1/stream/two", b"").await;
        assert_eq!((head.status.as_u16(), body.len()), (200, BIG.len()));
        let (head, body) = ask("HEAD", "/v1/stream/none", b"").await;
        assert_eq!((head.status.as_u16(), body.len()), (404, 0));
        drop(sender);
    };
    tokio::join!(driving, asking);
    node.stop().await;
}
