//! Streams that end by themselves. Time passes by the node's clock, never by waiting.

use super::*;

const TEXT: &str = "Content-Type: text/plain";

impl Node {
    /// Asks until the answer is not "not now": a node that let time pass at once has to renew its lease.
    async fn insist(&self, method: &str, path: &str, fields: &[&str], body: &str) -> Reply {
        let insist = async {
            loop {
                let reply = self.ask(method, path, fields, body).await;
                if reply.status != 503 {
                    return reply;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, insist).await.expect("an answer other than 503")
    }

    async fn status(&self, method: &str, path: &str) -> u16 {
        self.insist(method, path, &[], "").await.status
    }

    fn pass(&self, ms: u64) {
        self.clock.pass(Duration::from_millis(ms));
    }
}

#[tokio::test]
async fn every_use_of_an_open_stream_gives_it_its_ttl_again_and_nothing_else_does() {
    let node = Node::start(|_| {}).await;
    let path = |n: usize| format!("/v1/stream/used-{n}");
    let producer = ["Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 0"];
    let producing = |more: &[&'static str]| [&producer[..], more].concat();
    let uses: Vec<(&str, &str, Vec<&str>, &str, u16)> = vec![
        ("GET", "", vec![], "", 200),
        ("GET", "?offset=-1", vec![], "", 200),
        ("GET", "?offset=now", vec![], "", 200),
        ("GET", "?offset=00000000000000000001", vec![], "", 200),
        ("GET", "?offset=now&live=long-poll", vec![], "", 204),
        ("GET", "?offset=-1&live=long-poll", vec![], "", 200),
        ("POST", "", vec![TEXT], "x", 204),
        ("POST", "", producing(&[TEXT]), "x", 200),
        ("POST", "", vec!["Stream-Closed: true"], "", 204),
        ("POST", "", producing(&["Stream-Closed: true"]), "", 204),
    ];
    let no_uses: Vec<(&str, &str, Vec<&str>, &str, u16)> = vec![
        ("HEAD", "", vec![], "", 200),
        ("OPTIONS", "", vec![], "", 204),
        ("PUT", "", vec![TEXT, "Stream-TTL: 60"], "", 200),
        ("PUT", "", vec![TEXT, "Stream-TTL: 61"], "", 409),
    ];
    let all: Vec<_> = uses.iter().chain(&no_uses).collect();
    for n in 0..all.len() {
        let created = node.ask("PUT", &path(n), &[TEXT, "Stream-TTL: 60"], "first").await;
        assert_eq!(created.status, 201);
    }
    node.pass(40_000);
    for (n, (method, query, fields, body, status)) in all.iter().enumerate() {
        let reply = node.insist(method, &format!("{}{query}", path(n)), fields, body).await;
        assert_eq!(reply.status, *status, "{method} {query} {fields:?}");
    }
    // A fork reads nothing for a client.
    let fork = node.insist(
        "PUT",
        "/v1/stream/f",
        &["Stream-Forked-From: /v1/stream/used-13", "Stream-TTL: 500"],
        "",
    );
    assert_eq!(fork.await.status, 201);
    node.pass(30_000);
    for (n, (method, query, fields, ..)) in all.iter().enumerate() {
        let lives = if n < uses.len() {
            200
        } else if n == 13 {
            410
        } else {
            404
        };
        assert_eq!(node.status("HEAD", &path(n)).await, lives, "{method} {query} {fields:?}");
    }
    // Some may have been released meanwhile, and end by the record.
    node.pass(36_001);
    for n in 0..uses.len() {
        assert_eq!(node.status("GET", &path(n)).await, 404, "{n}");
        assert_eq!(
            node.insist("PUT", &path(n), &[TEXT], "new").await.status,
            201,
            "the name is free at once"
        );
        assert_eq!(node.insist("GET", &path(n), &[], "").await.body, "new");
    }
    node.stop().await;
}

#[tokio::test]
async fn an_open_stream_ends_exactly_when_its_ttl_is_over() {
    let node = Node::start(|_| {}).await;
    let path = "/v1/stream/exact";
    assert_eq!(node.ask("PUT", path, &[TEXT, "Stream-TTL: 30"], "first").await.status, 201);
    for _ in 0..3 {
        // A margin for what the test itself takes.
        node.pass(20_000);
        assert_eq!(node.insist("POST", path, &[TEXT], "more").await.status, 204);
    }
    node.pass(20_000);
    assert_eq!(node.status("HEAD", path).await, 200);
    node.pass(10_000);
    assert_eq!(node.status("HEAD", path).await, 404);
    node.stop().await;
}

#[tokio::test]
async fn every_request_to_what_is_over_finds_nothing() {
    let node = Node::start(|_| {}).await;
    for (n, (method, query, fields, body, status)) in [
        ("HEAD", "", &[][..], "", 404),
        ("GET", "", &[], "", 404),
        ("GET", "?offset=now", &[], "", 404),
        ("GET", "?offset=-1&live=long-poll", &[], "", 404),
        ("POST", "", &[TEXT], "x", 404),
        ("POST", "", &["Stream-Closed: true"], "", 404),
        ("DELETE", "", &[], "", 404),
        ("PUT", "", &["Content-Type: application/json"], "", 201),
    ]
    .into_iter()
    .enumerate()
    {
        // Open with a record in it; never opened.
        for (first, kind) in [("first", "open"), ("", "idle")] {
            let path = format!("/v1/stream/over-{n}-{kind}");
            assert_eq!(node.insist("PUT", &path, &[TEXT, "Stream-TTL: 1"], first).await.status, 201);
            node.pass(1_101);
            let reply = node.insist(method, &format!("{path}{query}"), fields, body).await;
            assert_eq!(reply.status, status, "{method} {query} on the {kind} one");
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn a_stream_that_was_never_opened_ends_by_the_log_at_most_a_tenth_late() {
    let node = Node::start(|_| {}).await;
    let path = "/v1/stream/idle";
    assert_eq!(node.ask("PUT", path, &[TEXT, "Stream-TTL: 3600"], "").await.status, 201);
    node.pass(3_600_000 - 1_000);
    assert_eq!(node.status("GET", path).await, 200, "a read, which is recorded");
    node.pass(3_600_000 - 1_000);
    let head = node.insist("HEAD", path, &[], "").await;
    assert_eq!((head.status, head.get("stream-ttl")), (200, Some("3600")));
    node.pass(361_000);
    assert_eq!(node.status("HEAD", path).await, 404);
    node.stop().await;
}

#[tokio::test]
async fn a_fixed_end_does_not_move() {
    let node = Node::start(|_| {}).await;
    let at = chrono::DateTime::from_timestamp_millis(node.clock.wall_ms() as i64 + 60_000).unwrap();
    let field = format!("Stream-Expires-At: {}", at.to_rfc3339());
    for (path, first) in [("/v1/stream/open", "first"), ("/v1/stream/idle", "")] {
        assert_eq!(node.ask("PUT", path, &[TEXT, &field], first).await.status, 201);
        let head = node.ask("HEAD", path, &[], "").await;
        assert!(head.get("stream-expires-at").is_some() && head.get("stream-ttl").is_none());
    }
    node.pass(50_000);
    assert_eq!(node.insist("POST", "/v1/stream/open", &[TEXT], "more").await.status, 204);
    for path in ["/v1/stream/open", "/v1/stream/idle"] {
        assert_eq!(node.status("GET", path).await, 200);
    }
    node.pass(10_001);
    for path in ["/v1/stream/open", "/v1/stream/idle"] {
        assert_eq!(node.status("GET", path).await, 404);
    }
    node.stop().await;
}

#[tokio::test]
async fn what_is_over_from_the_start_is_created_and_not_found() {
    let node = Node::start(|_| {}).await;
    for (n, field) in
        ["Stream-TTL: 0", "Stream-Expires-At: 2001-01-31T13:00:00+01:00"].into_iter().enumerate()
    {
        for first in ["", "first"] {
            let path = format!("/v1/stream/never-{n}-{}", first.len());
            for _again in 0..2 {
                let created = node.insist("PUT", &path, &[TEXT, field], first).await;
                assert_eq!(
                    (created.status, created.get("location").is_some()),
                    (201, true),
                    "{field} {first:?}"
                );
                assert_eq!(node.status("HEAD", &path).await, 404);
                assert_eq!(node.status("GET", &path).await, 404);
            }
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn a_wall_clock_that_jumps_ends_no_open_ttl_early_and_a_late_end_comes() {
    let node = Node::start(|_| {}).await;
    let path = "/v1/stream/s";
    assert_eq!(node.ask("PUT", path, &[TEXT, "Stream-TTL: 60"], "first").await.status, 201);
    node.clock.shift_wall_ms(86_400_000);
    assert_eq!(node.status("HEAD", path).await, 200, "set ahead by a day");
    assert_eq!(node.status("GET", path).await, 200);
    node.clock.shift_wall_ms(-86_400_000);
    node.pass(60_001);
    assert_eq!(node.status("HEAD", path).await, 200, "recorded by the clock that was ahead");
    node.pass(86_400_000);
    assert_eq!(node.status("HEAD", path).await, 404);
    node.stop().await;
}

#[tokio::test]
async fn a_source_that_is_over_is_gone_but_its_forks_are_not() {
    let node = Node::start(|_| {}).await;
    let (source, fork, again) = ("/v1/stream/source", "/v1/stream/fork", "/v1/stream/again");
    let from = "Stream-Forked-From: /v1/stream/source";
    assert_eq!(node.ask("PUT", source, &[TEXT, "Stream-TTL: 10"], "first").await.status, 201);
    // One with its source's TTL, one with another.
    assert_eq!(node.ask("PUT", again, &[from], "").await.status, 201);
    assert_eq!(node.ask("HEAD", again, &[], "").await.get("stream-ttl"), Some("10"));
    assert_eq!(node.ask("PUT", fork, &[from, "Stream-TTL: 1000"], "").await.status, 201);
    node.pass(11_001);
    assert_eq!(node.status("GET", source).await, 410);
    assert_eq!(node.status("GET", again).await, 404);
    assert_eq!(node.insist("PUT", source, &[TEXT], "").await.status, 409);
    assert_eq!(node.insist("GET", fork, &[], "").await.body, "first");
    assert_eq!(node.insist("PUT", fork, &[from, "Stream-TTL: 1000"], "").await.status, 200, "asked again");
    node.pass(1_100_001);
    assert_eq!(node.status("GET", fork).await, 404);
    assert_eq!(node.insist("PUT", source, &[TEXT], "").await.status, 201, "its last fork let it go");
    node.stop().await;
}
