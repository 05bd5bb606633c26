//! Objects of others by the names that a cluster needs, and pods that a kubelet does not take. Told, and without a hot loop.

use std::time::Duration;

use serde_json::{Value, json};

use crate::fixtures::{UID, minimal, with};
use crate::world::{STEP_MS, World};

async fn up(replicas: u32) -> World {
    let mut world = World::new(&with(minimal(), "/spec/replicas", json!(replicas)), 3);
    world.until("ready", World::is_ready).await;
    world
}

/// A pod of somebody's on a host that this world does not run.
fn pod(name: &str, owner: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "streams", "ownerReferences": [owner]},
        "spec": {"nodeName": "elsewhere", "containers": [],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "of-another"}}]},
        "status": {"phase": "Running"}})
}

fn elsewhere(world: &mut World) {
    let later = world.now() + 1_000_000_000;
    world.down.insert("elsewhere".to_owned(), later);
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_somebody_else_is_named_and_waited_for() {
    let mut world = World::new(&minimal(), 3);
    elsewhere(&mut world);
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "demo", "uid": "u", "controller": true});
    world.api.store.lock().put("pods", pod("demo-1", set));
    world.steps(30).await;
    let status = world.value()["status"].clone();
    assert_eq!(status["state"], "Blocked", "{status}");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("Pod streams/demo-1 belongs to somebody else"), "{message}");
    let (ready, _, why) = world.condition("Ready");
    assert!(ready == "False" && why.contains("demo-1"), "{why}");
    world.is_still("while the name is taken").await;
    let (again, _) = world.pass_by(&world.context.clone(), None).await.unwrap();
    assert!(again >= Duration::from_secs(5), "{again:?}");
    world.api.store.lock().remove("pods", "demo-1");
    world.at_rest().await;
    assert_eq!(world.pod_uids().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_its_label_is_told_and_not_made_again() {
    let mut world = up(3).await;
    world.at_rest().await;
    let before = world.pod_uids();
    world.api.store.lock().edit("pods", "demo-1", |p| {
        p["metadata"]["labels"].as_object_mut().unwrap().remove("weir.dev/cluster");
    });
    world.steps(3).await;
    let message = world.value()["status"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("Pod demo-1 is without its label weir.dev/cluster=demo"), "{message}");
    world.is_still("while it is without its label").await;
    world
        .api
        .store
        .lock()
        .edit("pods", "demo-1", |p| p["metadata"]["labels"]["weir.dev/cluster"] = json!("demo"));
    world.at_rest().await;
    assert_eq!(world.pod_uids(), before);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_one_of_the_same_name_are_waited_for_and_no_trouble() {
    let mut world = World::new(&minimal(), 3);
    elsewhere(&mut world);
    for n in 0..3 {
        let owner = json!({"apiVersion": "weir.dev/v1alpha1", "kind": "StreamCluster", "name": "demo",
            "uid": "the-one-before", "controller": true});
        let mut pod = pod(&format!("demo-{n}"), owner);
        pod["metadata"]["labels"] = json!({"weir.dev/cluster": "demo"});
        world.api.store.lock().put("pods", pod);
    }
    world.steps(10).await;
    let status = world.value()["status"].clone();
    assert_eq!(status["state"], "Creating", "{status}");
    assert!(status["message"].as_str().unwrap().contains("a pod of its name is still stopping"), "{status}");
    assert_eq!(world.condition("Degraded").0, "False");
    world.is_still("while they stop").await;
    for n in 0..3 {
        world.api.store.lock().remove("pods", &format!("demo-{n}"));
    }
    world.at_rest().await;
    assert_ne!(UID, "the-one-before");
}

#[tokio::test(start_paused = true)]
async fn a_service_of_somebody_else_is_named_and_hinders_nothing_else() {
    let mut world = up(3).await;
    let service = json!({"metadata": {"name": "demo-1", "namespace": "streams"}, "spec": {}});
    world.api.store.lock().put("services", service.clone());
    world.edit(|c| {
        c["spec"]["nodeServices"] = json!({"type": "NodePort"});
        c["spec"]["config"] = json!({"log-format": "json"});
    });
    let before = world.pod_uids();
    world
        .until("all restarted", |w| {
            let now = w.pod_uids();
            now.len() == 3
                && now.iter().all(|(name, uid)| before[name] != *uid)
                && w.condition("Ready").0 == "True"
        })
        .await;
    let message = world.value()["status"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("Service streams/demo-1 belongs to somebody else"), "{message}");
    assert_eq!(world.api.store.lock().get("services", "demo-1").unwrap()["spec"], service["spec"]);
    world.is_still("while the name is taken").await;
}

/// Passes over a cluster whose pods a kubelet rejects as soon as it sees them; when each was made.
async fn rejected(world: &World, steps: u32) -> Vec<i64> {
    let mut made = Vec::new();
    for _ in 0..steps {
        world.api.store.lock().now_ms += STEP_MS;
        let _outcome = world.pass_by(&world.context.clone(), None).await;
        let mut store = world.api.store.lock();
        let new = store.all("pods").into_iter().filter(|(_, p)| p["status"]["phase"] != "Failed");
        for ((_, _, name), _) in new.collect::<Vec<_>>() {
            made.push(store.now_ms);
            store.edit("pods", &name, |p| {
                p["status"] = json!({"phase": "Failed", "reason": "OutOfcpu", "conditions": []});
            });
        }
    }
    made
}

#[tokio::test(start_paused = true)]
async fn pods_that_a_kubelet_rejects_are_made_anew_later_and_later() {
    let world = World::new(&with(minimal(), "/spec/replicas", json!(1)), 3);
    let made = rejected(&world, 900).await;
    let pauses: Vec<i64> = made.windows(2).map(|w| (w[1] - w[0]) / 1000).collect();
    assert!((7..20).contains(&made.len()), "{} pods in half an hour: {pauses:?}", made.len());
    assert!(pauses[0] <= 10 && pauses.iter().all(|p| *p <= 320), "{pauses:?}");
    assert!(pauses.windows(2).all(|w| w[1] + 4 >= w[0]), "{pauses:?}");
    let (degraded, reason, message) = world.condition("Degraded");
    assert_eq!((degraded.as_str(), reason.as_str()), ("True", "NodeBroken"), "{message}");
    assert!(message.contains("its pod is over: Failed OutOfcpu"), "{message}");
    // A cluster of three is no other matter.
    let world = World::new(&minimal(), 3);
    let made = rejected(&world, 900).await;
    assert!((21..60).contains(&made.len()), "{} pods", made.len());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_had_run_is_made_anew_at_once() {
    let mut world = up(3).await;
    world.at_rest().await;
    let uid = world.pod_uids()["demo-1"].clone();
    world.nodes.lock().processes.remove(&uid);
    world.api.store.lock().edit("pods", "demo-1", |p| {
        p["status"]["phase"] = json!("Failed");
        p["status"]["reason"] = json!("Evicted");
        p["status"]["containerStatuses"] = json!([]);
        p["spec"]["nodeName"] = json!("elsewhere");
    });
    elsewhere(&mut world);
    world.api.store.lock().put("nodes", json!({"metadata": {"name": "elsewhere"}}));
    world.pass().await;
    let deleted = world.pod(1).is_none_or(|p| !p["metadata"]["deletionTimestamp"].is_null());
    assert!(deleted, "{}", world.describe());
}
