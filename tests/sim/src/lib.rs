//! Seeded runs of several nodes under faults, and the invariants that must hold. Called by its own tests and `make sim`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a simulation is test code")]

pub mod bucket;
pub mod disk;
pub mod farm;
pub mod http;
pub mod invariants;
pub mod linear;
pub mod machine;
pub mod mutants;
pub mod ops;
pub mod place;
pub mod race;
pub mod run;
pub mod schedule;
pub mod trace;
pub mod walk;
pub mod workload;
pub mod world;
