//! Clients: creates, forks, deletes, appends with retries, readings.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir::metadata::command::{Answer, Command, Expiry, StreamConfig};
use weir_api::{Offset, StreamId};
use weir_tests::history::{Action, Outcome, Reading, Refusal, Stamp};
use weir_tests::record::{Content, Record};

use super::nodes::{Waiter, is_idle, name_of};
use super::{Frame, Walk};
use crate::trace::{Ask, Call, ForkFrom, Told, What};

/// Names that clients use. The last few are forks'.
const NAMES: [&str; 4] = ["r", "s", "t", "u"];

/// What clients remember.
#[derive(Debug, Default)]
pub(super) struct Clients {
    records: u64,
    forks: u64,
    /// By stream number: the producer's next, and what waits for an answer.
    producers: BTreeMap<StreamId, (u64, Option<Record>)>,
    /// Names that are ever asked for.
    named: Vec<Arc<str>>,
}

impl Clients {
    /// A producer has the answer to this number.
    pub(super) fn settled(&mut self, stream: StreamId, seq: u64) {
        if let Some(producer) = self.producers.get_mut(&stream).filter(|p| p.0 == seq) {
            *producer = (seq + 1, None);
        }
    }
}

fn config() -> StreamConfig {
    StreamConfig { content_type: "text/plain".into(), expiry: Expiry::Never }
}

impl Walk {
    fn ask(&mut self, process: usize, name: &Arc<str>, action: Action, fork: Option<ForkFrom>) -> Call {
        if !self.clients.named.contains(name) {
            self.clients.named.push(name.clone());
        }
        let to = self.host(process);
        let ask = Ask { stream: name.clone(), json: false, action, fork, ttl_ms: None };
        Call(self.event(What::Asked { client: 0, to, ask }))
    }

    pub(super) fn answer(&mut self, call: Call, outcome: Outcome) {
        let told = Told { outcome, status: 0, by: None, hops: 0, why: None };
        self.event(What::Answered { call, told });
    }

    pub(super) fn create(&mut self) {
        let Some(process) = self.some_process() else { return };
        let name: Arc<str> = NAMES[self.rng.index(NAMES.len())].into();
        let call = self.ask(process, &name, Action::Create { first: None, closed: false }, None);
        let create = Command::Create { name, config: config(), closed: false, unborn: false };
        match self.propose(process, create) {
            Some(Ok(Answer::Created { .. })) => {
                self.answer(call, Outcome::Created { new: true, next: 0, closed: false });
            }
            // Where it stands its owner would have to say.
            Some(_) => self.answer(call, Outcome::Refused(Refusal::Unavailable)),
            None => {}
        }
    }

    pub(super) fn fork(&mut self) {
        let Some(process) = self.some_process() else { return };
        let Some(source) = self.some_stream(process) else { return };
        let view = &self.processes[process].view;
        let Some(from) = name_of(view, source) else { return };
        let open = self.processes.iter().find_map(|p| p.open.get(&source));
        let known =
            view.stream(source).map_or(Offset(0), |s| s.committed).max(open.map_or(Offset(0), |o| o.durable));
        let at = self.rng.below(known.0 + 1);
        self.clients.forks += 1;
        let name: Arc<str> = format!("fork-{}", self.clients.forks).into();
        let fork = Some(ForkFrom { source: from, at: Some(at) });
        let call = self.ask(process, &name, Action::Create { first: None, closed: false }, fork);
        let offset = Offset(at);
        let command = Command::Fork { source, offset, name, config: config(), closed: false, unborn: false };
        match self.propose(process, command) {
            Some(Ok(Answer::Created { .. })) => {
                self.answer(call, Outcome::Created { new: true, next: at, closed: false });
            }
            Some(_) => self.answer(call, Outcome::Refused(Refusal::Unavailable)),
            None => {}
        }
    }

    pub(super) fn delete(&mut self) {
        let Some(process) = self.some_process() else { return };
        let Some(stream) = self.some_stream(process) else { return };
        let view = &self.processes[process].view;
        let Some(known) = view.stream(stream).filter(|s| !s.tombstone).cloned() else { return };
        let idle = is_idle(view, &known);
        // Its owner stops first; anybody else says that it is not open, and the log knows better.
        let epoch = self.processes[process].open.remove(&stream).map(|open| open.epoch);
        if epoch.is_none() && !idle && !self.rng.one_in(4) {
            return;
        }
        let call = self.ask(process, &known.name, Action::Delete, None);
        match self.propose(process, Command::Delete { stream, epoch }) {
            Some(Ok(_)) => self.answer(call, Outcome::Deleted),
            Some(Err(_)) => self.answer(call, Outcome::Refused(Refusal::Unavailable)),
            None => {}
        }
    }

    /// Where an append goes: mostly to who has the stream open, zombies too.
    fn target(&mut self) -> Option<(usize, StreamId)> {
        let open: Vec<(usize, StreamId)> = (0..self.processes.len())
            .filter(|&p| self.processes[p].up)
            .flat_map(|p| self.processes[p].open.keys().map(move |id| (p, *id)))
            .collect();
        if !open.is_empty() && !self.rng.one_in(4) {
            return Some(open[self.rng.index(open.len())]);
        }
        let process = self.some_process()?;
        let stream = self.some_stream(process)?;
        self.open(process, stream).then_some((process, stream))
    }

    pub(super) fn append(&mut self) {
        let Some((process, stream)) = self.target() else { return };
        let Some(name) = name_of(&self.log.head, stream) else { return };
        let produces = self.rng.one_in(2);
        let known = self.clients.producers.get(&stream).cloned().unwrap_or((0, None));
        let record = match (&known, produces) {
            ((_, Some(waiting)), true) => *waiting,
            _ => {
                self.clients.records += 1;
                Record { id: self.clients.records, pad: self.rng.below(4) as u32, elements: 1 }
            }
        };
        let id: Arc<str> = format!("producer-{stream}").into();
        let seq = known.0;
        let producer = produces.then(|| Stamp { id: id.clone(), epoch: 0, seq });
        if produces {
            self.clients.producers.insert(stream, (seq, Some(record)));
        }
        let action = Action::Append { record: Some(record), producer, seq: None, closes: false };
        let call = self.ask(process, &name, action, None);
        let bytes: Arc<[u8]> = record.body(false).to_vec().into();
        let open = self.processes[process].open.get_mut(&stream).expect("the target has it open");
        let last = open.producers.get(&id).copied();
        if produces && last.is_some_and(|last| seq <= last) {
            // Known: answered once its original is durable.
            if open.durable == open.tail {
                let next = open.durable.0;
                self.clients.producers.insert(stream, (seq + 1, None));
                self.answer(call, Outcome::Appended { duplicate: true, next, closed: false });
            }
            return;
        }
        if produces && seq != last.map_or(0, |last| last + 1) {
            // Only under its lease does a node refuse for what it remembers. A walk has none: the log is asked.
            let session = &self.processes[process].session;
            let refusal = match self.log.head.is_current(session) {
                true => Refusal::Producer,
                false => Refusal::Unavailable,
            };
            return self.answer(call, Outcome::Refused(refusal));
        }
        let producer = produces.then_some((id.clone(), seq));
        let frame = Frame { stream, epoch: open.epoch, offset: open.tail, bytes: bytes.clone(), producer };
        open.tail = frame.end();
        open.records.extend_from_slice(&bytes);
        if produces {
            open.producers.insert(id, seq);
        }
        let next = frame.end().0;
        self.processes[process].order(frame, Some(Waiter { call, next }));
    }

    /// A reader at who has the stream open: what is durable there. Nothing is said of now.
    pub(super) fn read(&mut self) {
        let Some((process, stream)) = self.target() else { return };
        let p = &self.processes[process];
        let Some(name) = name_of(&self.log.head, stream) else { return };
        let open = &p.open[&stream];
        let until = (open.durable.0 - open.from.0) as usize;
        let content = Content::Bytes(open.records[..until].to_vec().into());
        let (from, next) = (open.from.0, open.durable.0);
        let call = self.ask(process, &name, Action::Read, None);
        let reading = Reading { from, content, next, up_to_date: false, closed: false };
        self.answer(call, Outcome::Read(reading));
    }

    /// At the end: every name, whole.
    pub(super) fn read_back(&mut self) {
        for name in self.clients.named.clone() {
            let call = self.ask(0, &name, Action::Read, None);
            let found = self.log.head.stream_by_name(&name).filter(|(_, s)| !s.tombstone);
            let outcome = match found {
                None => Outcome::Refused(Refusal::Missing),
                Some((_, stream)) => {
                    let content = Content::Bytes(self.bucket.read(&self.log.head, stream).into());
                    let next = stream.committed.0;
                    Outcome::Read(Reading { from: 0, content, next, up_to_date: true, closed: false })
                }
            };
            self.answer(call, outcome);
        }
    }
}
