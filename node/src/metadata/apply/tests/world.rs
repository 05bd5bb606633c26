//! A state with a few nodes, and short ways to say commands.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_api::{
    ClusterUid, Incarnation, NodeEpoch, NodeId, Nonce, Offset, RaftId, SessionId, Slots, StreamEpoch,
    StreamId,
};

use crate::metadata::apply::apply;
use crate::metadata::codec::state_hash;
use crate::metadata::command::*;
use crate::metadata::consistency::check_consistency;
use crate::metadata::query::Disposition;
use crate::metadata::state::{Segment, Session, State, Stream};

pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) time_ms: u64,
    numbers: BTreeMap<SessionId, u64>,
}

pub(crate) const START_MS: u64 = 1_000_000;

impl World {
    /// A founded cluster without nodes.
    pub(crate) fn new() -> Self {
        let mut w = Self { state: State::default(), time_ms: START_MS, numbers: BTreeMap::new() };
        w.found(Command::Found { uid: ClusterUid(7), identity: None, size: 1 }).unwrap();
        w
    }

    /// A founded cluster with these nodes, each at epoch 10.
    pub(crate) fn with<const N: usize>(nodes: [&str; N]) -> (Self, [SessionId; N]) {
        let mut w = Self::new();
        let sessions = nodes.map(|n| w.join(n, 10));
        (w, sessions)
    }

    /// Applies one envelope. Whatever it is: the state stays consistent, and a refusal changes nothing.
    pub(crate) fn apply(&mut self, envelope: Envelope) -> Outcome {
        let before = fingerprint(&self.state);
        let batch = Batch { time_ms: self.time_ms, commands: vec![envelope] };
        let outcome = apply(&mut self.state, &batch).pop().unwrap();
        check_consistency(&self.state).unwrap();
        if outcome.is_err() {
            assert_eq!(before, fingerprint(&self.state), "a refusal changed the state: {outcome:?}");
        }
        outcome
    }

    /// A command without a session.
    pub(crate) fn found(&mut self, command: Command) -> Outcome {
        self.apply(Envelope { request: None, command })
    }

    /// A command of a session under its next number.
    pub(crate) fn run(&mut self, by: &SessionId, command: Command) -> Outcome {
        let envelope = self.envelope(by, command);
        self.apply(envelope)
    }

    pub(crate) fn envelope(&mut self, by: &SessionId, command: Command) -> Envelope {
        let number = self.numbers.entry(by.clone()).or_default();
        *number += 1;
        let request = RequestId { session: by.clone(), number: *number, lowest_unanswered: 1 };
        Envelope { request: Some(request), command }
    }

    pub(crate) fn join(&mut self, node: &str, epoch: u64) -> SessionId {
        let r = registration(node, epoch);
        let session = r.session.clone();
        self.found(Command::Register(r)).unwrap();
        session
    }

    pub(crate) fn create(&mut self, by: &SessionId, name: &str) -> StreamId {
        created(self.run(by, create(name)))
    }

    pub(crate) fn create_unborn(&mut self, by: &SessionId, name: &str) -> StreamId {
        created(self.run(by, unborn(name, "text/plain")))
    }

    pub(crate) fn open(&mut self, by: &SessionId, stream: StreamId) -> StreamEpoch {
        match self.run(by, Command::Open { stream }) {
            Ok(Answer::Opened { epoch }) => epoch,
            other => panic!("not opened: {other:?}"),
        }
    }

    /// A stream created and opened at the only session.
    pub(crate) fn opened(&mut self, by: &SessionId, name: &str) -> (StreamId, StreamEpoch) {
        let id = self.create(by, name);
        (id, self.open(by, id))
    }

    /// Commits the ranges as a whole segment of the session's own.
    pub(crate) fn commit(&mut self, by: &SessionId, number: u64, ranges: &[SegmentRange]) -> Outcome {
        self.run(by, commit(CommitOrigin::Own, number, ranges, Some(number)))
    }

    /// Ends a session as the leader does.
    pub(crate) fn silence(&mut self, by: &SessionId, ended: &SessionId) {
        self.run(by, fence(ended, None, FenceReason::Silence)).unwrap();
    }

    pub(crate) fn claim(&mut self, by: &SessionId, ended: &SessionId, replaces: u64) -> (u64, u64) {
        match self.run(by, Command::Claim { ended: ended.clone(), claimant: by.clone(), replaces }) {
            Ok(Answer::Claimed { number, wal_start }) => (number, wal_start),
            other => panic!("not claimed: {other:?}"),
        }
    }

    pub(crate) fn later(&mut self, ms: u64) -> &mut Self {
        self.time_ms += ms;
        self
    }

    pub(crate) fn stream(&self, id: StreamId) -> &Stream {
        self.state.stream(id).expect("the stream is there")
    }

    pub(crate) fn session(&self, id: &SessionId) -> &Session {
        self.state.session_by_id(id).expect("the session is there").1
    }

    pub(crate) fn is_free(&self, id: StreamId) -> bool {
        self.state.disposition(id) == Some(Disposition::Released)
    }

    /// The session that has a stream, open or placed.
    pub(crate) fn owner(&self, id: StreamId) -> Option<SessionId> {
        self.state.owner_of(self.stream(id)).map(|o| o.session)
    }

    pub(crate) fn segment(&self, by: &SessionId, number: u64) -> Option<&Segment> {
        self.state.segments.get(self.state.segment_ids.get(&(by.clone(), number))?)
    }
}

/// The state apart from time and remembered answers.
pub(crate) fn fingerprint(state: &State) -> u64 {
    let mut state = state.clone();
    state.time_ms = 0;
    let numbers: Vec<_> = state.sessions.keys().copied().collect();
    for no in numbers {
        let session = state.sessions.get_mut(&no).unwrap();
        session.answers.clear();
        session.lowest_unanswered = 0;
    }
    state_hash(&state)
}

pub(crate) fn node(id: &str) -> NodeId {
    id.parse().unwrap()
}

pub(crate) fn session(id: &str, epoch: u64) -> SessionId {
    SessionId { node: node(id), epoch: NodeEpoch(epoch) }
}

pub(crate) fn incarnation(text: &str) -> Incarnation {
    text.parse().unwrap()
}

/// A process of a node: nonce and incarnation are its own, the data directory is the node's, the kernel's boot unknown.
pub(crate) fn registration(id: &str, epoch: u64) -> Registration {
    let directory = id.bytes().fold(0, |n, b| n * 251 + u64::from(b));
    Registration {
        session: session(id, epoch),
        nonce: Nonce(u128::from(directory) << 64 | u128::from(epoch)),
        incarnation: incarnation(&format!("{id}-at-{epoch}")),
        raft_id: RaftId(directory),
        boot_id: None,
        http_url: format!("http://{id}:4437"),
        peer_address: format!("{id}:4438"),
        slots: Slots::ONE,
        formats: (1, 1),
    }
}

pub(crate) fn config(content_type: &str) -> StreamConfig {
    StreamConfig { content_type: content_type.into(), expiry: Expiry::Never }
}

pub(crate) fn create(name: &str) -> Command {
    Command::Create { name: name.into(), config: config("text/plain"), closed: false, unborn: false }
}

pub(crate) fn create_expiring(name: &str, expiry: Expiry) -> Command {
    let config = StreamConfig { expiry, ..config("text/plain") };
    Command::Create { name: name.into(), config, closed: false, unborn: false }
}

pub(crate) fn unborn(name: &str, content_type: &str) -> Command {
    Command::Create { name: name.into(), config: config(content_type), closed: false, unborn: true }
}

pub(crate) fn created(outcome: Outcome) -> StreamId {
    match outcome {
        Ok(Answer::Created { stream, .. }) => stream,
        other => panic!("not created: {other:?}"),
    }
}

pub(crate) fn fork(source: StreamId, offset: u64, name: &str) -> Command {
    let config = config("text/plain");
    Command::Fork {
        source,
        offset: Offset(offset),
        name: Arc::from(name),
        config,
        closed: false,
        unborn: false,
    }
}

pub(crate) fn fence(ended: &SessionId, incarnation: Option<&str>, reason: FenceReason) -> Command {
    let incarnation = incarnation.map(|i| i.parse().unwrap());
    Command::Fence { node: ended.node.clone(), epoch: ended.epoch, incarnation, reason }
}

pub(crate) fn range(stream: StreamId, epoch: StreamEpoch, start: u64, end: u64) -> SegmentRange {
    let (start, end) = (Offset(start), Offset(end));
    SegmentRange { stream, epoch, start, end, closed: false, born: false, dedupe: false }
}

pub(crate) fn commit(
    origin: CommitOrigin,
    number: u64,
    ranges: &[SegmentRange],
    wal_covered: Option<u64>,
) -> Command {
    let segment = Some(NewSegment { number, bytes: 1000 });
    Command::CommitSegment { origin, segment, ranges: ranges.to_vec(), wal_covered }
}

pub(crate) fn release(stream: StreamId, epoch: StreamEpoch, tail: u64) -> Command {
    Command::Release { streams: vec![(stream, epoch, Offset(tail))] }
}

pub(crate) fn transfer(stream: StreamId, to: &SessionId) -> Command {
    Command::BeginTransfer { stream, to: to.clone() }
}

pub(crate) fn drain(id: &str, draining: bool) -> Command {
    Command::SetDraining { node: node(id), draining }
}

pub(crate) fn hand_over(stream: StreamId, held: Option<(StreamEpoch, u64)>) -> Command {
    let held = held.map(|(epoch, tail)| (epoch, Offset(tail)));
    Command::HandOver { streams: vec![(stream, held)] }
}

/// The only answer of a command that is answered one by one.
pub(crate) fn only(outcome: Outcome) -> Result<(), Refusal> {
    match outcome {
        Ok(Answer::Released(mut each) | Answer::Ended(mut each) | Answer::Born(mut each)) => {
            assert_eq!(each.len(), 1);
            each.pop().unwrap()
        }
        other => panic!("not answered one by one: {other:?}"),
    }
}

pub(crate) fn taken(outcome: Outcome) -> Vec<bool> {
    match outcome {
        Ok(Answer::Committed(each)) => each.iter().map(|o| *o == RangeOutcome::Committed).collect(),
        other => panic!("not committed: {other:?}"),
    }
}
