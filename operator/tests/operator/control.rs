//! The controller itself, on watches: what wakes it, and how it stops. And elections.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use weir_operator::controller;
use weir_operator::lease::{Election, Terms};

use crate::api::Api;
use crate::fixtures::minimal;
use crate::world::World;

/// Made-up time goes on in small steps while the controller runs beside it.
async fn pass_time(world: &mut World, what: &str, holds: impl Fn(&World) -> bool) -> Duration {
    let began = tokio::time::Instant::now();
    for _ in 0..6_000 {
        if holds(world) {
            return began.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.tick(100);
        world.check();
    }
    panic!("never: {what}\n{}", world.describe());
}

#[tokio::test(start_paused = true)]
async fn watches_wake_the_controller_and_it_stops_as_told() {
    let mut world = World::new(&minimal(), 3);
    let stop = CancellationToken::new();
    let (client, context) = (world.api.client(), world.context.clone());
    let mut running = tokio::task::JoinSet::new();
    running.spawn(controller::run(client, context, Some("streams".to_owned()), stop.clone()));
    pass_time(&mut world, "ready", World::is_ready).await;
    // An edit is at the nodes within a second, by the clock that the operator goes by.
    world.edit(|c| c["spec"]["slots"] = json!(6));
    let all = |w: &World| w.nodes.lock().records.values().all(|r| r.slots == 6);
    let took = pass_time(&mut world, "slots applied", all).await;
    assert!(took <= Duration::from_secs(1), "{took:?} of made-up time");
    let before = world.pod_uids();
    world.lose_pod(1);
    let took =
        pass_time(&mut world, "a pod again", |w| w.pod_uids().len() == 3 && w.pod_uids() != before).await;
    assert!(took <= Duration::from_secs(2), "{took:?} of made-up time");
    pass_time(&mut world, "ready", World::is_ready).await;
    stop.cancel();
    assert!(running.join_next().await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_as_wanted_is_read_and_not_written() {
    let mut world = World::new(&minimal(), 3);
    let stop = CancellationToken::new();
    let (client, context) = (world.api.client(), world.context.clone());
    let mut running = tokio::task::JoinSet::new();
    running.spawn(controller::run(client, context, None, stop.clone()));
    pass_time(&mut world, "ready", World::is_ready).await;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.tick(100);
    }
    let (writes, commands) = (world.api.store.lock().writes.len(), world.nodes.lock().commands);
    for _ in 0..3_000 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.tick(100);
    }
    assert_eq!((world.api.store.lock().writes.len(), world.nodes.lock().commands), (writes, commands));
    stop.cancel();
    assert!(running.join_next().await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_said_of_a_cluster_that_is_gone() {
    let mut world = World::new(&minimal(), 3);
    let stop = CancellationToken::new();
    let (client, context) = (world.api.client(), world.context.clone());
    let mut running = tokio::task::JoinSet::new();
    running.spawn(controller::run(client, context, None, stop.clone()));
    pass_time(&mut world, "ready", World::is_ready).await;
    let said = |w: &World| w.context.hands.metrics.text().matches("weir_cluster=\"demo\"").count();
    // Three states of its nodes, and each condition with each status.
    let conditions = world.cluster().status.unwrap().conditions;
    assert_eq!(said(&world), 3 + 3 * conditions.len());
    for condition in conditions {
        let (kind, status) = (condition.type_, condition.status.to_lowercase());
        let line = format!(
            "weir_operator_cluster_condition{{namespace=\"streams\",weir_cluster=\"demo\",condition=\"{kind}\",status=\"{status}\"}} 1"
        );
        assert!(world.context.hands.metrics.text().contains(&line), "{line}");
    }
    world.api.store.lock().remove("streamclusters", "demo");
    let mut left = 6_000;
    while said(&world) > 0 {
        left -= 1;
        assert!(left > 0, "{}", world.context.hands.metrics.text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.cancel();
    assert!(running.join_next().await.unwrap().is_ok());
}

fn election(api: &Api, who: &str) -> Election {
    let terms = Terms {
        namespace: "streams".to_owned(),
        name: "weir-operator".to_owned(),
        identity: who.to_owned(),
        duration: Duration::from_secs(15),
    };
    Election::new(api.client(), terms)
}

fn holder(api: &Api) -> String {
    let lease = api.store.lock().get("leases", "weir-operator").cloned().unwrap_or_default();
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_next_follows_when_it_lets_go() {
    let api = Api::new();
    let (a, b) = (election(&api, "a"), election(&api, "b"));
    let go_on = CancellationToken::new();
    let since = a.won(&go_on).await.unwrap();
    tokio::select! {
        why = a.hold(since) => panic!("{why}"),
        _won = b.won(&go_on) => panic!("b led while a held the lease"),
        () = tokio::time::sleep(Duration::from_secs(120)) => {}
    }
    a.release().await;
    assert_eq!(holder(&api), "");
    assert!(tokio::time::timeout(Duration::from_secs(10), b.won(&go_on)).await.unwrap().is_some());
    assert_eq!(holder(&api), "b");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_died_is_followed_and_one_that_cannot_renew_gives_up_before() {
    let api = Api::new();
    let (a, b) = (election(&api, "a"), election(&api, "b"));
    let go_on = CancellationToken::new();
    let since = a.won(&go_on).await.unwrap();
    // a hears nothing of the API server any more.
    api.store.lock().fault = Some(Box::new(|_, _| Some(crate::api::Fault::Internal)));
    let gave_up = a.hold(since).await;
    assert!(gave_up.contains("could not be renewed"), "{gave_up}");
    assert!(since.elapsed() < Duration::from_secs(15), "only after its lease was over");
    api.store.lock().fault = None;
    assert!(tokio::time::timeout(Duration::from_secs(60), b.won(&go_on)).await.unwrap().is_some());
    assert_eq!(holder(&api), "b");
    let lost = a.hold(tokio::time::Instant::now()).await;
    assert!(lost.contains("another process"), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn who_is_told_to_stop_stops_waiting() {
    let api = Api::new();
    let go_on = CancellationToken::new();
    assert!(election(&api, "a").won(&go_on).await.is_some());
    go_on.cancel();
    assert!(election(&api, "b").won(&go_on).await.is_none());
}
