//! Errors of the admin API as problem details (RFC 9457).
//!
//! Invariant: the one place where an admin error gets its status; every kind has a stable code. Used by all of `admin`.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use weir_api::admin::Problem;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("there is nothing at {0:?}")]
    NoSuchPath(String),
    #[error("{method} is not among the methods here: {allowed}")]
    MethodNotAllowed { method: String, allowed: &'static str },
    #[error("give a valid token as `Authorization: Bearer TOKEN`")]
    Unauthorized,
    #[error(
        "without a token this listener answers only requests to an IP address or localhost, not to {0:?}"
    )]
    ForeignHost(String),
    #[error("this listener answers no requests of web pages of another origin, such as {0:?}")]
    ForeignOrigin(String),
    #[error("the token file cannot be used: {0}")]
    Tokens(String),
    #[error("send the body as application/json")]
    MediaType,
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the body did not arrive in {0} s")]
    TooSlow(u64),
    #[error("{0}")]
    BadBody(String),
    #[error("the query is {0:?}; hash=true is allowed")]
    BadQuery(String),
    #[error("{0}")]
    NotStoppedThere(String),
    #[error("{0}")]
    BadNodeId(String),
    #[error("{0:?} is no percent-encoded UTF-8 name")]
    BadStreamName(String),
    #[error("{0}")]
    NoSuchNode(String),
    #[error("{0}")]
    OtherEpoch(String),
    #[error("{0}")]
    NodeAlive(String),
    #[error("no stream has the name {0:?}")]
    NoSuchStream(String),
    #[error("generation {known} of this resource has set the slots already")]
    OlderGeneration { known: u64 },
    #[error(
        "node {0} has streams, and no other node could take them: none is alive, not draining and has slots; start another node or give one slots first"
    )]
    LastNode(String),
    #[error("node {node} takes no streams: {why}; name one that is alive, not draining and has slots")]
    NotEligible { node: String, why: String },
    #[error("the stream is on its way to node {0} already; abort that first (DELETE), or wait for it")]
    TransferPending(String),
    #[error("no transfer of {stream:?} to node {node} is pending")]
    NoSuchTransfer { stream: String, node: String },
    #[error("session {0} has ended and is not recovered yet; wait for that")]
    AwaitingRecovery(String),
    #[error("the cluster is not founded yet")]
    NotFounded,
    #[error("{0}")]
    Unavailable(String),
    #[error("the metadata log has not said whether it took the change; send it again")]
    OutcomeUnknown,
    #[error("{0}")]
    Refused(String),
}

impl From<crate::tokens::Denied> for Error {
    fn from(denied: crate::tokens::Denied) -> Self {
        match denied {
            crate::tokens::Denied::Unauthorized => Self::Unauthorized,
            crate::tokens::Denied::File(why) => Self::Tokens(why),
        }
    }
}

impl Error {
    /// Status, code, title.
    fn kind(&self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Self::NoSuchPath(_) => (S::NOT_FOUND, "no-such-path", "No such path"),
            Self::MethodNotAllowed { .. } => {
                (S::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed")
            }
            Self::Unauthorized => (S::UNAUTHORIZED, "unauthorized", "No valid token"),
            Self::ForeignHost(_) => (S::MISDIRECTED_REQUEST, "foreign-host", "Foreign host"),
            Self::ForeignOrigin(_) => (S::FORBIDDEN, "foreign-origin", "Foreign origin"),
            Self::Tokens(_) => (S::SERVICE_UNAVAILABLE, "no-tokens", "No tokens to compare with"),
            Self::MediaType => (S::UNSUPPORTED_MEDIA_TYPE, "media-type", "Unsupported media type"),
            Self::TooLarge(_) => (S::PAYLOAD_TOO_LARGE, "too-large", "Body too large"),
            Self::TooSlow(_) => (S::REQUEST_TIMEOUT, "too-slow", "Body too slow"),
            Self::BadBody(_) => (S::BAD_REQUEST, "bad-body", "Body not understood"),
            Self::BadQuery(_) => (S::BAD_REQUEST, "bad-query", "Query not understood"),
            Self::NotStoppedThere(_) => {
                (S::CONFLICT, "not-stopped-there", "Not what the recovery stopped on")
            }
            Self::BadNodeId(_) => (S::BAD_REQUEST, "bad-node-id", "Not a node id"),
            Self::BadStreamName(_) => (S::BAD_REQUEST, "bad-stream-name", "Not a stream name"),
            Self::NoSuchNode(_) => (S::NOT_FOUND, "no-such-node", "No such node"),
            Self::OtherEpoch(_) => (S::CONFLICT, "other-epoch", "Another epoch is registered"),
            Self::NodeAlive(_) => (S::CONFLICT, "node-alive", "The node is alive"),
            Self::NoSuchStream(_) => (S::NOT_FOUND, "no-such-stream", "No such stream"),
            Self::OlderGeneration { .. } => (S::CONFLICT, "older-generation", "Older generation"),
            Self::LastNode(_) => (S::CONFLICT, "last-node", "Last node"),
            Self::NotEligible { .. } => (S::CONFLICT, "not-eligible", "Node takes no streams"),
            Self::TransferPending(_) => (S::CONFLICT, "transfer-pending", "Another transfer is pending"),
            Self::NoSuchTransfer { .. } => (S::NOT_FOUND, "no-such-transfer", "No such transfer"),
            Self::AwaitingRecovery(_) => (S::CONFLICT, "awaiting-recovery", "Awaiting recovery"),
            Self::NotFounded => (S::SERVICE_UNAVAILABLE, "not-founded", "Not founded"),
            Self::Unavailable(_) => (S::SERVICE_UNAVAILABLE, "unavailable", "Not possible now"),
            Self::OutcomeUnknown => (S::GATEWAY_TIMEOUT, "outcome-unknown", "Outcome unknown"),
            Self::Refused(_) => (S::CONFLICT, "refused", "Refused"),
        }
    }

    pub(super) fn response(&self) -> Response<Full<Bytes>> {
        let (status, code, title) = self.kind();
        let problem = Problem {
            r#type: format!("https://weir.dev/problems/{code}"),
            code: code.to_owned(),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: self.to_string(),
        };
        let mut response = json(status, &problem);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Self::MethodNotAllowed { allowed, .. } = self {
            headers.insert(ALLOW, HeaderValue::from_static(allowed));
        }
        if *self == Self::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// A JSON answer; never stored, since all of it is of the moment.
pub(super) fn json(status: StatusCode, body: &impl serde::Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(body).expect("the API's types have text keys and finite numbers");
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
