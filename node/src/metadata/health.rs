//! How the log's members fare and what came of commands, for people and the operator.
//!
//! Invariant: hints; nothing decides by them. Whether a quorum is there only its leader can say. Read by `admin`.

use std::time::Duration;

use super::command::{Answer, Refusal};
use super::raft::MemberStatus;
use super::raft::membership::voter_target;
use super::{Metadata, ProposeError};
use crate::metrics::{FencedBy, LogMeters, Placement};

impl Metadata {
    /// How many voters there should be.
    pub fn voter_target(&self) -> u32 {
        let registered = self.read(|state| state.nodes.values().filter(|n| !n.removed).count());
        u32::try_from(voter_target(self.shared.voters, registered)).unwrap_or(u32::MAX)
    }

    /// Whether a majority of the voters was heard within an election time-out; `None` if this node does not lead.
    pub fn quorum_healthy(&self) -> Option<bool> {
        let leads = self.shared.leadership.borrow().me;
        leads.then(|| majority_heard(&self.members(), self.shared.election_timeout))
    }

    /// What this node's commands came to.
    pub fn meters(&self) -> &LogMeters {
        &self.shared.meters
    }

    /// Counts what a command came to.
    pub(super) fn count(&self, fences: Option<FencedBy>, answered: &Result<Answer, ProposeError>) {
        let meters = &self.shared.meters;
        if let (Some(by), Ok(_)) = (fences, answered) {
            meters.fences.at(by).inc();
        }
        let placed = match answered {
            Ok(Answer::Created { .. }) => Placement::Created,
            Ok(Answer::Opened { .. }) => Placement::Opened,
            Ok(Answer::Placed(_)) => Placement::Elsewhere,
            Err(ProposeError::Refused(Refusal::NoEligibleNode)) => Placement::NoNode,
            Ok(_) | Err(_) => return,
        };
        meters.placements.at(placed).inc();
    }
}

/// The leader hears itself; the others as `heard` says.
fn majority_heard(members: &[MemberStatus], within: Duration) -> bool {
    let voters = members.iter().filter(|m| m.voter);
    let heard = |m: &MemberStatus| m.leader || m.heard.is_some_and(|at| at.elapsed() < within);
    let there = voters.clone().filter(|m| heard(m)).count();
    there * 2 > voters.count()
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;
    use weir_api::RaftId;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_quorum_is_a_majority_of_voters_heard_in_time() {
        let within = Duration::from_secs(1);
        let long_ago = Instant::now();
        tokio::time::advance(within).await;
        let member = |id: u64, voter, heard| MemberStatus {
            raft_id: RaftId(id),
            node: None,
            address: String::new(),
            voter,
            leader: id == 1,
            matched: None,
            caught_up: false,
            heard,
        };
        let now = Some(Instant::now());
        for (others, healthy) in [
            (vec![], true),
            (vec![(true, now), (true, None)], true),
            (vec![(true, Some(long_ago)), (true, None)], false),
            (vec![(true, None), (true, None), (false, now), (false, now)], false),
            (vec![(true, now), (true, now), (true, None), (true, Some(long_ago))], true),
        ] {
            let others = others.iter().zip(2..).map(|((voter, heard), id)| member(id, *voter, *heard));
            let members: Vec<_> = std::iter::once(member(1, true, None)).chain(others).collect();
            assert_eq!(majority_heard(&members, within), healthy, "{members:?}");
        }
    }
}
