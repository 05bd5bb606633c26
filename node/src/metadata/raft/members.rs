//! The log's members as this node knows them, changes of them, and the way out of leadership.
//!
//! Invariant: what is told of other members is this process's own observation; changes go through the log. A node that
//! hands over takes nothing into the log any more, so that its successor misses nothing. Used by `tend` and `handover`
//! of `metadata`, and for what `/admin` shows.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use openraft::{ChangeMembers, ServerState};
use tokio::time::Instant;
use weir_api::{NodeId, RaftId};

use super::membership::{self, Change};
use super::{BTreeMap, Log};

/// A member this many entries behind is caught up.
const LAG: u64 = 128;

/// A member of the log, as this node knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its number.
    pub raft_id: RaftId,
    /// Whose directory it is.
    pub node: Option<NodeId>,
    /// Where it is, as the membership says.
    pub address: String,
    /// It votes.
    pub voter: bool,
    /// It leads, as far as this node knows.
    pub leader: bool,
    /// Up to where it has the log; known to the leader alone, and of the node that is asked.
    pub matched: Option<u64>,
    /// It has (almost) all of the log; as `matched`.
    pub caught_up: bool,
    /// When this process heard it last; `None` if never, or if it is this node.
    pub heard: Option<Instant>,
}

impl Log {
    /// This node's raft id.
    pub(in crate::metadata) fn me(&self) -> u64 {
        self.me
    }

    /// All members of the newest membership that this node has.
    pub(in crate::metadata) fn members(&self) -> Vec<MemberStatus> {
        let metrics = self.raft.metrics().borrow().clone();
        let members = metrics.membership_config.membership().clone();
        let voters: BTreeSet<u64> = members.voter_ids().collect();
        let last = metrics.last_log_index.unwrap_or_default();
        let status = |(id, entry): (&u64, &openraft::BasicNode)| {
            let replicated = metrics.replication.as_ref().and_then(|all| all.get(id)).copied().flatten();
            let matched = match *id == self.me {
                true => Some(last),
                false => replicated.map(|id| id.index),
            };
            MemberStatus {
                raft_id: RaftId(*id),
                node: membership::node(entry),
                address: membership::address(entry).to_owned(),
                voter: voters.contains(id),
                leader: metrics.current_leader == Some(*id),
                matched,
                caught_up: matched.is_some_and(|m| m + LAG >= last),
                heard: self.book.last_heard(*id).filter(|_| *id != self.me),
            }
        };
        members.nodes().map(status).collect()
    }

    /// The goal of a change of voters that was begun and is not finished.
    pub(in crate::metadata) fn unfinished(&self) -> Option<BTreeSet<u64>> {
        let server = self.raft.server_metrics();
        let server = server.borrow();
        match server.membership_config.membership().get_joint_config().as_slice() {
            [_, .., last] => Some(last.clone()),
            _ => None,
        }
    }

    /// Where to call a member, whether or not the membership has it right.
    pub(in crate::metadata) fn address_of(&self, id: u64) -> Option<String> {
        let server = self.raft.server_metrics();
        let recorded = server.borrow().membership_config.membership().get_node(&id).cloned();
        recorded.map(|entry| self.book.address(id, membership::address(&entry)))
    }

    /// A member said where it is; it is alive.
    pub(in crate::metadata) fn announced(&self, id: u64, address: &str) {
        self.book.announced(id, address);
        self.book.heard(id);
    }

    /// When this process heard a member last.
    pub(in crate::metadata) fn last_heard(&self, id: u64) -> Option<Instant> {
        self.book.last_heard(id)
    }

    /// Makes one change, all the way. Ends with an error if this node does not lead, or no longer.
    pub(in crate::metadata) async fn change(&self, change: Change) -> Result<(), String> {
        let changes = match change {
            Change::Voters(voters) => ChangeMembers::ReplaceAllVoters(voters),
            Change::Entry(id, node, address) => {
                let entry = membership::entry(node.as_ref(), &address);
                ChangeMembers::SetNodes(BTreeMap::from([(id, entry)]))
            }
            Change::Remove(ids) => ChangeMembers::RemoveNodes(ids),
        };
        self.raft.change_membership(changes, true).await.map(drop).map_err(|e| e.to_string())
    }

    /// Nothing may enter the log at this node: it is about to give its leadership away.
    pub(in crate::metadata) fn is_yielding(&self) -> bool {
        self.yielding.load(Ordering::SeqCst)
    }

    /// From now on this node takes nothing into the log and says nothing as a leader; or it does again.
    pub(in crate::metadata) fn set_yielding(&self, yielding: bool) {
        self.yielding.store(yielding, Ordering::SeqCst);
        self.raft.runtime_config().heartbeat(!yielding);
    }

    /// Another voter that was heard and has the whole log, and where it is.
    pub(in crate::metadata) fn successors(&self) -> Vec<(u64, String)> {
        let last = self.raft.data_metrics().borrow().last_log.map_or(0, |id| id.index);
        let fit = |m: &MemberStatus| m.voter && m.raft_id.0 != self.me && m.matched == Some(last);
        let mut fit: Vec<_> = self.members().into_iter().filter(fit).collect();
        fit.sort_by_key(|m| std::cmp::Reverse(m.heard));
        fit.into_iter().map(|m| (m.raft_id.0, self.book.address(m.raft_id.0, &m.address))).collect()
    }

    /// This node may not lead for lack of others, or is the only voter there is.
    pub(in crate::metadata) fn is_sole_voter(&self) -> bool {
        let server = self.raft.server_metrics();
        let server = server.borrow();
        membership::is_sole_voter(server.membership_config.membership(), self.me)
    }

    /// Whether this node may ask for votes when it hears no leader.
    pub(in crate::metadata) fn allow_elections(&self, allowed: bool) {
        self.raft.runtime_config().elect(allowed);
    }

    /// Asks the others for their votes, unless this node leads or does not vote.
    pub(in crate::metadata) async fn elect(&self) -> Result<(), String> {
        let leads = self.raft.server_metrics().borrow().state == ServerState::Leader;
        match leads {
            true => Ok(()),
            false => self.raft.trigger().elect().await.map_err(|e| e.to_string()),
        }
    }
}
