//! Processes: what they have open, their WAL, and what they ask of the log about themselves.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir::metadata::command::{
    Answer, Command, CommitOrigin, Envelope, FenceReason, NewSegment, Refusal, Registration, SegmentRange,
};
use weir::metadata::query::Disposition;
use weir::metadata::state::{State, Stream};
use weir_api::{Incarnation, NodeEpoch, Nonce, Offset, RaftId, SessionId, StreamEpoch, StreamId};
use weir_tests::history::Outcome;

use super::{Bucket, Frame, Part, Producers, Slot, Walk};
use crate::trace::{Acked, Call, Digest, StoreEffect, StoreOp, What};

/// An open stream in a process's memory.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) epoch: StreamEpoch,
    pub(super) tail: Offset,
    pub(super) durable: Offset,
    /// Above the committed end as of the opening.
    pub(super) records: Vec<u8>,
    pub(super) from: Offset,
    pub(super) producers: Producers,
}

/// A client that waits for an append.
#[derive(Debug, Clone)]
pub(super) struct Waiter {
    pub(super) call: Call,
    pub(super) next: u64,
}

/// One run of a node.
pub(super) struct Process {
    pub(super) session: SessionId,
    nonce: Nonce,
    incarnation: Incarnation,
    pub(super) up: bool,
    pub(super) view: State,
    pub(super) requests: u64,
    pub(super) open: BTreeMap<StreamId, Open>,
    /// Frames that wait for an object, then objects that were sent, by number from 1.
    queue: Vec<(Frame, Option<Waiter>)>,
    sent: Vec<Vec<(Frame, Option<Waiter>)>>,
    /// Landed, and the process does not know yet, or they will.
    flying: VecDeque<u64>,
    /// Everything up to this number is known stored, up to this covered.
    stored: u64,
    covered: u64,
    segments: u64,
}

impl Process {
    pub(super) fn die(&mut self) {
        self.up = false;
        self.open.clear();
        self.queue.clear();
    }

    pub(super) fn order(&mut self, frame: Frame, waiter: Option<Waiter>) {
        self.queue.push((frame, waiter));
    }

    fn has_in_flight(&self, stream: StreamId) -> bool {
        let of_it = |f: &(Frame, Option<Waiter>)| f.0.stream == stream;
        self.queue.iter().any(of_it) || self.sent[self.stored as usize..].iter().flatten().any(of_it)
    }
}

impl Walk {
    /// A process of the node starts and registers; the one before it may still run.
    pub(super) fn start(&mut self, node: &str) {
        self.nonces += 1;
        let nonce = Nonce(self.nonces);
        let incarnation: Incarnation = format!("{node}-{}", self.rng.below(3)).parse().expect("valid");
        // Clocks agree no better than that.
        let mut epoch = NodeEpoch(self.wall_ms.saturating_sub(self.rng.below(4)));
        let recorded = self.log.head.nodes.iter().find(|(id, _)| id.as_str() == node).map(|(_, n)| n.epoch);
        // A restored machine, or the same millisecond.
        if let Some(recorded) = recorded.filter(|_| self.rng.one_in(4)) {
            epoch = recorded;
        }
        for _ in 0..3 {
            let session = SessionId { node: node.parse().expect("valid"), epoch };
            let registration = self.registration(&session, nonce, &incarnation);
            match self.commit(Envelope { request: None, command: Command::Register(registration) }) {
                Ok(_) => return self.enter(session, nonce, incarnation),
                Err(Refusal::EpochTooLow { recorded }) => epoch = recorded.next(),
                Err(_) => return,
            }
        }
    }

    fn enter(&mut self, session: SessionId, nonce: Nonce, incarnation: Incarnation) {
        self.processes.push(Process {
            session,
            nonce,
            incarnation,
            up: true,
            view: self.log.head.clone(),
            requests: 0,
            open: BTreeMap::new(),
            queue: Vec::new(),
            sent: Vec::new(),
            flying: VecDeque::new(),
            stored: 0,
            covered: 0,
            segments: 0,
        });
    }

    fn registration(&self, session: &SessionId, nonce: Nonce, incarnation: &Incarnation) -> Registration {
        Registration {
            session: session.clone(),
            nonce,
            incarnation: incarnation.clone(),
            raft_id: RaftId(1),
            boot_id: None,
            http_url: format!("http://{}:1", session.node),
            peer_address: format!("{}:2", session.node),
            slots: 1.try_into().expect("valid"),
            formats: (1, 1),
        }
    }

    /// A node gets another process; or one that was replaced tries to come back as it was.
    pub(super) fn restart(&mut self) {
        let node = super::NODES[self.rng.index(super::NODES.len())];
        let mut old = self.processes.iter().filter(|p| p.session.node.as_str() == node);
        if self.rng.one_in(3)
            && let Some(p) = old.next()
        {
            let (nonce, incarnation) = (p.nonce, p.incarnation.clone());
            let session = SessionId { node: p.session.node.clone(), epoch: NodeEpoch(self.wall_ms + 1) };
            let registration = self.registration(&session, nonce, &incarnation);
            let back = self.commit(Envelope { request: None, command: Command::Register(registration) });
            if back.is_ok() && !self.processes.iter().any(|p| p.session == session) {
                self.enter(session, nonce, incarnation);
            }
            return;
        }
        self.start(node);
    }

    pub(super) fn crash(&mut self) {
        if let Some(process) = self.some_process() {
            self.processes[process].die();
        }
    }

    /// Somebody calls a session silent, or a person fences a node, pinning it perhaps to what it was.
    pub(super) fn fence(&mut self) {
        let Some(by) = self.some_process() else { return };
        let whom = self.rng.index(self.processes.len());
        let (SessionId { node, epoch }, incarnation) =
            (self.processes[whom].session.clone(), self.processes[whom].incarnation.clone());
        let pin = self.rng.one_in(3).then_some(incarnation);
        let reason = if pin.is_some() { FenceReason::Admin } else { FenceReason::Silence };
        self.propose(by, Command::Fence { node, epoch, incarnation: pin, reason });
    }

    pub(super) fn end_session(&mut self) {
        let Some(process) = self.some_process() else { return };
        self.propose(process, Command::EndSession);
        self.processes[process].die();
    }

    // ---- streams

    /// Opens a stream at a process that thinks it may; says whether it is open there.
    pub(super) fn open(&mut self, process: usize, stream: StreamId) -> bool {
        if self.processes[process].open.contains_key(&stream) {
            return true;
        }
        match self.propose(process, Command::Open { stream }) {
            Some(Ok(Answer::Opened { epoch })) => self.load(process, stream, epoch),
            Some(Err(Refusal::AlreadyOpen { .. })) => {
                // Not in memory: a load that failed.
                let known = self.processes[process].view.stream(stream).map(|s| (s.epoch, s.committed));
                if let Some((epoch, committed)) = known {
                    let streams = vec![(stream, epoch, committed)];
                    self.propose(process, Command::Release { streams });
                }
                false
            }
            _ => false,
        }
    }

    fn load(&mut self, process: usize, stream: StreamId, epoch: StreamEpoch) -> bool {
        // A retry of the open is answered with an epoch that may be over by now.
        let Some(known) = self.log.head.stream(stream).filter(|s| s.epoch == epoch).cloned() else {
            return false;
        };
        let producers = self.bucket.producers(&self.log.head, &known, stream);
        let at = known.committed;
        let open = Open { epoch, tail: at, durable: at, records: Vec::new(), from: at, producers };
        self.processes[process].open.insert(stream, open);
        true
    }

    /// A stream's task dies with what it had not got acknowledged.
    pub(super) fn abandon(&mut self) {
        let Some(process) = self.some_process() else { return };
        let p = &mut self.processes[process];
        let mut open: Vec<StreamId> = p.open.keys().copied().collect();
        open.retain(|id| {
            let committed = self.log.head.stream(*id).map_or(Offset(0), |s| s.committed);
            p.open[id].durable <= committed && p.has_in_flight(*id)
        });
        if let Some(id) = open.first() {
            p.open.remove(id);
            self.open(process, *id);
        }
    }

    /// The owner stops, and lets go at its tail. What is not committed is the log's to notice.
    pub(super) fn release(&mut self) {
        let Some(process) = self.some_process() else { return };
        let p = &self.processes[process];
        let settled: Vec<StreamId> = p.open.keys().copied().filter(|id| !p.has_in_flight(*id)).collect();
        if settled.is_empty() {
            return;
        }
        let id = settled[self.rng.index(settled.len())];
        let Open { epoch, tail, .. } = self.processes[process].open[&id];
        let command = match self.processes[process].view.nodes.get(&self.processes[process].session.node) {
            Some(node) if node.draining => Command::HandOver { streams: vec![(id, Some((epoch, tail)))] },
            _ => Command::Release { streams: vec![(id, epoch, tail)] },
        };
        match self.propose(process, command) {
            Some(Ok(Answer::Released(each))) if each[0].is_err() => {}
            Some(Err(_)) => {}
            _ => drop(self.processes[process].open.remove(&id)),
        }
    }

    // ---- WAL

    /// What waits goes into an object, which is sent.
    pub(super) fn put(&mut self) {
        let Some(process) = self.some_process_that(|p| !p.queue.is_empty()) else { return };
        let p = &mut self.processes[process];
        if p.queue.is_empty() || p.sent.len() as u64 > p.stored + 1 {
            return;
        }
        p.sent.push(std::mem::take(&mut p.queue));
        p.flying.push_back(p.sent.len() as u64);
    }

    /// A put reaches the bucket, whether its sender lives or not.
    pub(super) fn land(&mut self) {
        let flying: Vec<usize> =
            (0..self.processes.len()).filter(|&p| !self.processes[p].flying.is_empty()).collect();
        if flying.is_empty() {
            return;
        }
        let process = flying[self.rng.index(flying.len())];
        let p = &mut self.processes[process];
        let which = self.rng.index(p.flying.len());
        let Some(seq) = p.flying.remove(which) else { return };
        let object: Vec<Frame> = p.sent[seq as usize - 1].iter().map(|(frame, _)| frame.clone()).collect();
        let session = p.session.clone();
        let wal = self.bucket.wal.entry(session.clone()).or_default();
        let effect = match wal.contains_key(&seq) {
            true => StoreEffect::Exists,
            false => StoreEffect::Done,
        };
        wal.entry(seq).or_insert(Slot::Object(object));
        self.stored(process, &session, seq, effect, false);
    }

    pub(super) fn stored(
        &mut self,
        process: usize,
        session: &SessionId,
        seq: u64,
        effect: StoreEffect,
        seal: bool,
    ) {
        let (host, key) = (self.host(process), weir::storage::keys::wal(0, session, seq));
        self.event(What::Store { host, op: StoreOp::Create, key, effect, bytes: 1, digest: 0, seal });
    }

    pub(super) fn land_all(&mut self) {
        while self.processes.iter().any(|p| !p.flying.is_empty()) {
            self.land();
        }
    }

    /// A writer learns of its next object.
    pub(super) fn acknowledge(&mut self) {
        let waits = |p: &Process| p.stored < p.sent.len() as u64;
        let Some(process) = self.some_process_that(waits) else { return };
        self.acknowledge_at(process);
    }

    fn acknowledge_at(&mut self, process: usize) -> bool {
        let p = &self.processes[process];
        let seq = p.stored + 1;
        if !p.up || seq > p.sent.len() as u64 {
            return false;
        }
        let session = p.session.clone();
        let ours: Vec<Frame> = p.sent[seq as usize - 1].iter().map(|(f, _)| f.clone()).collect();
        match self.bucket.wal.get(&session).and_then(|wal| wal.get(&seq)) {
            None => return false,
            Some(Slot::Seal) => {
                self.processes[process].die();
                return false;
            }
            Some(Slot::Object(there)) if *there != ours => {
                // Another process of this very session has written here: it must end.
                self.processes[process].die();
                return false;
            }
            Some(Slot::Object(_) | Slot::Trimmed) => {}
        }
        self.processes[process].stored = seq;
        let object = self.processes[process].sent[seq as usize - 1].clone();
        let served = |p: &Process, f: &Frame| p.open.get(&f.stream).is_some_and(|o| o.epoch == f.epoch);
        for (frame, waiter) in object {
            if !served(&self.processes[process], &frame) {
                continue;
            }
            if let Some(open) = self.processes[process].open.get_mut(&frame.stream) {
                open.durable = open.durable.max(frame.end());
            }
            let host = self.host(process);
            let append = Acked {
                stream: frame.stream,
                epoch: frame.epoch,
                start: frame.offset,
                end: frame.end(),
                producer: frame.producer.clone().map(|(id, seq)| (id, 0, seq)),
                digest: Digest::of(&frame.bytes),
            };
            self.event(What::Acknowledged { host, session: session.clone(), seq, appends: vec![append] });
            if let Some((_, seq)) = &frame.producer {
                self.clients.settled(frame.stream, *seq);
            }
            if let Some(Waiter { call, next }) = waiter {
                self.answer(call, Outcome::Appended { duplicate: false, next, closed: false });
            }
        }
        true
    }

    // ---- commits

    /// The flusher: a few objects into a segment, without a look at who has the streams now.
    pub(super) fn commit_own(&mut self) {
        if let Some(process) = self.some_process() {
            let below = self.processes[process].stored;
            self.commit_up_to(process, below);
        }
    }

    fn commit_up_to(&mut self, process: usize, below: u64) -> bool {
        let p = &self.processes[process];
        if !p.up || p.covered >= below {
            return false;
        }
        let (mut frames, mut covered): (Vec<Frame>, u64) = (Vec::new(), p.covered);
        for object in &p.sent[p.covered as usize..below as usize] {
            // A segment holds one epoch of a stream; of what one object holds the newest counts.
            let object: Vec<&Frame> = object.iter().map(|(f, _)| f).collect();
            let newest = |f: &&&Frame| object.iter().all(|g| g.stream != f.stream || g.epoch <= f.epoch);
            let object: Vec<&Frame> = object.iter().filter(newest).copied().collect();
            let clash = |f: &&Frame| frames.iter().any(|g| g.stream == f.stream && g.epoch != f.epoch);
            if object.iter().any(clash) {
                break;
            }
            frames.extend(object.into_iter().cloned());
            covered += 1;
        }
        match self.commit_frames(process, CommitOrigin::Own, frames, covered + 1) {
            Some(Ok(_)) => {
                self.processes[process].covered = covered;
                true
            }
            Some(Err(Refusal::Gap { .. } | Refusal::SessionNotCurrent)) => {
                // It cannot go on.
                self.processes[process].die();
                false
            }
            _ => false,
        }
    }

    /// Uploads a segment and commits it.
    pub(super) fn commit_frames(
        &mut self,
        process: usize,
        origin: CommitOrigin,
        frames: Vec<Frame>,
        covered: u64,
    ) -> Option<weir::metadata::command::Outcome> {
        self.processes[process].segments += 1;
        let number = self.processes[process].segments;
        let mut parts: BTreeMap<StreamId, Part> = BTreeMap::new();
        for frame in frames {
            let head = &self.log.head;
            let base = || {
                let known = head.stream(frame.stream);
                known.map(|s| self.bucket.producers(head, s, frame.stream)).unwrap_or_default()
            };
            let part =
                parts.entry(frame.stream).or_insert_with(|| Part { frames: Vec::new(), producers: base() });
            if let Some((id, seq)) = &frame.producer {
                part.producers.insert(id.clone(), *seq);
            }
            part.frames.push(frame);
        }
        let range = |(stream, part): (&StreamId, &Part)| SegmentRange {
            stream: *stream,
            epoch: part.frames[0].epoch,
            start: part.frames[0].offset,
            end: part.frames[part.frames.len() - 1].end(),
            closed: false,
            born: false,
            dedupe: true,
        };
        let ranges: Vec<SegmentRange> = parts.iter().map(range).collect();
        let segment = (!ranges.is_empty()).then_some(NewSegment { number, bytes: 1 });
        if segment.is_some() {
            let session = self.processes[process].session.clone();
            self.bucket.segments.insert((session, number), parts);
        }
        let wal_covered = Some(covered);
        self.propose(process, Command::CommitSegment { origin, segment, ranges, wal_covered })
    }

    // ---- the end

    /// Each node has a live session with a process.
    pub(super) fn bring_back(&mut self) {
        for process in 0..self.processes.len() {
            let session = self.processes[process].session.clone();
            if self.processes[process].up && !self.log.head.is_current(&session) {
                self.processes[process].die();
            }
            self.processes[process].view = self.log.head.clone();
        }
        let able = |w: &Self| (0..w.processes.len()).find(|&p| w.processes[p].up);
        for node in super::NODES {
            if able(self).is_some() {
                break;
            }
            self.wall_ms += 10;
            self.start(node);
        }
        let Some(by) = able(self) else { return };
        for process in 0..self.processes.len() {
            let SessionId { node, epoch } = self.processes[process].session.clone();
            let ours = self.processes[process].session.clone();
            if !self.processes[process].up && self.log.head.is_current(&ours) {
                let reason = FenceReason::Silence;
                self.propose(by, Command::Fence { node, epoch, incarnation: None, reason });
            }
        }
    }

    /// Everything is acknowledged and committed. `false`: not yet.
    pub(super) fn commit_all(&mut self) -> bool {
        for process in 0..self.processes.len() {
            while self.acknowledge_at(process) {}
            if self.processes[process].up && !self.processes[process].queue.is_empty() {
                let p = &mut self.processes[process];
                p.sent.push(std::mem::take(&mut p.queue));
                p.flying.push_back(p.sent.len() as u64);
                self.land_all();
                while self.acknowledge_at(process) {}
            }
            let below = self.processes[process].stored;
            while self.commit_up_to(process, below) {}
        }
        self.log.head.sessions.values().all(|s| s.ended.is_none())
            && self.processes.iter().filter(|p| p.up).all(|p| p.covered == p.stored)
    }
}

impl Bucket {
    /// The producers' state that a stream refers to.
    pub(super) fn producers(&self, state: &State, stream: &Stream, id: StreamId) -> Producers {
        let segment = stream.dedupe.and_then(|segment| state.segments.get(&segment));
        let parts = segment.and_then(|s| self.segments.get(&(s.session.clone(), s.number)));
        parts.and_then(|parts| parts.get(&id)).map(|part| part.producers.clone()).unwrap_or_default()
    }

    /// A stream's committed records; ends early where an object is gone or holds something else.
    pub(super) fn read(&self, state: &State, stream: &Stream) -> Vec<u8> {
        let mut all = Vec::new();
        for extent in &stream.extents {
            let segment = state.segments.get(&extent.segment);
            let parts = segment.and_then(|s| self.segments.get(&(s.session.clone(), s.number)));
            let Some(part) = parts.and_then(|parts| parts.get(&extent.written_as)) else { break };
            for frame in &part.frames {
                for (offset, byte) in (frame.offset.0..).zip(frame.bytes.iter()) {
                    if offset == all.len() as u64 && (extent.start.0..extent.end.0).contains(&offset) {
                        all.push(*byte);
                    }
                }
            }
        }
        all
    }
}

/// Whether a view says that nobody has the stream open.
pub(super) fn is_idle(view: &State, stream: &Stream) -> bool {
    matches!(view.disposition_of(stream), Disposition::Released | Disposition::PlacedAt(_))
}

/// The name of a stream in a view.
pub(super) fn name_of(view: &State, stream: StreamId) -> Option<Arc<str>> {
    view.stream(stream).map(|s| s.name.clone())
}
