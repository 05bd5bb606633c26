//! The invariants, and what must be reachable for them to mean something.
//!
//! `always`: I1 to I4 of `docs/design.md`. `sometimes`: the situations that the design is about; a model that never
//! gets there proves nothing.

use stateright::Property;

use crate::actions::{Bounds, Weir};
use crate::state::{Append, Life, Ownership, RECORDS, SessionNo, Slot, State, StreamId, Told};

/// For each stream and stream epoch at most one session gets an append acknowledged.
pub const I1: &str = "I1 one session acknowledges per stream epoch";
/// An acknowledged append is never lost.
pub const I2: &str = "I2 acknowledged is never lost";
/// One offset, one record, for ever; what was read is never gone.
pub const I3: &str = "I3 what was read never changes or goes";
/// A retried append has effect exactly once.
pub const I4: &str = "I4 a retried append exists once";

type Condition = fn(&Weir, &State) -> bool;

const INVARIANTS: [(&str, Condition); 4] = [
    (I1, |_, s| !s.broken.i1),
    (I2, |_, s| !s.broken.i2 && kept(s, |t| t.acked)),
    (I3, |_, s| !s.broken.i3 && kept(s, |t| t.read)),
    (I4, |_, s| !s.broken.i4 && no_append_twice(s)),
];

const STALE_FRAME: &str = "a dropped epoch's frame is durable at the session that opened the next";

const SITUATIONS: [(&str, Condition); 11] = [
    ("a zombie was fenced by a seal", |_, s| s.processes.iter().any(|p| p.fenced)),
    ("a zombie is about to acknowledge what recovery has read", |_, s| zombie_acknowledges(s)),
    ("a second claim has sealed", |_, s| second_claim_seals(s)),
    ("two claimants are about to seal at once", |_, s| two_sealers(s)),
    ("both first sessions wait for recovery", |_, s| both_wait(s)),
    ("a stream is released and opened elsewhere", |_, s| reopened(s, Life::Live)),
    ("a stream is taken over after a recovery", |_, s| reopened(s, Life::Gone)),
    ("the next owner knows a producer of the last", |_, s| inherits_producers(s)),
    (STALE_FRAME, |_, s| stale_frame(s)),
    ("the WAL start lags behind the committed end", |_, s| wal_start_lags(s)),
    ("a stream is full after two epochs", |_, s| full_after_two_epochs(s)),
];

/// All of them, for the checker.
pub fn all() -> Vec<Property<Weir>> {
    let invariants = INVARIANTS.map(|(name, holds)| Property::always(name, holds));
    let situations = SITUATIONS.map(|(name, met)| Property::sometimes(name, met));
    invariants.into_iter().chain(situations).collect()
}

/// The situations that are within these bounds.
pub fn situations(bounds: &Bounds) -> impl Iterator<Item = &'static str> {
    SITUATIONS.iter().map(|(name, _)| *name).filter(|name| bounds.abandons > 0 || *name != STALE_FRAME)
}

type ByOffset = [Option<Append>; RECORDS];

/// What was told of is in a segment (then it was compared at the commit and is not listed), or recovery would find it.
fn kept(state: &State, which: impl Fn(&Told) -> ByOffset) -> bool {
    StreamId::all().all(|stream| {
        which(&state.told[stream.index()])
            .iter()
            .enumerate()
            .all(|(offset, append)| append.is_none_or(|append| state.in_wal(stream, offset as u8, append)))
    })
}

fn no_append_twice(state: &State) -> bool {
    state.metadata.streams.iter().all(|stream| {
        let records = &stream.committed;
        (1..records.len()).all(|i| !records[..i].contains(&records[i]))
    })
}

/// Processes that run while the log has ended their sessions.
fn zombies(state: &State) -> impl Iterator<Item = SessionNo> {
    SessionNo::all().filter(|s| {
        state.processes[s.index()].up
            && matches!(state.metadata.sessions[s.index()].life, Life::Ended | Life::Gone)
    })
}

/// It is about to: the object is stored, below the seal, and the stream still in its memory.
fn zombie_acknowledges(state: &State) -> bool {
    zombies(state).any(|s| {
        let (process, wal) = (&state.processes[s.index()], &state.wals[s.index()]);
        wal.sent.get(usize::from(process.durable)).is_some_and(|frame| {
            wal.slots[usize::from(process.durable)] == Slot::Object
                && process.streams[frame.stream.index()].is_some_and(|open| open.epoch == frame.epoch)
        })
    })
}

fn second_claim_seals(state: &State) -> bool {
    state.recoveries.iter().any(|r| r.iter().any(|r| r.claim == 2 && r.end.is_some()))
}

fn two_sealers(state: &State) -> bool {
    state.recoveries.iter().any(|r| r.len() == 2 && r.iter().all(|r| r.end.is_none()))
}

fn both_wait(state: &State) -> bool {
    let waits = |s: u8| state.metadata.sessions[usize::from(s)].life == Life::Ended;
    waits(0) && waits(2)
}

/// A session at which the stream was open at its first epoch is still there to tell, and has got to `last`; another
/// has it at its second epoch.
fn reopened(state: &State, last: Life) -> bool {
    StreamId::all().any(|stream| {
        let at = &state.metadata.streams[stream.index()];
        let Ownership::Open(owner) = at.ownership else { return false };
        at.epoch == 2
            && SessionNo::all().any(|s| {
                s != owner
                    && state.metadata.sessions[s.index()].life == last
                    && had_first_epoch(state, s, stream).is_some()
            })
    })
}

/// What a session's memory or WAL still holds of a stream's first epoch.
fn had_first_epoch(state: &State, session: SessionNo, stream: StreamId) -> Option<Option<Append>> {
    let frame = state.wals[session.index()].sent.iter().find(|f| f.stream == stream && f.epoch == 1);
    let open = state.processes[session.index()].streams[stream.index()].filter(|open| open.epoch == 1);
    frame.map(|f| Some(f.append)).or(open.map(|_| None))
}

/// A retry of a record would be answered "duplicate" by a session that did not accept it.
fn inherits_producers(state: &State) -> bool {
    StreamId::all().any(|stream| {
        let mut accepted = SessionNo::all().filter_map(|s| Some((s, had_first_epoch(state, s, stream)??)));
        accepted.any(|(first, append)| {
            SessionNo::all().any(|s| {
                s != first
                    && state.processes[s.index()].streams[stream.index()]
                        .is_some_and(|open| open.epoch == 2 && open.producers.knows(append))
            })
        })
    })
}

/// The frame would be committed at the wrong epoch if nobody looked at its epoch.
fn stale_frame(state: &State) -> bool {
    SessionNo::all().any(|s| {
        let (process, wal) = (&state.processes[s.index()], &state.wals[s.index()]);
        wal.sent[..usize::from(process.durable)].iter().any(|frame| {
            let at = &state.metadata.streams[frame.stream.index()];
            at.ownership == Ownership::Open(s)
                && at.epoch > frame.epoch
                && frame.offset >= at.committed.count()
        })
    })
}

fn full_after_two_epochs(state: &State) -> bool {
    state.metadata.streams.iter().any(|t| t.epoch == 2 && t.committed.count() == 2)
}

fn wal_start_lags(state: &State) -> bool {
    SessionNo::all().any(|s| {
        let start = usize::from(state.metadata.sessions[s.index()].wal_start);
        state.wals[s.index()].sent.get(start).is_some_and(|frame| {
            frame.offset < state.metadata.streams[frame.stream.index()].committed.count()
        })
    })
}
