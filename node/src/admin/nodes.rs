//! Nodes and the cluster: state to answers, and the body that sets a node's weight to a command.
//!
//! Invariant: pure. Used by `super`.

use weir_api::admin::{
    AnsweredBy, ClusterStatus, LogStatus, NodeList, NodeStatus, RecoveryStatus, ResourceVersion, SetNode,
    StoppedOn,
};
use weir_api::{NodeId, SessionId};

use super::Seen;
use super::problem::Error;
use crate::metadata::command::{Command, Refusal};
use crate::metadata::state::{Node, Session, State};
use crate::storage::skips::Stop;

/// Recoveries listed at most.
const RECOVERIES_MAX: usize = 100;

pub(super) fn cluster(
    seen: &Seen,
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
        answered_by: AnsweredBy { node: me.clone(), version: env!("CARGO_PKG_VERSION").to_owned() },
        log: LogStatus {
            leader: *leader,
            leader_node: registered().find(|(_, n)| leads(n)).map(|(id, _)| id.clone()),
            term: *term,
            applied_index: *applied,
            time_ms: state.time_ms,
            state_hash: None,
        },
        nodes: counted(registered().count()),
        nodes_alive: counted(registered().filter(|(_, n)| live_session(state, n).is_some()).count()),
        streams: counted(state.streams.len()),
        awaiting_recovery: counted(ended().count()),
        recoveries: ended().take(RECOVERIES_MAX).collect(),
    })
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

pub(super) fn list(state: &State) -> NodeList {
    NodeList { nodes: state.nodes.keys().filter_map(|id| one(state, id)).collect() }
}

/// One node, unless it is unknown or removed.
pub(super) fn one(state: &State, id: &NodeId) -> Option<NodeStatus> {
    let node = state.nodes.get(id).filter(|n| !n.removed)?;
    let live = live_session(state, node);
    Some(NodeStatus {
        id: id.clone(),
        epoch: node.epoch,
        incarnation: node.incarnation.clone(),
        raft_id: node.raft_id,
        alive: live.is_some(),
        draining: node.draining,
        slots: node.slots,
        slots_set_by: node
            .slots_by
            .as_ref()
            .map(|(uid, generation)| ResourceVersion { uid: uid.clone(), generation: *generation }),
        assigned_streams: live.map_or(0, |s| s.assigned),
        open_streams: live.map_or(0, |s| s.open),
        pinned_to: node.pinned.clone(),
        http_url: node.http_url.clone(),
        peer_address: node.peer_address.clone(),
        format_min: node.formats.0,
        format_max: node.formats.1,
    })
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

/// What a refusal of that command means to the caller.
#[allow(clippy::wildcard_enum_match_arm, reason = "SetSlots meets these; another is shown as it is")]
pub(super) fn refused(node: &NodeId, refusal: Refusal) -> Error {
    match refusal {
        Refusal::NoSuchNode => Error::NoSuchNode(node.to_string()),
        Refusal::OlderGeneration { known } => Error::OlderGeneration { known },
        Refusal::SessionNotCurrent => Error::Unavailable("this node's session has ended; ask another".into()),
        other => Error::Refused(other.to_string()),
    }
}

fn counted(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
