//! Pod replacements and node epochs: who may register, and who did.
//!
//! Invariant: the operator mints no epochs. It pins each node to its present pod, always, because it cannot know that an
//! earlier one is gone; it counts a pod as the node only when the cluster's record shows that pod's UID, which the record
//! accepts at a greater epoch alone. Pure; called by `plan`.

use weir_api::Incarnation;

use crate::action::{Action, Note};
use crate::crd::StreamClusterStatus;
use crate::facts::{Facts, Node};

/// Pins that are missing: the record names another pod as the only one that may register, or none.
pub fn pins(facts: &Facts<'_>) -> Vec<Action> {
    facts.nodes.values().filter_map(pin).collect()
}

fn pin(node: &Node<'_>) -> Option<Action> {
    let (pod, log) = (node.pod?, node.log?);
    if pod.deleting_since_ms.is_some() {
        return None;
    }
    let incarnation: Incarnation = pod.uid.parse().ok()?;
    let pinned = log.pinned_to.as_ref() == Some(&incarnation);
    (!pinned).then(|| Action::Pin { node: node.id.clone(), epoch: log.epoch, incarnation })
}

/// Nodes that are another pod now than the status says, or the same one anew: its container was started again, or its
/// session ended and it took another.
pub fn replaced(facts: &Facts<'_>, before: Option<&StreamClusterStatus>) -> Vec<Note> {
    let Some(before) = before else { return Vec::new() };
    let changed = |node: &Node<'_>| {
        let log = node.log?;
        let old = before.nodes.iter().find(|n| n.ordinal == node.ordinal)?;
        let (old_uid, old_epoch) = (old.pod_uid.as_deref()?, old.epoch?);
        if old_uid == log.incarnation.as_str() && old_epoch == log.epoch.0 {
            return None;
        }
        let reason = if old_uid == log.incarnation.as_str() { "NodeRestarted" } else { "NodeReplaced" };
        let raft = match old.raft_id {
            Some(id) if id != log.raft_id.0 => {
                format!("; raft id {id} -> {}, its data directory is new", log.raft_id)
            }
            _ => String::new(),
        };
        let text = format!(
            "{}: pod {old_uid} at epoch {old_epoch} -> pod {} at epoch {}{raft}",
            node.id, log.incarnation, log.epoch
        );
        Some(Note { warning: false, reason, text })
    };
    facts.nodes.values().filter_map(changed).collect()
}
