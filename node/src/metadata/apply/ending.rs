//! How streams end: deleted, expired, never born; and how deadlines move until then.
//!
//! Invariants: an open stream ends only by its owner, at its epoch; one whose session awaits recovery does not end. A
//! TTL is over at the recorded deadline, or, for who has the stream open and so knows of the touches that were not
//! recorded, a tenth of it sooner. A
//! stream with forks leaves a tombstone, without records: the forks refer to theirs themselves. The last fork's end
//! takes the tombstones up the chain with it.

use weir_api::{StreamEpoch, StreamId};

use super::super::command::{Answer, Expiry, Outcome, Refusal};
use super::super::limits;
use super::super::state::{Ownership, State};
use super::requests::Proposer;
use super::{born, create, items, ownership, present, references};
use crate::mutant::{self, Mutant};

/// Moves deadlines forward. What is gone by now, or has no TTL, is passed over.
pub(super) fn touch(state: &mut State, touches: &[(StreamId, u64)]) -> Outcome {
    items(touches.len())?;
    for &(id, deadline) in touches {
        let Ok(stream) = present(state, id) else { continue };
        let Some(recorded) = stream.deadline_ms else { continue };
        if matches!(stream.config.expiry, Expiry::Ttl(_)) && deadline > recorded {
            state.stream_mut(id).deadline_ms = Some(deadline);
            state.deadlines.remove(&(recorded, id));
            state.deadlines.insert((deadline, id));
        }
    }
    Ok(Answer::Done)
}

pub(super) fn expire(
    state: &mut State,
    by: Proposer<'_>,
    streams: &[(StreamId, Option<StreamEpoch>)],
    now_ms: u64,
) -> Outcome {
    items(streams.len())?;
    let each = streams.iter().map(|&(id, epoch)| {
        let stream = present(state, id)?;
        let deadline_ms = stream.deadline_ms;
        let holds = epoch.is_some() && ownership::check_held(state, by, stream, epoch).is_ok();
        let end_ms = deadline_ms.map(|d| if holds { stream.config.end_from(d) } else { d });
        if end_ms.is_none_or(|end| now_ms < end || state.time_ms < end) {
            return Err(Refusal::NotExpired { deadline_ms });
        }
        ownership::check_held(state, by, stream, epoch)?;
        end(state, id);
        Ok(())
    });
    Ok(Answer::Ended(each.collect()))
}

pub(super) fn reap_unborn(
    state: &mut State,
    by: Proposer<'_>,
    streams: &[(StreamId, Option<StreamEpoch>)],
) -> Outcome {
    items(streams.len())?;
    let each = streams.iter().map(|&(id, epoch)| {
        let stream = present(state, id)?;
        let deadline_ms = stream.unborn_since_ms.map(|since| since.saturating_add(limits::UNBORN_MS));
        if deadline_ms.is_none_or(|d| state.time_ms <= d) {
            return Err(Refusal::NotExpired { deadline_ms });
        }
        ownership::check_held(state, by, stream, epoch)?;
        end(state, id);
        Ok(())
    });
    Ok(Answer::Ended(each.collect()))
}

/// A stream that the state does not know to be born is deleted only by the owner, which may have its birth in the WAL.
pub(super) fn delete(
    state: &mut State,
    by: Proposer<'_>,
    id: StreamId,
    epoch: Option<StreamEpoch>,
) -> Outcome {
    let stream = present(state, id)?;
    if !mutant::on(Mutant::DeleteByAnyone) {
        ownership::check_held(state, by, stream, epoch)?;
    }
    if epoch.is_none() {
        born(state, id)?;
    }
    end(state, id);
    Ok(Answer::Done)
}

/// Takes a stream out of the state, or leaves its tombstone. The caller has checked that it may.
pub(super) fn end(state: &mut State, id: StreamId) {
    if state.stream_mut(id).forks > 0 { entomb(state, id) } else { remove(state, id) }
}

fn entomb(state: &mut State, id: StreamId) {
    strip(state, id);
    let stream = state.stream_mut(id);
    stream.tombstone = true;
    stream.start = stream.committed;
}

/// Takes a stream away that has no forks, and the tombstones that only it kept.
fn remove(state: &mut State, id: StreamId) {
    let mut next = Some(id);
    while let Some(id) = next.take() {
        strip(state, id);
        let stream = state.streams.remove(&id).expect("the caller found it");
        state.names.remove(&stream.name);
        create::forget_config(state, &stream.config);
        if let Some(fork) = &stream.forked_from {
            let source = state.stream_mut(fork.source);
            source.forks -= 1;
            next = (source.tombstone && source.forks == 0).then_some(fork.source);
        }
    }
}

/// What a stream has besides its name, configuration and place among forks.
fn strip(state: &mut State, id: StreamId) {
    ownership::set(state, id, Ownership::Released);
    create::bear(state, id);
    let stream = state.stream_mut(id);
    let deadline = stream.deadline_ms.take();
    let extents = std::mem::take(&mut stream.extents);
    let dedupe = stream.dedupe.take();
    if let Some(deadline) = deadline {
        state.deadlines.remove(&(deadline, id));
    }
    references::let_go_all(state, &extents, dedupe);
}
