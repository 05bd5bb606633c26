//! PUT: creates a stream, or confirms that it exists as asked for.
//!
//! Invariant: everything is parsed and bounded before the streams layer hears of it; first bytes that are not valid
//! leave no stream behind. Called by `http::handle`.

use http::header::{CONTENT_TYPE, LOCATION};
use http::{Response, StatusCode};

use super::body::Body;
use super::error::Reject;
use super::headers::{self, names};
use super::{Incoming, Received, json, paths};
use crate::storage::record::Payload;
use crate::streams::{CreateSpec, StreamError, StreamName};

/// Answers a PUT.
pub(super) async fn create(
    r: &Received<'_>,
    name: &StreamName,
    body: &mut Incoming,
) -> Result<Response<Body>, Reject> {
    r.headers.no_fork()?;
    r.headers.identity_encoding()?;
    let config = r.headers.config()?;
    r.headers.no_expiry()?;
    let location = paths::location(r.app.public_url.as_deref(), r.uri, r.headers.host)?;
    let taken = r.app.take(body).await?;
    let first = if taken.bytes.is_empty() {
        None
    } else if config.is_json() {
        json::flatten(&taken.bytes).map_err(|why| Reject::bad("body", why))?
    } else {
        Some(Payload::Bytes(taken.owned()))
    };
    let spec = CreateSpec { config, closed: r.headers.closes(), first };
    let created =
        r.app.changing(r.app.streams.create(name, spec)).await.map_err(|refused| match refused {
            Reject::Stream(StreamError::Gone) => Reject::NameTaken,
            other => other,
        })?;

    let mut response = Response::new(Body::empty());
    let out = response.headers_mut();
    out.reserve(12);
    out.insert(CONTENT_TYPE, headers::content_type_value(&created.info.config.content_type));
    out.insert(names::STREAM_NEXT_OFFSET, headers::offset_value(created.info.next));
    if created.info.closed {
        out.insert(names::STREAM_CLOSED, headers::TRUE);
    }
    if created.new {
        out.insert(LOCATION, location);
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}
