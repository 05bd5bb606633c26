//! Drains that come to nothing: a roll waits for as long as it is told, a removal without end, and a node that gave up is
//! asked again.

use serde_json::json;

use super::{deletes, up};
use crate::world::World;

/// Its patience as the spec has it.
fn patience(world: &World, seconds: u32) {
    world.edit(|c| c["spec"]["update"] = json!({"drainTimeoutSeconds": seconds}));
}

fn rolls(world: &World) {
    world.edit(|c| c["spec"]["config"] = json!({"log-format": "json"}));
}

fn is_updated(world: &World, nodes: u32) -> bool {
    world.is_ready() && world.value()["status"]["updatedReplicas"] == nodes
}

#[tokio::test(start_paused = true)]
async fn a_node_that_keeps_its_streams_is_restarted_when_its_time_is_up_and_not_before() {
    let mut world = up(3).await;
    patience(&world, 90);
    world.at_rest().await;
    world.nodes.lock().stuck = true;
    rolls(&world);
    let drains = |w: &World| w.nodes.lock().records["demo-2"].draining.is_some();
    world.until("a drain", drains).await;
    let began = world.now();
    world.until("a restart", |w| !deletes(w).is_empty()).await;
    assert!(world.now() - began >= 90_000, "{} ms", world.now() - began);
    // In this time it gave up again and again, and each time its own clock began anew.
    assert!(world.nodes.lock().gave_up > 2);
    let told = world.told("DeletingPod");
    assert_eq!(
        told,
        ["demo-2: its template has changed; 40 streams are left after update.drainTimeoutSeconds"]
    );
    world.until("the roll to end", |w| is_updated(w, 3)).await;
    assert_eq!(deletes(&world).len(), 3, "each once");
    world.nodes.lock().stuck = false;
    world.at_rest().await;
    assert_eq!(world.streams(), 120, "who has them recovers them");
    assert!(world.nodes.lock().records.values().all(|r| r.draining.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_roll_asks_again_of_a_drain_that_gave_up() {
    let mut world = up(3).await;
    world.nodes.lock().stuck = true;
    rolls(&world);
    world.until("giving up twice", |w| w.nodes.lock().gave_up >= 2).await;
    assert!(deletes(&world).is_empty(), "there is time left");
    let told = world.told("Draining");
    assert!(told.iter().any(|t| t == "demo-2: its template has changed; 40 streams are left"), "{told:?}");
    world.nodes.lock().stuck = false;
    world.until("the roll to end", |w| is_updated(w, 3)).await;
    world.at_rest().await;
    let told = world.told("DeletingPod");
    assert!(told.len() == 3 && told.iter().all(|t| t.ends_with("drained")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_the_spec_asks_for_is_asked_for_again_when_it_gave_up() {
    let mut world = up(3).await;
    world.nodes.lock().stuck = true;
    world.edit(|c| c["spec"]["nodes"] = json!([{"ordinal": 1, "drain": true}]));
    world.until("giving up twice", |w| w.nodes.lock().gave_up >= 2).await;
    let told = world.told("Draining");
    assert_eq!(told, ["demo-1: spec.nodes[].drain says so", "demo-1: 40 streams are left"]);
    world.nodes.lock().stuck = false;
    world.until("drained", |w| w.nodes.lock().records["demo-1"].streams == 0).await;
    world.at_rest().await;
    assert!(deletes(&world).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_to_leave_is_waited_for_without_end() {
    let mut world = up(4).await;
    patience(&world, 1);
    world.nodes.lock().stuck = true;
    world.edit(|c| c["spec"]["replicas"] = json!(3));
    world.steps(300).await;
    assert!(world.nodes.lock().gave_up > 10, "it was asked again and again");
    assert!(deletes(&world).is_empty());
    let left = world.nodes.lock().records["demo-3"].streams;
    assert_eq!(left, 40);
    world.nodes.lock().stuck = false;
    world.until("removed", |w| !w.nodes.lock().records.contains_key("demo-3")).await;
    world.at_rest().await;
    assert_eq!((world.streams(), deletes(&world)), (160, vec!["demo-3".to_owned()]));
}
