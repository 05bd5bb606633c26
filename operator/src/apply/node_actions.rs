//! Commands to the cluster's nodes: any node takes them, the leader first.

use kube::ResourceExt;

use super::Failure;
use crate::action::Action;
use crate::admin::{Admin, AdminError, Target};
use crate::crd::StreamCluster;

/// Nodes that are tried for one command.
const TRIES: usize = 3;

/// Refusals that only mean that something else comes first, or that it is done.
const WAITS: &[&str] =
    &["last-node", "awaiting-recovery", "node-alive", "other-epoch", "older-generation", "unavailable"];

/// Whether it was said; false: there is no such node any more.
pub(super) async fn act(
    admin: &Admin,
    cluster: &StreamCluster,
    targets: &[Target],
    action: &Action,
) -> Result<bool, Failure> {
    let what = what(action);
    let mut last = Failure { what: what.clone(), why: "no node answers".to_owned(), passing: true };
    for target in targets.iter().take(TRIES) {
        match say(admin, cluster, target, action).await {
            Ok(()) => return Ok(true),
            Err(e) if e.code() == Some("no-such-node") => return Ok(false),
            Err(e) => {
                let passing = e.is_passing() || e.code().is_some_and(|c| WAITS.contains(&c));
                let again = e.is_passing();
                last = Failure { what: what.clone(), why: e.to_string(), passing };
                if !again {
                    break;
                }
            }
        }
    }
    Err(last)
}

fn what(action: &Action) -> String {
    match action {
        Action::SetSlots { node, slots } => format!("setting slots of {node} to {slots}"),
        Action::Pin { node, .. } => format!("pinning {node} to its pod"),
        Action::CancelDrain { node } => format!("ending the drain of {node}"),
        Action::Drain { node, .. } => format!("draining {node}"),
        Action::EndSession { node, .. } => format!("ending the session of {node}"),
        Action::RemoveNode { node, .. } => format!("removing {node}"),
        Action::Apply { .. }
        | Action::Prune { .. }
        | Action::CreateTokens
        | Action::CreateVolume { .. }
        | Action::PatchVolume { .. }
        | Action::DeleteVolume { .. }
        | Action::CreatePod { .. }
        | Action::AnnotatePod { .. }
        | Action::DeletePod { .. } => "an action on Kubernetes".to_owned(),
    }
}

async fn say(admin: &Admin, cluster: &StreamCluster, to: &Target, action: &Action) -> Result<(), AdminError> {
    match action {
        Action::SetSlots { node, slots } => {
            let generation = cluster.metadata.generation.and_then(|g| u64::try_from(g).ok()).unwrap_or(0);
            let resource = (cluster.uid().unwrap_or_default(), generation);
            admin.set_slots(to, node, *slots, resource).await.map(drop)
        }
        Action::Pin { node, epoch, incarnation } => {
            admin.fence(to, node, *epoch, Some(incarnation.clone())).await.map(drop)
        }
        Action::EndSession { node, epoch, why: _ } => admin.fence(to, node, *epoch, None).await.map(drop),
        Action::CancelDrain { node } => admin.cancel_drain(to, node).await.map(drop),
        Action::Drain { node, why: _ } => admin.drain(to, node).await.map(drop),
        Action::RemoveNode { node, why: _ } => admin.remove(to, node).await.map(drop),
        Action::Apply { .. }
        | Action::Prune { .. }
        | Action::CreateTokens
        | Action::CreateVolume { .. }
        | Action::PatchVolume { .. }
        | Action::DeleteVolume { .. }
        | Action::CreatePod { .. }
        | Action::AnnotatePod { .. }
        | Action::DeletePod { .. } => Ok(()),
    }
}
