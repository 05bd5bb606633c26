//! The only place where a failure becomes a status code.
//!
//! Invariant: 503 and 429 mean that nothing entered a stream's order and carry `Retry-After`; an outcome that is not
//! known is 504. Every error is a problem document (RFC 9457) that names the field at fault and what is allowed; no
//! error is ever cacheable. Called by `http` alone, at the end of every request.

use std::borrow::Cow;

use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;
use weir_api::SessionId;

use super::body::{Body, Taken};
use super::framing::Framing;
use super::headers::{self, names};
use crate::streams::name::NameError;
use crate::streams::{ForkError, StreamError};

/// Seconds after which a client may try again when this node is at one of its own limits.
const BUSY_RETRY_S: u32 = 1;
/// Seconds after which a limit that only the client can lift is worth another try.
const LIMIT_RETRY_S: u32 = 10;

/// What the methods of a stream's URL are, for `Allow`.
pub(crate) const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE, OPTIONS");

/// Why a request gets no result.
#[derive(Debug)]
pub(crate) enum Reject {
    /// The streams layer said so.
    Stream(StreamError),
    /// A part of the request is malformed.
    Bad {
        /// The header, parameter or part.
        field: &'static str,
        /// What was wrong and what is allowed.
        why: Cow<'static, str>,
    },
    /// PUT on the name of a deleted stream that forks still need.
    NameTaken,
    /// The path leads nowhere.
    NoRoute,
    /// A control request (`__ds`) that this server does not know.
    Control,
    /// Not a method of streams.
    Method,
    /// Not a method of the list of streams.
    ListMethod,
    /// The body is over the limit.
    TooLarge {
        /// The limit, bytes.
        max: u64,
    },
    /// The body did not come within its time.
    BodyTimeout,
    /// The body ended early, or its chunks are malformed.
    BodyBroken(String),
    /// Over the limit on the request target.
    UriTooLong {
        /// The limit, bytes.
        max: usize,
    },
    /// A body in an encoding other than identity.
    Encoding,
    /// The connection's framing is ambiguous.
    Framing(Framing),
    /// This node is at one of its limits; nothing was done.
    Busy(&'static str),
    /// Nothing was changed and the answer did not come in time.
    ReadTimeout,
    /// Another session has the stream, which was found out after the body was taken in.
    Elsewhere {
        /// The session.
        owner: SessionId,
        /// The body.
        taken: Taken,
    },
}

impl From<StreamError> for Reject {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl From<NameError> for Reject {
    fn from(error: NameError) -> Self {
        match error {
            NameError::Reserved => Self::Control,
            other => Self::bad("stream name", other.to_string()),
        }
    }
}

/// RFC 9457, with the field at fault.
#[derive(Serialize)]
struct Problem<'a> {
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

/// Everything that an error's response differs in.
struct Parts {
    status: StatusCode,
    field: Option<&'static str>,
    detail: Cow<'static, str>,
    headers: HeaderMap,
}

impl Parts {
    fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, field: None, detail: detail.into(), headers: HeaderMap::new() }
    }

    fn field(mut self, field: &'static str) -> Self {
        self.field = Some(field);
        self
    }

    fn header(mut self, name: HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.headers.insert(name, value.into());
        self
    }

    /// The rest of the connection cannot be trusted, or will not be read.
    fn closing(self) -> Self {
        self.header(CONNECTION, HeaderValue::from_static("close"))
    }
}

impl Reject {
    /// A malformed part.
    pub(crate) fn bad(field: &'static str, why: impl Into<Cow<'static, str>>) -> Self {
        Self::Bad { field, why: why.into() }
    }

    /// Keeps the body of a request that has to be sent on.
    pub(crate) fn with_body(self, taken: Taken) -> Self {
        match self {
            Self::Stream(StreamError::Elsewhere { owner }) => Self::Elsewhere { owner, taken },
            other => other,
        }
    }

    /// The response; the caller adds what all responses have.
    pub(crate) fn into_response(self) -> Response<Body> {
        if matches!(self, Self::Control) {
            return control_not_found();
        }
        let parts = self.into_parts();
        let problem = Problem {
            title: parts.status.canonical_reason().unwrap_or("Error"),
            status: parts.status.as_u16(),
            detail: &parts.detail,
            field: parts.field,
        };
        let text = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = parts.status;
        *response.headers_mut() = parts.headers;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }

    fn into_parts(self) -> Parts {
        use StatusCode as S;
        match self {
            Self::Stream(error) => stream(error),
            Self::Bad { field, why } => Parts::new(S::BAD_REQUEST, why).field(field),
            Self::NameTaken => Parts::new(
                S::CONFLICT,
                "a deleted stream keeps this name until the last stream forked from it is deleted",
            ),
            Self::NoRoute | Self::Control => {
                Parts::new(S::NOT_FOUND, "no such resource: streams are at /v1/stream/<name>")
            }
            Self::Method => {
                Parts::new(S::METHOD_NOT_ALLOWED, "streams know GET, HEAD, POST, PUT, DELETE and OPTIONS")
                    .header(ALLOW, METHODS)
            }
            Self::ListMethod => {
                Parts::new(S::METHOD_NOT_ALLOWED, "the list of streams knows GET, HEAD and OPTIONS")
                    .header(ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"))
            }
            Self::TooLarge { max } => too_large(max).closing(),
            Self::BodyTimeout => {
                Parts::new(S::REQUEST_TIMEOUT, "the request body did not arrive in time; nothing was done")
                    .field("body")
                    .closing()
            }
            Self::BodyBroken(why) => Parts::new(
                S::BAD_REQUEST,
                format!("the request body is not framed as the header fields say: {why}"),
            )
            .field("body")
            .closing(),
            Self::UriTooLong { max } => {
                Parts::new(S::URI_TOO_LONG, format!("the request target is over {max} bytes"))
                    .field("request target")
            }
            Self::Encoding => Parts::new(
                S::UNSUPPORTED_MEDIA_TYPE,
                "bodies are stored as they are: send them without Content-Encoding",
            )
            .field("Content-Encoding"),
            Self::Framing(framing) => {
                Parts::new(S::BAD_REQUEST, framing.detail()).field(framing.field()).closing()
            }
            Self::Elsewhere { owner, taken: _ } => stream(StreamError::Elsewhere { owner }),
            Self::Busy(why) => Parts::new(S::SERVICE_UNAVAILABLE, why).header(RETRY_AFTER, BUSY_RETRY_S),
            Self::ReadTimeout => {
                Parts::new(S::SERVICE_UNAVAILABLE, "the answer did not come in time; nothing was changed")
                    .header(RETRY_AFTER, BUSY_RETRY_S)
            }
        }
    }
}

fn too_large(max: u64) -> Parts {
    Parts::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body is over {max} bytes, which is the limit for one request"),
    )
    .field("body")
}

fn stream(error: StreamError) -> Parts {
    use StatusCode as S;
    let detail = error.to_string();
    match error {
        StreamError::NotFound => Parts::new(S::NOT_FOUND, detail),
        StreamError::Gone => Parts::new(S::GONE, detail),
        StreamError::ConfigMismatch => Parts::new(
            S::CONFLICT,
            "the stream exists with another content type, expiry, closed state or fork source; PUT repeats only what it was created with",
        ),
        StreamError::TypeMismatch { expected: _ } => Parts::new(S::CONFLICT, detail).field("Content-Type"),
        StreamError::Closed { next } => Parts::new(S::CONFLICT, detail)
            .header(names::STREAM_CLOSED, headers::TRUE)
            .header(names::STREAM_NEXT_OFFSET, headers::offset_value(next)),
        StreamError::SeqConflict => Parts::new(S::CONFLICT, detail).field("Stream-Seq"),
        StreamError::ProducerFenced { epoch } => {
            Parts::new(S::FORBIDDEN, detail).field("Producer-Epoch").header(names::PRODUCER_EPOCH, epoch)
        }
        StreamError::ProducerGap { expected, received } => Parts::new(S::CONFLICT, detail)
            .field("Producer-Seq")
            .header(names::PRODUCER_EXPECTED_SEQ, expected)
            .header(names::PRODUCER_RECEIVED_SEQ, received),
        StreamError::ProducerStart => Parts::new(S::BAD_REQUEST, detail).field("Producer-Seq"),
        StreamError::Invalid(_) => Parts::new(S::BAD_REQUEST, detail).field("body"),
        StreamError::TooLarge { max } => too_large(max),
        StreamError::BeforeStart { start: _ } => Parts::new(S::GONE, detail).field("offset"),
        StreamError::Fork(error) => fork(&error, detail),
        StreamError::Limit(_) => Parts::new(S::TOO_MANY_REQUESTS, detail).header(RETRY_AFTER, LIMIT_RETRY_S),
        StreamError::Unavailable { why, retry_after_s } => {
            Parts::new(S::SERVICE_UNAVAILABLE, why).header(RETRY_AFTER, retry_after_s.max(1))
        }
        // Nobody sent the request on.
        StreamError::Elsewhere { owner: _ } => {
            Parts::new(S::SERVICE_UNAVAILABLE, detail).header(RETRY_AFTER, BUSY_RETRY_S)
        }
        StreamError::OutcomeUnknown => Parts::new(
            S::GATEWAY_TIMEOUT,
            "the outcome is not known: the request may or may not have taken effect. Only an idempotent producer may repeat it blindly",
        ),
    }
}

fn fork(error: &ForkError, detail: String) -> Parts {
    use StatusCode as S;
    let (status, field) = match error {
        ForkError::SourceMissing => (S::NOT_FOUND, "Stream-Forked-From"),
        ForkError::SourceDeleted => (S::CONFLICT, "Stream-Forked-From"),
        ForkError::TypeMismatch { expected: _ } => (S::CONFLICT, "Content-Type"),
        ForkError::BeyondTail { tail: _ } => (S::BAD_REQUEST, "Stream-Fork-Offset"),
        ForkError::SubBeyondTail { left: _ } => (S::BAD_REQUEST, "Stream-Fork-Sub-Offset"),
        ForkError::TooManyExtents { extents: _, max: _ } => (S::CONFLICT, "Stream-Fork-Offset"),
    };
    Parts::new(status, detail).field(field)
}

/// The form that the protocol gives errors of control requests.
fn control_not_found() -> Response<Body> {
    let text = r#"{"error":{"code":"NOT_FOUND","message":"no such control resource; names beginning with the segment __ds are reserved"}}"#;
    let mut response = Response::new(Body::from_static(text.as_bytes()));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;
