//! Why a command stops, as its user hears of it: what happened, and what to do next.
//!
//! Invariant: every failure of a client command passes here, so that one kind has one code and one wording.

use http::StatusCode;

use super::exit::ExitCode;
use crate::client::Failure;
use crate::client::failure::Refused;
use crate::client::streams::is_gone;

/// The end of a command that did not do all that it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) code: ExitCode,
    pub(super) message: String,
    /// What to do next; a line of its own.
    pub(super) hint: Option<String>,
    /// What else there is to say, behind that.
    pub(super) last: Option<String>,
}

impl Stop {
    pub(super) fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, last: None }
    }

    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Usage, message)
    }

    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Whoever read the output has gone: nothing to say.
    pub(super) fn unread() -> Self {
        Self::new(ExitCode::Ok, "")
    }

    /// What came of a request about the stream `name`.
    pub(super) fn about(name: &str, failure: Failure) -> Self {
        match failure {
            Failure::Refused(r) => refused(name, &r),
            Failure::Unavailable(why) => Self::new(ExitCode::Unavailable, why).hint(
                "is a node running there? Start one with: weir serve; or name another with --server or WEIR_SERVER",
            ),
            Failure::Unknown(why) => Self::new(ExitCode::Unknown, format!("outcome unknown: {why}"))
                .hint("the same command can be repeated without harm"),
            Failure::Nonsense(why) => Self::new(ExitCode::Failure, why),
        }
    }

    /// The same for an append, which cannot always be repeated.
    pub(super) fn about_append(name: &str, failure: Failure, produced: bool) -> Self {
        match failure {
            // The stream was closed, say, or its producer fenced, after the try whose answer was lost.
            Failure::Refused(r) if r.repeated => {
                let Self { message, .. } = refused(name, &r);
                Self::new(
                    ExitCode::Unknown,
                    format!("outcome unknown: a try without an answer may have taken effect before this: {message}"),
                )
                .hint(format!("look at the end of it: weir tail {} --last N", quoted(name)))
            }
            Failure::Unknown(why) if !produced => Self::new(
                ExitCode::Unknown,
                format!("outcome unknown: {why}"),
            )
            .hint(format!(
                "it may or may not be in {name}; an append with --producer ID can be repeated without harm"
            )),
            other => Self::about(name, other),
        }
    }

    /// The same for the admin API.
    pub(super) fn about_admin(failure: Failure) -> Self {
        match failure {
            Failure::Refused(r) if r.status == StatusCode::UNAUTHORIZED => {
                Self::new(ExitCode::Denied, r.to_string())
                    .hint("name the file that holds it with --token-file or WEIR_ADMIN_TOKEN_FILE")
            }
            Failure::Refused(r) => {
                let code = if is_gone(&r) { ExitCode::NotFound } else { ExitCode::Refused };
                Self::new(code, r.to_string())
            }
            Failure::Unavailable(why) => Self::new(ExitCode::Unavailable, why).hint(
                "is a node running, and its admin listener there? Name another with --admin or WEIR_ADMIN",
            ),
            other => Self::about("", other),
        }
    }
}

/// Whether a refusal says that the stream has ended.
pub(super) fn says_closed(r: &Refused) -> bool {
    r.status == StatusCode::CONFLICT && r.header("stream-closed").is_some_and(|v| v == "true")
}

fn refused(name: &str, r: &Refused) -> Stop {
    let stop = |code, message: String| Stop::new(code, message);
    match r.status {
        StatusCode::NOT_FOUND => stop(ExitCode::NotFound, format!("no such stream: {name}"))
            .hint(format!("create it with: weir create {}", quoted(name))),
        StatusCode::GONE if r.field.as_deref() == Some("offset") => {
            stop(ExitCode::NotFound, format!("{name}: {r}")).hint("read what is kept with: --offset -1")
        }
        StatusCode::GONE => stop(ExitCode::NotFound, format!("{name}: {r}")),
        StatusCode::CONFLICT if says_closed(r) => {
            stop(ExitCode::Closed, format!("{name} is closed: it takes no more"))
                .hint(format!("read it with: weir read {}", quoted(name)))
        }
        StatusCode::UNAUTHORIZED => stop(ExitCode::Denied, format!("{name}: {r}")),
        StatusCode::FORBIDDEN if r.header("producer-epoch").is_some() => {
            let epoch = r.header("producer-epoch").unwrap_or_default();
            stop(ExitCode::Refused, format!("{name}: {r}: epoch {epoch}")).hint(format!(
                "to go on as that epoch: --producer-epoch {epoch}; to begin anew: a higher one"
            ))
        }
        StatusCode::PAYLOAD_TOO_LARGE => {
            stop(ExitCode::Refused, format!("{name}: {r}")).hint("send less at once: --batch-size SIZE")
        }
        _ => stop(ExitCode::Refused, format!("{name}: {r}")),
    }
}

/// A name as a shell takes it.
pub(super) fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    #[test]
    fn a_refusal_behind_a_try_that_may_have_taken_effect_is_an_unknown_outcome() {
        let closed =
            HeaderMap::from_iter([("stream-closed".parse().unwrap(), HeaderValue::from_static("true"))]);
        let stop = |repeated| {
            let mut refused = Refused::new(StatusCode::CONFLICT, closed.clone(), b"");
            refused.repeated = repeated;
            Stop::about_append("s", Failure::Refused(Box::new(refused)), true)
        };
        assert_eq!(stop(false).code, ExitCode::Closed);
        let unknown = stop(true);
        assert_eq!(unknown.code, ExitCode::Unknown);
        assert!(unknown.message.contains("outcome unknown") && unknown.message.contains("s is closed"));
    }

    #[test]
    fn names_are_quoted_where_a_shell_needs_it() {
        for (name, shown) in
            [("a/b-1", "a/b-1"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("-x", "'-x'"), ("$a", "'$a'")]
        {
            assert_eq!(quoted(name), shown);
        }
    }
}
