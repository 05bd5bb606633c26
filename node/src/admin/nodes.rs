//! Nodes and the cluster: state to answers, and the body that sets a node's weight to a command.
//!
//! Invariant: pure. Used by `super`.

use std::time::Duration;

use weir_api::admin::{
    AnsweredBy, ClusterStatus, LogStatus, NodeList, NodeStatus, RecoveryStatus, ResourceVersion, SetNode,
    StoppedOn, TransferStatus,
};
use weir_api::{NodeId, SessionId};

use super::problem::Error;
use super::{Local, Seen, moves};
use crate::metadata::command::{Command, Refusal};
use crate::metadata::state::{Node, Session, State};
use crate::storage::skips::Stop;

/// Recoveries and transfers listed at most, of each.
const LISTED_MAX: usize = 100;
/// Nodes named in an error at most.
const NAMED_MAX: usize = 20;

pub(super) fn cluster(
    seen: &Seen,
    local: &Local,
    me: &NodeId,
    stop_of: &dyn Fn(&SessionId) -> Option<Stop>,
) -> Result<ClusterStatus, Error> {
    let Seen { state, applied, leader, term } = seen;
    let founded = state.cluster.as_ref().ok_or(Error::NotFounded)?;
    let registered = || state.nodes.iter().filter(|(_, n)| !n.removed);
    let ended = || state.sessions.values().filter_map(|s| recovery(s, stop_of));
    let leads = |n: &Node| Some(n.raft_id) == *leader;
    Ok(ClusterStatus {
        uid: founded.uid,
        identity: founded.identity.clone(),
        configured_size: founded.size,
        format_version: founded.format,
        answered_by: AnsweredBy {
            node: me.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            lease_ms: millis(local.lease),
        },
        log: LogStatus {
            leader: *leader,
            leader_node: registered().find(|(_, n)| leads(n)).map(|(id, _)| id.clone()),
            term: *term,
            applied_index: *applied,
            last_index: local.last_index.max(*applied),
            time_ms: state.time_ms,
            state_hash: None,
        },
        nodes: counted(registered().count()),
        nodes_alive: counted(registered().filter(|(_, n)| live_session(state, n).is_some()).count()),
        streams: counted(state.streams.len()),
        open_streams: registered().filter_map(|(_, n)| live_session(state, n)).map(|s| s.open).sum(),
        voter_target: local.voter_target,
        quorum_healthy: local.quorum_healthy,
        unformed: local.unformed.clone(),
        pending_transfers: counted(state.transfers.len()),
        transfers: transfers(state),
        awaiting_recovery: counted(ended().count()),
        recoveries: ended().take(LISTED_MAX).collect(),
    })
}

fn transfers(state: &State) -> Vec<TransferStatus> {
    let pending = |id| moves::pending_of(state, id, state.stream(id)?);
    state.transfers.keys().filter_map(|id| pending(*id)).take(LISTED_MAX).collect()
}

fn recovery(s: &Session, stop_of: &dyn Fn(&SessionId) -> Option<Stop>) -> Option<RecoveryStatus> {
    let ended = s.ended.as_ref()?;
    Some(RecoveryStatus {
        node: s.id.node.clone(),
        epoch: s.id.epoch,
        ended_at_ms: ended.at_ms,
        open_streams: s.open,
        claimed_by: s.claim.as_ref().map(|c| c.claimant.node.clone()),
        stopped_on: stop_of(&s.id).map(|stop| StoppedOn { seq: stop.seq, why: stop.why }),
    })
}

pub(super) fn list(state: &State, local: &Local) -> NodeList {
    let spread = Spread::of(state);
    NodeList { nodes: state.nodes.keys().filter_map(|id| status(state, id, local, &spread)).collect() }
}

/// One node, unless it is unknown or removed.
pub(super) fn one(state: &State, id: &NodeId, local: &Local) -> Option<NodeStatus> {
    status(state, id, local, &Spread::of(state))
}

/// What all live nodes have, and between whom placement would spread it.
struct Spread {
    streams: u64,
    slots: u64,
}

impl Spread {
    fn of(state: &State) -> Self {
        let live = || state.nodes.values().filter_map(|n| Some((n, live_session(state, n)?)));
        Self {
            streams: live().map(|(_, session)| session.assigned).sum(),
            slots: live().filter(|(n, _)| !n.draining).map(|(n, _)| u64::from(n.slots)).sum(),
        }
    }

    /// Rounded.
    fn share(&self, slots: u64) -> u64 {
        let (streams, of) = (u128::from(self.streams) * u128::from(slots), u128::from(self.slots.max(1)));
        u64::try_from((streams + of / 2) / of).unwrap_or(u64::MAX)
    }
}

fn status(state: &State, id: &NodeId, local: &Local, spread: &Spread) -> Option<NodeStatus> {
    let node = state.nodes.get(id).filter(|n| !n.removed)?;
    let live = live_session(state, node);
    let takes = live.is_some() && !node.draining;
    Some(NodeStatus {
        id: id.clone(),
        epoch: node.epoch,
        incarnation: node.incarnation.clone(),
        raft_id: node.raft_id,
        alive: live.is_some(),
        draining: node.draining,
        draining_since_ms: node.draining_since_ms,
        drain_gave_up: node.drain_gave_up.clone(),
        slots: node.slots,
        slots_set_by: node
            .slots_by
            .as_ref()
            .map(|(uid, generation)| ResourceVersion { uid: uid.clone(), generation: *generation }),
        assigned_streams: live.map_or(0, |s| s.assigned),
        open_streams: live.map_or(0, |s| s.open),
        fair_share: if takes { spread.share(node.slots.into()) } else { 0 },
        log_lag: log_lag(local, node),
        silent_ms: live.and_then(|s| local.silent.get(&s.id)).map(|silent| millis(*silent)),
        pinned_to: node.pinned.clone(),
        http_url: node.http_url.clone(),
        peer_address: node.peer_address.clone(),
        format_min: node.formats.0,
        format_max: node.formats.1,
    })
}

/// Only the leader knows what the others have; of itself every node knows, which says nothing.
fn log_lag(local: &Local, node: &Node) -> Option<u64> {
    let leads = local.members.iter().any(|m| m.leader && local.quorum_healthy.is_some());
    let matched = local.members.iter().find(|m| m.raft_id == node.raft_id).filter(|_| leads)?.matched?;
    Some(local.last_index.saturating_sub(matched))
}

fn live_session<'a>(state: &'a State, node: &Node) -> Option<&'a Session> {
    state.sessions.get(&node.session?).filter(|s| s.ended.is_none())
}

/// The command that a body asks for.
pub(super) fn set_slots(node: NodeId, body: SetNode) -> Result<Command, Error> {
    let SetNode { slots, resource_uid, resource_generation } = body;
    let resource = match (resource_uid, resource_generation) {
        (None, None) => None,
        (Some(uid), Some(generation)) => Some((uid, generation)),
        (Some(_), None) => {
            return Err(Error::BadBody("resourceGeneration is missing beside resourceUid".into()));
        }
        (None, Some(_)) => {
            return Err(Error::BadBody("resourceUid is missing beside resourceGeneration".into()));
        }
    };
    if let Some((uid, _)) = &resource
        && (uid.is_empty() || uid.len() > 128 || uid.chars().any(char::is_control))
    {
        return Err(Error::BadBody("resourceUid: 1 to 128 printable characters are allowed".into()));
    }
    Ok(Command::SetSlots { node, slots, resource })
}

/// There is no such node; those that there are.
pub(super) fn unknown(state: &State, id: &NodeId) -> Error {
    if state.nodes.get(id).is_some_and(|n| n.removed) {
        return Error::NoSuchNode(format!("node {id} was removed"));
    }
    let mut known = state.nodes.iter().filter(|(_, n)| !n.removed).map(|(id, _)| id.to_string());
    let named: Vec<String> = known.by_ref().take(NAMED_MAX).collect();
    let more = if known.next().is_some() { ", …" } else { "" };
    Error::NoSuchNode(format!("no node {id} has registered; these have: {}{more}", named.join(", ")))
}

/// What a refusal of a command about a node means to the caller.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the commands sent here meet these; another is shown as it is"
)]
pub(super) fn refused(state: &State, id: &NodeId, refusal: Refusal) -> Error {
    match refusal {
        Refusal::NoSuchNode => unknown(state, id),
        Refusal::OlderGeneration { known } => Error::OlderGeneration { known },
        Refusal::FenceMismatch { registered } => Error::OtherEpoch(format!(
            "epoch: node {id} is registered at epoch {registered}: only that one can be fenced"
        )),
        Refusal::NodeAlive(session) => Error::NodeAlive(format!(
            "node {id} is alive, at epoch {}: stop its process (drain it before, and nobody waits), or fence it; then remove it",
            session.epoch
        )),
        Refusal::AwaitingRecovery(session) => Error::AwaitingRecovery(session.to_string()),
        Refusal::SessionNotCurrent => Error::Unavailable("this node's session has ended; ask another".into()),
        other => Error::Refused(other.to_string()),
    }
}

pub(super) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

fn counted(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
