//! The state as a sequence of items, in chunks.
//!
//! Invariants: items come in an order in which each refers only to earlier ones; what is derived is not written. A chunk
//! is `length · checksum · items`; the checksum covers the chunk's place in the sequence, and the last item counts all,
//! so that a lost, doubled or swapped chunk shows.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_api::{NodeId, Nonce, Offset, RaftId, SessionId, StreamEpoch, StreamId};

use super::super::command::{Outcome, SegmentId, StreamConfig};
use super::super::state::{
    ClaimRecord, Cluster, CommitProgress, Counters, Extent, ForkPoint, Node, Ownership, Segment, SessionEnd,
    SessionNo, State, Stream, Transfer,
};
use super::{STATE_MAGIC, append, u32_len};

/// Items are gathered up to this size.
const CHUNK_BYTES: usize = 64 << 10;
/// A single item may be larger: the longest is the remembered answer to a command of many streams.
pub(super) const CHUNK_BYTES_MAX: usize = 16 << 20;
/// Extents in one item.
const EXTENTS: usize = 512;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Item {
    Head {
        cluster: Option<Cluster>,
        time_ms: u64,
        next: Counters,
    },
    RaftId(Nonce, RaftId),
    Node(NodeId, Box<Node>),
    Session(SessionNo, Box<SessionItem>),
    /// An answer of the last session.
    Answer(u64, Arc<Outcome>),
    Segment(SegmentId, SegmentItem),
    Stream(StreamId, Box<StreamItem>),
    /// More extents of the last stream.
    Extents(Vec<Extent>),
    /// How many items came before.
    End {
        items: u64,
    },
    /// Of a stream that came before.
    Transfer(StreamId, Transfer),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SessionItem {
    pub(super) id: SessionId,
    pub(super) wal_start: u64,
    pub(super) boot_id: Option<Nonce>,
    pub(super) raft_id: RaftId,
    pub(super) ended: Option<SessionEnd>,
    pub(super) claim: Option<ClaimRecord>,
    pub(super) commits: CommitProgress,
    pub(super) lowest_unanswered: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SegmentItem {
    pub(super) session: SessionId,
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) under_way: bool,
    pub(super) dead_since_ms: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StreamItem {
    pub(super) name: Arc<str>,
    pub(super) config: ConfigItem,
    pub(super) epoch: StreamEpoch,
    pub(super) ownership: Ownership,
    pub(super) start: Offset,
    pub(super) committed: Offset,
    pub(super) closed: bool,
    pub(super) unborn_since_ms: Option<u64>,
    pub(super) deadline_ms: Option<u64>,
    pub(super) extents: Vec<Extent>,
    pub(super) dedupe: Option<SegmentId>,
    pub(super) forked_from: Option<ForkPoint>,
    pub(super) tombstone: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ConfigItem {
    /// The configuration at this place among the recent ones.
    Recent(u8),
    New(StreamConfig),
}

/// The configurations seen last, the same at both ends: most streams share one of a few.
#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<Arc<StreamConfig>>);

impl Recent {
    const KEPT: usize = 64;

    fn refer(&mut self, config: &Arc<StreamConfig>) -> ConfigItem {
        match self.0.iter().position(|c| c == config).and_then(|i| u8::try_from(i).ok()) {
            Some(place) => ConfigItem::Recent(place),
            None => {
                self.learn(config.clone());
                ConfigItem::New(config.as_ref().clone())
            }
        }
    }

    pub(super) fn learn(&mut self, config: Arc<StreamConfig>) {
        if self.0.len() == Self::KEPT {
            self.0.pop_front();
        }
        self.0.push_back(config);
    }

    pub(super) fn at(&self, place: u8) -> Option<&Arc<StreamConfig>> {
        self.0.get(usize::from(place))
    }
}

/// Writes the state, in the format version that it names. Nothing that grows with it is held besides one chunk.
pub fn write_state(state: &State, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&STATE_MAGIC)?;
    out.write_all(&state.format().to_le_bytes())?;
    let mut w = Chunks { out, buffer: Vec::with_capacity(CHUNK_BYTES), chunks: 0, items: 0 };
    let head =
        Item::Head { cluster: state.cluster.clone(), time_ms: state.time_ms, next: state.next.clone() };
    w.put(&head)?;
    for (nonce, id) in &state.raft_ids {
        w.put(&Item::RaftId(*nonce, *id))?;
    }
    for (id, node) in &state.nodes {
        w.put(&Item::Node(id.clone(), Box::new(node.clone())))?;
    }
    write_sessions(state, &mut w)?;
    for (id, segment) in &state.segments {
        w.put(&segment_item(*id, segment))?;
    }
    write_streams(state, &mut w)?;
    for (id, transfer) in &state.transfers {
        w.put(&Item::Transfer(*id, transfer.clone()))?;
    }
    w.finish()
}

fn write_sessions(state: &State, w: &mut Chunks<'_>) -> io::Result<()> {
    for (no, s) in &state.sessions {
        let item = SessionItem {
            id: s.id.clone(),
            wal_start: s.wal_start,
            boot_id: s.boot_id,
            raft_id: s.raft_id,
            ended: s.ended.clone(),
            claim: s.claim.clone(),
            commits: s.commits,
            lowest_unanswered: s.lowest_unanswered,
        };
        w.put(&Item::Session(*no, Box::new(item)))?;
        for (number, outcome) in &s.answers {
            w.put(&Item::Answer(*number, outcome.clone()))?;
        }
    }
    Ok(())
}

fn segment_item(id: SegmentId, s: &Segment) -> Item {
    let item = SegmentItem {
        session: s.session.clone(),
        number: s.number,
        bytes: s.bytes,
        under_way: s.under_way,
        dead_since_ms: s.dead_since_ms,
    };
    Item::Segment(id, item)
}

fn write_streams(state: &State, w: &mut Chunks<'_>) -> io::Result<()> {
    let mut recent = Recent::default();
    for (id, stream) in &state.streams {
        let (first, more) = stream.extents.split_at(stream.extents.len().min(EXTENTS));
        w.put(&Item::Stream(*id, Box::new(stream_item(stream, first, recent.refer(&stream.config)))))?;
        for part in more.chunks(EXTENTS) {
            w.put(&Item::Extents(part.to_vec()))?;
        }
    }
    Ok(())
}

fn stream_item(s: &Stream, extents: &[Extent], config: ConfigItem) -> StreamItem {
    StreamItem {
        name: s.name.clone(),
        config,
        epoch: s.epoch,
        ownership: s.ownership,
        start: s.start,
        committed: s.committed,
        closed: s.closed,
        unborn_since_ms: s.unborn_since_ms,
        deadline_ms: s.deadline_ms,
        extents: extents.to_vec(),
        dedupe: s.dedupe,
        forked_from: s.forked_from.as_deref().copied(),
        tombstone: s.tombstone,
    }
}

struct Chunks<'a> {
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    chunks: u64,
    items: u64,
}

impl Chunks<'_> {
    fn put(&mut self, item: &Item) -> io::Result<()> {
        append(&mut self.buffer, item);
        self.items += 1;
        if self.buffer.len() < CHUNK_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.len() > CHUNK_BYTES_MAX {
            return Err(io::Error::other("an item of the state is larger than a chunk may be"));
        }
        self.out.write_all(&u32_len(&self.buffer).to_le_bytes())?;
        self.out.write_all(&checksum(self.chunks, &self.buffer).to_le_bytes())?;
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        self.chunks += 1;
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        append(&mut self.buffer, &Item::End { items: self.items });
        self.flush()
    }
}

/// Of a chunk at its place.
pub(super) fn checksum(place: u64, chunk: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&place.to_le_bytes()), chunk)
}

/// A number that equal states share: FNV-1a over the bytes of the state.
pub fn state_hash(state: &State) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    write_state(state, &mut hash).expect("hashing does not fail");
    hash.0
}

struct Fnv(u64);

impl Write for Fnv {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = bytes.iter().fold(self.0, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
