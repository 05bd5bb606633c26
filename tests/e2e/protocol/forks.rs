//! Forks: what a PUT may say of one, what it begins with, and what deleting does along a chain.

use super::case::{Case, delete, get, head, offset, post, put};

const FROM: &str = "stream-forked-from";
const OFFSET: &str = "stream-fork-offset";
const SUB: &str = "stream-fork-sub-offset";

fn fork(name: &str, source: &str) -> Case {
    put(name).with(FROM, format!("/v1/stream/{source}"))
}

pub(super) fn table() -> Vec<Case> {
    [created(), json(), refused(), repeated(), apart(), deleted()].concat()
}

fn created() -> Vec<Case> {
    vec![
        put("f/s").text().body("hello").is(201),
        post("f/s").text().body(" world").is(204).next(11),
        fork("f/tail", "f/s").is(201).next(11).has("content-type", "text/plain").some("location"),
        get("f/tail").is(200).gives("hello world").next(11).has("stream-up-to-date", "true"),
        head("f/tail").is(200).next(11).lacks("stream-forked-from").lacks("stream-fork-offset"),
        fork("f/5", "f/s").text().with(OFFSET, offset(5)).is(201).next(5),
        get("f/5").is(200).gives("hello").next(5),
        fork("f/0", "f/s").with(OFFSET, offset(0)).is(201).next(0),
        get("f/0").is(200).gives("").next(0).has("stream-up-to-date", "true"),
        fork("f/zero", "f/s").with(OFFSET, "0000000000000000_0000000000000000").is(201).next(0),
        fork("f/5+3", "f/s").with(OFFSET, offset(5)).with(SUB, 3).is(201).next(8),
        get("f/5+3").is(200).gives("hello wo"),
        fork("f/0+11", "f/s").with(OFFSET, offset(0)).with(SUB, 11).is(201).next(11),
        fork("f/5+0", "f/s").with(OFFSET, offset(5)).with(SUB, 0).is(201).next(5),
        fork("f/sub-0", "f/s").with(SUB, 0).is(201).next(11),
        // Inherited offsets are the source's; its own go on from there.
        post("f/5").text().body("!").is(204).next(6),
        get("f/5").is(200).gives("hello!").next(6),
        get(&format!("f/5?offset={}", offset(3))).is(200).gives("lo!").next(6),
        get(&format!("f/5?offset={}", offset(5))).is(200).gives("!").next(6),
        get("f/s").is(200).gives("hello world"),
        // First bytes come after what is inherited.
        fork("f/first", "f/s").with(OFFSET, offset(5)).body("XY").is(201).next(7),
        get("f/first").is(200).gives("helloXY"),
        fork("f/first", "f/s").with(OFFSET, offset(5)).body("ignored").is(200).next(7),
        fork("f/only", "f/s")
            .with(OFFSET, offset(2))
            .closing()
            .body("y")
            .is(201)
            .next(3)
            .has("stream-closed", "true"),
        get("f/only").is(200).gives("hey").has("stream-closed", "true"),
        fork("f/shut", "f/s").closing().is(201).has("stream-closed", "true"),
        post("f/shut").text().body("x").is(409),
        // A fork of a fork, at its border, before and after it.
        fork("f/5/6", "f/5").is(201).next(6),
        get("f/5/6").is(200).gives("hello!"),
        fork("f/5/4", "f/5").with(OFFSET, offset(4)).is(201),
        get("f/5/4").is(200).gives("hell"),
        fork("f/5/5", "f/5").with(OFFSET, offset(4)).with(SUB, 1).is(201),
        post("f/5/5").text().body("?").is(204).next(6),
        get("f/5/5").is(200).gives("hello?"),
        // Of an empty stream, of a closed one.
        put("f/empty").text().is(201),
        fork("f/of-empty", "f/empty").is(201).next(0),
        fork("f/of-empty-1", "f/empty").with(OFFSET, offset(0)).with(SUB, 1).is(400).names(SUB_NAME),
        put("f/closed").text().closing().body("end").is(201),
        fork("f/of-closed", "f/closed").is(201).next(3).lacks("stream-closed"),
        post("f/of-closed").text().body("!").is(204).next(4),
        get("f/of-closed").is(200).gives("end!").lacks("stream-closed"),
        // A percent sign in the source's path is that of a URL.
        put("f/a%20b").text().body("x").is(201),
        fork("f/of-a-b", "f/a%20b").is(201).next(1),
    ]
}

const SUB_NAME: &str = "Stream-Fork-Sub-Offset";
const OFFSET_NAME: &str = "Stream-Fork-Offset";
const FROM_NAME: &str = "Stream-Forked-From";

fn json() -> Vec<Case> {
    vec![
        put("f/j").json().body(r#"[{"a":1},{"b":1.0e2},[3]]"#).is(201).next(3),
        fork("f/j2", "f/j")
            .with(OFFSET, offset(0))
            .with(SUB, 2)
            .is(201)
            .next(2)
            .has("content-type", "application/json"),
        get("f/j2").is(200).gives(r#"[{"a":1},{"b":1.0e2}]"#),
        post("f/j2").json().body("12345678901234567890").is(204).next(3),
        get("f/j2").is(200).gives(r#"[{"a":1},{"b":1.0e2},12345678901234567890]"#),
        get(&format!("f/j2?offset={}", offset(1))).is(200).gives(r#"[{"b":1.0e2},12345678901234567890]"#),
        fork("f/j4", "f/j").with(OFFSET, offset(1)).with(SUB, 3).is(400).names(SUB_NAME),
        fork("f/j1", "f/j").with(OFFSET, offset(1)).body("[7,8]").is(201).next(3),
        get("f/j1").is(200).gives(r#"[{"a":1},7,8]"#),
        fork("f/j0", "f/j").with(OFFSET, offset(1)).body("[]").is(201).next(1),
        fork("f/j-bad", "f/j").body("{").is(400).names("body"),
        head("f/j-bad").is(404),
    ]
}

fn refused() -> Vec<Case> {
    let mut rows = vec![
        fork("f/n", "f/nowhere").is(404).names(FROM_NAME),
        fork("f/n", "f/nowhere").text().body("x").is(404).names(FROM_NAME),
        put("f/n").with(FROM, "f/s").is(400).names(FROM_NAME),
        put("f/n").with(FROM, "/v1/stream/").is(400).names(FROM_NAME),
        put("f/n").with(FROM, "http://h/v1/stream/f/s").is(400).names(FROM_NAME),
        put("f/n").with(FROM, "/v1/stream/__ds/x").is(400).names(FROM_NAME),
        fork("f/n", "f/s").with(FROM, "/v1/stream/f/s").is(400).names(FROM_NAME),
        fork("f/n", "f/s").json().is(409).names("Content-Type"),
        fork("f/n", "f/s").with(OFFSET, offset(12)).is(400).names(OFFSET_NAME),
        fork("f/n", "f/s").with(OFFSET, offset(11)).with(SUB, 1).is(400).names(SUB_NAME),
        fork("f/n", "f/s").with(OFFSET, offset(1)).with(SUB, u64::MAX).is(400).names(SUB_NAME),
        fork("f/n", "f/s").with(SUB, 1).is(400).names(SUB_NAME),
        put("f/n").text().with(OFFSET, offset(0)).is(400).names(OFFSET_NAME),
        put("f/n").text().with(SUB, 0).is(400).names(SUB_NAME),
        fork("f/n", "f/s").with("stream-ttl", "x").is(400).names("Stream-TTL"),
    ];
    let bad_offset = |text: &str| fork("f/n", "f/s").with(OFFSET, text).is(400).names(OFFSET_NAME);
    rows.extend(["", "5", "-1", "now", "x", "9999999999999999_9999999999999999"].map(bad_offset));
    let bad_sub =
        |text: &str| fork("f/n", "f/s").with(OFFSET, offset(0)).with(SUB, text).is(400).names(SUB_NAME);
    rows.extend(["", "-1", "+1", "05", "1.5", "abc"].map(bad_sub));
    rows.push(head("f/n").is(404));
    rows
}

fn repeated() -> Vec<Case> {
    vec![
        put("r/s").text().body("hello").is(201),
        put("r/t").text().body("hello").is(201),
        fork("r/f", "r/s").with(OFFSET, offset(2)).with(SUB, 1).is(201),
        fork("r/f", "r/s").with(OFFSET, offset(2)).with(SUB, 1).is(200).lacks("location"),
        // The same point, said otherwise; and not said at all.
        fork("r/f", "r/s").with(OFFSET, offset(3)).is(200),
        fork("r/f", "r/s").text().is(200),
        fork("r/f", "r/s").with(OFFSET, offset(2)).is(409),
        fork("r/f", "r/s").with(OFFSET, offset(2)).with(SUB, 2).is(409),
        fork("r/f", "r/t").with(OFFSET, offset(3)).is(409),
        fork("r/f", "r/nowhere").is(409),
        fork("r/f", "r/s").json().is(409),
        fork("r/f", "r/s").closing().is(409),
        fork("r/f", "r/s").with("stream-ttl", 60).is(409),
        put("r/f").text().is(409),
        fork("r/t", "r/s").is(409),
        fork("r/s", "r/s").is(409),
        // A repeat finds its fork although the source has gone on, or is gone.
        post("r/s").text().body("!").is(204),
        fork("r/f", "r/s").is(200),
        delete("r/s").is(204),
        fork("r/f", "r/s").with(OFFSET, offset(3)).is(200),
        fork("r/f", "r/s").body("x").is(200),
        fork("r/f", "r/s").with(OFFSET, offset(4)).is(409),
        fork("r/g", "r/s").is(409).names(FROM_NAME),
    ]
}

/// Source and fork have nothing to do with each other any more.
fn apart() -> Vec<Case> {
    vec![
        put("a/s").text().is(201),
        post("a/s").text().producer("p", 3, 0).body("x").is(200),
        post("a/s").text().with("stream-seq", "9").body("y").is(204),
        fork("a/f", "a/s").is(201).next(2),
        post("a/f").text().producer("p", 0, 0).body("x").is(200).next(3),
        post("a/f").text().producer("p", 0, 0).body("x").is(204).next(3),
        post("a/f").text().with("stream-seq", "1").body("y").is(204).next(4),
        post("a/s").text().producer("p", 3, 0).body("x").is(204).next(2),
        post("a/s").closing().is(204),
        post("a/f").text().body("z").is(204).next(5),
        post("a/f").closing().is(204),
        get("a/f").is(200).gives("xyxyz").has("stream-closed", "true"),
        fork("a/ttl", "a/s").with("stream-ttl", 60).is(201),
        head("a/ttl").is(200).has("stream-ttl", 60),
        fork("a/ttl/f", "a/ttl").is(201),
        head("a/ttl/f").is(200).has("stream-ttl", 60),
        fork("a/ttl/f", "a/ttl").with("stream-ttl", 60).is(200),
        fork("a/at", "a/ttl").with("stream-expires-at", "2099-01-01T00:00:00Z").is(201),
        fork("a/at/f", "a/at").is(201),
        head("a/at/f").is(200).has("stream-expires-at", "2099-01-01T00:00:00.000Z").lacks("stream-ttl"),
    ]
}

fn deleted() -> Vec<Case> {
    let mut rows = vec![
        put("d/0").text().body("A").is(201),
        fork("d/1", "d/0").body("B").is(201),
        fork("d/2", "d/1").body("C").is(201),
        fork("d/x", "d/0").is(201),
        delete("d/x").is(204),
        get("d/x").is(404),
        get("d/0").is(200).gives("A"),
        delete("d/1").is(204),
    ];
    for path in ["d/1", "d/1?offset=-1&live=long-poll", "d/1?offset=now"] {
        rows.push(get(path).is(410));
    }
    rows.extend([
        head("d/1").is(410),
        post("d/1").text().body("x").is(410),
        delete("d/1").is(410),
        put("d/1").text().is(409),
        fork("d/1", "d/0").is(409),
        fork("d/y", "d/1").is(409).names(FROM_NAME),
        get("d/2").is(200).gives("ABC"),
        post("d/2").text().body("D").is(204).next(4),
        get("d/0").is(200).gives("A"),
        delete("d/0").is(204),
        get("d/0").is(410),
        get("d/2").is(200).gives("ABCD"),
        delete("d/2").is(204),
        head("d/2").is(404),
        head("d/1").is(404),
        head("d/0").is(404),
        put("d/0").text().body("anew").is(201),
        get("d/0").is(200).gives("anew"),
        // What was forked in vain keeps nothing.
        fork("d/z", "d/0").json().is(409),
        delete("d/0").is(204),
        head("d/0").is(404),
    ]);
    rows
}
