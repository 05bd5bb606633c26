//! Process lives: registration, ends, fences, weights.
//!
//! Invariants (I6): a node's epoch only grows, also past its removal; a node has at most one live session. A session
//! that ends with open streams stays until it is recovered; one without is forgotten at once. Streams only placed at it
//! become void by its end, untouched.

use weir_api::{Incarnation, NodeEpoch, NodeId, SessionId, Slots};

use super::super::command::{Answer, FIRST_WAL_SEQ, FenceReason, Outcome, Refusal, Registration};
use super::super::limits;
use super::super::state::{CommitProgress, Node, Ownership, Session, SessionEnd, SessionNo, State};
use super::requests::Proposer;
use super::{at_most, founding, moves, ownership, segments};
use crate::mutant::{self, Mutant};

/// What a registration comes to.
enum Entry {
    /// It is the current one already.
    Again,
    /// It begins a session; the weight that holds from now on.
    New(Slots),
}

pub(super) fn register(state: &mut State, r: &Registration) -> Outcome {
    let format = founding::founded(state)?.format;
    let slots = match check_registration(state, r, format)? {
        Entry::Again => state.nodes.get(&r.session.node).map_or(r.slots, |n| n.slots),
        Entry::New(slots) => {
            begin(state, r, slots);
            slots
        }
    };
    Ok(Answer::Registered { slots, format })
}

fn check_registration(state: &State, r: &Registration, format: u32) -> Result<Entry, Refusal> {
    let known = state.nodes.get(&r.session.node);
    if let Some(node) = known {
        // First: to a process of it that is still there it is the better news.
        if node.removed && node.incarnation == r.incarnation {
            return Err(Refusal::Removed);
        }
        if let Some(again) = check_process(node, r)? {
            return Ok(again);
        }
        check_incarnation(node, r)?;
    }
    if !(r.formats.0..=r.formats.1).contains(&format) {
        return Err(Refusal::FormatUnreadable { cluster: format });
    }
    let slots = match known {
        Some(node) if r.session.epoch <= node.epoch => {
            if r.session.epoch < node.epoch || !mutant::on(Mutant::EqualEpochAccepted) {
                return Err(Refusal::EpochTooLow { recorded: node.epoch });
            }
            node.slots
        }
        Some(node) if !node.removed => node.slots,
        Some(_) | None => r.slots,
    };
    at_most("nodes", state.nodes.len() + usize::from(known.is_none()), limits::NODES)?;
    at_most("bytes of client URL", r.http_url.len(), limits::TEXT_BYTES)?;
    at_most("bytes of peer address", r.peer_address.len(), limits::TEXT_BYTES)?;
    Ok(Entry::New(slots))
}

/// A process is known by its nonce: the one registered last is told so again while its session lives; one that was
/// registered before and is not current any more was superseded, fenced or has ended, and must never serve again.
fn check_process(node: &Node, r: &Registration) -> Result<Option<Entry>, Refusal> {
    if node.nonce == r.nonce && node.epoch == r.session.epoch && node.session.is_some() {
        return Ok(Some(Entry::Again));
    }
    let known = node.nonce == r.nonce || node.earlier.contains(&r.nonce);
    if known && !mutant::on(Mutant::RemintAfterSuperseded) {
        return Err(Refusal::Superseded { by: node.epoch });
    }
    Ok(None)
}

fn check_incarnation(node: &Node, r: &Registration) -> Result<(), Refusal> {
    match &node.pinned {
        Some(to) if *to != r.incarnation => Err(Refusal::Pinned { to: to.clone() }),
        Some(_) | None => Ok(()),
    }
}

fn begin(state: &mut State, r: &Registration, slots: Slots) {
    let before = state.nodes.get(&r.session.node).cloned();
    if let Some(no) = before.as_ref().and_then(|n| n.session) {
        end(state, no, false);
    }
    lift_leases(state, r);
    let no = SessionNo(state.next.session);
    state.next.session += 1;
    state.session_numbers.insert(r.session.clone(), no);
    state.sessions.insert(no, new_session(r));
    state.nodes.insert(r.session.node.clone(), new_node(r, slots, no, before));
}

fn new_session(r: &Registration) -> Session {
    Session {
        id: r.session.clone(),
        assigned: 0,
        open: 0,
        wal_start: FIRST_WAL_SEQ,
        boot_id: r.boot_id,
        raft_id: r.raft_id,
        ended: None,
        claim: None,
        commits: CommitProgress::default(),
        answers: Default::default(),
        lowest_unanswered: 1,
    }
}

fn new_node(r: &Registration, slots: Slots, no: SessionNo, before: Option<Node>) -> Node {
    let (mut earlier, slots_by, pinned, draining_since_ms) = match before {
        Some(mut n) => {
            n.earlier.push(n.nonce);
            (n.earlier, n.slots_by, n.pinned, n.draining_since_ms)
        }
        None => (Vec::new(), None, None, None),
    };
    earlier.drain(..earlier.len().saturating_sub(limits::EARLIER_NONCES));
    Node {
        epoch: r.session.epoch,
        nonce: r.nonce,
        incarnation: r.incarnation.clone(),
        raft_id: r.raft_id,
        boot_id: r.boot_id,
        http_url: r.http_url.clone(),
        peer_address: r.peer_address.clone(),
        slots,
        slots_by,
        formats: r.formats,
        pinned,
        draining: draining_since_ms.is_some(),
        session: Some(no),
        earlier,
        removed: false,
        draining_since_ms,
        drain_gave_up: None,
    }
}

/// The same data directory under the same kernel: its lock proves that every process that held it before is gone, so
/// no recovery of their sessions has to wait for a lease.
fn lift_leases(state: &mut State, r: &Registration) {
    if r.boot_id.is_none() {
        return;
    }
    let node = &r.session.node;
    let first = SessionId { node: node.clone(), epoch: NodeEpoch(0) };
    let of_node: Vec<SessionNo> = state
        .session_numbers
        .range(first..)
        .take_while(|(id, _)| id.node == *node)
        .map(|(_, no)| *no)
        .collect();
    for no in of_node {
        let session = state.sessions.get_mut(&no).expect("session numbers lead to sessions");
        if session.raft_id == r.raft_id
            && session.boot_id == r.boot_id
            && let Some(ended) = &mut session.ended
        {
            ended.lease_over = true;
        }
    }
}

/// The session's own last command.
pub(super) fn end_own(state: &mut State, by: Proposer<'_>) -> Outcome {
    let mut clean = end(state, by.no, false);
    if !clean && mutant::on(Mutant::CleanEndWithOpenStreams) {
        clean = state.sessions.remove(&by.no).is_some();
        state.session_numbers.remove(by.id);
    }
    Ok(Answer::SessionEnded { clean })
}

/// Ends a live session. Answers whether nothing of it is left to recover.
fn end(state: &mut State, no: SessionNo, lease_over: bool) -> bool {
    segments::abandon(state, no);
    moves::side_ended(state, no);
    let at_ms = state.time_ms;
    let session = state.sessions.get_mut(&no).expect("the caller looked it up");
    let clean = session.open == 0;
    let id = session.id.clone();
    if clean {
        state.sessions.remove(&no);
        state.session_numbers.remove(&id);
    } else {
        session.ended = Some(SessionEnd { at_ms, lease_over });
        session.assigned = session.open;
        session.answers.clear();
    }
    if let Some(node) = state.nodes.get_mut(&id.node)
        && node.session == Some(no)
    {
        node.session = None;
    }
    clean
}

pub(super) fn fence(
    state: &mut State,
    id: &NodeId,
    epoch: NodeEpoch,
    incarnation: Option<&Incarnation>,
    reason: FenceReason,
) -> Outcome {
    let node = member(state, id)?;
    let is_named = incarnation == Some(&node.incarnation);
    if node.epoch != epoch && !is_named {
        return Err(Refusal::FenceMismatch { registered: node.epoch });
    }
    let ends = node.session.filter(|_| node.epoch == epoch && !is_named);
    if let Some(no) = ends {
        end(state, no, reason == FenceReason::Silence);
    }
    if let Some(to) = incarnation.filter(|_| !mutant::on(Mutant::FenceWithoutPin)) {
        state.nodes.get_mut(id).expect("checked above").pinned = Some(to.clone());
    }
    Ok(Answer::Done)
}

pub(super) fn set_slots(
    state: &mut State,
    id: &NodeId,
    slots: Slots,
    resource: Option<&(String, u64)>,
) -> Outcome {
    let node = member(state, id)?;
    if let (Some((uid, generation)), Some((by, known))) = (resource, &node.slots_by)
        && uid == by
        && generation < known
    {
        return Err(Refusal::OlderGeneration { known: *known });
    }
    at_most("bytes of resource uid", resource.map_or(0, |(uid, _)| uid.len()), limits::TEXT_BYTES)?;
    if let Some(no) = node.session.filter(|_| mutant::on(Mutant::SlotsMoveStreams)) {
        let placed = state.streams.iter().filter(|(_, s)| s.ownership == Ownership::Placed(no));
        let placed: Vec<_> = placed.map(|(id, _)| *id).collect();
        placed.into_iter().for_each(|id| ownership::set(state, id, Ownership::Released));
    }
    let node = state.nodes.get_mut(id).expect("checked above");
    node.slots = slots;
    if let Some(by) = resource {
        node.slots_by = Some(by.clone());
    }
    Ok(Answer::Done)
}

pub(super) fn member<'a>(state: &'a State, id: &NodeId) -> Result<&'a Node, Refusal> {
    state.nodes.get(id).filter(|n| !n.removed).ok_or(Refusal::NoSuchNode)
}
