//! What users are told as it happens: every reason of an event, with its text; `docs/operator.md` has them all.

use std::collections::BTreeSet;

use serde_json::json;

use super::{outcome_of, up};
use crate::fixtures::{minimal, with};
use crate::world::World;

/// Whether there is an event of this reason whose text has all of these words.
#[track_caller]
fn assert_told(world: &World, reason: &str, words: &[&str]) {
    let told = world.told(reason);
    assert!(
        told.iter().any(|t| words.iter().all(|w| t.contains(w))),
        "{reason} {words:?}: {:#?}",
        world.notes()
    );
}

fn warns(world: &World, reason: &str) -> bool {
    let all = world.api.store.lock().all("events");
    all.iter().any(|(_, e)| e["reason"] == reason && e["type"] == "Warning")
}

async fn changes() -> World {
    let value = with(minimal(), "/spec/deletionPolicy", json!({"whenScaled": "Delete"}));
    let mut world = World::new(&value, 3);
    world.at_rest().await;
    world.give_streams(40);
    assert_told(&world, "CreatingVolume", &["data-demo-2"]);
    assert_told(&world, "CreatingPod", &["demo-2"]);
    assert_told(&world, "Ready", &["AllNodesReady"]);

    world.nodes.lock().records.get_mut("demo-1").unwrap().slots = 9;
    world.at_rest().await;
    assert_told(&world, "SlotsCorrected", &["demo-1: slots were changed to 9", "set back to 1"]);

    let (epoch, uid, _) = outcome_of(0, &world);
    world.kill(0);
    world.until("another epoch", |w| outcome_of(0, w).0 > epoch).await;
    world.at_rest().await;
    let same = format!("pod {uid} at epoch {epoch} -> pod {uid} at epoch ");
    assert_told(&world, "NodeRestarted", &["demo-0: ", &same]);

    world.edit(|c| c["spec"]["config"] = json!({"log-format": "json"}));
    world.at_rest().await;
    assert_told(&world, "Draining", &["demo-2: its template has changed"]);
    assert_told(&world, "DeletingPod", &["demo-2: its template has changed; drained"]);
    assert_told(&world, "NodeReplaced", &["demo-0: ", &format!("pod {uid} at epoch ")]);

    world.edit(|c| c["spec"]["replicas"] = json!(2));
    world.at_rest().await;
    assert_told(&world, "Draining", &["demo-2: it is to be removed"]);
    assert_told(&world, "DeletingPod", &["demo-2: drained, and not wanted any more"]);
    assert_told(&world, "RemovingNode", &["demo-2: drained and stopped"]);
    assert_told(&world, "DeletingVolume", &["data-demo-2: deletionPolicy.whenScaled is Delete"]);
    assert!(!warns(&world, "Draining") && !warns(&world, "RemovingNode"));
    world
}

async fn losses() -> World {
    let mut world = up(3).await;
    let (epoch, uid, raft_id) = outcome_of(1, &world);
    let host = world.host_of(1);
    world.lose_host(&host);
    world.until("replaced", |w| outcome_of(1, w).1 != uid).await;
    world.at_rest().await;
    let why = format!("its host {host} has not been ready");
    assert_told(&world, "Degraded", &["HostLost: demo-1: ", &why]);
    assert_told(&world, "NotReady", &["NodesNotReady: demo-1: "]);
    assert_told(&world, "Fencing", &[&format!("demo-1 at epoch {epoch}: {why}")]);
    assert_told(&world, "ForceDeletingPod", &["demo-1: ", &why]);
    let member = format!("raft id {raft_id} -> {}, its data directory is new", outcome_of(1, &world).2);
    assert_told(&world, "NodeReplaced", &[&format!("demo-1: pod {uid} at epoch {epoch}"), &member]);

    world.nodes.lock().store_down = true;
    world.until("trouble", |w| w.condition("StorageReady").0 == "False").await;
    assert_told(&world, "StorageNotReady", &["StoreTrouble: demo-0: because"]);
    world.nodes.lock().store_down = false;
    world.at_rest().await;

    (0..3).for_each(|n| world.lose_pod(n));
    world.at_rest().await;
    assert_told(&world, "QuorumLost", &["NoNodes: no node is there"]);
    for reason in ["Degraded", "NotReady", "Fencing", "ForceDeletingPod", "StorageNotReady", "QuorumLost"] {
        assert!(warns(&world, reason), "{reason}");
    }
    world
}

#[tokio::test(start_paused = true)]
async fn every_step_and_every_turn_is_told_and_the_documentation_has_each_reason() {
    let mut told = BTreeSet::new();
    for world in [changes().await, losses().await] {
        told.extend(world.notes().into_iter().map(|(reason, _)| reason));
    }
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operator.md")).unwrap();
    let events = text.split("## Events").nth(1).unwrap().split("\n## ").next().unwrap();
    let first_cells = events.lines().filter_map(|l| l.strip_prefix("| ")?.split(" | ").next());
    let names = first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let documented: BTreeSet<String> = names.map(str::to_owned).collect();
    assert_eq!(told, documented);
}
