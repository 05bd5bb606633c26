//! When a request is tried again.
//!
//! Invariant: pure; a pause grows from one try to the next, is spread at random, is never shorter than the server asked
//! for, and never reaches beyond the end of the caller's patience. Used by `send` and by readers that follow.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);
/// No server is believed that wants more.
const ASKED_MAX: Duration = Duration::from_secs(3600);

/// The pause before try number `tries` + 1: doubling, spread over its upper half by `random`; at least what was asked.
pub fn pause(tries: u32, asked: Option<Duration>, random: u64) -> Duration {
    let full = FIRST.saturating_mul(1 << tries.min(16)).min(LONGEST);
    let half = u64::try_from(full.as_millis()).unwrap_or(u64::MAX) / 2;
    let spread = Duration::from_millis(half + random % (half + 1));
    spread.max(asked.unwrap_or(Duration::ZERO))
}

/// `Retry-After` in seconds. (Its other form, a date, would need clocks that agree.)
pub(super) fn asked(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(ASKED_MAX))
}

/// What a status says about trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// An answer, good or bad.
    Final,
    /// Nothing was done: the same request may be sent again.
    Later,
    /// It may have been done.
    Unknown,
}

pub(super) fn verdict(status: StatusCode) -> Verdict {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Verdict::Later,
        // What else a server or a proxy cannot help with; 501 and 505 would stay as they are.
        StatusCode::INTERNAL_SERVER_ERROR | StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => {
            Verdict::Unknown
        }
        _ => Verdict::Final,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_are_spread() {
        let ms = |tries, random| pause(tries, None, random).as_millis();
        assert_eq!((ms(0, 0), ms(0, 25)), (25, 50));
        assert_eq!((ms(1, 0), ms(2, 0)), (50, 100));
        assert_eq!((ms(30, 0), ms(u32::MAX, 1000)), (1000, 2000));
        for random in 0..100 {
            assert!((25..=50).contains(&ms(0, random)), "{random}");
        }
    }

    #[test]
    fn a_pause_is_never_shorter_than_asked_for() {
        let asked_s = |s| Some(Duration::from_secs(s));
        assert_eq!(pause(0, asked_s(3), 7), Duration::from_secs(3));
        assert_eq!(pause(9, asked_s(0), 0), Duration::from_secs(1));
    }

    #[test]
    fn retry_after_is_a_bounded_number_of_seconds() {
        let of = |text| {
            asked(&HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))])).map(|d| d.as_secs())
        };
        assert_eq!((of("2"), of(" 10 "), of("999999999999")), (Some(2), Some(10), Some(3600)));
        for text in ["", "-1", "1.5", "Fri, 31 Dec 1999 23:59:59 GMT"] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(asked(&HeaderMap::new()), None);
    }

    #[test]
    fn only_statuses_that_promise_it_mean_that_nothing_was_done() {
        for (status, is) in [
            (200, Verdict::Final),
            (404, Verdict::Final),
            (408, Verdict::Final),
            (429, Verdict::Later),
            (500, Verdict::Unknown),
            (501, Verdict::Final),
            (502, Verdict::Unknown),
            (503, Verdict::Later),
            (504, Verdict::Unknown),
        ] {
            assert_eq!(verdict(StatusCode::from_u16(status).unwrap()), is, "{status}");
        }
    }
}
