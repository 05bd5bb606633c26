//! Rebuilds one life's content from all readings (I3), and looks for every acknowledged record in it (I2).

use std::sync::Arc;

use super::lives::Life;
use super::prefix::MaxBefore;
use super::{Case, Kind};
use crate::history::{Op, Outcome, Reading, Time};
use crate::record::{Content, Placed, parse};

/// What is known of a life's content.
pub(super) struct Known {
    /// Records from offset 0 to `solid`.
    pub(super) placed: Vec<Placed>,
    /// Up to here content is known and ends at a tail that some answer named.
    pub(super) solid: u64,
}

/// Cells as read: `None` where nobody read.
#[derive(Default)]
struct Cells<T>(Vec<Option<T>>);

impl<T: Clone + PartialEq> Cells<T> {
    /// Writes `run` down; gives the first offset at which it contradicts what was read before. The newest reading
    /// wins, so that what was lost is named as lost too.
    fn observe(&mut self, from: u64, run: &[T], shrunk: bool) -> Option<u64> {
        let from = from as usize;
        let end = from + run.len();
        if self.0.len() < end || shrunk {
            self.0.resize(end, None);
        }
        let mut differs = None;
        for (k, (cell, new)) in self.0[from..].iter_mut().zip(run).enumerate() {
            if cell.as_ref() == Some(new) {
                continue;
            }
            if cell.replace(new.clone()).is_some() && differs.is_none() {
                differs = Some((from + k) as u64);
            }
        }
        differs
    }

    /// The longest run from offset 0 without a hole, at most `limit`.
    fn prefix(&self, limit: u64) -> Vec<T> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.0.iter().take(limit).map_while(Clone::clone).collect()
    }

    fn known(&self) -> u64 {
        self.0.iter().take_while(|c| c.is_some()).count() as u64
    }
}

enum Canon {
    Bytes(Cells<u8>),
    Json(Cells<Arc<str>>),
}

impl Canon {
    fn observe(&mut self, reading: &Reading, shrunk: bool) -> Option<u64> {
        match (self, &reading.content) {
            (Self::Bytes(cells), Content::Bytes(run)) => cells.observe(reading.from, run, shrunk),
            (Self::Json(cells), Content::Json(run)) => cells.observe(reading.from, run, shrunk),
            _ => Some(reading.from),
        }
    }

    fn known(&self) -> u64 {
        match self {
            Self::Bytes(cells) => cells.known(),
            Self::Json(cells) => cells.known(),
        }
    }

    fn prefix(&self, limit: u64) -> Content {
        match self {
            Self::Bytes(cells) => Content::Bytes(cells.prefix(limit).into()),
            Self::Json(cells) => Content::Json(cells.prefix(limit)),
        }
    }
}

/// The tail that `op` claims to be current, if it does.
pub(super) fn current_tail(op: &Op) -> Option<u64> {
    match &op.outcome {
        Outcome::Found { next, .. } | Outcome::Created { next, .. } => Some(*next),
        Outcome::Read(r) if r.up_to_date || r.closed => Some(r.next),
        Outcome::Appended { duplicate: false, next, .. } => Some(*next),
        _ => None,
    }
}

/// Rebuilds the content and checks it against what was sent and acknowledged.
pub(super) fn check(case: &mut Case<'_>, life: &Life) -> Known {
    let canon = rebuild(case, life);
    let whole = canon.known();
    let tails = life.ops.iter().filter_map(|&i| current_tail(case.op(i)));
    let solid = tails.filter(|&t| t <= whole).max().unwrap_or(0);
    let placed = match parse(&canon.prefix(solid)) {
        Ok(placed) => placed,
        Err((at, why)) => {
            case.report(Kind::TornRecord, &life.name, format!("at offset {at}: {why}"));
            return Known { placed: Vec::new(), solid: 0 };
        }
    };
    for p in &placed {
        check_record(case, life, p);
    }
    check_order(case, life, &placed);
    check_presence(case, life, &placed, whole);
    Known { placed, solid }
}

fn rebuild(case: &mut Case<'_>, life: &Life) -> Canon {
    let mut canon = if life.json { Canon::Json(Cells::default()) } else { Canon::Bytes(Cells(Vec::new())) };
    let readings = || life.ops.iter().map(|&i| case.op(i)).filter_map(|op| Some((op, reading(op)?)));
    let seen = MaxBefore::new(readings().map(|(op, r)| (op.ended, r.next)).collect());
    let mut broken = Vec::new();
    for (op, reading) in readings() {
        let shrunk = reading.up_to_date && seen.at(op.began).is_some_and(|s| s > reading.next);
        if reading.from + reading.content.len() != reading.next {
            let m =
                format!("read {} from {}, next offset {}", reading.content.len(), reading.from, reading.next);
            broken.push((Kind::BadOffsets, m));
        } else if let Some(at) = canon.observe(reading, shrunk) {
            let m = format!("a reading that began at {} differs from earlier ones at offset {at}", op.began);
            broken.push((Kind::Rewritten, m));
        }
    }
    for (kind, m) in broken {
        case.report(kind, &life.name, m);
    }
    canon
}

fn reading(op: &Op) -> Option<&Reading> {
    match &op.outcome {
        Outcome::Read(reading) => Some(reading),
        _ => None,
    }
}

fn check_record(case: &mut Case<'_>, life: &Life, p: &Placed) {
    let id = p.id;
    let Some(sent) = case.sent.get(&id) else {
        return case.report(Kind::ForeignRecord, &life.name, format!("{id:016x} was never sent"));
    };
    let what = format!("{id:016x} at {}..{}", p.start, p.end);
    if sent.stream != life.name {
        let m = format!("{what} was sent to {}", sent.stream);
        return case.report(Kind::ForeignRecord, &life.name, m);
    }
    if sent.record.span(life.json) != p.end - p.start {
        return case.report(Kind::TornRecord, &life.name, format!("{what} is not as it was sent"));
    }
    if !sent.possible {
        return case.report(Kind::RefusedRecord, &life.name, format!("{what} was refused"));
    }
    if !sent.attempts.iter().any(|&i| case.op(i).possible() && case.may_meet(life, i)) {
        return case.report(Kind::ForeignRecord, &life.name, format!("{what} belongs to another life"));
    }
    if !case.seen.insert(id) {
        case.report(Kind::DoubledRecord, &life.name, format!("{what} stands elsewhere too"));
    }
}

/// A record acknowledged before another was sent stands before it.
fn check_order(case: &mut Case<'_>, life: &Life, placed: &[Placed]) {
    let mut first_ack_behind = Time::MAX;
    let mut late = Vec::new();
    for p in placed.iter().rev() {
        let Some(sent) = case.sent.get(&p.id) else { continue };
        if first_ack_behind < sent.began {
            late.push(p.id);
        }
        first_ack_behind = first_ack_behind.min(sent.acked);
    }
    for id in late {
        let m = format!("{id:016x} stands before a record that was acknowledged before it was sent");
        case.report(Kind::OutOfOrder, &life.name, m);
    }
}

/// Every record acknowledged before the last current answer whose whole content is known must be in it.
fn check_presence(case: &mut Case<'_>, life: &Life, placed: &[Placed], whole: u64) {
    let last = life
        .ops
        .iter()
        .map(|&i| case.op(i))
        .filter(|op| !op.acknowledged() && current_tail(op).is_some_and(|t| t <= whole))
        .max_by_key(|op| op.began);
    let (asked, tail) = last.map_or((0, 0), |op| (op.began, current_tail(op).unwrap_or(0)));
    let there: std::collections::HashSet<u64> =
        placed.iter().filter(|p| p.end <= tail).map(|p| p.id).collect();
    for &i in &life.ops {
        let op = case.op(i);
        let Some(record) = op.record() else { continue };
        if !op.acknowledged() || there.contains(&record.id) {
            continue;
        }
        if op.ended < asked {
            let m = format!("{:016x} acknowledged at {}, absent at {asked}: {op:?}", record.id, op.ended);
            case.report(Kind::LostRecord, &life.name, m);
        } else if life.goes_on() && !placed.iter().any(|p| p.id == record.id) {
            let m = format!("{:016x} was acknowledged and not looked for after", record.id);
            case.report(Kind::Harness, &life.name, m);
        }
    }
}
