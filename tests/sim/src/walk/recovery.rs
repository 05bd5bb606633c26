//! Recoveries, in steps between which a claim may pass on and a claimant may die.

use std::collections::BTreeMap;

use weir::metadata::command::{Answer, Command, CommitOrigin};
use weir::metadata::state::Ownership;
use weir::mutant::{self, Mutant};
use weir_api::SessionId;

use super::{Frame, Slot, Walk};
use crate::trace::{StoreEffect, StoreOp, What};

/// One claim that a process works on.
#[derive(Debug, Clone)]
pub(super) struct Recovering {
    process: usize,
    ended: SessionId,
    claim: u64,
    /// Everything below is committed.
    from: u64,
    /// Once the seal is put: where it is, and the objects before it from `from` on.
    sealed: Option<(u64, Vec<Vec<Frame>>)>,
}

impl Walk {
    fn ended(&mut self) -> Option<(SessionId, u64)> {
        let ended: Vec<_> = self.log.head.sessions.values().filter(|s| s.ended.is_some()).collect();
        let pick = (!ended.is_empty()).then(|| ended[self.rng.index(ended.len())])?;
        Some((pick.id.clone(), pick.claim.as_ref().map_or(0, |c| c.number)))
    }

    /// The leader hands a recovery out, or passes it on.
    pub(super) fn claim(&mut self) {
        let (Some(by), Some((ended, replaces)), Some(claimant)) =
            (self.some_process(), self.ended(), self.some_process())
        else {
            return;
        };
        if replaces > 0 && !self.calm && !self.rng.one_in(2) {
            return;
        }
        self.claim_for(by, ended, replaces, claimant);
    }

    fn claim_for(&mut self, by: usize, ended: SessionId, replaces: u64, claimant: usize) {
        let to = self.processes[claimant].session.clone();
        let command = Command::Claim { ended: ended.clone(), claimant: to, replaces };
        if let Some(Ok(Answer::Claimed { number, wal_start })) = self.propose(by, command) {
            let (process, claim, from) = (claimant, number, wal_start.max(1));
            self.recovering.push(Recovering { process, ended, claim, from, sealed: None });
        }
    }

    /// One step of one recovery.
    pub(super) fn recover(&mut self) {
        self.recovering.retain(|r| self.processes[r.process].up);
        if !self.recovering.is_empty() {
            let which = self.rng.index(self.recovering.len());
            self.recover_one(which);
        }
    }

    pub(super) fn recover_all(&mut self) {
        for _ in 0..10 {
            self.recovering.clear();
            let (Some(by), Some((ended, replaces))) = (self.some_process(), self.ended()) else { return };
            self.claim_for(by, ended, replaces, by);
            while !self.recovering.is_empty() {
                self.recover_one(0);
            }
        }
    }

    fn recover_one(&mut self, which: usize) {
        let Recovering { process, ended, claim, from, sealed } = self.recovering[which].clone();
        let Some((end, objects)) = sealed else {
            // It works on what its view says is its own.
            self.processes[process].view = self.log.head.clone();
            let sealed = self.seal(process, &ended, from);
            self.recovering[which].sealed = Some(sealed);
            return;
        };
        if from == end {
            let recovered = self.propose(process, Command::Recovered { ended: ended.clone(), claim });
            if matches!(recovered, Some(Ok(_))) {
                self.trim(process, &ended, end);
            }
            self.recovering.swap_remove(which);
            return;
        }
        // A segment's worth.
        let next = from + self.rng.between(1, end - from);
        let taken = (next - from) as usize;
        let (view, head) = (&self.processes[process].view, &self.log.head);
        // By a view that is as old as it may be.
        let view = if self.calm { head } else { view };
        let open_there = |f: &&Frame| {
            let (Some((no, _)), Some(s)) = (view.session_by_id(&ended), view.stream(f.stream)) else {
                return false;
            };
            let now = s.epoch == f.epoch || mutant::on(Mutant::RecoveryIgnoresStreamEpoch);
            s.ownership == Ownership::Open(no) && now && f.end() > s.committed
        };
        let counts: Vec<Frame> = objects[..taken].iter().flatten().filter(open_there).cloned().collect();
        // As a node's: no segment holds two epochs of a stream, and a recovery that would need one gets no further.
        if counts.iter().any(|f| counts.iter().any(|g| f.stream == g.stream && f.epoch != g.epoch)) {
            drop(self.recovering.swap_remove(which));
            return;
        }
        let origin = CommitOrigin::Recovery { ended: ended.clone(), claim };
        match self.commit_frames(process, origin, counts, next) {
            Some(Ok(_)) => {
                let left = objects[taken..].to_vec();
                (self.recovering[which].from, self.recovering[which].sealed) = (next, Some((end, left)));
                if self.rng.one_in(2) {
                    self.trim(process, &ended, next);
                }
            }
            _ => drop(self.recovering.swap_remove(which)),
        }
    }

    /// Reads from the start to the first absent number, and puts the seal there. What was covered and deleted is absent.
    fn seal(&mut self, process: usize, ended: &SessionId, from: u64) -> (u64, Vec<Vec<Frame>>) {
        let wal: &mut BTreeMap<u64, Slot> = self.bucket.wal.entry(ended.clone()).or_default();
        let (mut at, mut objects) = (from, Vec::new());
        let fresh = loop {
            match wal.get(&at) {
                Some(Slot::Object(object)) => objects.push(object.clone()),
                Some(Slot::Seal) => break false,
                Some(Slot::Trimmed) | None => break true,
            }
            at += 1;
        };
        if fresh {
            wal.insert(at, Slot::Seal);
            self.stored(process, ended, at, StoreEffect::Done, true);
        }
        (at, objects)
    }

    fn trim(&mut self, process: usize, ended: &SessionId, below: u64) {
        let host = self.host(process);
        let wal = self.bucket.wal.entry(ended.clone()).or_default();
        let objects = wal.range_mut(..below).filter(|(_, slot)| matches!(slot, Slot::Object(_)));
        let mut gone = Vec::new();
        for (seq, slot) in objects {
            *slot = Slot::Trimmed;
            gone.push(*seq);
        }
        for seq in gone {
            let (op, effect) = (StoreOp::Delete, StoreEffect::Done);
            let key = weir::storage::keys::wal(0, ended, seq);
            self.event(What::Store { host, op, key, effect, bytes: 0, digest: 0, seal: false });
        }
    }
}
