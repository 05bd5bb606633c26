//! What the operator does, from the first pass to the last: one test per promise.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use crate::api::Fault;
use crate::fixtures::{minimal, with};
use crate::world::World;

async fn up(replicas: u32) -> World {
    let mut world = World::new(&with(minimal(), "/spec/replicas", json!(replicas)), 3);
    world.until("ready", World::is_ready).await;
    world.give_streams(40);
    world
}

fn outcome_of(node: u32, world: &World) -> (u64, String, u64) {
    let nodes = world.nodes.lock();
    let record = &nodes.records[&format!("demo-{node}")];
    (record.epoch, record.incarnation.clone(), record.raft_id)
}

fn deletes(world: &World) -> Vec<String> {
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
async fn an_edit_of_slots_reaches_the_nodes_in_one_pass_and_restarts_nothing() {
    let mut world = up(3).await;
    let before = world.pod_uids();
    world.edit(|c| {
        c["spec"]["slots"] = json!(2);
        c["spec"]["nodes"] = json!([{"ordinal": 0, "slots": 4}, {"ordinal": 2, "slots": 0}]);
    });
    world.pass().await;
    let slots =
        |world: &World| -> Vec<u64> { world.nodes.lock().records.values().map(|r| r.slots).collect() };
    assert_eq!(slots(&world), [4, 2, 0]);
    assert_eq!(world.condition("SlotsSynced").0, "False", "applied is what a node says, at the next pass");
    world.at_rest().await;
    assert_eq!(world.pod_uids(), before);
    assert_eq!(world.value()["status"]["nodes"][0]["slots"], json!({"desired": 4, "applied": 4}));
    assert_eq!(world.pod(0).unwrap()["metadata"]["annotations"]["weir.dev/slots"], "4");
    // Behind the operator's back.
    world.nodes.lock().records.get_mut("demo-1").unwrap().slots = 9;
    world.pass().await;
    assert_eq!(slots(&world), [4, 2, 0]);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn slots_are_set_through_others_while_a_node_hangs() {
    let world = up(3).await;
    world.nodes.lock().processes.values_mut().find(|p| p.node == "demo-1").unwrap().hangs = true;
    world.edit(|c| c["spec"]["slots"] = json!(7));
    let began = tokio::time::Instant::now();
    let _applied = world.pass().await;
    assert!(world.nodes.lock().records.values().all(|r| r.slots == 7));
    assert!(began.elapsed().as_secs() < 10, "made-up time: {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_is_replaced_and_the_node_counts_as_back_at_a_greater_epoch() {
    let mut world = up(3).await;
    let (epoch, incarnation, raft_id) = outcome_of(1, &world);
    world.lose_pod(1);
    world.until("another pod registered", |w| outcome_of(1, w).1 != incarnation).await;
    world.at_rest().await;
    let after = outcome_of(1, &world);
    assert!(after.0 > epoch);
    assert_eq!(after.2, raft_id, "the same data directory is the same member");
    assert_eq!(world.value()["status"]["nodes"][1]["podUid"], json!(after.1));
    assert_eq!(world.nodes.lock().records["demo-1"].pinned, Some(after.1));
}

#[tokio::test(start_paused = true)]
async fn a_lost_volume_becomes_another_member_and_the_voters_are_three_again() {
    let mut world = up(3).await;
    let before = outcome_of(2, &world).2;
    world.lose_volume(2);
    world.until("another raft id", |w| outcome_of(2, w).2 != before).await;
    world.at_rest().await;
    let nodes = world.nodes.lock();
    assert_eq!(nodes.voters().len(), 3);
    assert!(!nodes.members.contains_key(&before));
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_no_lost_volume_is_replaced_and_the_status_says_so() {
    let mut world = up(3).await;
    world.lose_volume(1);
    world.lose_volume(2);
    world.steps(30).await;
    assert_eq!(world.pod_uids().len(), 1);
    let claims = world.api.store.lock().all("persistentvolumeclaims").len();
    assert_eq!(claims, 1, "an empty volume would make a member that nobody admitted");
    let (status, reason, message) = world.condition("Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "VolumeLost"), "{message}");
    assert!(message.contains("waits for a healthy majority"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_roll_goes_node_by_node_the_leader_last() {
    let mut world = up(5).await;
    let leader = {
        let nodes = world.nodes.lock();
        let id = nodes.leader.unwrap();
        nodes.records.iter().find(|(_, r)| r.raft_id == id).unwrap().0.clone()
    };
    let before = world.pod_uids();
    world.edit(|c| c["spec"]["config"] = json!({"log-format": "json"}));
    world.until("rolled", |w| w.is_ready() && w.pod_uids().iter().all(|(n, uid)| before[n] != *uid)).await;
    world.at_rest().await;
    let order = deletes(&world);
    assert_eq!(order.len(), 5, "{order:?}");
    assert_eq!(order.last(), Some(&leader), "{order:?}");
    assert_eq!(world.streams(), 200, "streams moved and none was lost");
    let maps = world.api.store.lock().all("configmaps").len();
    assert_eq!(maps, 1, "the old settings go when no pod needs them");
}

#[tokio::test(start_paused = true)]
async fn a_roll_to_an_image_that_cannot_be_pulled_stops_at_the_first_and_heals() {
    let mut world = up(3).await;
    world.edit(|c| c["spec"]["image"] = json!("weir:bad"));
    world.steps(60).await;
    let order = deletes(&world);
    assert_eq!(order, ["demo-2"], "nothing beyond the first is touched");
    let (status, reason, message) = world.condition("Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "RolloutFailed"));
    assert!(message.contains("demo-2") && message.contains("Back-off pulling"), "{message}");
    world.edit(|c| c["spec"]["image"] = json!("weir:good"));
    world.at_rest().await;
    assert_eq!(world.condition("Degraded").0, "False");
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_taken_back_leads_back_to_the_last_that_all_nodes_ran() {
    let mut world = up(3).await;
    let had = world.value()["status"]["image"].clone();
    world.edit(|c| c["spec"]["image"] = json!("weir:bad"));
    world.steps(60).await;
    assert_eq!(world.value()["status"]["image"], had);
    world.edit(|c| drop(c["spec"].as_object_mut().map(|s| s.remove("image"))));
    world.at_rest().await;
    assert_eq!(world.value()["status"]["image"], had);
    assert_eq!(deletes(&world), ["demo-2", "demo-2"], "the others ran it all the while");

    world.edit(|c| c["spec"]["image"] = json!("weir:good"));
    world.at_rest().await;
    world.edit(|c| drop(c["spec"].as_object_mut().map(|s| s.remove("image"))));
    world.at_rest().await;
    assert_eq!(world.value()["status"]["image"], "weir:good", "one that all ran stays");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_never_came_up_is_healed_by_its_spec() {
    let value = with(minimal(), "/spec/image", json!("weir:bad"));
    let mut world = World::new(&value, 3);
    world.steps(10).await;
    assert_eq!(world.condition("Ready").0, "False");
    world.edit(|c| c["spec"]["image"] = json!("weir:good"));
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn scaling_out_and_in_drains_first_and_leaves_the_members_right() {
    let mut world = up(3).await;
    world.edit(|c| c["spec"]["replicas"] = json!(5));
    world.at_rest().await;
    world.give_streams(30);
    assert_eq!(world.nodes.lock().members.len(), 5);
    world.edit(|c| c["spec"]["replicas"] = json!(3));
    world.at_rest().await;
    assert_eq!(deletes(&world), ["demo-4", "demo-3"]);
    {
        let nodes = world.nodes.lock();
        assert_eq!((nodes.records.len(), nodes.members.len(), nodes.voters().len()), (3, 3, 3));
    }
    assert_eq!(world.streams(), 150);
    assert_eq!(world.api.store.lock().all("persistentvolumeclaims").len(), 5, "kept by default");
    assert_eq!(world.value()["status"]["replicas"], 3);
    world.edit(|c| {
        c["spec"]["deletionPolicy"] = json!({"whenScaled": "Delete"});
    });
    world.at_rest().await;
    assert_eq!(world.api.store.lock().all("persistentvolumeclaims").len(), 3);
    world.edit(|c| c["spec"]["replicas"] = json!(5));
    world.at_rest().await;
    assert_eq!(world.nodes.lock().members.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_scale_down_in_the_midst_of_a_roll_comes_first() {
    let mut world = up(5).await;
    world.edit(|c| c["spec"]["config"] = json!({"log-format": "json"}));
    world.until("the roll began", |w| deletes(w).len() == 1).await;
    world.edit(|c| c["spec"]["replicas"] = json!(3));
    world.at_rest().await;
    assert_eq!(world.nodes.lock().members.len(), 3);
    assert_eq!(world.pod_uids().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_lost_host_is_given_up_and_its_node_comes_back_elsewhere_with_a_new_volume() {
    let mut world = up(3).await;
    let (epoch, incarnation, raft_id) = outcome_of(1, &world);
    let host = world.host_of(1);
    world.lose_host(&host);
    // The kubelet is gone, and the process still runs and is connected.
    world.steps(10).await;
    assert_eq!(outcome_of(1, &world).1, incarnation, "a minute is waited for");
    world.until("replaced", |w| outcome_of(1, w).1 != incarnation).await;
    world.at_rest().await;
    let after = outcome_of(1, &world);
    assert!(after.0 > epoch && after.2 != raft_id);
    assert_ne!(world.host_of(1), host);
    let fenced = world.nodes.lock().processes[&incarnation].superseded;
    assert!(fenced, "the old process was fenced");
    world.cut(&host);
    world.host_returns(&host);
    world.at_rest().await;
    assert_eq!(outcome_of(1, &world), after, "and never comes back");
    assert_eq!(world.nodes.lock().voters().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_was_bound_to_a_removed_host_is_replaced() {
    let mut world = up(3).await;
    let before = outcome_of(1, &world).2;
    let host = world.host_of(1);
    world.remove_host(&host);
    world.until("another member", |w| outcome_of(1, w).2 != before).await;
    world.at_rest().await;
    assert_eq!(world.value()["status"]["nodes"][1]["volume"], "data-demo-1-1");
    assert_eq!(world.nodes.lock().voters().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_lost_with_the_majority_is_waited_for() {
    let mut world = up(3).await;
    let before = world.pod_uids();
    for n in [1, 2] {
        let host = world.host_of(n);
        world.lose_host(&host);
        world.cut(&host);
    }
    world.steps(60).await;
    assert_eq!(world.pod_uids(), before, "no vote is given up without a majority");
    assert_ne!(world.condition("QuorumHealthy").0, "True");
    for n in [1, 2] {
        let host = world.host_of(n);
        world.host_returns(&host);
    }
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_cannot_start_are_healed_before_those_that_wait_for_their_votes() {
    let mut world = up(4).await;
    world.edit(|c| c["spec"]["image"] = json!("weir:bad"));
    world.lose_pod(0);
    world.lose_pod(1);
    world.steps(20).await;
    assert_eq!(world.condition("Ready").0, "False");
    world.edit(|c| c["spec"]["image"] = json!("weir:good"));
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_wanted_any_more_comes_back_while_its_vote_is_needed() {
    let mut world = up(3).await;
    world.lose_volume(0);
    world.lose_pod(2);
    world.edit(|c| c["spec"]["replicas"] = json!(1));
    world.at_rest().await;
    let nodes = world.nodes.lock();
    assert_eq!((nodes.records.len(), nodes.members.len(), nodes.foundings), (1, 1, 1));
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
async fn a_node_is_drained_while_the_spec_says_so() {
    let mut world = up(3).await;
    world.edit(|c| c["spec"]["nodes"] = json!([{"ordinal": 1, "drain": true}]));
    world.until("drained", |w| w.nodes.lock().records["demo-1"].streams == 0).await;
    world.at_rest().await;
    assert!(world.nodes.lock().records["demo-1"].draining.is_some());
    world.edit(|c| c["spec"]["nodes"] = json!([]));
    world.at_rest().await;
    assert!(world.nodes.lock().records["demo-1"].draining.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_hosts_node_gives_its_streams_away_early() {
    let mut world = up(3).await;
    let host = world.host_of(1);
    world.api.store.lock().edit("nodes", &host, |n| n["spec"]["unschedulable"] = json!(true));
    world.until("drained", |w| w.nodes.lock().records["demo-1"].streams == 0).await;
    world.api.store.lock().edit("nodes", &host, |n| n["spec"]["unschedulable"] = json!(false));
    world.at_rest().await;
    assert!(world.nodes.lock().records["demo-1"].draining.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_single_node_is_restarted_without_a_drain() {
    let mut world = up(1).await;
    let before = world.pod_uids();
    world.edit(|c| c["metadata"]["annotations"] = json!({"weir.dev/restarted-at": "now"}));
    world.until("restarted", |w| w.is_ready() && w.pod_uids() != before).await;
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_given_up_by_its_owner_is_replaced_gently() {
    let mut world = up(3).await;
    let before = outcome_of(1, &world).2;
    world.api.store.lock().edit("persistentvolumeclaims", "data-demo-1", |c| {
        c["metadata"]["annotations"]["weir.dev/abandoned"] = json!("by hand");
    });
    world.until("another member", |w| outcome_of(1, w).2 != before).await;
    world.at_rest().await;
    assert_eq!(world.nodes.lock().voters().len(), 3);
    assert_eq!(world.value()["status"]["nodes"][1]["volume"], "data-demo-1-1");
}

/// `data-demo-1-1` may be the second volume of node 1 of `demo`, and is the first of node 1 of `demo-1`.
#[tokio::test(start_paused = true)]
async fn a_volume_of_another_cluster_is_not_taken_whatever_its_name() {
    let mut world = up(3).await;
    let foreign = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-demo-1-1", "namespace": "streams",
            "labels": {"weir.dev/cluster": "demo-1", "weir.dev/ordinal": "1"}},
    });
    world.api.store.lock().put("persistentvolumeclaims", foreign);
    world.api.store.lock().edit("persistentvolumeclaims", "data-demo-1", |c| {
        c["metadata"]["annotations"]["weir.dev/abandoned"] = json!("by hand");
    });
    let before = outcome_of(1, &world).2;
    world.until("another member", |w| outcome_of(1, w).2 != before).await;
    world.at_rest().await;
    assert_eq!(world.value()["status"]["nodes"][1]["volume"], "data-demo-1-2");
}

/// One that comes by that name between the look and the deed: no pod is made with it.
#[tokio::test(start_paused = true)]
async fn a_volume_that_somebody_else_makes_first_is_left_to_them() {
    let mut world = World::new(&minimal(), 3);
    let foreign = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-demo-0", "namespace": "streams"},
    });
    let put = std::sync::atomic::AtomicBool::new(false);
    world.api.store.lock().fault = Some(Box::new(move |method, key| {
        let creates = *method == Method::POST && key.0 == "persistentvolumeclaims";
        (creates && !put.swap(true, std::sync::atomic::Ordering::SeqCst)).then_some(Fault::Conflict)
    }));
    world.steps(1).await;
    assert!(world.pod(0).is_none() && world.pod(1).is_some(), "no pod without the claim that it names");
    world.api.store.lock().fault = None;
    world.api.store.lock().put("persistentvolumeclaims", foreign);
    world.until("ready", World::is_ready).await;
    assert_eq!(world.value()["status"]["nodes"][0]["volume"], "data-demo-0-1");
}

/// A claim is as it was made; one that was never bound holds nothing, so another can take its place.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_never_bound_is_made_anew_when_its_class_is_put_right() {
    let mut world = up(3).await;
    let uid = |world: &World, n: u32| {
        let store = world.api.store.lock();
        store.get("persistentvolumeclaims", &format!("data-demo-{n}")).map(|c| c["metadata"]["uid"].clone())
    };
    let before = [uid(&world, 0), uid(&world, 1)];
    world.lose_pod(1);
    world.api.store.lock().edit("persistentvolumeclaims", "data-demo-1", |c| {
        c["status"] = json!({"phase": "Pending"});
    });
    world.edit(|c| c["spec"]["metadata"] = json!({"voters": 3, "volume": {"storageClassName": "other"}}));
    world.until("another claim", |w| uid(w, 1).is_some_and(|now| Some(now) != before[1])).await;
    world.at_rest().await;
    assert_eq!(uid(&world, 0), before[0], "one that is bound stays as it is");
}

#[tokio::test(start_paused = true)]
async fn volumes_grow_and_change_owner_with_the_spec() {
    let mut world = up(3).await;
    world.edit(|c| {
        c["spec"]["metadata"] = json!({"voters": 3, "volume": {"size": "5Gi"}});
        c["spec"]["deletionPolicy"] = json!({"whenDeleted": "Delete"});
    });
    world.at_rest().await;
    for (_, claim) in world.api.store.lock().all("persistentvolumeclaims") {
        assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "5Gi");
        assert_eq!(claim["metadata"]["ownerReferences"][0]["name"], "demo");
    }
    world.edit(|c| {
        c["spec"]["metadata"]["volume"]["size"] = json!("1Gi");
        c["spec"]["deletionPolicy"] = json!({"whenDeleted": "Retain"});
    });
    world.at_rest().await;
    for (_, claim) in world.api.store.lock().all("persistentvolumeclaims") {
        assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "5Gi", "smaller has no effect");
        assert!(claim["metadata"]["ownerReferences"].is_null());
    }
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
async fn objects_that_somebody_changed_are_put_right_and_foreign_ones_are_left_alone() {
    let mut world = up(3).await;
    world.api.store.lock().edit("services", "demo", |s| {
        s["spec"]["selector"] = json!({"weir.dev/cluster": "other"});
        s["spec"]["sessionAffinity"] = json!("None");
    });
    world.api.store.lock().remove("poddisruptionbudgets", "demo");
    world.at_rest().await;
    {
        let store = world.api.store.lock();
        let service = store.get("services", "demo").unwrap();
        assert_eq!(service["spec"]["selector"], json!({"weir.dev/cluster": "demo"}));
        assert_eq!(service["spec"]["sessionAffinity"], "None", "fields of others are theirs");
        assert!(store.get("poddisruptionbudgets", "demo").is_some());
    }

    let world = World::new(&minimal(), 3);
    let foreign =
        json!({"metadata": {"name": "demo", "namespace": "streams"}, "spec": {"selector": {"app": "shop"}}});
    world.api.store.lock().put("services", foreign);
    let _applied = world.pass().await;
    let service = world.api.store.lock().get("services", "demo").cloned().unwrap();
    assert_eq!(service["spec"]["selector"], json!({"app": "shop"}));
    let (status, _, message) = world.condition("Stalled");
    assert_eq!(status, "True");
    assert!(message.contains("Service streams/demo belongs to somebody else"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn another_cluster_in_the_namespace_is_not_touched() {
    let mut world = up(3).await;
    let mut other = world.pod(1).unwrap();
    other["metadata"]["name"] = json!("demo-7");
    other["metadata"]["uid"] = json!("uid-other");
    other["metadata"]["ownerReferences"][0]["uid"] = json!("another-streamcluster");
    other["spec"]["nodeName"] = json!("elsewhere");
    world.lose_host("elsewhere");
    world.api.store.lock().put("pods", other);
    world.at_rest().await;
    assert!(world.pod(7).is_some());
    assert_eq!(world.value()["status"]["nodes"].as_array().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_missing_secret_is_named_and_its_arrival_is_enough() {
    let value = with(minimal(), "/spec/objectStore/endpoint", json!("http://minio:9000"));
    let value = with(value, "/spec/objectStore/credentials", json!({"secretName": "s3"}));
    let mut world = World::new(&value, 3);
    world.steps(5).await;
    let (status, reason, message) = world.condition("StorageReady");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "CredentialsMissing"));
    assert!(message.contains("Secret s3"), "{message}");
    let writes = world.api.store.lock().writes.len();
    world.steps(20).await;
    assert_eq!(world.api.store.lock().writes.len(), writes, "waiting writes nothing");
    let secret = |key: &str| json!({"metadata": {"name": "s3", "namespace": "streams"}, "data": {"AWS_ACCESS_KEY_ID": "aWQ=", "AWS_SECRET_ACCESS_KEY": key}});
    world
        .api
        .store
        .lock()
        .put("secrets", json!({"metadata": {"name": "s3", "namespace": "streams"}, "data": {"x": "eA=="}}));
    world.steps(2).await;
    assert!(world.condition("StorageReady").2.contains("no key \"AWS_ACCESS_KEY_ID\"; it has: x"));
    world.api.store.lock().put("secrets", secret("a2V5"));
    world.at_rest().await;
    // Other keys restart the pods, one by one.
    let before = world.pod_uids();
    world.api.store.lock().put("secrets", secret("bmV3"));
    world.until("rolled", |w| w.is_ready() && w.pod_uids().iter().all(|(n, uid)| before[n] != *uid)).await;
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_quota_and_a_bad_overlay_are_told_in_words_without_a_hot_loop() {
    let mut world = World::new(&minimal(), 3);
    world.api.store.lock().forbid_pods = Some("exceeded quota: pods=2".to_owned());
    world.steps(3).await;
    let (status, reason, message) = world.condition("Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "ActionFailed"));
    assert!(message.contains("exceeded quota: pods=2"), "{message}");
    let writes = world.api.store.lock().writes.len();
    world.steps(10).await;
    assert_eq!(world.api.store.lock().writes.len(), writes, "the same failure is not written again");
    world.api.store.lock().forbid_pods = None;
    world.at_rest().await;
    assert_eq!(world.condition("Degraded").0, "False");

    let before = world.pod_uids();
    world.edit(|c| c["spec"]["podTemplate"] = json!({"overlay": {"spec": {"hostname": "x"}}}));
    world.steps(5).await;
    let (status, _, message) = world.condition("Stalled");
    assert_eq!(status, "True");
    assert!(message.contains("podTemplate.overlay: spec.hostname is the operator's"), "{message}");
    assert_eq!(world.pod_uids(), before);
    world.edit(|c| c["spec"]["podTemplate"] = json!({}));
    world.at_rest().await;
    assert_eq!(world.pod_uids(), before);
}

#[tokio::test(start_paused = true)]
async fn an_operator_with_another_default_image_restarts_nothing() {
    let mut world = up(3).await;
    let before = world.pod_uids();
    let context =
        weir_operator::controller::Context::new(world.context.hands.clone(), "weir:newer".to_owned());
    world.context = std::sync::Arc::new(context);
    world.at_rest().await;
    assert_eq!(world.pod_uids(), before);
    assert_eq!(world.value()["status"]["image"], "weir:default");
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_may_not_see_hosts_still_runs_a_cluster() {
    let mut world = World::new(&minimal(), 3);
    world.api.store.lock().hosts_forbidden = true;
    world.at_rest().await;
    world.lose_pod(2);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn two_operators_at_once_disturb_no_more_than_one() {
    let mut world = up(5).await;
    let other = world.another_operator();
    world.edit(|c| {
        c["spec"]["replicas"] = json!(4);
        c["spec"]["config"] = json!({"log-format": "json"});
    });
    let before = world.pod_uids();
    let done = |w: &World| w.is_ready() && w.pod_uids().iter().all(|(n, uid)| before[n] != *uid);
    for _ in 0..400 {
        world.tick(crate::world::STEP_MS);
        let (a, b) = (world.context.clone(), other.clone());
        let (_a, _b) = tokio::join!(world.pass_by(&a, None), world.pass_by(&b, None));
        world.check();
        if done(&world) {
            break;
        }
    }
    assert!(done(&world), "{}", world.describe());
    world.at_rest().await;
}

/// Every action of an episode is once the one before which the operator dies.
async fn killed_at_each_action(
    replicas: u32,
    what: &str,
    change: impl Fn(&mut World),
    done: impl Fn(&World) -> bool,
) {
    for die_every in 1..4 {
        let mut world = up(replicas).await;
        change(&mut world);
        let mut finished = false;
        for _ in 0..500 {
            world.tick(crate::world::STEP_MS);
            // A fresh process each time, which dies after so many actions.
            let context = world.another_operator();
            let _outcome = world.pass_by(&context, Some(die_every)).await;
            world.check();
            if done(&world) && world.is_ready() {
                finished = true;
                break;
            }
        }
        assert!(
            finished,
            "{what} never ended with an operator that dies after {die_every} actions\n{}",
            world.describe()
        );
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_action_of_a_scale_down_is_followed_up() {
    let change = |w: &mut World| w.edit(|c| c["spec"]["replicas"] = json!(3));
    killed_at_each_action(5, "the scale-down", change, |w| w.nodes.lock().records.len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_action_of_a_roll_is_followed_up() {
    let change = |w: &mut World| w.edit(|c| c["spec"]["config"] = json!({"log-format": "json"}));
    let rolled = |w: &World| {
        let map = |v: Value| v["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"].clone();
        let all: Vec<Value> = (0..3).filter_map(|n| w.pod(n)).map(map).collect();
        all.len() == 3 && all.iter().all(|m| *m == all[0]) && deletes(w).len() >= 3
    };
    killed_at_each_action(3, "the roll", change, rolled).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_action_of_a_replacement_is_followed_up() {
    let change = |w: &mut World| {
        let host = w.host_of(1);
        w.lose_host(&host);
    };
    let replaced = |w: &World| w.value()["status"]["nodes"][1]["volume"] == "data-demo-1-1";
    killed_at_each_action(3, "the replacement", change, replaced).await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_is_outlived() {
    for (name, fault) in [
        ("conflicts", Fault::Conflict),
        ("internal errors", Fault::Internal),
        ("expired lists", Fault::Gone),
        ("objects that are gone", Fault::NotFound),
        ("a busy server", Fault::TooMany),
        ("lost replies", Fault::LostReply),
        ("silence", Fault::Hang),
    ] {
        let mut world = up(3).await;
        let mut n = 0u32;
        world.api.store.lock().fault = Some(Box::new(move |method: &Method, _| {
            n += 1;
            let read = *method == Method::GET;
            // A host that is not found is a lost host.
            let due =
                if read { n.is_multiple_of(11) && fault != Fault::NotFound } else { !n.is_multiple_of(3) };
            due.then_some(fault)
        }));
        world.edit(|c| {
            c["spec"]["replicas"] = json!(4);
            c["spec"]["config"] = json!({"log-format": "json"});
        });
        world.steps(120).await;
        world.api.store.lock().fault = None;
        world.until(name, |w| w.is_ready() && w.nodes.lock().records.len() == 4).await;
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_operator_does_not_undo_a_newer_status() {
    let world = up(3).await;
    let old = world.cluster();
    world
        .api
        .store
        .lock()
        .edit("streamclusters", "demo", |c| c["metadata"]["labels"] = json!({"touched": "yes"}));
    let mut stale = old.status.clone().unwrap();
    stale.cluster_uid = None;
    let planned = weir_operator::action::Planned {
        actions: vec![],
        status: Some(stale),
        notes: vec![],
        again: std::time::Duration::ZERO,
    };
    let applied = world.context.hands.apply(&old, &[], tokio::time::Instant::now(), planned).await;
    assert_eq!(applied.failures.len(), 1, "{:?}", applied.failures);
    assert!(!world.value()["status"]["clusterUid"].is_null());
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
