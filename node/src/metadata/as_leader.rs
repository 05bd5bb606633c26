//! Commands that only this process may enter, as the leader of one term.
//!
//! Invariant: the entry is this leader's of this term or none: it is never sent to another, nor submitted a second time, and
//! if it gets into the log in a later term, the lead lost and won again on the way, it is void. If a later leader commits it, it does so before it can confirm a read index. Called by `session::duties` through the handle.

use parking_lot::Mutex;

use super::command::{Answer, Batch, Command, Envelope, Refusal, RequestId};
use super::requests::Requests;
use super::{Metadata, ProposeError, codec, forward};

/// Gives the number back, whatever becomes of the command: nobody asks again under it.
struct Number<'a> {
    requests: &'a Mutex<Requests>,
    request: RequestId,
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        self.requests.lock().settle(&self.request);
    }
}

pub(super) async fn propose(
    metadata: &Metadata,
    command: Command,
    term: u64,
) -> Result<Answer, ProposeError> {
    let shared = &metadata.shared;
    let request = shared.requests.lock().take()?;
    let number = Number { requests: &shared.requests, request: request.clone() };
    let leads = *shared.leadership.borrow();
    if !leads.me || leads.term != term || shared.log.is_yielding() || shared.closing.is_cancelled() {
        return Err(ProposeError::Unavailable(format!("this node does not lead in term {term}")));
    }
    let time_ms = forward::stamp(&shared.log, &shared.clock);
    let batch = Batch { time_ms, commands: vec![Envelope { request: Some(request), command }] };
    let lost = |_e| ProposeError::Unknown;
    let submitted = shared
        .log
        .submit(codec::encode_batch_of_term(&batch, shared.log.format(), term))
        .await
        .map_err(lost)?;
    let (_, outcomes) = tokio::select! {
        outcomes = submitted.outcomes() => outcomes.map_err(lost)?,
        () = shared.closing.cancelled() => return Err(ProposeError::Unknown),
    };
    let outcome = outcomes.into_iter().next().ok_or(ProposeError::Unknown)?;
    if matches!(outcome, Err(Refusal::SessionNotCurrent)) {
        shared.requests.lock().end(&number.request.session);
        return Err(ProposeError::SessionOver);
    }
    Ok(outcome?)
}
