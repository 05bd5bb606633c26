//! Scenario 6, rolling: a changed template goes node by node, the metadata log's leader last; an image that cannot be
//! pulled stops at the first pod, and heals when it is put right.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use kube::ResourceExt;
use serde_json::json;
use weir_operator::crd::StreamCluster;
use weir_tests::writers::{Of, Writers};

use crate::cluster::Cluster;
use crate::figures::Measured;

/// Pods by name and UID.
fn uids(cluster: &Cluster) -> BTreeMap<String, String> {
    cluster.lives().into_iter().map(|(name, uid, _)| (name, uid)).collect()
}

/// Of a roll as the statuses told it: whoever was begun while it led the log, though others had still to come. The status
/// that first names an operation was made from one observation with the leader that it names.
fn leaders_too_early(history: &[StreamCluster]) -> Vec<String> {
    let mut last = None;
    let mut early = Vec::new();
    for status in history.iter().filter_map(|c| c.status.as_ref()) {
        let node = status.operation.as_ref().filter(|o| o.kind == "Restart").map(|o| o.node.clone());
        if node != last
            && let Some(node) = &node
        {
            let others_due = status.nodes.iter().any(|n| !n.updated && n.name != *node && n.ready);
            if status.leader.as_ref() == Some(node) && others_due {
                early.push(node.clone());
            }
        }
        last = node.or(last);
    }
    early
}

async fn rolled(cluster: &Cluster, writers: &Writers) -> Result<()> {
    let before = uids(cluster);
    let measured = Measured::begin("rolled", cluster, writers).await?;
    cluster.patch(json!({"spec": {"podTemplate": {"annotations": {"example.org/round": "1"}}}})).await?;
    cluster
        .until("all pods to have the new template", |c| {
            let status = c.status.as_ref()?;
            let current = status.observed_generation == c.metadata.generation;
            (current && status.updated_replicas == 3).then_some(())
        })
        .await?;
    measured.end(cluster, writers).await?;
    let now = uids(cluster);
    ensure!(
        before.keys().eq(now.keys()) && before.iter().all(|(name, uid)| now[name] != *uid),
        "{before:?} {now:?}"
    );
    let history = cluster.history.lock().unwrap().clone();
    let early = leaders_too_early(&history);
    ensure!(early.is_empty(), "{early:?} was restarted while it led, before others");
    let restarts = history.iter().filter_map(|c| c.status.as_ref()?.operation.as_ref());
    ensure!(restarts.filter(|o| o.kind == "Restart").count() > 2, "the status told of no restarts");
    Ok(())
}

async fn stopped_and_healed(cluster: &Cluster, writers: &Writers) -> Result<()> {
    let before = uids(cluster);
    let measured = Measured::begin("image-cannot-be-pulled", cluster, writers).await?;
    cluster.patch(json!({"spec": {"image": "localhost/weir/there-is-none:1"}})).await?;
    let said = cluster.until_condition("Degraded", "True", "RolloutFailed").await?;
    let changed: Vec<_> = uids(cluster).into_iter().filter(|(name, uid)| before[name] != *uid).collect();
    ensure!(changed.len() == 1, "{changed:?} were touched; {said}");
    ensure!(said.contains(&changed[0].0), "the condition names no pod: {said}");
    // Two of three serve every stream, and stay.
    writers.all_append(writers.now(), Of::All, "with a pod that cannot start").await?;
    cluster.patch(json!({"spec": {"image": null}})).await?;
    cluster.until_condition("Degraded", "False", "").await?;
    measured.end(cluster, writers).await?;
    let now = uids(cluster);
    for (name, uid) in &before {
        ensure!((now[name] == *uid) == (*name != changed[0].0), "{name} was restarted: {before:?} {now:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the test bed: make kubernetes"]
async fn a_roll_goes_one_by_one_the_leader_last_and_stops_at_the_first_pod_that_does_not_start() {
    let cluster = Cluster::start("roll", json!({})).await.unwrap();
    let writers = cluster.load().await.unwrap();
    rolled(&cluster, &writers).await.unwrap();
    stopped_and_healed(&cluster, &writers).await.unwrap();
    cluster.end(Some(writers)).await.unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(node: Option<&str>, leader: &str, updated: &[bool]) -> StreamCluster {
        let nodes: Vec<_> = (0..updated.len())
            .map(|n| json!({"name": format!("t-{n}"), "ordinal": n, "ready": true, "updated": updated[n]}))
            .collect();
        let operation = node.map(|n| json!({"kind": "Restart", "node": n}));
        serde_json::from_value(json!({
            "apiVersion": "weir.dev/v1alpha1", "kind": "StreamCluster", "metadata": {"name": "t"},
            "spec": {"objectStore": {"bucket": "abc"}},
            "status": {"leader": leader, "nodes": nodes, "operation": operation},
        }))
        .unwrap()
    }

    #[test]
    fn a_leader_that_is_begun_before_others_is_found_and_one_that_comes_to_lead_is_not() {
        let good = [
            told(Some("t-2"), "t-0", &[false, false, false]),
            told(Some("t-2"), "t-2", &[false, false, false]),
            told(Some("t-1"), "t-0", &[false, false, true]),
            told(Some("t-0"), "t-0", &[false, true, true]),
        ];
        assert!(leaders_too_early(&good).is_empty());
        let bad = [told(Some("t-2"), "t-2", &[false, false, false])];
        assert_eq!(leaders_too_early(&bad), ["t-2"]);
        assert_eq!(good[0].name_any(), "t");
    }
}
