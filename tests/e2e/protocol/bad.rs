//! What is wrong with a request is said exactly: the status, the field at fault in a problem document, and the header
//! fields that go with it. Nothing of it has an effect.

use super::case::{Case, delete, get, head, offset, post, put, request};

pub(super) fn table() -> Vec<Case> {
    let before = vec![
        put("bad/t").text().body("0123456789").is(201).next(10),
        put("bad/j").json().body("[1,2,3]").is(201).next(3),
        put("bad/closed").text().closing().body("end").is(201).next(3),
        post("bad/t").text().producer("w", 5, 0).with("stream-seq", "m").body("x").is(200).next(11),
    ];
    let after = vec![
        head("bad/t").is(200).next(11).lacks("stream-closed"),
        get("bad/t").is(200).gives("0123456789x"),
        get("bad/j").is(200).gives("[1,2,3]"),
        get("bad/closed").is(200).gives("end"),
        head("bad/none").is(404).gives(""),
    ];
    let tables = [
        before,
        types(),
        twice(),
        encodings(),
        lifetimes(),
        hosts(),
        bodies(),
        json(),
        sequences(),
        producers(),
        offsets(),
        modes(),
        conditions(),
        forks(),
        methods(),
        places(),
        after,
    ];
    tables.into_iter().flatten().collect()
}

fn types() -> Vec<Case> {
    let long = format!("text/{}", "x".repeat(260));
    let wrong =
        ["", "text", "/", "text/", "/plain", "text plain", "te xt/plain", "text/pl@in", ";/", long.as_str()];
    let mut rows = Vec::new();
    for value in wrong {
        rows.push(put("bad/none").with("content-type", value).is(400).blames("Content-Type"));
        rows.push(post("bad/t").with("content-type", value).body("x").is(400).blames("Content-Type"));
    }
    rows.extend([
        post("bad/t").body("x").is(400).blames("Content-Type"),
        post("bad/t").json().body("1").is(409).blames("Content-Type").lacks("stream-closed"),
        post("bad/t").with("content-type", "text/html").body("x").is(409).blames("Content-Type"),
        post("bad/j").with("content-type", "application/vnd.x+json").body("1").is(409).blames("Content-Type"),
        put("bad/t").json().is(409).refused(),
        put("bad/t").is(409).refused(),
        put("bad/t").text().closing().is(409).refused(),
        put("bad/closed").text().is(409).refused(),
    ]);
    rows
}

/// Fields that may stand once.
fn twice() -> Vec<Case> {
    let fields = [
        ("content-type", "text/plain", "Content-Type"),
        ("content-encoding", "identity", "Content-Encoding"),
        ("stream-closed", "true", "Stream-Closed"),
        ("stream-seq", "n", "Stream-Seq"),
        ("stream-ttl", "60", "Stream-TTL"),
        ("stream-expires-at", "2099-01-01T00:00:00Z", "Stream-Expires-At"),
        ("stream-forked-from", "/v1/stream/bad/t", "Stream-Forked-From"),
        ("stream-fork-offset", "-1", "Stream-Fork-Offset"),
        ("stream-fork-sub-offset", "1", "Stream-Fork-Sub-Offset"),
        ("producer-id", "w", "Producer-Id"),
        ("producer-epoch", "5", "Producer-Epoch"),
        ("producer-seq", "1", "Producer-Seq"),
    ];
    let row =
        |(name, value, field)| put("bad/none").with(name, value).with(name, value).is(400).blames(field);
    fields.map(row).into()
}

fn encodings() -> Vec<Case> {
    let mut rows = Vec::new();
    for value in ["gzip", "br", "deflate", "zstd", "aws-chunked", "identity, gzip", ""] {
        rows.push(put("bad/none").text().with("content-encoding", value).is(415).blames("Content-Encoding"));
        let append = post("bad/t").text().with("content-encoding", value).body("x");
        rows.push(append.is(415).blames("Content-Encoding"));
    }
    rows
}

fn lifetimes() -> Vec<Case> {
    let ttl = |v: &str| put("bad/none").text().with("stream-ttl", v).is(400).blames("Stream-TTL");
    let at =
        |v: &str| put("bad/none").text().with("stream-expires-at", v).is(400).blames("Stream-Expires-At");
    let mut rows: Vec<Case> = [
        "",
        "-1",
        "+1",
        "01",
        "00",
        "1.0",
        "1e3",
        "0x10",
        "1 2",
        "abc",
        "60s",
        "1,000",
        "99999999999999999999",
    ]
    .map(ttl)
    .into();
    rows.extend(
        [
            "",
            "tomorrow",
            "4070908800",
            "2099-01-01",
            "2099-01-01T00:00:00",
            "2099-13-01T00:00:00Z",
            "2099-02-30T00:00:00Z",
            "2099-01-01T25:00:00Z",
            "2099-01-01T00:00:00+25:00",
            "2099-01-01T00:00Z",
            "Thu, 01 Jan 2099 00:00:00 GMT",
        ]
        .map(at),
    );
    let both =
        put("bad/none").text().with("stream-ttl", "60").with("stream-expires-at", "2099-01-01T00:00:00Z");
    rows.push(both.is(400).blames("Stream-TTL"));
    rows
}

/// `Host` goes into `Location`, so it must be one.
fn hosts() -> Vec<Case> {
    ["", "user@host", "a b", "host:port", "host:99999", "a/b", "a,b"]
        .map(|host| put("bad/none").text().with("host", host).is(400).blames("Host"))
        .into()
}

fn bodies() -> Vec<Case> {
    let large = || vec![b'x'; 64 * 1024 + 1];
    vec![
        post("bad/t").text().is(400).blames("body"),
        post("bad/t").text().with("stream-closed", "false").is(400).blames("body"),
        post("bad/t").text().with("stream-closed", "1").is(400).blames("body"),
        post("bad/t").text().with("stream-closed", "").is(400).blames("body"),
        post("bad/t").is(400).blames("body"),
        post("bad/t").text().body(large()).is(413).blames("body").has("connection", "close"),
        put("bad/none").text().body(large()).is(413).blames("body").has("connection", "close"),
        post("bad/closed").text().body("x").is(409).refused().next(3).has("stream-closed", "true"),
        post("bad/closed").json().body("1").is(409).refused().next(3).has("stream-closed", "true"),
        post("bad/closed").text().closing().body("x").is(409).refused().has("stream-closed", "true"),
        post("bad/closed")
            .text()
            .producer("w", 0, 0)
            .body("x")
            .is(409)
            .refused()
            .has("stream-closed", "true"),
    ]
}

fn json() -> Vec<Case> {
    let texts = [
        "{",
        "}",
        "[1",
        "[1,]",
        "[1]]",
        "{\"a\":1,}",
        "{\"a\"}",
        "{a:1}",
        "1 2",
        "1,2",
        "1\n2",
        "NaN",
        "Infinity",
        "undefined",
        "nul",
        "True",
        "'a'",
        "\"a",
        "\"\\x\"",
        "\"\u{1}\"",
        "01",
        "1.",
        ".5",
        "+1",
        "0x1",
        "// 1\n1",
        "\u{feff}1",
        "   ",
        "\0",
    ];
    let mut rows = Vec::new();
    for text in texts {
        rows.push(post("bad/j").json().body(text).is(400).blames("body"));
    }
    for text in ["{", "[1,]", "1 2", " "] {
        rows.push(put("bad/none").json().body(text).is(400).blames("body"));
    }
    let deep = "[".repeat(20_000) + &"]".repeat(20_000);
    rows.extend([
        post("bad/j").json().body("[]").is(400).blames("body"),
        post("bad/j").json().body(" [ ] ").is(400).blames("body"),
        post("bad/j").json().closing().body("[]").is(400).blames("body"),
        post("bad/j").json().body(vec![b'"', 0xFF, b'"']).is(400).blames("body"),
        post("bad/j").json().body(vec![0x31, 0xC3]).is(400).blames("body"),
        post("bad/j").json().body(deep).is(400).blames("body"),
        post("bad/j").json().producer("v", 0, 0).body("{").is(400).blames("body").lacks("producer-seq"),
    ]);
    rows
}

fn sequences() -> Vec<Case> {
    let append = |seq: &str| post("bad/t").text().with("stream-seq", seq).body("x");
    vec![
        append("").is(400).blames("Stream-Seq"),
        append(&"n".repeat(257)).is(400).blames("Stream-Seq"),
        append("m").is(409).blames("Stream-Seq"),
        append("l").is(409).blames("Stream-Seq"),
        append("M").is(409).blames("Stream-Seq"),
        append("10").is(409).blames("Stream-Seq"),
    ]
}

fn producers() -> Vec<Case> {
    let append = || post("bad/t").text().body("x");
    let whole = |id: &str, epoch: &str, seq: &str| append().producer(id, epoch, seq);
    let mut rows = vec![
        append().with("producer-id", "w").is(400).blames("Producer-Epoch"),
        append().with("producer-epoch", 5).is(400).blames("Producer-Id"),
        append().with("producer-seq", 1).is(400).blames("Producer-Id"),
        append().with("producer-id", "w").with("producer-epoch", 5).is(400).blames("Producer-Seq"),
        append().with("producer-id", "w").with("producer-seq", 1).is(400).blames("Producer-Epoch"),
        append().with("producer-epoch", 5).with("producer-seq", 1).is(400).blames("Producer-Id"),
        whole("", "5", "1").is(400).blames("Producer-Id"),
        whole(&"w".repeat(257), "5", "1").is(400).blames("Producer-Id"),
        whole("w", "4", "0").is(403).blames("Producer-Epoch").has("producer-epoch", 5),
        whole("w", "0", "1").is(403).blames("Producer-Epoch").has("producer-epoch", 5),
        whole("w", "6", "1").is(400).blames("Producer-Seq"),
        whole("w", "5", "2")
            .is(409)
            .blames("Producer-Seq")
            .has("producer-expected-seq", 1)
            .has("producer-received-seq", 2),
        whole("new", "0", "7")
            .is(409)
            .blames("Producer-Seq")
            .has("producer-expected-seq", 0)
            .has("producer-received-seq", 7),
    ];
    for wrong in
        ["", "-1", "+1", "1.0", "1e3", "0x1", "one", "1 2", "9007199254740992", "99999999999999999999"]
    {
        rows.push(whole("w", wrong, "0").is(400).blames("Producer-Epoch"));
        rows.push(whole("w", "5", wrong).is(400).blames("Producer-Seq"));
    }
    rows
}

fn offsets() -> Vec<Case> {
    let zero = offset(0);
    let texts = [
        "",
        "0",
        "1",
        "-0",
        "-2",
        "--1",
        "+1",
        "NOW",
        "Now",
        "abc",
        "1e3",
        "0x10",
        "1.5",
        "..",
        "../x",
        "%00",
        "%0A",
        "%20",
        "1,2",
        "1/2",
        "%2F",
        "%FF",
        "%zz",
        "0000000000000000_0000000000000000",
        "18446744073709551616",
    ];
    let mut rows = Vec::new();
    for text in texts {
        rows.push(get(&format!("bad/t?offset={text}")).is(400).blames("offset"));
    }
    for text in ["", "0", "NOW", "%00", "1,2"] {
        for live in ["long-poll", "sse"] {
            rows.push(get(&format!("bad/t?live={live}&offset={text}")).is(400).blames("offset"));
        }
    }
    rows.extend([
        get("bad/t?offset").is(400).blames("offset"),
        get("bad/t?offset=-1&offset=-1").is(400).blames("offset"),
        get("bad/t?offset=-1&%6Fffset=now").is(400).blames("offset"),
        get(&format!("bad/t?offset={zero}0")).is(400).blames("offset"),
        get(&format!("bad/t?offset={}", &zero[1..])).is(400).blames("offset"),
        // Not wrong, and not there: the tail.
        get(&format!("bad/t?offset={}", offset(u64::MAX))).is(200).gives("").next(11),
    ]);
    rows
}

fn modes() -> Vec<Case> {
    let mut rows: Vec<Case> = ["", "true", "SSE", "longpoll", "long-poll,sse", "websocket", "0"]
        .map(|live| get(&format!("bad/t?offset=-1&live={live}")).is(400).blames("live"))
        .into();
    rows.extend([
        get("bad/t?live=long-poll").is(400).blames("offset"),
        get("bad/t?live=sse").is(400).blames("offset"),
        get("bad/t?live=sse&live=sse&offset=-1").is(400).blames("live"),
        get("bad/t?live=long-poll&offset=-1&cursor=1&cursor=2").is(400).blames("cursor"),
        get("bad/none?live=long-poll&offset=-1").is(404).refused(),
        get("bad/none?live=sse&offset=-1").is(404).refused(),
        get("bad/none?live=sse&offset=now").is(404).refused(),
        // A cursor that is none is as absent.
        get("bad/t?live=long-poll&offset=-1&cursor=x").is(200).some("stream-cursor").gives("0123456789x"),
    ]);
    rows
}

/// Ranges and conditions that streams do not know, or that say nothing, leave the answer as it is.
fn conditions() -> Vec<Case> {
    let read = || get("bad/t").is(200).gives("0123456789x").lacks("content-range").some("etag");
    let mut rows = Vec::new();
    for range in ["bytes=0-1", "bytes=5-", "bytes=-1", "bytes=9-1", "bytes=99-", "lines=1-2", "x"] {
        rows.push(read().with("range", range));
    }
    for tag in ["", "x", "\"x\"", "W/\"x\"", "\"x", "\"a\", \"b\"", ",", "\"*\""] {
        rows.push(read().with("if-none-match", tag));
    }
    rows.extend([
        read().with("if-match", "\"x\""),
        read().with("if-range", "\"x\"").with("range", "bytes=0-1"),
        read().with("if-modified-since", "Thu, 01 Jan 2099 00:00:00 GMT"),
        read().with("if-unmodified-since", "never"),
        read().with("accept", "image/png"),
        read().with("accept-encoding", "nothing;q=2"),
        get("bad/t").with("if-none-match", "*").is(304).gives("").lacks("content-type").some("etag"),
        get("bad/t").with("if-none-match", "\"x\", *").is(200),
        get("bad/t?offset=now").with("if-none-match", "*").is(200).gives("").lacks("etag"),
        get("bad/none").with("if-none-match", "*").is(404).refused(),
    ]);
    rows
}

fn forks() -> Vec<Case> {
    let (from, at, sub) = ("stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset");
    let fork = || put("bad/none").text().with(from, "/v1/stream/bad/t");
    let of_json = || put("bad/none").json().with(from, "/v1/stream/bad/j");
    let mut rows = vec![
        put("bad/none").text().with(at, offset(1)).is(400).blames("Stream-Fork-Offset"),
        put("bad/none").text().with(sub, 1).is(400).blames("Stream-Fork-Sub-Offset"),
        put("bad/none").text().with(from, "/v1/stream/bad/nowhere").is(404),
        put("bad/none").json().with(from, "/v1/stream/bad/t").is(409),
        put("bad/closed").text().with(from, "/v1/stream/bad/t").is(409),
        fork().with(at, offset(12)).is(400).blames("Stream-Fork-Offset"),
        fork().with(at, offset(u64::MAX)).is(400).blames("Stream-Fork-Offset"),
        fork().with(sub, 1).is(400).blames("Stream-Fork-Sub-Offset"),
        fork().with(at, offset(10)).with(sub, 2).is(400).blames("Stream-Fork-Sub-Offset"),
        fork().with(at, offset(0)).with(sub, u64::MAX).is(400).blames("Stream-Fork-Sub-Offset"),
        of_json().with(at, offset(4)).is(400).blames("Stream-Fork-Offset"),
        of_json().with(at, offset(2)).with(sub, 2).is(400).blames("Stream-Fork-Sub-Offset"),
        fork().with("stream-ttl", "x").is(400).blames("Stream-TTL"),
    ];
    for path in
        ["", "bad/t", "/bad/t", "/v1/stream/", "/v2/stream/bad/t", "/v1/stream/bad/../t", "/v1/stream/%"]
    {
        rows.push(put("bad/none").text().with(from, path).is(400).blames("Stream-Forked-From"));
    }
    for wrong in ["", "0", "NOW", "abc", "1,2", "99999999999999999999"] {
        rows.push(fork().with(at, wrong).is(400).blames("Stream-Fork-Offset"));
    }
    for wrong in ["", "-1", "+1", "01", "1.0", "1e3", "x", "99999999999999999999"] {
        let row = fork().with(at, offset(0)).with(sub, wrong);
        rows.push(row.is(400).blames("Stream-Fork-Sub-Offset"));
    }
    rows
}

fn methods() -> Vec<Case> {
    ["PATCH", "TRACE", "PROPFIND", "QUERY", "get", "put", "GETX"]
        .map(|method| request(method, "bad/t").is(405).refused().has("allow", ALLOW))
        .into()
}

const ALLOW: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS";

fn places() -> Vec<Case> {
    let control = "{\"error\":{\"code\":\"NOT_FOUND\",";
    let mut rows = vec![
        get("bad/none").is(404).refused(),
        get("bad/none?offset=now").is(404).refused(),
        post("bad/none").text().body("x").is(404).refused(),
        post("bad/none").closing().is(404).refused(),
        delete("bad/none").is(404).refused(),
        head("bad/none").is(404).gives("").has("content-type", "application/problem+json"),
        get("/").is(404).refused(),
        get("/v1").is(404).refused(),
        get("/v1/stream").is(404).refused(),
        get("/v1/streamx/bad").is(404).refused(),
        get("/v2/stream/bad/t").is(404).refused(),
        put(&format!("bad/{}", "x".repeat(9 << 10))).text().is(414).blames("request target"),
        get(&format!("bad/t?{}", "x".repeat(9 << 10))).is(414).blames("request target"),
        get("__ds").is(404).names(control).has("content-type", "application/json"),
        get("__ds/subscriptions/a").is(404).names(control).has("content-type", "application/json"),
        put("__ds/subscriptions/a").json().body("{}").is(404).names(control),
        delete("%5F_ds/x").is(404).names(control),
    ];
    let long = "x".repeat(1025);
    for name in [
        "", "a/", "a//b", "/a", ".", "a/..", "a/./b", "%2E%2E", "a%00", "a%0D%0A", "a%7F", "a%", "a%2",
        "a%zz", "a%FF",
    ]
    .into_iter()
    .chain([long.as_str()])
    {
        rows.push(put(&format!("/v1/stream/{name}")).text().is(400).blames("stream name"));
    }
    rows
}
