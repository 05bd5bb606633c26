//! Records in object storage: WAL, segments, reads, recovery.

pub mod answered;
pub mod cache;
pub mod cluster_file;
pub mod commit;
#[cfg(test)]
pub(crate) mod faults;
mod index;
pub mod keys;
mod payload;
pub mod probe;
pub mod progress;
pub mod reader;
#[cfg(test)]
mod real;
pub mod record;
pub mod recovery;
pub mod seal;
pub mod segment;
pub mod skips;
pub mod store;
pub mod sweep;
pub mod tail;
pub mod wal;
