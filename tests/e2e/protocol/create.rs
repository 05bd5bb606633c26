//! PUT, HEAD and DELETE.

use super::case::{Case, delete, get, head, post, put, request};

pub(super) fn table() -> Vec<Case> {
    let bad_ttl = |ttl: &str| put("c/ttl-bad").text().with("stream-ttl", ttl).is(400).names("Stream-TTL");
    let mut rows = vec![
        put("c/a")
            .text()
            .is(201)
            .next(0)
            .has("content-type", "text/plain")
            .lacks("stream-closed")
            .some("location"),
        put("c/a").text().is(200).next(0).has("content-type", "text/plain").lacks("location"),
        put("c/a").with("content-type", "TEXT/Plain").is(200).next(0),
        put("c/a").json().is(409),
        put("c/a").is(409),
        put("c/a").text().closing().is(409),
        put("c/a").text().with("stream-ttl", "60").is(409),
        put("c/a").text().body("ignored").is(200).next(0),
        head("c/a")
            .is(200)
            .next(0)
            .has("content-type", "text/plain")
            .has("cache-control", "no-store")
            .gives(""),
        put("c/default").is(201).has("content-type", "application/octet-stream"),
        put("c/first").text().body("hello").is(201).next(5),
        get("c/first").is(200).next(5).gives("hello"),
        put("c/closed").text().closing().is(201).next(0).has("stream-closed", "true"),
        put("c/closed").text().closing().is(200).has("stream-closed", "true"),
        put("c/closed").text().is(409),
        head("c/closed").is(200).has("stream-closed", "true"),
        put("c/closed-first").text().closing().body("all").is(201).next(3).has("stream-closed", "true"),
        get("c/closed-first").is(200).gives("all").has("stream-closed", "true"),
        put("c/not-closed").text().with("stream-closed", "yes").is(201).lacks("stream-closed"),
        put("c/CLOSED").text().with("stream-closed", "TRUE").is(201).has("stream-closed", "true"),
        put("c/json").json().is(201).next(0).has("content-type", "application/json"),
        put("c/json-empty").json().body("[]").is(201).next(0),
        put("c/json-one").json().body("{\"a\":1}").is(201).next(1),
        put("c/json-three").json().body("[1,[2],3]").is(201).next(3),
        get("c/json-three").is(200).next(3).gives("[1,[2],3]"),
        put("c/json-bad").json().body("{").is(400),
        head("c/json-bad").is(404).gives(""),
        put("c/json-two").json().body("1 2").is(400),
        put("c/ttl").text().with("stream-ttl", "3600").is(201),
        put("c/ttl").text().with("stream-ttl", "3600").is(200),
        put("c/ttl").text().with("stream-ttl", "3601").is(409),
        put("c/ttl").text().is(409),
        head("c/ttl").is(200).has("stream-ttl", "3600").lacks("stream-expires-at"),
        put("c/ttl-0").text().with("stream-ttl", "0").is(201),
        head("c/ttl-0").is(404),
        put("c/expires").text().with("stream-expires-at", "2099-01-01T00:00:00Z").is(201),
        put("c/expires").text().with("stream-expires-at", "2099-01-01T01:00:00+01:00").is(200),
        put("c/expires").text().with("stream-expires-at", "2099-01-01T00:00:01Z").is(409),
        head("c/expires").is(200).has("stream-expires-at", "2099-01-01T00:00:00.000Z").lacks("stream-ttl"),
        put("c/expired").text().with("stream-expires-at", "1999-01-01T00:00:00Z").body("x").is(201),
        get("c/expired").is(404),
        put("c/expires-bad").text().with("stream-expires-at", "tomorrow").is(400).names("Stream-Expires-At"),
        put("c/expires-bad").text().with("stream-expires-at", "2099-01-01T00:00:00").is(400),
        put("c/both")
            .text()
            .with("stream-ttl", "60")
            .with("stream-expires-at", "2099-01-01T00:00:00Z")
            .is(400)
            .names("Stream-TTL"),
        put("c/type-bad").with("content-type", "nonsense").is(400).names("Content-Type"),
        put("c/type-twice").text().json().is(400).names("Content-Type"),
        put("c/large").text().body(vec![b'x'; 64 * 1024]).is(201).next(64 * 1024),
        put("c/too-large").text().body(vec![b'x'; 64 * 1024 + 1]).is(413),
        head("c/too-large").is(404),
        head("c/nowhere").is(404),
        delete("c/nowhere").is(404),
        delete("c/first").is(204),
        delete("c/first").is(404),
        get("c/first").is(404),
        head("c/first").is(404),
        post("c/first").text().body("x").is(404),
        put("c/first").json().body("[7]").is(201).next(1),
        get("c/first").is(200).gives("[7]"),
        request("PATCH", "c/a").is(405).some("allow"),
        request("OPTIONS", "c/a")
            .is(204)
            .some("access-control-allow-methods")
            .some("access-control-allow-headers"),
        request("OPTIONS", "c/nowhere").is(204),
        get("/v2/stream/c").is(404),
        get("/").is(404),
    ];
    rows.extend(["-1", "+1", "01", "1.5", "1e3", "abc", "", "99999999999999999999999"].map(bad_ttl));
    rows.push(head("c/ttl-bad").is(404));
    rows
}
