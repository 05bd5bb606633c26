//! Recovery of ended sessions: who does it, and when it is done.
//!
//! Invariant: one claim holds at a time, numbered, and only under it is anything of the ended session committed or the
//! session marked recovered. Its streams are not rewritten: with the session gone they count as released.

use weir_api::SessionId;

use super::super::command::{Answer, Outcome, Refusal};
use super::super::state::{ClaimRecord, CommitProgress, SessionNo, State};
use super::requests::Proposer;
use super::segments;
use crate::mutant::{self, Mutant};

pub(super) fn claim(state: &mut State, ended: &SessionId, claimant: &SessionId, replaces: u64) -> Outcome {
    let (no, held) = ended_session(state, ended)?;
    if held != replaces {
        return Err(Refusal::ClaimNotCurrent { held });
    }
    if !state.is_current(claimant) {
        return Err(Refusal::ClaimantNotLive);
    }
    // What the claim before left unfinished stays unfinished.
    segments::abandon(state, no);
    let number = state.next.claim;
    state.next.claim += 1;
    let session = state.sessions.get_mut(&no).expect("checked above");
    let before = session.claim.replace(ClaimRecord { number, claimant: claimant.clone() });
    // Another claimant counts its segments anew; the same one goes on and must not come back to finished ones.
    if before.is_none_or(|c| c.claimant != *claimant) {
        session.commits = CommitProgress::default();
    }
    Ok(Answer::Claimed { number, wal_start: session.wal_start })
}

pub(super) fn recovered(state: &mut State, by: Proposer<'_>, ended: &SessionId, claim: u64) -> Outcome {
    let no = check_claim(state, by, ended, claim)?;
    segments::abandon(state, no);
    state.sessions.remove(&no);
    state.session_numbers.remove(ended);
    Ok(Answer::Done)
}

/// The ended session, if the proposer recovers it under the claim that holds.
pub(super) fn check_claim(
    state: &State,
    by: Proposer<'_>,
    ended: &SessionId,
    claim: u64,
) -> Result<SessionNo, Refusal> {
    let (no, held) = ended_session(state, ended)?;
    let session = state.session(no).expect("just found");
    match &session.claim {
        Some(c) if c.number == claim && c.claimant == *by.id => Ok(no),
        Some(_) if mutant::on(Mutant::ClaimNotChecked) => Ok(no),
        Some(_) | None => Err(Refusal::ClaimNotCurrent { held }),
    }
}

/// A session that awaits recovery and the number of the claim that holds (0: none).
fn ended_session(state: &State, id: &SessionId) -> Result<(SessionNo, u64), Refusal> {
    match state.session_by_id(id) {
        Some((no, s)) if s.ended.is_some() => Ok((no, s.claim.as_ref().map_or(0, |c| c.number))),
        Some(_) | None => Err(Refusal::ClaimNotCurrent { held: 0 }),
    }
}
