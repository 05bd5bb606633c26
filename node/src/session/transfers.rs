//! Which transfers have taken too long, by the leader's own clock.
//!
//! Invariant: a transfer is called off only after this leader has seen it pending for the whole time, in one term; a new
//! leader begins to count anew. A wrong clock anywhere calls off nothing. Pure; asked by `duties`.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_api::StreamId;

use crate::metadata::command::Command;
use crate::metadata::state::{State, Transfer};

/// How long a transfer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a leader has seen pending, and since when.
#[derive(Debug, Default)]
pub(super) struct Pending {
    seen: BTreeMap<StreamId, (Transfer, Duration)>,
}

impl Pending {
    /// The aborts to propose now.
    pub(super) fn look(&mut self, now: Duration, state: &State) -> Vec<Command> {
        self.seen.retain(|id, (transfer, _)| state.transfer(*id) == Some(transfer));
        let mut late = Vec::new();
        for (id, transfer) in &state.transfers {
            let (_, since) = self.seen.entry(*id).or_insert((transfer.clone(), now));
            if now.saturating_sub(*since) >= PATIENCE
                && let Some(target) = state.session(transfer.target)
            {
                late.push(Command::AbortTransfer { stream: *id, to: target.id.clone() });
            }
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::apply::tests::world::{World, transfer};

    const NOW: Duration = Duration::from_secs(1_000);

    #[test]
    fn a_transfer_is_called_off_after_thirty_seconds_in_the_same_eyes() {
        let (mut w, [a, b]) = World::with(["a", "b"]);
        let (x, _) = w.opened(&a, "x");
        w.run(&a, transfer(x, &b)).unwrap();
        let mut pending = Pending::default();
        let at = |pending: &mut Pending, s, w: &World| pending.look(NOW + Duration::from_secs(s), &w.state);
        assert!(at(&mut pending, 0, &w).is_empty());
        assert!(at(&mut pending, 29, &w).is_empty());
        let abort = Command::AbortTransfer { stream: x, to: b.clone() };
        assert_eq!(at(&mut pending, 30, &w), std::slice::from_ref(&abort));
        assert!(at(&mut Pending::default(), 900, &w).is_empty(), "another leader looks first");
        // It is over, and begun again: that is another one.
        w.run(&a, abort).unwrap();
        w.later(1);
        w.run(&a, transfer(x, &b)).unwrap();
        assert!(at(&mut pending, 31, &w).is_empty());
    }
}
