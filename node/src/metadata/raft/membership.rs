//! Who votes: pure rules over the membership.
//!
//! A log of one needs to know that it is one; the leader's care for more voters comes with the cluster. Called by
//! `raft` (start).

use openraft::{BasicNode, Membership};

/// How many voters there should be: the largest odd number above neither `voters` (as configured) nor the number of
/// registered nodes; none without either.
#[allow(dead_code, reason = "the leader tends the voters once there can be more than one")]
pub(super) fn voter_target(voters: usize, registered: usize) -> usize {
    match voters.min(registered) {
        0 => 0,
        n => n - (n + 1) % 2,
    }
}

/// `me` is the only voter, so that it may lead without asking anyone.
pub(super) fn is_sole_voter(members: &Membership<u64, BasicNode>, me: u64) -> bool {
    let mut voters = members.voter_ids();
    voters.next() == Some(me) && voters.next().is_none()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_voter_target_is_odd_and_never_above_either_number() {
        let cases = [
            (3, 0, 0),
            (0, 5, 0),
            (3, 1, 1),
            (3, 2, 1),
            (3, 3, 3),
            (3, 4, 3),
            (5, 4, 3),
            (4, 9, 3),
            (5, 5, 5),
            (1, 9, 1),
        ];
        for (voters, registered, target) in cases {
            assert_eq!(voter_target(voters, registered), target, "min({voters}, {registered})");
        }
    }

    #[test]
    fn only_a_single_voter_that_is_me_is_sole() {
        let members = |ids: &[u64]| Membership::new(vec![BTreeSet::from_iter(ids.iter().copied())], ());
        assert!(is_sole_voter(&members(&[1]), 1));
        assert!(!is_sole_voter(&members(&[1]), 2));
        assert!(!is_sole_voter(&members(&[1, 2]), 1));
        assert!(!is_sole_voter(&members(&[]), 1));
    }
}
