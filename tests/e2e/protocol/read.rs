//! Catch-up: offsets right and wrong, caching.

use super::case::{Case, get, offset, put};

pub(super) fn table() -> Vec<Case> {
    let wrong = |query: &str| get(&format!("r/a?{query}")).is(400).names("offset");
    let mut rows = vec![
        put("r/empty").text().is(201),
        get("r/empty").is(200).next(0).gives("").has("stream-up-to-date", "true").lacks("stream-closed"),
        put("r/empty-json").json().is(201),
        get("r/empty-json").is(200).next(0).gives("[]"),
        put("r/a").text().body("0123456789").is(201),
        get("r/a").is(200).next(10).gives("0123456789").has("content-type", "text/plain").some("etag"),
        get("r/a?offset=-1").is(200).gives("0123456789"),
        get(&format!("r/a?offset={}", offset(0))).is(200).gives("0123456789"),
        get(&format!("r/a?offset={}", offset(4))).is(200).gives("456789").next(10),
        get(&format!("r/a?offset={}", offset(10)))
            .is(200)
            .gives("")
            .next(10)
            .has("stream-up-to-date", "true"),
        get(&format!("r/a?offset={}", offset(11))).is(200).gives("").next(10),
        get(&format!("r/a?offset={}", offset(u64::MAX))).is(200).gives("").next(10),
        get("r/a?offset=now").is(200).gives("").next(10).has("cache-control", "no-store").lacks("etag"),
        get("r/a?offset=-1&foo=bar").is(200).gives("0123456789"),
        get("r/a?foo").is(200),
        get("r/nowhere").is(404),
        get("r/nowhere?offset=now").is(404),
        get(&format!("r/nowhere?offset={}", offset(4))).is(404),
        get("r/a").with("if-none-match", "*").is(304).gives(""),
        get("r/a").with("if-none-match", "\"nothing\"").is(200),
    ];
    let texts = ["", "0", "NOW", "-2", "abc", "1e3", "..", "%00", "%0A", "1,2", "1/2", "%20", "0x10", "+1"];
    rows.extend(texts.map(|t| wrong(&format!("offset={t}"))));
    rows.push(wrong("offset"));
    rows.push(wrong(&format!("offset={}&offset={}", offset(1), offset(2))));
    rows.push(wrong(&format!("offset={}0", offset(1))));
    rows.push(wrong("offset=99999999999999999999"));
    rows
}
