//! What the spec says of nodes that run, and that restarts nothing: weights and drains.

use serde_json::json;

use super::up;
use crate::world::World;

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
