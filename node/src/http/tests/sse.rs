//! Event streams: what a reader is sent, and when the response ends.

use base64::Engine as _;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};

use super::*;
use crate::http::sse::parse::{self, Event};

const TEXT: &str = "Content-Type: text/plain";
const JSON: &str = "Content-Type: application/json";
const BYTES: &str = "Content-Type: application/x-bytes";
const CLOSED: &str = "Stream-Closed: true";

/// A response under way.
struct Following {
    client: Client,
    head: Reply,
    raw: String,
    /// Events already given out.
    given: usize,
    ended: bool,
}

impl Following {
    async fn begin(node: &Node, path_and_query: &str) -> Self {
        let mut client = node.client().await;
        client.send(format!("GET {path_and_query} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        let head = client.reply("GET").await;
        assert_eq!(head.get("content-type"), Some("text/event-stream"), "{head:?}");
        assert_eq!((head.status, head.get("transfer-encoding")), (200, Some("chunked")));
        assert_eq!(
            (head.get("content-length"), head.get("cache-control")),
            (None, Some("no-cache, no-store"))
        );
        assert_eq!(head.get("access-control-allow-origin"), Some("*"));
        assert_eq!((head.get("etag"), head.get("x-content-type-options")), (None, Some("nosniff")));
        Self { client, head, raw: String::new(), given: 0, ended: false }
    }

    /// Takes one chunk in; `false` at the end of the response.
    async fn chunk(&mut self) -> bool {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(self.client.byte().await.expect("the response ends as its framing says"));
        }
        let length = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
        let mut chunk = vec![0; length + 2];
        let read = tokio::time::timeout(PATIENCE, self.client.0.read_exact(&mut chunk)).await;
        read.expect("the chunk comes").expect("and is whole");
        self.raw += std::str::from_utf8(&chunk[..length]).expect("a chunk is whole events");
        self.ended |= length == 0;
        length > 0
    }

    async fn event(&mut self) -> Option<Event> {
        loop {
            let events = parse::events(&self.raw);
            if let Some(event) = events.get(self.given) {
                self.given += 1;
                return Some(event.clone());
            }
            if self.ended || !self.chunk().await {
                return None;
            }
        }
    }

    async fn control(&mut self) -> Value {
        let event = self.event().await.expect("an event");
        assert_eq!(event.name, "control", "{event:?}");
        let mut said: Value = serde_json::from_str(&event.data).expect("control is JSON");
        // When the cursor has to be there is checked here, and its value elsewhere.
        let cursor = said.as_object_mut().unwrap().remove("streamCursor");
        assert_eq!(cursor.is_some_and(|c| c.is_string()), said.get("streamClosed").is_none(), "{said}");
        said
    }

    /// A data event and the control event after it.
    async fn data(&mut self) -> (String, Value) {
        let event = self.event().await.expect("an event");
        assert_eq!(event.name, "data", "{event:?}");
        (event.data, self.control().await)
    }

    /// Everything up to `end`, in one piece.
    async fn until(&mut self, end: u64) -> (String, Value) {
        let mut all = String::new();
        loop {
            let (data, control) = self.data().await;
            all += &data;
            if next(&control) >= end {
                return (all, control);
            }
        }
    }
}

fn next(control: &Value) -> u64 {
    control["streamNextOffset"].as_str().expect("always there").parse().expect("digits")
}

fn at(next: u64) -> Value {
    json!({ "streamNextOffset": format!("{next:020}"), "upToDate": true })
}

fn end(next: u64) -> Value {
    json!({ "streamNextOffset": format!("{next:020}"), "upToDate": true, "streamClosed": true })
}

async fn append(node: &Node, path: &str, kind: &str, body: &str) {
    assert_eq!(node.ask("POST", path, &[kind], body).await.status, 204);
}

#[tokio::test]
async fn a_reader_gets_history_then_what_comes_and_then_the_end() {
    let node = Node::start(|_| {}).await;
    let path = "/v1/stream/s";
    node.ask("PUT", path, &[TEXT], "one\ntwo").await;
    let mut all = Following::begin(&node, &format!("{path}?offset=-1&live=sse")).await;
    assert_eq!(all.head.get("stream-sse-data-encoding"), None);
    assert_eq!(all.data().await, ("one\ntwo".into(), at(7)));
    let mut now = Following::begin(&node, &format!("{path}?offset=now&live=sse")).await;
    assert_eq!(now.control().await, at(7));
    let mut beyond = Following::begin(&node, &format!("{path}?offset={:020}&live=sse", 99)).await;
    assert_eq!(beyond.control().await, at(7));
    append(&node, path, TEXT, "\r\n\r\nevent: control\r\ndata: {}\r\n\r\n").await;
    for reader in [&mut all, &mut now, &mut beyond] {
        assert_eq!(reader.data().await, ("\n\nevent: control\ndata: {}\n\n".into(), at(39)));
    }
    node.ask("POST", path, &[TEXT, CLOSED], "last").await;
    for mut reader in [all, now, beyond] {
        assert_eq!(reader.data().await, ("last".into(), end(43)));
        assert_eq!(reader.event().await, None, "the response ends");
        let again = reader.client.request("GET", "/health", &[], "").await;
        assert_eq!(again.status, 200, "its connection may go on");
    }
    for offset in ["now", "00000000000000000043", "00000000000000000099"] {
        let mut late = Following::begin(&node, &format!("{path}?offset={offset}&live=sse")).await;
        assert_eq!((late.control().await, late.event().await), (end(43), None), "{offset}");
    }
    let mut part = Following::begin(&node, &format!("{path}?live=sse&offset={:020}", 39)).await;
    assert_eq!((part.data().await, part.event().await), (("last".into(), end(43)), None));
    node.stop().await;
}

#[tokio::test]
async fn an_empty_stream_says_so_first_and_a_plain_close_ends_it() {
    let node = Node::start(|_| {}).await;
    node.ask("PUT", "/v1/stream/e", &[JSON], "").await;
    let mut reader = Following::begin(&node, "/v1/stream/e?offset=-1&live=sse").await;
    assert_eq!(reader.control().await, at(0));
    assert_eq!(node.ask("POST", "/v1/stream/e", &[CLOSED], "").await.status, 204);
    assert_eq!((reader.control().await, reader.event().await), (end(0), None));
    node.stop().await;
}

#[tokio::test]
async fn json_comes_as_arrays_and_bytes_as_base64() {
    let node = Node::start(|_| {}).await;
    node.ask("PUT", "/v1/stream/j", &[JSON], "").await;
    append(&node, "/v1/stream/j", JSON, "[12345678901234567890,\n {\"k\": 1.0e2}]").await;
    let mut reader = Following::begin(&node, "/v1/stream/j?offset=-1&live=sse").await;
    assert_eq!(reader.data().await, ("[12345678901234567890,{\"k\": 1.0e2}]".into(), at(2)));
    append(&node, "/v1/stream/j", JSON, "[[3]]").await;
    assert_eq!(reader.data().await, ("[[3]]".into(), at(3)));

    node.ask("PUT", "/v1/stream/b", &[BYTES], "").await;
    append(&node, "/v1/stream/b", BYTES, "\0\u{1}\n\n").await;
    let mut reader = Following::begin(&node, "/v1/stream/b?offset=-1&live=sse").await;
    assert_eq!(reader.head.get("stream-sse-data-encoding"), Some("base64"));
    assert_eq!(reader.data().await, ("AAEKCg==".into(), at(4)));
    node.stop().await;
}

#[tokio::test]
async fn a_character_cut_by_its_writer_comes_whole() {
    let node = Node::start(|_| {}).await;
    let path = "/v1/stream/u";
    node.ask("PUT", path, &[TEXT], "").await;
    let mut reader = Following::begin(&node, &format!("{path}?offset=-1&live=sse")).await;
    assert_eq!(reader.control().await, at(0));
    let send = async |raw: &[u8], more: &str| {
        let mut client = node.client().await;
        let length = raw.len();
        client
            .send(format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\n{TEXT}\r\n{more}Content-Length: {length}\r\n\r\n"
            ))
            .await;
        client.send(raw).await;
        assert_eq!(client.reply("POST").await.status, 204);
    };
    let euro = "€".as_bytes();
    send(&[b"a", &euro[..1]].concat(), "").await;
    let (data, control) = reader.data().await;
    assert_eq!(
        (data.as_str(), next(&control), control.get("upToDate")),
        ("a", 1, None),
        "two bytes are there"
    );
    // Who comes now finds only a beginning, and is told where it stands.
    let mut second = Following::begin(&node, &format!("{path}?offset={:020}&live=sse", 1)).await;
    assert_eq!(second.control().await, json!({ "streamNextOffset": format!("{:020}", 1) }));
    send(&euro[1..2], "").await;
    send(&euro[2..], "").await;
    assert_eq!(reader.until(4).await, ("€".into(), at(4)));
    assert_eq!(second.until(4).await, ("€".into(), at(4)));
    send(&euro[..2], "Stream-Closed: true\r\n").await;
    for mut reader in [reader, second] {
        assert_eq!((reader.data().await, reader.event().await), (("\u{fffd}".into(), end(6)), None));
    }
    node.stop().await;
}

#[tokio::test]
async fn long_histories_come_in_chunks_and_lose_nothing() {
    let node = Node::start(|_| {}).await;
    let path = "/v1/stream/h";
    // Every chunk's border falls into a character somewhere.
    let text: String = (0..60_000).map(|n| ["é", "€", "x", "\r\n", "😀"][n % 5]).collect();
    node.ask("PUT", path, &[TEXT], &text).await;
    let mut reader = Following::begin(&node, &format!("{path}?offset=-1&live=sse")).await;
    let (first, control) = reader.data().await;
    assert_eq!(control.get("upToDate"), None, "there is more");
    let (rest, control) = reader.until(text.len() as u64).await;
    assert!(first + &rest == text.replace("\r\n", "\n"), "{} bytes", text.len());
    assert_eq!(control, at(text.len() as u64));

    let path = "/v1/stream/big";
    let big = format!(
        "[{}]",
        (0..40).map(|n| format!("\"{n}{}\"", "y".repeat(5_000))).collect::<Vec<_>>().join(",")
    );
    node.ask("PUT", path, &[JSON], &big).await;
    let mut reader = Following::begin(&node, &format!("{path}?offset=-1&live=sse")).await;
    let mut got = Vec::new();
    while got.len() < 40 {
        let (data, control) = reader.data().await;
        got.extend(serde_json::from_str::<Vec<Value>>(&data).expect("every event is an array"));
        assert_eq!(next(&control), got.len() as u64);
    }
    assert_eq!(got, serde_json::from_str::<Vec<Value>>(&big).unwrap());
    node.stop().await;
}

#[tokio::test]
async fn the_last_data_comes_before_the_end_however_append_and_close_race() {
    let node = Node::start(|_| {}).await;
    for round in 0..30 {
        let path = format!("/v1/stream/race{round}");
        node.ask("PUT", &path, &[TEXT], "").await;
        let mut reader = Following::begin(&node, &format!("{path}?offset=-1&live=sse")).await;
        let closing = async {
            append(&node, &path, TEXT, "first ").await;
            if round % 2 == 0 {
                node.ask("POST", &path, &[TEXT, CLOSED], "last").await;
            } else {
                append(&node, &path, TEXT, "last").await;
                node.ask("POST", &path, &[CLOSED], "").await;
            }
        };
        let reading = async {
            let (mut text, mut closed, mut seen) = (String::new(), false, 0);
            while let Some(event) = reader.event().await {
                assert!(!closed, "nothing follows the end");
                if event.name == "data" {
                    text += &event.data;
                    continue;
                }
                let said: Value = serde_json::from_str(&event.data).unwrap();
                assert!(next(&said) >= seen && next(&said) == text.len() as u64);
                seen = next(&said);
                closed = said.get("streamClosed").is_some();
            }
            assert!(closed);
            text
        };
        let ((), text) = tokio::join!(closing, reading);
        assert_eq!(text, "first last");
    }
    node.stop().await;
}

#[tokio::test]
async fn what_is_wrong_is_said_before_the_first_event() {
    let node = Node::start(|limits| limits.max_waiters = 1).await;
    node.ask("PUT", "/v1/stream/w", &[TEXT], "x").await;
    for (path, status, field) in [
        ("/v1/stream/w?live=sse", 400, "offset"),
        ("/v1/stream/w?live=sse&offset=", 400, "offset"),
        ("/v1/stream/w?live=sse&offset=1", 400, "offset"),
        ("/v1/stream/w?live=SSE&offset=-1", 400, "live"),
        ("/v1/stream/none?live=sse&offset=-1", 404, ""),
        ("/v1/stream/none?live=sse&offset=now", 404, ""),
    ] {
        let reply = node.ask("GET", path, &[], "").await;
        assert_eq!((reply.status, reply.field().as_str()), (status, field), "{path}");
    }
    let mut reader = Following::begin(&node, "/v1/stream/w?offset=now&live=sse").await;
    reader.control().await;
    let full = node.ask("GET", "/v1/stream/w?offset=now&live=sse", &[], "").await;
    assert_eq!((full.status, full.get("retry-after")), (503, Some("1")));
    assert_eq!(node.ask("HEAD", "/v1/stream/w?offset=now&live=sse", &[], "").await.status, 200);
    assert_eq!(node.ask("DELETE", "/v1/stream/w", &[], "").await.status, 204);
    assert_eq!(reader.event().await, None, "its stream is gone");
    let gone = reader.client.request("GET", "/v1/stream/w?offset=now&live=sse", &[], "").await;
    assert_eq!(gone.status, 404, "and the reader's place is free again");
    node.stop().await;
}

#[tokio::test]
async fn a_reader_of_a_deleted_stream_does_not_get_the_next_of_its_name() {
    let node = Node::start(|_| {}).await;
    node.ask("PUT", "/v1/stream/n", &[TEXT], "old").await;
    let mut reader = Following::begin(&node, "/v1/stream/n?offset=-1&live=sse").await;
    assert_eq!(reader.data().await.0, "old");
    node.ask("DELETE", "/v1/stream/n", &[], "").await;
    node.ask("PUT", "/v1/stream/n", &[TEXT], "older and longer").await;
    assert_eq!(reader.event().await, None);
    node.stop().await;
}

#[tokio::test]
async fn a_silent_stream_shows_signs_of_life_and_ends_after_its_time() {
    let node = Node::start(|limits| {
        limits.sse_keep_alive = Duration::from_millis(20);
        limits.sse_lifetime = Duration::from_millis(400);
    })
    .await;
    node.ask("PUT", "/v1/stream/q", &[TEXT], "x").await;
    let mut reader = Following::begin(&node, "/v1/stream/q?offset=now&live=sse").await;
    assert_eq!(reader.control().await, at(1));
    assert_eq!(reader.event().await, None, "the end, with nothing told twice");
    assert!(reader.raw.contains("\n\n: \n\n"), "{:?}", reader.raw);
    let again = reader.client.request("GET", "/health", &[], "").await;
    assert_eq!(again.status, 200, "a polite end");
    node.stop().await;
}

#[tokio::test]
async fn cursors_go_beyond_the_clients_and_never_back() {
    let node = Node::start(|_| {}).await;
    node.ask("PUT", "/v1/stream/c", &[TEXT], "x").await;
    let cursor = async |reader: &mut Following| -> u64 {
        loop {
            let event = reader.event().await.expect("an event");
            if event.name == "control" {
                let said: Value = serde_json::from_str(&event.data).unwrap();
                return said["streamCursor"].as_str().unwrap().parse().unwrap();
            }
        }
    };
    let mut plain = Following::begin(&node, "/v1/stream/c?offset=-1&live=sse&cursor=1").await;
    let mut ahead = Following::begin(&node, "/v1/stream/c?offset=-1&live=sse&cursor=99999999").await;
    let (first, beyond) = (cursor(&mut plain).await, cursor(&mut ahead).await);
    assert!(first > 1 && beyond > 99_999_999);
    append(&node, "/v1/stream/c", TEXT, "y").await;
    // Both send the same piece, each with a cursor of its own.
    let (second, kept) = (cursor(&mut plain).await, cursor(&mut ahead).await);
    assert!(second >= first && second < 99_999_999 && kept >= beyond, "{second} {kept}");
    node.stop().await;
}

#[tokio::test]
async fn stopping_ends_event_streams_politely() {
    let node = Node::start(|_| {}).await;
    node.ask("PUT", "/v1/stream/z", &[TEXT], "x").await;
    let mut readers = Vec::new();
    for _ in 0..3 {
        let mut reader = Following::begin(&node, "/v1/stream/z?offset=-1&live=sse").await;
        assert_eq!(reader.data().await, ("x".into(), at(1)));
        readers.push(reader);
    }
    node.stop.cancel();
    for mut reader in readers {
        assert_eq!(reader.event().await, None);
        reader.client.ended().await;
    }
    node.stop().await;
}

#[tokio::test]
async fn a_reader_that_stops_reading_holds_up_nobody_and_is_given_up() {
    let node = Node::start(|limits| {
        limits.write_timeout = Duration::from_millis(200);
        limits.max_waiters = 2;
    })
    .await;
    let path = "/v1/stream/slow";
    node.ask("PUT", path, &[BYTES], "").await;
    let mut deaf = node.client().await;
    deaf.send(format!("GET {path}?offset=-1&live=sse HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    let mut quick = Following::begin(&node, &format!("{path}?offset=-1&live=sse")).await;
    assert_eq!(quick.control().await, at(0));
    // More than a socket's buffers take.
    let (body, rounds) = ("z".repeat(1 << 20), 12u64);
    let mut got = 0;
    for round in 1..=rounds {
        append(&node, path, BYTES, &body).await;
        while got < round << 20 {
            let (data, control) = quick.data().await;
            got += base64::engine::general_purpose::STANDARD.decode(data).expect("base64").len() as u64;
            assert_eq!(next(&control), got);
        }
        // What was taken in is of no more use here.
        (quick.raw, quick.given) = (String::new(), 0);
    }
    // There are two places; a third reader finds one once the deaf one has lost it.
    loop {
        let third = node.ask("HEAD", "/health", &[], "").await;
        assert_eq!(third.status, 200);
        let mut client = node.client().await;
        client.send(format!("GET {path}?offset=now&live=sse HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        match client.reply("GET").await.status {
            503 => tokio::time::sleep(Duration::from_millis(20)).await,
            status => break assert_eq!(status, 200),
        }
    }
    drop((deaf, quick));
    node.stop().await;
}

#[tokio::test]
async fn http_2_carries_events_and_long_polls_side_by_side() {
    let node = Node::start(|limits| limits.long_poll = Duration::from_secs(3600)).await;
    node.ask("PUT", "/v1/stream/two", &[TEXT], "x").await;
    let io = TokioIo::new(node.client().await.0);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let driving = async { drop(connection.await) };
    let asking = async {
        let mut ask = |path: &str| {
            let uri = format!("http://h2.example/v1/stream/two?{path}");
            sender.send_request(Request::get(uri).body(Empty::<bytes::Bytes>::new()).unwrap())
        };
        let events = ask("offset=-1&live=sse");
        let poll = ask("offset=now&live=long-poll");
        let mut events = events.await.unwrap();
        assert_eq!(events.headers()["content-type"], "text/event-stream");
        assert!(events.headers().get("content-length").is_none());
        let mut read = async || {
            let frame = events.body_mut().frame().await.expect("more").expect("no error");
            String::from_utf8(frame.into_data().expect("data").to_vec()).unwrap()
        };
        assert_eq!(parse::events(&read().await)[0].data, "x");
        append(&node, "/v1/stream/two", TEXT, "y").await;
        assert_eq!(parse::events(&read().await)[0].data, "y");
        assert_eq!(poll.await.unwrap().into_body().collect().await.unwrap().to_bytes(), "y");
        drop(sender);
    };
    tokio::join!(driving, asking);
    node.stop().await;
}
