//! Request numbers: who may propose, and how a command takes effect exactly once.
//!
//! Invariants: a command of a session that is not alive changes nothing (I6). A number is answered by the outcome of
//! its first application, a refusal too, until the session says that it has the answer (I9).

use std::sync::Arc;

use weir_api::SessionId;

use super::super::command::{Answer, Command, Outcome, Refusal, RequestId};
use super::super::limits;
use super::super::state::{SessionNo, State};
use crate::mutant::{self, Mutant};

/// The live session on whose behalf a command runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Proposer<'a> {
    pub(super) no: SessionNo,
    pub(super) id: &'a SessionId,
}

/// Runs a command under its request number, or answers what it came to before.
pub(super) fn once(
    state: &mut State,
    request: &RequestId,
    command: &Command,
    run: impl FnOnce(&mut State, Proposer<'_>) -> Outcome,
) -> Outcome {
    let Some((no, _)) = state.live_by_id(&request.session) else {
        return not_current(state, &request.session, command);
    };
    forget(state, no, request.lowest_unanswered);
    if let Some(known) = known(state, no, request) {
        return known;
    }
    let outcome = run(state, Proposer { no, id: &request.session });
    // A session that this command ended needs no memory: nothing of it is applied any more.
    if let Some(session) = state.sessions.get_mut(&no).filter(|s| s.ended.is_none()) {
        session.answers.insert(request.number, Arc::new(outcome.clone()));
    }
    outcome
}

/// The answer to a session that has ended. It is the same for every command, but for the one that ended it: its retry
/// is told that it succeeded, as long as the node has not registered anew.
fn not_current(state: &State, id: &SessionId, command: &Command) -> Outcome {
    let ended = || state.nodes.get(&id.node).is_some_and(|n| n.epoch == id.epoch);
    if matches!(command, Command::EndSession) && ended() {
        return Ok(Answer::SessionEnded { clean: state.session_by_id(id).is_none() });
    }
    Err(Refusal::SessionNotCurrent)
}

/// Drops the answers that the session says it has.
fn forget(state: &mut State, no: SessionNo, lowest_unanswered: u64) {
    let session = state.sessions.get_mut(&no).expect("the session was just looked up");
    if lowest_unanswered <= session.lowest_unanswered {
        return;
    }
    session.lowest_unanswered = lowest_unanswered;
    while let Some(number) = session.answers.get_min().map(|(n, _)| *n).filter(|n| *n < lowest_unanswered) {
        session.answers.remove(&number);
    }
}

/// What a request number comes to without running its command.
fn known(state: &State, no: SessionNo, request: &RequestId) -> Option<Outcome> {
    let session = state.live(no)?;
    if request.number < session.lowest_unanswered {
        return Some(Err(Refusal::StaleRequest));
    }
    let known = session.answers.get(&request.number);
    if let Some(outcome) = known.filter(|_| !mutant::on(Mutant::RetryAppliedTwice)) {
        return Some(outcome.as_ref().clone());
    }
    // Not remembered, so it must come out the same for every copy of the request: it looks at nothing else.
    if request.number - request.lowest_unanswered.min(request.number) >= limits::REQUEST_WINDOW {
        return Some(Err(Refusal::Limit(format!(
            "requests in flight: at most {} above the lowest unanswered one",
            limits::REQUEST_WINDOW
        ))));
    }
    None
}
