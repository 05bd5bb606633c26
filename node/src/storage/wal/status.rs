//! What a WAL pipeline may hold, and what it says of itself.

use std::time::Duration;

/// Bounds and pace. `config` fills it.
#[derive(Debug, Clone)]
pub struct WalLimits {
    /// Frames are packed into objects of at most this many bytes; a larger frame gets one of its own.
    pub object_bytes: u64,
    /// From this many waiting bytes on a second put starts beside the first.
    pub second_put_bytes: u64,
    /// How old the oldest waiting append gets before a second put starts; `None`: twice the measured put time.
    pub interval: Option<Duration>,
    /// What is not yet in segments, at most, in bytes.
    pub backlog_bytes: u64,
    /// The same in objects. A WAL whose recovery pays only per byte counts an object per
    /// `backlog_bytes / backlog_objects` bytes instead, so that both bounds mean the same work.
    pub backlog_objects: u64,
    /// Once a put has failed for this long, no new appends are taken until one succeeds.
    pub stall_after: Duration,
    /// Over a local disk whose puts take less on average, an append alone puts for itself.
    pub alone_below: Duration,
}

impl Default for WalLimits {
    fn default() -> Self {
        Self {
            object_bytes: 8 << 20,
            second_put_bytes: 1 << 20,
            interval: None,
            backlog_bytes: 256 << 20,
            backlog_objects: 4096,
            stall_after: Duration::from_secs(2),
            alone_below: Duration::from_micros(250),
        }
    }
}

/// A pipeline's state, for `/readyz`, `/metrics` and whoever decides when to build a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalStatus {
    /// Bytes not yet in segments, appends that still wait included.
    pub backlog_bytes: u64,
    /// Objects not yet in segments (see [`WalLimits::backlog_objects`] for what counts as one).
    pub backlog_objects: u64,
    /// The bounds of both.
    pub max_bytes: u64,
    /// See `max_bytes`.
    pub max_objects: u64,
    /// Appends that are not durable yet.
    pub waiting: u64,
    /// How long the oldest of them has waited.
    pub oldest_waiting: Option<Duration>,
    /// What the oldest failing put last met, and for how long it has been failing.
    pub error: Option<(String, Duration)>,
    /// New appends are refused because of `error`.
    pub stalled: bool,
    /// Everything below is durable: the number after the last object in the unbroken row.
    pub durable_below: u64,
    /// Puts tried, failed ones included.
    pub puts: u64,
    /// Objects made durable.
    pub objects: u64,
    /// Appends made durable.
    pub frames: u64,
    /// Moving average of a successful put's time.
    pub put_time: Duration,
    /// The session was fenced by a seal.
    pub sealed: bool,
    /// The WAL can not go on; the process must end.
    pub failed: Option<String>,
}
