//! Where an answer sends a request instead.
//!
//! Invariant: only 307 and 308 are followed, which keep method and body; hops are few; credentials never leave the
//! origin they were meant for. Pure. Used by `send`.

use http::header::{AUTHORIZATION, LOCATION};
use http::{HeaderMap, StatusCode};
use url::Url;

use super::origin::Origin;

/// Hops that one request follows.
pub(super) const HOPS_MAX: usize = 8;

/// Where a request goes, and with which credentials.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) origin: Origin,
    /// Path and query.
    pub(super) target: String,
}

/// The place that an answer names; `None` if it is no redirect. The error says what is wrong with it.
pub(super) fn followed(
    at: &Place,
    status: StatusCode,
    answer: &HeaderMap,
    request: &mut HeaderMap,
) -> Result<Option<Place>, String> {
    match status {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {}
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => {
            return Err(format!("{} answers {status}, which may change the method: not followed", at.origin));
        }
        _ => return Ok(None),
    }
    let location = answer.get(LOCATION).and_then(|v| v.to_str().ok());
    let location = location.ok_or_else(|| format!("{} redirects without saying where", at.origin))?;
    let base: Url = format!("{}{}", at.origin, at.target).parse().map_err(|e| format!("{e}"))?;
    let url = base.join(location).map_err(|e| format!("{} redirects to {location:?}: {e}", at.origin))?;
    let origin = Origin::of(&url).map_err(|e| format!("{} redirects to {location:?}: {e}", at.origin))?;
    if origin != at.origin {
        request.remove(AUTHORIZATION);
    }
    let query = url.query().map_or_else(String::new, |q| format!("?{q}"));
    Ok(Some(Place { origin, target: format!("{}{query}", url.path()) }))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn at() -> Place {
        Place { origin: "http://a:1".parse().unwrap(), target: "/v1/stream/x?offset=-1".into() }
    }

    fn go(status: u16, location: Option<&'static str>) -> (Result<Option<String>, String>, bool) {
        let mut answer = HeaderMap::new();
        location.map(|l| answer.insert(LOCATION, HeaderValue::from_static(l)));
        let mut request = HeaderMap::new();
        request.insert(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        let place = followed(&at(), StatusCode::from_u16(status).unwrap(), &answer, &mut request);
        let place = place.map(|p| p.map(|p| format!("{}{}", p.origin, p.target)));
        (place, request.contains_key(AUTHORIZATION))
    }

    #[test]
    fn temporary_and_permanent_redirects_are_followed_wherever_they_lead() {
        let to = |url: &str| Ok(Some(url.to_owned()));
        assert_eq!(go(307, Some("http://b:2/v1/stream/x?o=1")), (to("http://b:2/v1/stream/x?o=1"), false));
        assert_eq!(go(308, Some("http://a:1/y")), (to("http://a:1/y"), true));
        assert_eq!(go(307, Some("/y?z")), (to("http://a:1/y?z"), true));
        assert_eq!(
            go(307, Some("http://a:2/y")),
            (to("http://a:2/y"), false),
            "another port is another origin"
        );
        for status in [200, 204, 304, 404, 503] {
            assert_eq!(go(status, Some("/y")), (Ok(None), true), "{status}");
        }
    }

    #[test]
    fn what_cannot_be_followed_says_why() {
        for (status, location, says) in [
            (307, None, "without saying where"),
            (307, Some("https://b/"), "https is not available"),
            (307, Some("ftp://b/"), "no scheme of servers"),
            (308, Some("http://["), "http://a:1 redirects to"),
            (301, Some("/y"), "not followed"),
            (302, Some("/y"), "not followed"),
            (303, Some("/y"), "not followed"),
        ] {
            let why = go(status, location).0.unwrap_err();
            assert!(why.contains(says), "{status} {location:?}: {why}");
        }
    }
}
