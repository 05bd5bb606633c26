//! Answers that claim to be current (I3): tails never fall behind what was known before the question, never run ahead
//! of what was sent, and *closed* is for ever.

use super::content::{Known, current_tail};
use super::lives::Life;
use super::prefix::MaxBefore;
use super::{Case, Kind};
use crate::history::{Op, Outcome, Refusal, Time};

/// What one answer says about tail and end.
struct Claim {
    began: Time,
    ended: Time,
    /// A tail that it names, current or not.
    names: Option<u64>,
    current: Option<u64>,
    /// Closed, open, or it does not say.
    closed: Option<bool>,
    /// The final tail, where it names one.
    last: Option<u64>,
}

fn claim(op: &Op) -> Option<Claim> {
    let current = current_tail(op);
    let (names, closed, last) = match &op.outcome {
        Outcome::Found { next, closed } | Outcome::Created { next, closed, .. } => {
            (Some(*next), Some(*closed), closed.then_some(*next))
        }
        Outcome::Read(r) => {
            let says = r.closed || r.up_to_date;
            (Some(r.next), says.then_some(r.closed), r.closed.then_some(r.next))
        }
        Outcome::Appended { duplicate: false, next, closed } => {
            (Some(*next), Some(*closed), closed.then_some(*next))
        }
        Outcome::Appended { duplicate: true, closed, .. } => (None, closed.then_some(true), None),
        Outcome::Refused(Refusal::Closed { next }) => (Some(*next), Some(true), Some(*next)),
        _ => return None,
    };
    Some(Claim { began: op.began, ended: op.ended, names, current, closed, last })
}

/// Checks every claim made in `life`.
pub(super) fn check(case: &mut Case<'_>, life: &Life, known: &Known) {
    let claims: Vec<Claim> = life.ops.iter().filter_map(|&i| claim(case.op(i))).collect();
    check_floor(case, life, &claims);
    check_ceiling(case, life, &claims, known);
    check_closed(case, life, &claims, known);
    check_closers(case, life, &claims, known);
}

fn check_floor(case: &mut Case<'_>, life: &Life, claims: &[Claim]) {
    let points = claims.iter().filter_map(|c| Some((c.ended, c.names?))).collect();
    let floor = MaxBefore::new(points);
    for c in claims {
        let Some(tail) = c.current else { continue };
        if let Some(before) = floor.at(c.began).filter(|&b| b > tail) {
            let m = format!("tail {tail} in an answer asked for at {}, when {before} had been seen", c.began);
            case.report(Kind::StaleClaim, &life.name, m);
        }
    }
}

/// No record was seen before it was sent, and every current tail lies between two records.
fn check_ceiling(case: &mut Case<'_>, life: &Life, claims: &[Claim], known: &Known) {
    let sent_at = |id| case.sent.get(&id).map_or(0, |s| s.began);
    let began = MaxBefore::new(known.placed.iter().map(|p| (p.end, sent_at(p.id))).collect());
    for c in claims {
        let Some(tail) = c.names.filter(|&t| t <= known.solid) else { continue };
        if began.at(tail + 1).is_some_and(|b| b > c.ended) {
            let m = format!("tail {tail} at {}, before a record below it was sent", c.ended);
            case.report(Kind::ForeignRecord, &life.name, m);
        }
        let n = known.placed.partition_point(|p| p.end <= tail);
        let between = n.checked_sub(1).map_or(0, |last| known.placed[last].end);
        if c.current.is_some() && between != tail {
            case.report(Kind::TornRecord, &life.name, format!("tail {tail} lies inside a record"));
        }
    }
}

fn check_closed(case: &mut Case<'_>, life: &Life, claims: &[Claim], known: &Known) {
    let Some(first) = claims.iter().filter(|c| c.closed == Some(true)).min_by_key(|c| c.ended) else {
        return;
    };
    let closed_at = first.ended;
    let closable = life_closers(case, life).iter().any(|&i| case.op(i).began < closed_at);
    if !closable {
        case.report(
            Kind::PhantomClose,
            &life.name,
            format!("closed at {closed_at} though nobody asked for it"),
        );
    }
    for c in claims {
        if c.closed == Some(false) && c.began > closed_at {
            let m = format!("open in an answer asked for at {}, closed since {closed_at}", c.began);
            case.report(Kind::Reopened, &life.name, m);
        }
    }
    let mut lasts: Vec<u64> = claims.iter().filter_map(|c| c.last).collect();
    lasts.dedup();
    let highest = claims.iter().filter_map(|c| c.names).max().unwrap_or(0).max(known.solid);
    if lasts.iter().any(|&l| l != highest) {
        let m = format!("closed with final tails {lasts:?}, yet it reaches {highest}");
        case.report(Kind::Reopened, &life.name, m);
    }
}

/// An append that closes is there with its close or not at all.
fn check_closers(case: &mut Case<'_>, life: &Life, claims: &[Claim], known: &Known) {
    let closes = |id: u64| case.sent.get(&id).is_some_and(|s| s.closes);
    let mut broken = Vec::new();
    for (n, p) in known.placed.iter().enumerate().filter(|(_, p)| closes(p.id)) {
        if n + 1 != known.placed.len() {
            broken.push(format!("{:016x} was to close the stream, yet more follows", p.id));
        }
        for c in claims {
            if c.closed == Some(false) && c.current.is_some_and(|t| t >= p.end) {
                broken.push(format!("open at tail {:?}, behind the closing record {:016x}", c.current, p.id));
            }
        }
    }
    let closed = claims.iter().any(|c| c.closed == Some(true));
    let read_to_end = claims.iter().filter_map(|c| c.last).any(|l| l == known.solid);
    if closed && read_to_end {
        let last = known.placed.last().map(|p| p.id);
        let closers = life_closers(case, life);
        let explains = |&i: &usize| case.op(i).record().is_none_or(|r| Some(r.id) == last);
        if !closers.is_empty() && !closers.iter().any(explains) {
            broken.push("closed, but no closing record stands at its end".to_owned());
        }
    }
    for &i in &life.ops {
        let op = case.op(i);
        if op.closes() && matches!(op.outcome, Outcome::Appended { closed: false, .. }) {
            broken.push(format!("a close was acknowledged at {} as leaving the stream open", op.ended));
        }
    }
    for m in broken {
        case.report(Kind::TornClose, &life.name, m);
    }
}

/// Everything that may have closed `life`.
fn life_closers(case: &Case<'_>, life: &Life) -> Vec<usize> {
    let closes = |&i: &usize| case.op(i).closes() && case.op(i).possible();
    life.maybe.iter().copied().filter(closes).collect()
}
