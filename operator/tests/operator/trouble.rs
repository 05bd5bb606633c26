//! What goes wrong outside of the operator, and what it then says: nodes that fail to answer, a spec that no schema can
//! refuse, the only vote. And that trouble makes no hot loop.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use weir_operator::controller;

use crate::api::Fault;
use crate::fixtures::{minimal, with};
use crate::world::World;

async fn up(replicas: u32) -> World {
    let mut world = World::new(&with(minimal(), "/spec/replicas", json!(replicas)), 3);
    world.until("ready", World::is_ready).await;
    world.give_streams(40);
    world
}

#[tokio::test(start_paused = true)]
async fn nodes_that_fail_to_answer_are_outlived() {
    for every in [2, 3, 7] {
        let mut world = up(4).await;
        world.nodes.lock().unreliable = every;
        world.edit(|c| {
            c["spec"]["replicas"] = json!(3);
            c["spec"]["config"] = json!({"log-format": "json"});
        });
        world.steps(150).await;
        world.nodes.lock().unreliable = 0;
        world.until("settled", |w| w.is_ready() && w.nodes.lock().records.len() == 3).await;
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_takes_no_writes_is_asked_less_and_less() {
    for fault in [Fault::Conflict, Fault::Internal, Fault::NotFound, Fault::TooMany] {
        let mut world = World::new(&minimal(), 3);
        world.until("ready", World::is_ready).await;
        world.api.store.lock().fault =
            Some(Box::new(move |method: &Method, _| (*method != Method::GET).then_some(fault)));
        world.lose_pod(1);
        let stop = CancellationToken::new();
        let (client, context) = (world.api.client(), world.context.clone());
        let mut running = tokio::task::JoinSet::new();
        running.spawn(controller::run(client, context, None, stop.clone()));
        let before = world.api.store.lock().requests;
        tokio::time::sleep(Duration::from_secs(600)).await;
        let asked = world.api.store.lock().requests - before;
        stop.cancel();
        assert!(running.join_next().await.unwrap().is_ok());
        // A pass reads some fifteen times; one in ten seconds is the most that a conflict causes.
        assert!((20..1800).contains(&asked), "{fault:?}: {asked} requests in ten minutes");
        world.api.store.lock().fault = None;
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_namespace_refuses_because_it_is_being_deleted_is_no_trouble_of_the_clusters() {
    let mut world = up(3).await;
    world.api.store.lock().fault =
        Some(Box::new(|method: &Method, _| (*method == Method::POST).then_some(Fault::Ending)));
    let before = world.pod_uids().len();
    world.lose_pod(1);
    world.steps(5).await;
    assert_eq!(world.pod_uids().len(), before - 1);
    let (degraded, reason, message) = world.condition("Degraded");
    assert_eq!((degraded.as_str(), reason.as_str()), ("False", "AsExpected"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lacks_an_endpoint_is_named_with_it() {
    let mut world = up(3).await;
    world.nodes.lock().unknown_paths = vec!["/admin/members"];
    world.steps(3).await;
    let (status, reason, message) = world.condition("QuorumHealthy");
    assert_eq!((status.as_str(), reason.as_str()), ("Unknown", "NoAnswer"), "{message}");
    assert!(message.contains("leads and does not say who votes: no-such-path"), "{message}");
    world.nodes.lock().unknown_paths = vec!["/admin/nodes"];
    world.steps(3).await;
    let (status, _, message) = world.condition("QuorumHealthy");
    assert_eq!(status, "Unknown");
    assert!(message.contains("demo-1: it does not show the cluster's record: no-such-path"), "{message}");
    let before = world.pod_uids();
    world.nodes.lock().unknown_paths = vec![];
    world.at_rest().await;
    assert_eq!(world.pod_uids(), before);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_endpoint_is_told_in_the_nodes_words_and_healed_by_the_spec() {
    let value = with(minimal(), "/spec/objectStore/endpoint", json!("http://nowhere:9000"));
    let mut world = World::new(&value, 3);
    world.nodes.lock().store_down = true;
    world.steps(20).await;
    let (status, reason, message) = world.condition("StorageReady");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "StoreTrouble"));
    assert!(message.contains("demo-0: because, for "), "{message}");
    world.is_still("while the store is away").await;
    assert_eq!(world.condition("Ready").0, "False");
    let writes = world.api.store.lock().writes.len();
    world.steps(20).await;
    assert_eq!(world.api.store.lock().writes.len(), writes, "waiting writes nothing");
    world.edit(|c| c["spec"]["objectStore"]["endpoint"] = json!("http://minio:9000"));
    world.nodes.lock().store_down = false;
    world.at_rest().await;
    assert_eq!(world.condition("StorageReady").0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_storage_class_that_there_is_not_is_named_and_another_is_enough() {
    let value = with(minimal(), "/spec/metadata", json!({"volume": {"storageClassName": "missing"}}));
    let mut world = World::new(&value, 3);
    world.steps(20).await;
    let (status, _, message) = world.condition("Ready");
    assert_eq!(status, "False");
    assert!(
        message.contains("unbound immediate")
            && message.contains("volume claim data-demo-0 (storage class missing) is not bound"),
        "{message}"
    );
    let writes = world.api.store.lock().writes.len();
    world.steps(20).await;
    assert_eq!(world.api.store.lock().writes.len(), writes, "waiting writes nothing");
    let pods = world.pod_uids();
    world.edit(|c| c["spec"]["metadata"]["volume"]["storageClassName"] = json!("fast"));
    world.at_rest().await;
    assert_eq!(world.pod_uids(), pods, "the pods only wait for their claims");
    // A claim that has a volume keeps it, whatever class is wanted later.
    let uid = |w: &World| {
        w.api.store.lock().get("persistentvolumeclaims", "data-demo-0").unwrap()["metadata"]["uid"].clone()
    };
    let before = uid(&world);
    world.edit(|c| c["spec"]["metadata"]["volume"]["storageClassName"] = json!("faster"));
    world.at_rest().await;
    assert_eq!(uid(&world), before);
}

#[tokio::test(start_paused = true)]
async fn a_size_that_cannot_be_had_is_told_and_taken_back() {
    let mut world = up(3).await;
    let claims = |w: &World, change: &dyn Fn(&mut serde_json::Value)| {
        for n in 0..3 {
            w.api.store.lock().edit("persistentvolumeclaims", &format!("data-demo-{n}"), change);
        }
    };
    let size = |w: &World| {
        let store = w.api.store.lock();
        store.get("persistentvolumeclaims", "data-demo-1").unwrap()["spec"]["resources"]["requests"]["storage"].clone()
    };
    let resize = |to: &str| json!({"voters": 3, "volume": {"size": to}});
    world.edit(|c| c["spec"]["metadata"] = resize("900Ti"));
    world.steps(3).await;
    claims(&world, &|c| {
        c["status"]["capacity"] = json!({"storage": "2Gi"});
        c["status"]["conditions"] =
            json!([{"type": "ControllerResizeError", "status": "True", "message": "above the limit"}]);
    });
    world.steps(2).await;
    let (status, reason, message) = world.condition("Degraded");
    assert_eq!((status.as_str(), reason.as_str(), size(&world)), ("True", "ResizeFailed", json!("900Ti")));
    assert!(message.contains("above the limit"), "{message}");
    world.edit(|c| c["spec"]["metadata"] = resize("3Gi"));
    world.steps(2).await;
    assert_eq!(size(&world), "3Gi", "more than there is: Kubernetes takes it");
    world.edit(|c| c["spec"]["metadata"] = resize("2Gi"));
    world.steps(2).await;
    assert_eq!(
        (size(&world), world.condition("Degraded").0),
        (json!("3Gi"), "False".to_owned()),
        "as much as there is"
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_with_the_only_vote_is_waited_for() {
    let mut world = up(2).await;
    let holder = {
        let nodes = world.nodes.lock();
        let [vote] = nodes.voters()[..] else { panic!("{:?}", nodes.members) };
        let (name, _) = nodes.records.iter().find(|(_, r)| r.raft_id == vote).unwrap();
        name.rsplit('-').next().unwrap().parse::<u32>().unwrap()
    };
    let (host, before) = (world.host_of(holder), world.pod_uids());
    // Its process still runs, and is connected.
    world.lose_host(&host);
    world.steps(120).await;
    assert_eq!(world.pod_uids(), before, "without its volume there would be no metadata log");
    let (_, _, message) = world.condition("Degraded");
    assert!(message.contains("has not been ready"), "{message}");
    let step = world.value()["status"]["operation"]["step"].clone();
    assert!(step.as_str().unwrap_or_default().contains("has the only vote"), "{step}");
    world.is_still("while a host is lost").await;
    world.host_returns(&host);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn the_only_vote_moves_before_its_node_leaves_or_gives_its_volume_up() {
    // Down to one, from wherever the vote is.
    let mut world = up(3).await;
    world.edit(|c| c["spec"]["replicas"] = json!(2));
    world.at_rest().await;
    let vote = |w: &World| w.nodes.lock().voters();
    let of = |w: &World, node: &str| w.nodes.lock().records[node].raft_id;
    {
        let (zero, one) = (of(&world, "demo-0"), of(&world, "demo-1"));
        let mut nodes = world.nodes.lock();
        nodes.members.get_mut(&zero).unwrap().voter = false;
        nodes.members.get_mut(&one).unwrap().voter = true;
        nodes.leader = Some(one);
    }
    world.edit(|c| c["spec"]["replicas"] = json!(1));
    world.at_rest().await;
    assert_eq!(vote(&world), [of(&world, "demo-0")]);
    // A single node's volume is never given up.
    let abandon = |w: &World, name: &str| {
        w.api.store.lock().edit("persistentvolumeclaims", name, |c| {
            c["metadata"]["annotations"]["weir.dev/abandoned"] = json!("by hand");
        });
    };
    let before = world.pod_uids();
    abandon(&world, "data-demo-0");
    world.steps(30).await;
    assert_eq!(world.pod_uids(), before);
    let step = world.value()["status"]["operation"]["step"].clone();
    assert!(step.as_str().unwrap_or_default().contains("the only vote"), "{step}");
    // With another to take the vote, it is.
    let id = of(&world, "demo-0");
    world.edit(|c| c["spec"]["replicas"] = json!(2));
    world.until("another member", |w| of(w, "demo-0") != id).await;
    world.at_rest().await;
    assert_eq!(world.nodes.lock().foundings, 1);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_lives_on_without_a_pod_does_not_hinder_a_scale_down() {
    let mut world = up(4).await;
    let host = world.host_of(3);
    world.lose_host(&host);
    // By hand, and by force; the process goes on, and is connected.
    world.lose_pod(3);
    world.edit(|c| c["spec"]["replicas"] = json!(3));
    world.until("removed", |w| !w.nodes.lock().records.contains_key("demo-3")).await;
    world.host_returns(&host);
    world.at_rest().await;
    assert_eq!(world.nodes.lock().members.len(), 3);
}

/// The StreamCluster is deleted, and what it owns with it; its volumes stay. Another of its name is made.
fn made_again(world: &World) {
    let mut store = world.api.store.lock();
    for kind in ["pods", "services", "configmaps", "secrets", "serviceaccounts", "poddisruptionbudgets"] {
        for ((_, _, name), _) in store.all(kind) {
            store.remove(kind, &name);
        }
    }
    store.edit("streamclusters", "demo", |c| {
        c["metadata"]["uid"] = json!("5f1c0000-0000-4000-8000-000000000002");
        drop(c.as_object_mut().map(|c| c.remove("status")));
    });
}

fn claims_in_use(world: &World) -> Vec<String> {
    let volumes = |n| world.pod(n)?["spec"]["volumes"].as_array().cloned();
    let claim = |v: &serde_json::Value| v["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned);
    (0..3).filter_map(|n| volumes(n)?.iter().find_map(claim)).collect()
}

/// Made without the uid it has empty volumes of its own beside those that hold the log, and must not stay with them.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_told_late_what_it_takes_over_goes_back_to_the_volumes_that_hold_it() {
    let mut world = up(3).await;
    let (uid, had) = (world.nodes.lock().uid.clone(), claims_in_use(&world));
    made_again(&world);
    world.steps(20).await;
    assert_eq!(claims_in_use(&world), ["data-demo-0-1", "data-demo-1-1", "data-demo-2-1"]);
    assert!(!world.is_ready() && world.value()["status"]["clusterUid"].is_null(), "{}", world.describe());
    world.edit(|c| c["spec"]["objectStore"]["adoptClusterUid"] = json!(uid));
    world.until("ready with what it had", World::is_ready).await;
    world.at_rest().await;
    assert_eq!(claims_in_use(&world), had);
    assert_eq!(world.nodes.lock().members.len(), 3, "nobody joined anew");
}
