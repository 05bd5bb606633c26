//! Whether a name was there and not there in an order that can have been.
//!
//! One bit, set by creates and cleared by deletes, each acknowledged as the one that did it; answers say what it was. The
//! search goes through the answers in time. It holds every way in which the changes so far can have gone: the bit,
//! which of those under way have taken effect, and how many of those that never were answered. Of two ways that
//! differ only in what they have used up, the better one is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_tests::checker::Kind;
use weir_tests::history::{Action, Outcome, Refusal, Time};

use super::Violation;
use super::calls::Asked;
use crate::trace::{Fault, Trace, What};

/// What an operation says of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// It made it, and it was not there before.
    Created,
    /// It took it away, and it was there before.
    Deleted,
    /// It may have made it.
    MayCreate,
    /// It may have taken it away.
    MayDelete,
    Exists,
    Missing,
}

/// One operation on a name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observation {
    pub(super) says: Says,
    pub(super) began: Time,
    pub(super) ended: Time,
}

pub(super) fn says(action: &Action, outcome: &Outcome) -> Option<Says> {
    Some(match (action, outcome) {
        (Action::Create { .. }, Outcome::Created { new: true, .. }) => Says::Created,
        (Action::Create { .. }, Outcome::Unknown) => Says::MayCreate,
        (Action::Delete, Outcome::Deleted) => Says::Deleted,
        (Action::Delete, Outcome::Unknown) => Says::MayDelete,
        (_, Outcome::Refused(Refusal::Missing)) => Says::Missing,
        (_, Outcome::Refused(Refusal::Closed { .. } | Refusal::SeqConflict | Refusal::Producer)) => {
            Says::Exists
        }
        (_, Outcome::Refused(_) | Outcome::Unknown) => return None,
        _ => Says::Exists,
    })
}

/// What is said of a name, by its own operations and by forks of it.
pub(super) fn observations(calls: &[Asked], own: &[usize], forks: &[usize]) -> Vec<Observation> {
    let of = |call: &Asked, says| Observation { says, began: call.began, ended: call.ended };
    let own = own.iter().map(|&i| &calls[i]).filter(|c| !c.speaks_of_source());
    let mut all: Vec<Observation> =
        own.filter_map(|c| Some(of(c, says(&c.ask.action, &c.outcome)?))).collect();
    let forks = forks.iter().map(|&i| &calls[i]);
    all.extend(forks.filter_map(|c| match &c.outcome {
        Outcome::Created { new: true, .. } => Some(of(c, Says::Exists)),
        Outcome::Refused(Refusal::Missing) => Some(of(c, Says::Missing)),
        _ => None,
    }));
    all
}

/// Whether it may end by itself.
pub(super) fn is_mortal(calls: &[Asked], own: &[usize]) -> bool {
    own.iter().any(|&i| calls[i].ask.ttl_ms.is_some())
}

/// What a way has used up: creates and deletes without an answer.
type Used = (u32, u32);

/// One way in which it can have gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    present: bool,
    /// Changes under way that have taken effect, by slot.
    done: u64,
    used: Used,
    /// Until when the bit was the other one.
    other_until: Option<Time>,
}

impl Way {
    fn covers(&self, other: &Self) -> bool {
        (self.present, self.done) == (other.present, other.done)
            && self.used.0 <= other.used.0
            && self.used.1 <= other.used.1
            && self.other_until >= other.other_until
    }

    /// Whether the bit was `wanted` at some time since `since`.
    fn was(&self, wanted: bool, since: Time) -> bool {
        self.present == wanted || self.other_until.is_some_and(|until| until >= since)
    }

    fn turned(self, now: Time) -> Self {
        Self { present: !self.present, other_until: Some(now), ..self }
    }
}

/// Adds a way, unless one there is as good.
fn add(ways: &mut Vec<Way>, way: Way) -> bool {
    if ways.iter().any(|known| known.covers(&way)) {
        return false;
    }
    ways.retain(|known| !way.covers(known));
    ways.push(way);
    true
}

/// The changes that may still take effect.
#[derive(Debug, Default)]
struct UnderWay {
    /// Acknowledged later, by slot.
    slots: BTreeMap<u32, Says>,
    creates: u32,
    deletes: u32,
    /// It may end by itself, any number of times.
    mortal: bool,
}

impl UnderWay {
    fn free(&self) -> Option<u32> {
        (0..u64::BITS).find(|slot| !self.slots.contains_key(slot))
    }

    /// All ways that lead on from `ways` at `now`, itself included.
    fn closure(&self, ways: Vec<Way>, now: Time) -> Vec<Way> {
        let mut all = Vec::new();
        let mut fresh = ways;
        while let Some(way) = fresh.pop() {
            if !add(&mut all, way) {
                continue;
            }
            for (&slot, &says) in &self.slots {
                let fits = (says == Says::Deleted) == way.present;
                if fits && way.done & (1 << slot) == 0 {
                    fresh.push(Way { done: way.done | (1 << slot), ..way }.turned(now));
                }
            }
            if !way.present && way.used.0 < self.creates {
                fresh.push(Way { used: (way.used.0 + 1, way.used.1), ..way }.turned(now));
            }
            if way.present && self.mortal {
                fresh.push(way.turned(now));
            } else if way.present && way.used.1 < self.deletes {
                fresh.push(Way { used: (way.used.0, way.used.1 + 1), ..way }.turned(now));
            }
        }
        all
    }
}

/// Reports the first answer that no order explains.
pub(super) fn check(found: &mut Vec<Violation>, name: &Arc<str>, said: &[Observation], mortal: bool) {
    // (moment, not its end but its begin, which)
    let mut moments: Vec<(Time, bool, usize)> = Vec::new();
    for (i, o) in said.iter().enumerate() {
        moments.push((o.began, true, i));
        if o.ended != Time::MAX {
            moments.push((o.ended, false, i));
        }
    }
    moments.sort_unstable();
    let mut under_way = UnderWay { mortal, ..UnderWay::default() };
    let mut slot_of: BTreeMap<usize, u32> = BTreeMap::new();
    let mut ways = vec![Way { present: false, done: 0, used: (0, 0), other_until: None }];
    for (now, begins, i) in moments {
        let o = said[i];
        if begins {
            match o.says {
                Says::Created | Says::Deleted => {
                    let slot = under_way.free().expect("a run has few clients");
                    under_way.slots.insert(slot, o.says);
                    slot_of.insert(i, slot);
                }
                Says::MayCreate => under_way.creates += 1,
                Says::MayDelete => under_way.deletes += 1,
                Says::Exists | Says::Missing => {}
            }
            continue;
        }
        let slot = slot_of.remove(&i);
        let fits = |way: &Way| match slot {
            Some(slot) => way.done & (1 << slot) != 0,
            None => way.was(o.says == Says::Exists, o.began),
        };
        let (mut kept, others): (Vec<Way>, Vec<Way>) = ways.iter().partition(|way| fits(way));
        for way in under_way.closure(others, now).into_iter().filter(fits) {
            add(&mut kept, way);
        }
        if let Some(slot) = slot {
            under_way.slots.remove(&slot);
            kept.iter_mut().for_each(|way| way.done &= !(1 << slot));
        }
        if kept.is_empty() {
            let kind = match o.says {
                Says::Missing | Says::Created => Kind::LostStream,
                _ => Kind::GhostStream,
            };
            let message =
                format!("{:?}, asked at {} and told at {}, fits no order", o.says, o.began, o.ended);
            found.push(Violation { kind, stream: name.clone(), message });
            return;
        }
        ways = kept;
    }
}

/// A stream with a TTL is there for that long after each use that was answered. Wall clocks must not have jumped.
pub(super) fn check_mortal(
    found: &mut Vec<Violation>,
    name: &Arc<str>,
    calls: &[Asked],
    own: &[usize],
    trace: &Trace,
) {
    let own: Vec<&Asked> = own.iter().map(|&i| &calls[i]).filter(|c| !c.speaks_of_source()).collect();
    let Some(ttl_ms) = own.iter().filter_map(|c| c.ask.ttl_ms).min() else { return };
    let jumped = trace.events.iter().any(|e| matches!(e.what, What::Fault(Fault::Clock(..))));
    if jumped || own.iter().any(|c| matches!(c.ask.action, Action::Delete)) {
        return;
    }
    let uses = |c: &&&Asked| match c.outcome {
        Outcome::Created { new, .. } => new,
        Outcome::Appended { .. } | Outcome::Read(_) => true,
        _ => false,
    };
    for missing in own.iter().filter(|c| c.outcome == Outcome::Refused(Refusal::Missing)) {
        let used = own.iter().filter(uses).filter(|c| c.ended < missing.began).map(|c| c.began_us).max();
        if let Some(used) = used.filter(|used| missing.ended_us - used < ttl_ms * 1000) {
            let since = (missing.ended_us - used) / 1000;
            let message = format!("missing {since} ms after a use, with a TTL of {ttl_ms} ms");
            found.push(Violation { kind: Kind::LostStream, stream: name.clone(), message });
        }
    }
}
