//! The operator against an API server and nodes in memory, and its rules and renderings offline. One binary, for linking
//! takes longer than running.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::large_futures,
    reason = "tests, and what they are made of"
)]

mod api;
mod attacked;
mod chaos;
mod control;
mod crd_rules;
mod elections;
mod fixtures;
mod flows;
mod found;
mod golden;
mod many;
mod monitoring;
mod nodes;
mod points;
mod process;
mod refused;
mod rights;
mod socket;
mod strangers;
mod trouble;
mod world;
