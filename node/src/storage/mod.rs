//! Records in object storage: WAL, segments, reads, recovery.

pub mod record;
