//! Why a request has no good answer, as what the caller can do about it.
//!
//! Invariant: `Unavailable` means that nothing was changed; when it may have been, it is `Unknown`.

use http::{HeaderMap, StatusCode};
use serde::Deserialize;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server refuses this request; repeated, it would again.
    #[error(transparent)]
    Refused(Box<Refused>),
    /// No server, or none that could do it, within the time; nothing was changed.
    #[error("{0}")]
    Unavailable(String),
    /// It may or may not have taken effect.
    #[error("{0}")]
    Unknown(String),
    /// The answer does not follow the protocol.
    #[error("{0}")]
    Nonsense(String),
}

/// A refusal as the server worded it.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.said())]
pub struct Refused {
    /// Its status.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: HeaderMap,
    /// The problem's detail, or the text of the body.
    pub detail: String,
    /// The header, parameter or part at fault.
    pub field: Option<String>,
    /// An earlier try of the same request may have taken effect: what is refused may be its own doing.
    pub repeated: bool,
}

#[derive(Deserialize)]
struct Problem {
    detail: Option<String>,
    field: Option<String>,
}

/// Longest text of an error shown.
const DETAIL_MAX: usize = 500;

impl Refused {
    pub(crate) fn new(status: StatusCode, headers: HeaderMap, body: &[u8]) -> Self {
        let problem =
            serde_json::from_slice::<Problem>(body).unwrap_or(Problem { detail: None, field: None });
        let text = || String::from_utf8_lossy(body).into_owned();
        let detail = printable(problem.detail.unwrap_or_else(text).trim(), DETAIL_MAX);
        let field = problem.field.map(|f| printable(&f, 100));
        Self { status, headers, detail, field, repeated: false }
    }

    fn said(&self) -> String {
        match (&self.field, self.detail.is_empty()) {
            (_, true) => format!("the server answers {}", self.status),
            (Some(field), false) if !self.detail.contains(field.as_str()) => {
                format!("{field}: {}", self.detail)
            }
            _ => self.detail.clone(),
        }
    }

    /// A header's text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }
}

/// Text from a server made fit for a terminal: no control characters, bounded.
pub fn printable(text: &str, max: usize) -> String {
    let safe = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut shown: String = text.chars().take(max).map(safe).collect();
    if text.chars().nth(max).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(body: &str) -> String {
        Refused::new(StatusCode::CONFLICT, HeaderMap::new(), body.as_bytes()).to_string()
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_words() {
        assert_eq!(said(r#"{"detail": "the stream is closed"}"#), "the stream is closed");
        assert_eq!(said(r#"{"detail": "must be x", "field": "Stream-TTL"}"#), "Stream-TTL: must be x");
        assert_eq!(said(r#"{"detail": "Stream-TTL is y", "field": "Stream-TTL"}"#), "Stream-TTL is y");
        assert_eq!(said("plain text\n"), "plain text");
        assert_eq!(said(""), "the server answers 409 Conflict");
        assert_eq!(said("a\u{1b}[2Jb"), "a\u{fffd}[2Jb");
        assert_eq!(said(&"x".repeat(600)).chars().count(), 501);
    }
}
