//! Producers and sequence numbers (I4): each (producer, epoch, sequence) is new exactly once, and what was
//! acknowledged is remembered as long as the data.
//!
//! The load's producers count without gaps and wait for a definite answer, so any complaint about order is a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::lives::Life;
use super::prefix::MaxBefore;
use super::{Case, Kind};
use crate::history::{Action, Op, Outcome, Refusal, Stamp, Time};

fn stamp(op: &Op) -> Option<&Stamp> {
    match &op.action {
        Action::Append { producer, .. } => producer.as_ref(),
        _ => None,
    }
}

/// Checks all stamped appends of one name.
pub(super) fn check(case: &mut Case<'_>, name: &Arc<str>, ops: &[usize], lives: &[Life]) {
    check_stamps(case, name, ops, ops);
    check_refusals(case, name, lives);
}

/// Checks the stamped appends of each life by itself, for clients that may send a stamp of one life to the next.
pub(super) fn check_each(case: &mut Case<'_>, name: &Arc<str>, lives: &[Life]) {
    for life in lives {
        check_stamps(case, name, &life.ops, &life.maybe);
    }
    check_refusals(case, name, lives);
}

/// `ops` met one stream, `maybe` may have.
fn check_stamps(case: &mut Case<'_>, name: &Arc<str>, ops: &[usize], maybe: &[usize]) {
    let sure: BTreeSet<usize> = ops.iter().copied().collect();
    let mut stamps: BTreeMap<&Stamp, Vec<(&Op, bool)>> = BTreeMap::new();
    for &i in maybe {
        if let Some(stamp) = stamp(case.op(i)) {
            stamps.entry(stamp).or_default().push((case.op(i), sure.contains(&i)));
        }
    }
    for (stamp, attempts) in stamps {
        check_stamp(case, name, stamp, &attempts);
    }
}

fn check_refusals(case: &mut Case<'_>, name: &Arc<str>, lives: &[Life]) {
    for &i in lives.iter().flat_map(|l| &l.ops) {
        let op = case.op(i);
        if op.outcome == Outcome::Refused(Refusal::Producer) {
            let m = format!("{:?} was refused at {}", stamp(op), op.ended);
            case.report(Kind::ProducerLost, name, m);
        }
    }
}

fn check_stamp(case: &mut Case<'_>, name: &Arc<str>, stamp: &Stamp, attempts: &[(&Op, bool)]) {
    let mut first_ack = Time::MAX;
    let mut news = 0;
    for (op, _) in attempts.iter().filter(|(_, sure)| *sure) {
        let Outcome::Appended { duplicate, .. } = op.outcome else { continue };
        if duplicate {
            let original =
                |other: &Op| !std::ptr::eq::<Op>(other, *op) && other.possible() && other.began < op.ended;
            if !attempts.iter().any(|(other, _)| original(other)) {
                let m = format!("{stamp:?} was called a duplicate at {}, but was never accepted", op.ended);
                case.report(Kind::PhantomDuplicate, name, m);
            }
        } else {
            news += 1;
            if news > 1 || first_ack < op.began {
                let m = format!("{stamp:?} was accepted as new again at {}", op.ended);
                case.report(Kind::ProducerDoubled, name, m);
            }
        }
        first_ack = first_ack.min(op.ended);
    }
}

/// Checks `Stream-Seq` within one life.
pub(super) fn check_sequence(case: &mut Case<'_>, life: &Life) {
    let seq = |op: &Op| match &op.action {
        Action::Append { seq, .. } => *seq,
        _ => None,
    };
    let own = || life.ops.iter().map(|&i| case.op(i));
    let acked = own().filter(|op| op.acknowledged());
    let acked = MaxBefore::new(acked.filter_map(|op| Some((op.ended, seq(op)?))).collect());
    let possible = life.maybe.iter().map(|&i| case.op(i)).filter(|op| op.possible());
    let possible = MaxBefore::new(possible.filter_map(|op| Some((op.began, seq(op)?))).collect());
    let mut broken = Vec::new();
    for op in own() {
        let Some(s) = seq(op) else { continue };
        let fresh = matches!(op.outcome, Outcome::Appended { duplicate: false, .. });
        if fresh && acked.at(op.began).is_some_and(|max| max >= s) {
            broken.push(format!("sequence {s} accepted at {}, after a higher or equal one", op.ended));
        }
        let refused = op.outcome == Outcome::Refused(Refusal::SeqConflict);
        if refused && possible.at(op.ended).is_none_or(|max| max < s) {
            broken.push(format!("sequence {s} refused at {}, though higher than all before", op.ended));
        }
    }
    for m in broken {
        case.report(Kind::SeqBroken, &life.name, m);
    }
}
