//! GET with `live=sse`: a stream as server-sent events, as long as the connection lasts.
//!
//! Invariant: what is wrong is answered with its status before the first event; after it nothing can go wrong but the
//! end of the response, from which a client goes on by the offset of its last control event. Readers are counted and
//! bounded. Called by `read`.
//!
//! `encode` is the bytes of events, `share` lets readers at one offset send the same bytes, `events` is one reader.

mod encode;
mod events;
#[cfg(test)]
pub(super) mod parse;
mod share;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response};

use self::encode::Coding;
use self::events::{Events, Place};
pub(super) use self::share::Shelves;
use super::body::Body;
use super::error::Reject;
use super::paths::ReadQuery;
use super::{Received, live};
use crate::clock;
use crate::metrics::LiveKind;
use crate::streams::StreamName;

const DATA_ENCODING: HeaderName = HeaderName::from_static("stream-sse-data-encoding");
/// Asks proxies of the nginx kind to pass events on as they come.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Answers with events from the query's offset on.
pub(super) async fn follow(
    r: &Received<'_>,
    name: &StreamName,
    query: &ReadQuery,
) -> Result<Response<Body>, Reject> {
    let app = r.app;
    let full = |_e| Reject::Busy("as many live readers are at this node as it allows");
    let permit = app.waiters.clone().try_acquire_owned().map_err(full)?;
    let following = app.streams.follow(name, query.from(), events::CHUNK);
    let (follower, first) = app.reading(following).await?;
    let coding = Coding::of(&first.info.config);
    let place = Place {
        streams: follower,
        shelf: app.shelves.get(first.info.id),
        clock: app.clock.clone(),
        cursor: live::cursor(app.clock.wall_ms(), query.cursor, clock::random_u64()),
        lifetime: jittered(app.limits.sse_lifetime, clock::random_u64()),
        keep_alive: app.limits.sse_keep_alive,
        patience: app.limits.request_timeout,
        counted: (permit, app.metrics.live_reader(LiveKind::Sse)),
    };
    let mut response = Response::new(Body::live(Events::begin(place, coding, first)));
    let out = response.headers_mut();
    out.reserve(12);
    out.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // The first for proxies that only then do not buffer, the second for caches.
    out.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store"));
    out.insert(BUFFERING, HeaderValue::from_static("no"));
    if coding == Coding::Base64 {
        out.insert(DATA_ENCODING, HeaderValue::from_static("base64"));
    }
    Ok(response)
}

/// Up to a fifth more or less, so that readers who came together do not come back together.
fn jittered(time: std::time::Duration, random: u64) -> std::time::Duration {
    let permille = 800 + random % 401;
    time.mul_f64(f64::from(u32::try_from(permille).unwrap_or(1000)) / 1000.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lifetimes_differ_by_a_fifth_at_most() {
        let minute = Duration::from_secs(60);
        assert_eq!(jittered(minute, 0), Duration::from_secs(48));
        assert_eq!(jittered(minute, 200), minute);
        assert_eq!(jittered(minute, 400), Duration::from_secs(72));
        assert_eq!(jittered(minute, u64::MAX), jittered(minute, u64::MAX % 401));
    }
}
