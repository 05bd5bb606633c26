//! Pods that take another template: one by one, and no further than it comes up.

use serde_json::json;

use super::{deletes, up};
use crate::fixtures::{minimal, with};
use crate::world::World;

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
async fn a_single_node_is_restarted_without_a_drain() {
    let mut world = up(1).await;
    let before = world.pod_uids();
    world.edit(|c| c["metadata"]["annotations"] = json!({"weir.dev/restarted-at": "now"}));
    world.until("restarted", |w| w.is_ready() && w.pod_uids() != before).await;
    world.at_rest().await;
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

/// Nobody takes a pod that runs away from whoever wants to do it himself: not when all is well, not when nothing is.
#[tokio::test(start_paused = true)]
async fn on_delete_leaves_every_pod_that_runs_to_who_deletes_it() {
    let mut world = up(3).await;
    let before = world.pod_uids();
    let maps = |w: &World| w.api.store.lock().all("configmaps").len();
    world.edit(|c| {
        c["spec"]["update"] = json!({"strategy": "OnDelete"});
        c["spec"]["config"] = json!({"log-format": "json"});
    });
    world.at_rest().await;
    assert_eq!(world.value()["status"]["updatedReplicas"], 0);
    assert_eq!(maps(&world), 2, "a container that ends is started with the settings of its pod");
    // An outage in which a roll would try the new template, and no pod is young any more.
    world.nodes.lock().store_down = true;
    world.steps(250).await;
    world.nodes.lock().store_down = false;
    world.at_rest().await;
    for p in world.nodes.lock().processes.values_mut() {
        p.hangs = true;
    }
    world.steps(120).await;
    for p in world.nodes.lock().processes.values_mut() {
        p.hangs = false;
    }
    world.at_rest().await;
    assert_eq!(world.pod_uids(), before);
    for (n, updated) in [(1, 1), (0, 2), (2, 3)] {
        world.lose_pod(n);
        world.at_rest().await;
        assert_eq!(world.value()["status"]["updatedReplicas"], updated);
    }
    assert!(deletes(&world).is_empty());
    assert_eq!(maps(&world), 1);
}

/// One that does not run serves nobody: it is as good as deleted.
#[tokio::test(start_paused = true)]
async fn on_delete_makes_a_pod_anew_that_cannot_start() {
    let mut world = up(3).await;
    world.edit(|c| {
        c["spec"]["update"] = json!({"strategy": "OnDelete"});
        c["spec"]["image"] = json!("weir:bad");
    });
    world.at_rest().await;
    let before = world.pod_uids();
    world.lose_pod(1);
    world.steps(30).await;
    assert_eq!(world.condition("Degraded").1, "RolloutFailed");
    world.edit(|c| c["spec"]["image"] = json!("weir:good"));
    world.at_rest().await;
    assert_eq!(deletes(&world), ["demo-1"]);
    let now = world.pod_uids();
    assert_eq!((&now["demo-0"], &now["demo-2"]), (&before["demo-0"], &before["demo-2"]));
    assert_eq!(world.value()["status"]["updatedReplicas"], 1);
}
