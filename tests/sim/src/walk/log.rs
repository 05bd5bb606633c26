//! The log: commands one after the other, some twice, some long after they were proposed.

use std::sync::Arc;

use weir::metadata::apply;
use weir::metadata::command::{Batch, Command, Envelope, Outcome, RequestId};
use weir::metadata::state::State;
use weir_api::ClusterUid;

use super::Walk;
use crate::trace::What;

/// What was committed.
#[derive(Default)]
pub(super) struct Ledger {
    /// The state after all of it. A view is an older copy.
    pub(super) head: State,
    pub(super) index: u64,
    /// On their way, their proposers dead.
    late: Vec<Envelope>,
}

impl Walk {
    pub(super) fn found(&mut self) {
        let found = Command::Found { uid: ClusterUid(1), identity: None, size: 3 };
        drop(self.commit(Envelope { request: None, command: found }));
    }

    /// One more entry.
    pub(super) fn commit(&mut self, envelope: Envelope) -> Outcome {
        let batch = Batch { time_ms: self.wall_ms, commands: vec![envelope] };
        let outcomes = apply::apply(&mut self.log.head, &batch);
        self.log.index += 1;
        let (host, index) = (self.trace.host("log"), self.log.index);
        let outcome = outcomes[0].clone();
        self.event(What::Applied { host, index, batch: Some(Arc::new(batch)), outcomes, hash: None });
        outcome
    }

    /// A process proposes, and its view holds the outcome. `None`: it died meanwhile, and the command may yet come.
    pub(super) fn propose(&mut self, process: usize, command: Command) -> Option<Outcome> {
        let p = &mut self.processes[process];
        p.requests += 1;
        let (session, number) = (p.session.clone(), p.requests);
        let lowest_unanswered = number.saturating_sub(2).max(1);
        let request = Some(RequestId { session, number, lowest_unanswered });
        let envelope = Envelope { request, command };
        if !self.calm && self.rng.one_in(60) {
            self.log.late.push(envelope);
            self.processes[process].die();
            return None;
        }
        let mut outcome = self.commit(envelope.clone());
        // The reply was lost, or the leader changed: the same again.
        if self.rng.one_in(8) {
            outcome = self.commit(envelope);
        }
        self.processes[process].view = self.log.head.clone();
        Some(outcome)
    }

    /// A view comes up to date, or something that was on its way arrives.
    pub(super) fn look(&mut self) {
        if let Some(process) = self.some_process() {
            self.processes[process].view = self.log.head.clone();
        }
        if !self.log.late.is_empty() && self.rng.one_in(2) {
            let which = self.rng.index(self.log.late.len());
            let envelope = self.log.late.swap_remove(which);
            drop(self.commit(envelope));
        }
    }
}
