//! The verbs: status codes and header fields.

use super::*;

const TEXT: &str = "Content-Type: text/plain";
const JSON: &str = "Content-Type: application/json";
const CLOSED: &str = "Stream-Closed: true";

#[tokio::test]
async fn a_stream_is_created_once_and_confirmed_after() {
    let node = Node::start(|_| {}).await;
    let created =
        node.ask("PUT", "/v1/stream/a%2Fb/c", &["Content-Type: Text/Plain; charset=utf-8"], "hello").await;
    assert_eq!(created.status, 201);
    assert_eq!(created.get("location"), Some("http://test.example:80/v1/stream/a%2Fb/c"));
    assert_eq!(created.get("content-type"), Some("Text/Plain; charset=utf-8"));
    assert_eq!(created.get("stream-next-offset"), Some("00000000000000000005"));
    assert_eq!(created.get("stream-closed"), None);
    let again = node.ask("PUT", "/v1/stream/a/b/c", &["Content-Type: text/plain; charset=UTF-8"], "").await;
    assert_eq!((again.status, again.get("location")), (200, None));
    let other = node.ask("PUT", "/v1/stream/a/b/c", &["Content-Type: text/html"], "").await;
    assert_eq!(other.status, 409);
    let default = node.ask("PUT", "/v1/stream/d", &[CLOSED], "").await;
    assert_eq!((default.status, default.get("stream-closed")), (201, Some("true")));
    assert_eq!(default.get("content-type"), Some("application/octet-stream"));
    node.stop().await;
}

#[tokio::test]
async fn a_json_create_takes_an_empty_array_and_leaves_nothing_behind_when_invalid() {
    let node = Node::start(|_| {}).await;
    let invalid = node.ask("PUT", "/v1/stream/j", &[JSON], "[1,").await;
    assert_eq!((invalid.status, invalid.field().as_str()), (400, "body"));
    assert_eq!(node.ask("HEAD", "/v1/stream/j", &[], "").await.status, 404);
    let empty = node.ask("PUT", "/v1/stream/j", &[JSON], "[]").await;
    assert_eq!((empty.status, empty.get("stream-next-offset")), (201, Some("00000000000000000000")));
    let first = node.ask("PUT", "/v1/stream/k", &[JSON], "[1, [2]]").await;
    assert_eq!((first.status, first.get("stream-next-offset")), (201, Some("00000000000000000002")));
    assert_eq!(node.ask("GET", "/v1/stream/k", &[], "").await.body, "[1,[2]]");
    node.stop().await;
}

#[tokio::test]
async fn appends_are_read_back_and_closing_is_final() {
    let node = Node::start(|_| {}).await;
    let path = "/v1/stream/s";
    node.ask("PUT", path, &[TEXT], "").await;
    let one = node.ask("POST", path, &[TEXT], "one").await;
    assert_eq!((one.status, one.get("stream-next-offset")), (204, Some("00000000000000000003")));
    assert_eq!(
        node.ask("POST", path, &["Content-Type: TEXT/plain;x=y", "Stream-Closed: no"], "two").await.status,
        204
    );
    let all = node.ask("GET", path, &[], "").await;
    assert_eq!((all.status, all.body.as_str()), (200, "onetwo"));
    assert_eq!(all.get("stream-up-to-date"), Some("true"));
    assert_eq!(all.get("stream-closed"), None);
    assert_eq!(all.get("content-type"), Some("text/plain"));
    assert_eq!(
        node.ask("GET", &format!("{path}?offset={}", one.get("stream-next-offset").unwrap()), &[], "")
            .await
            .body,
        "two"
    );
    let mismatch = node.ask("POST", path, &[JSON], "1").await;
    assert_eq!((mismatch.status, mismatch.field().as_str()), (409, "Content-Type"));

    let last = node.ask("POST", path, &[TEXT, "Stream-Closed: TRUE"], "!").await;
    assert_eq!((last.status, last.get("stream-closed")), (204, Some("true")));
    let repeat = node.ask("POST", path, &["Content-Type: nonsense", CLOSED], "").await;
    assert_eq!((repeat.status, repeat.get("stream-closed")), (204, Some("true")));
    for wrong_too in [JSON, TEXT] {
        let late = node.ask("POST", path, &[wrong_too], "1").await;
        assert_eq!(late.status, 409);
        assert_eq!(late.get("stream-closed"), Some("true"));
        assert_eq!(late.get("stream-next-offset"), Some("00000000000000000007"));
    }
    let end = node.ask("GET", &format!("{path}?offset=00000000000000000007"), &[], "").await;
    assert_eq!((end.status, end.body.as_str(), end.get("stream-closed")), (200, "", Some("true")));
    let head = node.ask("HEAD", path, &[], "").await;
    assert_eq!(
        (head.status, head.get("stream-closed"), head.get("cache-control")),
        (200, Some("true"), Some("no-store"))
    );
    assert_eq!(node.ask("DELETE", path, &[], "").await.status, 204);
    assert_eq!(node.ask("DELETE", path, &[], "").await.status, 404);
    node.stop().await;
}

#[tokio::test]
async fn a_post_is_refused_for_each_thing_that_is_wrong_with_it() {
    let node = Node::start(|_| {}).await;
    node.ask("PUT", "/v1/stream/t", &[TEXT], "").await;
    node.ask("PUT", "/v1/stream/j", &[JSON], "").await;
    for (path, fields, body, status, field) in [
        ("t", &[TEXT][..], "", 400, "body"),
        ("t", &[], "x", 400, "Content-Type"),
        ("t", &["Content-Type: text"], "x", 400, "Content-Type"),
        ("t", &[TEXT, TEXT], "x", 400, "Content-Type"),
        ("t", &[TEXT, "Content-Encoding: gzip"], "x", 415, "Content-Encoding"),
        ("t", &[TEXT, "Stream-Seq: 1", "Stream-Seq: 2"], "x", 400, "Stream-Seq"),
        ("t", &[TEXT, "Stream-Seq:"], "x", 400, "Stream-Seq"),
        ("t", &[TEXT, "Producer-Id: p"], "x", 400, "Producer-Epoch"),
        ("t", &[TEXT, "Producer-Id: p", "Producer-Epoch: 0"], "x", 400, "Producer-Seq"),
        ("t", &[TEXT, "Producer-Epoch: 0", "Producer-Seq: 0"], "x", 400, "Producer-Id"),
        ("t", &[TEXT, "Producer-Id:", "Producer-Epoch: 0", "Producer-Seq: 0"], "x", 400, "Producer-Id"),
        (
            "t",
            &[TEXT, "Producer-Id: p", "Producer-Epoch: 1e3", "Producer-Seq: 0"],
            "x",
            400,
            "Producer-Epoch",
        ),
        ("t", &[TEXT, "Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: -1"], "x", 400, "Producer-Seq"),
        ("j", &[JSON], "[]", 400, "body"),
        ("j", &[JSON], " ", 400, "body"),
        ("j", &[JSON], "1 2", 400, "body"),
        ("j", &[JSON], "{\"a\":", 400, "body"),
        ("none", &[TEXT], "x", 404, ""),
        ("a//b", &[TEXT], "x", 400, "stream name"),
        ("a/%2e%2e/b", &[TEXT], "x", 400, "stream name"),
        ("", &[TEXT], "x", 400, "stream name"),
        ("%zz", &[TEXT], "x", 400, "stream name"),
    ] {
        let reply = node.ask("POST", &format!("/v1/stream/{path}"), fields, body).await;
        assert_eq!(
            (reply.status, reply.field().as_str()),
            (status, field),
            "{path} {fields:?} {body:?}: {reply:?}"
        );
    }
    for fields in [&["Stream-TTL: 01"][..], &["Stream-TTL: 1", "Stream-TTL: 1"]] {
        assert_eq!(node.ask("PUT", "/v1/stream/n", fields, "").await.field(), "Stream-TTL");
    }
    assert_eq!(
        node.ask("PUT", "/v1/stream/n", &["Stream-Expires-At: soon"], "").await.field(),
        "Stream-Expires-At"
    );
    let untouched = node.ask("HEAD", "/v1/stream/t", &[], "").await;
    assert_eq!(untouched.get("stream-next-offset"), Some("00000000000000000000"));
    assert_eq!(node.ask("HEAD", "/v1/stream/n", &[], "").await.status, 404);
    node.stop().await;
}

#[tokio::test]
async fn producers_learn_what_was_new_what_was_not_and_what_is_next() {
    let node = Node::start(|_| {}).await;
    let path = "/v1/stream/p";
    node.ask("PUT", path, &[TEXT], "").await;
    let send = async |epoch: u64, seq: u64, more: &'static str, body: &'static str| {
        let (epoch, seq) = (format!("Producer-Epoch: {epoch}"), format!("Producer-Seq: {seq}"));
        let mut fields = vec![TEXT, "Producer-Id: p", &epoch, &seq];
        fields.extend((!more.is_empty()).then_some(more));
        node.ask("POST", path, &fields, body).await
    };
    for (seq, status) in [(0, 200), (1, 200), (0, 204), (1, 204)] {
        let reply = send(0, seq, "", "x").await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.get("producer-epoch"), Some("0"));
        assert_eq!(reply.get("producer-seq"), Some(if seq == 0 && status == 200 { "0" } else { "1" }));
    }
    let gap = send(0, 5, "", "x").await;
    assert_eq!(gap.status, 409);
    assert_eq!((gap.get("producer-expected-seq"), gap.get("producer-received-seq")), (Some("2"), Some("5")));
    assert_eq!(send(1, 3, "", "x").await.field(), "Producer-Seq");
    assert_eq!(send(1, 0, "", "x").await.status, 200);
    let fenced = send(0, 2, "", "x").await;
    assert_eq!((fenced.status, fenced.get("producer-epoch")), (403, Some("1")));
    let closed = send(1, 1, CLOSED, "").await;
    assert_eq!((closed.status, closed.get("stream-closed")), (204, Some("true")));
    assert_eq!(send(1, 1, CLOSED, "other").await.status, 204);
    assert_eq!(send(1, 2, "", "x").await.status, 409);
    node.stop().await;
}

#[tokio::test]
async fn json_numbers_keep_their_digits_and_chunks_are_whole_arrays() {
    let node = Node::start(|limits| limits.max_read_chunk = 30).await;
    let path = "/v1/stream/n";
    node.ask("PUT", path, &[JSON], "").await;
    assert_eq!(node.ask("POST", path, &[JSON], " 12345678901234567890 ").await.status, 204);
    assert_eq!(
        node.ask("POST", path, &["Content-Type: application/json; charset=utf-8"], "[1.0e2 , [ 1 ]]")
            .await
            .status,
        204
    );
    let first = node.ask("GET", path, &[], "").await;
    assert_eq!(first.body, "[12345678901234567890,1.0e2]");
    assert_eq!((first.get("stream-up-to-date"), first.get("stream-closed")), (None, None));
    let next = first.get("stream-next-offset").unwrap();
    let second = node.ask("GET", &format!("{path}?offset={next}"), &[], "").await;
    assert_eq!((second.body.as_str(), second.get("stream-up-to-date")), ("[[ 1 ]]", Some("true")));
    node.stop().await;
}

#[tokio::test]
async fn an_etag_lives_until_the_next_append_or_close() {
    let node = Node::start(|_| {}).await;
    let path = "/v1/stream/e";
    node.ask("PUT", path, &[TEXT], "abc").await;
    let mut seen = Vec::new();
    for change in [None, Some((&[TEXT][..], "d")), Some((&[CLOSED][..], ""))] {
        if let Some((fields, body)) = change {
            assert_eq!(node.ask("POST", path, fields, body).await.status, 204);
        }
        let read = node.ask("GET", path, &[], "").await;
        let etag = read.get("etag").unwrap().to_owned();
        assert!(etag.starts_with('"') && etag.ends_with('"') && !seen.contains(&etag));
        assert!(read.get("cache-control").unwrap().contains("max-age=60"));
        let list = format!("If-None-Match: \"x\", W/{etag}");
        let known = node.ask("GET", path, &[&list], "").await;
        assert_eq!((known.status, known.get("etag")), (304, Some(etag.as_str())));
        for old in &seen {
            let field = format!("If-None-Match: {old}");
            assert_eq!(node.ask("GET", path, &[&field], "").await.status, 200);
        }
        seen.push(etag);
    }
    assert_eq!(node.ask("GET", path, &["If-None-Match: *"], "").await.status, 304);
    let now = node.ask("GET", &format!("{path}?offset=now"), &["If-None-Match: *"], "").await;
    assert_eq!((now.status, now.get("etag"), now.get("cache-control")), (200, None, Some("no-store")));
    assert_eq!((now.get("stream-up-to-date"), now.get("stream-closed")), (Some("true"), Some("true")));
    let tail = node.ask("GET", &format!("{path}?offset=00000000000000000004"), &[], "").await;
    assert_eq!(tail.get("cache-control"), Some("no-cache"), "an empty answer must not hide what comes");
    let mine = node.ask("GET", path, &["Authorization: Bearer x"], "").await;
    assert!(mine.get("cache-control").unwrap().starts_with("private"));
    node.stop().await;
}

#[tokio::test]
async fn a_long_poll_answers_at_data_at_closing_and_in_the_end() {
    let node = Node::start(|limits| limits.long_poll = Duration::from_secs(3600)).await;
    let path = "/v1/stream/l";
    node.ask("PUT", path, &[TEXT], "abc").await;
    let at = |offset: &str| format!("{path}?offset={offset}&live=long-poll");
    let data = node.ask("GET", &at("-1"), &[], "").await;
    assert_eq!((data.status, data.body.as_str()), (200, "abc"));
    assert!(data.get("stream-cursor").unwrap().parse::<u64>().unwrap() > 0);
    let later = format!("{}&cursor=99999999", at("-1"));
    let cursor = node.ask("GET", &later, &[], "").await;
    assert!(cursor.get("stream-cursor").unwrap().parse::<u64>().unwrap() > 99_999_999);

    let mut waiter = node.client().await;
    waiter.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", at("00000000000000000003"))).await;
    node.ask("POST", path, &[TEXT], "d").await;
    let woken = waiter.reply("GET").await;
    assert_eq!((woken.status, woken.body.as_str(), woken.get("stream-up-to-date")), (200, "d", Some("true")));
    let mut waiter = node.client().await;
    waiter.send(format!("GET {} HTTP/1.1\r\nHost: x\r\nIf-None-Match: *\r\n\r\n", at("now"))).await;
    let news = {
        let mut reply = std::pin::pin!(waiter.reply("GET"));
        // Only what comes after its "now" wakes it, and when that is cannot be seen from here.
        loop {
            node.ask("POST", path, &[TEXT], "e").await;
            tokio::select! {
                news = &mut reply => break news,
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
    };
    assert_eq!((news.status, news.body.starts_with('e')), (200, true), "{news:?}");
    // Another "now" is another place: nobody may keep this answer.
    assert_eq!((news.get("cache-control"), news.get("etag")), (Some("no-store"), None));
    assert!(news.get("stream-cursor").is_some());
    let mut waiter = node.client().await;
    waiter.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", at("now"))).await;
    node.ask("POST", path, &[CLOSED], "").await;
    let closed = waiter.reply("GET").await;
    assert_eq!(
        (closed.status, closed.get("stream-closed"), closed.get("stream-up-to-date")),
        (204, Some("true"), Some("true"))
    );
    let at_once = node.ask("GET", &at("now"), &[], "").await;
    assert_eq!((at_once.status, at_once.get("stream-closed")), (204, Some("true")));
    assert_eq!(node.ask("GET", "/v1/stream/none?offset=now&live=long-poll", &[], "").await.status, 404);
    assert_eq!(node.ask("GET", &format!("{path}?live=long-poll"), &[], "").await.field(), "offset");
    assert_eq!(node.ask("GET", &format!("{path}?offset=1"), &[], "").await.field(), "offset");
    node.stop().await;
}

#[tokio::test]
async fn a_long_poll_with_nothing_to_say_says_where_the_tail_is() {
    let node = Node::start(|limits| limits.long_poll = Duration::from_millis(10)).await;
    node.ask("PUT", "/v1/stream/q", &[TEXT], "abc").await;
    for offset in ["now", "00000000000000000003", "00000000000000000099"] {
        let reply = node.ask("GET", &format!("/v1/stream/q?offset={offset}&live=long-poll"), &[], "").await;
        assert_eq!(reply.status, 204, "{offset}");
        assert_eq!(reply.get("stream-next-offset"), Some("00000000000000000003"));
        assert_eq!((reply.get("stream-up-to-date"), reply.get("stream-closed")), (Some("true"), None));
        assert_eq!((reply.get("etag"), reply.get("cache-control")), (None, Some("no-store")));
        assert!(reply.get("stream-cursor").is_some());
    }
    node.stop().await;
}

#[tokio::test]
async fn every_response_carries_what_browsers_need() {
    let node = Node::start(|_| {}).await;
    node.ask("PUT", "/v1/stream/b", &[TEXT], "x").await;
    for (method, path, status) in [
        ("GET", "/v1/stream/b", 200),
        ("HEAD", "/v1/stream/b", 200),
        ("GET", "/v1/stream/none", 404),
        ("HEAD", "/v1/stream/none", 404),
        ("POST", "/v1/stream/b", 400),
        ("PATCH", "/v1/stream/b", 405),
        ("GET", "/v1/stream/a//b", 400),
        ("GET", "/v1/stream/__ds/jwks.json", 404),
        ("PUT", "/v1/stream/__ds", 404),
        ("GET", "/elsewhere", 404),
        ("GET", "/health", 200),
        ("OPTIONS", "/v1/stream/b", 204),
        ("OPTIONS", "/anything", 204),
        ("DELETE", "/v1/stream/b", 204),
    ] {
        let reply = node.ask(method, path, &["Origin: https://app.example"], "").await;
        assert_eq!(reply.status, status, "{method} {path}");
        assert_eq!(reply.get("access-control-allow-origin"), Some("*"), "{method} {path}");
        assert!(reply.get("access-control-expose-headers").unwrap().contains("Stream-Next-Offset"));
        assert_eq!(reply.get("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.get("cross-origin-resource-policy"), Some("cross-origin"));
        if status >= 400 {
            assert_eq!(reply.get("cache-control"), Some("no-store"), "{method} {path}");
        }
        assert_eq!(reply.get("allow").is_some(), matches!(status, 405) || method == "OPTIONS");
    }
    let preflight = node.ask("OPTIONS", "/v1/stream/b", &["Access-Control-Request-Method: PUT"], "").await;
    let headers = preflight.get("access-control-allow-headers").unwrap();
    for name in ["If-None-Match", "Stream-Seq", "Stream-TTL", "Stream-Closed", "Producer-Id", "Content-Type"]
    {
        assert!(headers.contains(name), "{name}");
    }
    assert!(preflight.get("access-control-allow-methods").unwrap().contains("DELETE"));
    node.stop().await;
}
