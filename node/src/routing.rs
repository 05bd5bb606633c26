//! Who serves a stream, as the view has it: this node, another, or for now nobody.
//!
//! Invariant (I8): a pure choice from the view; it names only sessions that the view says are alive, so that nobody is
//! ever sent to a node known dead. A stale view costs a hop, never more: whoever is asked in vain knows better. The
//! rows of `rule` stand in the order in which they count. Called by `http` before it serves a request, and when the
//! streams layer says that another session has the stream.

use weir_api::{SessionId, StreamId};

use crate::metadata::query::Disposition;
use crate::metadata::state::{SessionNo, State, Stream};
use crate::mutant::{self, Mutant};

/// What to do with a request for a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Serve it here: the stream is here, or the name is not registered, or nobody has the stream and this node may
    /// revive it.
    Local,
    /// Send it there.
    At(Target),
    /// Serve here what needs no owner; the rest waits, bounded.
    Wait(Reason),
}

/// A live session that has a stream, and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The session.
    pub session: SessionId,
    /// Where clients reach its node: a base URL without trailing slash.
    pub http_url: String,
    /// Where nodes reach it: `host:port`.
    pub peer_address: String,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The session that had the stream open has ended and is not recovered.
    Recovery,
    /// The stream is on its way to this node.
    Handoff,
}

/// The row that applies, before anybody's address is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    Here,
    There(SessionNo),
    Wait(Reason),
}

/// Routes a request for the stream that has this name.
pub fn by_name(state: &State, me: &SessionId, name: &str) -> Route {
    match state.stream_by_name(name) {
        // The name is not registered: that is how creates land anywhere.
        None => Route::Local,
        Some((id, stream)) => route(state, me, id, stream),
    }
}

/// Routes a request for a stream.
pub fn route(state: &State, me: &SessionId, id: StreamId, stream: &Stream) -> Route {
    // Nobody serves a name that is only kept taken: every node can say so.
    if stream.tombstone {
        return Route::Local;
    }
    let mine = |no| state.session(no).is_some_and(|session| session.id == *me);
    let handoff = transfer_target(state, id).filter(|no| state.live(*no).is_some());
    match rule(handoff, state.disposition_of(stream), mine) {
        Row::Here => Route::Local,
        Row::Wait(reason) => Route::Wait(reason),
        Row::There(no) if mutant::on(Mutant::RedirectToTheDead) => {
            let known = state.session(no).map(|session| session.id.clone());
            match known.and_then(|id| Some((state.nodes.get(&id.node)?, id))) {
                Some((node, session)) => Route::At(Target {
                    session,
                    http_url: node.http_url.clone(),
                    peer_address: node.peer_address.clone(),
                }),
                None => Route::Local,
            }
        }
        Row::There(no) => match state.live(no).and_then(|session| target(state, &session.id)) {
            Some(target) => Route::At(target),
            // Not reached: the rows name live sessions. Whoever asks the log finds out who has it.
            None => Route::Local,
        },
    }
}

/// The table. `handoff`: where a pending transfer goes, if its target is alive.
fn rule(handoff: Option<SessionNo>, disposition: Disposition, mine: impl Fn(SessionNo) -> bool) -> Row {
    if let Some(target) = handoff {
        return match disposition {
            Disposition::OpenAt(no, _) if no == target && mine(no) => Row::Here,
            _ if mine(target) => Row::Wait(Reason::Handoff),
            _ => Row::There(target),
        };
    }
    match disposition {
        Disposition::OpenAt(no, _) | Disposition::PlacedAt(no) if mine(no) => Row::Here,
        Disposition::OpenAt(no, _) | Disposition::PlacedAt(no) => Row::There(no),
        Disposition::AwaitingRecovery(no) if mutant::on(Mutant::RedirectToTheDead) => Row::There(no),
        Disposition::AwaitingRecovery(_) => Row::Wait(Reason::Recovery),
        // Also placed at a session that ended: as if not placed.
        Disposition::Released => Row::Here,
    }
}

/// Where a pending transfer of the stream goes.
fn transfer_target(state: &State, id: StreamId) -> Option<SessionNo> {
    state.transfer(id).map(|transfer| transfer.target)
}

/// How to reach a session, if it is alive.
pub fn target(state: &State, session: &SessionId) -> Option<Target> {
    let (no, _) = state.live_by_id(session)?;
    let node = state.nodes.get(&session.node).filter(|node| node.session == Some(no))?;
    Some(Target {
        session: session.clone(),
        http_url: node.http_url.clone(),
        peer_address: node.peer_address.clone(),
    })
}

#[cfg(test)]
mod tests;
