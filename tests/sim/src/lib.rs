//! Seeded runs of several nodes under faults, and the invariants that must hold. Called by its own tests and `make sim`.

pub mod disk;
pub mod machine;
