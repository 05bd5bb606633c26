//! One stream: state to answer.
//!
//! Invariant: pure. Used by `super`.

use percent_encoding::percent_decode_str;
use weir_api::StreamId;
use weir_api::admin::{OwnershipState, OwnershipStatus, StreamStatus};

use super::Tail;
use super::moves;
use super::problem::Error;
use crate::metadata::command::Expiry;
use crate::metadata::state::{Ownership, State, Stream};

/// The stream whose percent-encoded name is `encoded`. Which names are valid is the protocol's affair: others are
/// simply not there. `tail` knows the streams that are open at this node.
pub(super) fn one(
    state: &State,
    encoded: &str,
    tail: &dyn Fn(StreamId) -> Option<Tail>,
) -> Result<StreamStatus, Error> {
    let shown = || encoded.chars().take(200).collect::<String>();
    let name = percent_decode_str(encoded).decode_utf8().map_err(|_e| Error::BadStreamName(shown()))?;
    let found = state.names.get(name.as_ref()).and_then(|id| Some((*id, state.streams.get(id)?)));
    let (id, stream) = found.ok_or_else(|| Error::NoSuchStream(name.chars().take(200).collect()))?;
    let tail = tail(id);
    Ok(StreamStatus {
        name: name.into_owned(),
        id,
        content_type: stream.config.content_type.clone(),
        ttl_seconds: match stream.config.expiry {
            Expiry::Ttl(seconds) => Some(seconds),
            Expiry::Never | Expiry::At(_) => None,
        },
        expires_at_ms: stream.deadline_ms,
        ownership: ownership(state, stream),
        epoch: stream.epoch,
        start_offset: stream.start,
        committed_offset: stream.committed,
        tail_offset: tail.map(|t| t.end),
        closed: stream.closed || tail.is_some_and(|t| t.closed),
        unborn: stream.unborn_since_ms.is_some(),
        tombstone: stream.tombstone,
        forks: u64::from(stream.forks),
        extents: u64::try_from(stream.extents.len()).unwrap_or(u64::MAX),
        transfer: moves::pending_of(state, id, stream),
    })
}

fn ownership(state: &State, stream: &Stream) -> OwnershipStatus {
    let released = OwnershipStatus { state: OwnershipState::Released, node: None, node_epoch: None };
    let (no, alive) = match stream.ownership {
        Ownership::Released => return released,
        Ownership::Placed(no) => (no, OwnershipState::Placed),
        Ownership::Open(no) => (no, OwnershipState::Open),
    };
    let Some(session) = state.sessions.get(&no) else { return released };
    let shown = match (alive, &session.ended) {
        (alive, None) => alive,
        (OwnershipState::Open, Some(_)) => OwnershipState::AwaitingRecovery,
        // Placed at a session that ended: as if not placed.
        (_, Some(_)) => return released,
    };
    OwnershipStatus { state: shown, node: Some(session.id.node.clone()), node_epoch: Some(session.id.epoch) }
}
