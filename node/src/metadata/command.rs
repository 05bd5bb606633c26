//! The metadata log's vocabulary: commands, their answers and their refusals, as plain values.
//!
//! Invariant: a command says everything its effect depends on besides the state; applying reads no clock and no
//! configuration. Variants and fields are only ever added at the end and under a higher format version, because
//! `codec` writes them by position. Built by session, streams, storage and admin; applied by `apply`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_api::{
    ClusterUid, Incarnation, NodeEpoch, NodeId, Nonce, Offset, RaftId, SessionId, Slots, StreamEpoch,
    StreamId,
};

/// The sequence number of a session's first WAL object, and so where the state's WAL start begins.
pub const FIRST_WAL_SEQ: u64 = 1;

/// Where a command comes from, so that a retry is recognised and a stale proposer refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestId {
    /// The proposing session; the command is refused if it is not current.
    pub session: SessionId,
    /// Grows by one per command of that session, from 1.
    pub number: u64,
    /// The lowest number the session still waits for (at most `number`); answers below it are forgotten. A number
    /// [`super::limits::REQUEST_WINDOW`] or more above it is refused, so that the memory of answers is bounded.
    pub lowest_unanswered: u64,
}

/// One command as it stands in a log entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// `None` only for commands that carry their own idempotence: `Found`, `AllocateRaftId`, `Register`.
    pub request: Option<RequestId>,
    /// What to do.
    pub command: Command,
}

/// One log entry: a group of commands with the time of the leader that proposed them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The leader's wall clock, milliseconds since 1970. State time is the highest seen.
    pub time_ms: u64,
    /// Applied in order.
    pub commands: Vec<Envelope>,
}

/// When a stream ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Expiry {
    /// Never.
    Never,
    /// This many seconds after the last touch.
    Ttl(u64),
    /// At this wall time, milliseconds since 1970, whatever happens.
    At(u64),
}

/// What was fixed when a stream was created. Interned: streams of one configuration share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamConfig {
    /// As the client wrote it. Parsed and bounded at the edge.
    pub content_type: String,
    /// See [`Expiry`].
    pub expiry: Expiry,
}

impl StreamConfig {
    /// JSON streams count elements, all others bytes.
    pub fn is_json(&self) -> bool {
        let essence = self.content_type.split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("application/json")
    }

    /// Whether a create with `other` finds its own stream: the case of the content type does not count.
    pub fn same_as(&self, other: &Self) -> bool {
        self.content_type.eq_ignore_ascii_case(&other.content_type) && self.expiry == other.expiry
    }
}

/// What a process says of itself when it registers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The node id and the epoch minted for this process start.
    pub session: SessionId,
    /// Drawn once per process: a retry of the same registration carries the same.
    pub nonce: Nonce,
    /// The pod UID on Kubernetes, else the nonce's text.
    pub incarnation: Incarnation,
    /// The data directory's number in the log.
    pub raft_id: RaftId,
    /// The kernel's boot id, if known. Same directory and same boot: the old process is provably gone.
    pub boot_id: Option<Nonce>,
    /// Where clients and other nodes reach its client listener: a URL without path.
    pub http_url: String,
    /// Where other nodes reach its peer listener: `host:port`.
    pub peer_address: String,
    /// Taken only if the node is new to the log.
    pub slots: Slots,
    /// The lowest and highest format version this process reads.
    pub formats: (u32, u32),
}

/// Why a fence was proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FenceReason {
    /// The leader heard nothing for `node-timeout`: the lease has run out long ago.
    Silence,
    /// An operator or a person said so: the process may still hold its lease.
    Admin,
}

/// A range of one stream's records that a segment holds. A command's ranges go up by stream id, one per stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRange {
    /// The stream as the segment names it.
    pub stream: StreamId,
    /// The epoch at which the records were accepted.
    pub epoch: StreamEpoch,
    /// First offset in the segment.
    pub start: Offset,
    /// The offset after the last. Equal to `start` when only `born`, `closed` or `dedupe` is news.
    pub end: Offset,
    /// The record that closes the stream is among those covered.
    pub closed: bool,
    /// The record that gave the stream its birth is among those covered.
    pub born: bool,
    /// The segment holds the stream's producer and sequence state as of `end`.
    pub dedupe: bool,
}

/// An uploaded segment object. Its key is `g<generation>/segments/<node>/<epoch>/<number>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSegment {
    /// Grows within the uploading session; a key is never used twice. The commits of one origin (the session's own,
    /// or one recovery's) go up by number, each finished before the next begins.
    pub number: u64,
    /// The object's size.
    pub bytes: u64,
}

/// On whose behalf a segment is committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommitOrigin {
    /// The session's own records.
    Own,
    /// Records of an ended session that the proposer recovers under a claim.
    Recovery {
        /// The ended session.
        ended: SessionId,
        /// The claim's number; another number is refused.
        claim: u64,
    },
}

/// Everything that can change the metadata state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// First command of a log: who it is. Idempotent by uid.
    Found {
        /// Minted by the founder.
        uid: ClusterUid,
        /// The configured identity (on Kubernetes the StreamCluster's UID), if any.
        identity: Option<String>,
        /// How many nodes the cluster is configured for.
        size: u32,
    },
    /// Hands a data directory its number. Idempotent by nonce.
    AllocateRaftId {
        /// Drawn by the directory that asks.
        nonce: Nonce,
    },
    /// Raises the format version once every registered node reads it.
    RaiseFormat {
        /// The new version.
        version: u32,
    },
    /// A process starts its session; ends the node's session before it.
    Register(Registration),
    /// The proposing session's own last command.
    EndSession,
    /// Ends a session and, with an incarnation, pins the node to it.
    Fence {
        /// The node.
        node: NodeId,
        /// The epoch to end.
        epoch: NodeEpoch,
        /// From now on only this incarnation may register.
        incarnation: Option<Incarnation>,
        /// Decides how long a recovery has to wait.
        reason: FenceReason,
    },
    /// Changes a node's weight. Moves nothing.
    SetSlots {
        /// The node.
        node: NodeId,
        /// The new weight.
        slots: Slots,
        /// The resource (uid, generation) that asks; an older generation of the same uid is refused.
        resource: Option<(String, u64)>,
    },
    /// Binds a name to a new stream and places it.
    Create {
        /// The name, validated.
        name: Arc<str>,
        /// The configuration.
        config: StreamConfig,
        /// Created already closed (and empty). With `unborn` the close rides on the birth's record instead.
        closed: bool,
        /// The first bytes follow in the WAL; until then the stream is 404 to all but its PUT.
        unborn: bool,
    },
    /// The WAL records that gave these streams their birth are durable. By their owner only.
    Born {
        /// The streams and the epochs at which they are open.
        streams: Vec<(StreamId, StreamEpoch)>,
    },
    /// Assigns an owner if there is none.
    Place {
        /// The stream.
        stream: StreamId,
    },
    /// The placed owner takes the stream; bumps its epoch.
    Open {
        /// The stream.
        stream: StreamId,
    },
    /// The owner lets go at its tail, with nothing in flight. What has no length (a birth, a close, producer state) is
    /// for the owner to commit first: the tail alone does not show it.
    Release {
        /// Each with the epoch it is open at and the owner's tail. Answered one by one.
        streams: Vec<(StreamId, StreamEpoch, Offset)>,
    },
    /// Records have reached a segment.
    CommitSegment {
        /// Own records or recovered ones.
        origin: CommitOrigin,
        /// The object. `None` when a commit only moves the WAL start.
        segment: Option<NewSegment>,
        /// What it holds, by stream.
        ranges: Vec<SegmentRange>,
        /// All WAL objects with a sequence number below this are covered. On the last part of a commit and only
        /// there: it also says that the segment's commit is finished. Until then the segment cannot be swept.
        wal_covered: Option<u64>,
    },
    /// The leader hands the recovery of an ended session to a live one. A new claim begins with new segments: what was
    /// uploaded under the one before and not committed stays so.
    Claim {
        /// The ended session.
        ended: SessionId,
        /// Who recovers it.
        claimant: SessionId,
        /// The claim this replaces (0: none), so that two leaders' hand-outs do not cross.
        replaces: u64,
    },
    /// The claimant has sealed the WAL and committed all that was before the seal.
    Recovered {
        /// The ended session.
        ended: SessionId,
        /// The claim's number.
        claim: u64,
    },
    /// Moves deadlines forward (never back).
    Touch {
        /// Streams and their new deadlines, milliseconds since 1970.
        touches: Vec<(StreamId, u64)>,
    },
    /// Ends streams whose deadline has passed by the proposer's clock and by the log's time. For the session that has
    /// a stream open, which knows of every touch, that is the recorded deadline without the tenth on top.
    Expire {
        /// Each with the epoch it is open at at the proposer, or `None` if it is not open.
        streams: Vec<(StreamId, Option<StreamEpoch>)>,
        /// The proposer's wall clock.
        now_ms: u64,
    },
    /// Ends a stream because a client said so.
    Delete {
        /// The stream.
        stream: StreamId,
        /// The epoch it is open at at the proposer, or `None` if it is not open.
        epoch: Option<StreamEpoch>,
    },
    /// Creates a stream that begins with another's records, by reference.
    Fork {
        /// The source.
        source: StreamId,
        /// Where the fork leaves it; at most the source's committed end.
        offset: Offset,
        /// The new name.
        name: Arc<str>,
        /// The fork's configuration.
        config: StreamConfig,
        /// Created closed. With `unborn` the close rides on the birth's record instead.
        closed: bool,
        /// First bytes of its own follow in the WAL; until then the fork is 404 to all but its PUT.
        unborn: bool,
    },
    /// Forgets segments that nothing has referred to for the grace period; their objects may be deleted then.
    Sweep {
        /// The segments.
        segments: Vec<SegmentId>,
    },
    /// Removes streams that were never born for an hour by the log's time.
    ReapUnborn {
        /// Each with the epoch it is open at at the proposer, or `None` if it is not open.
        streams: Vec<(StreamId, Option<StreamEpoch>)>,
    },
    /// Removes a node whose last session has ended and is recovered. What is kept keeps its incarnation out.
    RemoveNode {
        /// The node.
        node: NodeId,
    },
    /// Begins a drain, lets one that gave up try again, or cancels it. Stands over restarts.
    SetDraining {
        /// The node.
        node: NodeId,
        /// `false` cancels.
        draining: bool,
    },
    /// The draining node itself says that it gets no further.
    GiveUpDrain {
        /// Why. For people.
        why: String,
    },
    /// The draining node lets go of streams, each of which is placed anew in the same step. Answered one by one.
    HandOver {
        /// Each with the epoch it is open at and the owner's tail, as in a release; `None` if it is only placed.
        streams: Vec<(StreamId, Option<(StreamEpoch, Offset)>)>,
    },
    /// Means a stream for another session. An open one goes there with its owner's release; any other at once.
    BeginTransfer {
        /// The stream.
        stream: StreamId,
        /// Who is to have it.
        to: SessionId,
    },
    /// Calls a transfer off that has not completed.
    AbortTransfer {
        /// The stream.
        stream: StreamId,
        /// Where it was to go; another transfer of the stream is not meant.
        to: SessionId,
    },
}

/// A segment's number in the state, given at its commit. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SegmentId(pub u64);

/// Who owns a stream, in an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The session.
    pub session: SessionId,
    /// Open there (then at this epoch), or only placed.
    pub open: Option<StreamEpoch>,
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Done, nothing to tell.
    Done,
    /// The log's cluster.
    Founded {
        /// Its uid: another than proposed if the log was founded before.
        uid: ClusterUid,
    },
    /// A data directory's number.
    RaftId(RaftId),
    /// The session has begun.
    Registered {
        /// The weight that holds.
        slots: Slots,
        /// The cluster's format version.
        format: u32,
    },
    /// The session has ended.
    SessionEnded {
        /// Nothing is left to recover.
        clean: bool,
    },
    /// The stream exists now and did not before.
    Created {
        /// Its number.
        stream: StreamId,
        /// Where it is placed.
        owner: SessionId,
    },
    /// The stream existed already, with the same configuration.
    Exists {
        /// Its number.
        stream: StreamId,
    },
    /// Where the stream is placed or open.
    Placed(Owner),
    /// The proposer owns the stream now.
    Opened {
        /// The epoch of this ownership.
        epoch: StreamEpoch,
    },
    /// Released, one answer per stream asked for.
    Released(Vec<Result<(), Refusal>>),
    /// What became of each range, in order.
    Committed(Vec<RangeOutcome>),
    /// The recovery is the claimant's.
    Claimed {
        /// The claim's number.
        number: u64,
        /// The first WAL sequence number not covered.
        wal_start: u64,
    },
    /// Expired or reaped, one answer per stream asked for.
    Ended(Vec<Result<(), Refusal>>),
    /// The segments that were forgotten.
    Swept(Vec<SegmentId>),
    /// Born, one answer per stream asked for.
    Born(Vec<Result<(), Refusal>>),
}

/// What became of one range of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RangeOutcome {
    /// The committed end is the range's end now.
    Committed,
    /// Nothing was taken: stream gone, not open at this session and epoch, or committed already.
    Skipped,
}

/// Why a command changed nothing, and so what the proposer should do. Checked against the state before anything is
/// changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The proposing session is not current: stop serving.
    #[error("the session is not current")]
    SessionNotCurrent,
    /// The request number is below what was declared answered.
    #[error("the request number is below the session's lowest unanswered one")]
    StaleRequest,
    /// The log is not founded yet (`None`), or by another cluster.
    #[error("the log belongs to cluster {0:?}")]
    WrongCluster(Option<ClusterUid>),
    /// Registration: mint again, above this.
    #[error("the node epoch is not above the recorded one, {recorded}")]
    EpochTooLow {
        /// The recorded epoch.
        recorded: NodeEpoch,
    },
    /// Registration: this process was registered and was replaced. Stop for good.
    #[error("another process of this node has registered at epoch {by}")]
    Superseded {
        /// The epoch that replaced it.
        by: NodeEpoch,
    },
    /// Registration: the node is pinned to another incarnation. Try again later, never re-mint.
    #[error("the node is pinned to incarnation {to}")]
    Pinned {
        /// The one that may register.
        to: Incarnation,
    },
    /// Registration: this process cannot read the cluster's format version.
    #[error("the cluster writes format {cluster}, which is not among the formats this build reads")]
    FormatUnreadable {
        /// The cluster's version.
        cluster: u32,
    },
    /// Registration: this incarnation of the node was removed for good.
    #[error("this incarnation of the node was removed")]
    Removed,
    /// RaiseFormat: a registered node cannot read it, or it is not above the current one.
    #[error("format {wanted} is not above {cluster} or not read by every registered node")]
    FormatNotRaised {
        /// The version asked for.
        wanted: u32,
        /// The cluster's version.
        cluster: u32,
    },
    /// No such node.
    #[error("no such node")]
    NoSuchNode,
    /// Fence: neither the epoch nor the incarnation is the registered one.
    #[error("the registered epoch is {registered}")]
    FenceMismatch {
        /// The epoch that is registered.
        registered: NodeEpoch,
    },
    /// SetSlots: a newer generation of the same resource has spoken.
    #[error("generation {known} of the resource has set the slots already")]
    OlderGeneration {
        /// The generation recorded.
        known: u64,
    },
    /// Placement, HandOver: no live, undrained node with slots. Try again later.
    #[error("no node takes new streams now")]
    NoEligibleNode,
    /// No such stream, or not born yet.
    #[error("no such stream")]
    NoSuchStream,
    /// Create: the name is taken by a stream of another configuration.
    #[error("the name is taken by a stream of another configuration")]
    ConfigMismatch {
        /// The stream that has the name.
        stream: StreamId,
    },
    /// The stream (for Fork: source or name) was deleted but forks still need its records: 410, its name stays taken.
    #[error("the stream was deleted and still has forks")]
    Tombstone,
    /// The command is for the owner, which is this one.
    #[error("the stream is another session's")]
    NotOwner(Owner),
    /// The stream's last session has ended and is not recovered yet: wait for that.
    #[error("the stream's last session {0} is not recovered yet")]
    AwaitingRecovery(SessionId),
    /// Release or Fork: the committed end is not the one given. Commit first.
    #[error("the committed end is {committed}")]
    NotCommitted {
        /// The committed end.
        committed: Offset,
    },
    /// Fork: the offset is before the first one kept.
    #[error("the stream begins at {start}")]
    BeforeStart {
        /// The first offset kept.
        start: Offset,
    },
    /// CommitSegment: a range begins above the committed end. Nothing of the command was applied.
    #[error("a range of stream {stream} begins above its committed end {committed}")]
    Gap {
        /// The stream.
        stream: StreamId,
        /// Its committed end.
        committed: Offset,
    },
    /// Claim, Recovered, recovery commits: no such ended session, or another claim holds.
    #[error("claim {held} holds, or the session needs no recovery")]
    ClaimNotCurrent {
        /// The claim that holds; 0 for none.
        held: u64,
    },
    /// Expire, ReapUnborn: the recorded deadline has not passed by both clocks, or there is none (any more).
    #[error("the recorded deadline {deadline_ms:?} has not passed")]
    NotExpired {
        /// The recorded deadline; of an unborn stream, when it may be reaped.
        deadline_ms: Option<u64>,
    },
    /// The command would exceed a limit of the state (named in the text).
    #[error("limit reached: {0}")]
    Limit(String),
    /// The stream is open at the proposing session itself, at this epoch. A process that does not have it in memory
    /// releases it at the committed end and opens again.
    #[error("the stream is open at the proposing session, at epoch {epoch}")]
    AlreadyOpen {
        /// The epoch of that opening.
        epoch: StreamEpoch,
    },
    /// The stream is not open at the proposing session, at least not at the given epoch: drop what is held of it.
    #[error("the stream is not open at the proposing session")]
    NotOpen,
    /// Claim: the session that was to recover is not live. Choose another.
    #[error("the claimant's session is not live")]
    ClaimantNotLive,
    /// CommitSegment: this segment, or a later one of the same origin, was committed to its last part before, and the
    /// command would take more of it. (A mere repetition is answered, with everything skipped.)
    #[error("the commit of this segment was finished before")]
    SegmentFinished,
    /// The command contradicts itself: a bug in the proposer, nothing to retry.
    #[error("malformed command: {0}")]
    Malformed(String),
    /// RemoveNode: its session is alive.
    #[error("the node's session {0} is alive")]
    NodeAlive(SessionId),
    /// SetDraining: the node has streams, and nobody is there to take them.
    #[error("no other node is alive, not draining and has slots")]
    LastNode,
    /// HandOver, GiveUpDrain: the proposer's node is not draining (any more): keep the streams.
    #[error("the node is not draining")]
    NotDraining,
    /// BeginTransfer: that session takes no streams.
    #[error("node {} takes no streams: {why}", to.node)]
    NotEligible {
        /// The session.
        to: SessionId,
        /// Why not.
        why: Ineligible,
    },
    /// BeginTransfer, Open: the stream is on its way there, and not there yet.
    #[error("the stream is on its way to {to}")]
    TransferPending {
        /// Who is to have it.
        to: SessionId,
    },
    /// AbortTransfer: no such transfer is pending.
    #[error("no such transfer is pending")]
    NoSuchTransfer,
}

/// Why a node takes no streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ineligible {
    /// The session has ended.
    NotAlive,
    /// The node is being drained.
    Draining,
    /// The node has no slots.
    NoSlots,
}

impl std::fmt::Display for Ineligible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotAlive => "its session has ended",
            Self::Draining => "it is draining",
            Self::NoSlots => "it has no slots",
        })
    }
}

/// What applying a command comes to.
pub type Outcome = Result<Answer, Refusal>;
