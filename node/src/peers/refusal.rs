//! Why a call was not carried out, as both sides name it.
//!
//! Invariant: a code keeps its meaning; one that is not known reads as `Failed`. Written by `server`, read by callers.

use std::fmt;

use http::response::Parts;
use http::{HeaderValue, StatusCode};

/// The header that carries the code.
pub(super) const HEADER: &str = "weir-refusal";
/// Bytes of a refusal's text that are kept.
const TEXT_MAX: usize = 1024;

/// The kind of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCode {
    /// No secret, or another.
    Unauthorized,
    /// The other side is of another cluster; the text names both.
    OtherCluster,
    /// The other side's cluster was restored from its bucket since, or this one's.
    Generation,
    /// Not a call this node answers (now).
    NoSuchCall,
    /// The body is above its bound.
    TooLarge,
    /// The other side has too much to do: later.
    Busy,
    /// The other side does not serve yet, or no longer: later, or elsewhere.
    NotReady,
    /// The bytes make no sense.
    Malformed,
    /// Anything else.
    Failed,
}

const CODES: [(RefusalCode, &str, StatusCode); 9] = [
    (RefusalCode::Unauthorized, "unauthorized", StatusCode::UNAUTHORIZED),
    (RefusalCode::OtherCluster, "other-cluster", StatusCode::CONFLICT),
    (RefusalCode::Generation, "generation", StatusCode::CONFLICT),
    (RefusalCode::NoSuchCall, "no-such-call", StatusCode::NOT_FOUND),
    (RefusalCode::TooLarge, "too-large", StatusCode::PAYLOAD_TOO_LARGE),
    (RefusalCode::Busy, "busy", StatusCode::SERVICE_UNAVAILABLE),
    (RefusalCode::NotReady, "not-ready", StatusCode::SERVICE_UNAVAILABLE),
    (RefusalCode::Malformed, "malformed", StatusCode::BAD_REQUEST),
    (RefusalCode::Failed, "failed", StatusCode::INTERNAL_SERVER_ERROR),
];

/// A refusal: for machines and for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The kind.
    pub code: RefusalCode,
    /// This case.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.code.name())
    }
}

impl RefusalCode {
    fn row(self) -> (&'static str, StatusCode) {
        let row = CODES.iter().find(|(code, ..)| *code == self);
        row.map_or(("failed", StatusCode::INTERNAL_SERVER_ERROR), |(_, name, status)| (name, *status))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    pub(super) fn status(self) -> StatusCode {
        self.row().1
    }
}

impl Refusal {
    /// A refusal.
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    pub(super) fn header(&self) -> HeaderValue {
        HeaderValue::from_static(self.code.name())
    }

    /// The refusal that an answer is; `None` if it is none.
    pub(super) fn from_answer(head: &Parts, body: &[u8]) -> Option<Self> {
        if head.status == StatusCode::OK {
            return None;
        }
        let name = head.headers.get(HEADER).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let known = CODES.iter().find(|(_, known, _)| *known == name).map(|(code, ..)| *code);
        let text = String::from_utf8_lossy(&body[..body.len().min(TEXT_MAX)]).into_owned();
        Some(match known {
            Some(code) => Self { code, text },
            None => Self::new(RefusalCode::Failed, format!("status {}: {text}", head.status)),
        })
    }
}
