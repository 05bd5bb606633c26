//! Volume claims: given up, others' of the same name, made anew, grown, owned.

use http::Method;
use serde_json::json;

use super::{outcome_of, up};
use crate::api::Fault;
use crate::fixtures::minimal;
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn a_volume_given_up_by_its_owner_is_replaced_gently() {
    let mut world = up(3).await;
    let before = outcome_of(1, &world).2;
    world.abandon_volume(1);
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
    world.abandon_volume(1);
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
