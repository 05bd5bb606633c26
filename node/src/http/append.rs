//! POST: appends, closes, or both in one step.
//!
//! Invariant: what is wrong with the request itself is answered before the stream is looked up; what is wrong with its
//! content travels with it, since a closed stream and a producer's duplicate are answered first. Called by
//! `http::handle`; the hot path of the node.

use http::{Response, StatusCode};

use super::body::{Body, Taken};
use super::error::Reject;
use super::headers::{self, names};
use super::{Incoming, Received, json};
use crate::metadata::command::StreamConfig;
use crate::storage::record::Payload;
use crate::streams::{Append, Appended, StreamError, StreamName};

/// Answers a POST.
pub(super) async fn append(
    r: &Received<'_>,
    name: &StreamName,
    body: &mut Incoming,
) -> Result<Response<Body>, Reject> {
    let closes = r.headers.closes();
    let producer = r.headers.producer()?;
    let seq = r.headers.seq()?;
    r.headers.identity_encoding()?;
    let taken = r.app.take(body).await?;
    let content_type = match (taken.bytes.is_empty(), closes) {
        // A plain close; what type its nothing has does not matter.
        (true, true) => None,
        (true, false) => {
            return Err(Reject::bad(
                "body",
                "the body is empty: send at least one byte, or Stream-Closed: true",
            ));
        }
        (false, _) => Some(r.headers.content_type()?.ok_or_else(|| {
            Reject::bad(
                "Content-Type",
                "Content-Type is missing: send the stream's, as the body is not empty",
            )
        })?),
    };
    let with_data = content_type.is_some();
    let with_producer = producer.is_some();
    let appending = async {
        let stream = r.app.reading(r.app.streams.writer(name)).await?;
        let content = content_type.map(|sent| content(stream.config(), sent, &taken));
        let append = Append { content, producer, seq, closes };
        r.app.changing(stream.append(append)).await
    };
    match appending.await {
        Ok(done) => Ok(answer(&done, with_data && with_producer)),
        Err(refused) => Err(refused.with_body(taken)),
    }
}

fn content(config: &StreamConfig, sent: &str, taken: &Taken) -> Result<Payload, StreamError> {
    if !headers::same_type(&config.content_type, sent) {
        return Err(StreamError::TypeMismatch { expected: config.content_type.clone() });
    }
    if !config.is_json() {
        return Ok(Payload::Bytes(taken.owned()));
    }
    match json::flatten(&taken.bytes) {
        Ok(Some(elements)) => Ok(elements),
        Ok(None) => {
            Err(StreamError::Invalid("an empty array appends nothing: send at least one element".into()))
        }
        Err(why) => Err(StreamError::Invalid(why)),
    }
}

/// A producer learns from 200 that its data is new.
fn answer(done: &Appended, produced: bool) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    if !produced || done.duplicate {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    let out = response.headers_mut();
    out.reserve(10);
    out.insert(names::STREAM_NEXT_OFFSET, headers::offset_value(done.next));
    if done.closed {
        out.insert(names::STREAM_CLOSED, headers::TRUE);
    }
    if let Some(producer) = done.producer {
        out.insert(names::PRODUCER_EPOCH, producer.epoch.into());
        out.insert(names::PRODUCER_SEQ, producer.seq.into());
    }
    response
}
