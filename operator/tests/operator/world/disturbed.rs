//! The one node that the operator may disturb at a time, and the majority that it must leave.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::World;
use crate::nodes::{Nodes, Record};

/// The node that the operator disturbs, and since when.
pub(super) type Disturbed = Arc<Mutex<Option<(String, i64)>>>;

pub(super) fn disturb(
    disturbed: &Disturbed,
    violations: &Mutex<Vec<String>>,
    nodes: &Nodes,
    node: &str,
    how: &str,
) {
    let mut slot = disturbed.lock();
    let now = nodes.now_ms;
    // Removed, or back, in this very tick.
    let over = |other: &String| match nodes.records.get(other) {
        Some(r) => r.draining.is_none() && nodes.is_ready(&r.incarnation),
        None => true,
    };
    if slot.as_ref().is_some_and(|(other, _)| over(other)) {
        *slot = None;
    }
    // The session of a lost host's node may be ended beside one that drains, for that still votes, and serves.
    let drains = |other: &String| {
        nodes.serves(other)
            && nodes
                .records
                .get(other)
                .is_some_and(|r| nodes.processes.get(&r.incarnation).is_some_and(|p| !p.stopping))
    };
    match slot.as_ref() {
        Some((other, _)) if how == "fenced" && drains(other) => {}
        Some((other, since)) if other != node => {
            violations
                .lock()
                .push(format!("{node} was {how} while {other} has been disturbed since {since}"));
        }
        Some(_) => {}
        None => *slot = Some((node.to_owned(), now)),
    }
}

impl World {
    pub(super) fn hook(&self) {
        let (nodes, disturbed, violations) =
            (self.nodes.clone(), self.disturbed.clone(), self.violations.clone());
        let told = move |key: &(String, String, String), object: &Value, _force: bool| {
            if key.0 != "pods" {
                return;
            }
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
            let nodes = nodes.lock();
            if !nodes.processes.contains_key(uid) || !object["metadata"]["deletionTimestamp"].is_null() {
                return;
            }
            // Where nobody answers, nobody knows; no node is ready then, and the volume stays.
            let blind = nodes.processes.values().all(|p| p.hangs);
            if !nodes.quorum_without(uid) && !blind {
                violations.lock().push(format!("deleting {} takes the majority away", key.2));
            }
            let registered = nodes.records.get(&key.2).is_some_and(|r| r.incarnation == uid);
            if registered && nodes.serves(&key.2) && nodes.has_quorum() {
                disturb(&disturbed, &violations, &nodes, &key.2, "stopped");
            }
        };
        self.api.store.lock().on_delete = Some(Box::new(told));
    }

    /// The disturbed node is back, or gone for good.
    pub(super) fn settle(&self) {
        let Some((node, since)) = self.disturbed.lock().clone() else { return };
        let spec = self.value()["spec"].clone();
        let ordinal: u64 = node.rsplit('-').next().unwrap().parse().unwrap();
        let replicas = spec["replicas"].as_u64().unwrap_or(3);
        let nodes = self.nodes.lock();
        let record = nodes.records.get(&node);
        let asked = spec["nodes"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|n| n["ordinal"] == ordinal && n["drain"] == true);
        let store = self.api.store.lock();
        let pod = store.get("pods", &node);
        let uid = pod.and_then(|p| p["metadata"]["uid"].as_str()).unwrap_or_default();
        let cordoned = pod
            .and_then(|p| store.get("nodes", p["spec"]["nodeName"].as_str()?))
            .is_some_and(|h| h["spec"]["unschedulable"] == true);
        let back = record.is_some_and(|r| {
            let undrained = r.draining.is_none() || ((asked || cordoned) && r.streams == 0);
            undrained && r.alive && r.incarnation == uid && nodes.is_ready(uid)
        });
        let gone = ordinal >= replicas && record.is_none() && pod.is_none();
        // An operation that has failed for so long is over.
        let for_good = |r: &Record| (asked || cordoned) && r.streams == 0;
        let failed =
            nodes.now_ms - since >= 300_000 && record.is_none_or(|r| r.draining.is_none() || for_good(r));
        if back || gone || failed {
            *self.disturbed.lock() = None;
        }
    }
}
