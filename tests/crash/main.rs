//! Crash tests: whatever ends a process, and whatever the bucket does meanwhile, I2, I3 and I4 hold.
//!
//! `WEIR_CRASH_ROUNDS` is the number of rounds in all (200); `WEIR_SEED` replays a failure's choices.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code stands outside of the node's doors to time, sockets and tasks"
)]

mod bucket;
mod damage;
mod points;
mod rounds;
mod s3;
