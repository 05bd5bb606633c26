//! PUT: creates a stream, by itself or as a fork of another, or confirms that it exists as asked for.
//!
//! Invariant: everything is parsed and bounded before the streams layer hears of it; first bytes that are not valid
//! leave no stream behind. Called by `http::handle`.

use http::header::{CONTENT_TYPE, LOCATION};
use http::{Response, StatusCode};

use super::body::{Body, Taken};
use super::error::Reject;
use super::headers::{self, Fork, names};
use super::{Incoming, Received, json, paths};
use crate::metadata::command::{Expiry, StreamConfig};
use crate::storage::record::Payload;
use crate::streams::{CreateSpec, ForkSpec, StreamError, StreamName};

/// Answers a PUT.
pub(super) async fn create(
    r: &Received<'_>,
    name: &StreamName,
    body: &mut Incoming,
) -> Result<Response<Body>, Reject> {
    r.headers.identity_encoding()?;
    let fork = r.headers.fork()?;
    let config = r.headers.config()?;
    let location = paths::location(r.app.public_url.as_deref(), r.uri, r.headers.host)?;
    let taken = r.app.take(body).await?;
    let closed = r.headers.closes();
    let created = match fork {
        None => {
            let first = first(&taken, config.is_json())?;
            let spec = CreateSpec { config, closed, first };
            r.app.changing(r.app.streams.create(name, spec)).await
        }
        Some(fork) => {
            let spec = fork_spec(r, name, fork, &taken)?;
            r.app.changing(r.app.streams.fork(name, spec)).await
        }
    };
    let created = created.map_err(|refused| match refused {
        Reject::Stream(StreamError::Gone) => Reject::NameTaken,
        other => other.with_body(taken),
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

/// The first bytes, if any. An empty JSON array is none.
fn first(taken: &Taken, json: bool) -> Result<Option<Payload>, Reject> {
    if taken.bytes.is_empty() {
        return Ok(None);
    }
    if json {
        return json::flatten(&taken.bytes).map_err(|why| Reject::bad("body", why));
    }
    Ok(Some(Payload::Bytes(taken.owned())))
}

/// A fork without a content type has its source's, and its first bytes are read as that.
fn fork_spec(r: &Received<'_>, name: &StreamName, fork: Fork<'_>, taken: &Taken) -> Result<ForkSpec, Reject> {
    let Fork { source, offset, sub_offset, content_type, expiry } = fork;
    let mut content_type = content_type.map(str::to_owned);
    if content_type.is_none() && !taken.bytes.is_empty() {
        content_type = r.app.streams.fork_type(name, &source);
    }
    let config =
        content_type.clone().map(|content_type| StreamConfig { content_type, expiry: Expiry::Never });
    let first = first(taken, config.is_some_and(|c| c.is_json()))?;
    let closed = r.headers.closes();
    Ok(ForkSpec { source, offset, sub_offset, content_type, expiry, closed, first })
}
