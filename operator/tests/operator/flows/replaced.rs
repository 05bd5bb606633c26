//! What is lost comes back: pods, volumes, hosts, and the majority of them.

use serde_json::json;

use super::{outcome_of, up};
use crate::fixtures::minimal;
use crate::world::World;

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
async fn an_operator_that_may_not_see_hosts_still_runs_a_cluster() {
    let mut world = World::new(&minimal(), 3);
    world.api.store.lock().hosts_forbidden = true;
    world.at_rest().await;
    world.lose_pod(2);
    world.at_rest().await;
}

/// The other two signs of a lost host, at which its kubelet need not have been silent for a minute.
#[tokio::test(start_paused = true)]
async fn a_host_that_is_gone_or_declared_dead_is_given_up_like_a_silent_one() {
    for (dead, words) in [(false, "is gone"), (true, "is out of service")] {
        let mut world = up(3).await;
        let (epoch, incarnation, raft_id) = outcome_of(1, &world);
        let host = world.host_of(1);
        if dead {
            world.lose_host(&host);
            world.declare_dead(&host, true);
        } else {
            world.delete_host(&host);
        }
        // Its pod is there, and its process runs and is connected.
        let silent = world.now();
        world.until("replaced", |w| outcome_of(1, w).1 != incarnation).await;
        assert!(!dead || world.now() - silent < 60_000, "who has said so is not asked to wait");
        world.at_rest().await;
        let after = outcome_of(1, &world);
        assert!(after.0 > epoch && after.2 != raft_id, "{words}");
        assert_ne!(world.host_of(1), host, "{words}");
        assert!(world.nodes.lock().processes[&incarnation].superseded, "{words}: the old process was fenced");
        for reason in ["Fencing", "ForceDeletingPod"] {
            let told = world.told(reason);
            assert!(told.len() == 1 && told[0].contains(&format!("its host {host} {words}")), "{told:?}");
        }
        world.cut(&host);
        world.declare_dead(&host, false);
        world.host_returns(&host);
        world.at_rest().await;
        assert_eq!(outcome_of(1, &world), after, "{words}: and never comes back");
        assert_eq!(world.nodes.lock().voters().len(), 3);
    }
}

/// A host that has just joined is not known to every cache yet: its pod is given a minute.
#[tokio::test(start_paused = true)]
async fn a_young_pod_on_a_host_that_is_not_seen_yet_is_left_alone() {
    let mut world = up(3).await;
    let host = world.host_of(1);
    let object = world.api.store.lock().get("nodes", &host).cloned().unwrap();
    let uid = outcome_of(1, &world).1;
    world.lose_pod(1);
    world.until("another pod", |w| outcome_of(1, w).1 != uid).await;
    assert_eq!(world.host_of(1), host, "its volume is there");
    let before = world.pod_uids();
    world.api.store.lock().remove("nodes", &host);
    world.steps(10).await;
    world.api.store.lock().put("nodes", object);
    world.at_rest().await;
    assert_eq!(world.pod_uids(), before);
}
