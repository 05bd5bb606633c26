//! The model's server: what each request does, and what each bug does to it.

use super::*;

/// What the server does, bugs included.
impl World {
    pub(super) fn perform(&mut self, k: usize, action: &Action) -> Outcome {
        let json = self.slots[k].json;
        match action {
            Action::Create { first, closed } => self.create(k, *first, *closed),
            Action::Append { record, producer, seq, closes } => {
                self.append(k, *record, producer.as_ref(), *seq, *closes)
            }
            Action::Delete => match self.slots[k].stream.take() {
                Some(s) => {
                    self.slots[k].old = Some(s);
                    Outcome::Deleted
                }
                None => Outcome::Refused(Refusal::Missing),
            },
            Action::Head => {
                let Some(s) = self.slots[k].stream.clone() else {
                    return Outcome::Refused(Refusal::Missing);
                };
                let mut next = s.tail(json);
                if let Some(last) = s.records.last().filter(|c| c.acked)
                    && self.strikes(Bug::StaleHead, 3)
                {
                    next -= last.record.span(json) - last.torn;
                }
                Outcome::Found { next, closed: s.closed }
            }
            Action::Read => self.read(k),
        }
    }

    fn create(&mut self, k: usize, first: Option<Record>, closed: bool) -> Outcome {
        let json = self.slots[k].json;
        if let Some(s) = &self.slots[k].stream {
            return Outcome::Created { new: false, next: s.tail(json), closed: s.closed };
        }
        let mut s = Stream { closed, ..Stream::default() };
        if let Some(old) = self.slots[k].old.clone().filter(|o| o.records.iter().any(|c| c.acked))
            && self.strikes(Bug::KeepOldLife, 2)
        {
            s.records = old.records;
        }
        s.records.extend(first.map(cell));
        let next = s.tail(json);
        self.slots[k].stream = Some(s);
        Outcome::Created { new: true, next, closed }
    }

    fn read(&mut self, k: usize) -> Outcome {
        let json = self.slots[k].json;
        let Some(mut s) = self.slots[k].stream.clone() else {
            return Outcome::Refused(Refusal::Missing);
        };
        if let Some(last) = s.records.last().filter(|c| c.acked).cloned() {
            if self.strikes(Bug::StaleUpToDate, 3) {
                s.records.pop();
                s.closed = false;
            } else if self.strikes(Bug::ShortRead, 3) {
                s.records.pop();
                let next = s.tail(json) + last.record.span(json);
                let content = s.content(json);
                return Outcome::Read(Reading { from: 0, content, next, up_to_date: true, closed: s.closed });
            }
        }
        let next = s.tail(json);
        let from = self.rng.below(next + 1);
        let from = if self.whole || self.rng.one_in(2) { 0 } else { from };
        let content = tail_of(s.content(json), from);
        Outcome::Read(Reading { from, content, next, up_to_date: true, closed: s.closed })
    }

    fn append(
        &mut self,
        k: usize,
        record: Option<Record>,
        producer: Option<&Stamp>,
        seq: Option<u64>,
        closes: bool,
    ) -> Outcome {
        let json = self.slots[k].json;
        let Some(mut s) = self.slots[k].stream.take() else {
            return Outcome::Refused(Refusal::Missing);
        };
        let outcome = self.decide(&mut s, record, producer, seq, closes, json);
        self.slots[k].stream = Some(s);
        outcome
    }

    fn decide(
        &mut self,
        s: &mut Stream,
        record: Option<Record>,
        producer: Option<&Stamp>,
        seq: Option<u64>,
        closes: bool,
        json: bool,
    ) -> Outcome {
        let known = producer.and_then(|p| s.producers.get(&p.id).copied());
        let duplicate = producer.is_some_and(|p| known.is_some_and(|last| p.seq <= last));
        if duplicate && (!s.closed || s.closed_by.as_ref() == producer) {
            if s.closed || !self.strikes(Bug::DuplicateAsNew, 2) {
                return Outcome::Appended { duplicate: true, next: s.tail(json), closed: s.closed };
            }
        } else if s.closed {
            if record.is_none() && closes && producer.is_none() {
                return Outcome::Appended { duplicate: false, next: s.tail(json), closed: true };
            }
            return Outcome::Refused(Refusal::Closed { next: s.tail(json) });
        } else if let Some(p) = producer {
            if p.seq != known.map_or(0, |last| last + 1) {
                return Outcome::Refused(Refusal::Producer);
            }
            if record.is_some() && !closes && self.strikes(Bug::NewAsDuplicate, 6) {
                return Outcome::Appended { duplicate: true, next: s.tail(json), closed: false };
            }
        }
        if let Some(seq) = seq {
            if seq <= s.seq || self.strikes(Bug::RefuseSequence, 3) {
                return Outcome::Refused(Refusal::SeqConflict);
            }
            s.seq = seq;
        }
        self.write(s, record, producer, closes, json)
    }

    fn write(
        &mut self,
        s: &mut Stream,
        record: Option<Record>,
        producer: Option<&Stamp>,
        closes: bool,
        json: bool,
    ) -> Outcome {
        let both = record.is_some() && closes;
        let without_record = both && self.strikes(Bug::CloseWithoutRecord, 1);
        let without_close = both && self.strikes(Bug::RecordWithoutClose, 1);
        if let Some(r) = record.filter(|_| !without_record) {
            s.records.push(cell(r));
            if r.span(json) > 1 && self.strikes(Bug::TearRecord, 6) {
                s.records.last_mut().unwrap().torn = 1;
            }
            if producer.is_none() && self.strikes(Bug::ApplyTwice, 6) {
                s.records.push(cell(r));
            }
        }
        if let Some(p) = producer {
            s.producers.insert(p.id.clone(), p.seq);
        }
        if closes && !without_close {
            s.closed = true;
            s.closed_by = producer.cloned();
        }
        if record.is_some() && producer.is_none() && !closes && self.strikes(Bug::ApplyRefused, 6) {
            return Outcome::Refused(Refusal::Unavailable);
        }
        Outcome::Appended { duplicate: false, next: s.tail(json), closed: closes }
    }
}
