//! Request targets: which resource, and a read's query.
//!
//! Invariant: query parameters that are not the protocol's are ignored; its own stand at most once and are decoded
//! before they are looked at. Pure. Called by `http::handle` and the read verbs.

use std::borrow::Cow;

use http::uri::Authority;
use http::{HeaderValue, Uri};
use percent_encoding::{CONTROLS, utf8_percent_encode};

use super::error::Reject;
use super::headers;
use crate::streams::ReadFrom;

/// Where streams are.
const STREAMS: &str = "/v1/stream/";
/// What streams there are: outside of the names.
const LIST: &str = "/v1/streams";

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// A stream; its name as it was sent.
    Stream(&'a str),
    /// The list of streams.
    Streams,
    /// Answers that this process serves.
    Health,
    /// Nothing.
    Unknown,
}

/// Reads a path.
pub(crate) fn target(path: &str) -> Target<'_> {
    match path.strip_prefix(STREAMS) {
        Some(name) => Target::Stream(name),
        None if path == "/health" => Target::Health,
        None if path == LIST => Target::Streams,
        None => Target::Unknown,
    }
}

/// A read's mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Live {
    /// Catch-up.
    No,
    /// Waits for records.
    LongPoll,
    /// Server-sent events.
    Sse,
}

/// The query of a GET.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadQuery {
    /// `offset`; `None` if absent.
    pub(crate) offset: Option<ReadFrom>,
    /// `live`.
    pub(crate) live: Live,
    /// `cursor`, if it is a number; it only ever comes from this server, or is as good as none.
    pub(crate) cursor: Option<u64>,
}

impl ReadQuery {
    /// Where a read begins that may begin anywhere.
    pub(crate) fn from(&self) -> ReadFrom {
        self.offset.unwrap_or(ReadFrom::Start)
    }

    /// Reads the query of a URL.
    pub(crate) fn parse(query: Option<&str>) -> Result<Self, Reject> {
        let (mut offset, mut live, mut cursor) = (None, None, None);
        for pair in query.unwrap_or_default().split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (slot, field) = match decode(name).as_ref() {
                "offset" => (&mut offset, "offset"),
                "live" => (&mut live, "live"),
                "cursor" => (&mut cursor, "cursor"),
                _ => continue,
            };
            if slot.replace(decode(value)).is_some() {
                return Err(Reject::bad(
                    field,
                    format!("{field} stands twice in the query: it may stand once"),
                ));
            }
        }
        let offset = offset.map(|text| parse_offset(&text)).transpose()?;
        let live = match live.as_deref() {
            None => Live::No,
            Some("long-poll") => Live::LongPoll,
            Some("sse") => Live::Sse,
            Some(_) => return Err(Reject::bad("live", "live must be long-poll or sse, or be left out")),
        };
        if live != Live::No && offset.is_none() {
            return Err(Reject::bad("offset", "offset is missing: a live read says where it begins"));
        }
        let cursor = cursor.and_then(|text| headers::digits(text.as_bytes()));
        Ok(Self { offset, live, cursor })
    }
}

fn parse_offset(text: &str) -> Result<ReadFrom, Reject> {
    match text {
        "-1" => Ok(ReadFrom::Start),
        "now" => Ok(ReadFrom::Now),
        _ => headers::parse_offset(text).map(ReadFrom::At).ok_or_else(|| {
            Reject::bad(
                "offset",
                "offset must be -1, now, or what a Stream-Next-Offset said: 20 decimal digits",
            )
        }),
    }
}

pub(crate) fn decode(text: &str) -> Cow<'_, str> {
    if text.contains('%') {
        percent_encoding::percent_decode_str(text).decode_utf8_lossy()
    } else {
        Cow::Borrowed(text)
    }
}

/// The absolute URL of a stream just created: `public_url`, or else the host that the client asked for, and the path
/// as the client wrote it.
pub(crate) fn location(
    public_url: Option<&str>,
    uri: &Uri,
    host: Option<&HeaderValue>,
) -> Result<HeaderValue, Reject> {
    let path = utf8_percent_encode(uri.path(), CONTROLS);
    let url = match public_url {
        Some(base) => format!("{}{path}", base.trim_end_matches('/')),
        None => format!("http://{}{path}", authority(uri, host)?),
    };
    HeaderValue::try_from(url).map_err(|_e| bad_host())
}

/// The authority that a request is for: of its target, or else its `Host`.
pub(crate) fn authority(uri: &Uri, host: Option<&HeaderValue>) -> Result<Authority, Reject> {
    if let Some(authority) = uri.authority() {
        return valid(authority.clone());
    }
    let host = host.ok_or_else(bad_host)?;
    Authority::try_from(host.as_bytes()).map_err(|_e| bad_host()).and_then(valid)
}

fn valid(authority: Authority) -> Result<Authority, Reject> {
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    let number = port.is_empty() || authority.port_u16().is_some();
    let bare = authority.host().trim_start_matches('[').trim_end_matches(']');
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._:".contains(&b);
    if authority.as_str().contains('@') || bare.is_empty() || !bare.bytes().all(plain) || !number {
        return Err(bad_host());
    }
    Ok(authority)
}

fn bad_host() -> Reject {
    Reject::bad("Host", "Host must stand once and be a host name or address, with a port if need be")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_api::Offset;

    use super::*;

    fn field(result: Result<ReadQuery, Reject>) -> &'static str {
        match result {
            Err(Reject::Bad { field, .. }) => field,
            other => panic!("{other:?} is no refusal"),
        }
    }

    #[test]
    fn paths_lead_where_they_should() {
        assert_eq!(target("/v1/stream/a/b"), Target::Stream("a/b"));
        assert_eq!(target("/v1/stream/"), Target::Stream(""));
        assert_eq!(target("/health"), Target::Health);
        assert_eq!(target("/v1/streams"), Target::Streams);
        for path in ["", "/", "*", "/v1/stream", "/v1/streams/a", "/v2/stream/a", "//v1/stream/a", "/healthz"]
        {
            assert_eq!(target(path), Target::Unknown, "{path}");
        }
    }

    #[test]
    fn offsets_are_accepted_as_they_are_written_and_in_no_other_form() {
        let zero = ReadFrom::At(Offset(0));
        for (query, from) in [
            (None, ReadFrom::Start),
            (Some(""), ReadFrom::Start),
            (Some("offset=-1"), ReadFrom::Start),
            (Some("offset=%2D1"), ReadFrom::Start),
            (Some("offset=now"), ReadFrom::Now),
            (Some("offset=00000000000000000000"), zero),
            (Some("x=1&offset=00000000000000000000&y"), zero),
            (Some("%6Fffset=00000000000000000000"), zero),
            (Some("offset=18446744073709551615"), ReadFrom::At(Offset(u64::MAX))),
            (Some("Offset=x&off=1&OFFSET="), ReadFrom::Start),
        ] {
            let parsed = ReadQuery::parse(query).unwrap_or_else(|e| panic!("{query:?}: {e:?}"));
            assert_eq!(parsed.from(), from, "{query:?}");
        }
    }

    #[test]
    fn every_wrong_form_of_an_offset_is_refused_and_named() {
        for offset in [
            "",
            "0",
            "1",
            "-0",
            "-2",
            "--1",
            "NOW",
            "Now",
            " now",
            "now ",
            "+1",
            "abc",
            "1e3",
            "0x10",
            "..",
            "../..",
            "%00",
            "%0A",
            "a%0Ab",
            "0,1",
            "0%2C1",
            "a/b",
            "a%2Fb",
            "0 1",
            "0%201",
            "%20",
            "0000000000000000000",
            "000000000000000000000",
            "0000000000000000000a",
            "-0000000000000000001",
            "18446744073709551616",
            "99999999999999999999",
            "0000000000000000_0000000000000000",
            "%ff",
            "%zz",
            "١٢٣",
        ] {
            assert_eq!(field(ReadQuery::parse(Some(&format!("offset={offset}")))), "offset", "{offset:?}");
        }
        assert_eq!(field(ReadQuery::parse(Some("offset"))), "offset");
        assert_eq!(field(ReadQuery::parse(Some("offset=-1&offset=-1"))), "offset");
        assert_eq!(field(ReadQuery::parse(Some("offset=-1&%6Fffset=now"))), "offset");
    }

    #[test]
    fn live_says_how_and_needs_an_offset() {
        let live = |query| ReadQuery::parse(Some(query)).map(|q| q.live).ok();
        assert_eq!(live("offset=now&live=long-poll"), Some(Live::LongPoll));
        assert_eq!(live("live=sse&offset=-1"), Some(Live::Sse));
        for query in ["live=long-poll", "live=sse"] {
            assert_eq!(field(ReadQuery::parse(Some(query))), "offset");
        }
        for query in ["live", "live=", "live=true", "live=SSE", "live=longpoll", "live=sse&live=sse"] {
            assert_eq!(field(ReadQuery::parse(Some(&format!("offset=-1&{query}")))), "live", "{query}");
        }
    }

    #[test]
    fn a_cursor_that_is_no_number_counts_as_none() {
        let cursor = |text: &str| ReadQuery::parse(Some(&format!("cursor={text}"))).unwrap().cursor;
        assert_eq!(cursor("1234"), Some(1234));
        for text in ["", "abc", "-1", "1.5", "18446744073709551616"] {
            assert_eq!(cursor(text), None, "{text}");
        }
        assert_eq!(field(ReadQuery::parse(Some("cursor=1&cursor=2"))), "cursor");
    }

    #[test]
    fn location_is_absolute_and_keeps_the_path() {
        let path: Uri = "/v1/stream/a%2Fb?x=1".parse().unwrap();
        let host = |h| HeaderValue::from_static(h);
        let at = |public, host: Option<HeaderValue>| location(public, &path, host.as_ref()).ok();
        assert_eq!(at(None, Some(host("h:1"))), Some(host("http://h:1/v1/stream/a%2Fb")));
        assert_eq!(at(None, Some(host("[::1]:4437"))), Some(host("http://[::1]:4437/v1/stream/a%2Fb")));
        assert_eq!(at(Some("https://s.example/"), None), Some(host("https://s.example/v1/stream/a%2Fb")));
        let absolute: Uri = "http://target/v1/stream/a".parse().unwrap();
        let got = location(None, &absolute, Some(&host("other"))).ok();
        assert_eq!(got, Some(host("http://target/v1/stream/a")), "the target's authority wins");
    }

    #[test]
    fn every_wrong_host_is_refused_and_named() {
        let path: Uri = "/v1/stream/a".parse().unwrap();
        for host in
            ["", "a b", "user@host", "a/b", "a?b", "http://a", "a:b", "a:99999", ":80", "a,b", "[::1", "é"]
        {
            let value = HeaderValue::from_bytes(host.as_bytes()).unwrap();
            let refused = authority(&path, Some(&value));
            assert!(matches!(refused, Err(Reject::Bad { field: "Host", .. })), "{host}: {refused:?}");
        }
        assert!(matches!(authority(&path, None), Err(Reject::Bad { field: "Host", .. })));
    }

    proptest! {
        #[test]
        fn offsets_come_back_and_sort_as_text(a: u64, b: u64) {
            let text = |n| String::from_utf8(headers::offset_text(Offset(n)).to_vec()).unwrap();
            prop_assert_eq!(headers::parse_offset(&text(a)), Some(Offset(a)));
            prop_assert_eq!(a.cmp(&b), text(a).cmp(&text(b)));
        }

        #[test]
        fn no_query_panics_and_accepted_offsets_are_canonical(text in "\\PC{0,30}|[0-9]{18,22}") {
            if let Ok(query) = ReadQuery::parse(Some(&format!("offset={text}")))
                && let Some(ReadFrom::At(offset)) = query.offset
            {
                let written = headers::offset_text(offset);
                let first = text.split('&').next().unwrap_or_default();
                let sent = decode(first).into_owned().into_bytes();
                prop_assert_eq!(sent, written.to_vec());
            }
        }
    }
}
