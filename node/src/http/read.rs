//! GET (catch-up), HEAD and DELETE.
//!
//! Invariant: a chunk's ETag changes whenever its bytes or what its headers claim change; an answer that only says
//! "nothing here yet" is never cacheable. Called by `http::handle`; `live` builds on [`chunk`].

use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::body::Body;
use super::error::Reject;
use super::headers::{self, names};
use super::paths::{Live, ReadQuery};
use super::{Received, json, live, sse};
use crate::metadata::command::Expiry;
use crate::streams::{ReadChunk, ReadFrom, StreamInfo, StreamName};

/// How long a chunk may be cached, seconds. (Bytes never change; the stream may be deleted.)
const MAX_AGE_S: u64 = 60;

/// Answers a GET.
pub(super) async fn get(r: &Received<'_>, name: &StreamName) -> Result<Response<Body>, Reject> {
    let query = ReadQuery::parse(r.uri.query())?;
    match query.live {
        Live::No => {
            let from = query.from();
            let read = r.app.streams.read(name, from, r.app.limits.max_read_chunk);
            let read = r.app.reading(read).await?;
            if from == ReadFrom::Now { Ok(news(read)) } else { Ok(chunk(r, read)) }
        }
        Live::LongPoll => live::long_poll(r, name, &query).await,
        Live::Sse => sse::follow(r, name, &query).await,
    }
}

/// Answers a HEAD.
pub(super) async fn head(r: &Received<'_>, name: &StreamName) -> Result<Response<Body>, Reject> {
    let info = r.app.reading(r.app.streams.head(name)).await?;
    let mut response = Response::new(Body::empty());
    let out = response.headers_mut();
    out.reserve(12);
    out.insert(CONTENT_TYPE, headers::content_type_value(&info.config.content_type));
    out.insert(names::STREAM_NEXT_OFFSET, headers::offset_value(info.next));
    out.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    match info.config.expiry {
        Expiry::Never => {}
        Expiry::Ttl(seconds) => {
            out.insert(names::STREAM_TTL, seconds.into());
        }
        Expiry::At(at_ms) => {
            if let Some(at) = headers::rfc3339(at_ms) {
                out.insert(names::STREAM_EXPIRES_AT, at);
            }
        }
    }
    if info.closed {
        out.insert(names::STREAM_CLOSED, headers::TRUE);
    }
    Ok(response)
}

/// Answers a DELETE.
pub(super) async fn delete(r: &Received<'_>, name: &StreamName) -> Result<Response<Body>, Reject> {
    r.app.changing(r.app.streams.delete(name)).await?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// `offset=now`: where the tail is, and what a wait brought beyond it. Never cached, so it has no tag.
pub(super) fn news(mut read: ReadChunk) -> Response<Body> {
    let parts = std::mem::take(&mut read.parts);
    let mut response = Response::new(content(&read.info, parts));
    let out = response.headers_mut();
    out.reserve(12);
    progress(out, &read);
    out.insert(CONTENT_TYPE, headers::content_type_value(&read.info.config.content_type));
    out.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A chunk of a stream, or 304 if the client has it.
pub(super) fn chunk(r: &Received<'_>, read: ReadChunk) -> Response<Body> {
    let etag = etag(&read);
    let known = none_match(r.header_map, &etag);
    let mut response = Response::new(Body::empty());
    let out = response.headers_mut();
    out.reserve(14);
    progress(out, &read);
    out.insert(CACHE_CONTROL, cache_control(r, &read));
    if let Ok(value) = HeaderValue::try_from(etag) {
        out.insert(ETAG, value);
    }
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    out.insert(CONTENT_TYPE, headers::content_type_value(&read.info.config.content_type));
    *response.body_mut() = content(&read.info, read.parts);
    response
}

/// What every answer to a read says of the reader's place.
pub(super) fn progress(out: &mut HeaderMap, read: &ReadChunk) {
    out.insert(names::STREAM_NEXT_OFFSET, headers::offset_value(read.next));
    if read.up_to_date {
        out.insert(names::STREAM_UP_TO_DATE, headers::TRUE);
    }
    if read.closed {
        out.insert(names::STREAM_CLOSED, headers::TRUE);
    }
}

fn content(info: &StreamInfo, parts: Vec<crate::storage::record::Payload>) -> Body {
    if info.config.is_json() { json::array(parts) } else { json::bytes(parts) }
}

/// Stream ids are never reused, so a name deleted and created anew has other tags.
fn etag(read: &ReadChunk) -> String {
    let state = match (read.closed, read.up_to_date) {
        (true, _) => ":c",
        (false, true) => ":t",
        (false, false) => "",
    };
    format!("\"{}:{}:{}{state}\"", read.info.id, read.start, read.next)
}

fn cache_control(r: &Received<'_>, read: &ReadChunk) -> HeaderValue {
    if read.parts.is_empty() {
        // Cached, it would hide records to come; with its tag it may be asked for again cheaply.
        return HeaderValue::from_static("no-cache");
    }
    let left_s = match read.info.config.expiry {
        Expiry::Never if r.headers.personal => {
            return HeaderValue::from_static("private, max-age=60, stale-while-revalidate=300");
        }
        Expiry::Never => return HeaderValue::from_static("public, max-age=60, stale-while-revalidate=300"),
        Expiry::Ttl(seconds) => seconds,
        Expiry::At(at_ms) => at_ms.saturating_sub(r.app.clock.wall_ms()) / 1000,
    };
    let scope = if r.headers.personal { "private" } else { "public" };
    let value = format!("{scope}, max-age={}", left_s.min(MAX_AGE_S));
    HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("no-store"))
}

/// Whether `If-None-Match` holds the tag: `*`, or a list in which it stands, weak or strong.
fn none_match(map: &HeaderMap, etag: &str) -> bool {
    map.get_all(IF_NONE_MATCH).iter().any(|value| list_has(value.as_bytes(), etag.as_bytes()))
}

fn list_has(mut list: &[u8], etag: &[u8]) -> bool {
    if list.trim_ascii() == b"*" {
        return true;
    }
    loop {
        let skip = list.iter().position(|b| !matches!(b, b' ' | b'\t' | b',')).unwrap_or(list.len());
        list = &list[skip..];
        let tag = list.strip_prefix(b"W/").unwrap_or(list);
        // What is no list of tags matches nothing from there on.
        let Some(b'"') = tag.first() else { return false };
        let Some(end) = tag[1..].iter().position(|b| *b == b'"').map(|at| at + 2) else { return false };
        if &tag[..end] == etag {
            return true;
        }
        list = &tag[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_none_match_knows_lists_weak_tags_and_the_star() {
        let etag = b"\"7:0:10:t\"";
        for (list, matches) in [
            (r#""7:0:10:t""#, true),
            (r#"W/"7:0:10:t""#, true),
            (r#""a", "7:0:10:t""#, true),
            (r#""a" ,W/"b",, W/"7:0:10:t" , "c""#, true),
            ("*", true),
            (" * ", true),
            (r#""7:0:10""#, false),
            (r#""7:0:10:c""#, false),
            (r#""a, \"7:0:10:t\"""#, false),
            ("7:0:10:t", false),
            (r#""7:0:10:t"#, false),
            (r#"w/"7:0:10:t""#, false),
            (r#""a" *"#, false),
            ("", false),
            (",", false),
            ("W/", false),
            ("\"", false),
        ] {
            assert_eq!(list_has(list.as_bytes(), etag), matches, "{list}");
        }
    }
}
