//! What processes and the bucket do: one function per step, each atomic.
//!
//! A step says `None` where it is not possible or changes nothing. A process acts on its own memory and on what it
//! reads in the bucket; only commands (through `apply`) see the metadata. Called by `actions`.

use crate::apply::CommitOrigin;
use crate::faults::Faults;
use crate::state::{Append, Frame, Life, Process, Recovery, SessionNo, Slot, State, StreamId};

/// Done, or not possible.
pub type Step = Option<()>;

fn when(holds: bool) -> Step {
    holds.then_some(())
}

impl State {
    // ---- lives

    /// A new process of the node starts; the one before it may still run and know nothing.
    pub fn register(&mut self, session: SessionNo) -> Step {
        self.metadata.register(session).ok()?;
        self.processes[session.index()].up = true;
        Some(())
    }

    /// The process is gone with its memory. Its puts may still land.
    pub fn crash(&mut self, session: SessionNo) -> Step {
        when(self.processes[session.index()].up)?;
        self.processes[session.index()] = Process::default();
        Some(())
    }

    /// The process ends its session, whatever it has open, and exits.
    pub fn end_session(&mut self, session: SessionNo, faults: &Faults) -> Step {
        when(self.processes[session.index()].up)?;
        self.metadata.end_session(session, faults).ok()?;
        self.processes[session.index()] = Process::default();
        Some(())
    }

    // ---- streams

    /// The process opens a stream.
    pub fn open(&mut self, session: SessionNo, stream: StreamId, faults: &Faults) -> Step {
        let process = &mut self.processes[session.index()];
        when(process.up && process.streams[stream.index()].is_none())?;
        let opened = self.metadata.open(session, stream, faults).ok()?;
        process.streams[stream.index()] = Some(opened);
        Some(())
    }

    /// An append request, first time or retry, reaches a process that believes to own the stream.
    pub fn append(&mut self, session: SessionNo, stream: StreamId, append: Append, faults: &Faults) -> Step {
        let process = &mut self.processes[session.index()];
        let open = process.streams[stream.index()].as_mut()?;
        if open.producers.knows(append) {
            return self.answer_duplicate(session, stream, append, faults);
        }
        let wal = &mut self.wals[session.index()];
        when(!wal.sent.is_full() && !open.records.is_full())?;
        let frame = Frame { stream, epoch: open.epoch, offset: open.records.count(), append };
        wal.sent.push(frame);
        open.records.push(append);
        open.producers.absorb(append);
        if faults.read_before_durable {
            self.note_read(frame);
        }
        Some(())
    }

    /// "Duplicate" waits until the original is durable. (Then it was acknowledged already: nothing changes.)
    fn answer_duplicate(
        &mut self,
        session: SessionNo,
        stream: StreamId,
        append: Append,
        faults: &Faults,
    ) -> Step {
        let process = &self.processes[session.index()];
        let open = process.streams[stream.index()].as_ref()?;
        let sent = &self.wals[session.index()].sent;
        let original =
            sent.iter().rposition(|f| f.stream == stream && f.epoch == open.epoch && f.append == append);
        let durable = original.is_none_or(|seq| seq < usize::from(process.durable));
        when(durable || faults.duplicate_answered_before_durable)?;
        let offset = open.records.iter().position(|r| *r == append)? as u8;
        let before = *self;
        self.note_ack(session, Frame { stream, epoch: open.epoch, offset, append });
        when(*self != before)
    }

    /// The stream's task dies (a panic, a request given up) before anything of it that segments do not hold was
    /// acknowledged. What it sent stays in the WAL and may become durable; nobody will be told.
    pub fn abandon(&mut self, session: SessionNo, stream: StreamId) -> Step {
        let process = &self.processes[session.index()];
        let epoch = process.streams[stream.index()]?.epoch;
        let committed = self.metadata.streams[stream.index()].committed.count();
        let of_it = |f: &&Frame| f.stream == stream && f.epoch == epoch;
        let (durable, in_flight) = self.wals[session.index()].sent.split_at(usize::from(process.durable));
        when(in_flight.iter().any(|f| of_it(&f)))?;
        when(!durable.iter().filter(of_it).any(|f| f.offset >= committed))?;
        self.processes[session.index()].streams[stream.index()] = None;
        self.abandoned += 1;
        Some(())
    }

    /// The owner releases: at its tail with every put settled; or, of a stream that is open at its session but not in
    /// its memory, at the committed end.
    pub fn release(&mut self, session: SessionNo, stream: StreamId, faults: &Faults) -> Step {
        let process = &mut self.processes[session.index()];
        when(process.up)?;
        let at = self.metadata.streams[stream.index()];
        let (epoch, tail) = match process.streams[stream.index()] {
            None => (at.epoch, at.committed.count()),
            Some(open) if faults.release_without_settle => (open.epoch, at.committed.count()),
            Some(open) => {
                let in_flight = &self.wals[session.index()].sent[usize::from(process.durable)..];
                when(!in_flight.iter().any(|f| f.stream == stream && f.epoch == open.epoch))?;
                (open.epoch, open.records.count())
            }
        };
        self.metadata.release(session, stream, epoch, tail).ok()?;
        process.streams[stream.index()] = None;
        Some(())
    }

    // ---- WAL

    /// The writer gets the answer for the next object, or for a retry of its put: stored (so it acknowledges), or
    /// sealed (so it exits).
    pub fn settle(&mut self, session: SessionNo, faults: &Faults) -> Step {
        let process = &mut self.processes[session.index()];
        let wal = &mut self.wals[session.index()];
        let seq = process.durable;
        when(process.up && seq < wal.sent.count())?;
        let recovered = self.metadata.sessions[session.index()].life == Life::Gone;
        let slot = &mut wal.slots[usize::from(seq)];
        if *slot == Slot::Seal && !(recovered && faults.seal_deleted) {
            *process = Process { fenced: true, ..Process::default() };
            return Some(());
        }
        *slot = Slot::Object;
        process.durable += 1;
        let frame = wal.sent[usize::from(seq)];
        if process.serves(frame) || faults.release_without_settle {
            self.note_read(frame);
            self.note_ack(session, frame);
        }
        Some(())
    }

    /// Only with `ack_out_of_order`: an object behind the next is known stored, and that is taken for enough.
    pub fn settle_early(&mut self, session: SessionNo, seq: u8) -> Step {
        let process = &self.processes[session.index()];
        let wal = &mut self.wals[session.index()];
        when(process.up && seq > process.durable && seq < wal.sent.count())?;
        let frame = wal.sent[usize::from(seq)];
        when(wal.slots[usize::from(seq)] == Slot::Unseen && process.serves(frame))?;
        wal.slots[usize::from(seq)] = Slot::Object;
        self.note_ack(session, frame);
        Some(())
    }

    /// The owner commits its durable frames below `below`; `cover` raises the WAL start (a split commit does so with
    /// its last part only).
    pub fn commit_own(&mut self, session: SessionNo, below: u8, cover: bool, faults: &Faults) -> Step {
        let process = &self.processes[session.index()];
        let from = self.metadata.sessions[session.index()].wal_start;
        when(process.up && from < below && below <= process.durable)?;
        self.commit(CommitOrigin::Own(session), session, from..below, cover, faults)
    }

    fn commit(
        &mut self,
        origin: CommitOrigin,
        of: SessionNo,
        range: std::ops::Range<u8>,
        cover: bool,
        faults: &Faults,
    ) -> Step {
        let frames = &self.wals[of.index()].sent[usize::from(range.start)..usize::from(range.end)];
        let before = self.metadata;
        self.metadata.commit_segment(origin, frames, cover.then_some(range.end), faults).ok()?;
        when(self.metadata != before)?;
        self.note_committed();
        Some(())
    }

    // ---- recovery

    /// The leader hands the recovery of `ended` to `claimant`.
    pub fn claim(&mut self, ended: SessionNo, claimant: SessionNo) -> Step {
        let replaces = self.metadata.sessions[ended.index()].claim;
        let (claim, from) = self.metadata.claim(ended, claimant, replaces).ok()?;
        self.recoveries[ended.index()].push(Recovery { claim, claimant, from, end: None });
        Some(())
    }

    /// Below this, objects may have been deleted: they are covered, or the session is recovered.
    pub fn trimmed(&self, session: SessionNo) -> u8 {
        let recorded = self.metadata.sessions[session.index()];
        if recorded.life == Life::Gone { u8::MAX } else { recorded.wal_start }
    }

    /// A claimant, current or not, reads the WAL of `ended` to the first absent object, at `end`, and puts a seal
    /// there. Objects never change, so reading them one by one is reading them at the moment of the put that decides.
    pub fn seal(&mut self, ended: SessionNo, nth: usize, end: u8, faults: &Faults) -> Step {
        let recovery = self.recoveries[ended.index()].get_mut(nth)?;
        when(recovery.end.is_none() && self.processes[recovery.claimant.index()].up)?;
        recovery.end = Some(end);
        let wal = &mut self.wals[ended.index()];
        wal.slots[usize::from(recovery.from)..usize::from(end)].fill(Slot::Object);
        if !faults.no_seal {
            wal.slots[usize::from(end)] = Slot::Seal;
        }
        Some(())
    }

    /// A claimant commits what it read, below `below`.
    pub fn commit_recovery(
        &mut self,
        ended: SessionNo,
        nth: usize,
        below: u8,
        cover: bool,
        faults: &Faults,
    ) -> Step {
        let recovery = *self.recoveries[ended.index()].get(nth)?;
        when(self.processes[recovery.claimant.index()].up)?;
        when(recovery.from < below && below <= recovery.end?)?;
        let Recovery { claim, claimant, from, .. } = recovery;
        let origin = CommitOrigin::Recovery { claimant, ended, claim };
        let moved = self.commit(origin, ended, from..below, cover, faults);
        if cover && (moved.is_some() || faults.claim_not_checked) {
            self.recoveries[ended.index()][nth].from = below;
        }
        moved
    }

    /// A claimant that has committed all reports so.
    pub fn recovered(&mut self, ended: SessionNo, nth: usize, faults: &Faults) -> Step {
        let recovery = *self.recoveries[ended.index()].get(nth)?;
        when(self.processes[recovery.claimant.index()].up && recovery.end == Some(recovery.from))?;
        self.metadata.recovered(recovery.claimant, ended, recovery.claim, faults).ok()
    }
}

impl Process {
    /// The frame is of a stream that this process has open, at that epoch.
    fn serves(&self, frame: Frame) -> bool {
        self.streams[frame.stream.index()].is_some_and(|open| open.epoch == frame.epoch)
    }
}
