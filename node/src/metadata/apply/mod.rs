//! The state machine: what each command does to the state.
//!
//! Invariants: pure (I5) – the outcome follows from state and batch alone, maps are ordered, no clock is read. A command
//! is first checked against `&State`; what changes the state afterwards cannot fail, so nothing is ever undone. The
//! match over commands has no wildcard: a new command does not compile until it is thought about here.
//! Called by the log's applier, and by tests. One file per idea:
//!
//! `requests` numbers and who may propose · `founding` the cluster itself · `sessions` process lives · `create` names
//! and births · `ownership` place, open, release · `segments` commits and sweeps · `references` who needs a segment ·
//! `recovery` claims · `ending` delete, expire, reap · `forks` · `moves` transfers and what drains give away · `nodes`
//! drains and removals.

#![deny(clippy::wildcard_enum_match_arm)]

mod create;
mod ending;
mod forks;
mod founding;
mod moves;
mod nodes;
mod ownership;
mod recovery;
mod references;
mod requests;
mod segments;
mod sessions;

use super::command::{Batch, Command, Envelope, FenceReason, Outcome, Refusal};
use super::limits;
use super::state::{State, Stream};
use requests::Proposer;
use weir_api::StreamId;

/// Applies one log entry; one outcome per envelope, in order.
pub fn apply(state: &mut State, batch: &Batch) -> Vec<Outcome> {
    state.time_ms = state.time_ms.max(batch.time_ms);
    batch.commands.iter().map(|envelope| one(state, envelope)).collect()
}

fn one(state: &mut State, envelope: &Envelope) -> Outcome {
    match &envelope.request {
        None => dispatch(state, None, &envelope.command),
        Some(request) => requests::once(state, request, &envelope.command, |state, proposer| {
            dispatch(state, Some(proposer), &envelope.command)
        }),
    }
}

fn dispatch(state: &mut State, by: Option<Proposer<'_>>, command: &Command) -> Outcome {
    let by_session = by.ok_or(Refusal::SessionNotCurrent);
    match command {
        Command::Found { uid, identity, size } => founding::found(state, *uid, identity.as_deref(), *size),
        Command::AllocateRaftId { nonce } => founding::allocate_raft_id(state, *nonce),
        Command::Register(registration) => sessions::register(state, registration),
        Command::RaiseFormat { version } => {
            by_session?;
            founding::raise_format(state, *version)
        }
        Command::EndSession => sessions::end_own(state, by_session?),
        Command::Fence { node, epoch, incarnation, reason } => {
            // A person's, or an operator's: where every node is pinned to a process that is no more, none has a session to
            // say it under. Said twice it is what it was said once.
            if *reason != FenceReason::Admin {
                by_session?;
            }
            sessions::fence(state, node, *epoch, incarnation.as_ref(), *reason)
        }
        Command::SetSlots { node, slots, resource } => {
            by_session?;
            sessions::set_slots(state, node, *slots, resource.as_ref())
        }
        Command::Create { name, config, closed, unborn } => {
            by_session?;
            create::create(state, name, config, *closed, *unborn)
        }
        Command::Born { streams } => create::born(state, by_session?, streams),
        Command::Place { stream } => {
            by_session?;
            ownership::place(state, *stream)
        }
        Command::Open { stream } => ownership::open(state, by_session?, *stream),
        Command::Release { streams } => ownership::release(state, by_session?, streams),
        Command::CommitSegment { origin, segment, ranges, wal_covered } => {
            segments::commit(state, by_session?, origin, segment.as_ref(), ranges, *wal_covered)
        }
        Command::Claim { ended, claimant, replaces } => {
            by_session?;
            recovery::claim(state, ended, claimant, *replaces)
        }
        Command::Recovered { ended, claim } => recovery::recovered(state, by_session?, ended, *claim),
        Command::Touch { touches } => {
            by_session?;
            ending::touch(state, touches)
        }
        Command::Expire { streams, now_ms } => ending::expire(state, by_session?, streams, *now_ms),
        Command::Delete { stream, epoch } => ending::delete(state, by_session?, *stream, *epoch),
        Command::Fork { source, offset, name, config, closed, unborn } => {
            by_session?;
            let target = forks::Target { name, config, closed: *closed, unborn: *unborn };
            forks::fork(state, *source, *offset, target)
        }
        Command::Sweep { segments } => {
            by_session?;
            segments::sweep(state, segments)
        }
        Command::ReapUnborn { streams } => ending::reap_unborn(state, by_session?, streams),
        Command::RemoveNode { node } => {
            by_session?;
            nodes::remove(state, node)
        }
        Command::SetDraining { node, draining } => {
            by_session?;
            nodes::set_draining(state, node, *draining)
        }
        Command::GiveUpDrain { why } => nodes::give_up_drain(state, by_session?, why),
        Command::HandOver { streams } => moves::hand_over(state, by_session?, streams),
        Command::BeginTransfer { stream, to } => {
            by_session?;
            moves::begin(state, *stream, to)
        }
        Command::AbortTransfer { stream, to } => {
            by_session?;
            moves::abort(state, *stream, to)
        }
    }
}

/// A stream that is there for commands: not missing and not a tombstone. Unborn ones are.
fn present(state: &State, id: StreamId) -> Result<&Stream, Refusal> {
    let stream = state.stream(id).ok_or(Refusal::NoSuchStream)?;
    if stream.tombstone { Err(Refusal::Tombstone) } else { Ok(stream) }
}

/// A stream that clients see: present and born.
fn born(state: &State, id: StreamId) -> Result<&Stream, Refusal> {
    present(state, id).and_then(|s| match s.unborn_since_ms {
        None => Ok(s),
        Some(_) => Err(Refusal::NoSuchStream),
    })
}

fn at_most(what: &str, got: usize, max: usize) -> Result<(), Refusal> {
    if got <= max { Ok(()) } else { Err(Refusal::Limit(format!("{what}: {got}, at most {max}"))) }
}

fn items(got: usize) -> Result<(), Refusal> {
    at_most("items in one command", got, limits::ITEMS)
}

#[cfg(test)]
pub(crate) mod tests;
