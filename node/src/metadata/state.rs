//! The metadata state: what the log amounts to so far.
//!
//! Invariant (I5): a pure function of the log. Every map is persistent, so that a clone is a handle: a snapshot is
//! taken without stalling apply. Only `apply` changes it; everyone else reads through `metadata::View`.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};
use weir_api::{
    ClusterUid, Incarnation, NodeEpoch, NodeId, Nonce, Offset, RaftId, SessionId, Slots, StreamEpoch,
    StreamId,
};

use super::command::{Outcome, SegmentId, StreamConfig};

/// A session's number in the state: what streams refer to, eight bytes instead of a name. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionNo(pub u64);

/// Everything. Cloning is cheap.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// `None` until founded.
    pub cluster: Option<Cluster>,
    /// The highest leader time seen, milliseconds since 1970.
    pub time_ms: u64,
    /// Counters; each is the next value to give out.
    pub next: Counters,
    /// Raft ids given out, by the nonce of the directory that asked.
    pub raft_ids: OrdMap<Nonce, RaftId>,
    /// Every node ever registered and not removed.
    pub nodes: OrdMap<NodeId, Node>,
    /// Live sessions, and ended ones that still need recovery. A number not in here has ended and is recovered.
    pub sessions: OrdMap<SessionNo, Session>,
    /// Streams by number.
    pub streams: OrdMap<StreamId, Arc<Stream>>,
    /// Derived: streams by name, tombstones and unborn included.
    pub names: OrdMap<Arc<str>, StreamId>,
    /// Derived: configurations and how many streams share each.
    pub configs: OrdMap<Arc<StreamConfig>, u64>,
    /// Segments that something refers to, whose commit is under way, or that wait out their grace period.
    pub segments: OrdMap<SegmentId, Segment>,
    /// Streams that are meant for another session than the one they are open at. Both are alive.
    pub transfers: OrdMap<StreamId, Transfer>,
    /// Derived: (source or target, stream) of transfers.
    pub transfer_sides: OrdSet<(SessionNo, StreamId)>,
    /// Derived: sessions by node and epoch.
    pub session_numbers: OrdMap<SessionId, SessionNo>,
    /// Derived: segments by uploader and number, which is their key.
    pub segment_ids: OrdMap<(SessionId, u64), SegmentId>,
    /// Derived: (deadline, stream) for streams that have one.
    pub deadlines: OrdSet<(u64, StreamId)>,
    /// Derived: (since, stream) for streams not born yet.
    pub unborn: OrdSet<(u64, StreamId)>,
    /// Derived: segments without references: (since when, segment).
    pub dead_segments: OrdSet<(u64, SegmentId)>,
}

/// What was founded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Minted by the founder.
    pub uid: ClusterUid,
    /// The configured identity.
    pub identity: Option<String>,
    /// How many nodes it is configured for.
    pub size: u32,
    /// The format version everything is written in.
    pub format: u32,
}

/// Next numbers. All start at 1, raft ids at 2 (the founder is 1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Next raft id.
    pub raft_id: u64,
    /// Next session number.
    pub session: u64,
    /// Next stream id.
    pub stream: u64,
    /// Next segment id.
    pub segment: u64,
    /// Next claim number.
    pub claim: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self { raft_id: 2, session: 1, stream: 1, segment: 1, claim: 1 }
    }
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The highest epoch registered.
    pub epoch: NodeEpoch,
    /// Who registered it.
    pub nonce: Nonce,
    /// The incarnation that registered last.
    pub incarnation: Incarnation,
    /// Its data directory.
    pub raft_id: RaftId,
    /// Its kernel's boot id.
    pub boot_id: Option<Nonce>,
    /// Advertised client URL.
    pub http_url: String,
    /// Advertised peer address.
    pub peer_address: String,
    /// Capacity weight. The log's value stands across restarts.
    pub slots: Slots,
    /// The resource and generation that set the slots last.
    pub slots_by: Option<(String, u64)>,
    /// Formats it reads.
    pub formats: (u32, u32),
    /// Only this incarnation may register.
    pub pinned: Option<Incarnation>,
    /// Takes no new placements.
    pub draining: bool,
    /// The live session, if there is one.
    pub session: Option<SessionNo>,
    /// Nonces of earlier processes of this node (the last 16): a superseded one is told so.
    pub earlier: Vec<Nonce>,
    /// Removed for good; kept so that its epoch only grows and its incarnation stays out.
    pub removed: bool,
    /// Since when it drains, by the log's time.
    pub draining_since_ms: Option<u64>,
    /// Why it gave up draining, if it did.
    pub drain_gave_up: Option<String>,
}

/// A transfer that has not completed: its stream is open at the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Who is to let go.
    pub source: SessionNo,
    /// Who is to have it.
    pub target: SessionNo,
    /// By the log's time.
    pub begun_ms: u64,
}

/// One process's life.
#[derive(Debug, Clone)]
pub struct Session {
    /// Node and epoch.
    pub id: SessionId,
    /// Derived: streams placed or open here; once ended, those open (what was only placed is void).
    pub assigned: u64,
    /// Derived: streams open here.
    pub open: u64,
    /// First WAL sequence number not covered by segments. Never goes down.
    pub wal_start: u64,
    /// Kernel boot id and raft id it registered with.
    pub boot_id: Option<Nonce>,
    /// See `boot_id`.
    pub raft_id: RaftId,
    /// `None` while alive.
    pub ended: Option<SessionEnd>,
    /// The recovery under way.
    pub claim: Option<ClaimRecord>,
    /// Which segments were committed: its own while it lives, those of the recovery under way once it ended.
    pub commits: CommitProgress,
    /// Answers not yet confirmed received, by request number.
    pub answers: OrdMap<u64, Arc<Outcome>>,
    /// Numbers below were declared answered.
    pub lowest_unanswered: u64,
}

/// How far the commits of one origin have come. It keeps a commit in several commands from reaching a segment that
/// was swept between two of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitProgress {
    /// Segments with a number below are finished.
    pub finished_below: u64,
    /// The segment of which more parts are to come.
    pub under_way: Option<SegmentId>,
}

/// How a session ended that still has open streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEnd {
    /// The log's time.
    pub at_ms: u64,
    /// The recovery need not wait for the lease: time-out fence, or same directory and boot.
    pub lease_over: bool,
}

/// Who recovers an ended session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// The claim's number.
    pub number: u64,
    /// The recovering session.
    pub claimant: SessionId,
}

/// A stream. There may be millions: 500 bytes each is the aim, with names, maps and a handful of extents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Its name.
    pub name: Arc<str>,
    /// Its configuration, shared.
    pub config: Arc<StreamConfig>,
    /// The last epoch it was opened at.
    pub epoch: StreamEpoch,
    /// Who has it.
    pub ownership: Ownership,
    /// First offset kept.
    pub start: Offset,
    /// Records below are in segments.
    pub committed: Offset,
    /// The committed records end with the one that closes it.
    pub closed: bool,
    /// Since when it waits for its first bytes, by the log's time; `None` once born.
    pub unborn_since_ms: Option<u64>,
    /// When it expires, by the record.
    pub deadline_ms: Option<u64>,
    /// Where its records are, in order, gapless from `start` to `committed`.
    pub extents: Vec<Extent>,
    /// Which segment holds its newest producer and sequence state.
    pub dedupe: Option<SegmentId>,
    /// Where it was forked from. Boxed, because few are.
    pub forked_from: Option<Box<ForkPoint>>,
    /// Derived: forks of it (tombstones included, since their own forks lead back here).
    pub forks: u32,
    /// Deleted, but forks remain: the name is taken, answers are 410. It has no records of its own any more.
    pub tombstone: bool,
}

/// Where a stream left another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkPoint {
    /// The source. It stays in the state, if only as a tombstone, as long as the fork does.
    pub source: StreamId,
    /// The first offset that is the fork's own.
    pub at: Offset,
}

/// Who has a stream. A session that is not alive makes `Placed` void; one that is recovered makes `Open` released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ownership {
    /// Nobody.
    Released,
    /// Placed at a session that has not opened it.
    Placed(SessionNo),
    /// Open at a session, at the stream's epoch.
    Open(SessionNo),
}

/// A run of a stream's records in one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// The segment.
    pub segment: SegmentId,
    /// The stream as the segment names it (a fork's differs).
    pub written_as: StreamId,
    /// First offset used of it.
    pub start: Offset,
    /// The offset after the last.
    pub end: Offset,
}

/// A segment object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The session that uploaded it; with `number` its key.
    pub session: SessionId,
    /// See `session`.
    pub number: u64,
    /// Its size.
    pub bytes: u64,
    /// Derived: extents and dedupe references to it. Once dead it never rises again.
    pub references: u64,
    /// More parts of its commit are to come: it does not die before the last one.
    pub under_way: bool,
    /// Since when nothing refers to it.
    pub dead_since_ms: Option<u64>,
}
