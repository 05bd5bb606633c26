//! POST without producers: content, types, `Stream-Seq`.

use super::case::{Case, get, head, post, put};

pub(super) fn table() -> Vec<Case> {
    vec![
        put("w/t").text().is(201),
        post("w/t").text().body("one").is(204).next(3).lacks("stream-closed").gives(""),
        post("w/t").text().body("two").is(204).next(6),
        post("w/t").with("content-type", "text/plain; charset=utf-8").body("!").is(204).next(7),
        post("w/t").with("content-type", "TEXT/PLAIN").body("!").is(204).next(8),
        get("w/t").is(200).gives("onetwo!!"),
        post("w/t").body("x").is(400).names("Content-Type"),
        post("w/t").with("content-type", "x").body("x").is(400).names("Content-Type"),
        post("w/t").json().body("1").is(409).lacks("stream-closed"),
        post("w/t").text().is(400).names("body"),
        post("w/t").text().with("stream-closed", "false").is(400),
        post("w/t").text().body(vec![b'x'; 64 * 1024 + 1]).is(413),
        post("w/t").text().with("content-encoding", "gzip").body("x").is(415),
        post("w/nowhere").text().body("x").is(404),
        head("w/t").is(200).next(8),
        put("w/bytes").is(201),
        post("w/bytes")
            .with("content-type", "application/octet-stream")
            .body(vec![0u8, 255, 10, 13, 0])
            .is(204)
            .next(5),
        get("w/bytes").is(200).gives(vec![0u8, 255, 10, 13, 0]),
        put("w/json").json().is(201),
        post("w/json").json().body("{\"n\": 12345678901234567890}").is(204).next(1),
        post("w/json").json().body(" [ 1.0e2 , \"a\\u0041\" , [ ] ] ").is(204).next(4),
        post("w/json").with("content-type", "application/json; charset=utf-8").body("null").is(204).next(5),
        get("w/json").is(200).gives("[{\"n\": 12345678901234567890},1.0e2,\"a\\u0041\",[ ],null]"),
        get("w/json?offset=00000000000000000004").is(200).gives("[null]").next(5),
        post("w/json").json().body("[]").is(400).names("body"),
        post("w/json").json().body("  ").is(400),
        post("w/json").json().body("{").is(400),
        post("w/json").json().body("1 2").is(400),
        post("w/json").json().body("[1,]").is(400),
        post("w/json").json().body("NaN").is(400),
        post("w/json").json().body(vec![b'"', 0xFF, b'"']).is(400),
        post("w/json").json().body("[".repeat(30_000)).is(400),
        post("w/json").text().body("1").is(409),
        head("w/json").is(200).next(5),
        put("w/vendor").with("content-type", "application/vnd.x+json").is(201),
        post("w/vendor").with("content-type", "application/vnd.x+json").body("[1]").is(204).next(3),
        put("w/seq").text().is(201),
        post("w/seq").text().with("stream-seq", "2").body("a").is(204).next(1),
        post("w/seq").text().with("stream-seq", "10").body("b").is(409).names("Stream-Seq"),
        post("w/seq").text().with("stream-seq", "2").body("b").is(409),
        post("w/seq").text().body("b").is(204).next(2),
        post("w/seq").text().with("stream-seq", "2a").body("c").is(204).next(3),
        post("w/seq").text().with("stream-seq", "").body("c").is(400).names("Stream-Seq"),
        post("w/seq").text().with("stream-seq", "x".repeat(257)).body("c").is(400).names("Stream-Seq"),
        post("w/seq").text().with("stream-seq", "3").with("stream-seq", "4").body("c").is(400),
        get("w/seq").is(200).gives("abc"),
    ]
}
