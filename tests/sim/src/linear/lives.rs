//! Which operations surely met one life of a name.
//!
//! Between two moments at which the name surely was not there lies at most a few lives, and exactly one if nothing can
//! have ended it in between, or if only one create can have made it: then whoever found it found that one. Where
//! neither is sure, operations promise nothing about content here; whether the name may have been there is
//! `names`' to say.

use std::collections::HashSet;
use std::sync::Arc;

use weir_tests::checker::Life;
use weir_tests::history::{Action, Outcome, Refusal, Stamp, Time};

use super::calls::Asked;
use super::names::{self, Says};

/// A time within which the name surely was not there at some moment.
#[derive(Debug, Clone, Copy)]
struct Gap {
    from: Time,
    until: Time,
}

/// The lives of `name` that are sure.
pub(super) fn sort(calls: &[Asked], name: &Arc<str>, own: &[usize]) -> Vec<Life> {
    let said: Vec<(usize, Says)> = own
        .iter()
        .filter(|&&i| !calls[i].speaks_of_source())
        .filter_map(|&i| Some((i, names::says(&calls[i].ask.action, &calls[i].outcome)?)))
        .collect();
    let mortal = names::is_mortal(calls, own);
    let gaps = gaps(calls, &said);
    gaps.windows(2).filter_map(|two| between(calls, name, own, &said, mortal, two[0], two[1])).collect()
}

/// Gaps in time, those that overlap joined; before and after everything there is one.
fn gaps(calls: &[Asked], said: &[(usize, Says)]) -> Vec<Gap> {
    let mut gaps = vec![Gap { from: 0, until: 0 }];
    let mut ends: Vec<Gap> = said
        .iter()
        .filter(|(_, says)| matches!(says, Says::Deleted | Says::Missing))
        .map(|&(i, _)| Gap { from: calls[i].began, until: calls[i].ended })
        .collect();
    ends.sort_unstable_by_key(|g| g.from);
    for gap in ends {
        match gaps.last_mut() {
            Some(last) if gap.from <= last.until => last.until = last.until.max(gap.until),
            _ => gaps.push(gap),
        }
    }
    gaps.push(Gap { from: Time::MAX, until: Time::MAX });
    gaps
}

/// The one life between two gaps, if it is sure that there is one and no more.
fn between(
    calls: &[Asked],
    name: &Arc<str>,
    own: &[usize],
    said: &[(usize, Says)],
    mortal: bool,
    before: Gap,
    after: Gap,
) -> Option<Life> {
    let may_fall_here = |i: usize| calls[i].began < after.until && calls[i].ended > before.from;
    let of = |a: Says, b: Says| {
        said.iter()
            .filter(move |(_, says)| *says == a || *says == b)
            .map(|&(i, _)| i)
            .filter(|&i| may_fall_here(i))
    };
    let creates: Vec<usize> = of(Says::Created, Says::MayCreate).collect();
    let deletes = of(Says::MayDelete, Says::MayDelete).count();
    let fleeting = mortal || deletes > 0;
    // Who falls into a gap's time may have met what was before it, or what came after.
    let inside = |&i: &usize| calls[i].began >= before.until && calls[i].ended <= after.from;
    let found: Vec<usize> = said
        .iter()
        .filter(|(_, says)| matches!(says, Says::Created | Says::Exists))
        .map(|&(i, _)| i)
        .filter(inside)
        .collect();
    let found = without_strays(calls, found);
    if found.is_empty() || (fleeting && creates.len() != 1) {
        return None;
    }
    let birth = creates.iter().map(|&i| calls[i].began).min()?;
    // An operation without an answer may have met it too, and one that raced a gap.
    let maybe =
        own.iter().copied().filter(|&i| calls[i].began <= after.until && calls[i].ended >= birth).collect();
    let goes_on = after.from == Time::MAX && !fleeting;
    let json = calls[found[0]].ask.json;
    Some(Life::told((name.clone(), json), (birth, after.until), goes_on, found, maybe))
}

/// Without refusals of what a producer sent that had not heard of the new life: only one whose last number this life
/// took may complain.
fn without_strays(calls: &[Asked], found: Vec<usize>) -> Vec<usize> {
    let stamp = |i: &usize| match &calls[*i].ask.action {
        Action::Append { producer, .. } => producer.as_ref(),
        _ => None,
    };
    let acknowledged = |i: &&usize| matches!(calls[**i].outcome, Outcome::Appended { .. });
    let taken: HashSet<&Stamp> = found.iter().filter(acknowledged).filter_map(stamp).collect();
    let keep = |i: &usize| {
        let Some(s) = stamp(i).filter(|_| calls[*i].outcome == Outcome::Refused(Refusal::Producer)) else {
            return true;
        };
        let last = |seq| taken.contains(&Stamp { seq, ..s.clone() });
        s.seq == 0 || last(s.seq - 1)
    };
    found.iter().copied().filter(keep).collect()
}
