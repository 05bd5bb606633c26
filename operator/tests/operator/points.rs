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
    LostHost,
    /// Its volume is bound to a host that is no more.
    GoneHost,
    LostPod,
    LostVolume,
    /// By its owner.
    AbandonedVolume,
}

/// Where the operator dies in which episode. Together they are all points, which is checked.
const STEPS: &[(Episode, &[&str])] = &[
    (Episode::Creation, &["apply", "create-tokens", "create-volume", "create-pod", "pin", "write-status"]),
    (Episode::Slots, &["set-slots", "annotate-pod", "write-status"]),
    (Episode::Roll, &["drain", "delete-pod", "create-pod", "pin", "cancel-drain", "prune", "write-status"]),
    (Episode::ScaleDown, &["drain", "delete-pod", "remove-node", "delete-volume", "write-status"]),
    (
        Episode::LostHost,
        &["end-session", "patch-volume", "delete-pod", "create-volume", "create-pod", "pin", "delete-volume"],
    ),
    (Episode::GoneHost, &["patch-volume", "delete-pod", "create-volume", "create-pod", "pin"]),
    (Episode::LostPod, &["create-pod", "pin", "write-status"]),
    (Episode::LostVolume, &["create-volume", "create-pod", "pin", "write-status"]),
    (
        Episode::AbandonedVolume,
        &["drain", "delete-pod", "create-volume", "create-pod", "pin", "cancel-drain", "delete-volume"],
    ),
];

/// Node 1 before an episode.
struct Had {
    pod: String,
    raft_id: u64,
}

async fn begin(episode: Episode) -> (World, Option<Had>) {
    let value = with(minimal(), "/spec/deletionPolicy", json!({"whenScaled": "Delete"}));
    let mut world = World::new(&value, 4);
    if matches!(episode, Episode::Creation) {
        return (world, None);
    }
    world.until("ready", World::is_ready).await;
    world.give_streams(20);
    let had = {
        let record = world.nodes.lock().records["demo-1"].clone();
        Had { pod: record.incarnation, raft_id: record.raft_id }
    };
    match episode {
        Episode::Creation => {}
        Episode::Slots => world.edit(|c| c["spec"]["slots"] = json!(3)),
        Episode::Roll => world.edit(|c| c["spec"]["config"] = json!({"log-format": "json"})),
        Episode::ScaleDown => world.edit(|c| c["spec"]["replicas"] = json!(2)),
        Episode::LostHost => {
            let host = world.host_of(1);
            world.lose_host(&host);
        }
        Episode::GoneHost => {
            let host = world.host_of(1);
            world.remove_host(&host);
            // Five minutes, in which its next pod finds no host, in long steps.
            for _ in 0..6 {
                world.tick(50_000);
                let _outcome = world.pass_by(&world.another_operator(), None).await;
            }
        }
        Episode::LostPod => world.lose_pod(1),
        Episode::LostVolume => world.lose_volume(1),
        Episode::AbandonedVolume => world.abandon_volume(1),
    }
    (world, Some(had))
}

/// Node 1 is another pod and, if so, another member, with this volume and no other.
fn is_back(world: &World, had: Option<&Had>, anew: bool, volume: &str) -> bool {
    let Some(had) = had else { return false };
    let nodes = world.nodes.lock();
    let record = &nodes.records["demo-1"];
    let claims = world.api.store.lock().all("persistentvolumeclaims").len();
    let uses = world.value()["status"]["nodes"][1]["volume"] == volume;
    record.incarnation != had.pod && (record.raft_id != had.raft_id) == anew && uses && claims == 3
}

fn is_done(episode: Episode, world: &World, had: Option<&Had>) -> bool {
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
        Episode::LostHost | Episode::GoneHost | Episode::AbandonedVolume => {
            is_back(world, had, true, "data-demo-1-1")
        }
        Episode::LostPod => is_back(world, had, false, "data-demo-1"),
        Episode::LostVolume => is_back(world, had, true, "data-demo-1"),
    };
    so && world.is_ready()
}

async fn die_once(episode: Episode, point: &str) {
    let (mut world, had) = begin(episode).await;
    let died = Arc::new(AtomicBool::new(false));
    for _ in 0..500 {
        world.tick(STEP_MS);
        let (here, died) = (point.to_owned(), died.clone());
        let alive = move |passed: &str| passed != here || died.swap(true, Ordering::Relaxed);
        // Another process each time: nothing is remembered.
        let _outcome = world.pass_watched(&world.another_operator(), Arc::new(alive)).await;
        world.check();
        if is_done(episode, &world, had.as_ref()) {
            break;
        }
    }
    assert!(died.load(Ordering::Relaxed), "{point} was never reached in {episode:?}");
    assert!(
        is_done(episode, &world, had.as_ref()),
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
async fn an_operator_that_dies_at_any_point_of_a_replacement_for_a_lost_host_is_followed_up() {
    die_everywhere(|e| matches!(e, Episode::LostHost)).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_point_of_a_replacement_for_a_host_that_is_no_more_is_followed_up() {
    die_everywhere(|e| matches!(e, Episode::GoneHost)).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_point_of_a_replacement_for_a_lost_pod_or_volume_is_followed_up() {
    die_everywhere(|e| matches!(e, Episode::LostPod | Episode::LostVolume)).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_point_of_a_replacement_for_a_volume_given_up_is_followed_up() {
    die_everywhere(|e| matches!(e, Episode::AbandonedVolume)).await;
}
