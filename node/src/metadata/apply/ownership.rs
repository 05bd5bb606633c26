//! Who has a stream: place, open, release, and the counts that placement looks at.
//!
//! Invariants (I1): a stream epoch grows at every open and never otherwise; a stream is open at one session at most; an
//! open stream changes hands only by its owner's release or by the recovery of the owner's session.
//! `Session.assigned` and `Session.open` follow every change of `Stream.ownership`, which only `set` makes.

use std::sync::Arc;

use weir_api::{Offset, StreamEpoch, StreamId};

use super::super::command::{Answer, Outcome, Owner, Refusal};
use super::super::placement;
use super::super::query::Disposition;
use super::super::state::{Ownership, SessionNo, State, Stream};
use super::requests::Proposer;
use super::{items, moves, present};
use crate::mutant::{self, Mutant};

impl State {
    /// For what a check has found to exist.
    pub(super) fn stream_mut(&mut self, id: StreamId) -> &mut Stream {
        Arc::make_mut(self.streams.get_mut(&id).expect("the check found the stream"))
    }
}

/// Changes who has a stream. A transfer of it is over then, whichever way.
pub(super) fn set(state: &mut State, id: StreamId, to: Ownership) {
    moves::forget(state, id);
    let before = std::mem::replace(&mut state.stream_mut(id).ownership, to);
    if let Some((session, open)) = counted(state, before) {
        session.assigned -= 1;
        session.open -= u64::from(open);
    }
    if let Some((session, open)) = counted(state, to) {
        session.assigned += 1;
        session.open += u64::from(open);
    }
}

/// The session that counts an ownership, and whether as open. An ended session counts only what is open at it.
fn counted(state: &mut State, of: Ownership) -> Option<(&mut super::super::state::Session, bool)> {
    match of {
        Ownership::Released => None,
        Ownership::Placed(no) => {
            state.sessions.get_mut(&no).filter(|s| s.ended.is_none()).map(|s| (s, false))
        }
        Ownership::Open(no) => state.sessions.get_mut(&no).map(|s| (s, true)),
    }
}

pub(super) fn place(state: &mut State, id: StreamId) -> Outcome {
    let stream = present(state, id)?;
    if let Disposition::AwaitingRecovery(no) = state.disposition_of(stream) {
        return Err(awaiting(state, no));
    }
    if let Some(owner) = state.owner_of(stream) {
        return Ok(Answer::Placed(owner));
    }
    let at = placement::pick(state).ok_or(Refusal::NoEligibleNode)?;
    Ok(place_at(state, id, at))
}

fn place_at(state: &mut State, id: StreamId, at: SessionNo) -> Answer {
    set(state, id, Ownership::Placed(at));
    Answer::Placed(owner(state, at, None))
}

/// The placed owner opens. What nobody has is placed anew first, and opened only if the choice is the proposer.
pub(super) fn open(state: &mut State, by: Proposer<'_>, id: StreamId) -> Outcome {
    let stream = present(state, id)?;
    let at = match state.disposition_of(stream) {
        Disposition::OpenAt(no, epoch) => {
            return Err(moves::refuse_early(state, by, id).unwrap_or(refuse_open(state, by, no, epoch)));
        }
        Disposition::AwaitingRecovery(no) if !mutant::on(Mutant::OpenBeforeRecovered) => {
            return Err(awaiting(state, no));
        }
        Disposition::PlacedAt(no) if no != by.no => return Err(Refusal::NotOwner(owner(state, no, None))),
        Disposition::PlacedAt(no) => no,
        Disposition::AwaitingRecovery(_) | Disposition::Released => {
            placement::pick(state).ok_or(Refusal::NoEligibleNode)?
        }
    };
    if at != by.no {
        return Ok(place_at(state, id, at));
    }
    set(state, id, Ownership::Open(at));
    let stream = state.stream_mut(id);
    if stream.epoch == StreamEpoch(0) || !mutant::on(Mutant::EpochNotBumped) {
        stream.epoch = stream.epoch.next();
    }
    Ok(Answer::Opened { epoch: stream.epoch })
}

/// Lets go of streams, each by itself: one that cannot be released does not hold up the others. A release completes a
/// transfer: the stream is placed where it was to go, so that nobody else opens it.
pub(super) fn release(
    state: &mut State,
    by: Proposer<'_>,
    streams: &[(StreamId, StreamEpoch, Offset)],
) -> Outcome {
    items(streams.len())?;
    let each = streams.iter().map(|&(id, epoch, tail)| {
        check_settled(state, by, id, epoch, tail)?;
        let to = moves::destination(state, id).map_or(Ownership::Released, Ownership::Placed);
        set(state, id, to);
        Ok(())
    });
    Ok(Answer::Released(each.collect()))
}

/// Whether the proposer may let go of a stream that it has open at this epoch: all of it is committed.
pub(super) fn check_settled(
    state: &State,
    by: Proposer<'_>,
    id: StreamId,
    epoch: StreamEpoch,
    tail: Offset,
) -> Result<(), Refusal> {
    let stream = present(state, id)?;
    check_held(state, by, stream, Some(epoch))?;
    match stream.committed == tail || mutant::on(Mutant::ReleaseAtWrongTail) {
        true => Ok(()),
        false => Err(Refusal::NotCommitted { committed: stream.committed }),
    }
}

/// Whether the proposer may do to a stream what only its owner may: at the epoch it says it holds it open, or, saying
/// none, if nobody has it open.
pub(super) fn check_held(
    state: &State,
    by: Proposer<'_>,
    stream: &Stream,
    epoch: Option<StreamEpoch>,
) -> Result<(), Refusal> {
    match state.disposition_of(stream) {
        Disposition::AwaitingRecovery(no) => Err(awaiting(state, no)),
        Disposition::OpenAt(no, held) if no == by.no && epoch == Some(held) => Ok(()),
        Disposition::OpenAt(no, held) => Err(refuse_open(state, by, no, held)),
        Disposition::PlacedAt(_) | Disposition::Released => match epoch {
            None => Ok(()),
            Some(_) => Err(Refusal::NotOpen),
        },
    }
}

fn refuse_open(state: &State, by: Proposer<'_>, no: SessionNo, epoch: StreamEpoch) -> Refusal {
    if no == by.no { Refusal::AlreadyOpen { epoch } } else { held_open(state, no, epoch) }
}

/// The refusal that names the session a stream is open at.
pub(super) fn held_open(state: &State, no: SessionNo, epoch: StreamEpoch) -> Refusal {
    Refusal::NotOwner(owner(state, no, Some(epoch)))
}

/// The refusal that names the session to be recovered first.
pub(super) fn awaiting(state: &State, no: SessionNo) -> Refusal {
    Refusal::AwaitingRecovery(owner(state, no, None).session)
}

pub(super) fn owner(state: &State, no: SessionNo, open: Option<StreamEpoch>) -> Owner {
    let session = state.session(no).expect("the disposition found the session");
    Owner { session: session.id.clone(), open }
}
