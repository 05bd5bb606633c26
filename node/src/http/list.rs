//! GET on `/v1/streams`: which streams there are, by name, in pages.
//!
//! Invariant: the query is parsed as strictly as a stream's name is, and a page is bounded. A `+` is a plus, as it is
//! in names. Called by `http::handle`.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use serde::Serialize;

use super::App;
use super::body::Body;
use super::error::Reject;
use super::headers;
use crate::streams::list::LIST_MAX;
use crate::streams::{Listed, Listing, Page, name};

/// Streams in a page unless the client says otherwise.
const DEFAULT: usize = 100;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PageBody<'a> {
    streams: Vec<Entry<'a>>,
    /// To be sent as `after` for the next page; null at the end.
    next: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    name: &'a str,
    content_type: &'a str,
    next_offset: String,
    closed: bool,
}

/// Answers the request.
pub(super) async fn list(app: &App, query: Option<&str>) -> Result<Response<Body>, Reject> {
    let listing = parse(query)?;
    let page = app.reading(app.streams.list(&listing)).await?;
    let mut response = Response::new(Body::from(written(&page)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn written(page: &Page) -> Vec<u8> {
    let entry = |s: &'_ Listed| -> String { String::from_utf8_lossy(&headers::offset_text(s.next)).into() };
    let streams = page.streams.iter().map(|s| Entry {
        name: &s.name,
        content_type: &s.content_type,
        next_offset: entry(s),
        closed: s.closed,
    });
    let body = PageBody { streams: streams.collect(), next: page.next.as_deref() };
    serde_json::to_vec(&body).expect("texts and flags are JSON")
}

fn parse(query: Option<&str>) -> Result<Listing, Reject> {
    let (mut prefix, mut after, mut limit) = (None, None, None);
    for pair in query.unwrap_or_default().split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (slot, field) = match key {
            "prefix" => (&mut prefix, "prefix"),
            "after" => (&mut after, "after"),
            "limit" => (&mut limit, "limit"),
            _ => continue,
        };
        if slot.replace(value).is_some() {
            return Err(Reject::bad(field, format!("{field} stands twice in the query: it may stand once")));
        }
    }
    let limit = limit.map_or(Ok(DEFAULT), |text| {
        let number = headers::digits(text.as_bytes()).and_then(|n| usize::try_from(n).ok());
        number.filter(|n| (1..=LIST_MAX).contains(n)).ok_or_else(|| {
            Reject::bad("limit", format!("limit must be decimal digits, from 1 to {LIST_MAX}"))
        })
    })?;
    Ok(Listing {
        prefix: prefix.map_or(Ok(String::new()), |text| text_of(text, "prefix"))?,
        after: after.map(|text| text_of(text, "after")).transpose()?,
        limit,
    })
}

/// A name, or its beginning.
fn text_of(raw: &str, field: &'static str) -> Result<String, Reject> {
    let max = name::MAX_BYTES;
    let bad = |_e| {
        Reject::bad(field, format!("{field} must be up to {max} bytes of UTF-8, percent-encoded as in a URL"))
    };
    match name::decode(raw).map_err(bad)? {
        text if text.len() <= max => Ok(text.into_owned()),
        _ => Err(bad(name::NameError::TooLong)),
    }
}

#[cfg(test)]
mod tests {
    use weir_api::Offset;

    use super::*;

    fn parsed(query: &str) -> (String, Option<String>, usize) {
        let l = parse(Some(query)).unwrap_or_else(|e| panic!("{query}: {e:?}"));
        (l.prefix, l.after, l.limit)
    }

    #[test]
    fn a_query_says_prefix_after_and_limit() {
        assert_eq!(parsed(""), (String::new(), None, 100));
        assert_eq!(parsed("x=1&prefix"), (String::new(), None, 100));
        let all = parsed("prefix=a%2Fb%20c%C3%A9&after=a+b&limit=1000");
        assert_eq!(all, ("a/b cé".into(), Some("a+b".into()), 1000));
        assert_eq!(parsed("prefix=a/b&limit=001"), ("a/b".into(), None, 1));
    }

    #[test]
    fn every_wrong_query_is_refused_and_names_its_field() {
        let long = format!("after={}", "a".repeat(1025));
        for (query, at) in [
            ("limit=", "limit"),
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=-1", "limit"),
            ("limit=ten", "limit"),
            ("limit=99999999999999999999999", "limit"),
            ("limit=1&limit=1", "limit"),
            ("prefix=%", "prefix"),
            ("prefix=%zz", "prefix"),
            ("prefix=%ff", "prefix"),
            ("prefix=a&prefix=a", "prefix"),
            ("after=%C3", "after"),
            (&long, "after"),
        ] {
            let refused = parse(Some(query));
            assert!(
                matches!(&refused, Err(Reject::Bad { field, .. }) if *field == at),
                "{query}: {refused:?}"
            );
        }
    }

    #[test]
    fn a_page_is_written_as_documented() {
        let one =
            Listed { name: "a\"b".into(), content_type: "text/plain".into(), next: Offset(7), closed: true };
        let page = Page { streams: vec![one], next: Some("a\"b".into()) };
        assert_eq!(
            String::from_utf8(written(&page)).unwrap(),
            r#"{"streams":[{"name":"a\"b","contentType":"text/plain","nextOffset":"00000000000000000007","closed":true}],"next":"a\"b"}"#
        );
        let none = Page { streams: vec![], next: None };
        assert_eq!(written(&none), br#"{"streams":[],"next":null}"#);
    }
}
