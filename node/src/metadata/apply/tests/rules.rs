//! The rules that every applied command keeps, whatever it was.

use super::world::fingerprint;
use crate::metadata::apply::apply;
use crate::metadata::codec::state_hash;
use crate::metadata::command::*;
use crate::metadata::query::Disposition;
use crate::metadata::state::{Ownership, Session, SessionNo, State};
use std::collections::BTreeMap;
use weir_api::{StreamEpoch, StreamId};

/// Who had a stream open at an epoch (I1: one session).
pub(super) type Openings = BTreeMap<(StreamId, StreamEpoch), SessionNo>;

/// A refusal, or a session that is not current, changes nothing.
pub(super) fn check_effect(before: &State, after: &State, envelope: &Envelope, outcome: &Outcome) {
    let current = envelope.request.as_ref().is_none_or(|r| before.is_current(&r.session));
    if outcome.is_err() || !current {
        assert_eq!(fingerprint(before), fingerprint(after), "{envelope:?}: {outcome:?}");
    }
    if !current {
        let told = matches!(outcome, Err(Refusal::SessionNotCurrent) | Ok(Answer::SessionEnded { .. }));
        assert!(told, "{outcome:?}");
    }
}

/// The same entry again changes nothing and is answered alike, unless it ended the proposer's own session.
pub(super) fn check_retry(after: &State, entry: &Batch, outcome: &Outcome) {
    let mut copy = after.clone();
    let again = apply(&mut copy, entry).pop().unwrap();
    let ended = entry.commands[0].request.as_ref().is_some_and(|r| !after.is_current(&r.session));
    assert!(
        again == *outcome || (ended && again == Err(Refusal::SessionNotCurrent)),
        "{outcome:?} {again:?}"
    );
    assert_eq!(state_hash(&copy), state_hash(after), "{entry:?}");
}

pub(super) fn check_ownership(
    openings: &mut Openings,
    before: &State,
    after: &State,
    envelope: &Envelope,
    outcome: &Outcome,
) {
    for (id, s) in &after.streams {
        if let Ownership::Open(no) = s.ownership {
            let first = *openings.entry((*id, s.epoch)).or_insert(no);
            assert_eq!(first, no, "{id} was open at epoch {} at another session", s.epoch);
        }
        let was = before.stream(*id).map_or(StreamEpoch(0), |s| s.epoch);
        assert_eq!(s.epoch > was, matches!(outcome, Ok(Answer::Opened { .. })) && s.epoch != was);
    }
    let by = envelope.request.as_ref().map(|r| &r.session);
    for (id, s) in &before.streams {
        let now = after.stream(*id);
        match before.disposition_of(s) {
            // An open stream is let go only by its owner, or by the end of the owner.
            Disposition::OpenAt(no, _) => {
                let kept = now.is_some_and(|n| n.ownership == s.ownership && n.epoch == s.epoch);
                let owner = &before.session(no).unwrap().id;
                assert!(kept || by == Some(owner), "{id} was taken from {owner} by {envelope:?}");
            }
            Disposition::AwaitingRecovery(no) => {
                assert!(now.is_some_and(|n| n.ownership == Ownership::Open(no) && n.epoch == s.epoch));
            }
            Disposition::PlacedAt(_) | Disposition::Released => {}
        }
        let moves_nothing = matches!(
            envelope.command,
            Command::SetSlots { .. } | Command::SetDraining { .. } | Command::RemoveNode { .. }
        );
        if moves_nothing {
            assert_eq!(now.map(|n| n.ownership), Some(s.ownership), "{envelope:?} moved {id}");
        }
    }
}

/// A stream on its way is opened by its target alone, and not before its source let go; a node that is removed is
/// needed by nobody, and one that drains takes nothing.
pub(super) fn check_moves(before: &State, after: &State, envelope: &Envelope) {
    let by = envelope.request.as_ref().map(|r| &r.session);
    for (id, t) in &before.transfers {
        let (Some(then), Some(now)) = (before.stream(*id), after.stream(*id)) else { continue };
        if now.epoch > then.epoch {
            panic!("{id} was opened on its way by {by:?}");
        }
        let released = after.disposition_of(now) == Disposition::Released;
        assert!(!released || now.tombstone, "{id} was let go of, and not to where it was to go");
        if let Disposition::PlacedAt(no) = after.disposition_of(now) {
            assert_eq!(no, t.target, "{id} went astray by {envelope:?}");
        }
    }
    for (id, t) in &after.transfers {
        let fresh = before.transfer(*id) != Some(t);
        assert!(!fresh || matches!(envelope.command, Command::BeginTransfer { .. }));
    }
    for (id, node) in after.nodes.iter().filter(|(_, n)| n.removed) {
        assert!(after.sessions.values().all(|s| s.id.node != *id), "{id} was removed and is still needed");
        let was = before.nodes.get(id);
        assert!(was.is_some_and(|w| w.incarnation == node.incarnation && w.epoch == node.epoch));
    }
    let draining = before.nodes.values().filter(|n| n.draining).filter_map(|n| n.session);
    for no in draining.filter(|no| after.live(*no).is_some()) {
        assert!(
            after.live(no).map(|s| s.assigned) <= before.live(no).map(|s| s.assigned),
            "a draining node was given more"
        );
    }
}

/// Numbers that only grow, and facts that stay.
pub(super) fn check_growth(before: &State, after: &State) {
    for (id, node) in &before.nodes {
        assert!(after.nodes.get(id).is_some_and(|n| n.epoch >= node.epoch), "{id} went back");
    }
    for (id, new) in &after.streams {
        let Some(old) = before.stream(*id) else {
            assert!(id.0 >= before.next.stream, "stream {id} was used before");
            continue;
        };
        assert!(new.epoch >= old.epoch && new.committed >= old.committed && new.start >= old.start);
        assert!(new.closed >= old.closed && new.tombstone >= old.tombstone);
        assert!(new.unborn_since_ms <= old.unborn_since_ms, "{id} was unborn again");
        assert!(new.deadline_ms >= old.deadline_ms || new.tombstone);
    }
    for (no, new) in &after.sessions {
        let Some(old) = before.session(*no) else {
            assert!(no.0 >= before.next.session);
            continue;
        };
        assert!(new.wal_start >= old.wal_start && new.ended.is_some() >= old.ended.is_some());
        let claim = |s: &Session| s.claim.as_ref().map(|c| c.number);
        assert!(claim(new) >= claim(old));
    }
    for (id, new) in &after.segments {
        let Some(old) = before.segments.get(id) else {
            assert!(id.0 >= before.next.segment);
            continue;
        };
        assert!(old.dead_since_ms.is_none() || new == old, "{id:?} rose from the dead");
        assert!(new.under_way <= old.under_way);
    }
}

/// Whatever the log itself chose a session for is at the one that the rule names, and nothing else moved there. A
/// transfer's target is a person's choice.
pub(super) fn check_placement(before: &State, after: &State, envelope: &Envelope, outcome: &Outcome) {
    let chosen = exhaustive_pick(before);
    let by = envelope.request.as_ref().and_then(|r| before.live_by_id(&r.session)).map(|(no, _)| no);
    let meant = matches!(envelope.command, Command::BeginTransfer { .. });
    let mut fresh = 0;
    for (id, now) in &after.streams {
        let was = before.stream(*id).map(|s| (before.disposition_of(s), s));
        let placed_before = match was {
            Some((Disposition::PlacedAt(no), _)) => Some(no),
            Some((Disposition::OpenAt(..), _)) => before.transfer(*id).map(|t| t.target),
            Some((Disposition::AwaitingRecovery(_) | Disposition::Released, _)) | None => None,
        };
        let at = match after.disposition_of(now) {
            Disposition::PlacedAt(no) => no,
            Disposition::OpenAt(no, epoch) if was.is_none_or(|(_, s)| s.epoch < epoch) => no,
            Disposition::OpenAt(..) | Disposition::AwaitingRecovery(_) | Disposition::Released => continue,
        };
        if placed_before == Some(at) || meant {
            continue;
        }
        fresh += 1;
        let hands_over = matches!(envelope.command, Command::HandOver { .. });
        // The second of two that are handed over counts the first.
        assert!(chosen == Some(at) || hands_over, "{id} went to {at:?}, not {chosen:?}, by {envelope:?}");
        assert!(!hands_over || Some(at) != by, "{id} was handed over to the node that drains");
    }
    if let Ok(Answer::Created { stream, owner }) = outcome {
        let named = after.live_by_id(owner).map(|(no, _)| no);
        // An answer from memory, perhaps to the creation of a stream that has been deleted since.
        let repeated = before.stream(*stream).is_some() || after.stream(*stream).is_none();
        assert!(
            repeated || (fresh == 1 && named == chosen),
            "{stream} was created at {owner}, not {chosen:?}"
        );
    }
}

/// The rule of placement, word by word, with everything counted anew.
pub(super) fn exhaustive_pick(state: &State) -> Option<SessionNo> {
    let assigned = |no: SessionNo| {
        let here = |o: Ownership| o == Ownership::Placed(no) || o == Ownership::Open(no);
        state.streams.values().filter(|s| here(s.ownership)).count() as u128
    };
    let candidates: Vec<_> = state
        .nodes
        .iter()
        .filter(|(_, n)| !n.draining && !n.removed && n.slots.get() > 0)
        .filter_map(|(id, n)| Some((id, n.session?, u128::from(n.slots.get()))))
        .map(|(id, no, slots)| (id, no, assigned(no), slots))
        .collect();
    let best =
        |c: &&(_, SessionNo, u128, u128)| candidates.iter().all(|d| (c.2 * d.3, c.0) <= (d.2 * c.3, d.0));
    candidates.iter().find(best).map(|c| c.1)
}
