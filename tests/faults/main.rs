//! Clusters of real processes under load, and what happens to them: killed, hung, cut off, doubled, robbed of their disk.
//!
//! Every scenario appends all the while ([`writers`]) and ends with the checker's verdict: nothing acknowledged is lost,
//! nothing doubled, order kept, no stale answer, and one writing session per stream and epoch. Times and failed requests
//! are measured and written down ([`weir_tests::figures`]), never asserted. What takes long is ignored in the gate; `make soak` runs
//! it all, with the default time-outs (`WEIR_SOAK`).

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code stands outside of the node's doors to time, sockets and tasks"
)]

mod all_at_once;
mod bucket;
mod clocks;
mod cluster;
mod cut_off;
mod drain;
mod foreign;
mod killed;
mod leader;
mod lost_disk;
mod steps;
mod twins;
mod upgrade;
mod writers;
mod zombie;
