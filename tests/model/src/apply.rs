//! The metadata state machine: one function per command, checked first, then applied whole.
//!
//! Pure and atomic: the log orders commands, so a command that was proposed long ago is one that is applied now. Who
//! proposes what, and when, is `nodes`' and `actions`' business.

use crate::faults::Faults;
use crate::state::{Frame, Life, Metadata, OpenStream, Ownership, Producers, SessionNo, StreamId};

/// Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal;

/// On whose behalf a segment is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOrigin {
    /// The session's own records.
    Own(SessionNo),
    /// Records of an ended session.
    Recovery {
        /// The proposing session.
        claimant: SessionNo,
        /// The ended session.
        ended: SessionNo,
        /// The claim's number.
        claim: u8,
    },
}

fn check(holds: bool) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(Refusal) }
}

impl Metadata {
    /// The session is current.
    pub fn is_live(&self, session: SessionNo) -> bool {
        self.sessions[session.index()].life == Life::Live
    }

    /// A process starts its session; that ends the node's session before it.
    pub fn register(&mut self, session: SessionNo) -> Result<(), Refusal> {
        check(self.sessions[session.index()].life == Life::Unregistered)?;
        if self.is_live(session.sibling()) {
            self.end(session.sibling());
        }
        self.sessions[session.index()].life = Life::Live;
        Ok(())
    }

    /// Ends a session that seems silent.
    pub fn fence(&mut self, session: SessionNo) -> Result<(), Refusal> {
        check(self.is_live(session))?;
        self.end(session);
        Ok(())
    }

    /// The session's own last command.
    pub fn end_session(&mut self, session: SessionNo, faults: &Faults) -> Result<(), Refusal> {
        check(self.is_live(session))?;
        if faults.clean_end_with_open_streams {
            self.sessions[session.index()].life = Life::Gone;
        } else {
            self.end(session);
        }
        Ok(())
    }

    /// A session that has open streams needs recovery; any other is forgotten.
    fn end(&mut self, session: SessionNo) {
        let open = self.streams.iter().any(|s| s.ownership == Ownership::Open(session));
        self.sessions[session.index()].life = if open { Life::Ended } else { Life::Gone };
    }

    /// Hands a recovery out, in place of the claim that holds. Answers number and WAL start.
    pub fn claim(
        &mut self,
        ended: SessionNo,
        claimant: SessionNo,
        replaces: u8,
    ) -> Result<(u8, u8), Refusal> {
        let session = self.sessions[ended.index()];
        check(session.life == Life::Ended && session.claim == replaces && self.is_live(claimant))?;
        self.sessions[ended.index()].claim += 1;
        Ok((session.claim + 1, session.wal_start))
    }

    /// The claimant has committed all that was before the seal.
    pub fn recovered(
        &mut self,
        claimant: SessionNo,
        ended: SessionNo,
        claim: u8,
        faults: &Faults,
    ) -> Result<(), Refusal> {
        self.check_claim(claimant, ended, claim, faults)?;
        self.sessions[ended.index()].life = Life::Gone;
        Ok(())
    }

    fn check_claim(
        &self,
        claimant: SessionNo,
        ended: SessionNo,
        claim: u8,
        faults: &Faults,
    ) -> Result<(), Refusal> {
        let session = self.sessions[ended.index()];
        check(self.is_live(claimant) && session.life == Life::Ended)?;
        check(session.claim == claim || faults.claim_not_checked)
    }

    /// The proposer takes the stream: of a released one, or of one whose session has ended and is recovered.
    pub fn open(
        &mut self,
        session: SessionNo,
        stream: StreamId,
        faults: &Faults,
    ) -> Result<OpenStream, Refusal> {
        check(self.is_live(session))?;
        let free = match self.streams[stream.index()].ownership {
            Ownership::Released => true,
            Ownership::Open(owner) => match self.sessions[owner.index()].life {
                Life::Gone => true,
                Life::Ended => faults.open_before_recovered,
                Life::Live | Life::Unregistered => false,
            },
        };
        check(free)?;
        let s = &mut self.streams[stream.index()];
        s.ownership = Ownership::Open(session);
        if !faults.epoch_not_bumped || s.epoch == 0 {
            s.epoch += 1;
        }
        let producers = if faults.producer_state_forgotten { Producers::default() } else { s.producers };
        Ok(OpenStream { epoch: s.epoch, records: s.committed, producers })
    }

    /// The owner lets go at its tail.
    pub fn release(
        &mut self,
        session: SessionNo,
        stream: StreamId,
        epoch: u8,
        tail: u8,
    ) -> Result<(), Refusal> {
        let s = &mut self.streams[stream.index()];
        check(s.ownership == Ownership::Open(session) && s.epoch == epoch && s.committed.count() == tail)?;
        check(self.sessions[session.index()].life == Life::Live)?;
        s.ownership = Ownership::Released;
        Ok(())
    }

    /// Records have reached a segment. `covered`: all WAL objects below are.
    pub fn commit_segment(
        &mut self,
        origin: CommitOrigin,
        frames: &[Frame],
        covered: Option<u8>,
        faults: &Faults,
    ) -> Result<(), Refusal> {
        let owner = match origin {
            CommitOrigin::Own(session) => {
                check(self.is_live(session))?;
                session
            }
            CommitOrigin::Recovery { claimant, ended, claim } => {
                self.check_claim(claimant, ended, claim, faults)?;
                ended
            }
        };
        let mut streams = self.streams;
        for frame in frames {
            let stream = &mut streams[frame.stream.index()];
            let here = stream.ownership == Ownership::Open(owner);
            let epoch = stream.epoch == frame.epoch || faults.no_stream_epoch_check;
            if !here || !epoch || frame.offset < stream.committed.count() {
                continue;
            }
            // A gap refuses the whole command.
            check(frame.offset == stream.committed.count() && !stream.committed.is_full())?;
            stream.committed.push(frame.append);
            stream.producers.absorb(frame.append);
        }
        self.streams = streams;
        if let Some(covered) = covered {
            let start = &mut self.sessions[owner.index()].wal_start;
            *start = covered.max(*start);
        }
        Ok(())
    }
}
