//! What the status says.
//!
//! Invariant: pure, made anew from this pass's facts; a time changes only with what it is the time of, so that the same
//! facts give the same bytes and nothing is written at rest. Counts that change all the time, and numbers in texts, are taken
//! over from the status before, but about once a minute. Called by `plan`.

mod reasons;
mod steady;
mod unreadable;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;

use crate::action::Note;
use crate::crd::{ClusterState, NodeState, OperationState, SlotsState, StreamCluster, StreamClusterStatus};
use crate::facts::{Facts, Health, Node};
use crate::names;
use crate::observed::{CredentialsView, Stranger, Tokens, VolumeView};
use crate::plan::{Operation, OperationKind};
use reasons::Reason;

pub(crate) use unreadable::unreadable;

/// Exit codes of `weir serve` that say something of the store.
const EXIT_OTHER_CLUSTER: i32 = 3;
const EXIT_BAD_STORE: i32 = 5;

/// One condition, before it has a time.
struct Said {
    what: Reason,
    message: String,
}

impl Said {
    fn is(&self, status: &str) -> bool {
        self.what.status == status
    }
}

fn said(what: Reason, message: impl Into<String>) -> Said {
    Said { what, message: message.into() }
}

/// The status of this pass.
pub(crate) fn status(
    facts: &Facts<'_>,
    operation: Option<&Operation>,
    paused: bool,
    refresh_counts: bool,
) -> StreamClusterStatus {
    let cluster = facts.cluster;
    let before = cluster.status.as_ref();
    let nodes: Vec<NodeState> = facts.nodes.values().map(|n| node_state(facts, n, refresh_counts)).collect();
    let ready = facts.wanted().filter(|n| n.health == Health::Ready).count();
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let blocked = blocked(facts);
    let conditions = conditions(facts, operation, paused, blocked.as_deref());
    let (state, message) = state(facts, operation, paused, blocked, &conditions);
    let streams = facts.log.map(|l| l.streams);
    let had = before.and_then(|s| s.streams);
    let mut now = StreamClusterStatus {
        observed_generation: cluster.metadata.generation,
        state: Some(state),
        message,
        ready: format!("{ready}/{}", cluster.spec.replicas),
        replicas: count(facts.observed.pods.iter().filter(|p| p.deleting_since_ms.is_none()).count()),
        ready_replicas: count(ready),
        updated_replicas: count(facts.wanted().filter(|n| n.pod.is_some() && !n.outdated).count()),
        selector: names::selector(&cluster.name_any()),
        cluster_uid: facts.cluster_uid(),
        image: image_in_use(facts),
        leader: facts.log.and_then(|l| l.leader.as_ref()).map(ToString::to_string),
        version: version(facts),
        streams: if refresh_counts || had.is_none() { streams } else { had },
        slots: facts.log.map(|l| l.nodes.iter().map(|n| u64::from(n.slots.get())).sum()),
        nodes,
        operation: operation.map(|o| OperationState {
            kind: format!("{:?}", o.kind),
            node: names::pod(&cluster.name_any(), o.ordinal),
            step: o.step.clone(),
        }),
        conditions: with_times(cluster, facts.observed.now_ms, conditions),
    };
    if let Some(before) = before.filter(|_| !refresh_counts) {
        steady::steady(&mut now, before);
    }
    now
}

/// What a cluster keeps that names no image. One that is named counts once all nodes run it, so that taking a bad one back
/// leads back to the last good one.
fn image_in_use(facts: &Facts<'_>) -> Option<String> {
    let before = facts.cluster.status.as_ref().and_then(|s| s.image.clone());
    let runs = facts.wanted().all(|n| n.health == Health::Ready && !n.outdated);
    match facts.cluster.spec.image {
        Some(_) if !runs => before,
        Some(_) | None => Some(facts.image.clone()),
    }
}

fn version(facts: &Facts<'_>) -> Option<String> {
    let mut all: Vec<&String> = facts.observed.probes.values().filter_map(|p| p.version.as_ref()).collect();
    all.sort_unstable();
    all.dedup();
    let joined = all.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    (!joined.is_empty()).then_some(joined)
}

fn node_state(facts: &Facts<'_>, node: &Node<'_>, refresh_counts: bool) -> NodeState {
    let before = facts.cluster.status.as_ref();
    let had = before.and_then(|s| s.nodes.iter().find(|n| n.ordinal == node.ordinal));
    let log = node.log;
    let streams = log.map(|l| l.assigned_streams);
    let had_streams = had.and_then(|n| n.streams);
    // What the record says of the node stays known while nobody shows it: an empty volume must not pass for a first one.
    let known = |now: Option<u64>, before: Option<u64>| now.or(before.filter(|_| facts.log.is_none()));
    NodeState {
        name: node.id.to_string(),
        ordinal: node.ordinal,
        ready: node.health == Health::Ready,
        pod_uid: log
            .map(|l| l.incarnation.to_string())
            .or_else(|| had.filter(|_| facts.log.is_none())?.pod_uid.clone()),
        epoch: known(log.map(|l| l.epoch.0), had.and_then(|n| n.epoch)),
        raft_id: known(log.map(|l| l.raft_id.0), had.and_then(|n| n.raft_id)),
        voter: match facts.log.and_then(|l| l.members.as_ref()) {
            Some(_) => node.member.is_some_and(|m| m.voter),
            None => had.is_some_and(|n| n.voter),
        },
        slots: Some(SlotsState { desired: node.slots, applied: log.map(|l| l.slots.get()) }),
        streams: if refresh_counts || had_streams.is_none() { streams } else { had_streams },
        draining: log.is_some_and(|l| l.draining),
        draining_since: node.draining_since_ms.map(seconds),
        updated: node.pod.is_some() && !node.outdated,
        host: node.pod.and_then(|p| p.host.clone()),
        volume: node.pod.map(|p| p.claim.clone()),
        message: node_message(facts, node),
    }
}

fn node_message(facts: &Facts<'_>, node: &Node<'_>) -> String {
    match facts.observed.foreign_pods.get(node.id.as_str()) {
        Some(Stranger::Foreign) => return format!("Pod {} is there and belongs to somebody else", node.id),
        Some(Stranger::Unlabelled) => return "its pod is without its label".to_owned(),
        Some(Stranger::Leaving) => return "a pod of its name is still stopping".to_owned(),
        None => {}
    }
    let waits = node.volume.is_none() && node.wanted;
    match crate::plan::may_replace_data(facts, node) {
        Err(why) if waits => why,
        _ => node.trouble(),
    }
}

/// What a person has to see to.
fn blocked(facts: &Facts<'_>) -> Option<String> {
    if let Some(e) = &facts.unbuildable {
        return Some(e.to_string());
    }
    if let Some(why) = &facts.foreign_log {
        return Some(why.clone());
    }
    if let Tokens::Unusable(why) = &facts.observed.tokens {
        return Some(why.clone());
    }
    let taken = crate::plan::taken(facts);
    if !taken.is_empty() {
        return Some(format!("{} belongs to somebody else; the cluster needs that name", taken.join(", ")));
    }
    let mut pods = facts.observed.foreign_pods.iter();
    if let Some((name, _)) = pods.find(|(_, s)| **s == Stranger::Unlabelled) {
        let label = names::selector(&facts.cluster.name_any());
        return Some(format!("Pod {name} is without its label {label}: put it back, or delete the pod"));
    }
    None
}

fn conditions(
    facts: &Facts<'_>,
    operation: Option<&Operation>,
    paused: bool,
    blocked: Option<&str>,
) -> Vec<Said> {
    let quorum = quorum(facts);
    let storage = storage(facts);
    let ready = ready(facts, &quorum, &storage, blocked);
    let progressing = progressing(facts, operation, paused);
    let degraded = degraded(facts, operation, blocked);
    let reconciling = match progressing.is("True") {
        true => said(reasons::RECONCILING, progressing.message.clone()),
        false => said(reasons::RECONCILED, ""),
    };
    let stalled = match blocked {
        Some(why) => said(reasons::STALLED, why),
        None => said(reasons::NOT_STALLED, ""),
    };
    vec![ready, progressing, degraded, quorum, slots(facts), storage, reconciling, stalled]
}

fn quorum(facts: &Facts<'_>) -> Said {
    let Some(log) = facts.log else {
        return match (facts.cluster_uid(), facts.observed.pods.is_empty()) {
            (None, _) => said(reasons::NOT_FOUNDED, "the metadata log is not founded yet"),
            (Some(_), true) => said(reasons::NO_NODES, "no node is there"),
            (Some(_), false) => said(reasons::QUORUM_NO_ANSWER, no_record(facts)),
        };
    };
    let Some(members) = &log.members else {
        return match (&log.leader, &log.members_error) {
            (Some(leader), Some(why)) => {
                let text = format!("{leader} leads and does not say who votes: {}", crate::facts::cut(why));
                said(reasons::QUORUM_NO_ANSWER, text)
            }
            _ => said(reasons::NO_LEADER, no_leader(facts)),
        };
    };
    let voters = members.members.iter().filter(|m| m.voter);
    let silent: Vec<String> = voters
        .clone()
        .filter(|m| !m.leader && m.heard_ms_ago.is_none_or(|ms| ms > 3_000))
        .map(|m| m.node.as_ref().map_or_else(|| format!("raft id {}", m.raft_id), ToString::to_string))
        .collect();
    match members.quorum_healthy {
        Some(true) if silent.is_empty() => {
            said(reasons::ALL_VOTERS_HEARD, format!("{} voters", voters.count()))
        }
        Some(true) => said(reasons::MAJORITY_HEARD, format!("silent: {}", silent.join(", "))),
        Some(false) => said(reasons::NO_MAJORITY, format!("silent voters: {}", silent.join(", "))),
        None => said(reasons::NO_LEADER, no_leader(facts)),
    }
}

/// Who voted when a leader was last heard, and does not run or answer now.
fn no_leader(facts: &Facts<'_>) -> String {
    let voted = |n: &&Node<'_>| {
        let told = facts.cluster.status.iter().flat_map(|s| &s.nodes);
        told.into_iter().any(|had| had.ordinal == n.ordinal && had.voter)
    };
    let answers = |n: &Node<'_>| {
        facts.observed.probes.get(n.id.as_str()).is_some_and(|p| p.error.is_none() && p.ready.is_some())
    };
    let silent: Vec<String> =
        facts.nodes.values().filter(voted).filter(|n| !answers(n)).map(|n| n.id.to_string()).collect();
    match silent.is_empty() {
        true => "no leader of the metadata log answers".to_owned(),
        false => format!("no leader of the metadata log answers; silent voters: {}", silent.join(", ")),
    }
}

/// Who was asked for the record, and what came of it.
fn no_record(facts: &Facts<'_>) -> String {
    let asked = facts.observed.probes.iter();
    let refused: Vec<String> = asked
        .filter_map(|(node, p)| Some(format!("{node}: {}", crate::facts::cut(p.error.as_ref()?))))
        .collect();
    match refused.is_empty() {
        true => "no node shows the cluster's record".to_owned(),
        false => format!("no node shows the cluster's record; {}", refused.join("; ")),
    }
}

fn slots(facts: &Facts<'_>) -> Said {
    if facts.log.is_none() {
        return said(reasons::SLOTS_NO_ANSWER, no_record(facts));
    }
    let differs = |n: &&Node<'_>| n.log.is_some_and(|l| l.slots.get() != n.slots);
    let behind: Vec<String> = facts.wanted().filter(differs).map(|n| n.id.to_string()).collect();
    match behind.is_empty() {
        true => said(reasons::APPLIED, ""),
        false => said(reasons::APPLYING, format!("not applied yet: {}", behind.join(", "))),
    }
}

fn storage(facts: &Facts<'_>) -> Said {
    if let CredentialsView::Missing(why) = &facts.observed.credentials {
        return said(reasons::CREDENTIALS_MISSING, why.clone());
    }
    let ended = |code: i32| {
        facts.wanted().find_map(|n| {
            let pod = n.pod.filter(|p| !p.ready)?;
            let (ended, words) = pod.ended.as_ref()?;
            (*ended == code).then(|| format!("{}: {}", n.id, crate::facts::cut(words)))
        })
    };
    if let Some(why) = ended(EXIT_BAD_STORE) {
        return said(reasons::PROPERTY_MISSING, why);
    }
    if let Some(why) = ended(EXIT_OTHER_CLUSTER) {
        return said(reasons::OTHER_CLUSTER, why);
    }
    let about_store = |code: &str| matches!(code, "store" | "wal" | "segments");
    let told = facts.wanted().find_map(|n| {
        let probe = facts.observed.probes.get(n.id.as_str())?;
        let reason = probe.ready.as_ref()?.reasons.iter().find(|r| about_store(&r.code))?;
        Some(format!("{}: {}", n.id, crate::facts::cut(&reason.detail)))
    });
    if let Some(why) = told {
        return said(reasons::STORE_TROUBLE, why);
    }
    match facts.wanted().any(|n| n.health == Health::Ready) {
        true => said(reasons::PROBED, ""),
        false => said(reasons::NOT_PROBED, "no node has come far enough to tell"),
    }
}

fn ready(facts: &Facts<'_>, quorum: &Said, storage: &Said, blocked: Option<&str>) -> Said {
    let missing: Vec<String> = facts
        .wanted()
        .filter(|n| n.health != Health::Ready)
        .map(|n| format!("{}: {}", n.id, node_message(facts, n)))
        .collect();
    if !missing.is_empty() {
        let why = blocked.map_or_else(|| missing.join("; "), str::to_owned);
        return said(reasons::NODES_NOT_READY, crate::facts::cut(&why));
    }
    if storage.is("False") {
        return said(reasons::STORAGE_NOT_READY, storage.message.clone());
    }
    match quorum.what.status {
        "True" if facts.voters_missing().is_some() => said(reasons::VOTERS_MISSING, voters_missing(facts)),
        "True" => said(reasons::ALL_NODES_READY, ""),
        "False" => said(reasons::NO_QUORUM, quorum.message.clone()),
        _ => said(reasons::READY_NO_ANSWER, quorum.message.clone()),
    }
}

fn progressing(facts: &Facts<'_>, operation: Option<&Operation>, paused: bool) -> Said {
    if paused {
        let text = format!("annotation {} is true: nothing is changed", names::PAUSED);
        return said(reasons::PAUSED, text);
    }
    if let Some(o) = operation {
        let reason = match o.kind {
            OperationKind::Remove => reasons::SCALING_DOWN,
            OperationKind::Restart => reasons::ROLLING,
            OperationKind::Replace => reasons::REPLACING,
            OperationKind::Drain => reasons::DRAINING,
        };
        let node = names::pod(&facts.cluster.name_any(), o.ordinal);
        return said(reason, format!("{node}: {}", o.step));
    }
    let coming: Vec<String> = facts
        .wanted()
        .filter(|n| !matches!(n.health, Health::Ready | Health::Broken(_) | Health::Stranded(_)))
        .map(|n| n.id.to_string())
        .collect();
    match coming.is_empty() {
        true if facts.voters_missing().is_some() => said(reasons::GATHERING_VOTERS, voters_missing(facts)),
        true => said(reasons::SETTLED, ""),
        false => said(reasons::STARTING_NODES, format!("waiting for {}", coming.join(", "))),
    }
}

fn voters_missing(facts: &Facts<'_>) -> String {
    let (have, want) = facts.voters_missing().unwrap_or_default();
    format!("{have} of {want} nodes vote in the metadata log")
}

fn degraded(facts: &Facts<'_>, operation: Option<&Operation>, blocked: Option<&str>) -> Said {
    if let Some(why) = blocked {
        return said(reasons::BLOCKED, why);
    }
    let bad: Vec<&Node<'_>> =
        facts.wanted().filter(|n| matches!(n.health, Health::Broken(_) | Health::Stranded(_))).collect();
    if let Some(node) = bad.first() {
        let rolling = facts.nodes.values().any(|n| n.outdated);
        let reason = match (&node.health, rolling, node.outdated) {
            (Health::Stranded(_), _, _) => reasons::HOST_LOST,
            // The newest template does not come up: the roll stops here.
            (_, true, false) => reasons::ROLLOUT_FAILED,
            _ => reasons::NODE_BROKEN,
        };
        let all: Vec<String> = bad.iter().map(|n| format!("{}: {}", n.id, n.trouble())).collect();
        return said(reason, all.join("; "));
    }
    if let Some(o) = operation.filter(|o| o.actions.is_empty() && o.kind == OperationKind::Replace) {
        return said(reasons::REPLACEMENT_WAITS, o.step.clone());
    }
    let waits =
        facts.wanted().find(|n| n.volume.is_none() && crate::plan::may_replace_data(facts, n).is_err());
    if let Some(node) = waits {
        return said(reasons::VOLUME_LOST, format!("{}: {}", node.id, node_message(facts, node)));
    }
    let wanted = crate::resources::volume::quantity(&facts.cluster.spec.metadata.volume.size);
    // Where the spec asks for no more than there is, nobody waits for the rest.
    let missed = |v: &&VolumeView| v.capacity == 0 || wanted.is_none_or(|w| w > v.capacity);
    let mut volumes = facts.observed.volumes.iter().filter(missed);
    let resize = volumes.find_map(|v| Some((v, v.resize_error.as_ref()?)));
    if let Some((v, why)) = resize {
        return said(reasons::RESIZE_FAILED, format!("{}: {}", v.name, crate::facts::cut(why)));
    }
    said(reasons::AS_EXPECTED, "")
}

fn state(
    facts: &Facts<'_>,
    operation: Option<&Operation>,
    paused: bool,
    blocked: Option<String>,
    conditions: &[Said],
) -> (ClusterState, String) {
    let find = |kind| conditions.iter().find(|c| c.what.kind == kind);
    let message = |kind| find(kind).map(|c| c.message.clone()).unwrap_or_default();
    if paused {
        return (ClusterState::Paused, message("Progressing"));
    }
    if let Some(why) = blocked {
        return (ClusterState::Blocked, why);
    }
    if let Some(o) = operation {
        let state = match o.kind {
            OperationKind::Remove => ClusterState::ScalingDown,
            OperationKind::Restart => ClusterState::Rolling,
            OperationKind::Replace => ClusterState::Replacing,
            OperationKind::Drain => ClusterState::Draining,
        };
        return (state, message("Progressing"));
    }
    if find("Ready").is_some_and(|c| c.is("True")) {
        return (ClusterState::Ready, String::new());
    }
    if facts.cluster_uid().is_none() {
        return (ClusterState::Creating, message("Ready"));
    }
    let known = facts.cluster.status.as_ref();
    let is_new = |n: &Node<'_>| !n.was_member(known) && n.health != Health::Ready;
    match facts.wanted().any(is_new) {
        true => (ClusterState::ScalingUp, message("Ready")),
        false => (ClusterState::Waiting, message("Ready")),
    }
}

/// The status while nothing can be read: every condition is unknown, and why. What must not be forgotten stays.
pub(crate) fn unknown(cluster: &StreamCluster, why: &str, now_ms: i64) -> StreamClusterStatus {
    let before = cluster.status.clone().unwrap_or_default();
    let why = crate::facts::cut(why);
    let unknown = [
        reasons::READY_NOT_OBSERVED,
        reasons::PROGRESSING_NOT_OBSERVED,
        reasons::DEGRADED_NOT_OBSERVED,
        reasons::QUORUM_NOT_OBSERVED,
        reasons::SLOTS_NOT_OBSERVED,
        reasons::STORAGE_NOT_OBSERVED,
        // For tools, it is still at it.
        reasons::RECONCILING_NOT_OBSERVED,
    ];
    let mut all: Vec<Said> = unknown.map(|what| said(what, why.clone())).into();
    all.push(said(reasons::NOT_STALLED, ""));
    let mut now = StreamClusterStatus {
        state: Some(ClusterState::Waiting),
        message: why,
        conditions: with_times(cluster, now_ms, all),
        ..before.clone()
    };
    steady::steady(&mut now, &before);
    now
}

/// As the status holds times.
fn seconds(ms: i64) -> Time {
    Time(jiff::Timestamp::from_millisecond(ms / 1000 * 1000).unwrap_or_default())
}

/// A condition keeps the time at which its status became what it is.
fn with_times(cluster: &StreamCluster, now_ms: i64, all: Vec<Said>) -> Vec<Condition> {
    let before = cluster.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let now = seconds(now_ms);
    let with_time = |Said { what: Reason { kind, status, reason }, message }| {
        let had = before.iter().find(|c| c.type_ == kind && c.status == status);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.chars().take(1000).collect(),
            observed_generation: cluster.metadata.generation,
            last_transition_time: had.map_or(now.clone(), |c| c.last_transition_time.clone()),
        }
    };
    all.into_iter().map(with_time).collect()
}

/// Nothing is going on and nothing is waited for.
pub(crate) fn is_settled(status: &StreamClusterStatus) -> bool {
    let is = |kind: &str, value: &str| status.conditions.iter().any(|c| c.type_ == kind && c.status == value);
    is("Ready", "True") && is("Progressing", "False") && is("SlotsSynced", "True")
}

/// Conditions that turned, as events.
pub(crate) fn transitions(before: Option<&StreamClusterStatus>, now: &StreamClusterStatus) -> Vec<Note> {
    let had = |kind: &str| before?.conditions.iter().find(|c| c.type_ == kind);
    let mut notes = Vec::new();
    for condition in &now.conditions {
        let (status, old) = (condition.status.as_str(), had(&condition.type_).map(|c| c.status.as_str()));
        if old == Some(status) {
            continue;
        }
        let (warning, reason) = match (condition.type_.as_str(), status, old) {
            ("Ready", "True", _) => (false, "Ready"),
            ("Ready", "False", Some("True")) => (true, "NotReady"),
            ("Degraded", "True", _) => (true, "Degraded"),
            ("QuorumHealthy", "False", _) => (true, "QuorumLost"),
            ("StorageReady", "False", _) => (true, "StorageNotReady"),
            _ => continue,
        };
        let text = match condition.message.is_empty() {
            true => condition.reason.clone(),
            false => format!("{}: {}", condition.reason, condition.message),
        };
        notes.push(Note { warning, reason, text });
    }
    notes
}

/// Whether two statuses differ in more than counts that change all the time.
pub fn differs_but_for_counts(a: &StreamClusterStatus, b: &StreamClusterStatus) -> bool {
    let bare = |s: &StreamClusterStatus| {
        let mut s = s.clone();
        s.streams = None;
        s.nodes.iter_mut().for_each(|n| n.streams = None);
        s
    };
    bare(a) != bare(b)
}

/// The status with what could not be done in it.
pub(crate) fn with_failures(
    cluster: &StreamCluster,
    mut status: StreamClusterStatus,
    failures: &[String],
) -> StreamClusterStatus {
    let Some(first) = failures.first() else { return status };
    let message: String = failures.join("; ").chars().take(1000).collect();
    let had = cluster.status.iter().flat_map(|s| &s.conditions);
    for condition in status.conditions.iter_mut().filter(|c| c.type_ == "Degraded") {
        if condition.status != "True" {
            let before = had.clone().find(|c| c.type_ == "Degraded" && c.status == "True");
            if let Some(before) = before {
                condition.last_transition_time = before.last_transition_time.clone();
            }
            condition.status = "True".to_owned();
        }
        condition.reason = reasons::ACTION_FAILED.reason.to_owned();
        condition.message = message.clone();
    }
    if status.message.is_empty() || status.state == Some(ClusterState::Creating) {
        status.message = first.chars().take(300).collect();
    }
    status
}
