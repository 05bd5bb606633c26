//! Long-poll and events, as far as one request at a time can show it.

use super::case::{Case, get, offset, post, put};

/// What a reader at the end of a closed stream of three bytes is told.
const END: &str = "event: control\ndata:{\"streamNextOffset\":\"00000000000000000003\",\"upToDate\":true,\
                   \"streamClosed\":true}\n\n";

pub(super) fn table() -> Vec<Case> {
    let poll = |from: &str| get(&format!("l/a?live=long-poll&offset={from}"));
    let events = |from: &str| get(&format!("l/a?live=sse&offset={from}"));
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
        get("l/a?live=sse").is(400).names("offset"),
        get("l/a?live=sse&offset=x").is(400).names("offset"),
        get("l/nowhere?live=sse&offset=now").is(404),
        events("now").is(200).has("content-type", "text/event-stream").gives(END).lacks("content-length"),
        events(&offset(3))
            .is(200)
            .gives(END)
            .has("cache-control", "no-cache, no-store")
            .lacks("stream-sse-data-encoding"),
        events(&offset(1)).is(200).gives(format!("event: data\ndata:bc\n\n{END}")).lacks("etag"),
        put("l/json").json().body("[1,2]").is(201),
        get(&format!("l/json?live=long-poll&offset={}", offset(1))).is(200).gives("[2]").next(2),
    ]
}
