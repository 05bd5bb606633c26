//! Names and births: creating streams, and the primitives that put one into the state.
//!
//! Invariants: a name leads to one stream at most, and a name deleted and created anew to a stream with another number.
//! A create places in the same command.
//!
//! An unborn stream has its name and waits for its first bytes. Whether a birth is under way only its owner knows, so a
//! create of *another* configuration takes the name over only if the stream is not open: none can be under way then. If
//! it is open, the command is the owner's business (`NotOwner`, `AlreadyOpen`): the owner waits for the birth, or
//! releases the stream and proposes again. If its session awaits recovery, the birth may lie in that WAL. A create of
//! the *same* configuration always finds the stream (`Exists`), with first bytes or without: the owner bears it.

use std::sync::Arc;

use weir_api::{Offset, StreamEpoch, StreamId};

use super::super::command::{Answer, Outcome, Refusal, StreamConfig};
use super::super::query::Disposition;
use super::super::state::{Ownership, SessionNo, State, Stream};
use super::super::{limits, placement};
use super::requests::Proposer;
use super::{at_most, ending, items, ownership, present};

/// What stands in the way of a new name.
pub(super) enum Name {
    /// Nothing.
    Free,
    /// A stream that was never born and is not open: the new one takes its place.
    TakeOver(StreamId),
    /// A stream like the one wanted.
    Taken(StreamId),
}

pub(super) fn create(
    state: &mut State,
    name: &Arc<str>,
    config: &StreamConfig,
    closed: bool,
    unborn: bool,
) -> Outcome {
    let evict = match check_name(state, name, |s| s.config.same_as(config))? {
        Name::Taken(stream) => return Ok(Answer::Exists { stream }),
        Name::TakeOver(stream) => Some(stream),
        Name::Free => None,
    };
    check_room(state, name, config)?;
    let at = placement::pick(state).ok_or(Refusal::NoEligibleNode)?;
    if let Some(stream) = evict {
        ending::end(state, stream);
    }
    let mut stream = blank(state, name, config);
    stream.closed = closed && !unborn;
    stream.unborn_since_ms = unborn.then_some(state.time_ms);
    Ok(insert(state, stream, at))
}

/// Whether a create may have the name; `same` tells its own stream.
pub(super) fn check_name(
    state: &State,
    name: &str,
    same: impl FnOnce(&Stream) -> bool,
) -> Result<Name, Refusal> {
    let Some((id, stream)) = state.stream_by_name(name) else { return Ok(Name::Free) };
    if stream.tombstone {
        return Err(Refusal::Tombstone);
    }
    if same(stream) {
        return Ok(Name::Taken(id));
    }
    if stream.unborn_since_ms.is_none() {
        return Err(Refusal::ConfigMismatch { stream: id });
    }
    match state.disposition_of(stream) {
        Disposition::PlacedAt(_) | Disposition::Released => Ok(Name::TakeOver(id)),
        Disposition::OpenAt(no, epoch) => Err(ownership::held_open(state, no, epoch)),
        Disposition::AwaitingRecovery(no) => Err(ownership::awaiting(state, no)),
    }
}

/// Limits on what one stream brings along, and on how many there are.
pub(super) fn check_room(state: &State, name: &str, config: &StreamConfig) -> Result<(), Refusal> {
    if name.is_empty() {
        return Err(Refusal::Malformed("an empty name".into()));
    }
    at_most("bytes of name", name.len(), limits::NAME_BYTES)?;
    at_most("bytes of content type", config.content_type.len(), limits::CONTENT_TYPE_BYTES)?;
    at_most("streams", state.streams.len() + 1, limits::STREAMS)
}

/// A stream without records, in nobody's hands. Its configuration is counted.
pub(super) fn blank(state: &mut State, name: &Arc<str>, config: &StreamConfig) -> Stream {
    Stream {
        name: name.clone(),
        config: intern(state, config),
        epoch: StreamEpoch(0),
        ownership: Ownership::Released,
        start: Offset(0),
        committed: Offset(0),
        closed: false,
        unborn_since_ms: None,
        deadline_ms: config.deadline_from(state.time_ms),
        extents: Vec::new(),
        dedupe: None,
        forked_from: None,
        forks: 0,
        tombstone: false,
    }
}

/// Puts a new stream into every map and places it.
pub(super) fn insert(state: &mut State, stream: Stream, at: SessionNo) -> Answer {
    let id = StreamId(state.next.stream);
    state.next.stream += 1;
    if let Some(deadline) = stream.deadline_ms {
        state.deadlines.insert((deadline, id));
    }
    if let Some(since) = stream.unborn_since_ms {
        state.unborn.insert((since, id));
    }
    state.names.insert(stream.name.clone(), id);
    state.streams.insert(id, Arc::new(stream));
    ownership::set(state, id, Ownership::Placed(at));
    let owner = state.sessions.get(&at).expect("placement picks live sessions").id.clone();
    Answer::Created { stream: id, owner }
}

fn intern(state: &mut State, config: &StreamConfig) -> Arc<StreamConfig> {
    let shared = match state.configs.get_key_value(config) {
        Some((known, _)) => known.clone(),
        None => Arc::new(config.clone()),
    };
    *state.configs.entry(shared.clone()).or_insert(0) += 1;
    shared
}

pub(super) fn forget_config(state: &mut State, config: &Arc<StreamConfig>) {
    let users = state.configs.get_mut(config).expect("a stream's configuration is counted");
    *users -= 1;
    if *users == 0 {
        state.configs.remove(config);
    }
}

/// The owner says that the records that gave these streams their birth are durable.
pub(super) fn born(state: &mut State, by: Proposer<'_>, streams: &[(StreamId, StreamEpoch)]) -> Outcome {
    items(streams.len())?;
    let each = streams.iter().map(|&(id, epoch)| {
        let stream = present(state, id)?;
        ownership::check_held(state, by, stream, Some(epoch))?;
        bear(state, id);
        Ok(())
    });
    Ok(Answer::Born(each.collect()))
}

pub(super) fn bear(state: &mut State, id: StreamId) {
    if let Some(since) = state.stream_mut(id).unborn_since_ms.take() {
        state.unborn.remove(&(since, id));
    }
}
