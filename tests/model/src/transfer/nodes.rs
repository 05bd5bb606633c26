//! What processes and the bucket do, and what clients were told: one function per step.

use super::rules::{Life, Ownership};
use super::{Faults, Frame, Open, Process, Release, SESSIONS, State};

fn when(holds: bool) -> Option<()> {
    holds.then_some(())
}

impl State {
    fn process(&mut self, session: u8) -> &mut Process {
        &mut self.processes[usize::from(session)]
    }

    pub(super) fn begin(&mut self, to: u8, faults: &Faults) -> Option<()> {
        self.log.begin(to, faults)?;
        self.begins += 1;
        Some(())
    }

    pub(super) fn fence(&mut self, session: u8, faults: &Faults) -> Option<()> {
        self.log.end(session, faults)?;
        self.ends += 1;
        Some(())
    }

    /// With its memory. Its puts may still land, its proposal may still be applied.
    pub(super) fn crash(&mut self, session: u8) -> Option<()> {
        // One that is not fenced is found silent later: that counts then.
        let process = self.process(session);
        when(!process.down)?;
        (process.down, process.open) = (true, None);
        Some(())
    }

    pub(super) fn recover(&mut self, ended: u8, landed: u8) -> Option<()> {
        when(self.log.life(ended) == Life::Ended)?;
        let by = (0..SESSIONS).any(|s| self.log.is_live(s as u8) && !self.processes[s].down);
        when(by)?;
        let (epoch, process) = (self.log.epoch, self.process(ended));
        process.sealed = true;
        let frames = process.sent;
        // Only frames of the epoch at which it was open count, from the committed end on.
        for frame in frames[..usize::from(landed)].iter().filter(|f| f.epoch == epoch) {
            if frame.offset == self.log.committed.count() {
                self.log.committed.push(frame.append);
            }
        }
        self.log.lives[usize::from(ended)] = Life::Gone;
        self.compare();
        Some(())
    }

    pub(super) fn open(&mut self, session: u8, faults: &Faults) -> Option<()> {
        when(!self.process(session).down && self.process(session).open.is_none())?;
        let epoch = self.log.open(session, faults)?;
        let records = self.log.committed;
        self.process(session).open = Some(Open { epoch, records, stopped: false, waits: false });
        Some(())
    }

    /// First time or retry.
    pub(super) fn append(&mut self, session: u8, append: u8, faults: &Faults) -> Option<()> {
        let process = self.process(session);
        let mut open = process.open?;
        when(!open.stopped || faults.source_does_not_stop)?;
        when(!open.records.contains(&append) && !open.records.is_full() && !process.sent.is_full())?;
        process.sent.push(Frame { epoch: open.epoch, offset: open.records.count(), append });
        open.records.push(append);
        process.open = Some(open);
        Some(())
    }

    pub(super) fn settle(&mut self, session: u8) -> Option<()> {
        let process = self.process(session);
        when(!process.down && process.stored < process.sent.count())?;
        if process.sealed {
            (process.down, process.open) = (true, None);
            return Some(());
        }
        let frame = process.sent[usize::from(process.stored)];
        process.stored += 1;
        if process.open.is_some_and(|open| open.epoch == frame.epoch) {
            self.acknowledge(session, frame);
        }
        Some(())
    }

    /// Everything of the stream that is known stored.
    pub(super) fn commit(&mut self, session: u8) -> Option<()> {
        let process = self.process(session);
        let open = process.open.filter(|_| !process.down)?;
        let mut records = open.records;
        records.truncate(open.records.count() - process.in_flight(open.epoch));
        self.log.commit(session, open.epoch, records)?;
        self.compare();
        Some(())
    }

    pub(super) fn stop(&mut self, session: u8) -> Option<()> {
        let open = self.process(session).open.as_mut().filter(|open| !open.stopped)?;
        open.stopped = true;
        Some(())
    }

    pub(super) fn propose(&mut self, session: u8, faults: &Faults) -> Option<()> {
        let (committed, pending) = (self.log.committed.count(), self.log.pending);
        let process = self.process(session);
        let in_flight = process.open.map_or(0, |open| process.in_flight(open.epoch));
        when(process.proposed.is_none())?;
        let open = process.open.as_mut().filter(|open| open.stopped)?;
        let tail = open.records.count();
        when((in_flight == 0 && committed == tail) || faults.release_tail_not_checked)?;
        let meant_for = pending.map(|(_, target)| target);
        open.waits = true;
        process.proposed = Some(Release { epoch: open.epoch, tail, meant_for });
        Some(())
    }

    pub(super) fn apply(&mut self, session: u8, faults: &Faults) -> Option<()> {
        let release = self.process(session).proposed.take()?;
        let due = self.log.pending.map(|(_, target)| target);
        let released = self.log.release(session, release, faults);
        if let Some(to) = released {
            self.broken.misled |= to != due.map_or(Ownership::Released, Ownership::Placed);
        }
        let process = self.process(session);
        if let Some(open) = &mut process.open
            && open.waits
        {
            open.waits = false;
            // Refused: it keeps the stream, if it has it at all.
            if released.is_some() {
                process.open = None;
            }
        }
        Some(())
    }

    pub(super) fn resume(&mut self, session: u8, faults: &Faults) -> Option<()> {
        when(!faults.never_resumes && self.log.pending.is_none_or(|(source, _)| source != session))?;
        let process = self.process(session);
        when(process.proposed.is_none() || faults.resume_with_release_in_flight)?;
        let open = process.open.as_mut().filter(|open| open.stopped)?;
        (open.stopped, open.waits) = (false, false);
        Some(())
    }

    // ---- what was told

    fn acknowledge(&mut self, session: u8, frame: Frame) {
        let acker = &mut self.acker[usize::from(frame.epoch)];
        self.broken.two_ackers |= acker.is_some_and(|other| other != session);
        *acker = Some(session);
        let offset = usize::from(frame.offset);
        let elsewhere = |(at, told): (usize, &Option<u8>)| at != offset && *told == Some(frame.append);
        self.broken.doubled |= self.acked.iter().enumerate().any(elsewhere);
        let stands = self.log.committed.get(offset).copied().or(self.acked[offset]);
        self.broken.lost |= stands.is_some_and(|other| other != frame.append);
        self.acked[offset] = Some(frame.append);
    }

    /// What is committed is what was acknowledged there.
    fn compare(&mut self) {
        for (told, stands) in self.acked.iter().zip(self.log.committed.iter()) {
            self.broken.lost |= told.is_some_and(|told| told != *stands);
        }
    }

    /// All that was acknowledged is committed, or in the WAL of the session that has the stream open.
    pub(super) fn kept(&self) -> bool {
        (0..).zip(self.acked).all(|(offset, told)| {
            let Some(append) = told else { return true };
            if self.log.committed.get(usize::from(offset)) == Some(&append) {
                return true;
            }
            let Ownership::Open(owner) = self.log.ownership else { return false };
            let process = &self.processes[usize::from(owner)];
            let frame = Frame { epoch: self.log.epoch, offset, append };
            self.log.life(owner) != Life::Gone && process.sent[..usize::from(process.stored)].contains(&frame)
        })
    }

    pub(super) fn no_append_twice(&self) -> bool {
        let records = &self.log.committed;
        (1..records.len()).all(|i| !records[..i].contains(&records[i]))
    }

    // ---- situations

    pub(super) fn at_target(&self) -> bool {
        self.begins > 0
            && self.ends == 0
            && self.log.epoch == 2
            && matches!(self.log.ownership, Ownership::Open(_))
    }

    pub(super) fn released_late(&self) -> bool {
        let late = |p: &Process| p.proposed.is_some_and(|r| r.meant_for.is_some());
        self.log.pending.is_none() && self.processes.iter().any(late)
    }

    pub(super) fn resumed(&self) -> bool {
        self.begins > 0 && self.log.epoch == 1 && self.acked[1].is_some() && self.log.pending.is_none()
    }

    pub(super) fn both_ended(&self) -> bool {
        self.begins > 0 && self.ends == 2 && self.log.epoch > 1
    }
}

impl Process {
    /// How many frames of an epoch are not known stored.
    fn in_flight(&self, epoch: u8) -> u8 {
        self.sent[usize::from(self.stored)..].iter().filter(|f| f.epoch == epoch).count() as u8
    }
}
