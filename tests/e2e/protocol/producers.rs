//! Idempotent producers.

use super::case::{Case, get, post, put};

pub(super) fn table() -> Vec<Case> {
    let max = (1_u64 << 53) - 1;
    let append =
        |epoch: u64, seq: u64, body: &'static str| post("p/a").text().producer("w", epoch, seq).body(body);
    let wrong = |epoch: &str, seq: &str| post("p/a").text().producer("w", epoch, seq).body("x").is(400);
    vec![
        put("p/a").text().is(201),
        append(0, 1, "x").is(409).has("producer-expected-seq", 0).has("producer-received-seq", 1),
        append(0, 0, "a").is(200).next(1).has("producer-epoch", 0).has("producer-seq", 0),
        append(0, 0, "other").is(204).has("producer-epoch", 0).has("producer-seq", 0),
        append(0, 1, "b").is(200).next(2).has("producer-seq", 1),
        append(0, 2, "c").is(200).next(3).has("producer-seq", 2),
        append(0, 0, "a").is(204).has("producer-seq", 2),
        append(0, 5, "x").is(409).has("producer-expected-seq", 3).has("producer-received-seq", 5),
        append(1, 1, "x").is(400).names("Producer-Seq"),
        append(1, 0, "d").is(200).next(4).has("producer-epoch", 1).has("producer-seq", 0),
        append(0, 3, "x").is(403).has("producer-epoch", 1),
        post("p/a").text().producer("v", 7, 0).body("e").is(200).next(5).has("producer-epoch", 7),
        post("p/a").text().producer("u", max, 0).body("f").is(200).next(6),
        post("p/a").json().producer("w", 1, 1).body("1").is(409).lacks("producer-expected-seq"),
        post("p/a").text().producer("w", 1, 1).is(400),
        append(1, 1, "g").is(200).next(7),
        get("p/a").is(200).gives("abcdefg"),
        post("p/a").text().with("producer-id", "w").body("x").is(400).names("Producer-Epoch"),
        post("p/a")
            .text()
            .with("producer-epoch", 0)
            .with("producer-seq", 0)
            .body("x")
            .is(400)
            .names("Producer-Id"),
        post("p/a")
            .text()
            .with("producer-id", "w")
            .with("producer-epoch", 0)
            .body("x")
            .is(400)
            .names("Producer-Seq"),
        post("p/a").text().producer("", 0, 0).body("x").is(400).names("Producer-Id"),
        post("p/a").text().producer(&"i".repeat(257), 0, 0).body("x").is(400).names("Producer-Id"),
        wrong("-1", "0").names("Producer-Epoch"),
        wrong("1.0", "0").names("Producer-Epoch"),
        wrong("", "0").names("Producer-Epoch"),
        wrong("9007199254740992", "0").names("Producer-Epoch"),
        wrong("0", "x").names("Producer-Seq"),
        wrong("0", "9007199254740992").names("Producer-Seq"),
        wrong("0", "99999999999999999999999999").names("Producer-Seq"),
        put("p/json").json().is(201),
        post("p/json").json().producer("w", 0, 0).body("[]").is(400),
        post("p/json").json().producer("w", 0, 0).body("{").is(400),
        post("p/json").json().producer("w", 0, 0).body("[1,2,3]").is(200).next(3),
        post("p/json").json().producer("w", 0, 1).body("4").is(200).next(4),
        put("p/seq").text().is(201),
        post("p/seq").text().producer("w", 0, 0).with("stream-seq", "5").body("a").is(200),
        post("p/seq").text().producer("w", 0, 0).with("stream-seq", "5").body("a").is(204),
        post("p/seq")
            .text()
            .producer("w", 0, 1)
            .with("stream-seq", "5")
            .body("b")
            .is(409)
            .names("Stream-Seq"),
        post("p/seq").text().producer("w", 0, 1).with("stream-seq", "6").body("b").is(200).next(2),
        post("p/nowhere").text().producer("w", 0, 0).body("a").is(404),
    ]
}
