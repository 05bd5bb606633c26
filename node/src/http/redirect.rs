//! Redirects: the only maker of a 307.
//!
//! Invariant: `Location` is at the address that a live owner advertises, with the request's own path and query and the
//! hop; it is never cached, since owners change. The client is not left with half of its body unread: the body is taken
//! in and dropped first, or, if the client waits to be asked for it or does not send it in time, the connection is closed
//! after the answer. Called by `route`.

use http::header::{CACHE_CONTROL, LOCATION};
use http::{HeaderValue, Response, StatusCode, Uri};
use percent_encoding::{CONTROLS, utf8_percent_encode};

use super::body::{self, Body};
use super::error::Reject;
use super::hop::{self, Hop};
use super::{App, Incoming};

/// The redirect of a request for `uri` (without a hop) to the node at `base`.
pub(super) fn answer(base: &str, uri: &Uri, hop: Hop) -> Result<Response<Body>, Reject> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    response.headers_mut().insert(LOCATION, location(base, uri, hop)?);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn location(base: &str, uri: &Uri, hop: Hop) -> Result<HeaderValue, Reject> {
    let path = utf8_percent_encode(uri.path(), CONTROLS);
    let base = base.trim_end_matches('/');
    let url = match uri.query().filter(|query| !query.is_empty()) {
        Some(query) => {
            let query = utf8_percent_encode(query, CONTROLS);
            format!("{base}{path}?{query}&{}={}", hop::NAME, hop.text())
        }
        None => format!("{base}{path}?{}={}", hop::NAME, hop.text()),
    };
    let unusable = |_e| Reject::Busy("the node that serves the stream advertises no usable address");
    HeaderValue::try_from(url).map_err(|_e| unusable(()))
}

/// Reads and drops the body of a request that is sent elsewhere. What is left of it afterwards is the connection's end.
pub(super) async fn drop_body(app: &App, body: &mut Incoming) -> Result<(), Reject> {
    let (max, deadline) = app.body_bounds(body);
    if hyper::body::Body::size_hint(body).lower() > max {
        return Err(Reject::TooLarge { max });
    }
    // Not whole: the caller finds bytes left and closes.
    let _whole = body::drain(body, max, deadline).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_keeps_path_and_query_and_adds_the_hop() {
        let hop = Hop { index: 40, hops: 2 };
        for (base, uri, expected) in [
            ("http://b:1", "/v1/stream/a", "http://b:1/v1/stream/a?weir-hop=40.2"),
            ("http://b:1/", "/v1/stream/a%2Fb?", "http://b:1/v1/stream/a%2Fb?weir-hop=40.2"),
            (
                "https://b.example",
                "http://other/v1/stream/%C3%A9?offset=-1&live=long-poll",
                "https://b.example/v1/stream/%C3%A9?offset=-1&live=long-poll&weir-hop=40.2",
            ),
        ] {
            let response = answer(base, &uri.parse().unwrap(), hop).unwrap();
            assert_eq!(response.status(), 307);
            assert_eq!(response.headers()["location"], expected);
            assert_eq!(response.headers()["cache-control"], "no-store");
        }
        assert!(answer("http://b\n", &"/v1/stream/a".parse().unwrap(), hop).is_err());
    }
}
