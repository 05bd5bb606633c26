//! Records in object storage: WAL, segments, reads, recovery.
#[cfg(any(test, feature = "fault-points"))]
pub mod faults;
pub mod keys;
pub mod probe;
pub mod record;
pub mod seal;
pub mod store;
pub mod wal;
