//! End-to-end tests against real processes: one file per promise.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code stands outside of the node's doors to time, sockets and tasks"
)]

mod calm;
mod cli;
mod cluster;
mod dev;
mod disk;
mod expiry;
mod identity;
mod idle;
mod instant;
mod limits;
mod live;
mod metrics;
mod moves;
mod nodes;
mod outage;
mod placement;
mod protocol;
mod routing;
mod s3;
mod shutdown;
mod steady;
mod takeover;
