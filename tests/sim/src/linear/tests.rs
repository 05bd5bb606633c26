//! The judge judged: histories made by hand, and every small history of a name against all orders that there are.

use std::sync::Arc;

use weir_tests::checker::Kind;
use weir_tests::history::{Action, Outcome, Reading, Refusal, Stamp};
use weir_tests::record::{Content, Record};
use weir_tests::rng::Rng;

use super::names::{self, Observation, Says};
use super::{Violation, check};
use crate::trace::{Ask, Call, Event, ForkFrom, Host, Told, Trace, What};

/// A history under the pen: operations with the moments of their question and their answer.
#[derive(Default)]
struct Script {
    ops: Vec<(Ask, Outcome, usize, usize)>,
}

fn record(id: u64) -> Record {
    Record { id, pad: 0, elements: 1 }
}

/// The offset behind so many of those.
fn tail(n: u64) -> u64 {
    n * record(0).span(false)
}

fn bytes(ids: &[u64]) -> Content {
    Content::Bytes(ids.iter().flat_map(|&id| record(id).body(false).to_vec()).collect::<Vec<u8>>().into())
}

const CREATE: Action = Action::Create { first: None, closed: false };

fn append(id: u64) -> Action {
    Action::Append { record: Some(record(id)), producer: None, seq: None, closes: false }
}

fn created(new: bool, n: u64) -> Outcome {
    Outcome::Created { new, next: tail(n), closed: false }
}

fn appended(n: u64) -> Outcome {
    Outcome::Appended { duplicate: false, next: tail(n), closed: false }
}

fn head(n: u64) -> Outcome {
    Outcome::Found { next: tail(n), closed: false }
}

fn read(ids: &[u64]) -> Outcome {
    let content = bytes(ids);
    let next = content.len();
    Outcome::Read(Reading { from: 0, content, next, up_to_date: true, closed: false })
}

const MISSING: Outcome = Outcome::Refused(Refusal::Missing);

impl Script {
    fn op(&mut self, action: Action, outcome: Outcome, from: usize, until: usize) -> &mut Self {
        self.of("s", action, outcome, from, until)
    }

    fn of(&mut self, name: &str, action: Action, outcome: Outcome, from: usize, until: usize) -> &mut Self {
        let ask = Ask { stream: name.into(), json: false, action, fork: None, ttl_ms: None };
        self.ops.push((ask, outcome, from, until));
        self
    }

    fn fork(
        &mut self,
        name: &str,
        at: Option<u64>,
        outcome: Outcome,
        from: usize,
        until: usize,
    ) -> &mut Self {
        self.of(name, CREATE, outcome, from, until);
        self.ops.last_mut().unwrap().0.fork = Some(ForkFrom { source: "s".into(), at });
        self
    }

    fn found(&self) -> Vec<Violation> {
        let mut moments: Vec<(usize, bool, usize)> = Vec::new();
        for (i, (_, _, from, until)) in self.ops.iter().enumerate() {
            moments.extend([(*from, false, i), (*until, true, i)]);
        }
        moments.sort_unstable();
        let mut trace = Trace { hosts: vec!["host".into()], ..Trace::default() };
        let mut calls = vec![Call(0); self.ops.len()];
        for (at, ends, i) in moments {
            let (ask, outcome, ..) = &self.ops[i];
            let what = if ends {
                let told = Told { outcome: outcome.clone(), status: 200, by: None, hops: 0, why: None };
                What::Answered { call: calls[i], told }
            } else {
                calls[i] = Call(trace.events.len());
                What::Asked { client: 0, to: Host(0), ask: ask.clone() }
            };
            trace.events.push(Event { at_us: at as u64 * 1000, what });
        }
        check(&trace)
    }

    fn holds(&self) {
        let found = self.found();
        assert!(found.is_empty(), "{}", found[0]);
    }

    fn breaks(&self, kind: Kind) {
        let found = self.found();
        assert!(found.iter().any(|v| v.kind == kind), "{kind:?} is not among {found:?}");
    }
}

/// A stream that was created and has what was appended, one after the other.
fn stream(ids: &[u64]) -> Script {
    let mut script = Script::default();
    script.op(CREATE, created(true, 0), 0, 1);
    for (n, &id) in ids.iter().enumerate() {
        script.op(append(id), appended(n as u64 + 1), 10 * n + 10, 10 * n + 15);
    }
    script
}

#[test]
fn an_honest_history_holds() {
    let mut script = stream(&[1, 2]);
    // Appends at once stand in either order, and readers meanwhile see some of them.
    script.op(append(3), appended(4), 100, 120).op(append(4), appended(3), 101, 119);
    script.op(Action::Read, read(&[1, 2, 4]), 102, 118).op(Action::Head, head(2), 103, 117);
    script.op(Action::Read, read(&[1, 2, 4, 3]), 130, 131);
    script.holds();
}

#[test]
fn an_acknowledged_record_that_is_gone() {
    stream(&[1, 2]).op(Action::Read, read(&[1]), 90, 91).breaks(Kind::LostRecord);
}

#[test]
fn a_head_that_knows_less_than_was_acknowledged() {
    stream(&[1, 2])
        .op(Action::Head, head(1), 90, 91)
        .op(Action::Read, read(&[1, 2]), 95, 96)
        .breaks(Kind::StaleClaim);
}

#[test]
fn a_head_that_knows_what_was_not_sent_yet() {
    let mut script = stream(&[1]);
    script.op(Action::Head, head(2), 50, 51).op(append(2), appended(2), 60, 61);
    script.op(Action::Read, read(&[1, 2]), 95, 96).breaks(Kind::ForeignRecord);
}

#[test]
fn a_reader_who_saw_what_later_is_otherwise() {
    let mut script = stream(&[1]);
    script.op(append(2), Outcome::Unknown, 50, 60).op(append(3), Outcome::Unknown, 50, 60);
    script.op(Action::Read, read(&[1, 2]), 70, 71).op(Action::Read, read(&[1, 3]), 80, 81);
    script.breaks(Kind::Rewritten);
}

#[test]
fn an_append_without_an_answer_may_come_late_or_never() {
    let mut script = stream(&[1]);
    script.op(append(2), Outcome::Unknown, 20, 21).op(append(3), Outcome::Unknown, 20, 21);
    script.op(Action::Head, head(1), 30, 31).op(Action::Read, read(&[1, 2]), 60, 61);
    script.holds();
}

#[test]
fn a_refused_append_that_is_there() {
    let mut script = stream(&[1]);
    script.op(append(2), Outcome::Refused(Refusal::Unavailable), 20, 21);
    script.op(Action::Read, read(&[1, 2]), 60, 61).breaks(Kind::RefusedRecord);
}

#[test]
fn a_producer_told_twice_that_it_is_new() {
    let stamp = Stamp { id: "p".into(), epoch: 0, seq: 0 };
    let send = Action::Append { record: Some(record(2)), producer: Some(stamp), seq: None, closes: false };
    let mut script = stream(&[1]);
    script.op(send.clone(), appended(2), 20, 21).op(send, appended(3), 30, 31);
    script.op(Action::Read, read(&[1, 2, 2]), 60, 61).breaks(Kind::ProducerDoubled);
}

#[test]
fn a_closed_stream_is_not_open_again() {
    let close = Action::Append { record: None, producer: None, seq: None, closes: true };
    let mut script = stream(&[1]);
    script.op(close, Outcome::Appended { duplicate: false, next: tail(1), closed: true }, 20, 21);
    script.op(Action::Head, head(1), 30, 31).breaks(Kind::Reopened);
}

#[test]
fn a_stream_that_exists_is_never_missing() {
    stream(&[1]).op(Action::Head, MISSING, 50, 51).breaks(Kind::LostStream);
    // While a delete is under way it may be.
    let mut script = stream(&[1]);
    script.op(Action::Head, MISSING, 50, 60).op(Action::Delete, Outcome::Unknown, 55, 56).holds();
}

#[test]
fn a_deleted_stream_is_not_there_again() {
    let mut script = stream(&[1]);
    script.op(Action::Delete, Outcome::Deleted, 50, 51).op(Action::Head, head(1), 60, 61);
    script.breaks(Kind::GhostStream);
}

#[test]
fn a_new_life_does_not_have_the_old_ones_records() {
    let renewed = || {
        let mut script = stream(&[1]);
        script.op(Action::Delete, Outcome::Deleted, 50, 51).op(CREATE, created(true, 0), 60, 61);
        script
    };
    renewed().op(append(2), appended(1), 70, 71).op(Action::Read, read(&[2]), 80, 81).holds();
    renewed()
        .op(append(2), appended(2), 70, 71)
        .op(Action::Read, read(&[1, 2]), 80, 81)
        .breaks(Kind::ForeignRecord);
}

#[test]
fn lives_are_told_apart_though_deletes_went_without_an_answer() {
    let renewed = || {
        let mut script = stream(&[1]);
        script.op(Action::Delete, Outcome::Unknown, 50, 51).op(Action::Delete, MISSING, 55, 56);
        script.op(CREATE, created(true, 0), 60, 61).op(append(2), appended(1), 70, 71);
        script
    };
    renewed().op(Action::Read, read(&[2]), 80, 81).holds();
    // That delete has come: it cannot come again. Another that has no answer may.
    renewed().op(Action::Head, MISSING, 80, 81).breaks(Kind::LostStream);
    renewed().op(Action::Delete, Outcome::Unknown, 75, 76).op(Action::Head, MISSING, 80, 81).holds();
    renewed().op(Action::Head, head(0), 80, 81).op(Action::Read, read(&[2]), 90, 91).breaks(Kind::StaleClaim);
}

#[test]
fn creates_without_an_answer_are_retried() {
    let mut script = Script::default();
    script.op(CREATE, Outcome::Unknown, 0, 1).op(CREATE, created(false, 0), 5, 6);
    script.op(append(1), appended(1), 10, 11).op(Action::Read, read(&[1]), 20, 21);
    script.holds();
    script.op(Action::Read, read(&[]), 30, 31).breaks(Kind::LostRecord);
}

#[test]
fn a_fork_begins_as_its_source_did() {
    let forked = |content: &[u64]| {
        let mut script = stream(&[1, 2, 3]);
        script.fork("f", Some(tail(2)), created(true, 2), 50, 51);
        script.of("f", append(9), appended(3), 60, 61);
        script.op(Action::Read, read(&[1, 2, 3]), 70, 71).of("f", Action::Read, read(content), 72, 73);
        script
    };
    forked(&[1, 2, 9]).holds();
    forked(&[1, 3, 9]).breaks(Kind::Rewritten);
    forked(&[1, 2]).breaks(Kind::LostRecord);
    let mut early = forked(&[1, 2, 9]);
    early.of("f", Action::Head, head(1), 80, 81).breaks(Kind::BadOffsets);
}

#[test]
fn a_fork_outlives_its_source_and_does_not_revive_it() {
    let mut script = stream(&[1, 2]);
    script.op(Action::Read, read(&[1, 2]), 40, 41).fork("f", None, created(true, 2), 50, 51);
    script.op(Action::Delete, Outcome::Deleted, 60, 61).op(Action::Head, MISSING, 70, 71);
    script.of("f", Action::Read, read(&[1, 2]), 80, 81);
    script.holds();
    script.fork("g", Some(tail(1)), created(true, 1), 90, 91).breaks(Kind::GhostStream);
}

/// Of two lives of the source's name one is not sure, and so it is not sure of which the fork is.
#[test]
fn a_fork_is_not_held_against_another_life_of_its_sources_name() {
    let mut script = stream(&[1, 2]);
    script.op(Action::Read, read(&[1, 2]), 40, 41);
    script.ops[0].0.ttl_ms = Some(1000);
    script.op(Action::Head, MISSING, 2000, 2001);
    script.op(CREATE, Outcome::Unknown, 2010, 2011).op(CREATE, created(true, 0), 2020, 2021);
    script.op(append(7), appended(1), 2030, 2031);
    script.fork("f", Some(tail(1)), created(true, 1), 2040, 2041);
    script.of("f", Action::Read, read(&[7]), 2050, 2051);
    script.holds();
}

#[test]
fn a_fork_of_what_exists_does_not_find_it_missing() {
    let mut script = stream(&[1]);
    script.fork("f", Some(0), MISSING, 50, 51).breaks(Kind::LostStream);
}

#[test]
fn a_mortal_stream_lives_as_long_as_promised() {
    let mortal = |missing: usize| {
        let mut script = Script::default();
        script.op(CREATE, created(true, 0), 0, 1).op(Action::Read, read(&[]), 500, 501);
        script.ops[0].0.ttl_ms = Some(1000);
        script.op(Action::Head, MISSING, missing, missing + 1);
        script
    };
    mortal(1500).holds();
    mortal(1400).breaks(Kind::LostStream);
}

/// Whether some order explains what was said: tried one by one.
fn explained(said: &[Observation]) -> bool {
    fn search(said: &[Observation], done: u32, present: bool) -> bool {
        let open = |i: usize| done & (1 << i) == 0;
        // What never was answered need not have happened.
        if (0..said.len()).all(|i| !open(i) || said[i].ended == u64::MAX) {
            return true;
        }
        (0..said.len()).filter(|&i| open(i)).any(|i| {
            // Next can only be what began before all that is left has ended.
            let first = (0..said.len()).filter(|&k| open(k)).map(|k| said[k].ended).min();
            if first.is_some_and(|first| said[i].began > first) {
                return false;
            }
            let (needs, leaves) = match said[i].says {
                Says::Created | Says::MayCreate => (false, true),
                Says::Deleted | Says::MayDelete => (true, false),
                Says::Exists => (true, true),
                Says::Missing => (false, false),
            };
            present == needs && search(said, done | (1 << i), leaves)
        })
    }
    search(said, 0, false)
}

#[test]
fn names_are_judged_as_by_trying_every_order() {
    let all = [Says::Created, Says::Deleted, Says::MayCreate, Says::MayDelete, Says::Exists, Says::Missing];
    let (mut good, mut bad) = (0, 0);
    let mut rng = Rng::new(1);
    for _ in 0..60_000 {
        let n = rng.between(1, 6);
        let mut moments: Vec<u64> = (0..2 * n).collect();
        let mut take = || moments.swap_remove(rng.index(moments.len()));
        let pairs: Vec<(u64, u64)> = (0..n).map(|_| (take(), take())).collect();
        let said: Vec<Observation> = pairs
            .into_iter()
            .map(|(a, b)| {
                let says = all[rng.index(all.len())];
                let open = matches!(says, Says::MayCreate | Says::MayDelete);
                let ended = if open { u64::MAX } else { a.max(b) };
                Observation { says, began: a.min(b), ended }
            })
            .collect();
        let mut found = Vec::new();
        names::check(&mut found, &Arc::from("s"), &said, false);
        let holds = explained(&said);
        assert_eq!(found.is_empty(), holds, "{said:?}");
        if holds { good += 1 } else { bad += 1 }
    }
    assert!(good > 5_000 && bad > 5_000, "{good} good, {bad} bad");
}
