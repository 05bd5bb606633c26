//! Header fields on their way through a node.
//!
//! Invariant: what is meant for one connection is not passed on (RFC 9110, 7.6.1): the fields that always are, and
//! those that `Connection` names. Everything else goes through as it came. Pure. Called by `forward`.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::http::hop::{self, Hop};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

const OF_A_CONNECTION: [HeaderName; 10] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HTTP2_SETTINGS,
];

/// More names in `Connection` than this are not looked at: no client needs as many.
const MAX_NAMED: usize = 16;

/// Takes out what is meant for one connection.
pub(super) fn strip(fields: &mut HeaderMap) {
    let named: Vec<HeaderName> = fields
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .take(MAX_NAMED)
        .collect();
    for name in named.iter().chain(&OF_A_CONNECTION) {
        fields.remove(name);
    }
}

/// The fields of a request to the owner. `length`: of its body, if that is known.
pub(super) fn of_request(from: &HeaderMap, hop: Hop, length: Option<u64>) -> HeaderMap {
    let mut fields = from.clone();
    strip(&mut fields);
    for name in [HOST, EXPECT, CONTENT_LENGTH] {
        fields.remove(name);
    }
    if let Some(length) = length {
        fields.insert(CONTENT_LENGTH, length.into());
    }
    fields.append(VIA, HeaderValue::from_static("1.1 weir"));
    fields.insert(hop::HEADER, hop.value());
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(of: &[(&'static str, &'static str)]) -> HeaderMap {
        of.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn what_belongs_to_a_connection_stays_there() {
        let mut map = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Mine"),
            ("connection", "x-too,,content type"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABk"),
            ("x-mine", "1"),
            ("x-too", "2"),
            ("content-type", "text/plain"),
            ("producer-id", "p"),
            ("cookie", "a"),
            ("cookie", "b"),
        ] {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        strip(&mut map);
        let mut kept = fields(&[("content-type", "text/plain"), ("producer-id", "p"), ("cookie", "a")]);
        kept.append("cookie", HeaderValue::from_static("b"));
        assert_eq!(map, kept);
    }

    #[test]
    fn a_request_carries_the_new_hop_and_the_length_that_is_sent() {
        let from = fields(&[
            ("host", "client.example"),
            ("expect", "100-continue"),
            ("content-length", "5"),
            ("weir-hop", "1.1"),
            ("authorization", "Bearer x"),
        ]);
        let hop = Hop { index: 9, hops: 2 };
        let with = of_request(&from, hop, Some(5));
        let expected = fields(&[
            ("authorization", "Bearer x"),
            ("content-length", "5"),
            ("via", "1.1 weir"),
            ("weir-hop", "9.2"),
        ]);
        assert_eq!(with, expected);
        assert_eq!(of_request(&from, hop, None).get("content-length"), None);
    }
}
