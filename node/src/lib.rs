//! Weir's node: durable, append-only streams over HTTP.
//!
//! Arrows point down; a module imports only from those below it:
//!
//! ```text
//! main → cli → {client, run} → {http, admin} → {routing, streams, session} → storage → metadata → peers
//!      → {clock, net, tasks, files, weir_api}
//! ```
//!
//! `client` needs only names of streams and the doors, `bench` only the doors. `founding`, `joining`, `data_dir` and
//! `readiness` belong to `run`; every part may set a readiness reason, count in `metrics` or pass a `fault` point. `format` is
//! below all that writes; `mutant` and `witness` are for simulations. `tokens` is read by `admin`
//! and `peers`.
//! `config` is the only reader of flags, environment and file; `clock`, `net`, `tasks` and `files` are the only doors to
//! time, randomness, sockets, tasks and the data directory; `metadata/raft` is the only importer of openraft, `storage` of object_store.

pub mod admin;
pub mod bench;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod data_dir;
pub mod fault;
pub mod files;
pub mod format;
pub mod founding;
pub mod http;
pub mod joining;
pub mod metadata;
pub mod metrics;
pub mod mutant;
pub mod net;
pub mod peers;
pub mod readiness;
pub mod routing;
pub mod run;
pub mod session;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod storage;
pub mod streams;
pub mod tasks;
pub mod tokens;
pub mod witness;
