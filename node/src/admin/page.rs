//! The web page at `/`: files that are part of the binary.
//!
//! Invariant: they hold nothing of the cluster, so they need no token; they load nothing from elsewhere, run no script but
//! their own, and cannot be framed. What they show they ask the API for. Pure. Used by `super`.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response};
use http_body_util::Full;

/// A file of the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct File {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

static FILES: [File; 4] = [
    File { path: "/", kind: "text/html; charset=utf-8", text: include_str!("page/index.html") },
    File { path: "/page.css", kind: "text/css; charset=utf-8", text: include_str!("page/page.css") },
    File { path: "/page.js", kind: "text/javascript; charset=utf-8", text: include_str!("page/page.js") },
    File { path: "/icon.svg", kind: "image/svg+xml", text: include_str!("page/icon.svg") },
];

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The file at a path.
pub(super) fn file(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}

impl File {
    pub(super) fn response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from_static(self.text.as_bytes())));
        let headers = [
            (CONTENT_TYPE, self.kind),
            // Of this build, and small: asked for anew, so that page and API never differ after an upgrade.
            (CACHE_CONTROL, "no-cache"),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        ];
        for (name, value) in headers {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
