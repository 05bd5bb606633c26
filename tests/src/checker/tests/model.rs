//! A server of a few lines with clients that interleave, lose replies and die; one bug can be switched on.
//!
//! `run` says whether the bug did something that a client could see.

use std::sync::Arc;

use crate::history::{Account, Action, History, Outcome, Pending, Reading, Refusal, Stamp, Time};
use crate::record::Record;
use crate::rng::Rng;
use stream::{Cell, Stream, cell, tail_of};

mod server;
mod stream;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bug {
    LoseRecord,
    LoseStream,
    ReviveStream,
    ChangeRecord,
    ChangeReadRecord,
    ShortRead,
    TearRecord,
    ApplyRefused,
    InventRecord,
    KeepOldLife,
    ApplyTwice,
    SwapRecords,
    StaleHead,
    StaleUpToDate,
    Reopen,
    CloseUnasked,
    RecordWithoutClose,
    CloseWithoutRecord,
    ForgetProducers,
    DuplicateAsNew,
    NewAsDuplicate,
    ForgetSequence,
    RefuseSequence,
}

impl Bug {
    /// It strikes at a crash, and only where clients know for sure what they lose.
    pub(super) fn at_crash(self) -> bool {
        use Bug::*;
        let mine = [LoseRecord, LoseStream, ReviveStream, ChangeRecord, ChangeReadRecord, InventRecord];
        mine.contains(&self) || [SwapRecords, Reopen, CloseUnasked, ForgetProducers].contains(&self)
    }
}

/// A client's operation under way.
struct Open {
    pending: Pending,
    slot: usize,
    action: Action,
    outcome: Option<Outcome>,
    began: Time,
}

struct Slot {
    name: Arc<str>,
    json: bool,
    stream: Option<Stream>,
    /// What the last life left, for bugs.
    old: Option<Stream>,
    /// A create or delete is open, or its outcome unknown.
    busy: bool,
    unsure: bool,
    /// Since when clients know that this life is.
    sure_since: Time,
    generation: u64,
    /// The producer's next sequence, and the request that waits for a definite answer.
    next: u64,
    retry: Option<Action>,
    sending: bool,
    seq: u64,
}

struct World {
    history: History,
    rng: Rng,
    slots: Vec<Slot>,
    open: Vec<Open>,
    ids: u64,
    bug: Option<Bug>,
    fired: bool,
    /// Reads begin at offset 0.
    whole: bool,
}

pub(super) fn run(seed: u64, bug: Option<Bug>) -> (Account, bool) {
    let slot = |n: usize| Slot {
        name: format!("s{n}").into(),
        json: n % 2 == 1,
        stream: None,
        old: None,
        busy: false,
        unsure: false,
        sure_since: Time::MAX,
        generation: 0,
        next: 0,
        retry: None,
        sending: false,
        seq: 0,
    };
    let mut world = World {
        history: History::default(),
        rng: Rng::new(seed),
        slots: (0..3).map(slot).collect(),
        open: Vec::new(),
        ids: seed << 32,
        bug,
        fired: false,
        whole: false,
    };
    for _ in 0..4 {
        for _ in 0..150 {
            world.step();
        }
        world.kill();
        world.read_back();
    }
    (world.history.account(), world.fired)
}

impl World {
    /// Whether the bug strikes here and now: at a random chance out of `n`; after a crash once in a run.
    fn strikes(&mut self, bug: Bug, n: u64) -> bool {
        let hit = self.bug == Some(bug) && !(self.fired && bug.at_crash()) && self.rng.one_in(n);
        self.fired |= hit;
        hit
    }

    fn step(&mut self) {
        match self.rng.below(3) {
            0 if self.open.len() < 6 => self.start(),
            0 | 1 => self.take_effect(),
            _ => self.answer(),
        }
    }

    fn start(&mut self) {
        let k = self.rng.index(self.slots.len());
        let Some(action) = self.choose(k) else { return };
        let slot = &self.slots[k];
        let began = self.history.now();
        let pending = self.history.begin(&slot.name, slot.json, action.clone());
        self.open.push(Open { pending, slot: k, action, outcome: None, began });
    }

    fn record(&mut self) -> Record {
        self.ids += 1;
        let (pad, elements) = (self.rng.below(20) as u32, self.rng.between(1, 3) as u32);
        Record { id: self.ids, pad, elements }
    }

    fn choose(&mut self, k: usize) -> Option<Action> {
        let dice = self.rng.below(100);
        let record = self.record();
        let with_record = self.rng.below(4) > 0;
        let closes = self.rng.one_in(25);
        let slot = &mut self.slots[k];
        let idle = !slot.busy && !slot.unsure;
        match dice {
            0..12 if idle && !slot.sending && slot.stream.is_none() => {
                slot.busy = true;
                slot.generation += 1;
                (slot.next, slot.retry, slot.seq) = (0, None, 0);
                Some(Action::Create { first: with_record.then_some(record), closed: closes })
            }
            0..4 if idle && !slot.sending && slot.stream.is_some() => {
                slot.busy = true;
                Some(Action::Delete)
            }
            0..40 => {
                let record = (with_record || !closes).then_some(record);
                Some(Action::Append { record, producer: None, seq: None, closes })
            }
            40..65 if !slot.sending && !slot.busy && !slot.unsure => {
                slot.sending = true;
                let id = format!("p{}-{}", slot.name, slot.generation).into();
                let producer = Some(Stamp { id, epoch: 0, seq: slot.next });
                let fresh = Action::Append { record: Some(record), producer, seq: None, closes };
                Some(slot.retry.get_or_insert(fresh).clone())
            }
            65..72 => {
                slot.seq += u64::from(dice != 65);
                let seq = Some(slot.seq.max(1));
                Some(Action::Append { record: Some(record), producer: None, seq, closes: false })
            }
            72..85 => Some(Action::Head),
            _ => Some(Action::Read),
        }
    }

    fn take_effect(&mut self) {
        let waiting: Vec<usize> = (0..self.open.len()).filter(|&i| self.open[i].outcome.is_none()).collect();
        if waiting.is_empty() {
            return;
        }
        let i = waiting[self.rng.index(waiting.len())];
        let (k, action) = (self.open[i].slot, self.open[i].action.clone());
        let outcome = self.perform(k, &action);
        self.open[i].outcome = Some(outcome);
    }

    fn answer(&mut self) {
        let done: Vec<usize> = (0..self.open.len()).filter(|&i| self.open[i].outcome.is_some()).collect();
        if done.is_empty() {
            return;
        }
        let open = self.open.swap_remove(done[self.rng.index(done.len())]);
        let outcome = open.outcome.clone().unwrap();
        let outcome = if self.rng.one_in(12) { Outcome::Unknown } else { outcome };
        self.finish(&open, outcome);
    }

    fn finish(&mut self, open: &Open, outcome: Outcome) {
        let Open { pending, slot: k, action, began, .. } = open;
        let slot = &mut self.slots[*k];
        let unknown = outcome == Outcome::Unknown;
        match action {
            Action::Create { .. } | Action::Delete => {
                slot.busy = false;
                slot.unsure |= unknown;
                let born = matches!(outcome, Outcome::Created { .. });
                slot.sure_since = if born { self.history.now() } else { Time::MAX };
                if born {
                    slot.learn(action, &outcome);
                }
            }
            Action::Append { producer: Some(stamp), .. } => {
                slot.sending = false;
                if matches!(outcome, Outcome::Appended { .. }) {
                    slot.next = stamp.seq + 1;
                }
                if !unknown && outcome != Outcome::Refused(Refusal::Unavailable) {
                    slot.retry = None;
                }
            }
            _ => {}
        }
        if slot.sure_since <= *began && !slot.busy && !slot.unsure {
            slot.learn(action, &outcome);
        }
        self.history.end(*pending, outcome, None);
    }

    fn kill(&mut self) {
        for open in std::mem::take(&mut self.open) {
            self.finish(&open, Outcome::Unknown);
        }
        self.history.died();
        for k in 0..self.slots.len() {
            if std::mem::take(&mut self.slots[k].unsure) {
                self.slots[k].sure_since = Time::MAX;
            } else {
                self.damage(k);
            }
        }
    }

    /// What a crash must not do.
    fn damage(&mut self, k: usize) {
        let json = self.slots[k].json;
        let sending_on = self.slots[k].retry.is_some() || self.slots[k].next > 0;
        let seq = self.slots[k].seq;
        if self.slots[k].stream.is_none() {
            if self.slots[k].old.is_some() && self.strikes(Bug::ReviveStream, 2) {
                self.slots[k].stream = self.slots[k].old.clone();
            }
            return;
        }
        let mut s = self.slots[k].stream.take().unwrap();
        let last = s.records.last().cloned();
        let (acked, read) = last.as_ref().map_or((false, false), |c| (c.acked, c.read));
        if acked && self.strikes(Bug::LoseRecord, 2) {
            s.records.pop();
        }
        if acked && self.strikes(Bug::ChangeRecord, 2) || read && self.strikes(Bug::ChangeReadRecord, 2) {
            s.records.last_mut().unwrap().record.id ^= 1 << 60;
        }
        let n = s.records.len();
        if n >= 2 && s.records[n - 1].acked && s.records[n - 2].acked && self.strikes(Bug::SwapRecords, 2) {
            // Whether clients can know depends on who was answered first; a read of the first settles it.
            self.fired = s.records[n - 2].read;
            if self.fired {
                s.records.swap(n - 1, n - 2);
            }
        }
        if s.closed && self.strikes(Bug::Reopen, 2) {
            // Only if a client knew.
            self.fired = self.knows_closed(k);
            s.closed = !self.fired;
        } else if !s.closed && !self.asked_to_close(k) && self.strikes(Bug::CloseUnasked, 2) {
            s.closed = true;
        }
        let counted = sending_on && s.producers.values().any(|&n| n > 0) && !s.closed;
        if counted && self.strikes(Bug::ForgetProducers, 2) {
            s.producers.clear();
            self.slots[k].stream = Some(s);
            self.probe_producer(k);
            return;
        }
        if s.seq > 0 && s.seq == seq && !s.closed && self.bug == Some(Bug::ForgetSequence) {
            let known = self.acked_seq(k) >= seq;
            if known && self.strikes(Bug::ForgetSequence, 1) {
                s.seq = 0;
                self.slots[k].stream = Some(s);
                let record = Some(self.record());
                self.once(k, Action::Append { record, producer: None, seq: Some(seq), closes: false });
                return;
            }
        }
        if acked && self.strikes(Bug::InventRecord, 2) {
            let record = Record { id: 1 << 61, ..last.unwrap().record };
            s.records.push(Cell { record, torn: 0, acked: false, read: false });
            s.closed = false;
        }
        debug_assert!(s.tail(json) < u64::MAX);
        if acked && self.strikes(Bug::LoseStream, 2) {
            return;
        }
        self.slots[k].stream = Some(s);
    }

    /// A producer that goes on where it was.
    fn probe_producer(&mut self, k: usize) {
        let record = Some(self.record());
        let slot = &self.slots[k];
        let id = format!("p{}-{}", slot.name, slot.generation).into();
        let producer = Some(Stamp { id, epoch: 0, seq: slot.next });
        let fresh = Action::Append { record, producer, seq: None, closes: false };
        let action = slot.retry.clone().unwrap_or(fresh);
        self.once(k, action);
    }

    fn once(&mut self, k: usize, action: Action) {
        let slot = &self.slots[k];
        let began = self.history.now();
        let pending = self.history.begin(&slot.name, slot.json, action.clone());
        let outcome = self.perform(k, &action);
        self.finish(&Open { pending, slot: k, action, outcome: None, began }, outcome);
    }

    fn read_back(&mut self) {
        self.whole = true;
        for k in 0..self.slots.len() {
            self.once(k, Action::Head);
            if self.slots[k].stream.is_some() {
                self.slots[k].sure_since = self.slots[k].sure_since.min(self.history.now());
            }
            self.once(k, Action::Read);
        }
        self.whole = false;
    }

    fn own(&self, k: usize) -> Vec<crate::history::Op> {
        let name = &self.slots[k].name;
        let mut ops = self.history.account().ops;
        ops.retain(|op| op.stream == *name);
        let born = ops.iter().rposition(|op| matches!(op.action, Action::Create { .. }));
        ops.drain(..born.unwrap_or(0));
        ops
    }

    fn knows_closed(&self, k: usize) -> bool {
        self.own(k).iter().any(|op| match &op.outcome {
            Outcome::Found { closed, .. } => *closed,
            Outcome::Read(r) => r.closed,
            _ => false,
        })
    }

    fn asked_to_close(&self, k: usize) -> bool {
        let name = &self.slots[k].name;
        self.history.account().ops.iter().any(|op| op.stream == *name && op.closes())
    }

    fn acked_seq(&self, k: usize) -> u64 {
        let ops = self.own(k);
        let acked = ops.iter().filter(|op| op.acknowledged());
        acked
            .filter_map(|op| match op.action {
                Action::Append { seq, .. } => seq,
                _ => None,
            })
            .max()
            .unwrap_or(0)
    }
}

impl Slot {
    /// What a client knows for sure after this answer.
    fn learn(&mut self, action: &Action, outcome: &Outcome) {
        let (json, mut at) = (self.json, 0);
        let record = record_of(action);
        for c in self.stream.iter_mut().flat_map(|s| &mut s.records) {
            match outcome {
                Outcome::Appended { .. } | Outcome::Created { new: true, .. } => {
                    c.acked |= record.is_some_and(|r| r.id == c.record.id);
                }
                Outcome::Read(r) => c.read |= r.from <= at && at + c.record.span(json) <= r.next,
                _ => {}
            }
            at += c.record.span(json) - c.torn;
        }
    }
}

fn record_of(action: &Action) -> Option<Record> {
    match action {
        Action::Create { first, .. } => *first,
        Action::Append { record, .. } => *record,
        _ => None,
    }
}
