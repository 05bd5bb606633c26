//! Every step that may come next, and the model as stateright sees it.
//!
//! `actions` may name a step that turns out not to be possible; `nodes` and `apply` decide.

use stateright::{Model, Property};

use crate::canonical;
use crate::faults::Faults;
use crate::nodes::Step;
use crate::properties;
use crate::state::{Append, Life, Ownership, SessionNo, State, StreamId};

/// How far the model goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Appends that a stream's producers send (and retry without end).
    pub appends_per_stream: usize,
    /// The same over both streams.
    pub appends: usize,
    /// Streams whose task dies within a living process.
    pub abandons: u8,
    /// Objects that a writer has in flight.
    pub in_flight: u8,
    /// Objects of a session that segments do not cover; at the bound appends are refused.
    pub backlog: u8,
    /// Claims of one recovery: it is passed on once.
    pub claims: u8,
    /// Times that a stream is opened.
    pub stream_epochs: u8,
    /// A node's second session may be ended too (else only its first).
    pub second_session_ends: bool,
}

impl Bounds {
    /// Two appends to each stream.
    pub const APPENDS: Self = Self {
        appends_per_stream: 2,
        appends: 4,
        abandons: 0,
        in_flight: 2,
        backlog: 3,
        claims: 2,
        stream_epochs: 2,
        second_session_ends: false,
    };

    /// Two appends in all, to one stream or to both; and a stream's task may die while its process lives, which leaves
    /// frames of an epoch that is over in the WAL of a live session.
    pub const ABANDON: Self = Self { appends: 2, abandons: 1, ..Self::APPENDS };
}

/// The model.
#[derive(Debug, Clone, Copy)]
pub struct Weir {
    /// What is broken on purpose.
    pub faults: Faults,
    /// See [`Bounds`].
    pub bounds: Bounds,
}

/// A step of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A process starts and registers.
    Register(SessionNo),
    /// The log ends a session; its process is not told.
    Fence(SessionNo),
    /// A process ends its own session and exits.
    EndSession(SessionNo),
    /// A process dies.
    Crash(SessionNo),
    /// A session opens a stream.
    Open(SessionNo, StreamId),
    /// An append reaches a process, as a first try or a retry.
    Append(SessionNo, StreamId, Append),
    /// A stream's task dies within a process that lives on.
    Abandon(SessionNo, StreamId),
    /// The owner lets go.
    Release(SessionNo, StreamId),
    /// A writer learns what became of its next object.
    Settle(SessionNo),
    /// (A fault.) A writer learns of a later object and acknowledges it.
    SettleEarly(SessionNo, u8),
    /// A session commits its frames below; whether the WAL start moves.
    CommitOwn(SessionNo, u8, bool),
    /// The recovery of the first is handed to the second.
    Claim(SessionNo, SessionNo),
    /// The nth claimant reads up to an end and seals there.
    Seal(SessionNo, usize, u8),
    /// The nth claimant commits below; whether the WAL start moves.
    CommitRecovery(SessionNo, usize, u8, bool),
    /// The nth claimant reports that it is done.
    Recovered(SessionNo, usize),
}

impl Weir {
    fn session_actions(&self, state: &State, session: SessionNo, actions: &mut Vec<Action>) {
        let recorded = state.metadata.sessions[session.index()];
        if recorded.life == Life::Unregistered {
            actions.push(Action::Register(session));
            return;
        }
        if recorded.life == Life::Live && (session.is_first() || self.bounds.second_session_ends) {
            actions.push(Action::Fence(session));
            actions.push(Action::EndSession(session));
        }
        let wal = &state.wals[session.index()];
        if state.processes[session.index()].up {
            self.process_actions(state, session, actions);
        }
        if recorded.life == Life::Ended && recorded.claim < self.bounds.claims {
            let holds = |s: &SessionNo| state.recoveries[session.index()].iter().any(|r| r.claimant == *s);
            let others = SessionNo::all().filter(|s| state.metadata.is_live(*s) && !holds(s));
            actions.extend(others.map(|s| Action::Claim(session, s)));
        }
        for (nth, recovery) in state.recoveries[session.index()].iter().enumerate() {
            match recovery.end {
                None => {
                    let ends = wal.possible_ends(recovery.from, state.trimmed(session));
                    actions.extend(ends.map(|end| Action::Seal(session, nth, end)));
                }
                Some(end) => {
                    for below in recovery.from + 1..=end {
                        actions.push(Action::CommitRecovery(session, nth, below, true));
                        actions.push(Action::CommitRecovery(session, nth, below, false));
                    }
                    actions.push(Action::Recovered(session, nth));
                }
            }
        }
    }

    fn process_actions(&self, state: &State, session: SessionNo, actions: &mut Vec<Action>) {
        let process = &state.processes[session.index()];
        let wal = &state.wals[session.index()];
        let recorded = state.metadata.sessions[session.index()];
        if session.is_first() || self.bounds.second_session_ends {
            actions.push(Action::Crash(session));
        }
        if process.durable < wal.sent.count() {
            actions.push(Action::Settle(session));
            if self.faults.ack_out_of_order {
                actions.extend(
                    (process.durable + 1..wal.sent.count()).map(|seq| Action::SettleEarly(session, seq)),
                );
            }
        }
        if recorded.life == Life::Live {
            for below in recorded.wal_start + 1..=process.durable {
                actions.push(Action::CommitOwn(session, below, true));
                actions.push(Action::CommitOwn(session, below, false));
            }
        }
        for stream in StreamId::all() {
            let at = &state.metadata.streams[stream.index()];
            if at.ownership == Ownership::Open(session) {
                actions.push(Action::Release(session, stream));
            }
            if process.streams[stream.index()].is_none() {
                if at.epoch < self.bounds.stream_epochs {
                    actions.push(Action::Open(session, stream));
                }
                continue;
            }
            // (A stream that a zombie abandons is one that it does nothing about any more.)
            if recorded.life == Life::Live
                && state.abandoned < self.bounds.abandons
                && !self.faults.release_without_settle
            {
                actions.push(Action::Abandon(session, stream));
            }
            let backlog = wal.sent.count() - canonical::covered_front(state, session);
            let room =
                backlog < self.bounds.backlog && wal.sent.count() - process.durable < self.bounds.in_flight;
            let known = canonical::appends_known(state, stream);
            let all: usize = StreamId::all().map(|s| canonical::appends_known(state, s)).sum();
            let fresh = usize::from(known < self.bounds.appends_per_stream && all < self.bounds.appends);
            for append in (0..known + fresh).map(|a| Append(a as u8)) {
                let duplicate =
                    process.streams[stream.index()].is_some_and(|open| open.producers.knows(append));
                if room || duplicate {
                    actions.push(Action::Append(session, stream, append));
                }
            }
        }
    }

    /// Takes a step, without looking for the representative of where it leads.
    pub fn step(&self, state: &mut State, action: Action) -> Step {
        let faults = &self.faults;
        match action {
            Action::Register(session) => state.register(session),
            Action::Fence(session) => state.metadata.fence(session).ok(),
            Action::EndSession(session) => state.end_session(session, faults),
            Action::Crash(session) => state.crash(session),
            Action::Open(session, stream) => state.open(session, stream, faults),
            Action::Append(session, stream, append) => state.append(session, stream, append, faults),
            Action::Abandon(session, stream) => state.abandon(session, stream),
            Action::Release(session, stream) => state.release(session, stream, faults),
            Action::Settle(session) => state.settle(session, faults),
            Action::SettleEarly(session, seq) => state.settle_early(session, seq),
            Action::CommitOwn(session, below, cover) => state.commit_own(session, below, cover, faults),
            Action::Claim(ended, claimant) => state.claim(ended, claimant),
            Action::Seal(ended, nth, end) => state.seal(ended, nth, end, faults),
            Action::CommitRecovery(ended, nth, below, cover) => {
                state.commit_recovery(ended, nth, below, cover, faults)
            }
            Action::Recovered(ended, nth) => state.recovered(ended, nth, faults),
        }
    }
}

impl Model for Weir {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![canonical::representative(State::initial(), &self.faults)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for session in SessionNo::all() {
            self.session_actions(state, session, actions);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = *state;
        self.step(&mut next, action)?;
        Some(canonical::representative(next, &self.faults))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
