//! `weir bench`: load for any server of the Durable Streams protocol, and what came of it.
//!
//! Invariant: the client costs less than the server it measures: requests are built once, a connection is one task over
//! one socket, and the parser reads of an answer what the load needs. What a run reports it has counted itself, after
//! the warm-up, on one clock. Called by `cli::bench` and by the comparison (`examples/compare`).
//!
//! One load a file (`append`, `read`, `tail`, `create`, `mixed`, `absent`); `wire` is the HTTP client, `meter` counts, `content`
//! makes records that can be told apart, `verify` reads them back, `report` and `plot` show the outcome.

pub mod absent;
pub mod append;
pub mod content;
pub mod create;
pub mod meter;
pub mod mixed;
pub mod plot;
pub mod read;
pub mod report;
mod setup;
pub mod tail;
mod verify;
mod wire;

use std::time::Duration;

pub use report::Report;
pub use wire::Target;

/// What every load has in common.
#[derive(Debug, Clone)]
pub struct Common {
    /// The server.
    pub target: Target,
    /// Connections, one task each.
    pub connections: usize,
    /// Measured for this long …
    pub duration: Duration,
    /// … or until so many operations are done, whichever is first.
    pub count: Option<u64>,
    /// Not measured, before that.
    pub warmup: Duration,
    /// For one answer.
    pub timeout: Duration,
    /// Leave the streams on the server.
    pub keep: bool,
}

/// Why a load could not run, or was given up.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// What was asked for cannot be.
    #[error("{0}")]
    Usage(String),
    /// The server did not do its part before the measurement.
    #[error("{0}")]
    Server(String),
}

/// This many failures in a row on one connection, and it gives up.
const PATIENCE: u32 = 20;
/// Between a failure and the next try.
const PAUSE: Duration = Duration::from_millis(20);
