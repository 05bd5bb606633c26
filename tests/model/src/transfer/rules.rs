//! The metadata log: who has the stream, where it is meant to go, and what a release comes to.
//!
//! As `node/src/metadata/apply/{ownership,moves,sessions}.rs`: checked first, then applied whole.

use super::{Faults, Records, Release, SESSIONS};

/// How far a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Life {
    #[default]
    Live,
    /// Ended with the stream open; waits for recovery.
    Ended,
    Gone,
}

/// Who has the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ownership {
    #[default]
    Released,
    Placed(u8),
    Open(u8),
}

/// What the log amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Log {
    pub lives: [Life; SESSIONS],
    pub ownership: Ownership,
    pub epoch: u8,
    pub committed: Records,
    /// (source, target) of the pending transfer.
    pub pending: Option<(u8, u8)>,
}

impl Log {
    pub fn life(&self, session: u8) -> Life {
        self.lives[usize::from(session)]
    }

    pub fn is_live(&self, session: u8) -> bool {
        self.life(session) == Life::Live
    }

    /// Nobody has it: released, its session recovered, or placed at one that ended without opening it.
    fn is_free(&self) -> bool {
        match self.ownership {
            Ownership::Released => true,
            Ownership::Placed(at) => !self.is_live(at),
            Ownership::Open(at) => self.life(at) == Life::Gone,
        }
    }

    pub(super) fn begin(&mut self, to: u8, faults: &Faults) -> Option<()> {
        if !self.is_live(to) || self.pending.is_some() {
            return None;
        }
        match self.ownership {
            Ownership::Open(at) if at == to => return None,
            Ownership::Open(at) if self.life(at) == Life::Ended && !faults.moves_what_awaits_recovery => {
                return None;
            }
            Ownership::Open(at) if self.is_live(at) => self.pending = Some((at, to)),
            Ownership::Placed(at) if at == to => return None,
            _ => self.ownership = Ownership::Placed(to),
        }
        Some(())
    }

    pub(super) fn abort(&mut self) -> Option<()> {
        self.pending.take().map(drop)
    }

    pub(super) fn end(&mut self, session: u8, faults: &Faults) -> Option<()> {
        if !self.is_live(session) {
            return None;
        }
        let open = self.ownership == Ownership::Open(session);
        self.lives[usize::from(session)] = if open { Life::Ended } else { Life::Gone };
        let of_it = self.pending.is_some_and(|(source, target)| source == session || target == session);
        if of_it && !faults.outlives_its_sides {
            self.pending = None;
        }
        Some(())
    }

    /// The epoch at which the session has it open now.
    pub(super) fn open(&mut self, session: u8, faults: &Faults) -> Option<u8> {
        let early = faults.target_opens_early && self.pending.is_some_and(|(_, target)| target == session);
        let placed_here = self.ownership == Ownership::Placed(session);
        // What is on its way is the target's, if the log says so for longer than it should.
        let others = self.pending.is_some_and(|(_, target)| target != session);
        if !self.is_live(session) || !(self.is_free() || placed_here || early) || others {
            return None;
        }
        self.pending = None;
        self.ownership = Ownership::Open(session);
        self.epoch += 1;
        Some(self.epoch)
    }

    /// Where the stream is after a release, if that is accepted.
    pub(super) fn release(&mut self, by: u8, release: Release, faults: &Faults) -> Option<Ownership> {
        let held = self.ownership == Ownership::Open(by) && self.epoch == release.epoch;
        let settled = self.committed.count() == release.tail || faults.release_tail_not_checked;
        if !(self.is_live(by) && held && settled) {
            return None;
        }
        let meant = match self.pending.take() {
            _ if faults.aborted_completes => release.meant_for,
            _ if faults.released_to_anyone => None,
            pending => pending.map(|(_, target)| target),
        };
        self.ownership = meant.map_or(Ownership::Released, Ownership::Placed);
        Some(self.ownership)
    }

    /// The owner's records up to here are in segments.
    pub(super) fn commit(&mut self, by: u8, epoch: u8, records: Records) -> Option<()> {
        let held = self.ownership == Ownership::Open(by) && self.epoch == epoch;
        if !held || !self.is_live(by) || records.count() <= self.committed.count() {
            return None;
        }
        self.committed = records;
        Some(())
    }
}
