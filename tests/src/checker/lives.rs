//! Sorts one name's operations into lives, and finds streams that vanished or appeared by themselves.
//!
//! Creates and deletes of one name must not overlap (the load sees to it; the muddle is reported otherwise). An
//! observation counts here only if it overlaps none of them.

use std::sync::Arc;

use super::{Case, Kind};
use crate::history::{Action, Outcome, Refusal, Time};

/// One life of a name, from a create to a delete.
#[derive(Debug)]
pub struct Life {
    pub(super) name: Arc<str>,
    pub(super) json: bool,
    /// It began no earlier than this.
    pub(super) birth: Time,
    /// From here on it surely was; `Time::MAX`: perhaps it never was.
    sure_from: Time,
    /// Until here it surely was; `Time::MAX`: it still is.
    sure_until: Time,
    /// It ended no later than this.
    pub(super) death: Time,
    /// Operations that surely met this life, in the order in which they began.
    pub(super) ops: Vec<usize>,
    /// Operations that may have: the sure ones and those that raced its begin or end.
    pub(super) maybe: Vec<usize>,
}

impl Life {
    /// A life sorted elsewhere, of `ops` that surely met it and `maybe`, which are these and others. `goes_on`: it
    /// surely is there at the end of the account.
    pub fn told(
        (name, json): (Arc<str>, bool),
        (birth, death): (Time, Time),
        goes_on: bool,
        ops: Vec<usize>,
        maybe: Vec<usize>,
    ) -> Self {
        let sure_from = if goes_on { birth } else { Time::MAX };
        Self { name, json, birth, sure_from, sure_until: Time::MAX, death, ops, maybe }
    }

    /// Operations that surely met it.
    pub fn ops(&self) -> &[usize] {
        &self.ops
    }

    /// Whether it surely is there at the end of the account.
    pub(super) fn goes_on(&self) -> bool {
        self.sure_from != Time::MAX && self.sure_until == Time::MAX
    }
}

#[derive(Clone, Copy)]
enum Now {
    Absent,
    Alive(usize),
    /// Its create has an unknown outcome.
    PerhapsBorn(usize),
    /// Its delete has an unknown outcome.
    PerhapsDead(usize),
}

/// What an operation says about the stream's existence.
#[derive(Clone, Copy, PartialEq)]
enum Says {
    Born,
    PerhapsBorn,
    Dead,
    PerhapsDead,
    Exists,
    Missing,
    Nothing,
}

fn says(action: &Action, outcome: &Outcome) -> Says {
    match (action, outcome) {
        (Action::Create { .. }, Outcome::Created { new: true, .. }) => Says::Born,
        (Action::Create { .. }, Outcome::Unknown) => Says::PerhapsBorn,
        (Action::Delete, Outcome::Deleted) => Says::Dead,
        (Action::Delete, Outcome::Unknown) => Says::PerhapsDead,
        (_, Outcome::Refused(Refusal::Missing)) => Says::Missing,
        (_, Outcome::Refused(Refusal::Closed { .. } | Refusal::SeqConflict | Refusal::Producer)) => {
            Says::Exists
        }
        (_, Outcome::Refused(_) | Outcome::Unknown) => Says::Nothing,
        _ => Says::Exists,
    }
}

impl Says {
    fn changes(self) -> bool {
        matches!(self, Self::Born | Self::PerhapsBorn | Self::Dead | Self::PerhapsDead)
    }
}

/// The lives of `name`, each with its operations.
pub(super) fn sort(case: &mut Case<'_>, name: &Arc<str>, ops: &[usize]) -> Vec<Life> {
    let mut lives = walk(case, name, ops);
    for &i in ops {
        let op = case.op(i);
        let end = case.account.settled(op);
        for life in &mut lives {
            // The create that began it belongs to it too.
            let own = matches!(op.action, Action::Create { .. }) && op.began == life.birth;
            let from = if own { op.began } else { life.sure_from };
            if life.sure_from != Time::MAX && from <= op.began && end <= life.sure_until {
                life.ops.push(i);
            }
            if op.began <= life.death && end >= life.birth {
                life.maybe.push(i);
            }
        }
    }
    lives
}

fn walk(case: &mut Case<'_>, name: &Arc<str>, ops: &[usize]) -> Vec<Life> {
    let windows: Vec<(Time, Time)> = ops
        .iter()
        .map(|&i| case.op(i))
        .filter(|op| says(&op.action, &op.outcome).changes())
        .map(|op| (op.began, case.account.settled(op)))
        .collect();
    let clean = |began: Time, ended: Time| {
        let n = windows.partition_point(|&(b, _)| b < began);
        // Windows do not overlap each other, so the last one before settles last.
        let before = n == 0 || windows[n - 1].1 < began;
        before && windows.get(n).is_none_or(|&(b, _)| b > ended)
    };
    let mut lives: Vec<Life> = Vec::new();
    let mut now = Now::Absent;
    let mut busy_until = 0;
    for &i in ops {
        let op = case.op(i);
        let what = says(&op.action, &op.outcome);
        if what.changes() {
            if op.began < busy_until && !matches!((now, what), (Now::Alive(_), Says::PerhapsBorn)) {
                case.report(Kind::Harness, name, "creates and deletes of one name overlap");
            }
            busy_until = busy_until.max(case.account.settled(op));
        } else if what == Says::Nothing || !clean(op.began, op.ended) {
            continue;
        }
        now = step(case, name, &mut lives, now, i, what);
    }
    lives
}

fn step(case: &mut Case<'_>, name: &Arc<str>, lives: &mut Vec<Life>, now: Now, i: usize, what: Says) -> Now {
    let op = case.op(i);
    let settled = case.account.settled(op);
    let begin = |sure_from| Life {
        name: name.clone(),
        json: op.json,
        birth: op.began,
        sure_from,
        sure_until: Time::MAX,
        death: Time::MAX,
        ops: Vec::new(),
        maybe: Vec::new(),
    };
    match (what, now) {
        (Says::Born, _) => {
            match now {
                Now::Absent => {}
                Now::Alive(k) => {
                    let m = "created as new though an earlier create was acknowledged and nobody deleted it";
                    case.report(Kind::LostStream, name, m);
                    lives[k].death = op.ended;
                    lives[k].sure_until = lives[k].sure_until.min(op.began);
                }
                Now::PerhapsBorn(k) | Now::PerhapsDead(k) => lives[k].death = op.ended,
            }
            lives.push(begin(op.ended));
            Now::Alive(lives.len() - 1)
        }
        (Says::PerhapsBorn, Now::Absent) => {
            lives.push(begin(Time::MAX));
            Now::PerhapsBorn(lives.len() - 1)
        }
        (Says::PerhapsBorn, Now::PerhapsDead(_)) => {
            case.report(Kind::Harness, name, "create while a delete is unresolved");
            now
        }
        (Says::PerhapsBorn, Now::Alive(_) | Now::PerhapsBorn(_)) => now,
        (Says::Dead, Now::Absent) => {
            case.report(Kind::GhostStream, name, "a stream was deleted that was deleted before");
            now
        }
        (Says::Dead, Now::Alive(k) | Now::PerhapsBorn(k) | Now::PerhapsDead(k)) => {
            lives[k].sure_until = lives[k].sure_until.min(op.began);
            lives[k].death = op.ended;
            Now::Absent
        }
        (Says::PerhapsDead, Now::Alive(k)) => {
            lives[k].sure_until = op.began;
            lives[k].death = settled;
            Now::PerhapsDead(k)
        }
        (Says::PerhapsDead, _) => now,
        (Says::Exists, Now::Absent) => {
            let m =
                format!("{:?} at {} says it exists, though deleted or never created", op.action, op.began);
            case.report(Kind::GhostStream, name, m);
            now
        }
        (Says::Exists, Now::PerhapsBorn(k)) => {
            lives[k].sure_from = op.ended;
            Now::Alive(k)
        }
        (Says::Exists, Now::PerhapsDead(k)) => {
            lives[k].sure_until = Time::MAX;
            lives[k].death = Time::MAX;
            Now::Alive(k)
        }
        (Says::Exists, Now::Alive(_)) | (Says::Missing, Now::Absent) | (Says::Nothing, _) => now,
        (Says::Missing, Now::Alive(k)) => {
            let m =
                format!("{:?} at {} says it is absent, though created and not deleted", op.action, op.began);
            case.report(Kind::LostStream, name, m);
            lives[k].sure_until = lives[k].sure_until.min(op.began);
            lives[k].death = op.ended;
            Now::Absent
        }
        (Says::Missing, Now::PerhapsBorn(k) | Now::PerhapsDead(k)) => {
            lives[k].death = lives[k].death.min(op.ended);
            Now::Absent
        }
    }
}
