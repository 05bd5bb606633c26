//! Many StreamClusters in one operator: what is wrong with one is no other's matter, and of one that is gone nothing stays.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use weir_operator::controller;

use crate::api::Fault;
use crate::fixtures::{minimal, with};
use crate::world::World;

struct Running {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Running {
    fn start(world: &World) -> Self {
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let (client, context) = (world.api.client(), world.context.clone());
        tasks.spawn(controller::run(client, context, None, stop.clone()));
        Self { stop, tasks }
    }

    async fn end(mut self) {
        self.stop.cancel();
        assert!(self.tasks.join_next().await.unwrap().is_ok());
    }
}

fn named(name: &str) -> Value {
    let value = with(minimal(), "/metadata/name", json!(name));
    with(value, "/metadata/uid", json!(format!("uid-of-{name}")))
}

fn metrics(world: &World) -> String {
    world.context.hands.metrics.text()
}

/// Made-up time goes on while the controller runs beside it.
async fn until(world: &mut World, what: &str, holds: impl Fn(&World) -> bool) -> Duration {
    let began = tokio::time::Instant::now();
    for _ in 0..6_000 {
        if holds(world) {
            return began.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.tick(100);
        world.check();
    }
    panic!("never: {what}\n{}\n{}", world.describe(), metrics(world));
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_read_is_told_and_stops_no_other() {
    let mut world = World::new(&minimal(), 3);
    // As a newer operator left it.
    let mut newer = with(named("newer"), "/spec/update", json!({"strategy": "BlueGreen"}));
    newer["status"] = json!({"state": "Ready", "clusterUid": "c1", "beyond": {"a": 1}});
    world.api.store.lock().put("streamclusters", newer);
    let running = Running::start(&world);
    until(&mut world, "ready", World::is_ready).await;
    let read = |w: &World| w.api.store.lock().get("streamclusters", "newer").cloned().unwrap();
    until(&mut world, "told", |w| read(w)["status"]["state"] == "Blocked").await;
    let status = read(&world)["status"].clone();
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("cannot read this") && message.contains("BlueGreen"), "{message}");
    assert_eq!((&status["clusterUid"], &status["beyond"]), (&json!("c1"), &json!({"a": 1})));
    let stalled = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Stalled").cloned();
    assert_eq!(stalled.unwrap()["status"], "True");
    let line = "weir_operator_cluster_condition{namespace=\"streams\",weir_cluster=\"newer\",condition=\"Stalled\",status=\"true\"} 1";
    assert!(metrics(&world).contains(line), "{}", metrics(&world));
    // Once.
    let written = |w: &World| {
        let store = w.api.store.lock();
        store.writes.iter().filter(|w| w.name == "newer" || w.resource == "events").count()
    };
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.tick(100);
    }
    let before = written(&world);
    for _ in 0..6_000 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.tick(100);
    }
    assert_eq!(written(&world), before);
    // One that is put right is read again; paused, for this world has room for one.
    world.api.store.lock().edit("streamclusters", "newer", |c| {
        c["spec"]["update"]["strategy"] = json!("Rolling");
        c["metadata"]["annotations"] = json!({"weir.dev/paused": "true"});
    });
    until(&mut world, "read", |w| read(w)["status"]["state"] == "Paused").await;
    assert!(!metrics(&world).contains(line), "{}", metrics(&world));
    assert_eq!(read(&world)["status"]["clusterUid"], "c1");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_state_that_only_a_newer_operator_knows_is_made_anew() {
    let mut world = World::new(&minimal(), 3);
    world.until("ready", World::is_ready).await;
    let pods = world.pod_uids();
    world.edit(|c| c["status"]["state"] = json!("Rebalancing"));
    world.at_rest().await;
    assert_eq!((world.value()["status"]["state"].clone(), world.pod_uids()), (json!("Ready"), pods));
}

#[tokio::test(start_paused = true)]
async fn of_one_that_is_gone_nothing_is_shown_any_more() {
    // At rest, and while a pass over it waits for nodes that hang.
    for hang in [false, true] {
        let mut world = World::new(&minimal(), 3);
        let running = Running::start(&world);
        until(&mut world, "ready", World::is_ready).await;
        assert!(metrics(&world).contains("cluster=\"demo\""), "{}", metrics(&world));
        if hang {
            world.nodes.lock().processes.values_mut().for_each(|p| p.hangs = true);
            world.lose_pod(1);
            until(&mut world, "another pod", |w| w.pod(1).is_some()).await;
        }
        let passes =
            |w: &World| metrics(w).lines().find(|l| l.contains("reconciles_total{")).map(str::to_owned);
        let before = passes(&world);
        world.api.store.lock().remove("streamclusters", "demo");
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert!(hang || before == passes(&world), "passes over what is not there");
        assert!(!metrics(&world).contains("demo"), "{}", metrics(&world));
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_being_deleted_misses_no_node() {
    let mut world = World::new(&minimal(), 3);
    world.until("ready", World::is_ready).await;
    world.edit(|c| c["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z"));
    world.steps(2).await;
    assert!(!metrics(&world).contains("demo"), "{}", metrics(&world));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_is_told_and_begun_anew() {
    let mut world = World::new(&minimal(), 3);
    world.api.store.lock().fault = Some(Box::new(|method: &Method, key| {
        let listed = *method == Method::GET && key.0 == "streamclusters" && key.2.is_empty();
        listed.then_some(Fault::Internal)
    }));
    let running = Running::start(&world);
    let failed = |w: &World| {
        let text = metrics(w);
        let line = text.lines().find(|l| l.starts_with("weir_operator_watch_failures_total")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    until(&mut world, "told", |w| failed(w) > 2).await;
    world.api.store.lock().fault = None;
    until(&mut world, "ready", World::is_ready).await;
    running.end().await;
}

/// Clusters whose nodes run on a host that takes packets and answers none.
fn cut_off(world: &mut World, clusters: u32) {
    let now = world.now();
    world.down.insert("elsewhere".to_owned(), now + 1_000_000_000);
    let mut store = world.api.store.lock();
    store.put(
        "nodes",
        json!({"metadata": {"name": "elsewhere"}, "status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
    );
    for n in 0..clusters {
        let cluster = format!("cut-{n}");
        store.put("streamclusters", named(&cluster));
        // They are asked at the first pass.
        let tokens = json!({"metadata": {"name": format!("{cluster}-admin"), "namespace": "streams"},
            "data": {"tokens": "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg="}});
        store.put("secrets", tokens);
        for ordinal in 0..3 {
            let owner = json!({"apiVersion": "weir.dev/v1alpha1", "kind": "StreamCluster", "name": cluster,
                "uid": format!("uid-of-{cluster}"), "controller": true});
            store.put(
                "pods",
                json!({
                    "metadata": {"name": format!("{cluster}-{ordinal}"), "namespace": "streams", "ownerReferences": [owner],
                        "labels": {"weir.dev/cluster": cluster, "weir.dev/ordinal": ordinal.to_string()}},
                    "spec": {"nodeName": "elsewhere", "containers": [{"name": "weir", "image": "weir:default"}],
                        "volumes": [{"name": "data",
                            "persistentVolumeClaim": {"claimName": format!("data-{cluster}-{ordinal}")}}]},
                    "status": {"phase": "Running", "podIP": format!("10.99.{n}.{ordinal}"),
                        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2027-01-15T08:00:00Z"}],
                        "containerStatuses": [{"name": "weir", "state": {"running": {}}}]},
                }),
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_hang_hold_up_their_own_cluster_alone() {
    let mut world = World::new(&minimal(), 3);
    world.until("ready", World::is_ready).await;
    cut_off(&mut world, 60);
    let running = Running::start(&world);
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.tick(100);
    }
    for slots in 2..7 {
        world.edit(|c| c["spec"]["slots"] = json!(slots));
        let all = |w: &World| w.nodes.lock().records.values().all(|r| r.slots == slots);
        let took = until(&mut world, "slots applied", all).await;
        assert!(took <= Duration::from_secs(1), "{took:?} of made-up time");
    }
    let asked = metrics(&world);
    assert!(
        asked.contains("weir_operator_cluster_nodes{namespace=\"streams\",weir_cluster=\"cut-59\""),
        "{asked}"
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_is_told_to_stop_finishes_what_is_under_way_and_begins_nothing() {
    let mut world = World::new(&minimal(), 3);
    cut_off(&mut world, 300);
    let running = Running::start(&world);
    // All are due by now, and nodes have not failed to answer yet.
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.end().await;
    let text = metrics(&world);
    let of = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let passes: u64 = text.lines().filter(|l| l.starts_with("weir_operator_reconciles_total{")).map(of).sum();
    assert!((1..200).contains(&passes), "{passes} passes");
}

#[tokio::test(start_paused = true)]
async fn what_a_pass_reads_does_not_grow_with_the_namespace() {
    let mut world = World::new(&minimal(), 3);
    world.at_rest().await;
    for n in 0..500 {
        let claim = json!({"metadata": {"name": format!("data-other-{n}"), "namespace": "streams",
            "labels": {"weir.dev/cluster": "other"}}, "status": {"phase": "Bound"}});
        world.api.store.lock().put("persistentvolumeclaims", claim);
    }
    let read = |w: &World| w.api.store.lock().listed.get();
    let before = read(&world);
    world.pass().await;
    let at_rest = read(&world) - before;
    assert!((1..50).contains(&at_rest), "{at_rest} objects");
    world.lose_volume(1);
    let before = read(&world);
    world.pass().await;
    let names = read(&world) - before;
    assert!(names < 50, "{names} objects");
}
