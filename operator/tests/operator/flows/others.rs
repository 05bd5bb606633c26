//! What others do to a cluster's objects, and what is theirs: changed, foreign, missing, refused.

use serde_json::json;

use super::up;
use crate::fixtures::{minimal, with};
use crate::world::World;

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
