//! Closing: alone, with content, by a producer; and what a closed stream answers.

use super::case::{Case, get, head, post, put};

pub(super) fn table() -> Vec<Case> {
    vec![
        put("x/a").text().body("abc").is(201),
        post("x/a").closing().is(204).next(3).has("stream-closed", "true"),
        post("x/a").closing().is(204).next(3).has("stream-closed", "true"),
        post("x/a").json().closing().is(204).has("stream-closed", "true"),
        post("x/a").text().body("d").is(409).next(3).has("stream-closed", "true"),
        post("x/a").json().body("1").is(409).has("stream-closed", "true"),
        post("x/a").text().closing().body("d").is(409).has("stream-closed", "true"),
        post("x/a").text().with("stream-seq", "1").body("d").is(409).has("stream-closed", "true"),
        post("x/a").text().producer("w", 0, 0).body("d").is(409).has("stream-closed", "true"),
        head("x/a").is(200).next(3).has("stream-closed", "true"),
        get("x/a").is(200).gives("abc").has("stream-closed", "true").has("stream-up-to-date", "true"),
        get("x/a?offset=00000000000000000003").is(200).gives("").has("stream-closed", "true"),
        put("x/b").text().is(201),
        post("x/b").text().closing().body("end").is(204).next(3).has("stream-closed", "true"),
        get("x/b").is(200).gives("end").has("stream-closed", "true"),
        put("x/upper").text().is(201),
        post("x/upper").with("stream-closed", "TRUE").is(204).has("stream-closed", "true"),
        put("x/producer").text().is(201),
        post("x/producer").text().producer("w", 0, 0).body("a").is(200),
        post("x/producer")
            .text()
            .producer("w", 0, 1)
            .closing()
            .body("b")
            .is(200)
            .next(2)
            .has("stream-closed", "true"),
        post("x/producer")
            .text()
            .producer("w", 0, 1)
            .closing()
            .body("b")
            .is(204)
            .has("stream-closed", "true"),
        post("x/producer")
            .text()
            .producer("w", 0, 1)
            .closing()
            .body("other")
            .is(204)
            .has("stream-closed", "true"),
        post("x/producer").text().producer("w", 0, 0).body("a").is(409).has("stream-closed", "true"),
        post("x/producer").text().producer("w", 0, 2).body("c").is(409).has("stream-closed", "true"),
        post("x/producer").text().producer("v", 0, 0).body("c").is(409).has("stream-closed", "true"),
        get("x/producer").is(200).gives("ab").has("stream-closed", "true"),
        put("x/producer-only").text().is(201),
        post("x/producer-only").producer("w", 0, 0).closing().is(204).has("stream-closed", "true"),
        post("x/producer-only").producer("w", 0, 0).closing().is(204).has("stream-closed", "true"),
        put("x/json").json().is(201),
        post("x/json").json().closing().body("[]").is(400),
        post("x/json").json().closing().body("[1]").is(204).next(1).has("stream-closed", "true"),
        get("x/json").is(200).gives("[1]").has("stream-closed", "true"),
        post("x/nowhere").closing().is(404),
    ]
}
