//! What to do: values in, values out.
//!
//! Invariant (I10): a plan holds disruptive actions for one node at most, never begins one while another node is
//! disturbed, never founds a second log, and is empty while desired and observed agree. It remembers nothing: the step
//! that an operation is at follows from what is observed, so an operator that dies between any two actions goes on where
//! it was. Called by `controller`.

mod ensure;
mod nodes;
mod operation;

use std::time::Duration;

use kube::ResourceExt;

use crate::action::{Action, Note, Planned};
use crate::crd::StreamCluster;
use crate::epochs;
use crate::facts::Facts;
use crate::names;
use crate::observed::{Observed, Tokens};
use crate::status;

pub(crate) use ensure::taken;
pub(crate) use nodes::may_replace_data;
pub use operation::{Operation, OperationKind};

/// How soon to look again while something is going on; watches are faster where they see it.
const BUSY: Duration = Duration::from_secs(2);
/// While something is waited for that only others can bring about.
const WAITING: Duration = Duration::from_secs(5);
/// While all is as wanted.
const IDLE: Duration = Duration::from_secs(30);

/// What the operator was told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The image of clusters that name none.
    pub default_image: String,
    /// Whether counts that change all the time may be written to the status now.
    pub refresh_counts: bool,
}

/// What to do about a cluster.
pub fn plan(cluster: &StreamCluster, observed: &Observed, settings: &Settings) -> Planned {
    if cluster.metadata.deletion_timestamp.is_some() {
        // Everything has an owner, or is meant to stay.
        return Planned { actions: Vec::new(), status: None, notes: Vec::new(), again: IDLE };
    }
    let facts = Facts::new(cluster, observed, &settings.default_image);
    let paused = cluster.annotations().get(names::PAUSED).is_some_and(|v| v == "true");
    let operation = operation::choose(&facts);
    let mut notes = epochs::replaced(&facts, cluster.status.as_ref());
    notes.extend(nodes::corrected(&facts));
    let mut actions = Vec::new();
    if !paused {
        actions.extend(ensure::objects(&facts));
        actions.extend(epochs::pins(&facts));
        actions.extend(nodes::slots(&facts));
        actions.extend(nodes::undrains(&facts, operation.as_ref()));
        actions.extend(nodes::volumes(&facts));
        actions.extend(nodes::pods(&facts));
        actions.extend(operation.iter().flat_map(|o| o.actions.clone()));
    }
    let status = status::status(&facts, operation.as_ref(), paused, settings.refresh_counts);
    notes.extend(status::transitions(cluster.status.as_ref(), &status));
    let again = match (actions.is_empty(), status::is_settled(&status)) {
        (true, true) => IDLE,
        (true, false) if operation.is_none() => WAITING,
        _ => BUSY,
    };
    Planned { actions, status: Some(status), notes, again }
}

/// The event of an action that users should see.
pub(crate) fn announce(action: &Action) -> Option<Note> {
    let note = |reason, text: String| Some(Note { warning: false, reason, text });
    match action {
        Action::Drain { node, why } => note("Draining", format!("{node}: {why}")),
        Action::EndSession { node, epoch, why } => {
            Some(Note { warning: true, reason: "Fencing", text: format!("{node} at epoch {epoch}: {why}") })
        }
        Action::DeletePod { name, why, force, .. } => {
            let reason = if *force { "ForceDeletingPod" } else { "DeletingPod" };
            Some(Note { warning: *force, reason, text: format!("{name}: {why}") })
        }
        Action::RemoveNode { node, why } => note("RemovingNode", format!("{node}: {why}")),
        Action::DeleteVolume { name, why, .. } => note("DeletingVolume", format!("{name}: {why}")),
        Action::CreateVolume { name, .. } => note("CreatingVolume", name.clone()),
        Action::CreatePod { name, .. } => note("CreatingPod", name.clone()),
        Action::Apply { .. }
        | Action::Prune { .. }
        | Action::CreateTokens
        | Action::PatchVolume { .. }
        | Action::AnnotatePod { .. }
        | Action::SetSlots { .. }
        | Action::Pin { .. }
        | Action::CancelDrain { .. } => None,
    }
}

/// The tokens are there, or are made in this pass.
fn has_tokens(facts: &Facts<'_>) -> bool {
    !matches!(facts.observed.tokens, Tokens::Unusable(_))
}
