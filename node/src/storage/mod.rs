//! Records in object storage: WAL, segments, reads, recovery.

pub mod cache;
mod index;
mod payload;
pub mod reader;
pub mod record;
pub mod segment;
pub mod store;
pub mod tail;
