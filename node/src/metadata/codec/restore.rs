//! The state from its items; see `snapshot`.
//!
//! Invariant: every item is checked against what came before, and what is derived is built anew: maps by name, key and
//! deadline, counts of references, forks and ownership.

use std::io::{self, Read};
use std::sync::Arc;

use weir_api::{NodeId, StreamId};

use super::super::command::{Outcome, SegmentId, StreamConfig};
use super::super::state::{Extent, Node, Ownership, Segment, Session, SessionNo, State, Stream, Transfer};
use super::snapshot::{
    CHUNK_BYTES_MAX, ConfigItem, Item, Recent, SegmentItem, SessionItem, StreamItem, checksum,
};
use super::{CodecError, STATE_MAGIC, check_header, malformed, u32_at};

/// Reads a state up to its last chunk and no further.
pub fn read_state(input: &mut dyn Read) -> Result<State, CodecError> {
    let mut header = [0; 12];
    fill(input, &mut header)?;
    check_header(&header, &STATE_MAGIC, "metadata snapshot")?;
    let mut restore = Restore::default();
    let mut chunk = Vec::new();
    for place in 0.. {
        read_chunk(input, place, &mut chunk)?;
        if restore.chunk(&chunk)? {
            break;
        }
    }
    restore.finish()
}

fn fill(input: &mut dyn Read, into: &mut [u8]) -> Result<(), CodecError> {
    input.read_exact(into).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => CodecError::Truncated,
        _ => CodecError::Io(e),
    })
}

fn read_chunk(input: &mut dyn Read, place: u64, chunk: &mut Vec<u8>) -> Result<(), CodecError> {
    let mut header = [0; 8];
    fill(input, &mut header)?;
    let length = usize::try_from(u32_at(&header, 0)).unwrap_or(usize::MAX);
    if length == 0 || length > CHUNK_BYTES_MAX {
        return Err(bad(format!("a chunk of {length} bytes")));
    }
    // Memory follows what is there, not what the length claims.
    chunk.clear();
    input.take(length as u64).read_to_end(chunk)?;
    if chunk.len() < length {
        return Err(CodecError::Truncated);
    }
    if checksum(place, chunk) == u32_at(&header, 4) { Ok(()) } else { Err(CodecError::Checksum) }
}

fn bad(why: impl Into<String>) -> CodecError {
    CodecError::Malformed(why.into())
}

fn ensure(holds: bool, why: &str) -> Result<(), CodecError> {
    if holds { Ok(()) } else { Err(bad(why)) }
}

#[derive(Default)]
struct Restore {
    state: State,
    items: u64,
    recent: Recent,
    /// The last stream, to which more extents may come.
    stream: Option<(StreamId, Stream)>,
}

impl Restore {
    /// Takes a chunk's items; answers whether the last one ends the state.
    fn chunk(&mut self, mut bytes: &[u8]) -> Result<bool, CodecError> {
        while !bytes.is_empty() {
            let (item, rest) = postcard::take_from_bytes::<Item>(bytes).map_err(malformed)?;
            bytes = rest;
            if let Item::End { items } = item {
                ensure(items == self.items && bytes.is_empty(), "the end is at the wrong place")?;
                return Ok(true);
            }
            self.item(item)?;
            self.items += 1;
        }
        Ok(false)
    }

    fn item(&mut self, item: Item) -> Result<(), CodecError> {
        ensure(
            matches!(item, Item::Head { .. }) == (self.items == 0),
            "the head is not first, or not alone",
        )?;
        match item {
            Item::Head { cluster, time_ms, next } => {
                (self.state.cluster, self.state.time_ms, self.state.next) = (cluster, time_ms, next);
                Ok(())
            }
            Item::RaftId(nonce, id) => {
                ensure(self.state.raft_ids.insert(nonce, id).is_none(), "a directory's nonce twice")
            }
            Item::Node(id, node) => self.node(id, *node),
            Item::Session(no, session) => self.session(no, *session),
            Item::Answer(number, outcome) => self.answer(number, outcome),
            Item::Segment(id, segment) => self.segment(id, segment),
            Item::Stream(id, stream) => self.begin_stream(id, *stream),
            Item::Extents(extents) => {
                let (_, stream) = self.stream.as_mut().ok_or_else(|| bad("extents of no stream"))?;
                extents.iter().try_for_each(|e| add_extent(stream, e))
            }
            Item::End { .. } => Err(bad("an end in the middle")),
            Item::Transfer(id, transfer) => self.transfer(id, transfer),
        }
    }

    fn node(&mut self, id: NodeId, node: Node) -> Result<(), CodecError> {
        ensure(self.state.nodes.insert(id, node).is_none(), "a node twice")
    }

    fn session(&mut self, no: SessionNo, item: SessionItem) -> Result<(), CodecError> {
        let current = self.state.nodes.get(&item.id.node).and_then(|n| n.session) == Some(no);
        ensure(current == item.ended.is_none(), "a session and its node disagree on its life")?;
        ensure(no.0 < self.state.next.session, "a session above the counter")?;
        let fresh = self.state.session_numbers.insert(item.id.clone(), no).is_none();
        let session = Session {
            id: item.id,
            assigned: 0,
            open: 0,
            wal_start: item.wal_start,
            boot_id: item.boot_id,
            raft_id: item.raft_id,
            ended: item.ended,
            claim: item.claim,
            commits: item.commits,
            answers: Default::default(),
            lowest_unanswered: item.lowest_unanswered,
        };
        ensure(self.state.sessions.insert(no, session).is_none() && fresh, "a session twice")
    }

    fn answer(&mut self, number: u64, outcome: Arc<Outcome>) -> Result<(), CodecError> {
        let last =
            self.state.sessions.get_max().map(|(no, _)| *no).ok_or_else(|| bad("an answer to nobody"))?;
        let session = self.state.sessions.get_mut(&last).expect("just found");
        ensure(
            session.ended.is_none() && number >= session.lowest_unanswered,
            "an answer that nobody waits for",
        )?;
        ensure(session.answers.insert(number, outcome).is_none(), "an answer twice")
    }

    fn segment(&mut self, id: SegmentId, item: SegmentItem) -> Result<(), CodecError> {
        ensure(id.0 < self.state.next.segment, "a segment above the counter")?;
        ensure(!(item.under_way && item.dead_since_ms.is_some()), "a dead segment under way")?;
        if let Some(since) = item.dead_since_ms {
            self.state.dead_segments.insert((since, id));
        }
        let key = (item.session.clone(), item.number);
        let fresh = self.state.segment_ids.insert(key, id).is_none();
        let segment = Segment {
            session: item.session,
            number: item.number,
            bytes: item.bytes,
            references: 0,
            under_way: item.under_way,
            dead_since_ms: item.dead_since_ms,
        };
        ensure(self.state.segments.insert(id, segment).is_none() && fresh, "a segment twice")
    }

    fn begin_stream(&mut self, id: StreamId, item: StreamItem) -> Result<(), CodecError> {
        self.end_stream()?;
        ensure(id.0 < self.state.next.stream, "a stream above the counter")?;
        let config = self.config(item.config)?;
        let mut stream = Stream {
            name: item.name,
            config,
            epoch: item.epoch,
            ownership: item.ownership,
            start: item.start,
            committed: item.committed,
            closed: item.closed,
            unborn_since_ms: item.unborn_since_ms,
            deadline_ms: item.deadline_ms,
            extents: Vec::new(),
            dedupe: item.dedupe,
            forked_from: item.forked_from.map(Box::new),
            forks: 0,
            tombstone: item.tombstone,
        };
        stream.extents.reserve_exact(item.extents.len());
        item.extents.iter().try_for_each(|e| add_extent(&mut stream, e))?;
        self.stream = Some((id, stream));
        Ok(())
    }

    fn config(&mut self, item: ConfigItem) -> Result<Arc<StreamConfig>, CodecError> {
        let config = match item {
            ConfigItem::Recent(place) => {
                self.recent.at(place).cloned().ok_or_else(|| bad("no such configuration"))?
            }
            ConfigItem::New(config) => {
                // It may have been seen so long ago that it is not among the recent ones.
                let shared = self.state.configs.get_key_value(&config).map(|(known, _)| known.clone());
                let shared = shared.unwrap_or_else(|| Arc::new(config));
                self.recent.learn(shared.clone());
                shared
            }
        };
        *self.state.configs.entry(config.clone()).or_insert(0) += 1;
        Ok(config)
    }

    /// Puts the last stream in its place.
    fn end_stream(&mut self) -> Result<(), CodecError> {
        let Some((id, stream)) = self.stream.take() else { return Ok(()) };
        let end = stream.extents.last().map_or(stream.start, |e| e.end);
        ensure(end == stream.committed, "extents do not reach the committed end")?;
        stream.extents.iter().map(|e| e.segment).chain(stream.dedupe).try_for_each(|s| self.hold(s))?;
        self.count(stream.ownership);
        if let Some(fork) = &stream.forked_from {
            let source =
                self.state.streams.get_mut(&fork.source).ok_or_else(|| bad("a fork of no stream"))?;
            Arc::make_mut(source).forks += 1;
        }
        self.state.deadlines.extend(stream.deadline_ms.map(|at| (at, id)));
        self.state.unborn.extend(stream.unborn_since_ms.map(|since| (since, id)));
        ensure(self.state.names.insert(stream.name.clone(), id).is_none(), "a name twice")?;
        ensure(self.state.streams.insert(id, Arc::new(stream)).is_none(), "a stream twice")
    }

    fn transfer(&mut self, id: StreamId, transfer: Transfer) -> Result<(), CodecError> {
        self.end_stream()?;
        let Transfer { source, target, .. } = transfer;
        let open = self.state.streams.get(&id).is_some_and(|s| s.ownership == Ownership::Open(source));
        let alive = |no| self.state.live(no).is_some();
        let fits = open && alive(source) && alive(target) && source != target;
        ensure(fits, "a transfer of a stream that is not open, or without a side")?;
        self.state.transfer_sides.extend([(source, id), (target, id)]);
        ensure(self.state.transfers.insert(id, transfer).is_none(), "a transfer twice")
    }

    fn hold(&mut self, id: SegmentId) -> Result<(), CodecError> {
        let segment = self.state.segments.get_mut(&id).ok_or_else(|| bad("a reference to no segment"))?;
        ensure(segment.dead_since_ms.is_none(), "a reference to a dead segment")?;
        segment.references += 1;
        Ok(())
    }

    fn count(&mut self, ownership: Ownership) {
        let (no, open) = match ownership {
            Ownership::Released => return,
            Ownership::Placed(no) => (no, false),
            Ownership::Open(no) => (no, true),
        };
        if let Some(session) = self.state.sessions.get_mut(&no).filter(|s| open || s.ended.is_none()) {
            session.assigned += 1;
            session.open += u64::from(open);
        }
    }

    fn finish(mut self) -> Result<State, CodecError> {
        self.end_stream()?;
        let used = |s: &Segment| s.references > 0 || s.under_way || s.dead_since_ms.is_some();
        ensure(self.state.segments.values().all(used), "a segment without references that is not dead")?;
        let live = |n: &Node| n.session.is_none_or(|no| self.state.sessions.contains_key(&no));
        ensure(self.state.nodes.values().all(live), "a node with a session that is not there")?;
        Ok(self.state)
    }
}

fn add_extent(stream: &mut Stream, extent: &Extent) -> Result<(), CodecError> {
    let follows = match stream.extents.last() {
        Some(last) => last.end == extent.start,
        None => extent.start <= stream.start && extent.end > stream.start,
    };
    ensure(follows && extent.start < extent.end, "extents with a gap")?;
    stream.extents.push(*extent);
    Ok(())
}
