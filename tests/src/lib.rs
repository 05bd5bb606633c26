//! The harness: starts nodes as processes, loads them, breaks them, and checks what clients were promised.
//!
//! Invariant: everything waits on conditions, nothing on time alone; every random choice follows from a seed that a
//! failure prints; and the judge ([`checker`]) knows only what clients saw ([`history`]), never a node's inside.
//!
//! ```text
//! e2e, crash, faults → rounds → load → recorded → {client, history} ; checker → {history, record}
//! faults, kubernetes → writers → recorded; → figures
//! {cluster, doors} → node, s3, wal, files, raw, cli, front, gate
//! ```

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "the harness is test code and stands outside of the node's doors to time, sockets and tasks"
)]

pub mod browser;
pub mod checker;
pub mod cli;
pub mod client;
pub mod cluster;
pub mod doors;
pub mod figures;
pub mod files;
pub mod front;
pub mod gate;
pub mod history;
pub mod live;
pub mod load;
pub mod meaning;
pub mod node;
pub mod raw;
pub mod record;
pub mod recorded;
pub mod rng;
pub mod rounds;
pub mod s3;
pub mod wait;
pub mod wal;
pub mod writers;
