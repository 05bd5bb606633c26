//! Seeded runs of several nodes under faults, and the invariants that must hold. Called by its own tests and `make sim`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a simulation is test code")]

pub mod invariants;
pub mod linear;
pub mod mutants;
pub mod trace;
pub mod walk;
