//! A fork: a stream that begins with another's records, by reference, while the source is written, moved and deleted.
//!
//! One name with up to two lives, and forks of it, each under a name of its own. Two sessions may own the source. Who
//! asks for a fork looks the name up in a view that may be old, has the owner commit, and proposes `Fork` of a
//! stream number up to an offset; the proposal is applied whenever the log likes, or refused. Segments that nothing
//! refers to are swept, their objects deleted.
//!
//! Left out: the WAL's seals and zombies (the takeover model), transfers as such (a move is a release and an open), births,
//! forks of forks beyond one, the grace period before a sweep: it may come at once.

use stateright::{Model, Property};

use crate::list::List;

/// Streams that there can be: two lives of the source's name, a fork, and a fork of that.
pub const STREAMS: usize = 4;
/// Records of one stream.
pub const RECORDS: usize = 3;
/// Segments: one per commit.
pub const SEGMENTS: usize = 4;

/// One rule removed per switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// `Fork` applies although the source is not committed up to the offset.
    pub not_committed: bool,
    /// A fork's extents do not count as references.
    pub no_reference: bool,
    /// `Fork` carries the extents that its proposer knows, of a source that may be gone.
    pub extents_carried: bool,
    /// `Fork` means whatever stream has the name when it is applied.
    pub by_name: bool,
    /// A source with forks is removed like any other: its name is free.
    pub no_tombstone: bool,
    /// A tombstone stays when its last fork goes.
    pub tombstone_stays: bool,
    /// A fork at the tail is taken at the committed end of a source whose session awaits recovery.
    pub while_awaiting_recovery: bool,
    /// A fork at the tail is taken at the committed end, without the owner's commit first.
    pub at_committed_end: bool,
}

/// What a stream's records are: numbers, never the same twice.
pub type Records = List<u8, RECORDS>;

/// A run of records in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Extent {
    pub segment: u8,
    pub end: u8,
}

/// How the session that has a stream open fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Owner {
    /// Nobody has it.
    #[default]
    Released,
    /// Open at a live session.
    Open,
    /// Open at a session that has ended and is not recovered.
    Awaiting,
}

/// A stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Stream {
    pub exists: bool,
    pub tombstone: bool,
    pub owner: Owner,
    /// All that was acknowledged. A fork's begins with what it was asked for.
    pub records: Records,
    pub committed: u8,
    pub extents: List<Extent, RECORDS>,
    /// Where it was forked from: stream and offset.
    pub from: Option<(u8, u8)>,
}

/// A segment: which records it holds, and whether its object is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Segment {
    pub records: Records,
    /// From which offset on.
    pub start: u8,
    pub swept: bool,
}

/// A fork that was asked for and proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Proposal {
    pub source: u8,
    pub at: u8,
    /// What who asked expects the fork to begin with.
    pub expects: Records,
    /// The source's extents as the proposer knew them. Only a fault looks at them.
    pub extents: List<Extent, RECORDS>,
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct State {
    /// The first two are lives of one name.
    pub streams: [Stream; STREAMS],
    /// Numbers are given once.
    pub given: [bool; STREAMS],
    pub segments: List<Segment, SEGMENTS>,
    pub proposals: List2,
    /// The number of the next record.
    pub next_record: u8,
    pub moves: u8,
    pub broken: Broken,
}

/// At most two proposals on their way.
pub type List2 = [Option<Proposal>; 2];

/// What was seen broken; stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Broken {
    pub other_content: bool,
    pub stale_tail: bool,
    pub name_taken_twice: bool,
}

/// A step of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The source's name gets its next life.
    Create(u8),
    /// A session opens the stream.
    Open(u8),
    Append(u8),
    /// The owner commits all that it has acknowledged.
    Commit(u8),
    /// The owner lets go, with all committed.
    Release(u8),
    /// The owner's session ends.
    End(u8),
    /// Its recovery commits what it had acknowledged.
    Recover(u8),
    Delete(u8),
    /// A fork of this stream at this offset (`None`: at the tail) is asked for and proposed.
    Ask(u8, Option<u8>),
    /// The log applies or refuses a proposal.
    Apply(usize),
    /// Segments that nothing refers to go, with their objects.
    Sweep,
}

/// An acknowledged record can be read as long as its stream is there.
pub const I2: &str = "I2 what a stream refers to is there";
/// A fork begins with what its source held at the offset; one offset, one record.
pub const I3: &str = "I3 a fork begins as its source did";
/// A fork at the tail has all that was acknowledged before it was asked for.
pub const CURRENT: &str = "I3 a fork at the tail is not stale";
/// A name with a tombstone leads to no other stream.
pub const NAME: &str = "a deleted source with forks keeps its name";
/// What nobody needs goes.
pub const NO_LEAK: &str = "a tombstone goes with its last fork";

/// The model.
#[derive(Debug, Clone, Copy)]
pub struct Forks {
    pub faults: Faults,
    /// Records that are ever appended.
    pub records: u8,
    /// Times that owners release or end.
    pub moves: u8,
}

impl Forks {
    /// What the gate explores.
    pub const fn gate(faults: Faults) -> Self {
        Self { faults, records: 2, moves: 2 }
    }
}

fn when(holds: bool) -> Option<()> {
    holds.then_some(())
}

impl State {
    fn stream(&self, id: u8) -> &Stream {
        &self.streams[usize::from(id)]
    }

    fn stream_mut(&mut self, id: u8) -> &mut Stream {
        &mut self.streams[usize::from(id)]
    }

    fn is_there(&self, id: u8) -> bool {
        self.stream(id).exists && !self.stream(id).tombstone
    }

    fn forks_of(&self, id: u8) -> bool {
        self.streams.iter().any(|s| s.exists && s.from.is_some_and(|(source, _)| source == id))
    }

    /// Whether some stream needs a segment. What a fork began with counts unless a fault says no.
    fn is_needed(&self, segment: u8, faults: &Faults) -> bool {
        self.streams.iter().filter(|s| s.exists).any(|s| {
            let own = |e: &&Extent| !faults.no_reference || s.from.is_none_or(|(_, at)| e.end > at);
            s.extents.iter().filter(own).any(|e| e.segment == segment)
        })
    }

    /// What a reader of its extents finds; `None` where an object is gone.
    fn read(&self, extents: &[Extent], end: u8) -> Option<Records> {
        let mut found = Records::default();
        for extent in extents {
            let segment = &self.segments[usize::from(extent.segment)];
            when(!segment.swept)?;
            while found.count() < extent.end.min(end) {
                let at = found.count().checked_sub(segment.start)?;
                found.push(*segment.records.get(usize::from(at))?);
            }
        }
        Some(found)
    }

    fn remove(&mut self, id: u8, faults: &Faults) {
        let mut next = Some(id);
        while let Some(id) = next.take() {
            let stream = std::mem::take(self.stream_mut(id));
            if let Some((source, _)) = stream.from {
                let last = self.stream(source).tombstone && !self.forks_of(source);
                next = (last && !faults.tombstone_stays).then_some(source);
            }
        }
    }

    fn create(&mut self, id: u8) -> Option<()> {
        // A number is given once, in order; a name that leads to a stream, or to a tombstone, is taken.
        when(id < 2 && self.given[..usize::from(id)].iter().all(|g| *g) && !self.given[usize::from(id)])?;
        when(!self.streams[..2].iter().any(|s| s.exists))?;
        self.given[usize::from(id)] = true;
        self.stream_mut(id).exists = true;
        Some(())
    }

    fn append(&mut self, id: u8, bound: u8) -> Option<()> {
        when(self.is_there(id) && self.stream(id).owner == Owner::Open && self.next_record < bound)?;
        let record = self.next_record + 1;
        when(!self.stream(id).records.is_full())?;
        self.next_record = record;
        self.stream_mut(id).records.push(record);
        Some(())
    }

    fn commit(&mut self, id: u8) -> Option<()> {
        let stream = *self.stream(id);
        when(stream.exists && stream.committed < stream.records.count() && !self.segments.is_full())?;
        when(!stream.tombstone && !stream.extents.is_full())?;
        let mut records = Records::default();
        stream.records[usize::from(stream.committed)..].iter().for_each(|r| records.push(*r));
        self.segments.push(Segment { records, start: stream.committed, swept: false });
        let segment = self.segments.count() - 1;
        let stream = self.stream_mut(id);
        stream.committed = stream.records.count();
        stream.extents.push(Extent { segment, end: stream.committed });
        Some(())
    }

    fn delete(&mut self, id: u8, faults: &Faults) -> Option<()> {
        when(self.is_there(id) && self.stream(id).owner != Owner::Awaiting)?;
        if self.forks_of(id) && !faults.no_tombstone {
            let stream = self.stream_mut(id);
            (stream.tombstone, stream.owner) = (true, Owner::Released);
            stream.extents = List::default();
            return Some(());
        }
        self.broken.name_taken_twice |= self.forks_of(id);
        self.remove(id, faults);
        Some(())
    }

    /// Somebody asks: what they know is the view of now, and what they propose may be applied much later.
    fn ask(&mut self, id: u8, at: Option<u8>, faults: &Faults) -> Option<()> {
        when(self.is_there(id))?;
        let stream = *self.stream(id);
        let free = self.proposals.iter().position(Option::is_none)?;
        if at.is_none() {
            when(stream.owner != Owner::Awaiting || faults.while_awaiting_recovery)?;
            // The owner commits first.
            when(
                stream.committed == stream.records.count()
                    || faults.at_committed_end
                    || stream.owner == Owner::Awaiting,
            )?;
        }
        let offset = at.unwrap_or(stream.committed);
        when(offset <= stream.records.count())?;
        let mut expects = stream.records;
        expects.truncate(offset);
        let missing = at.is_none() && offset < stream.records.count();
        self.broken.stale_tail |= missing;
        let extents = stream.extents;
        self.proposals[free] = Some(Proposal { source: id, at: offset, expects, extents });
        Some(())
    }

    fn apply(&mut self, nth: usize, faults: &Faults) -> Option<()> {
        let proposal = self.proposals[nth].take()?;
        let named = (0..2).find(|&id| self.is_there(id));
        let source = if faults.by_name && proposal.source < 2 { named } else { Some(proposal.source) };
        let target = (2..STREAMS as u8).find(|&id| !self.given[usize::from(id)]);
        let (Some(source), Some(target)) = (source, target) else { return Some(()) };
        let live = self.is_there(source) && self.stream(source).owner != Owner::Awaiting
            || (faults.while_awaiting_recovery && self.is_there(source));
        let committed = proposal.at <= self.stream(source).committed || faults.not_committed;
        if !((live && committed) || faults.extents_carried) {
            return Some(());
        }
        let mut extents = if faults.extents_carried { proposal.extents } else { self.stream(source).extents };
        let whole =
            extents.iter().position(|e| e.end >= proposal.at).map_or(extents.count(), |n| n as u8 + 1);
        extents.truncate(if proposal.at == 0 { 0 } else { whole });
        if let Some(last) = extents.last_mut() {
            last.end = last.end.min(proposal.at);
        }
        let from = Some((source, proposal.at));
        let stands = self.read(&extents, proposal.at);
        // What is gone is I2's to see.
        self.broken.other_content |= stands.is_some_and(|stands| stands != proposal.expects);
        let records = proposal.expects;
        let fork =
            Stream { exists: true, committed: proposal.at, records, extents, from, ..Stream::default() };
        *self.stream_mut(target) = fork;
        self.given[usize::from(target)] = true;
        Some(())
    }

    fn sweep(&mut self, faults: &Faults) -> Option<()> {
        let dead: Vec<usize> = (0..self.segments.len())
            .filter(|&n| !self.segments[n].swept && !self.is_needed(n as u8, faults))
            .collect();
        when(!dead.is_empty())?;
        dead.into_iter().for_each(|n| self.segments[n].swept = true);
        Some(())
    }

    /// Every live stream's committed records can be read.
    fn readable(&self) -> bool {
        self.streams.iter().filter(|s| s.exists && !s.tombstone).all(|s| {
            self.read(&s.extents, s.committed).is_some_and(|found| {
                found.iter().zip(s.records.iter()).all(|(a, b)| a == b) && found.count() == s.committed
            })
        })
    }
}

impl Forks {
    /// Takes a step; `None` where it is not possible or changes nothing.
    pub fn step(&self, state: &State, action: Action) -> Option<State> {
        let mut next = *state;
        let faults = &self.faults;
        match action {
            Action::Create(id) => next.create(id)?,
            Action::Open(id) => {
                when(next.is_there(id) && next.stream(id).owner == Owner::Released)?;
                next.stream_mut(id).owner = Owner::Open;
            }
            Action::Append(id) => next.append(id, self.records)?,
            Action::Commit(id) => {
                when(next.stream(id).owner == Owner::Open)?;
                next.commit(id)?;
            }
            Action::Release(id) => {
                let stream = next.stream_mut(id);
                let settled = stream.committed == stream.records.count();
                when(stream.exists && stream.owner == Owner::Open && settled)?;
                stream.owner = Owner::Released;
                next.moves += 1;
            }
            Action::End(id) => {
                when(next.stream(id).exists && next.stream(id).owner == Owner::Open)?;
                next.stream_mut(id).owner = Owner::Awaiting;
                next.moves += 1;
            }
            Action::Recover(id) => {
                when(next.stream(id).exists && next.stream(id).owner == Owner::Awaiting)?;
                // Nothing to commit is fine too.
                if next.stream(id).committed < next.stream(id).records.count() {
                    next.commit(id)?;
                }
                next.stream_mut(id).owner = Owner::Released;
            }
            Action::Delete(id) => next.delete(id, faults)?,
            Action::Ask(id, at) => next.ask(id, at, faults)?,
            Action::Apply(nth) => next.apply(nth, faults)?,
            Action::Sweep => next.sweep(faults)?,
        }
        Some(next)
    }
}

impl Model for Forks {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Sweep);
        actions.extend([Action::Apply(0), Action::Apply(1)]);
        for id in 0..STREAMS as u8 {
            actions.extend([Action::Create(id), Action::Open(id), Action::Append(id), Action::Commit(id)]);
            actions.extend([Action::Recover(id), Action::Delete(id), Action::Ask(id, None)]);
            actions.extend((0..=state.stream(id).records.count()).map(|at| Action::Ask(id, Some(at))));
            if state.moves < self.moves {
                actions.extend([Action::Release(id), Action::End(id)]);
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        self.step(state, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(I2, |_, s: &State| s.readable()),
            Property::always(I3, |_, s: &State| !s.broken.other_content),
            Property::always(CURRENT, |_, s: &State| !s.broken.stale_tail),
            Property::always(NAME, |_, s: &State| !s.broken.name_taken_twice),
            Property::always(NO_LEAK, |_, s: &State| {
                (0..STREAMS as u8).all(|id| !s.stream(id).tombstone || s.forks_of(id))
            }),
            Property::sometimes("a tombstone is kept by a fork of a fork", |_, s: &State| {
                let fork_of = |id: u8| s.stream(id).from.map(|(source, _)| source);
                s.stream(0).tombstone
                    && fork_of(2) == Some(0)
                    && s.stream(2).tombstone
                    && fork_of(3) == Some(2)
            }),
            Property::sometimes("a fork outlives a swept source", |_, s: &State| {
                s.stream(2).exists && s.segments.iter().any(|g| g.swept) && s.stream(2).committed > 0
            }),
            Property::sometimes("a proposal's source is gone", |_, s: &State| {
                s.proposals.iter().flatten().any(|p| !s.stream(p.source).exists)
            }),
            Property::sometimes(
                "the name has its second life, and a proposal means the first",
                |_, s: &State| s.is_there(1) && s.proposals.iter().flatten().any(|p| p.source == 0),
            ),
            Property::sometimes("an offset was asked for that is not committed", |_, s: &State| {
                s.proposals
                    .iter()
                    .flatten()
                    .any(|p| p.at > s.stream(p.source).committed && s.is_there(p.source))
            }),
        ]
    }
}
