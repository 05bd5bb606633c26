//! `weir-hop`: how far a request has come, and what the node that sent it on knew.
//!
//! Invariant: a request is sent on at most [`MAX_HOPS`] times, and each time to a node that waits until it knows at
//! least as much as the one before; so a request does not go round in circles. A redirect carries the hop in the query
//! of its `Location`, forwarding carries it in a header field of the same name. It is no part of a stream's name, and
//! no handler sees it. A client that makes one up makes its own request wait or fail, nothing else. Pure.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::error::Reject;
use super::headers;
use super::paths::decode;
use crate::mutant::{self, Mutant};

/// So often a request is sent on.
pub(crate) const MAX_HOPS: u8 = 3;

/// The field and the parameter.
pub(crate) const NAME: &str = "weir-hop";
pub(crate) const HEADER: HeaderName = HeaderName::from_static(NAME);

/// See the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Hop {
    /// The receiver's view holds at least this much of the metadata log before it decides.
    pub(crate) index: u64,
    /// How often the request was sent on.
    pub(crate) hops: u8,
}

/// A request's hop, and the request without it.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    /// `None`: it came from a client as it is.
    pub(crate) hop: Option<Hop>,
    /// The URI without the parameter, if there was one.
    pub(crate) uri: Option<Uri>,
    /// A node forwarded it.
    pub(crate) forwarded: bool,
}

impl Arrived {
    /// Reads both places; of two hops the larger numbers count.
    pub(crate) fn read(uri: &Uri, fields: &HeaderMap) -> Result<Self, Reject> {
        let mut header = fields.get_all(HEADER).iter();
        let by_header = header.next().map(|value| parse(value.as_bytes())).transpose()?;
        if header.next().is_some() {
            return Err(twice());
        }
        let (by_query, rest) = match uri.query() {
            Some(query) if query.contains('=') => split(query)?,
            _ => (None, None),
        };
        let hop = match (by_header, by_query) {
            (Some(a), Some(b)) => Some(Hop { index: a.index.max(b.index), hops: a.hops.max(b.hops) }),
            (one, other) => one.or(other),
        };
        let uri = by_query.map(|_| with_query(uri, rest.as_deref())).transpose()?;
        Ok(Self { hop, uri, forwarded: by_header.is_some() })
    }
}

impl Hop {
    /// The hop after this one, from a node whose view holds `index`; `None`: there were enough.
    pub(crate) fn onward(self, index: u64) -> Option<Self> {
        let hops = if mutant::on(Mutant::HopsNotCounted) { 1 } else { self.hops.checked_add(1)? };
        (hops <= MAX_HOPS).then_some(Self { index: index.max(self.index), hops })
    }

    /// As it is sent.
    pub(crate) fn value(self) -> HeaderValue {
        HeaderValue::try_from(self.text()).expect("digits and a point are valid in a header")
    }

    /// See [`Hop::value`].
    pub(crate) fn text(self) -> String {
        format!("{}.{}", self.index, self.hops)
    }
}

fn parse(text: &[u8]) -> Result<Hop, Reject> {
    let bad = || {
        Reject::bad(
            NAME,
            "weir-hop must be INDEX.HOPS, two decimal numbers, as a redirect of this cluster said",
        )
    };
    let point = text.iter().position(|b| *b == b'.').ok_or_else(bad)?;
    let index = headers::digits(&text[..point]).ok_or_else(bad)?;
    let hops = headers::digits(&text[point + 1..]).ok_or_else(bad)?;
    Ok(Hop { index, hops: u8::try_from(hops).unwrap_or(u8::MAX) })
}

fn twice() -> Reject {
    Reject::bad(NAME, "weir-hop stands twice: it may stand once")
}

/// The hop in a query, and the query without it.
fn split(query: &str) -> Result<(Option<Hop>, Option<String>), Reject> {
    let mut hop = None;
    for pair in query.split('&') {
        if let Some(value) = hop_of(pair)
            && hop.replace(parse(decode(value).as_bytes())?).is_some()
        {
            return Err(twice());
        }
    }
    Ok((hop, hop.is_some().then(|| without(query)).filter(|rest| !rest.is_empty())))
}

/// The value, if the pair is a hop.
fn hop_of(pair: &str) -> Option<&str> {
    let (name, value) = pair.split_once('=')?;
    (decode(name) == NAME).then_some(value)
}

fn without(query: &str) -> String {
    let kept: Vec<&str> = query.split('&').filter(|pair| hop_of(pair).is_none()).collect();
    kept.join("&")
}

fn with_query(uri: &Uri, query: Option<&str>) -> Result<Uri, Reject> {
    let bad = |_e| Reject::bad("request target", "the request target is not a path and a query");
    let path = match query {
        Some(query) => PathAndQuery::try_from(format!("{}?{query}", uri.path())),
        None => PathAndQuery::try_from(uri.path()),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.map_err(|_e| bad(()))?);
    Uri::from_parts(parts).map_err(|_e| bad(()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(uri: &str, fields: &[&str]) -> Result<Arrived, Reject> {
        let mut map = HeaderMap::new();
        for value in fields {
            map.append(HEADER, HeaderValue::try_from(*value).unwrap());
        }
        Arrived::read(&uri.parse().unwrap(), &map)
    }

    fn hop(index: u64, hops: u8) -> Option<Hop> {
        Some(Hop { index, hops })
    }

    #[test]
    fn a_hop_is_taken_out_of_the_query_and_nothing_else_is() {
        for (uri, expected, rest) in [
            ("/v1/stream/a", None, None),
            ("/v1/stream/a?", None, None),
            ("/v1/stream/a?offset=-1", None, None),
            ("/v1/stream/a?weir-hop=7.1", hop(7, 1), Some("/v1/stream/a")),
            ("/v1/stream/a?offset=-1&weir-hop=7.1", hop(7, 1), Some("/v1/stream/a?offset=-1")),
            ("/v1/stream/a?weir-hop=7.2&live=sse&x", hop(7, 2), Some("/v1/stream/a?live=sse&x")),
            ("/v1/stream/a?x&%77eir-hop=7%2E2&y=", hop(7, 2), Some("/v1/stream/a?x&y=")),
            ("/v1/stream/weir-hop=7.1", None, None),
            ("/v1/stream/a?weir-hops=7.1&weir-hop", None, None),
            ("http://h:1/v1/stream/a%2Fb?weir-hop=7.1", hop(7, 1), Some("http://h:1/v1/stream/a%2Fb")),
        ] {
            let arrived = read(uri, &[]).unwrap();
            assert_eq!(arrived.hop, expected, "{uri}");
            assert_eq!(arrived.uri.map(|u| u.to_string()).as_deref(), rest, "{uri}");
            assert!(!arrived.forwarded);
        }
    }

    #[test]
    fn a_field_says_that_a_node_forwarded_the_request() {
        let arrived = read("/v1/stream/a?offset=-1", &["9.2"]).unwrap();
        assert_eq!((arrived.hop, arrived.forwarded), (hop(9, 2), true));
        let both = read("/v1/stream/a?weir-hop=10.1", &["9.2"]).unwrap();
        assert_eq!(both.hop, hop(10, 2));
        assert_eq!(read("/", &["1.999"]).unwrap().hop, hop(1, 255), "too many is too many");
    }

    #[test]
    fn every_malformed_hop_is_refused_and_named() {
        let named = |read: Result<Arrived, Reject>| match read {
            Err(Reject::Bad { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        for bad in
            ["", "7", "7.", ".1", "7.1.2", "-7.1", "7.-1", "+7.1", "7,1", "a.b", "99999999999999999999.1"]
        {
            assert_eq!(named(read(&format!("/s?weir-hop={bad}"), &[])), NAME, "{bad:?}");
            assert_eq!(named(read("/s", &[bad])), NAME, "{bad:?}");
        }
        assert_eq!(named(read("/s?weir-hop=1.1&weir-hop=1.1", &[])), NAME);
        assert_eq!(named(read("/s", &["1.1", "1.1"])), NAME);
    }

    /// Where a request goes between two nodes whose views each say that the other has the stream, and that hear nothing
    /// which would cure it. Their views are as old as `indexes` say. Given up after ten hops.
    fn sent_round(indexes: [u64; 2]) -> Vec<String> {
        use crate::metadata::apply::tests::world::{World, create};
        use crate::metadata::command::{Answer, Command};
        use crate::routing::{self, Route};

        // One history up to a point, and then two: the stream is at b in the one, at a in the other.
        let views = ["b", "a"].map(|owner| {
            let (mut w, [a, b]) = World::with(["a", "b"]);
            let by = if owner == "a" { &a } else { &b };
            w.run(by, create("s")).unwrap();
            let stream = w.state.names["s"];
            w.run(by, Command::BeginTransfer { stream, to: by.clone() }).unwrap();
            assert!(matches!(w.run(by, Command::Open { stream }), Ok(Answer::Opened { .. })));
            (w.state, [a, b])
        });
        let (mut at, mut hop, mut sent) = (0, Hop::default(), Vec::new());
        // A node that does not come to know what the sender knew answers 503: an end, too.
        while indexes[at] >= hop.index && sent.len() < 10 {
            let (state, sessions) = &views[at];
            let Route::At(target) = routing::by_name(state, &sessions[at], "s") else {
                panic!("a view says that the stream is here")
            };
            let Some(next) = hop.onward(indexes[at]) else { break };
            assert!(next.index >= hop.index, "a hop knows less than the last");
            assert_ne!(target.session, sessions[at], "sent to itself");
            sent.push(target.session.node.to_string());
            (at, hop) = (1 - at, next);
        }
        sent
    }

    #[test]
    fn two_views_that_name_each_other_send_a_request_on_three_times_at_most() {
        assert_eq!(sent_round([7, 7]), ["b", "a", "b"]);
        assert_eq!(sent_round([9, 7]), ["b"], "who knows less does not decide");
        assert_eq!(sent_round([7, 9]), ["b", "a"]);
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn hops_that_are_not_counted_have_no_end() {
        mutant::set(Some(Mutant::HopsNotCounted));
        let sent = sent_round([7, 7]).len();
        mutant::set(None);
        assert_eq!(sent, 10);
    }

    proptest! {
        #[test]
        fn what_is_sent_is_read(index: u64, hops: u8) {
            let sent = Hop { index, hops };
            prop_assert_eq!(read("/s", &[&sent.text()]).unwrap().hop, Some(sent));
            prop_assert_eq!(read(&format!("/s?weir-hop={}", sent.text()), &[]).unwrap().hop, Some(sent));
        }

        #[test]
        fn no_query_panics(query in "[a-z=&.%0-9-]{0,40}") {
            if let Ok(uri) = format!("/s?{query}").parse::<Uri>() {
                drop(Arrived::read(&uri, &HeaderMap::new()));
            }
        }
    }
}
