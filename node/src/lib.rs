//! Weir's node: durable, append-only streams over HTTP.
//!
//! Arrows point down; a module imports only from those below it:
//!
//! ```text
//! main → run → {http, admin} → {routing, streams, session} → storage → metadata → {clock, net, tasks, weir_api}
//! ```
//!
//! `config` is the only reader of flags, environment and file; `clock`, `net` and `tasks` are the only doors to time,
//! randomness, sockets and tasks; `metadata/raft` is the only importer of openraft, `storage` of object_store.

pub mod clock;
pub mod fault;
pub mod http;
pub mod metadata;
pub mod net;
pub mod storage;
pub mod streams;
pub mod tasks;
