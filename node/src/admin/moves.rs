//! Drains and transfers: state to answers, bodies to commands, refusals to errors.
//!
//! Invariant: pure. What an answer says is the log's record as this node has applied it, its own command included.
//! Used by `super`.

use http::StatusCode;
use weir_api::admin::{DrainState, DrainStatus, TransferState, TransferStatus, TransferStream};
use weir_api::{NodeEpoch, NodeId, SessionId, StreamId};

use super::nodes;
use super::problem::Error;
use crate::metadata::command::{Command, Ineligible, Refusal};
use crate::metadata::state::{Session, State, Stream};

/// How a node's drain stands.
pub(super) fn drain(state: &State, id: &NodeId) -> Result<DrainStatus, Error> {
    let unknown = || nodes::unknown(state, id);
    let node = state.nodes.get(id).filter(|n| !n.removed).ok_or_else(unknown)?;
    // Those that await recovery count: they are not elsewhere yet.
    let of_node = || sessions_of(state, id);
    let remaining_streams = of_node().map(|s| s.assigned).sum();
    let stands = match (node.draining, &node.drain_gave_up) {
        (false, _) => DrainState::NotDraining,
        (true, _) if remaining_streams == 0 => DrainState::Drained,
        (true, None) => DrainState::Draining,
        (true, Some(_)) => DrainState::GaveUp,
    };
    let detail = match stands {
        DrainState::GaveUp => node.drain_gave_up.clone(),
        DrainState::Draining if node.session.is_none() => {
            Some("its session has ended: its streams are being recovered".to_owned())
        }
        DrainState::Draining | DrainState::Drained | DrainState::NotDraining => None,
    };
    Ok(DrainStatus {
        node: id.clone(),
        epoch: node.epoch,
        state: stands,
        remaining_streams,
        open_streams: of_node().map(|s| s.open).sum(),
        since_ms: node.draining_since_ms,
        detail,
    })
}

/// 202 while there is something left to wait for.
pub(super) fn drain_code(status: &DrainStatus) -> StatusCode {
    match status.state {
        DrainState::Draining | DrainState::GaveUp => StatusCode::ACCEPTED,
        DrainState::Drained | DrainState::NotDraining => StatusCode::OK,
    }
}

/// See [`drain_code`].
pub(super) fn transfer_code(status: &TransferStatus) -> StatusCode {
    match status.state {
        TransferState::Pending | TransferState::HandedOver => StatusCode::ACCEPTED,
        TransferState::Done | TransferState::Aborted => StatusCode::OK,
    }
}

fn sessions_of<'a>(state: &'a State, id: &'a NodeId) -> impl Iterator<Item = &'a Session> {
    let first = SessionId { node: id.clone(), epoch: NodeEpoch(0) };
    let of_node = state.session_numbers.range(first..).take_while(move |(s, _)| s.node == *id);
    of_node.filter_map(|(_, no)| state.session(*no))
}

/// What a transfer's body names.
pub(super) struct Named {
    pub(super) id: StreamId,
    pub(super) to: SessionId,
}

/// Finds the stream and the node's session.
pub(super) fn named(state: &State, body: &TransferStream) -> Result<Named, Error> {
    let (id, _) = stream(state, &body.stream)?;
    let unknown = || nodes::unknown(state, &body.to_node);
    let node = state.nodes.get(&body.to_node).filter(|n| !n.removed).ok_or_else(unknown)?;
    let session = node.session.and_then(|no| state.live(no));
    let gone = || not_eligible(&body.to_node, Ineligible::NotAlive);
    Ok(Named { id, to: session.ok_or_else(gone)?.id.clone() })
}

/// The pending transfer that a body means.
pub(super) fn pending(state: &State, body: &TransferStream) -> Result<Named, Error> {
    let (id, _) = stream(state, &body.stream)?;
    let target = state.transfer(id).and_then(|t| state.session(t.target));
    let meant = target.filter(|s| s.id.node == body.to_node);
    let to = meant.ok_or_else(|| no_such_transfer(body))?.id.clone();
    Ok(Named { id, to })
}

/// The pending transfer of a stream.
pub(super) fn pending_of(state: &State, id: StreamId, stream: &Stream) -> Option<TransferStatus> {
    let transfer = state.transfer(id)?;
    let node = |no| state.session(no).map(|s| s.id.node.clone());
    Some(TransferStatus {
        stream: stream.name.to_string(),
        id,
        from_node: node(transfer.source),
        to_node: node(transfer.target)?,
        state: TransferState::Pending,
        since_ms: Some(transfer.begun_ms),
    })
}

fn stream<'a>(state: &'a State, name: &str) -> Result<(StreamId, &'a Stream), Error> {
    let shown = || name.chars().take(200).collect::<String>();
    if name.is_empty() {
        return Err(Error::BadBody("stream: a name is missing".to_owned()));
    }
    state.stream_by_name(name).filter(|(_, s)| !s.tombstone).ok_or_else(|| Error::NoSuchStream(shown()))
}

/// How a transfer stands that was begun, or is over.
pub(super) fn transfer(state: &State, body: &TransferStream) -> Result<TransferStatus, Error> {
    let (id, stream) = stream(state, &body.stream)?;
    let node = |no| state.session(no).map(|s| s.id.node.clone());
    let owner = state.owner_of(stream);
    let pending = state.transfer(id).filter(|t| node(t.target).as_ref() == Some(&body.to_node));
    let there = owner.as_ref().filter(|o| o.session.node == body.to_node);
    let stands = match (pending, there) {
        (Some(_), _) => TransferState::Pending,
        (None, Some(owner)) if owner.open.is_some() => TransferState::Done,
        (None, Some(_)) => TransferState::HandedOver,
        (None, None) => TransferState::Aborted,
    };
    Ok(TransferStatus {
        stream: body.stream.clone(),
        id,
        from_node: pending.and_then(|t| node(t.source)),
        to_node: body.to_node.clone(),
        state: stands,
        since_ms: pending.map(|t| t.begun_ms),
    })
}

/// What a refusal of one of these commands means to the caller.
#[allow(clippy::wildcard_enum_match_arm, reason = "these commands meet these; another is shown as it is")]
pub(super) fn refused(node: &NodeId, body: Option<&TransferStream>, refusal: Refusal) -> Error {
    match (refusal, body) {
        (Refusal::NoSuchNode, _) => Error::NoSuchNode(format!("no node {node} has registered")),
        (Refusal::LastNode, _) => Error::LastNode(node.to_string()),
        (Refusal::NotEligible { to, why }, _) => not_eligible(&to.node, why),
        (Refusal::TransferPending { to }, _) => Error::TransferPending(to.node.to_string()),
        (Refusal::AwaitingRecovery(session), _) => Error::AwaitingRecovery(session.to_string()),
        (Refusal::NoSuchStream | Refusal::Tombstone, Some(body)) => {
            Error::NoSuchStream(body.stream.chars().take(200).collect())
        }
        (Refusal::NoSuchTransfer, Some(body)) => no_such_transfer(body),
        (Refusal::SessionNotCurrent, _) => {
            Error::Unavailable("this node's session has ended; ask another".into())
        }
        (Refusal::Limit(what), _) => Error::Unavailable(format!("limit reached: {what}")),
        (other, _) => Error::Refused(other.to_string()),
    }
}

fn not_eligible(node: &NodeId, why: Ineligible) -> Error {
    Error::NotEligible { node: node.to_string(), why: why.to_string() }
}

fn no_such_transfer(body: &TransferStream) -> Error {
    Error::NoSuchTransfer { stream: body.stream.chars().take(200).collect(), node: body.to_node.to_string() }
}

/// The command for `POST` and `DELETE …/drain`.
pub(super) fn set_draining(node: NodeId, draining: bool) -> Command {
    Command::SetDraining { node, draining }
}
