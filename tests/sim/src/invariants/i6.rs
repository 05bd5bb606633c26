//! I6: node epochs of an id only grow, also past its removal; a command of a session that is not current changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use weir::metadata::codec::state_hash;
use weir::metadata::command::{Command, Registration};
use weir::metadata::state::State;
use weir_api::{Incarnation, NodeEpoch, NodeId, Nonce};

use super::Verdict;
use super::log::{Log, Step};

pub(super) fn check(verdict: &mut Verdict, log: &Log) {
    let mut known: BTreeMap<NodeId, Known> = BTreeMap::new();
    log.replay(|before, after, step| {
        match (step.command(), step.outcome) {
            (Command::Register(registration), Ok(_)) => {
                registered(verdict, &mut known, registration, step.index);
            }
            (Command::Fence { node, incarnation: Some(to), .. }, Ok(_)) => {
                known.entry(node.clone()).or_default().pinned = Some(to.clone());
            }
            (Command::RemoveNode { node }, Ok(_)) => known.entry(node.clone()).or_default().pinned = None,
            _ => {}
        }
        check_current(verdict, before, after, step);
        check_nodes(verdict, before, after, step.index);
    });
}

/// What registrations and fences have said of a node.
#[derive(Default)]
struct Known {
    epoch: NodeEpoch,
    nonce: Option<Nonce>,
    earlier: BTreeSet<Nonce>,
    /// The only incarnation that may register.
    pinned: Option<Incarnation>,
}

fn registered(
    verdict: &mut Verdict,
    known: &mut BTreeMap<NodeId, Known>,
    registration: &Registration,
    index: u64,
) {
    let Registration { session, nonce, incarnation, .. } = registration;
    let node = known.entry(session.node.clone()).or_default();
    let what = format!("entry {index} registers {session}");
    // The same process may say the same again.
    if node.nonce == Some(*nonce) && node.epoch == session.epoch {
        return;
    }
    if node.nonce.is_some() && session.epoch <= node.epoch {
        verdict.report("I6", format!("{what}, and epoch {} was registered before", node.epoch));
    }
    if node.nonce == Some(*nonce) || node.earlier.contains(nonce) {
        verdict.report("I6", format!("{what}: a process that was registered before is back"));
    }
    if let Some(to) = node.pinned.as_ref().filter(|to| *to != incarnation) {
        verdict.report("I6", format!("{what} as {incarnation}, and the node is pinned to {to}"));
    }
    node.earlier.extend(node.nonce.replace(*nonce));
    node.epoch = session.epoch;
}

/// What the state remembers of a node's epoch never goes back, nor away.
fn check_nodes(verdict: &mut Verdict, before: &State, after: &State, index: u64) {
    for (id, node) in &before.nodes {
        if after.nodes.get(id).is_none_or(|now| now.epoch < node.epoch) {
            verdict.report("I6", format!("after entry {index} node {id} is below epoch {}", node.epoch));
        }
    }
}

/// Whoever has no live session changes nothing.
fn check_current(verdict: &mut Verdict, before: &State, after: &State, step: Step<'_>) {
    let Some(request) = &step.envelope.request else { return };
    if before.is_current(&request.session) {
        return;
    }
    // Time goes on with every entry, and is no effect of the command's.
    let still = State { time_ms: after.time_ms, ..before.clone() };
    if state_hash(&still) != state_hash(after) {
        let (index, by) = (step.index, &request.session);
        verdict.report("I6", format!("entry {index} is of {by}, which has no live session, and had effect"));
    }
}

#[cfg(test)]
mod tests {
    use weir::metadata::command::{Answer, Command, Envelope, FenceReason};
    use weir_api::NodeEpoch;

    use super::super::Verdict;
    use super::super::sample::{Made, breaks, holds};
    use super::*;

    #[test]
    fn epochs_that_grow() {
        let mut run = Made::new();
        let a = run.session("a", 5);
        run.session("a", 6);
        let s = run.stream("s");
        run.command(&a, Command::Open { stream: s }, None);
        holds(&run, "I6");
    }

    #[test]
    fn an_equal_epoch_of_another_process() {
        let mut run = Made::new();
        run.session("a", 5);
        let again = Command::Register(run.registration("a", 5));
        let accepted = Ok(Answer::Registered { slots: 1.try_into().unwrap(), format: 1 });
        run.entry(Envelope { request: None, command: again }, Some(accepted));
        breaks(&run, "I6", "was registered before");
    }

    #[test]
    fn a_process_that_was_replaced_and_is_back() {
        let mut run = Made::new();
        let first = run.registration("a", 5);
        run.entry(Envelope { request: None, command: Command::Register(first.clone()) }, None);
        run.session("a", 6);
        let mut back = first;
        back.session.epoch = NodeEpoch(7);
        let accepted = Ok(Answer::Registered { slots: 1.try_into().unwrap(), format: 1 });
        run.entry(Envelope { request: None, command: Command::Register(back) }, Some(accepted));
        breaks(&run, "I6", "is back");
    }

    #[test]
    fn another_incarnation_than_the_one_pinned() {
        let mut run = Made::new();
        let (a, b) = (run.session("a", 5), run.session("b", 5));
        let incarnation = Some("the-new-pod".parse().unwrap());
        let reason = FenceReason::Admin;
        run.command(&b, Command::Fence { node: a.node, epoch: NodeEpoch(5), incarnation, reason }, None);
        let other = Command::Register(run.registration("a", 6));
        let accepted = Ok(Answer::Registered { slots: 1.try_into().unwrap(), format: 1 });
        run.entry(Envelope { request: None, command: other }, Some(accepted));
        breaks(&run, "I6", "is pinned to the-new-pod");
    }

    #[test]
    fn an_epoch_forgotten() {
        let mut run = Made::new();
        run.session("a", 5);
        let before = run.state.clone();
        let after = State { nodes: Default::default(), ..before.clone() };
        let mut verdict = Verdict::default();
        check_nodes(&mut verdict, &before, &after, 9);
        assert!(verdict.0[0].message.contains("is below epoch 5"), "{verdict:?}");
    }

    #[test]
    fn an_effect_of_a_session_that_is_over() {
        let mut run = Made::new();
        let (a, b) = (run.session("a", 5), run.session("b", 5));
        let fence = Command::Fence {
            node: a.node.clone(),
            epoch: NodeEpoch(5),
            incarnation: None,
            reason: FenceReason::Silence,
        };
        run.command(&b, fence, None);
        let before = run.state.clone();
        run.stream("s");
        let after = run.state.clone();
        let envelope = Envelope {
            request: Some(weir::metadata::command::RequestId { session: a, number: 1, lowest_unanswered: 1 }),
            command: Command::EndSession,
        };
        let mut verdict = Verdict::default();
        let outcome = Ok(Answer::Done);
        check_current(
            &mut verdict,
            &before,
            &after,
            Step { index: 9, envelope: &envelope, outcome: &outcome },
        );
        assert!(verdict.0[0].message.contains("had effect"), "{verdict:?}");
        let mut verdict = Verdict::default();
        check_current(
            &mut verdict,
            &before,
            &before,
            Step { index: 9, envelope: &envelope, outcome: &outcome },
        );
        assert!(verdict.0.is_empty(), "{verdict:?}");
    }
}
