//! Carries out a plan, in order, the status last.
//!
//! Invariant: an action that the world has outrun (another UID, gone already, there already) counts as done; after any
//! other failure that matters nothing disruptive follows in the same pass, nor by an old observation, and what failed stands
//! in the status. Deletes name the UID they mean. One field manager; Services and the like are applied server-side, pods and
//! claims are created and patched, so that no object is written in both ways. Called by `controller`.

mod kube_actions;
mod node_actions;
mod unreadable;

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use crate::action::{Action, Note, Planned};
use crate::admin::{Admin, Target};
use crate::crd::{StreamCluster, StreamClusterStatus};
use crate::fault::{self, Side};
use crate::metrics::Metrics;
use crate::names;
use crate::observe::DEADLINE;
use crate::{plan, status};

/// A node is disturbed by an observation that is no older than this. A pass of its own takes a second or two.
const FRESH: Duration = Duration::from_secs(10);

/// Why an action came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Failure {
    /// What was tried.
    pub what: String,
    /// What the API server or the node said.
    pub why: String,
    /// It goes by itself: a conflict, a node that is busy, a state that has to be waited for.
    pub passing: bool,
}

/// What is needed to carry out plans.
#[derive(Clone)]
pub struct Hands {
    /// The API server.
    pub client: Client,
    /// The nodes.
    pub admin: Admin,
    /// Events.
    pub recorder: Recorder,
    /// Counts.
    pub metrics: Metrics,
}

impl std::fmt::Debug for Hands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hands")
    }
}

/// What a pass changed.
#[derive(Debug, Default)]
pub struct Applied {
    /// Writes to the API server, status and events included.
    pub writes: u64,
    /// What failed.
    pub failures: Vec<Failure>,
}

impl Applied {
    /// A test has ended the operator here.
    fn dead(mut self) -> Self {
        let (what, why) = ("a fault point".to_owned(), "the operator is dead".to_owned());
        self.failures.push(Failure { what, why, passing: false });
        self
    }
}

impl Hands {
    /// Carries out the plan for a cluster, made from what was seen at `seen_at`. Commands go to `targets`, in order until
    /// one answers.
    pub async fn apply(
        &self,
        cluster: &StreamCluster,
        targets: &[Target],
        seen_at: Instant,
        planned: Planned,
    ) -> Applied {
        let Planned { actions, status, notes, again: _ } = planned;
        let mut applied = Applied::default();
        // Claims that were not made.
        let mut lacking: Vec<&str> = Vec::new();
        let mut barred = false;
        for action in &actions {
            if action.is_disruptive() && barred {
                continue;
            }
            // Others may be down by now, or another operator at work: this one may have slept.
            if action.is_disruptive() && seen_at.elapsed() > FRESH {
                let why = format!("what was seen is {} s old", seen_at.elapsed().as_secs());
                applied.failures.push(Failure { what: action.step().to_owned(), why, passing: true });
                break;
            }
            if lacking.iter().any(|claim| pod_of(action, claim)) {
                continue;
            }
            if fault::dies(Side::Before, action.step()) {
                return applied.dead();
            }
            match self.act(cluster, targets, action).await {
                Ok(wrote) => {
                    if fault::dies(Side::After, action.step()) {
                        return applied.dead();
                    }
                    applied.writes += u64::from(wrote);
                    self.metrics.acted(action);
                    if let Some(note) = plan::announce(action).filter(|_| wrote) {
                        applied.writes += self.publish(&cluster.object_ref(&()), &note).await;
                    }
                }
                Err(failure) => {
                    match failure.passing {
                        true => tracing::info!(cluster = %cluster.name_any(), %failure, "action put off"),
                        false => tracing::warn!(cluster = %cluster.name_any(), %failure, "action failed"),
                    }
                    self.metrics.failed(failure.passing);
                    barred |= !failure.passing && !action.is_aside();
                    applied.failures.push(failure);
                    if let Action::CreateVolume { name, .. } = action {
                        lacking.push(name.as_str());
                    }
                    // What follows may rest on it: a volume is abandoned before its pod is given up.
                    if action.is_disruptive() || matches!(action, Action::PatchVolume { gives_up: true, .. })
                    {
                        break;
                    }
                }
            }
        }
        let serious: Vec<String> =
            applied.failures.iter().filter(|f| !f.passing).map(ToString::to_string).collect();
        let wanted = status.map(|s| status::with_failures(cluster, s, &serious));
        if let Some(wanted) = &wanted {
            self.show(cluster, wanted);
        }
        if let Some(wanted) = wanted.filter(|s| cluster.status.as_ref() != Some(s)) {
            // First, for the next pass sees no difference any more; told twice is better than never.
            for note in &notes {
                applied.writes += self.publish(&cluster.object_ref(&()), note).await;
            }
            if fault::dies(Side::Before, "write-status") {
                return applied.dead();
            }
            match self.write_status(cluster, &wanted).await {
                Ok(()) => {
                    if fault::dies(Side::After, "write-status") {
                        return applied.dead();
                    }
                    applied.writes += 1;
                }
                Err(failure) => applied.failures.push(failure),
            }
        }
        applied
    }

    /// Its conditions as metrics, also while the API server takes no status.
    fn show(&self, cluster: &StreamCluster, status: &StreamClusterStatus) {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        self.metrics.conditions((&namespace, &name), &status.conditions);
    }

    /// The status where nothing could be read: nothing that it said before is taken for true.
    pub async fn tell_unknown(&self, cluster: &StreamCluster, why: &str, now_ms: i64) {
        let wanted = status::unknown(cluster, why, now_ms);
        self.show(cluster, &wanted);
        if cluster.status.as_ref() != Some(&wanted)
            && let Err(failure) = self.write_status(cluster, &wanted).await
        {
            tracing::warn!(cluster = %cluster.name_any(), %failure, "the status keeps what it said before");
        }
    }

    async fn act(
        &self,
        cluster: &StreamCluster,
        targets: &[Target],
        action: &Action,
    ) -> Result<bool, Failure> {
        match action {
            Action::Apply { .. }
            | Action::Prune { .. }
            | Action::CreateTokens
            | Action::CreateVolume { .. }
            | Action::PatchVolume { .. }
            | Action::DeleteVolume { .. }
            | Action::CreatePod { .. }
            | Action::AnnotatePod { .. }
            | Action::DeletePod { .. } => kube_actions::act(&self.client, cluster, action).await,
            Action::SetSlots { .. }
            | Action::Pin { .. }
            | Action::CancelDrain { .. }
            | Action::Drain { .. }
            | Action::EndSession { .. }
            | Action::RemoveNode { .. } => node_actions::act(&self.admin, cluster, targets, action).await,
        }
    }

    /// Refused if the object has changed since it was read: a status made from an older one must not undo a newer.
    async fn write_status(
        &self,
        cluster: &StreamCluster,
        status: &StreamClusterStatus,
    ) -> Result<(), Failure> {
        let api: Api<StreamCluster> =
            Api::namespaced(self.client.clone(), &cluster.namespace().unwrap_or_default());
        let body = json!({
            "apiVersion": StreamCluster::api_version(&()),
            "kind": StreamCluster::kind(&()),
            "metadata": {"name": cluster.name_any(), "resourceVersion": cluster.resource_version()},
            "status": status,
        });
        let params = PatchParams::apply(names::MANAGER).force();
        let call = async {
            let written = api.patch_status(&cluster.name_any(), &params, &Patch::Apply(&body)).await;
            written.map(drop)
        };
        in_time("writing the status", call).await
    }

    /// An event that cannot be written is no reason to stop.
    async fn publish(&self, about: &ObjectReference, note: &Note) -> u64 {
        let Note { warning, reason, text } = note;
        tracing::info!(cluster = about.name, reason, "{text}");
        let event = Event {
            type_: if *warning { EventType::Warning } else { EventType::Normal },
            reason: (*reason).to_owned(),
            note: Some(text.chars().take(1000).collect()),
            // The recorder takes events that agree in all but their text for one, and keeps the first text.
            action: format!("{reason}-{}", names::digest(text.as_bytes())),
            secondary: None,
        };
        match tokio::time::timeout(Duration::from_secs(3), self.recorder.publish(&event, about)).await {
            Ok(Ok(())) => 1,
            Ok(Err(error)) => {
                tracing::warn!(%error, reason, "event not written");
                0
            }
            Err(_elapsed) => {
                tracing::warn!(reason, "event not written in time");
                0
            }
        }
    }
}

/// Whether it makes a pod that uses this claim.
fn pod_of(action: &Action, claim: &str) -> bool {
    let Action::CreatePod { body, .. } = action else { return false };
    let volumes = body["spec"]["volumes"].as_array();
    volumes.into_iter().flatten().any(|v| v["persistentVolumeClaim"]["claimName"] == claim)
}

/// It was refused because its namespace is being deleted.
fn is_ending(status: &kube::core::Status) -> bool {
    let causes = status.details.iter().flat_map(|d| &d.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// A call to the API server, with a deadline.
async fn in_time<T>(what: &str, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Failure> {
    let failed = |why: String, passing: bool| Failure { what: what.to_owned(), why, passing };
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) => {
            // A server that is busy or away; a plain 500 may be a webhook's last word. In a namespace that is being deleted
            // nothing can be made any more, and soon nothing needs to be.
            let passing = matches!(status.code, 409 | 429 | 503 | 504) || is_ending(&status);
            Err(failed(status.message.clone(), passing))
        }
        Ok(Err(error)) => Err(failed(error.to_string(), true)),
        Err(_elapsed) => Err(failed(format!("no answer in {} s", DEADLINE.as_secs()), true)),
    }
}
