//! More nodes and fewer: who leaves is drained first, and leaves record and membership right.

use serde_json::json;

use super::{deletes, up};

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
async fn a_node_that_is_not_wanted_any_more_comes_back_while_its_vote_is_needed() {
    let mut world = up(3).await;
    world.lose_volume(0);
    world.lose_pod(2);
    world.edit(|c| c["spec"]["replicas"] = json!(1));
    world.at_rest().await;
    let nodes = world.nodes.lock();
    assert_eq!((nodes.records.len(), nodes.members.len(), nodes.foundings), (1, 1, 1));
}
