//! Forks: a stream that begins with another's records, by reference.
//!
//! Invariants: a fork holds its own references to the segments of the records it begins with, so that it outlives its
//! source's records; its source stays as long as it does, if only as a tombstone. Producers start empty.

use std::sync::Arc;

use weir_api::{Offset, StreamId};

use super::super::command::{Answer, Outcome, Refusal, StreamConfig};
use super::super::query::Disposition;
use super::super::state::{Extent, ForkPoint, State, Stream};
use super::super::{limits, placement};
use super::create::{self, Name};
use super::{at_most, born, ending, ownership, references};
use crate::mutant::{self, Mutant};

/// The stream that a fork makes.
pub(super) struct Target<'a> {
    pub(super) name: &'a Arc<str>,
    pub(super) config: &'a StreamConfig,
    pub(super) closed: bool,
    pub(super) unborn: bool,
}

pub(super) fn fork(state: &mut State, source: StreamId, at: Offset, target: Target<'_>) -> Outcome {
    let point = ForkPoint { source, at };
    let same = |s: &Stream| s.config.same_as(target.config) && s.forked_from.as_deref() == Some(&point);
    let evict = match create::check_name(state, target.name, same)? {
        Name::Taken(stream) => return Ok(Answer::Exists { stream }),
        Name::TakeOver(stream) => Some(stream),
        Name::Free => None,
    };
    let (start, extents) = check_source(state, source, at)?;
    create::check_room(state, target.name, target.config)?;
    let owner = placement::pick(state).ok_or(Refusal::NoEligibleNode)?;

    if let Some(stream) = evict {
        ending::end(state, stream);
    }
    for extent in extents.iter().filter(|_| !mutant::on(Mutant::ForkWithoutReference)) {
        references::hold(state, extent.segment);
    }
    state.stream_mut(source).forks += 1;
    let mut stream = create::blank(state, target.name, target.config);
    (stream.start, stream.committed, stream.extents) = (start, at, extents);
    stream.closed = target.closed && !target.unborn;
    stream.unborn_since_ms = target.unborn.then_some(state.time_ms);
    stream.forked_from = Some(Box::new(point));
    Ok(create::insert(state, stream, owner))
}

/// The first offset kept and the extents up to the fork's offset.
fn check_source(state: &State, source: StreamId, at: Offset) -> Result<(Offset, Vec<Extent>), Refusal> {
    let stream = born(state, source)?;
    if let Disposition::AwaitingRecovery(no) = state.disposition_of(stream) {
        return Err(ownership::awaiting(state, no));
    }
    if at < stream.start {
        return Err(Refusal::BeforeStart { start: stream.start });
    }
    if at > stream.committed && !mutant::on(Mutant::ForkBeyondCommitted) {
        return Err(Refusal::NotCommitted { committed: stream.committed });
    }
    let until = if at > stream.start { stream.extents.partition_point(|e| e.start < at) } else { 0 };
    at_most("extents of a fork", until, limits::FORK_EXTENTS)?;
    let mut extents = stream.extents[..until].to_vec();
    if let Some(last) = extents.last_mut() {
        last.end = last.end.min(at);
    }
    Ok((stream.start, extents))
}
