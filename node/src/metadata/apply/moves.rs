//! Streams on their way: transfers from one session to another, and what a draining node gives away.
//!
//! Invariants: a transfer is pending only while its stream is open at the source and both sides are alive, so none
//! dangles: whatever changes the ownership, or ends a side, ends it (`ownership::set`, `sessions::end`). It completes with
//! the source's release, which places the stream at the target; from then on the rule of placement holds: nobody else
//! opens it as long as that session lives. What is not open has nothing to be let go of and goes at once.

use weir_api::{Offset, SessionId, StreamEpoch, StreamId};

use super::super::command::{Answer, Outcome, Refusal};
use super::super::query::Disposition;
use super::super::state::{Ownership, SessionNo, State, Transfer};
use super::super::{limits, placement};
use super::requests::Proposer;
use super::{at_most, items, ownership, present};
use crate::mutant::{self, Mutant};

pub(super) fn begin(state: &mut State, id: StreamId, to: &SessionId) -> Outcome {
    let stream = present(state, id)?;
    if let Some(why) = state.ineligible(to) {
        return Err(Refusal::NotEligible { to: to.clone(), why });
    }
    let (target, _) = state.live_by_id(to).expect("an eligible session is alive");
    match state.disposition_of(stream) {
        Disposition::AwaitingRecovery(no) => return Err(ownership::awaiting(state, no)),
        Disposition::OpenAt(no, _) | Disposition::PlacedAt(no) if no == target => {}
        Disposition::OpenAt(source, _) => match state.transfer(id) {
            Some(pending) if pending.target != target => return Err(pending_to(state, pending.target)),
            Some(_) => {}
            None => {
                at_most("pending transfers", state.transfers.len() + 1, limits::TRANSFERS)?;
                remember(state, id, Transfer { source, target, begun_ms: state.time_ms });
            }
        },
        Disposition::PlacedAt(_) | Disposition::Released => {
            ownership::set(state, id, Ownership::Placed(target));
        }
    }
    Ok(Answer::Done)
}

pub(super) fn abort(state: &mut State, id: StreamId, to: &SessionId) -> Outcome {
    let meant = state.live_by_id(to).map(|(no, _)| no);
    if state.transfer(id).is_none_or(|t| Some(t.target) != meant) {
        return Err(Refusal::NoSuchTransfer);
    }
    if !mutant::on(Mutant::AbortedTransferCompletes) {
        forget(state, id);
    }
    Ok(Answer::Done)
}

/// Each by itself, as with a release.
pub(super) fn hand_over(
    state: &mut State,
    by: Proposer<'_>,
    streams: &[(StreamId, Option<(StreamEpoch, Offset)>)],
) -> Outcome {
    items(streams.len())?;
    if !state.nodes.get(&by.id.node).is_some_and(|n| n.draining) {
        return Err(Refusal::NotDraining);
    }
    // Nobody but this node could serve them: it keeps them.
    if placement::pick(state).is_none() {
        return Err(Refusal::NoEligibleNode);
    }
    let each = streams.iter().map(|&(id, held)| {
        match held {
            Some((epoch, tail)) => ownership::check_settled(state, by, id, epoch, tail)?,
            None => check_placed(state, by, id)?,
        }
        // Not the proposer: it drains.
        let to = destination(state, id).or_else(|| placement::pick(state)).ok_or(Refusal::NoEligibleNode)?;
        ownership::set(state, id, Ownership::Placed(to));
        Ok(())
    });
    Ok(Answer::Released(each.collect()))
}

fn check_placed(state: &State, by: Proposer<'_>, id: StreamId) -> Result<(), Refusal> {
    let stream = present(state, id)?;
    match state.disposition_of(stream) {
        Disposition::PlacedAt(no) if no == by.no => Ok(()),
        Disposition::PlacedAt(no) => Err(Refusal::NotOwner(ownership::owner(state, no, None))),
        Disposition::OpenAt(..) => ownership::check_held(state, by, stream, None),
        Disposition::AwaitingRecovery(no) => Err(ownership::awaiting(state, no)),
        Disposition::Released => Err(Refusal::NotOpen),
    }
}

/// Where an open stream goes when it is let go of.
pub(super) fn destination(state: &State, id: StreamId) -> Option<SessionNo> {
    state.transfer(id).map(|t| t.target)
}

/// Why a stream on its way is not opened now by another than the source: the target waits, the others go there.
pub(super) fn refuse_early(state: &State, by: Proposer<'_>, id: StreamId) -> Option<Refusal> {
    let transfer = state.transfer(id).filter(|t| t.source != by.no)?;
    Some(match transfer.target == by.no {
        true => pending_to(state, transfer.target),
        false => Refusal::NotOwner(ownership::owner(state, transfer.target, None)),
    })
}

fn pending_to(state: &State, target: SessionNo) -> Refusal {
    Refusal::TransferPending { to: ownership::owner(state, target, None).session }
}

fn remember(state: &mut State, id: StreamId, transfer: Transfer) {
    for side in [transfer.source, transfer.target] {
        state.transfer_sides.insert((side, id));
    }
    state.transfers.insert(id, transfer);
}

/// The stream's transfer is over, if there is one.
pub(super) fn forget(state: &mut State, id: StreamId) {
    let Some(transfer) = state.transfers.remove(&id) else { return };
    for side in [transfer.source, transfer.target] {
        state.transfer_sides.remove(&(side, id));
    }
}

/// A session ends: all its transfers are off. There are at most [`limits::TRANSFERS`].
pub(super) fn side_ended(state: &mut State, no: SessionNo) {
    let off: Vec<StreamId> = state.transfers_of(no).map(|(id, _)| id).collect();
    off.into_iter().for_each(|id| forget(state, id));
}

/// A node begins to drain: what was on its way there stays where it is.
pub(super) fn target_drains(state: &mut State, no: SessionNo) {
    let off: Vec<StreamId> =
        state.transfers_of(no).filter(|(_, t)| t.target == no).map(|(id, _)| id).collect();
    off.into_iter().for_each(|id| forget(state, id));
}
