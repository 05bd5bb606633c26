//! Records in object storage: WAL, segments, reads, recovery.

pub mod cache;
#[cfg(any(test, feature = "fault-points"))]
pub mod faults;
mod index;
pub mod keys;
mod payload;
pub mod probe;
pub mod reader;
pub mod record;
pub mod seal;
pub mod segment;
pub mod store;
pub mod tail;
pub mod wal;
