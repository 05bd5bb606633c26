//! The one thing that is being done to a node.
//!
//! Invariant: at most one operation claims the cluster at a time, by fixed priority: replace what is on a lost host, finish
//! a removal, replace what is broken, restart what is outdated, drain where asked. Each is a row of steps, and which step
//! comes next follows from what is observed. An operation that must wait for something that another one could bring about
//! does not claim the cluster (most operators that are stuck have two such machines waiting for each other).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use weir_api::NodeEpoch;

use crate::action::Action;
use crate::crd::UpdateStrategy;
use crate::facts::{Facts, Health, Node};
use crate::observed::{CredentialsView, PodView, Stranger, VolumeView};
use crate::resources::volume;

/// The longest that a pod which is over is left before it is followed by another, from when it was made.
const RETRY_MAX_MS: i64 = 300_000;
/// How long a node that runs must have been unready before a changed template is tried on it.
const OUTAGE_MS: i64 = 120_000;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// A node leaves.
    Remove,
    /// A pod takes the newest template.
    Restart,
    /// A pod, and perhaps its volume, is given up.
    Replace,
    /// A node gives its streams away and stays.
    Drain,
}

/// An operation, with its next step.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// What.
    pub kind: OperationKind,
    /// To which node.
    pub ordinal: u32,
    /// Where it stands, for people.
    pub step: String,
    /// Now.
    pub actions: Vec<Action>,
    /// It wants the node drained.
    pub drains: bool,
    /// Nothing of lower priority is begun.
    claims: bool,
}

impl Operation {
    fn act(kind: OperationKind, node: &Node<'_>, step: impl Into<String>, action: Action) -> Self {
        let drains = matches!(kind, OperationKind::Remove | OperationKind::Restart | OperationKind::Drain);
        Self { kind, ordinal: node.ordinal, step: step.into(), actions: vec![action], drains, claims: true }
    }

    fn wait(kind: OperationKind, node: &Node<'_>, step: impl Into<String>) -> Self {
        let drains = matches!(kind, OperationKind::Remove | OperationKind::Restart | OperationKind::Drain);
        Self { kind, ordinal: node.ordinal, step: step.into(), actions: Vec::new(), drains, claims: true }
    }

    /// Waits for another node that is disturbed: one that serves is let go in this pass, any other may need an operation
    /// of its own first.
    fn beside(kind: OperationKind, node: &Node<'_>, other: &Node<'_>, step: impl Into<String>) -> Self {
        Self { claims: other.is_serving(), ..Self::wait(kind, node, step) }
    }

    /// Waits for something that another operation may bring about.
    fn hold(kind: OperationKind, node: &Node<'_>, step: impl Into<String>) -> Self {
        Self { claims: false, drains: kind == OperationKind::Remove, ..Self::wait(kind, node, step) }
    }
}

/// The operation of this pass: the first that claims the cluster, else the first that waits.
pub(super) fn choose(facts: &Facts<'_>) -> Option<Operation> {
    let by_priority = [lost_host, removal, broken, outdated, drain];
    let mut held = None;
    for next in by_priority {
        match next(facts) {
            Some(operation) if operation.claims => return Some(operation),
            Some(operation) => held = held.or(Some(operation)),
            None => {}
        }
    }
    held
}

fn delete_pod(node: &Node<'_>, force: bool, why: String) -> Option<Action> {
    let pod = node.pod?;
    Some(Action::DeletePod { name: pod.name.clone(), uid: pod.uid.clone(), force, why })
}

fn give_up(v: &VolumeView, why: &str) -> Action {
    Action::PatchVolume {
        name: v.name.clone(),
        uid: v.uid.clone(),
        patch: volume::abandon(why),
        gives_up: true,
        why: why.to_owned(),
    }
}

/// A pod on a lost host: its session is ended first, so that its process, which may still run, acknowledges nothing; its
/// volume stays where it is and is never used again, so that it cannot vote twice.
fn lost_host(facts: &Facts<'_>) -> Option<Operation> {
    let kind = OperationKind::Replace;
    let stranded = |n: &&Node<'_>| matches!(n.health, Health::Stranded(_));
    let all = || facts.nodes.values().filter(stranded);
    // One that was begun goes on.
    let node = all().find(|n| n.volume.is_some_and(|v| v.abandoned)).or_else(|| all().next())?;
    let why = node.trouble();
    if let Err(wait) = facts.safe_for_good(node) {
        return Some(Operation::hold(kind, node, format!("{why}; {wait}")));
    }
    if let Some(other) = facts.replacement_beside(node.ordinal) {
        let step = format!("{why}; waiting until {} is back with its new volume", other.id);
        return Some(Operation::hold(kind, node, step));
    }
    if let Some(log) = node.log.filter(|l| l.alive && node.is_registered()) {
        if let Some(other) = facts.draining_beside(node.ordinal).or_else(|| in_transit_beside(facts, node)) {
            return Some(Operation::beside(
                kind,
                node,
                other,
                format!("{why}; {} is being disturbed", other.id),
            ));
        }
        let action = Action::EndSession { node: node.id.clone(), epoch: log.epoch, why: why.clone() };
        return Some(Operation::act(kind, node, format!("{why}; ending its session"), action));
    }
    let mut operation = Operation::wait(kind, node, format!("{why}; giving its pod up"));
    if let Some(v) = node.volume.filter(|v| node.wanted && !v.abandoned) {
        operation.actions.push(give_up(v, &why));
    }
    operation.actions.extend(delete_pod(node, true, why));
    Some(operation)
}

/// Nodes beyond the wanted number, highest first: drained, stopped, removed from the record.
fn removal(facts: &Facts<'_>) -> Option<Operation> {
    let kind = OperationKind::Remove;
    let leaving = |n: &&Node<'_>| !n.wanted && (n.pod.is_some() || n.log.is_some());
    // One that is gone already goes first: its vote is missed until it has left. Then one that is drained or stopping.
    let gone = |n: &&Node<'_>| n.log.is_some_and(|l| !l.alive) && n.pod.is_none_or(|p| !p.running);
    let begun = |n: &&Node<'_>| {
        n.health == Health::Stopping || n.pod.is_none() || n.log.is_some_and(|l| l.draining || !l.alive)
    };
    let all = || facts.nodes.values().rev().filter(leaving);
    let node = all().find(gone).or_else(|| all().find(begun)).or_else(|| all().next())?;
    if facts.log.is_none() {
        // Nobody ever served: there is nothing to drain.
        if facts.cluster_uid().is_none() && node.health != Health::Stopping {
            let action = delete_pod(node, false, "not wanted any more".to_owned())?;
            return Some(Operation::act(kind, node, "stopping its pod", action));
        }
        return Some(Operation::hold(kind, node, "no node shows the cluster's record"));
    }
    match (node.pod, node.log) {
        (Some(_), _) if node.health == Health::Stopping => {
            Some(Operation::wait(kind, node, "its pod is stopping"))
        }
        (Some(_), Some(log)) if log.alive => remove_live(facts, node),
        (Some(_), _) => {
            if let Err(wait) = facts.safe_for_good(node) {
                return Some(Operation::hold(kind, node, wait));
            }
            let action = delete_pod(node, false, "not wanted any more, and not serving".to_owned())?;
            Some(Operation::act(kind, node, "stopping its pod", action))
        }
        (None, Some(_)) if facts.quorum() != Some(true) => {
            Some(Operation::hold(kind, node, "the metadata log has no healthy majority"))
        }
        (None, Some(log)) if log.alive => end_session(facts, node, log.epoch),
        (None, Some(_)) => match node.drain.map(|d| d.remaining_streams) {
            None => {
                Some(Operation::hold(kind, node, "nobody says how many of its streams wait for recovery"))
            }
            Some(0) => {
                let why = "drained and stopped".to_owned();
                let action = Action::RemoveNode { node: node.id.clone(), why };
                Some(Operation::act(kind, node, "removing it from the cluster's record", action))
            }
            Some(n) => Some(Operation::wait(kind, node, format!("{n} of its streams wait for recovery"))),
        },
        (None, None) => None,
    }
}

/// Another wanted node that was disturbed lately: also one whose pod is made in this very pass, or was a moment ago.
fn in_transit_beside<'f>(facts: &'f Facts<'_>, node: &Node<'_>) -> Option<&'f Node<'f>> {
    // As `apply` words it.
    let told = facts.cluster.status.iter().flat_map(|s| &s.conditions);
    let failed: Vec<&Condition> =
        told.filter(|c| c.type_ == "Degraded" && c.reason == "ActionFailed").collect();
    let fails = |n: &Node<'_>| failed.iter().any(|c| c.message.contains(&format!("creating Pod {}:", n.id)));
    let lacks = failed.iter().any(|c| c.message.contains("creating PersistentVolumeClaim "));
    let has_secret = !matches!(facts.observed.credentials, CredentialsView::Missing(_));
    let starts = |n: &Node<'_>| match (&n.health, n.pod) {
        (Health::Absent, _) if facts.observed.foreign_pods.get(n.id.as_str()) == Some(&Stranger::Foreign) => {
            false
        }
        (Health::Absent, _) => {
            let has_data = n.volume.is_some() || super::nodes::may_replace_data(facts, n).is_ok();
            !fails(n) && !lacks && has_secret && has_data && facts.unbuildable.is_none()
        }
        (Health::Pending(_), Some(pod)) => pod.unscheduled.is_none(),
        _ => false,
    };
    let others = || facts.wanted().filter(|n| n.ordinal != node.ordinal);
    facts.in_transit_beside(node.ordinal).or_else(|| others().find(|n| n.log.is_some() && starts(n)))
}

/// A process without a pod, that may run for ever on a host that nobody hears of.
fn end_session(facts: &Facts<'_>, node: &Node<'_>, epoch: NodeEpoch) -> Option<Operation> {
    let kind = OperationKind::Remove;
    if let Err(wait) = facts.safe_for_good(node) {
        return Some(Operation::hold(kind, node, wait));
    }
    if let Some(other) = facts.draining_beside(node.ordinal).or_else(|| in_transit_beside(facts, node)) {
        return Some(Operation::beside(kind, node, other, format!("{} is being disturbed", other.id)));
    }
    let why = "it is not wanted any more, and its pod is gone".to_owned();
    let action = Action::EndSession { node: node.id.clone(), epoch, why };
    Some(Operation::act(kind, node, "ending its session", action))
}

fn remove_live(facts: &Facts<'_>, node: &Node<'_>) -> Option<Operation> {
    let kind = OperationKind::Remove;
    let log = node.log?;
    if let Err(wait) = facts.safe_without(node) {
        return Some(Operation::hold(kind, node, wait));
    }
    if !log.draining {
        if let Some(other) = facts.draining_beside(node.ordinal) {
            return Some(Operation {
                drains: false,
                ..Operation::beside(kind, node, other, format!("{}: it drains", other.id))
            });
        }
        if let Some(other) = in_transit_beside(facts, node) {
            return Some(Operation::hold(kind, node, format!("{}: {}", other.id, other.trouble())));
        }
        if !facts.members_settled() {
            return Some(Operation::hold(kind, node, "the metadata log's membership is changing"));
        }
    }
    match node.drain {
        Some(drain) if log.draining && drain.remaining_streams == 0 => {
            if let Some(other) = in_transit_beside(facts, node) {
                return Some(Operation::hold(kind, node, format!("{}: {}", other.id, other.trouble())));
            }
            if facts.has_only_vote(node) {
                let step = "its vote, the only one, is given to another";
                // Others may have to be healed before one can take it.
                return Some(Operation {
                    claims: facts.sole_voter(node),
                    ..Operation::wait(kind, node, step)
                });
            }
            let why = "drained, and not wanted any more".to_owned();
            Some(Operation::act(kind, node, "stopping its pod", delete_pod(node, false, why)?))
        }
        Some(drain) if log.draining && drain.state != weir_api::admin::DrainState::GaveUp => {
            let step = format!("{} streams to give away", drain.remaining_streams);
            let claims = facts.nodes.values().any(takes_streams);
            Some(Operation { claims, ..Operation::wait(kind, node, step) })
        }
        Some(_) | None => {
            let others_take = facts.nodes.values().any(|n| n.ordinal != node.ordinal && takes_streams(n));
            if log.assigned_streams > 0 && !others_take {
                return Some(Operation::hold(kind, node, "no other node could take its streams"));
            }
            let action = Action::Drain { node: node.id.clone(), why: "it is to be removed".to_owned() };
            Some(Operation::act(kind, node, "draining", action))
        }
    }
}

/// Pods that are over, or broken and made from an old template: a new one cannot be worse. And in a total outage, pods
/// that are merely unready, for the fix may be in the new template. Under `OnDelete` those that run are left alone.
fn broken(facts: &Facts<'_>) -> Option<Operation> {
    let kind = OperationKind::Replace;
    let outage = facts.wanted().all(|n| n.health != Health::Ready);
    // An election, or a hiccup of the store, takes a moment too; only what lasts may call for another template.
    let lasts = |n: &Node<'_>| n.pod.is_some_and(|p| facts.observed.now_ms - p.ready_changed_ms >= OUTAGE_MS);
    // One that has just come up may be the vote that was missing.
    let all_last = facts.nodes.values().filter(|n| n.pod.is_some_and(|p| p.running)).all(&lasts);
    // What does not run at all comes first: the others may be waiting for its vote.
    let runs = |n: &&Node<'_>| n.pod.is_some_and(|p| p.running);
    let by_operator = facts.cluster.spec.update.strategy == UpdateStrategy::Rolling;
    let outdated = |n: &&Node<'_>| n.outdated && (by_operator || !runs(n));
    let replaceable = |n: &&Node<'_>| match &n.health {
        Health::Broken(_) => {
            let is_over = |p: &PodView| p.finished.is_some() && facts.observed.now_ms >= retry_ms(facts, p);
            outdated(n) || n.has_spoiled_volume() || n.pod.is_some_and(is_over)
        }
        Health::Pending(_) => {
            outdated(n) || n.has_spoiled_volume() || n.has_unreachable_volume(facts.observed.now_ms)
        }
        Health::Starting(_) => outdated(n) && !n.is_serving(),
        Health::Unready(_) => outdated(n) && !n.blameless && lasts(n),
        Health::Absent | Health::Stopping | Health::Stranded(_) | Health::Ready => false,
    };
    // Who is to leave, and whose vote is missing, must come up first.
    let of_use = |n: &&Node<'_>| n.wanted || (!runs(n) && facts.is_needed_for_quorum(n));
    let node = facts.nodes.values().rev().filter(of_use).filter(replaceable).min_by_key(runs)?;
    let why = node.trouble();
    if let Err(wait) = may_be_made(facts) {
        return Some(Operation::hold(kind, node, format!("{why}; {wait}")));
    }
    let dead = !node.pod.is_some_and(|p| p.running);
    // What does not run holds no vote that could be lost by stopping it.
    if !dead {
        let drains =
            |n: &&Node<'_>| n.ordinal != node.ordinal && n.is_disturbed_by_drain(facts.observed.now_ms);
        if let Some(other) = facts.nodes.values().filter(|_| node.is_serving()).find(drains) {
            return Some(Operation::hold(kind, node, format!("{why}; {}: it drains", other.id)));
        }
        if let Err(wait) = facts.safe_without(node)
            && !(outage
                && all_last
                && !facts.may_have_quorum()
                && facts.quorum_missed_ms().min(facts.record_missed_ms()) >= OUTAGE_MS)
        {
            return Some(Operation::hold(kind, node, format!("{why}; {wait}")));
        }
        // The newest template is tried on one node; where that does not come up, it does not help.
        let now = facts.observed.now_ms;
        let fails = |n: &&Node<'_>| {
            n.ordinal != node.ordinal && n.health != Health::Ready && (!n.outdated || n.is_in_transit(now))
        };
        if facts.quorum() == Some(true)
            && let Some(other) = facts.nodes.values().find(fails)
        {
            return Some(Operation::hold(
                kind,
                node,
                format!("{why}; waiting for {}: {}", other.id, other.trouble()),
            ));
        }
        if let Some(other) = facts.wanted().find(|n| n.ordinal != node.ordinal && is_coming(facts, n)) {
            return Some(Operation::wait(kind, node, format!("{why}; {}: {}", other.id, other.trouble())));
        }
    }
    let unreachable = node.has_unreachable_volume(facts.observed.now_ms);
    if (node.has_spoiled_volume() || unreachable)
        && let Err(wait) = super::nodes::may_replace_data(facts, node)
    {
        return Some(Operation::hold(kind, node, wait));
    }
    let mut operation = Operation::wait(kind, node, format!("{why}; replacing its pod"));
    operation.drains = false;
    operation.actions.extend(node.volume.filter(|v| unreachable && !v.abandoned).map(|v| give_up(v, &why)));
    operation.actions.push(delete_pod(node, false, why)?);
    Some(operation)
}

/// When a pod that is over may be followed by another: once it is as old as the trouble was when it was made, so that each
/// of those that a kubelet rejects one after the other stays about twice as long as the one before. One that has run for long
/// is followed at once.
fn retry_ms(facts: &Facts<'_>, pod: &PodView) -> i64 {
    let conditions = facts.cluster.status.iter().flat_map(|s| &s.conditions);
    let trouble = conditions.into_iter().find(|c| c.type_ == "Ready" && c.status != "True");
    let since = trouble.map_or(pod.created_ms, |c| c.last_transition_time.0.as_millisecond());
    pod.created_ms + (pod.created_ms - since).clamp(0, RETRY_MAX_MS)
}

/// Whether a pod that is given up for a new one could be made anew. The error says what is missing.
fn may_be_made(facts: &Facts<'_>) -> Result<(), String> {
    match (&facts.observed.credentials, &facts.unbuildable) {
        (CredentialsView::Missing(why), _) => Err(why.clone()),
        (_, Some(why)) => Err(why.to_string()),
        (_, None) if !super::has_tokens(facts) => Err("the Secret of the admin tokens has none".to_owned()),
        (_, None) => Ok(()),
    }
}

/// Its container was not even started yet.
fn is_coming(facts: &Facts<'_>, node: &Node<'_>) -> bool {
    let young = node.pod.is_some_and(|p| facts.observed.now_ms - p.created_ms < crate::facts::TRANSIT_MS);
    match node.health {
        Health::Stopping => true,
        Health::Starting(_) => young,
        Health::Absent
        | Health::Pending(_)
        | Health::Unready(_)
        | Health::Broken(_)
        | Health::Stranded(_)
        | Health::Ready => false,
    }
}

/// Ready pods of an old template, or with a volume that is to be given up: drained, stopped, made anew; the metadata log's
/// leader last.
fn outdated(facts: &Facts<'_>) -> Option<Operation> {
    let kind = OperationKind::Restart;
    let by_operator = facts.cluster.spec.update.strategy == UpdateStrategy::Rolling;
    let due =
        |n: &&Node<'_>| n.health == Health::Ready && ((n.outdated && by_operator) || n.has_spoiled_volume());
    let rank = |n: &&Node<'_>| {
        let begun = n.log.is_some_and(|l| l.draining) && !n.drain_wanted && !n.cordoned;
        let leads = facts.log.is_some_and(|l| l.leader.as_ref() == Some(&n.id));
        (!begun, leads, std::cmp::Reverse(n.ordinal))
    };
    let node = facts.wanted().filter(due).min_by_key(rank)?;
    if let Err(why) = may_be_made(facts) {
        return Some(Operation::hold(kind, node, why));
    }
    if let Some(other) = facts.unsettled_beside(node.ordinal) {
        return Some(Operation::hold(kind, node, format!("waiting for {other}")));
    }
    if let Err(wait) = facts.safe_without(node) {
        return Some(Operation::hold(kind, node, wait));
    }
    let why = match node.has_spoiled_volume() {
        true => "its volume is to be given up",
        false => "its template has changed",
    };
    if node.has_spoiled_volume()
        && !facts.sole_voter(node)
        && let Err(wait) = super::nodes::may_replace_data(facts, node)
    {
        return Some(Operation::hold(kind, node, wait));
    }
    let others_take = facts.nodes.values().any(|n| n.ordinal != node.ordinal && takes_streams(n));
    // The only vote must not go with its volume. It is a drain that moves it, and nodes refuse one that leads nowhere.
    let holds_all = node.has_spoiled_volume() && facts.has_only_vote(node);
    if !others_take && holds_all {
        let step =
            format!("{why}, it has the only vote, and no other node could take its streams: give one slots");
        return Some(Operation::hold(kind, node, step));
    }
    if !others_take {
        return Some(Operation::act(kind, node, "restarting", delete_pod(node, false, why.to_owned())?));
    }
    let log = node.log?;
    let Some(drain) = node.drain.filter(|_| log.draining) else {
        let action = Action::Drain { node: node.id.clone(), why: why.to_owned() };
        return Some(Operation::act(kind, node, "draining", action));
    };
    let since = node.draining_since_ms.unwrap_or(0);
    let patience = i64::from(facts.cluster.spec.update.drain_timeout_seconds) * 1000;
    let late = facts.observed.now_ms - since >= patience;
    match drain.remaining_streams {
        _ if holds_all => Some(Operation::wait(kind, node, "its vote, the only one, is given to another")),
        0 if facts.sole_voter(node) && !late => {
            Some(Operation::wait(kind, node, "its vote, the only one, is given to another"))
        }
        0 => Some(Operation::act(
            kind,
            node,
            "restarting",
            delete_pod(node, false, format!("{why}; drained"))?,
        )),
        n if late => {
            let why = format!("{why}; {n} streams are left after update.drainTimeoutSeconds");
            Some(Operation::act(kind, node, "restarting", delete_pod(node, false, why)?))
        }
        n if drain.state == weir_api::admin::DrainState::GaveUp => {
            let action = Action::Drain { node: node.id.clone(), why: format!("{why}; {n} streams are left") };
            Some(Operation::act(kind, node, "draining again", action))
        }
        n => Some(Operation::wait(kind, node, format!("{n} streams to give away"))),
    }
}

fn takes_streams(n: &Node<'_>) -> bool {
    n.log.is_some_and(|l| l.alive && !l.draining && l.slots.get() > 0)
}

/// Drains that the spec asks for, and early ones where a host is being emptied.
fn drain(facts: &Facts<'_>) -> Option<Operation> {
    let kind = OperationKind::Drain;
    let asked = |n: &&Node<'_>| n.drain_wanted || n.cordoned;
    let under_way = |n: &&Node<'_>| n.drain.is_some_and(|d| d.remaining_streams > 0);
    if let Some(node) =
        facts.wanted().filter(asked).find(|n| n.log.is_some_and(|l| l.draining) && under_way(n))
    {
        let left = node.drain.map_or(0, |d| d.remaining_streams);
        if node.drain.is_some_and(|d| d.state == weir_api::admin::DrainState::GaveUp) {
            let action = Action::Drain { node: node.id.clone(), why: format!("{left} streams are left") };
            return Some(Operation::act(kind, node, "draining again", action));
        }
        return Some(Operation::wait(kind, node, format!("{left} streams to give away")));
    }
    let due = |n: &&Node<'_>| asked(n) && n.is_serving() && n.log.is_some_and(|l| !l.draining);
    let node = facts.wanted().filter(due).max_by_key(|n| (n.drain_wanted, n.ordinal))?;
    let others_take = facts.nodes.values().any(|n| n.ordinal != node.ordinal && takes_streams(n));
    let why = if node.drain_wanted { "spec.nodes[].drain says so" } else { "its host takes no new pods" };
    if !others_take {
        // An emptied host is an offer, not an order.
        return node
            .drain_wanted
            .then(|| Operation::hold(kind, node, "no other node could take its streams"));
    }
    if let Some(other) = facts.unsettled_beside(node.ordinal) {
        return Some(Operation::hold(kind, node, format!("waiting for {other}")));
    }
    let action = Action::Drain { node: node.id.clone(), why: why.to_owned() };
    Some(Operation::act(kind, node, "draining", action))
}
