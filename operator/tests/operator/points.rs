//! The operator dies at every point of its work, by name, once; another goes on, and nothing forbidden is done.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use weir_operator::fault;

use crate::fixtures::{minimal, with};
use crate::world::{STEP_MS, World};

#[derive(Debug, Clone, Copy)]
enum Episode {
    Creation,
    Slots,
    Roll,
    ScaleDown,
    Replacement,
}

/// Where the operator dies in which episode. Together they are all points, which is checked.
const STEPS: &[(Episode, &[&str])] = &[
    (Episode::Creation, &["apply", "create-tokens", "create-volume", "create-pod", "pin", "write-status"]),
    (Episode::Slots, &["set-slots", "annotate-pod", "write-status"]),
    (Episode::Roll, &["drain", "delete-pod", "create-pod", "pin", "cancel-drain", "prune", "write-status"]),
    (Episode::ScaleDown, &["drain", "delete-pod", "remove-node", "delete-volume", "write-status"]),
    (
        Episode::Replacement,
        &["end-session", "patch-volume", "delete-pod", "create-volume", "create-pod", "pin"],
    ),
];

async fn begin(episode: Episode) -> World {
    let value = with(minimal(), "/spec/deletionPolicy", json!({"whenScaled": "Delete"}));
    let mut world = World::new(&value, 4);
    if matches!(episode, Episode::Creation) {
        return world;
    }
    world.until("ready", World::is_ready).await;
    world.give_streams(20);
    match episode {
        Episode::Creation => {}
        Episode::Slots => world.edit(|c| c["spec"]["slots"] = json!(3)),
        Episode::Roll => world.edit(|c| c["spec"]["config"] = json!({"log-format": "json"})),
        Episode::ScaleDown => world.edit(|c| c["spec"]["replicas"] = json!(2)),
        Episode::Replacement => {
            let host = world.host_of(1);
            world.lose_host(&host);
        }
    }
    world
}

fn is_done(episode: Episode, world: &World) -> bool {
    let value = world.value();
    let updated =
        || value["status"]["updatedReplicas"] == value["spec"].get("replicas").cloned().unwrap_or(json!(3));
    let so = match episode {
        Episode::Creation => true,
        Episode::Slots => world.nodes.lock().records.values().all(|r| r.slots == 3),
        Episode::Roll => updated() && world.api.store.lock().all("configmaps").len() == 1,
        Episode::ScaleDown => {
            world.nodes.lock().records.len() == 2
                && world.api.store.lock().all("persistentvolumeclaims").len() == 2
        }
        Episode::Replacement => value["status"]["nodes"][1]["volume"] == "data-demo-1-1",
    };
    so && world.is_ready()
}

async fn die_once(episode: Episode, point: &str) {
    let mut world = begin(episode).await;
    let died = Arc::new(AtomicBool::new(false));
    for _ in 0..500 {
        world.tick(STEP_MS);
        let (here, died) = (point.to_owned(), died.clone());
        let alive = move |passed: &str| passed != here || died.swap(true, Ordering::Relaxed);
        // Another process each time: nothing is remembered.
        let _outcome = world.pass_watched(&world.another_operator(), Arc::new(alive)).await;
        world.check();
        if is_done(episode, &world) {
            break;
        }
    }
    assert!(died.load(Ordering::Relaxed), "{point} was never reached in {episode:?}");
    assert!(
        is_done(episode, &world),
        "{episode:?} never ended after a death at {point}\n{}",
        world.describe()
    );
    world.at_rest().await;
    assert_eq!(world.nodes.lock().foundings, 1);
}

async fn die_everywhere(of: impl Fn(Episode) -> bool) {
    for (episode, steps) in STEPS.iter().filter(|(e, _)| of(*e)) {
        for step in *steps {
            for side in [fault::Side::Before, fault::Side::After] {
                die_once(*episode, &fault::name(side, step)).await;
            }
        }
    }
}

#[test]
fn every_point_is_in_an_episode() {
    let of = |(_, steps): &(Episode, &'static [&'static str])| steps.to_vec();
    let named: BTreeSet<&str> = STEPS.iter().flat_map(of).collect();
    assert_eq!(named, fault::STEPS.iter().copied().collect());
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_point_of_a_creation_or_an_edit_is_followed_up() {
    die_everywhere(|e| matches!(e, Episode::Creation | Episode::Slots)).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_point_of_a_roll_is_followed_up() {
    die_everywhere(|e| matches!(e, Episode::Roll)).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_point_of_a_scale_down_is_followed_up() {
    die_everywhere(|e| matches!(e, Episode::ScaleDown)).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_point_of_a_replacement_is_followed_up() {
    die_everywhere(|e| matches!(e, Episode::Replacement)).await;
}
