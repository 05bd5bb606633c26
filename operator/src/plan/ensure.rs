//! Objects that are applied: made, kept as they should be, and pruned.
//!
//! Invariant: an object is written only if it differs in a field of the operator's, or was last applied from other input;
//! one that is somebody else's is left alone (and named in the status).

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::{Value, json};

use crate::action::Action;
use crate::facts::Facts;
use crate::names;
use crate::observed::{Kind, ObjectView, Stranger, Tokens};
use crate::resources::{account, config, disruption, services};

/// Every object that is wanted, with its kind.
fn wanted(facts: &Facts<'_>) -> Vec<(Kind, Value)> {
    let cluster = facts.cluster;
    let mut all = vec![
        (Kind::ConfigMap, config::config_map(cluster)),
        (Kind::Service, services::headless(cluster)),
        (Kind::Service, services::client(cluster)),
        (Kind::PodDisruptionBudget, disruption::budget(cluster)),
    ];
    all.extend(account::service_account(cluster).map(|body| (Kind::ServiceAccount, body)));
    let of_nodes = facts.nodes.keys().filter_map(|ordinal| services::of_node(cluster, *ordinal));
    all.extend(of_nodes.map(|body| (Kind::Service, body)));
    all
}

/// What is missing, differs, or is not needed any more.
pub(super) fn objects(facts: &Facts<'_>) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut kept: BTreeSet<(Kind, String)> = BTreeSet::new();
    for (kind, body) in wanted(facts) {
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let found = facts.observed.objects.iter().find(|o| o.kind == kind && o.name == name);
        actions.extend(apply(kind, &name, body, found));
        kept.insert((kind, name));
    }
    if facts.observed.tokens == Tokens::Absent {
        actions.push(Action::CreateTokens);
    }
    actions.extend(prunes(facts, &kept));
    actions
}

fn apply(kind: Kind, name: &str, mut body: Value, found: Option<&ObjectView>) -> Option<Action> {
    let digest = names::digest(body.to_string().as_bytes());
    body["metadata"]["annotations"][names::APPLIED] = json!(digest);
    match found {
        Some(object) if !object.ours => None,
        Some(object) if covers(&object.body, &body) => None,
        found => Some(Action::Apply { kind, name: name.to_owned(), exists: found.is_some(), body }),
    }
}

/// Whether everything in `ours` stands in `theirs`, which may hold more: ports of others, an address family that the API
/// server has added. What was taken out of ours is told by the digest that is applied with it.
fn covers(theirs: &Value, ours: &Value) -> bool {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            ours.iter().all(|(k, v)| v.is_null() || theirs.get(k).is_some_and(|t| covers(t, v)))
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            let mut theirs = theirs.iter();
            ours.iter().all(|o| theirs.any(|t| covers(t, o)))
        }
        (theirs, ours) => theirs == ours,
    }
}

/// Objects of ours that nothing refers to.
fn prunes(facts: &Facts<'_>, kept: &BTreeSet<(Kind, String)>) -> Vec<Action> {
    // A pod that restarts its container needs the ConfigMap that it was made for.
    let used = |o: &ObjectView| {
        o.kind == Kind::ConfigMap && facts.observed.pods.iter().any(|p| p.config.as_ref() == Some(&o.name))
    };
    let prune = |o: &&ObjectView| o.ours && !kept.contains(&(o.kind, o.name.clone())) && !used(o);
    let all = facts.observed.objects.iter().filter(prune);
    all.map(|o| Action::Prune { kind: o.kind, name: o.name.clone(), uid: o.uid.clone() }).collect()
}

/// Names that the cluster needs and that are somebody else's.
pub(crate) fn taken(facts: &Facts<'_>) -> Vec<String> {
    let wanted: BTreeSet<(Kind, String)> = wanted(facts)
        .into_iter()
        .map(|(kind, body)| (kind, body["metadata"]["name"].as_str().unwrap_or_default().to_owned()))
        .collect();
    let foreign =
        facts.observed.objects.iter().filter(|o| !o.ours && wanted.contains(&(o.kind, o.name.clone())));
    let pods = facts.observed.foreign_pods.iter().filter(|(_, s)| **s == Stranger::Foreign);
    let namespace = facts.cluster.namespace().unwrap_or_default();
    let objects = foreign.map(|o| format!("{:?} {namespace}/{}", o.kind, o.name));
    objects.chain(pods.map(|(name, _)| format!("Pod {namespace}/{name}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_with_more_in_it_is_as_wanted_and_one_with_less_is_not() {
        let ours = json!({"a": 1, "b": {"c": [{"x": 1}]}, "n": null});
        assert!(covers(&json!({"a": 1, "z": 0, "b": {"c": [{"x": 1, "y": 2}]}}), &ours));
        assert!(covers(&json!({"a": 1, "b": {"c": [{"x": 3}, {"x": 1}, {"x": 2}]}}), &ours));
        for less in [
            json!({"a": 2, "b": {"c": [{"x": 1}]}}),
            json!({"a": 1, "b": {"c": []}}),
            json!({"a": 1, "b": {"c": [{"x": 3}, {"x": 2}]}}),
            json!({"b": {"c": [{"x": 1}]}}),
        ] {
            assert!(!covers(&less, &ours), "{less}");
        }
    }
}
