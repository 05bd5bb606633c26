//! What the model's world is made of.
//!
//! Names are those of `node/src/metadata/{command,state}.rs`. Everything is small and of fixed size, and `canonical`
//! gives states that nobody can tell apart the same bytes. Changed by `apply` (the metadata log) and `nodes`
//! (processes and the bucket).

use std::hash::{Hash, Hasher};

use crate::list::List;

/// Two nodes of two epochs each: A at 1, A at 2, B at 1, B at 2.
pub const SESSIONS: usize = 4;
/// Two streams.
pub const STREAMS: usize = 2;
/// Records of one stream: the two that producers send, and room to see one doubled.
pub const RECORDS: usize = 3;
/// WAL objects of one session that segments do not cover yet: the backlog bound.
pub const BACKLOG: usize = 4;
/// One more than the backlog, for a seal behind it.
pub const SLOTS: usize = BACKLOG + 1;

/// One process's life. Node and epoch in one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionNo(pub u8);

impl SessionNo {
    /// All there can be.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SESSIONS as u8).map(Self)
    }
    /// As an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
    /// 0 or 1.
    pub fn node(self) -> usize {
        self.index() / 2
    }
    /// The node's first epoch.
    pub fn is_first(self) -> bool {
        self.0.is_multiple_of(2)
    }
    /// The node's other session.
    pub fn sibling(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId(pub u8);

impl StreamId {
    /// All there are.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..STREAMS as u8).map(Self)
    }
    /// As an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// An append request of one stream's producer, the same at every retry. Each is a producer of its own with one
/// sequence number, so that they may arrive in either order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Append(pub u8);

/// A stream's records by offset: which append stands there.
pub type Records = List<Append, RECORDS>;

/// Which appends are known as seen: a producer's last sequence number, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Producers(pub u8);

impl Producers {
    /// A retry of it is a duplicate.
    pub fn knows(self, append: Append) -> bool {
        self.0 & (1 << append.0) != 0
    }
    /// With it.
    pub fn absorb(&mut self, append: Append) {
        self.0 |= 1 << append.0;
    }
}

// ---- the metadata log's state

/// What the log amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Metadata {
    /// By `SessionNo`.
    pub sessions: [Session; SESSIONS],
    /// By `StreamId`.
    pub streams: [Stream; STREAMS],
}

/// How far a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Life {
    /// Not registered yet.
    #[default]
    Unregistered,
    /// Current.
    Live,
    /// Ended with open streams; waits for recovery.
    Ended,
    /// Ended, nothing to recover (any more): not in the state.
    Gone,
}

/// A session as the log knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Session {
    /// See [`Life`].
    pub life: Life,
    /// First WAL sequence number not covered by segments.
    pub wal_start: u8,
    /// The number of the claim that holds; 0 for none. Whose it is stands in [`Recovery`].
    pub claim: u8,
}

/// Who has a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Ownership {
    /// Nobody.
    #[default]
    Released,
    /// Open at a session, at the stream's epoch.
    Open(SessionNo),
}

/// A stream as the log knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stream {
    /// The last epoch it was opened at.
    pub epoch: u8,
    /// Who has it.
    pub ownership: Ownership,
    /// What is in segments; its length is the committed end.
    pub committed: Records,
    /// The producers' state as of the committed end.
    pub producers: Producers,
}

// ---- processes and the bucket

/// One accepted append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Frame {
    /// The stream.
    pub stream: StreamId,
    /// The epoch at which it was open.
    pub epoch: u8,
    /// The tail before it.
    pub offset: u8,
    /// What it adds.
    pub append: Append,
}

/// All four at once: hashing is most of a run's time.
impl Hash for Frame {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(u32::from_le_bytes([self.stream.0, self.epoch, self.offset, self.append.0]));
    }
}

/// A process's memory of one stream that it believes to own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenStream {
    /// The epoch that `Opened` answered.
    pub epoch: u8,
    /// All records up to the tail, durable or not.
    pub records: Records,
    /// What makes a retry a duplicate.
    pub producers: Producers,
}

/// One run of `weir serve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Process {
    /// It runs (whether its session is current or not: it may not know).
    pub up: bool,
    /// What it has open, by `StreamId`.
    pub streams: [Option<OpenStream>; STREAMS],
    /// All WAL objects below this are known stored.
    pub durable: u8,
    /// It met a seal in its WAL and exited.
    pub fenced: bool,
}

/// What stands in the bucket at one sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Slot {
    /// Nobody has looked yet. If a put was sent, it may have landed or may still; who looks first decides.
    #[default]
    Unseen,
    /// The object that the session put there.
    Object,
    /// A sealer's.
    Seal,
}

/// A session's WAL: what was sent, and what of it the bucket holds. One frame per object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Wal {
    /// The objects by sequence number. A put that was sent may land at any later time, and again after a trim.
    pub sent: List<Frame, BACKLOG>,
    /// What the bucket holds.
    pub slots: [Slot; SLOTS],
}

impl Hash for Wal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.sent.hash(state);
        state.write_u32(self.slots.iter().fold(0, |all, slot| all * 3 + *slot as u32));
    }
}

impl Wal {
    /// The first sequence number from `from` on at which nobody has seen an object.
    pub fn end_of_objects(&self, from: u8) -> u8 {
        let mut at = from;
        while self.slots[usize::from(at)] == Slot::Object {
            at += 1;
        }
        at
    }

    /// Where a reader that begins at `from` may find the first absent object, or the seal. Objects below `trimmed` may
    /// be deleted already (or have landed once more).
    pub fn possible_ends(&self, from: u8, trimmed: u8) -> impl Iterator<Item = u8> {
        let mut at = Some(from);
        std::iter::from_fn(move || {
            while let Some(seq) = at {
                let slot = self.slots[usize::from(seq)];
                let passes = slot == Slot::Object || (slot == Slot::Unseen && seq < self.sent.count());
                at = passes.then_some(seq + 1);
                if slot != Slot::Object || seq < trimmed {
                    return Some(seq);
                }
            }
            None
        })
    }
}

/// What a claimant knows of the recovery that it was handed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Recovery {
    /// The claim's number.
    pub claim: u8,
    /// Who recovers.
    pub claimant: SessionNo,
    /// The first object not committed: the WAL start of the claim's answer, then its own progress.
    pub from: u8,
    /// Where it found or put the seal.
    pub end: Option<u8>,
}

// ---- what the outside world was told

/// What clients of one stream were told beyond the committed end. (Below it the committed records speak.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Told {
    /// By offset: acknowledged.
    pub acked: [Option<Append>; RECORDS],
    /// By offset: a reader may have seen it.
    pub read: [Option<Append>; RECORDS],
    /// By epoch: the session that acknowledged something.
    pub acker: [Option<SessionNo>; 2],
}

/// Which promise was seen broken in a step; stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Broken {
    /// Two sessions acknowledged at one stream epoch.
    pub i1: bool,
    /// An acknowledged record's offset holds another.
    pub i2: bool,
    /// A read record's offset holds another.
    pub i3: bool,
    /// An append was acknowledged at two offsets.
    pub i4: bool,
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct State {
    /// The log's state.
    pub metadata: Metadata,
    /// By `SessionNo`.
    pub processes: [Process; SESSIONS],
    /// By `SessionNo`.
    pub wals: [Wal; SESSIONS],
    /// By ended session: the claimants that may still do something.
    pub recoveries: [List<Recovery, 2>; SESSIONS],
    /// How often a stream's task has died within a living process.
    pub abandoned: u8,
    /// By `StreamId`.
    pub told: [Told; STREAMS],
    /// See [`Broken`].
    pub broken: Broken,
}

impl State {
    /// Both nodes registered and running, both streams created and not open.
    pub fn initial() -> Self {
        let mut state = Self::default();
        for session in SessionNo::all().filter(|s| s.is_first()) {
            state.metadata.sessions[session.index()].life = Life::Live;
            state.processes[session.index()].up = true;
        }
        state
    }
}
