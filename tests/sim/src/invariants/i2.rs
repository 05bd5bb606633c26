//! I2: an acknowledged append is never lost.
//!
//! What clients see of it (records and streams that are gone) is `linear`'s to find. Here: what owners acknowledged stands in
//! the state or in the WAL of a session that has the stream open; what the state refers to is in the bucket; a seal is
//! never deleted, nor WAL that recovery may need.

use std::collections::{BTreeMap, BTreeSet};

use weir::metadata::query::Disposition;
use weir::metadata::state::State;
use weir::storage::keys::{self, Key};
use weir_api::{Offset, SessionId, StreamId};

use super::Verdict;
use super::log::Log;
use crate::linear::Violation;
use crate::trace::{StoreEffect, StoreOp, Trace, What};

pub(super) fn check(verdict: &mut Verdict, trace: &Trace, log: &Log, said: &[Violation]) {
    for violation in said.iter().filter(|v| v.invariant() == "I2") {
        verdict.report("I2", violation.to_string());
    }
    check_deletes(verdict, trace, log);
    let Some((_, _, state)) = trace.states.iter().max_by_key(|(_, index, _)| *index) else { return };
    check_acknowledged(verdict, trace, state);
    check_objects(verdict, trace, state);
}

/// Everything acknowledged is committed, or waits in the WAL of the session that still has the stream open.
fn check_acknowledged(verdict: &mut Verdict, trace: &Trace, state: &State) {
    let mut reached: BTreeMap<StreamId, BTreeMap<&SessionId, Offset>> = BTreeMap::new();
    for event in &trace.events {
        let What::Acknowledged { session, appends, .. } = &event.what else { continue };
        for a in appends {
            let end = reached.entry(a.stream).or_default().entry(session).or_default();
            *end = (*end).max(a.end);
        }
    }
    for (id, by) in reached {
        let Some(stream) = state.stream(id).filter(|s| !s.tombstone) else { continue };
        let holder = match state.disposition_of(stream) {
            Disposition::OpenAt(no, _) | Disposition::AwaitingRecovery(no) => {
                state.session(no).map(|s| &s.id)
            }
            Disposition::PlacedAt(_) | Disposition::Released => None,
        };
        for (session, end) in by {
            if end > stream.committed && holder != Some(session) {
                let m = format!(
                    "stream {id} ends at {}, and {session} acknowledged up to {end} and has it no more",
                    stream.committed
                );
                verdict.report("I2", m);
            }
        }
    }
}

/// Every segment that a stream's records are in is in the bucket.
fn check_objects(verdict: &mut Verdict, trace: &Trace, state: &State) {
    let there: BTreeSet<(SessionId, u64)> = trace
        .bucket
        .iter()
        .filter_map(|(key, _)| match keys::parse(generation(key)?, key)? {
            Key::Segment { session, number } => Some((session, number)),
            Key::Wal { .. } => None,
        })
        .collect();
    if trace.bucket.is_empty() {
        return;
    }
    for (id, segment) in state.segments.iter().filter(|(_, s)| s.references > 0) {
        if !there.contains(&(segment.session.clone(), segment.number)) {
            let m = format!("segment {} of {} is referred to and not in the bucket", id.0, segment.session);
            verdict.report("I2", m);
        }
    }
}

/// Seals stay; WAL goes only once segments hold what it held.
fn check_deletes(verdict: &mut Verdict, trace: &Trace, log: &Log) {
    let mut seals: BTreeSet<&str> = BTreeSet::new();
    let mut deleted: Vec<(u64, SessionId, u64)> = Vec::new();
    let mut applied = 0;
    for event in &trace.events {
        match &event.what {
            What::Applied { index, .. } => applied = applied.max(*index),
            What::Store {
                op: StoreOp::Create | StoreOp::Put,
                key,
                effect: StoreEffect::Done,
                seal: true,
                ..
            } => {
                seals.insert(key);
            }
            What::Store { op: StoreOp::Delete, key, effect: StoreEffect::Done, .. } => {
                if seals.contains(&**key) {
                    verdict.report("I2", format!("the seal {key} was deleted"));
                } else if let Some(Key::Wal { session, seq }) =
                    generation(key).and_then(|g| keys::parse(g, key))
                {
                    deleted.push((applied, session, seq));
                }
            }
            _ => {}
        }
    }
    if deleted.is_empty() {
        return;
    }
    let states = log.states();
    for (at, session, seq) in deleted {
        // As of the newest entry that anybody had applied: a node that deletes knows at most that.
        let Some((_, state)) = states.range(..=at).next_back() else { continue };
        let start = state.session_by_id(&session).map(|(_, s)| s.wal_start);
        if let Some(start) = start.filter(|start| seq >= *start) {
            let m = format!("WAL object {seq} of {session} was deleted, and recovery would begin at {start}");
            verdict.report("I2", m);
        }
    }
}

fn generation(key: &str) -> Option<u64> {
    key.strip_prefix('g')?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Made, breaks, holds};

    #[test]
    fn committed_is_not_lost() {
        let mut run = Made::new();
        let (a, b) = (run.session("a", 1), run.session("b", 1));
        let s = run.stream("s");
        run.open(&a, s, 1).acked(&a, s, 1, 0, 5).commit(&a, s, 1, 0, 5).release(&a, s, 1, 5);
        run.stored("g0/segments/a/1/00000000000000000001").open(&b, s, 2).end();
        holds(&run, "I2");
    }

    #[test]
    fn acknowledged_and_released_before_it() {
        let mut run = Made::new();
        let (a, b) = (run.session("a", 1), run.session("b", 1));
        let s = run.stream("s");
        run.open(&a, s, 1).acked(&a, s, 1, 0, 5).release(&a, s, 1, 0).open(&b, s, 2).end();
        breaks(&run, "I2", "has it no more");
    }

    #[test]
    fn a_seal_deleted() {
        let mut run = Made::new();
        let key = "g0/wal/a/1/00000000000000000003";
        run.sealed(key).deleted(key);
        breaks(&run, "I2", "seal");
    }

    #[test]
    fn wal_deleted_before_segments_hold_it() {
        let mut run = Made::new();
        let a = run.session("a", 1);
        let s = run.stream("s");
        run.open(&a, s, 1).acked(&a, s, 1, 0, 5).deleted("g0/wal/a/1/00000000000000000001");
        breaks(&run, "I2", "recovery would begin at 1");
    }

    #[test]
    fn a_segment_gone_that_the_state_needs() {
        let mut run = Made::new();
        let a = run.session("a", 1);
        let s = run.stream("s");
        run.open(&a, s, 1).acked(&a, s, 1, 0, 5).commit(&a, s, 1, 0, 5).stored("cluster.json").end();
        breaks(&run, "I2", "not in the bucket");
    }
}
