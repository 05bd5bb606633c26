//! One state for all that nobody can tell apart.
//!
//! Invariant: a step possible in a state is possible, with an equal outcome, in its representative. Three kinds of
//! sameness: what can no longer be observed is forgotten; numbers that only count are shifted; nodes, streams and
//! appends, which the model treats alike, may swap names. Called on every new state.

use std::cmp::Ordering;

use crate::faults::Faults;
use crate::state::{
    Append, Frame, Life, Ownership, Process, Producers, Records, SessionNo, Slot, State, StreamId, Wal,
};

/// The representative of a state.
pub fn representative(mut state: State, faults: &Faults) -> State {
    forget_unobservable(&mut state, faults);
    rename_appends(&mut state);
    // Of the four images: the smallest of those with nodes and streams in order. An image is made only if it may be it.
    let [first, second] = [&state.metadata.sessions[..2], &state.metadata.sessions[2..]];
    match first.cmp(second) {
        Ordering::Less => with_streams_in_order(state),
        Ordering::Greater => with_streams_in_order(swap_nodes(&state)),
        Ordering::Equal => with_streams_in_order(swap_nodes(&state)).min(with_streams_in_order(state)),
    }
}

/// The same state under all names that nodes and streams may have.
pub fn images(state: &State) -> [State; 4] {
    let nodes = swap_nodes(state);
    [*state, nodes, swap_streams(state), swap_streams(&nodes)]
}

fn with_streams_in_order(state: State) -> State {
    let [first, second] = &state.metadata.streams;
    match first.cmp(second) {
        Ordering::Less => state,
        Ordering::Greater => swap_streams(&state),
        Ordering::Equal => swap_streams(&state).min(state),
    }
}

// ---- what cannot be observed

fn forget_unobservable(state: &mut State, faults: &Faults) {
    // One that stops may leave another with nothing to do.
    let mut at_work = u32::MAX;
    while who_is_at_work(state) < at_work {
        at_work = who_is_at_work(state);
        for session in SessionNo::all() {
            drop_idle_claimants(state, session, faults);
        }
        for session in SessionNo::all() {
            stop_idle_process(state, session, faults);
            forget_dead_session(state, session);
        }
    }
    for session in SessionNo::all() {
        cut_behind_seal(state, session);
        drop_covered_front(state, session);
    }
    if !faults.epoch_not_bumped {
        forget_ackers(state);
    }
    for stream in &mut state.metadata.streams {
        // A session that is recovered makes `Open` released.
        if let Ownership::Open(owner) = stream.ownership
            && state.metadata.sessions[owner.index()].life == Life::Gone
        {
            stream.ownership = Ownership::Released;
        }
    }
}

/// A claimant that can neither seal nor get a command accepted.
fn drop_idle_claimants(state: &mut State, ended: SessionNo, faults: &Faults) {
    let session = state.metadata.sessions[ended.index()];
    let (metadata, processes) = (&state.metadata, &state.processes);
    state.recoveries[ended.index()].retain(|r| {
        let may_commit = session.life == Life::Ended
            && metadata.is_live(r.claimant)
            && (r.claim == session.claim || faults.claim_not_checked);
        processes[r.claimant.index()].up && (r.end.is_none() || may_commit)
    });
}

fn who_is_at_work(state: &State) -> u32 {
    let processes = state.processes.iter().filter(|p| p.up).count();
    let claimants = state.recoveries.iter().map(|r| r.len()).sum::<usize>();
    (processes + claimants) as u32
}

/// A process whose session is over does nothing any more if it has nothing to seal, and either nothing open or a seal
/// as its next object: then it is as good as told. (With a fault it may do something.)
fn stop_idle_process(state: &mut State, session: SessionNo, faults: &Faults) {
    let recovers = state.recoveries.iter().any(|r| r.iter().any(|r| r.claimant == session));
    let process = &mut state.processes[session.index()];
    if !process.up || recovers || state.metadata.is_live(session) {
        return;
    }
    if process.streams.iter().all(Option::is_none) && !faults.release_without_settle {
        *process = Process::default();
    } else if state.wals[session.index()].slots[usize::from(process.durable)] == Slot::Seal
        && *faults == Faults::default()
    {
        *process = Process { fenced: true, ..Process::default() };
    }
}

/// Nobody reads the WAL of a session that is over for the log, and whose process is.
fn forget_dead_session(state: &mut State, session: SessionNo) {
    let recorded = &mut state.metadata.sessions[session.index()];
    if recorded.life != Life::Gone {
        return;
    }
    recorded.wal_start = 0;
    recorded.claim = 0;
    if !state.processes[session.index()].up {
        state.wals[session.index()] = Wal::default();
        state.recoveries[session.index()] = Default::default();
        state.processes[session.index()] = Process::default();
    }
}

/// Behind the seal that recovery meets, objects matter to the writer only.
fn cut_behind_seal(state: &mut State, session: SessionNo) {
    if state.processes[session.index()].up {
        return;
    }
    let wal = &mut state.wals[session.index()];
    let end = wal.end_of_objects(state.metadata.sessions[session.index()].wal_start);
    if wal.slots[usize::from(end)] == Slot::Seal {
        wal.sent.truncate(end);
        wal.slots[usize::from(end) + 1..].fill(Slot::Unseen);
    }
}

/// How many sequence numbers the writer knows stored, segments cover, and no claimant begins at.
pub fn covered_front(state: &State, session: SessionNo) -> u8 {
    let process = &state.processes[session.index()];
    let claimants = &state.recoveries[session.index()];
    let lowest = claimants.iter().map(|r| r.from).min().unwrap_or(u8::MAX);
    let known = if process.up { process.durable } else { u8::MAX };
    let sent = state.wals[session.index()].sent.count();
    state.trimmed(session).min(known).min(lowest).min(sent)
}

fn drop_covered_front(state: &mut State, session: SessionNo) {
    let n = covered_front(state, session);
    if n == 0 {
        return;
    }
    let process = &mut state.processes[session.index()];
    let recorded = &mut state.metadata.sessions[session.index()];
    let claimants = &mut state.recoveries[session.index()];
    let wal = &mut state.wals[session.index()];
    wal.sent.drop_front(n);
    wal.slots.rotate_left(usize::from(n));
    let kept = wal.slots.len() - usize::from(n);
    wal.slots[kept..].fill(Slot::Unseen);
    process.durable = process.durable.saturating_sub(n);
    recorded.wal_start = recorded.wal_start.saturating_sub(n);
    for claimant in claimants.iter_mut() {
        claimant.from -= n;
        claimant.end = claimant.end.map(|end| end.saturating_sub(n));
    }
}

/// At an epoch that nobody has open, and that `Open` never gives again, nobody acknowledges any more.
fn forget_ackers(state: &mut State) {
    for stream in StreamId::all() {
        for (epoch, acker) in (1u8..).zip(&mut state.told[stream.index()].acker) {
            let held = |p: &Process| p.streams[stream.index()].is_some_and(|open| open.epoch == epoch);
            if !state.processes.iter().any(held) {
                *acker = None;
            }
        }
    }
}

// ---- names

/// How many appends of a stream are anywhere to be found (they are named from 0 on). One that is nowhere is as good as
/// never sent: a later retry of it is a first try.
pub fn appends_known(state: &State, stream: StreamId) -> usize {
    let at = &state.metadata.streams[stream.index()];
    let told = &state.told[stream.index()];
    let in_memory = state.processes.iter().filter_map(|p| p.streams[stream.index()].as_ref());
    let records = in_memory.map(|open| &open.records).chain([&at.committed]).flat_map(|r| r.iter().copied());
    let sent = state.wals.iter().flat_map(|w| w.sent.iter()).filter(|f| f.stream == stream).map(|f| f.append);
    let told = told.acked.iter().chain(&told.read).flatten().copied();
    records.chain(sent).chain(told).map(|a| usize::from(a.0) + 1).max().unwrap_or(0)
}

/// New names for one stream's appends, in the order in which they are met.
#[derive(Clone, Copy)]
struct Names {
    given: [u8; 8],
    next: u8,
}

impl Names {
    const NONE: u8 = u8::MAX;

    fn of(&mut self, append: Append) -> Append {
        let name = &mut self.given[usize::from(append.0)];
        if *name == Self::NONE {
            *name = self.next;
            self.next += 1;
        }
        Append(*name)
    }

    fn records(&mut self, records: &mut Records) {
        records.iter_mut().for_each(|r| *r = self.of(*r));
    }

    fn producers(&mut self, producers: &mut Producers) {
        let before = *producers;
        *producers = Producers::default();
        (0..8).map(Append).filter(|a| before.knows(*a)).for_each(|a| producers.absorb(self.of(a)));
    }
}

fn rename_appends(state: &mut State) {
    for stream in StreamId::all() {
        let names = &mut Names { given: [Names::NONE; 8], next: 0 };
        let at = &mut state.metadata.streams[stream.index()];
        names.records(&mut at.committed);
        names.producers(&mut at.producers);
        let told = &mut state.told[stream.index()];
        told.acked.iter_mut().chain(&mut told.read).flatten().for_each(|a| *a = names.of(*a));
        for open in state.processes.iter_mut().filter_map(|p| p.streams[stream.index()].as_mut()) {
            names.records(&mut open.records);
            names.producers(&mut open.producers);
        }
        let sent = state.wals.iter_mut().flat_map(|w| w.sent.iter_mut());
        sent.filter(|f: &&mut Frame| f.stream == stream).for_each(|f| f.append = names.of(f.append));
    }
}

/// The same with the nodes' names swapped.
fn swap_nodes(state: &State) -> State {
    let swap = |s: SessionNo| SessionNo(s.0 ^ 2);
    let mut image = *state;
    image.metadata.sessions.rotate_left(2);
    image.processes.rotate_left(2);
    image.wals.rotate_left(2);
    image.recoveries.rotate_left(2);
    for recovery in image.recoveries.iter_mut().flat_map(|r| r.iter_mut()) {
        recovery.claimant = swap(recovery.claimant);
    }
    for stream in &mut image.metadata.streams {
        if let Ownership::Open(owner) = &mut stream.ownership {
            *owner = swap(*owner);
        }
    }
    for acker in image.told.iter_mut().flat_map(|t| t.acker.iter_mut()).flatten() {
        *acker = swap(*acker);
    }
    rename_appends(&mut image);
    image
}

/// The same with the streams' names swapped.
fn swap_streams(state: &State) -> State {
    let mut image = *state;
    image.metadata.streams.swap(0, 1);
    image.told.swap(0, 1);
    image.processes.iter_mut().for_each(|p| p.streams.swap(0, 1));
    for frame in image.wals.iter_mut().flat_map(|w| w.sent.iter_mut()) {
        frame.stream.0 ^= 1;
    }
    image
}
