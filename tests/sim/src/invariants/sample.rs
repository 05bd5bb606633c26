//! Traces made by hand: commands run through the real state machine, unless their outcome is given.

use std::sync::Arc;

use weir::metadata::apply;
use weir::metadata::codec::state_hash;
use weir::metadata::command::{
    Answer, Batch, Command, CommitOrigin, Envelope, Expiry, NewSegment, Outcome as Applied, Registration,
    RequestId, SegmentRange, StreamConfig,
};
use weir::metadata::state::State;
use weir_api::{ClusterUid, NodeEpoch, Nonce, Offset, RaftId, SessionId, Slots, StreamEpoch, StreamId};
use weir_tests::history::{Action, Outcome, Reading};
use weir_tests::record::{Content, Record};

use crate::trace::{Acked, Ask, Call, Digest, Event, Host, StoreEffect, StoreOp, Told, Trace, What};

/// A trace under the pen.
pub(crate) struct Made {
    pub(crate) trace: Trace,
    pub(crate) state: State,
    index: u64,
    requests: u64,
    nonces: u128,
    bucket: Vec<(String, u64)>,
    host: Host,
    /// What the last command came to.
    last: Option<Applied>,
}

/// Nothing of `invariant` is found.
pub(crate) fn holds(made: &Made, invariant: &str) {
    let found = super::check(&made.trace);
    let of = found.iter().find(|b| b.invariant == invariant);
    assert!(of.is_none(), "{}", of.unwrap());
}

/// It is found, in words that contain `words`.
pub(crate) fn breaks(made: &Made, invariant: &str, words: &str) {
    let found = super::check(&made.trace);
    assert!(found.iter().any(|b| b.invariant == invariant && b.message.contains(words)), "found {found:?}");
}

impl Made {
    pub(crate) fn new() -> Self {
        let mut trace = Trace::default();
        let host = trace.host("first");
        let state = State::default();
        let mut made =
            Self { trace, state, index: 0, requests: 0, nonces: 0, bucket: Vec::new(), host, last: None };
        let found = Command::Found { uid: ClusterUid(1), identity: None, size: 3 };
        made.entry(Envelope { request: None, command: found }, None);
        made
    }

    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    pub(crate) fn event(&mut self, what: What) -> usize {
        let at_us = self.trace.events.len() as u64 * 1000;
        self.trace.events.push(Event { at_us, what });
        self.trace.events.len() - 1
    }

    /// An entry with one command.
    pub(crate) fn entry(&mut self, envelope: Envelope, forced: Option<Applied>) -> &mut Self {
        let batch = Batch { time_ms: 1_000 + self.index, commands: vec![envelope] };
        let real = apply::apply(&mut self.state, &batch).remove(0);
        self.index += 1;
        let outcome = forced.unwrap_or(real);
        let (host, index, hash) = (self.host, self.index, Some(state_hash(&self.state)));
        let (batch, outcomes) = (Some(Arc::new(batch)), vec![outcome.clone()]);
        self.event(What::Applied { host, index, batch, outcomes, hash });
        self.last = Some(outcome);
        self
    }

    pub(crate) fn command(&mut self, by: &SessionId, command: Command, forced: Option<Applied>) -> &mut Self {
        self.requests += 1;
        let number = self.requests;
        let request = Some(RequestId { session: by.clone(), number, lowest_unanswered: 1 });
        self.entry(Envelope { request, command }, forced)
    }

    pub(crate) fn registration(&mut self, node: &str, epoch: u64) -> Registration {
        self.nonces += 1;
        Registration {
            session: SessionId { node: node.parse().unwrap(), epoch: NodeEpoch(epoch) },
            nonce: Nonce(self.nonces),
            incarnation: format!("pod-{}", self.nonces).parse().unwrap(),
            raft_id: RaftId(1),
            boot_id: None,
            http_url: format!("http://{node}:1"),
            peer_address: format!("{node}:2"),
            slots: Slots::try_from(1).unwrap(),
            formats: (1, 1),
        }
    }

    pub(crate) fn session(&mut self, node: &str, epoch: u64) -> SessionId {
        let registration = self.registration(node, epoch);
        let session = registration.session.clone();
        self.entry(Envelope { request: None, command: Command::Register(registration) }, None);
        session
    }

    /// Some live session, to propose what anybody may.
    pub(crate) fn anybody(&mut self) -> SessionId {
        let live = self.state.sessions.values().find(|s| s.ended.is_none()).map(|s| s.id.clone());
        live.unwrap_or_else(|| self.session("somebody", 1))
    }

    pub(crate) fn stream(&mut self, name: &str) -> StreamId {
        let by = self.anybody();
        let call = self.asked(name, Action::Create { first: None, closed: false });
        let config = StreamConfig { content_type: "text/plain".into(), expiry: Expiry::Never };
        let create = Command::Create { name: name.into(), config, closed: false, unborn: false };
        self.command(&by, create, None);
        self.told(call, Outcome::Created { new: true, next: 0, closed: false });
        let Some(Ok(Answer::Created { stream, .. })) = self.last else { panic!("{:?}", self.last) };
        stream
    }

    pub(crate) fn open(&mut self, by: &SessionId, stream: StreamId, epoch: u64) -> &mut Self {
        let forced = Some(Ok(Answer::Opened { epoch: StreamEpoch(epoch) }));
        self.command(by, Command::Open { stream }, forced)
    }

    pub(crate) fn release(&mut self, by: &SessionId, stream: StreamId, epoch: u64, tail: u64) -> &mut Self {
        let streams = vec![(stream, StreamEpoch(epoch), Offset(tail))];
        self.command(by, Command::Release { streams }, None)
    }

    /// A commit of the session's first segment and WAL object.
    pub(crate) fn commit(
        &mut self,
        by: &SessionId,
        stream: StreamId,
        epoch: u64,
        start: u64,
        end: u64,
    ) -> &mut Self {
        let range = SegmentRange {
            stream,
            epoch: StreamEpoch(epoch),
            start: Offset(start),
            end: Offset(end),
            closed: false,
            born: false,
            dedupe: false,
        };
        let segment = Some(NewSegment { number: 1, bytes: 100 });
        let (origin, ranges, wal_covered) = (CommitOrigin::Own, vec![range], Some(2));
        self.command(by, Command::CommitSegment { origin, segment, ranges, wal_covered }, None)
    }

    fn acknowledge(&mut self, by: &SessionId, append: Acked) -> &mut Self {
        let (host, session) = (self.host, by.clone());
        self.event(What::Acknowledged { host, session, seq: 1, appends: vec![append] });
        self
    }

    pub(crate) fn acked(
        &mut self,
        by: &SessionId,
        s: StreamId,
        epoch: u64,
        start: u64,
        end: u64,
    ) -> &mut Self {
        let (start, end) = (Offset(start), Offset(end));
        let append = Acked { stream: s, epoch: StreamEpoch(epoch), start, end, producer: None, digest: 0 };
        self.acknowledge(by, append)
    }

    pub(crate) fn produced(
        &mut self,
        by: &SessionId,
        s: StreamId,
        epoch: u64,
        start: u64,
        end: u64,
        seq: u64,
    ) -> &mut Self {
        let (start, end, producer) = (Offset(start), Offset(end), Some(("p".into(), 0, seq)));
        self.acknowledge(by, Acked { stream: s, epoch: StreamEpoch(epoch), start, end, producer, digest: 0 })
    }

    /// A client appends a record to the stream of that name, which its owner acknowledges.
    pub(crate) fn append(&mut self, by: &SessionId, name: &str, epoch: u64, at: u64, id: u64) -> u64 {
        let record = record(id);
        let action = Action::Append { record: Some(record), producer: None, seq: None, closes: false };
        let call = self.asked(name, action);
        let (body, end) = (record.body(false), at + record.span(false));
        let (stream, epoch) = (self.state.names[name], StreamEpoch(epoch));
        let (start, digest) = (Offset(at), Digest::of(&body));
        self.acknowledge(by, Acked { stream, epoch, start, end: Offset(end), producer: None, digest });
        self.told(call, Outcome::Appended { duplicate: false, next: end, closed: false });
        end
    }

    pub(crate) fn asked(&mut self, name: &str, action: Action) -> Call {
        let ask = Ask { stream: name.into(), json: false, action, fork: None, ttl_ms: None };
        let to = self.host;
        Call(self.event(What::Asked { client: 0, to, ask }))
    }

    pub(crate) fn told(&mut self, call: Call, outcome: Outcome) -> &mut Self {
        let told = Told { outcome, status: 200, by: Some(self.host), hops: 0, why: None };
        self.event(What::Answered { call, told });
        self
    }

    /// A client reads the stream from its beginning, up to date.
    pub(crate) fn read(&mut self, name: &str, content: &[u8]) -> &mut Self {
        let call = self.asked(name, Action::Read);
        let content = Content::Bytes(content.to_vec().into());
        let next = content.len();
        self.told(call, Outcome::Read(Reading { from: 0, content, next, up_to_date: true, closed: false }))
    }

    fn store(&mut self, op: StoreOp, key: &str, seal: bool) -> &mut Self {
        let (host, key, effect) = (self.host, key.to_owned(), StoreEffect::Done);
        self.event(What::Store { host, op, key, effect, bytes: 1, digest: 0, seal });
        self
    }

    pub(crate) fn stored(&mut self, key: &str) -> &mut Self {
        self.bucket.push((key.to_owned(), 0));
        self.store(StoreOp::Create, key, false)
    }

    pub(crate) fn sealed(&mut self, key: &str) -> &mut Self {
        self.store(StoreOp::Create, key, true)
    }

    pub(crate) fn deleted(&mut self, key: &str) -> &mut Self {
        self.store(StoreOp::Delete, key, false)
    }

    /// Another node applies all that was applied so far.
    pub(crate) fn also_at(&mut self, name: &str) -> &mut Self {
        let other = self.trace.host(name);
        for event in self.trace.events.clone() {
            if let What::Applied { index, batch, outcomes, hash, .. } = event.what {
                self.event(What::Applied { host: other, index, batch, outcomes, hash });
            }
        }
        self
    }

    /// The run is over.
    pub(crate) fn end(&mut self) -> &mut Self {
        self.trace.states.push((self.host, self.index, self.state.clone()));
        self.trace.bucket = self.bucket.clone();
        self
    }
}

pub(crate) fn record(id: u64) -> Record {
    Record { id, pad: 0, elements: 1 }
}

/// What a stream of such records holds.
pub(crate) fn content(ids: &[u64]) -> Vec<u8> {
    ids.iter().flat_map(|&id| record(id).body(false).to_vec()).collect()
}
