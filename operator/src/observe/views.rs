//! Kubernetes objects as values.
//!
//! Invariant: pure. What a pod's status says is taken from the node's own container: a sidecar that lives keeps a pod
//! "Running" for days after the node has died.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ContainerStatus, Node as KubeNode, PersistentVolumeClaim, Pod, PodCondition, Secret,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::crd::{Credentials, StreamCluster};
use crate::facts::BROKEN;
use crate::names;
use crate::observed::{CredentialsView, HostView, PodView, Tokens, VolumeView};
use crate::resources::volume::quantity;

fn ms(time: &Time) -> i64 {
    time.0.as_millisecond()
}

fn created<K: ResourceExt>(object: &K) -> i64 {
    object.creation_timestamp().as_ref().map_or(0, ms)
}

pub(super) fn pod(cluster: &StreamCluster, pod: &Pod) -> Option<PodView> {
    let name = pod.name_any();
    let ordinal = names::ordinal_of(&cluster.name_any(), &name)?;
    let spec = pod.spec.as_ref()?;
    let status = pod.status.clone().unwrap_or_default();
    let statuses = status.container_statuses.unwrap_or_default();
    let first = status.init_container_statuses.unwrap_or_default();
    let beside = first.iter().chain(&statuses).filter(|c| c.name != names::CONTAINER).find_map(stuck);
    let container: ContainerStatus =
        statuses.into_iter().find(|c| c.name == names::CONTAINER).unwrap_or_default();
    let condition = |kind: &str| -> Option<PodCondition> {
        status.conditions.iter().flatten().find(|c| c.type_ == kind).cloned()
    };
    let ready = condition("Ready");
    let state = container.state.unwrap_or_default();
    let ended = state.terminated.clone().or(container.last_state.unwrap_or_default().terminated);
    let finished = match status.phase.as_deref() {
        Some(phase @ ("Failed" | "Succeeded")) => {
            let why = status.reason.or(status.message).unwrap_or_default();
            Some(format!("{phase} {why}").trim().to_owned())
        }
        _ => None,
    };
    let annotations = pod.annotations().clone();
    let own = spec.containers.iter().find(|c| c.name == names::CONTAINER);
    let sources = own.and_then(|c| c.env_from.as_ref()).into_iter().flatten();
    let config = sources.filter_map(|s| s.config_map_ref.as_ref()).map(|m| m.name.clone()).next();
    let volumes = spec.volumes.iter().flatten();
    let claim = volumes.filter(|v| v.name == names::DATA).find_map(|v| v.persistent_volume_claim.as_ref());
    Some(PodView {
        ordinal,
        uid: pod.uid()?,
        created_ms: created(pod),
        deleting_since_ms: pod.metadata.deletion_timestamp.as_ref().map(ms),
        template: annotations.get(names::TEMPLATE).cloned().unwrap_or_default(),
        image: own.and_then(|c| c.image.clone()).unwrap_or_default(),
        annotations,
        finished,
        host: spec.node_name.clone(),
        ip: status.pod_ip.filter(|ip| !ip.is_empty()),
        unscheduled: condition("PodScheduled").filter(|c| c.status == "False").and_then(|c| c.message),
        ready: ready.as_ref().is_some_and(|c| c.status == "True"),
        ready_changed_ms: ready
            .and_then(|c| c.last_transition_time)
            .as_ref()
            .map_or_else(|| created(pod), ms),
        running: state.running.is_some(),
        waiting: state.waiting.map(|w| (w.reason.unwrap_or_default(), w.message.unwrap_or_default())),
        ended: ended.map(|t| (t.exit_code, t.message.or(t.reason).unwrap_or_default())),
        beside,
        config,
        claim: claim.map(|c| c.claim_name.clone()).unwrap_or_default(),
        name,
    })
}

/// Why a container does not run, where waiting does not help by itself.
fn stuck(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().filter(|r| BROKEN.contains(r))?;
    let ended = container.last_state.as_ref().and_then(|s| s.terminated.as_ref());
    let why = match ended.filter(|_| reason == "CrashLoopBackOff") {
        Some(ended) => {
            let words = ended.message.as_ref().or(ended.reason.as_ref()).map_or("", String::as_str);
            format!("ends with code {}: {words}", ended.exit_code)
        }
        None => format!("{reason}: {}", waiting.message.as_deref().unwrap_or_default()),
    };
    Some(format!("its container {}: {why}", container.name))
}

pub(super) fn volume(cluster: &StreamCluster, claim: &PersistentVolumeClaim) -> Option<VolumeView> {
    let name = claim.name_any();
    let ordinal: u32 = claim.labels().get(names::ORDINAL)?.parse().ok()?;
    let index = names::volume_index(&cluster.name_any(), ordinal, &name)?;
    let spec = claim.spec.clone().unwrap_or_default();
    let status = claim.status.clone().unwrap_or_default();
    let bound = spec.volume_name.is_some() || status.phase.as_deref() != Some("Pending");
    let size = spec.resources.and_then(|r| r.requests).and_then(|r| quantity(&r.get("storage")?.0));
    let capacity = status.capacity.and_then(|c| quantity(&c.get("storage")?.0));
    let failed = |c: &&k8s_openapi::api::core::v1::PersistentVolumeClaimCondition| {
        c.status == "True" && c.type_.ends_with("ResizeError")
    };
    let resize_error = status.conditions.iter().flatten().find(failed).and_then(|c| c.message.clone());
    Some(VolumeView {
        uid: claim.uid()?,
        ordinal,
        index,
        created_ms: created(claim),
        deleting: claim.metadata.deletion_timestamp.is_some(),
        lost: status.phase.as_deref() == Some("Lost"),
        abandoned: claim.annotations().contains_key(names::ABANDONED),
        resource_uid: claim.annotations().get(names::RESOURCE_UID).cloned().unwrap_or_default(),
        owned: !claim.owner_references().is_empty(),
        class: spec.storage_class_name,
        requested: size.unwrap_or(0),
        capacity: capacity.unwrap_or(0),
        asked: claim.annotations().get(names::APPLIED).cloned(),
        empty_at: claim.resource_version().filter(|_| !bound),
        resize_error,
        name,
    })
}

pub(super) fn host(host: &KubeNode) -> HostView {
    let ready = host.status.iter().flat_map(|s| s.conditions.iter().flatten()).find(|c| c.type_ == "Ready");
    let unready = ready.filter(|c| c.status != "True");
    let spec = host.spec.clone().unwrap_or_default();
    let taints = spec.taints.unwrap_or_default();
    HostView {
        unready_since_ms: unready.map(|c| c.last_transition_time.as_ref().map_or(0, ms)),
        cordoned: spec.unschedulable == Some(true),
        out_of_service: taints.iter().any(|t| t.key == "node.kubernetes.io/out-of-service"),
    }
}

/// The tokens' state, and the one to show.
pub(super) fn tokens(name: &str, secret: Option<&Secret>) -> (Tokens, Option<String>) {
    let Some(secret) = secret else { return (Tokens::Absent, None) };
    let unusable = |why: &str| {
        let text = format!(
            "Secret {name}: {why}: it needs a key 'tokens' with one or two lines of 16 to 512 characters"
        );
        (Tokens::Unusable(text), None)
    };
    let data = secret.data.as_ref().and_then(|d| d.get("tokens"));
    let Some(ByteString(bytes)) = data else { return unusable("it has no key 'tokens'") };
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let usable = |l: &&str| (16..=512).contains(&l.len()) && l.bytes().all(|b| b.is_ascii_graphic());
    match lines.as_slice() {
        [first] if usable(first) => (Tokens::Present, Some((*first).to_owned())),
        [first, second] if usable(first) && usable(second) => (Tokens::Present, Some((*first).to_owned())),
        _ => unusable("its key 'tokens' cannot be used"),
    }
}

/// What pods take from the object store's Secret. The digest has 32 bits: it tells states apart, and is too short to try
/// keys against.
pub(super) fn credentials(wanted: &Credentials, secret: Option<&Secret>) -> CredentialsView {
    let name = &wanted.secret_name;
    let Some(secret) = secret else {
        return CredentialsView::Missing(format!(
            "Secret {name} (objectStore.credentials.secretName) does not exist"
        ));
    };
    let empty = std::collections::BTreeMap::new();
    let data = secret.data.as_ref().unwrap_or(&empty);
    let mut bytes = Vec::new();
    for (_variable, key) in wanted.variables() {
        let Some(ByteString(value)) = data.get(key).filter(|v| !v.0.is_empty()) else {
            let has: Vec<&str> = data.keys().map(String::as_str).collect();
            let why = format!("Secret {name} has no key {key:?}; it has: {}", has.join(", "));
            return CredentialsView::Missing(why);
        };
        bytes.extend_from_slice(value);
        bytes.push(0);
    }
    CredentialsView::Found(names::digest(&bytes)[..8].to_owned())
}
