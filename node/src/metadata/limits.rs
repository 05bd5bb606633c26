//! What the state accepts at most, and the times its rules turn on.
//!
//! Invariant: every collection that a command can grow has a bound here or in the log's size of a command. Part of
//! the meaning of the log: changing one changes what old entries amount to, so it takes a format version. Used by
//! `apply`; proposers check the same numbers first to refuse early.

/// Bytes of a stream's name.
pub const NAME_BYTES: usize = 1024;
/// Bytes of a stream's content type.
pub const CONTENT_TYPE_BYTES: usize = 256;
/// Streams in one cluster, unborn ones and tombstones included.
pub const STREAMS: usize = 10_000_000;
/// Nodes ever registered.
pub const NODES: usize = 10_000;
/// Bytes of any text a node says of itself, or a cluster or resource of its identity.
pub const TEXT_BYTES: usize = 2048;
/// Streams, ranges, touches or segments in one command.
pub const ITEMS: usize = 32_768;
/// Extents of a stream that can still be forked, because a fork copies them: at most 800 KB of state and some 20 ms in
/// which nothing else is applied. Commits have no such bound: refusing one would hold up the WAL of all the node's
/// streams.
pub const FORK_EXTENTS: usize = 20_000;
/// How far a request number may be above the lowest unanswered one.
pub const REQUEST_WINDOW: u64 = 65_536;
/// How many earlier processes of a node are remembered.
pub const EARLIER_NONCES: usize = 16;
/// Transfers pending at a time. The end of a session calls off all of its own in one step.
pub const TRANSFERS: usize = 10_000;
/// How long a dead segment's object stays, for readers that still hold its extents.
pub const SWEEP_GRACE_MS: u64 = 10 * 60 * 1000;
/// How long a stream may wait for its first bytes.
pub const UNBORN_MS: u64 = 60 * 60 * 1000;
