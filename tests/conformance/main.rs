//! Clients that others wrote, against a real node: the protocol's public suite, its TypeScript client, a client in
//! Python, curl as the README has it, and Chromium on the admin listener's page. Against one node, and against three
//! through one that owns nothing.
//!
//! They need what `.ci/setup tests` installs, so `make conformance` runs them and a bare `cargo test` passes them over;
//! told to run, they fail without it.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code stands outside of the node's doors to time, sockets and tasks"
)]

mod page;
mod python;
mod stranger;
mod suite;
mod tour;
mod vitest;
