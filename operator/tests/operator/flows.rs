//! What the operator does, from the first pass to the last: one test per promise. Here those about a cluster as a whole; in
//! the folder those about one kind of change or loss.

mod operators;
mod others;
mod replaced;
mod rolls;
mod scaling;
mod stuck;
mod told;
mod volumes;
mod weights;

use std::collections::BTreeMap;

use serde_json::json;

use crate::fixtures::{minimal, with};
use crate::world::World;

pub(crate) async fn up(replicas: u32) -> World {
    let mut world = World::new(&with(minimal(), "/spec/replicas", json!(replicas)), 3);
    world.until("ready", World::is_ready).await;
    world.give_streams(40);
    world
}

pub(crate) fn outcome_of(node: u32, world: &World) -> (u64, String, u64) {
    let nodes = world.nodes.lock();
    let record = &nodes.records[&format!("demo-{node}")];
    (record.epoch, record.incarnation.clone(), record.raft_id)
}

pub(crate) fn deletes(world: &World) -> Vec<String> {
    let store = world.api.store.lock();
    let pods = store.writes.iter().filter(|w| w.verb == "delete" && w.resource == "pods");
    pods.map(|w| w.name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_cluster_comes_up_all_pods_at_once_and_then_nothing_is_written() {
    let mut world = World::new(&minimal(), 3);
    world.steps(1).await;
    assert_eq!(world.pod_uids().len(), 3, "all pods in the first pass");
    world.at_rest().await;
    let status = world.value()["status"].clone();
    assert_eq!((&status["ready"], &status["state"]), (&json!("3/3"), &json!("Ready")));
    assert_eq!(status["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(status["nodes"][1]["slots"], json!({"desired": 1, "applied": 1}));
    for kind in ["QuorumHealthy", "SlotsSynced", "StorageReady"] {
        assert_eq!(world.condition(kind).0, "True", "{kind}");
    }
    for kind in ["Degraded", "Stalled", "Reconciling"] {
        assert_eq!(world.condition(kind).0, "False", "{kind}");
    }
    let bootstrap = |n| world.pod(n).unwrap()["metadata"]["annotations"]["weir.dev/bootstrap"].clone();
    assert_eq!(bootstrap(0), "false", "once the cluster is known, no restart founds another");
    for n in 0..3 {
        let pinned = world.nodes.lock().records[&format!("demo-{n}")].pinned.clone();
        assert_eq!(pinned, Some(outcome_of(n, &world).1), "every node is pinned to its pod");
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_cluster_is_left_alone_and_its_status_is_not() {
    let mut world = up(3).await;
    world.edit(|c| c["metadata"]["annotations"] = json!({"weir.dev/paused": "true"}));
    world.edit(|c| c["spec"]["slots"] = json!(5));
    world.lose_pod(0);
    world.steps(5).await;
    assert_eq!(world.pod_uids().len(), 2);
    assert_eq!(world.condition("Progressing").1, "Paused");
    assert_eq!(world.value()["status"]["ready"], "2/3");
    world.edit(|c| c["metadata"]["annotations"] = json!({}));
    world.at_rest().await;
    assert!(world.nodes.lock().records.values().all(|r| r.slots == 5));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_cluster_is_left_to_the_garbage_collector() {
    let world = up(3).await;
    world.edit(|c| c["metadata"]["deletionTimestamp"] = json!("2026-11-30T00:00:00Z"));
    world.lose_pod(0);
    let applied = world.pass().await;
    assert_eq!(
        (applied.writes, world.pod_uids().len()),
        (0, 2),
        "nothing hinders the end, nothing is made anew"
    );
}

#[tokio::test(start_paused = true)]
async fn the_store_going_away_disturbs_nobody() {
    let mut world = up(3).await;
    let before: BTreeMap<String, String> = world.pod_uids();
    world.nodes.lock().store_down = true;
    world.steps(40).await;
    assert_eq!(world.pod_uids(), before);
    assert_eq!(world.condition("StorageReady").0, "False");
    assert_eq!(world.condition("Ready").0, "False");
    world.nodes.lock().store_down = false;
    world.at_rest().await;
    assert_eq!(world.pod_uids(), before);
}

/// The nodes name the StreamCluster that they were founded for, which is no more; another has taken over bucket and volumes.
#[tokio::test(start_paused = true)]
async fn nodes_of_a_cluster_that_is_taken_over_are_heard() {
    let mut world = up(3).await;
    world.nodes.lock().identity = "a-uid-of-the-past".to_owned();
    world.until("nobody of ours to answer", |w| w.condition("QuorumHealthy").0 == "Unknown").await;
    assert!(world.condition("QuorumHealthy").2.contains("a-uid-of-the-past"), "{}", world.describe());
    let uid = world.nodes.lock().uid.clone();
    world.edit(|c| c["spec"]["objectStore"]["adoptClusterUid"] = json!(uid));
    world.until("the nodes to be heard", World::is_ready).await;
    world.at_rest().await;
    // By its name and not by any.
    world.edit(|c| c["spec"]["objectStore"]["adoptClusterUid"] = json!("0".repeat(32)));
    world.until("nobody of ours to answer", |w| w.condition("QuorumHealthy").0 == "Unknown").await;
}
