//! Long-poll, as far as one request at a time can show it.

use super::case::{Case, get, offset, post, put};

pub(super) fn table() -> Vec<Case> {
    let poll = |from: &str| get(&format!("l/a?live=long-poll&offset={from}"));
    vec![
        put("l/a").text().body("abc").is(201),
        get("l/a?live=long-poll").is(400).names("offset"),
        get("l/a?live=long-poll&offset=").is(400).names("offset"),
        get("l/a?live=other&offset=-1").is(400).names("live"),
        get("l/a?live=long-poll&live=long-poll&offset=-1").is(400).names("live"),
        get("l/nowhere?live=long-poll&offset=-1").is(404),
        get("l/nowhere?live=long-poll&offset=now").is(404),
        poll("-1").is(200).gives("abc").next(3).some("stream-cursor").has("stream-up-to-date", "true"),
        poll(&offset(1)).is(200).gives("bc").next(3).some("stream-cursor"),
        poll(&offset(3)).is(204).next(3).gives("").some("stream-cursor").has("stream-up-to-date", "true"),
        poll(&offset(9)).is(204).next(3).some("stream-cursor"),
        poll("now").is(204).next(3).some("stream-cursor"),
        get(&format!("l/a?live=long-poll&offset={}&cursor=5", offset(1))).is(200).some("stream-cursor"),
        post("l/a").closing().is(204),
        poll(&offset(1)).is(200).gives("bc").has("stream-closed", "true"),
        poll(&offset(3)).is(204).next(3).has("stream-closed", "true").has("stream-up-to-date", "true"),
        poll("now").is(204).has("stream-closed", "true"),
        put("l/json").json().body("[1,2]").is(201),
        get(&format!("l/json?live=long-poll&offset={}", offset(1))).is(200).gives("[2]").next(2),
    ]
}
