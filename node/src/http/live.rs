//! Long-polls, and the cursor that keeps caches from looping (event streams are in `sse`).
//!
//! Invariant: who waits is counted and bounded; a waiter is answered when data comes, the stream closes, its time is
//! over, or the node stops. Cursors need no state, so any node may answer the next request. Called by `read`.

use std::time::Duration;

use http::header::CACHE_CONTROL;
use http::{HeaderValue, Response, StatusCode};
use tokio::time::timeout;

use super::body::Body;
use super::error::Reject;
use super::headers::names;
use super::paths::ReadQuery;
use super::{App, Received, read};
use crate::clock;
use crate::metrics::LiveKind;
use crate::streams::{ReadChunk, ReadFrom, StreamName};

/// 2024-10-09T00:00:00Z, where the protocol begins to count.
const CURSOR_EPOCH_MS: u64 = 1_728_432_000_000;
const CURSOR_INTERVAL_S: u64 = 20;
const MAX_JITTER_S: u64 = 3600;

/// The cursor of an answer at `wall_ms`: the number of the current interval, or, if the client has that already,
/// something beyond its own, spread by `random` so that clients in step fall out of step.
pub(super) fn cursor(wall_ms: u64, client: Option<u64>, random: u64) -> u64 {
    let now = wall_ms.saturating_sub(CURSOR_EPOCH_MS) / (CURSOR_INTERVAL_S * 1000);
    match client {
        // What could not be exceeded is not from here.
        Some(theirs) if theirs >= now && theirs < u64::MAX / 2 => {
            let jitter_s = 1 + random % MAX_JITTER_S;
            theirs.saturating_add(jitter_s.div_ceil(CURSOR_INTERVAL_S))
        }
        _ => now,
    }
}

/// Answers a GET with `live=long-poll`.
pub(super) async fn long_poll(
    r: &Received<'_>,
    name: &StreamName,
    query: &ReadQuery,
) -> Result<Response<Body>, Reject> {
    let app = r.app;
    let found = match app.waiters.try_acquire() {
        Ok(_place) => {
            let _counted = app.metrics.live_reader(LiveKind::LongPoll);
            wait(app, name, query.from()).await?
        }
        // No place to wait, but what is there already needs none.
        Err(_full) => {
            let read = app.streams.read(name, query.from(), app.limits.max_read_chunk);
            let found = app.reading(read).await?;
            if found.parts.is_empty() && !found.closed {
                return Err(Reject::Busy("as many live readers are at this node as it allows"));
            }
            found
        }
    };
    let mut response = match query.from() {
        _ if found.parts.is_empty() => nothing(&found),
        // What came after "now" is not what comes after the next one's: no cache may keep it.
        ReadFrom::Now => read::news(found),
        ReadFrom::Start | ReadFrom::At(_) => read::chunk(r, found),
    };
    let next = cursor(app.clock.wall_ms(), query.cursor, clock::random_u64());
    response.headers_mut().insert(names::STREAM_CURSOR, next.into());
    Ok(response)
}

async fn wait(app: &App, name: &StreamName, from: ReadFrom) -> Result<ReadChunk, Reject> {
    let look = |time| app.streams.wait(name, from, app.limits.max_read_chunk, time);
    let waiting = app.reading_for(app.limits.long_poll, look(app.limits.long_poll));
    tokio::select! {
        found = waiting => found,
        // The node stops: say what is known now, the client asks again elsewhere.
        () = app.stop.cancelled() => {
            let last = app.reading(look(Duration::ZERO));
            timeout(app.limits.shutdown_grace / 2, last).await.unwrap_or(Err(Reject::ReadTimeout))
        }
    }
}

fn nothing(found: &ReadChunk) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let out = response.headers_mut();
    out.reserve(12);
    read::progress(out, found);
    out.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: u64 = CURSOR_EPOCH_MS + 1_000 * CURSOR_INTERVAL_S * 1000;

    #[test]
    fn a_cursor_counts_intervals_of_20_s_since_october_2024() {
        assert_eq!(cursor(CURSOR_EPOCH_MS, None, 7), 0);
        assert_eq!(cursor(CURSOR_EPOCH_MS + 19_999, None, 7), 0);
        assert_eq!(cursor(CURSOR_EPOCH_MS + 20_000, None, 7), 1);
        assert_eq!(cursor(NOW, None, 7), 1_000);
        assert_eq!(cursor(NOW, Some(999), 7), 1_000, "an old cursor is simply replaced");
        assert_eq!(cursor(0, None, 7), 0, "a clock before the epoch");
    }

    #[test]
    fn a_cursor_goes_beyond_one_that_is_not_old() {
        assert_eq!(cursor(NOW, Some(1_000), 0), 1_001);
        assert_eq!(cursor(NOW, Some(1_000), 19), 1_001);
        assert_eq!(cursor(NOW, Some(1_000), 20), 1_002);
        assert_eq!(cursor(NOW, Some(5_000), 3599), 5_180);
    }

    proptest! {
        #[test]
        fn a_cursor_never_goes_back(wall in any::<u64>(), theirs in 0..u64::MAX / 2, random: u64) {
            let next = cursor(wall, Some(theirs), random);
            let now = cursor(wall, None, 0);
            prop_assert!(next > theirs && next >= now);
            prop_assert!(next == now || next <= theirs + MAX_JITTER_S / CURSOR_INTERVAL_S);
        }
    }
}
