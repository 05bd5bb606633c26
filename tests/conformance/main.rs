//! Clients that others wrote, against a real node: the protocol's public suite, its TypeScript client, curl as the README has
//! it, and Chromium on the admin listener's page.
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
mod suite;
mod tour;
mod vitest;
