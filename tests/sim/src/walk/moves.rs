//! What people ask of a cluster: weights, drains, transfers; and the sweep of what nobody needs.

use weir::metadata::command::{Answer, Command};
use weir::metadata::limits::SWEEP_GRACE_MS;
use weir_api::Slots;

use super::Walk;
use crate::trace::{StoreEffect, StoreOp, What};

impl Walk {
    pub(super) fn weigh(&mut self) {
        let Some(by) = self.some_process() else { return };
        let node = super::NODES[self.rng.index(super::NODES.len())].parse().expect("valid");
        let command = match self.rng.below(3) {
            0 => Command::SetDraining { node, draining: self.rng.one_in(2) },
            _ => {
                let slots = Slots::try_from(self.rng.below(4)).expect("few");
                Command::SetSlots { node, slots, resource: None }
            }
        };
        self.propose(by, command);
    }

    pub(super) fn move_streams(&mut self) {
        let Some(by) = self.some_process() else { return };
        let pending: Vec<_> =
            self.processes[by].view.transfers.iter().map(|(id, t)| (*id, t.target)).collect();
        if self.rng.one_in(2)
            && let Some((stream, target)) = pending.first()
            && let Some(to) = self.processes[by].view.session(*target).map(|s| s.id.clone())
        {
            self.propose(by, Command::AbortTransfer { stream: *stream, to });
            return;
        }
        let (Some(stream), Some(to)) = (self.some_stream(by), self.some_process()) else { return };
        let to = self.processes[to].session.clone();
        self.propose(by, Command::BeginTransfer { stream, to });
    }

    pub(super) fn sweep(&mut self) {
        let Some(by) = self.some_process() else { return };
        self.wall_ms += SWEEP_GRACE_MS;
        let head = &self.log.head;
        let dead: Vec<_> = head.dead_segments.iter().map(|(_, id)| *id).collect();
        let keys: Vec<_> = dead
            .iter()
            .filter_map(|id| head.segments.get(id).map(|s| (*id, (s.session.clone(), s.number))))
            .collect();
        let swept = match self.propose(by, Command::Sweep { segments: dead }) {
            Some(Ok(Answer::Swept(swept))) => swept,
            _ => return,
        };
        let host = self.host(by);
        for (_, (session, number)) in keys.into_iter().filter(|(id, _)| swept.contains(id)) {
            let key = weir::storage::keys::segment(0, &session, number);
            self.bucket.segments.remove(&(session, number));
            let (op, effect) = (StoreOp::Delete, StoreEffect::Done);
            self.event(What::Store { host, op, key, effect, bytes: 0, digest: 0, seal: false });
        }
    }
}
