//! Who takes part in the log and who votes: pure rules over what the leader sees.
//!
//! Invariants: one change at a time; none but finishing one begun without a healthy majority; a member leaves only when
//! its node has registered under another raft id or was removed (or it never registered and is silent); a silent voter
//! gives its vote to a caught-up learner, but stays; the only vote, of a node that drains, goes to one that does not
//! (the leader's own too: it is the only one that gives its vote away); absence alone never makes the voters fewer. A majority of the voters
//! that a change names was heard a moment ago. Called by `raft` (start) and by `super::tend` (the leader's care).
//!
//! A member's entry in the log reads `node/host:port`, so that every member knows whose directory a raft id is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::{BasicNode, Membership};
use weir_api::{NodeId, RaftId};

use crate::metadata::state::State;

/// Who was heard within this counts as there.
const FRESH: Duration = Duration::from_secs(5);

/// A member's entry.
pub(super) fn entry(node: Option<&NodeId>, address: &str) -> BasicNode {
    match node {
        Some(node) => BasicNode::new(format!("{node}/{address}")),
        None => BasicNode::new(address),
    }
}

/// Where a member is, as its entry says it.
pub(super) fn address(entry: &BasicNode) -> &str {
    entry.addr.split_once('/').map_or(entry.addr.as_str(), |(_, address)| address)
}

/// Whose a member is, as its entry says it.
pub(super) fn node(entry: &BasicNode) -> Option<NodeId> {
    entry.addr.split_once('/').and_then(|(node, _)| node.parse().ok())
}

/// How many voters there should be: the largest odd number above neither `voters` (as configured) nor the number of
/// registered nodes; none without either.
pub(in crate::metadata) fn voter_target(voters: usize, registered: usize) -> usize {
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

/// What the state knows of a raft id that says it is a node's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::metadata) enum Standing {
    /// Handed out, and its node has not registered under it (or a later one) yet.
    New,
    /// Its node has registered under it, at this peer address.
    Registered(String),
    /// Its node has registered under a later one, or was removed: it never takes part (again).
    Gone,
    /// Never handed out.
    Unknown,
}

/// See [`Standing`]. Once `Gone`, always `Gone`: raft ids only grow.
pub(in crate::metadata) fn standing(state: &State, id: RaftId, node: Option<&NodeId>) -> Standing {
    if id.0 >= state.next.raft_id || id.0 == 0 {
        return Standing::Unknown;
    }
    match node.and_then(|node| state.nodes.get(node)) {
        Some(node) if node.raft_id > id => Standing::Gone,
        Some(node) if node.raft_id == id && node.removed => Standing::Gone,
        Some(node) if node.raft_id == id => Standing::Registered(node.peer_address.clone()),
        Some(_) | None => Standing::New,
    }
}

/// A member as the leader sees it.
#[derive(Debug, Clone)]
pub(in crate::metadata) struct Member {
    pub(in crate::metadata) voter: bool,
    pub(in crate::metadata) node: Option<NodeId>,
    /// As the membership says it.
    pub(in crate::metadata) address: String,
    pub(in crate::metadata) standing: Standing,
    /// It has (almost) all of the log.
    pub(in crate::metadata) caught_up: bool,
    /// Its node gives its streams away: it is about to stop, or to leave.
    pub(in crate::metadata) draining: bool,
    /// For how long this leader, while it was awake, has heard nothing of it. Zero for the leader itself.
    pub(in crate::metadata) unheard: Duration,
}

/// What the leader sees.
#[derive(Debug, Clone)]
pub(in crate::metadata) struct Observed {
    /// The leader's own raft id.
    pub(in crate::metadata) me: u64,
    /// A change was begun and not finished: its goal.
    pub(in crate::metadata) unfinished: Option<BTreeSet<u64>>,
    pub(in crate::metadata) members: BTreeMap<u64, Member>,
    /// See [`voter_target`].
    pub(in crate::metadata) target: usize,
    /// Who asks to be a member: raft id, node, address.
    pub(in crate::metadata) asking: Vec<(u64, NodeId, String)>,
    /// Silence after which a voter gives its vote away.
    pub(in crate::metadata) patience: Duration,
}

/// One change of the membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::metadata) enum Change {
    /// These are the voters; who was one stays as a learner.
    Voters(BTreeSet<u64>),
    /// A new learner, or a member's new address.
    Entry(u64, Option<NodeId>, String),
    /// These learners are members no longer.
    Remove(BTreeSet<u64>),
}

impl Observed {
    fn voters(&self) -> BTreeSet<u64> {
        self.members.iter().filter(|(_, m)| m.voter).map(|(id, _)| *id).collect()
    }

    fn is_there(&self, id: u64) -> bool {
        id == self.me || self.members.get(&id).is_some_and(|m| m.unheard < FRESH)
    }

    fn majority_is_there(&self, voters: &BTreeSet<u64>) -> bool {
        voters.iter().filter(|id| self.is_there(**id)).count() * 2 > voters.len()
    }
}

/// The next change, if one is due.
pub(in crate::metadata) fn next(seen: &Observed) -> Option<Change> {
    if let Some(goal) = &seen.unfinished {
        return Some(Change::Voters(goal.clone()));
    }
    if !seen.majority_is_there(&seen.voters()) {
        return None;
    }
    admit(seen).or_else(|| moved(seen)).or_else(|| voters(seen)).or_else(|| leave(seen))
}

fn admit(seen: &Observed) -> Option<Change> {
    let new = seen.asking.iter().find(|(id, ..)| !seen.members.contains_key(id))?;
    let (id, node, address) = new.clone();
    Some(Change::Entry(id, Some(node), address))
}

fn moved(seen: &Observed) -> Option<Change> {
    seen.members.iter().find_map(|(id, member)| match &member.standing {
        Standing::Registered(address) if *address != member.address => {
            Some(Change::Entry(*id, member.node.clone(), address.clone()))
        }
        Standing::Registered(_) | Standing::New | Standing::Gone | Standing::Unknown => None,
    })
}

fn voters(seen: &Observed) -> Option<Change> {
    let now = seen.voters();
    let target = seen.target.max(1);
    let mut candidates = seen.members.iter().filter(|(id, m)| {
        !m.voter && m.caught_up && matches!(m.standing, Standing::Registered(_)) && seen.is_there(**id)
    });
    let next = if now.len() < target {
        let new: Vec<u64> = candidates.by_ref().map(|(id, _)| *id).take(target - now.len()).collect();
        match new.len() == target - now.len() {
            true => now.iter().copied().chain(new).collect(),
            // Not enough to grow; one of them may still stand in for a voter that is lost.
            false => replace(seen, &now, *new.first()?)?,
        }
    } else if now.len() > target {
        let mut leaving: Vec<u64> = now.iter().copied().filter(|id| *id != seen.me).collect();
        leaving.sort_by_key(|id| std::cmp::Reverse(reluctance(seen, *id)));
        let leaving: BTreeSet<u64> = leaving.into_iter().take(now.len() - target).collect();
        now.difference(&leaving).copied().collect()
    } else {
        let taker = candidates.clone().find(|(_, m)| !m.draining).map(|(id, _)| *id);
        match taker.filter(|_| only_vote_drains(seen, &now)) {
            Some(new) => BTreeSet::from([new]),
            None => replace(seen, &now, *candidates.next()?.0)?,
        }
    };
    (next != now && seen.majority_is_there(&next)).then_some(Change::Voters(next))
}

/// A node that drains is about to stop, or to leave, and the log would stop with its only vote.
fn only_vote_drains(seen: &Observed, now: &BTreeSet<u64>) -> bool {
    let drains = |id: &u64| seen.members.get(id).is_some_and(|m| m.draining);
    now.len() == 1 && now.iter().all(drains)
}

/// The voters with `new` instead of the one that is lost the most, if any is.
fn replace(seen: &Observed, now: &BTreeSet<u64>, new: u64) -> Option<BTreeSet<u64>> {
    let is_lost = |id: &&u64| {
        seen.members.get(*id).is_some_and(|m| m.standing == Standing::Gone || m.unheard >= seen.patience)
    };
    let lost = now.iter().filter(|id| **id != seen.me).filter(is_lost);
    let lost = *lost.max_by_key(|id| reluctance(seen, **id))?;
    Some(now.iter().copied().filter(|id| *id != lost).chain([new]).collect())
}

/// How little a voter is worth keeping.
fn reluctance(seen: &Observed, id: u64) -> (bool, bool, Duration, u64) {
    let member = seen.members.get(&id);
    let gone = member.is_none_or(|m| m.standing == Standing::Gone);
    let unheard = member.map_or(Duration::MAX, |m| m.unheard);
    (gone, unheard >= FRESH, if unheard >= FRESH { unheard } else { Duration::ZERO }, id)
}

fn leave(seen: &Observed) -> Option<Change> {
    let leaves = |m: &Member| match m.standing {
        Standing::Gone => true,
        Standing::New | Standing::Unknown => m.unheard >= seen.patience,
        Standing::Registered(_) => false,
    };
    let gone: BTreeSet<u64> = seen
        .members
        .iter()
        .filter(|(id, m)| **id != seen.me && !m.voter && leaves(m))
        .map(|(id, _)| *id)
        .collect();
    (!gone.is_empty()).then_some(Change::Remove(gone))
}

#[cfg(test)]
mod tests;
