//! A client of the protocol and of the admin API: what the command line talks to servers with.
//!
//! Invariant: every step has a deadline; a request is repeated only where a repetition does no harm; an outcome that is
//! not known is never reported as success or as failure. It relies on nothing but the protocol (and `/v1/streams` for
//! listing), so it works with any server of it. `cli` alone uses it. One idea a file: `origin` is where a server is,
//! `connection` one exchange over one connection, `redirect` where to go instead, `retry` when to try again, `send` all
//! of these in one loop, `streams` the protocol's requests, `admin` those of the admin API, `failure` what can go
//! wrong, `json` elements out of text, `sse` events out of text.

pub mod admin;
mod connection;
pub mod failure;
pub mod json;
pub mod origin;
mod redirect;
mod retry;
mod send;
pub mod sse;
pub mod streams;
#[cfg(test)]
mod tests;

pub use connection::Body;
pub use failure::Failure;
pub use origin::Origin;
pub use retry::pause as retry_pause;
pub use send::{Answer, Ask, Client, Repeat};
