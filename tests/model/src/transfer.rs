//! A stream on its way from one session to another: begun, called off, with both sides ending at any moment.
//!
//! Three sessions, each of a node of its own, and one stream, which the first has open. Anybody may ask for a transfer
//! to anybody, and the leader may call it off at any time. A source stops (it may for reasons of its own, too), settles
//! its puts, commits, and proposes a release, which places the stream where it is meant to go by then. A proposal that
//! left is applied whenever the log likes, also after its proposer is gone, or refused. A source whose transfer is off
//! resumes, unless its release is still on its way.
//!
//! Left out, because the takeover model has it: how a seal is put (recovery is one step here, which chooses how many of the
//! puts under way had landed), claims, batches, a second epoch of a node, tasks that die alone. Time: a time-out is a
//! step that may come at any moment.
//!
//! `rules` is the log, `nodes` the processes, `progress` shows that nothing is stuck. All of it within [`Bounds::GATE`]:
//! see `tests/transfer.rs` for how many states that is.

mod nodes;
mod progress;
mod rules;

use stateright::{Model, Property};

use crate::list::List;
pub use rules::{Log, Ownership};

/// Sessions: numbers below.
pub const SESSIONS: usize = 3;
/// Records of the stream: those that producers send, and room to see one doubled.
pub const RECORDS: usize = 3;

/// What stands at an offset: which append.
pub type Records = List<u8, RECORDS>;

/// One rule removed per switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// `Release` does not compare its tail with the committed end, and the source does not wait for it.
    pub release_tail_not_checked: bool,
    /// The source goes on taking appends after it has said where its tail is.
    pub source_does_not_stop: bool,
    /// A source resumes though its release may yet be applied.
    pub resume_with_release_in_flight: bool,
    /// The target opens while the source still has the stream.
    pub target_opens_early: bool,
    /// A stream whose last session awaits recovery is placed at the target at once.
    pub moves_what_awaits_recovery: bool,
    /// A release goes where the source was told when it stopped, though that was called off since.
    pub aborted_completes: bool,
    /// A release leaves the stream to whoever comes first.
    pub released_to_anyone: bool,
    /// A transfer stays pending when a side has ended.
    pub outlives_its_sides: bool,
    /// A source whose transfer is off does not resume.
    pub never_resumes: bool,
}

/// How far the model goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub appends: u8,
    pub begins: u8,
    /// Sessions that end. One is left.
    pub ends: u8,
    pub epochs: u8,
}

impl Bounds {
    /// What the gate explores.
    pub const GATE: Self = Self { appends: 2, begins: 2, ends: 2, epochs: 3 };
}

/// A release that was proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Release {
    pub epoch: u8,
    pub tail: u8,
    /// Where the source thought that it went. Only a fault looks at it.
    pub meant_for: Option<u8>,
}

/// A process's memory of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Open {
    pub epoch: u8,
    /// All records up to the tail, durable or not.
    pub records: Records,
    /// It takes no appends.
    pub stopped: bool,
    /// It waits for the outcome of its release.
    pub waits: bool,
}

/// One frame in a session's WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Frame {
    pub epoch: u8,
    pub offset: u8,
    pub append: u8,
}

/// One process, its WAL and what it proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Process {
    pub down: bool,
    pub open: Option<Open>,
    pub sent: List<Frame, 4>,
    /// Known stored.
    pub stored: u8,
    /// Nothing more lands.
    pub sealed: bool,
    pub proposed: Option<Release>,
}

/// What was seen broken; stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Broken {
    pub two_ackers: bool,
    pub lost: bool,
    pub doubled: bool,
    pub misled: bool,
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct State {
    pub log: Log,
    pub processes: [Process; SESSIONS],
    /// By offset: what was acknowledged there.
    pub acked: [Option<u8>; RECORDS],
    /// By epoch, from 1: who acknowledged.
    pub acker: [Option<u8>; 4],
    pub begins: u8,
    pub ends: u8,
    pub broken: Broken,
}

/// A step of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A transfer to this session is asked for.
    Begin(u8),
    /// The leader calls it off.
    Abort,
    /// The log ends a session; its process is not told.
    Fence(u8),
    /// A process dies.
    Crash(u8),
    /// The ended session's WAL is sealed, with so many objects in it, and committed.
    Recover(u8, u8),
    Open(u8),
    Append(u8, u8),
    /// A writer learns that its next object is stored, or that it is fenced.
    Settle(u8),
    Commit(u8),
    /// The process takes no more appends.
    Stop(u8),
    /// It proposes the release.
    Propose(u8),
    /// The log applies or refuses a proposed release.
    Apply(u8),
    Resume(u8),
}

/// For each stream epoch at most one session gets an append acknowledged.
pub const I1: &str = "I1 one session acknowledges per stream epoch";
/// An acknowledged append is never lost.
pub const I2: &str = "I2 acknowledged is never lost";
/// A retried append has effect exactly once.
pub const I4: &str = "I4 a retried append exists once";
/// A stream that is let go of goes where it is meant to go, and else nowhere.
pub const MEANT: &str = "a stream goes where the log means it to go";
/// As long as a session lives, appends can be taken again without anybody's help.
pub const GOES_ON: &str = "nothing is stuck";

/// The model.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    pub faults: Faults,
    pub bounds: Bounds,
}

impl Transfer {
    /// Takes a step; `None` where it is not possible or changes nothing.
    pub fn step(&self, state: &State, action: Action) -> Option<State> {
        let mut next = *state;
        let faults = &self.faults;
        match action {
            Action::Begin(to) => next.begin(to, faults)?,
            Action::Abort => next.log.abort()?,
            Action::Fence(s) => next.fence(s, faults)?,
            Action::Crash(s) => next.crash(s)?,
            Action::Recover(s, landed) => next.recover(s, landed)?,
            Action::Open(s) => next.open(s, faults)?,
            Action::Append(s, append) => next.append(s, append, faults)?,
            Action::Settle(s) => next.settle(s)?,
            Action::Commit(s) => next.commit(s)?,
            Action::Stop(s) => next.stop(s)?,
            Action::Propose(s) => next.propose(s, faults)?,
            Action::Apply(s) => next.apply(s, faults)?,
            Action::Resume(s) => next.resume(s, faults)?,
        }
        Some(next)
    }
}

impl Model for Transfer {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let bounds = &self.bounds;
        actions.push(Action::Abort);
        for s in 0..SESSIONS as u8 {
            if state.begins < bounds.begins {
                actions.push(Action::Begin(s));
            }
            if state.ends < bounds.ends {
                actions.extend([Action::Fence(s), Action::Crash(s)]);
            }
            let process = &state.processes[usize::from(s)];
            actions.extend((process.stored..=process.sent.count()).map(|landed| Action::Recover(s, landed)));
            if state.log.epoch < bounds.epochs {
                actions.push(Action::Open(s));
            }
            actions.extend((0..bounds.appends).map(|append| Action::Append(s, append)));
            actions.extend([Action::Settle(s), Action::Commit(s), Action::Stop(s), Action::Propose(s)]);
            actions.extend([Action::Apply(s), Action::Resume(s)]);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        self.step(state, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(I1, |_, s: &State| !s.broken.two_ackers),
            Property::always(I2, |_, s: &State| !s.broken.lost && s.kept()),
            Property::always(I4, |_, s: &State| !s.broken.doubled && s.no_append_twice()),
            Property::always(MEANT, |_, s: &State| !s.broken.misled),
            Property::always(GOES_ON, |m, s: &State| progress::goes_on(m, s)),
            Property::sometimes("the target has opened", |_, s: &State| s.at_target()),
            Property::sometimes("a release is on its way, and its transfer off", |_, s: &State| {
                s.released_late()
            }),
            Property::sometimes("a source has resumed and acknowledged again", |_, s: &State| s.resumed()),
            Property::sometimes("both sides have ended", |_, s: &State| s.both_ended()),
        ]
    }
}
