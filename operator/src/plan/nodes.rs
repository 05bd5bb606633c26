//! What takes nothing away from anybody: weights, volumes, pods that are missing.
//!
//! Invariant: missing pods are made all at once; a volume in place of one that held a member's log is made only with a
//! healthy quorum and only one at a time (it makes another member); pod 0 alone may found a log, and only while no uid is
//! known.

use std::collections::BTreeMap;

use weir_api::Slots;

use super::operation::Operation;
use crate::action::{Action, Note};
use crate::crd::Policy;
use crate::facts::{Facts, Health, Node};
use crate::names;
use crate::observed::{CredentialsView, VolumeView};
use crate::resources::{pod, volume};

/// Why a claim is given up that was made for a cluster that turned out to take another over.
const TOO_EARLY: &str = "made before objectStore.adoptClusterUid was said, and so empty";
/// How long a pod may wait for a claim that is gone before it gets a new one.
const CLAIM_GONE_MS: i64 = 30_000;

/// Weights that differ from the spec's.
pub(super) fn slots(facts: &Facts<'_>) -> Vec<Action> {
    let set = |node: &Node<'_>| {
        let log = node.log?;
        let slots = Slots::try_from(u64::from(node.slots)).ok()?;
        (log.slots != slots).then(|| Action::SetSlots { node: node.id.clone(), slots })
    };
    facts.wanted().filter_map(set).collect()
}

/// Weights that were as wanted and have been changed by somebody else.
pub(super) fn corrected(facts: &Facts<'_>) -> Vec<Note> {
    let Some(before) = &facts.cluster.status else { return Vec::new() };
    if before.observed_generation != facts.cluster.metadata.generation {
        return Vec::new();
    }
    let changed = |node: &Node<'_>| {
        let had = before.nodes.iter().find(|n| n.ordinal == node.ordinal)?;
        let agreed = had.slots.as_ref().is_some_and(|s| s.applied == Some(node.slots));
        let now = node.log?.slots.get();
        (agreed && now != node.slots).then(|| Note {
            warning: true,
            reason: "SlotsCorrected",
            text: format!(
                "{}: slots were changed to {now} behind the operator's back; set back to {}. Set them in spec.nodes[].slots",
                node.id, node.slots
            ),
        })
    };
    facts.wanted().filter_map(changed).collect()
}

/// Drains that nothing calls for any more.
pub(super) fn undrains(facts: &Facts<'_>, operation: Option<&Operation>) -> Vec<Action> {
    let undrain = |node: &&Node<'_>| {
        // Who is to leave is drained when its turn comes.
        let called_for = node.drain_wanted
            || (node.cordoned && node.wanted)
            || operation.is_some_and(|o| o.drains && o.ordinal == node.ordinal);
        let draining = node.log.is_some_and(|l| l.draining);
        // A process that is about to end is better left drained.
        let stays = matches!(node.health, Health::Ready | Health::Unready(_) | Health::Starting(_));
        draining && !called_for && stays && node.is_serving()
    };
    facts.nodes.values().filter(undrain).map(|n| Action::CancelDrain { node: n.id.clone() }).collect()
}

/// Volumes that are missing, too small, wrongly owned, or not needed any more.
pub(super) fn volumes(facts: &Facts<'_>) -> Vec<Action> {
    let mut actions: Vec<Action> = facts.wanted().filter_map(|n| create_volume(facts, n)).collect();
    // At most one in place of a member's.
    let mut replacing = false;
    actions.retain(|a| match a {
        Action::CreateVolume { name, .. } => {
            let member = facts.wanted().any(|n| {
                n.was_member(facts.cluster.status.as_ref())
                    && names::volume_index(&cluster_name(facts), n.ordinal, name).is_some()
            });
            let keep = !(member && replacing);
            replacing |= member;
            keep
        }
        _ => true,
    });
    for node in facts.nodes.values() {
        actions.extend(facts.own_volumes(node.ordinal).filter_map(|v| tend(facts, node, v)));
    }
    actions.extend(leftovers(facts));
    actions
}

fn cluster_name(facts: &Facts<'_>) -> String {
    kube::ResourceExt::name_any(facts.cluster)
}

fn create_volume(facts: &Facts<'_>, node: &Node<'_>) -> Option<Action> {
    let index = match node.pod {
        // The claim that its pod names is gone: one of that name brings the pod up.
        Some(pod) if node.lacks_claim() => {
            let waited = facts.observed.now_ms - pod.created_ms >= CLAIM_GONE_MS;
            if pod.host.is_some() || pod.deleting_since_ms.is_some() || !waited {
                return None;
            }
            names::volume_index(&cluster_name(facts), node.ordinal, &pod.claim)?
        }
        None if node.volume.is_none() => facts.next_volume_index(node.ordinal),
        Some(_) | None => return None,
    };
    may_replace_data(facts, node).ok()?;
    let body = volume::claim(facts.cluster, node.ordinal, index);
    Some(Action::CreateVolume { name: names::volume(&cluster_name(facts), node.ordinal, index), body })
}

/// Whether a node may start with an empty volume. The error says what is waited for.
pub(crate) fn may_replace_data(facts: &Facts<'_>, node: &Node<'_>) -> Result<(), String> {
    if !node.was_member(facts.cluster.status.as_ref()) {
        return Ok(());
    }
    if facts.quorum() != Some(true) {
        return Err(
            "its volume is gone, and a new one waits for a healthy majority of the metadata log".to_owned()
        );
    }
    if facts.has_only_vote(node) {
        return Err("its volume holds the only vote in the metadata log".to_owned());
    }
    match facts.replacement_beside(node.ordinal) {
        Some(other) => {
            Err(format!("its volume is gone, and a new one waits until {} is back with its own", other.id))
        }
        None => Ok(()),
    }
}

fn tend(facts: &Facts<'_>, node: &Node<'_>, v: &VolumeView) -> Option<Action> {
    if v.deleting {
        return None;
    }
    let patch = |patch, why: &str| {
        let why = why.to_owned();
        Some(Action::PatchVolume { name: v.name.clone(), uid: v.uid.clone(), patch, gives_up: false, why })
    };
    let uid = kube::ResourceExt::uid(facts.cluster).unwrap_or_default();
    if v.resource_uid != uid {
        // Once it is this one's, nothing tells it from those.
        if facts.own_volumes(node.ordinal).any(|other| is_of_before_takeover(facts, other)) {
            return None;
        }
        return patch(volume::adopt(facts.cluster), "taken over from a deleted StreamCluster");
    }
    if is_of_before_takeover(facts, v) {
        let (patch, why) = (volume::abandon(TOO_EARLY), TOO_EARLY.to_owned());
        let (name, uid) = (v.name.clone(), v.uid.clone());
        return Some(Action::PatchVolume { name, uid, patch, gives_up: true, why });
    }
    if is_of_no_use(facts, node, v) {
        return Some(Action::DeleteVolume {
            name: v.name.clone(),
            uid: v.uid.clone(),
            version: v.empty_at.clone(),
            why: "metadata.volume has changed, and it was never bound".to_owned(),
        });
    }
    let owned = facts.cluster.spec.deletion_policy.when_deleted == Policy::Delete;
    if v.owned != owned {
        return patch(volume::ownership(facts.cluster, owned), "deletionPolicy.whenDeleted changed");
    }
    if v.abandoned || v.lost || !node.wanted {
        return None;
    }
    let spec = &facts.cluster.spec.metadata.volume;
    let wanted = volume::quantity(&spec.size).filter(|_| v.requested > 0)?;
    if wanted > v.requested {
        return patch(volume::resize(&spec.size), "metadata.volume.size grew");
    }
    // What could not be had is asked for no more. Kubernetes lets a claim go down to more than there is, not to as much.
    if v.capacity > 0 && v.requested > v.capacity && (v.capacity + 1..v.requested).contains(&wanted) {
        return patch(
            volume::resize(&spec.size),
            "metadata.volume.size is smaller, and the volume had not grown yet",
        );
    }
    None
}

/// A claim that this StreamCluster has made because it did not know yet whose volumes it was to take over: no log was
/// founded or joined with it, and there is one of those.
fn is_of_before_takeover(facts: &Facts<'_>, v: &VolumeView) -> bool {
    let uid = kube::ResourceExt::uid(facts.cluster).unwrap_or_default();
    let usable = |v: &VolumeView| !v.deleting && !v.abandoned && !v.lost;
    let takes_over = facts.cluster.spec.object_store.adopt_cluster_uid.is_some();
    takes_over
        && facts.cluster_uid().is_none()
        && v.resource_uid == uid
        && usable(v)
        && facts.own_volumes(v.ordinal).any(|other| other.resource_uid != uid && usable(other))
}

/// A claim that was never bound, and asks for what is not wanted any more: perhaps for a class that there is not.
fn is_of_no_use(facts: &Facts<'_>, node: &Node<'_>, v: &VolumeView) -> bool {
    let never_used = v.empty_at.is_some() && node.pod.is_none_or(|p| p.host.is_none());
    never_used && node.wanted && v.asked.as_ref().is_some_and(|had| *had != volume::asked(facts.cluster))
}

/// Volumes that the policy gives up: replaced ones once the node is back, and those of removed nodes.
fn leftovers(facts: &Facts<'_>) -> Vec<Action> {
    if facts.cluster.spec.deletion_policy.when_scaled != Policy::Delete || facts.quorum() != Some(true) {
        return Vec::new();
    }
    let uid = kube::ResourceExt::uid(facts.cluster).unwrap_or_default();
    let spare = |v: &&VolumeView| {
        let used = facts.observed.pods.iter().any(|p| p.claim == v.name);
        if used || v.deleting || v.resource_uid != uid {
            return false;
        }
        match facts.nodes.get(&v.ordinal) {
            // Not wanted, no pod, not in the record.
            None => v.ordinal >= facts.cluster.spec.replicas,
            Some(node) if node.wanted => v.abandoned && node.is_serving() && node.health == Health::Ready,
            Some(_) => false,
        }
    };
    let delete = |v: &VolumeView| Action::DeleteVolume {
        name: v.name.clone(),
        uid: v.uid.clone(),
        version: None,
        why: "deletionPolicy.whenScaled is Delete, and its node is removed or has another".to_owned(),
    };
    facts.observed.volumes.iter().filter(spare).map(delete).collect()
}

/// Pods that are missing, and annotations that they read at their next start.
pub(super) fn pods(facts: &Facts<'_>) -> Vec<Action> {
    if facts.unbuildable.is_some() || !super::has_tokens(facts) {
        return Vec::new();
    }
    let due = |n: &&Node<'_>| {
        let is_free = !facts.observed.foreign_pods.contains_key(n.id.as_str());
        n.pod.is_none() && is_free && (n.wanted || facts.is_needed_for_quorum(n))
    };
    let create = facts.nodes.values().filter(due).filter_map(|n| create_pod(facts, n));
    let annotate = facts.wanted().filter_map(|n| annotate_pod(facts, n));
    create.chain(annotate).collect()
}

fn create_pod(facts: &Facts<'_>, node: &Node<'_>) -> Option<Action> {
    let claim = match node.volume {
        Some(v) if is_of_no_use(facts, node, v) => return None,
        Some(v) => v.name.clone(),
        None => {
            may_replace_data(facts, node).ok()?;
            names::volume(&cluster_name(facts), node.ordinal, facts.next_volume_index(node.ordinal))
        }
    };
    let mut annotations = live_annotations(facts, node);
    annotations.insert(names::CLUSTER_SIZE.to_owned(), facts.cluster.spec.replicas.to_string());
    annotations.insert(names::TEMPLATE.to_owned(), pod::template(facts.cluster, node.ordinal, &facts.image));
    match &facts.observed.credentials {
        CredentialsView::Found(digest) => {
            drop(annotations.insert(names::CREDENTIALS.to_owned(), digest.clone()))
        }
        // The pod would only wait for its Secret; it is made when that is there.
        CredentialsView::Missing(_) => return None,
        CredentialsView::NotNeeded => {}
    }
    let input = pod::PodInput { ordinal: node.ordinal, image: &facts.image, claim: &claim, annotations };
    let body = pod::pod(facts.cluster, &input).ok()?;
    Some(Action::CreatePod { name: node.id.as_str().to_owned(), body })
}

/// What a container reads when it starts, and what may change without a restart.
fn live_annotations(facts: &Facts<'_>, node: &Node<'_>) -> BTreeMap<String, String> {
    let adopts = facts.cluster.spec.object_store.adopt_cluster_uid.is_some();
    let founds = node.ordinal == 0 && facts.cluster_uid().is_none() && !adopts;
    [(names::SLOTS, node.slots.to_string()), (names::BOOTSTRAP, founds.to_string())]
        .map(|(k, v)| (k.to_owned(), v))
        .into()
}

fn annotate_pod(facts: &Facts<'_>, node: &Node<'_>) -> Option<Action> {
    let pod = node.pod.filter(|p| p.deleting_since_ms.is_none())?;
    let mut wanted = live_annotations(facts, node);
    wanted.retain(|key, value| pod.annotations.get(key) != Some(value));
    (!wanted.is_empty()).then(|| Action::AnnotatePod {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        annotations: wanted,
    })
}
