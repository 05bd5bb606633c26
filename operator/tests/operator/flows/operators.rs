//! Operators that are two, that die between any two actions, that are late; and an API server that fails them.

use http::Method;
use serde_json::{Value, json};

use super::{deletes, up};
use crate::api::Fault;
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn two_operators_at_once_disturb_no_more_than_one() {
    let mut world = up(5).await;
    let other = world.another_operator();
    world.edit(|c| {
        c["spec"]["replicas"] = json!(4);
        c["spec"]["config"] = json!({"log-format": "json"});
    });
    let before = world.pod_uids();
    let done = |w: &World| w.is_ready() && w.pod_uids().iter().all(|(n, uid)| before[n] != *uid);
    for _ in 0..400 {
        world.tick(crate::world::STEP_MS);
        let (a, b) = (world.context.clone(), other.clone());
        let (_a, _b) = tokio::join!(world.pass_by(&a, None), world.pass_by(&b, None));
        world.check();
        if done(&world) {
            break;
        }
    }
    assert!(done(&world), "{}", world.describe());
    world.at_rest().await;
}

/// Every action of an episode is once the one before which the operator dies.
async fn killed_at_each_action(
    replicas: u32,
    what: &str,
    change: impl Fn(&mut World),
    done: impl Fn(&World) -> bool,
) {
    for die_every in 1..4 {
        let mut world = up(replicas).await;
        change(&mut world);
        let mut finished = false;
        for _ in 0..500 {
            world.tick(crate::world::STEP_MS);
            // A fresh process each time, which dies after so many actions.
            let context = world.another_operator();
            let _outcome = world.pass_by(&context, Some(die_every)).await;
            world.check();
            if done(&world) && world.is_ready() {
                finished = true;
                break;
            }
        }
        assert!(
            finished,
            "{what} never ended with an operator that dies after {die_every} actions\n{}",
            world.describe()
        );
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_action_of_a_scale_down_is_followed_up() {
    let change = |w: &mut World| w.edit(|c| c["spec"]["replicas"] = json!(3));
    killed_at_each_action(5, "the scale-down", change, |w| w.nodes.lock().records.len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_action_of_a_roll_is_followed_up() {
    let change = |w: &mut World| w.edit(|c| c["spec"]["config"] = json!({"log-format": "json"}));
    let rolled = |w: &World| {
        let map = |v: Value| v["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"].clone();
        let all: Vec<Value> = (0..3).filter_map(|n| w.pod(n)).map(map).collect();
        all.len() == 3 && all.iter().all(|m| *m == all[0]) && deletes(w).len() >= 3
    };
    killed_at_each_action(3, "the roll", change, rolled).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_action_of_a_replacement_is_followed_up() {
    let change = |w: &mut World| {
        let host = w.host_of(1);
        w.lose_host(&host);
    };
    let replaced = |w: &World| w.value()["status"]["nodes"][1]["volume"] == "data-demo-1-1";
    killed_at_each_action(3, "the replacement", change, replaced).await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_is_outlived() {
    for (name, fault) in [
        ("conflicts", Fault::Conflict),
        ("internal errors", Fault::Internal),
        ("expired lists", Fault::Gone),
        ("objects that are gone", Fault::NotFound),
        ("a busy server", Fault::TooMany),
        ("lost replies", Fault::LostReply),
        ("silence", Fault::Hang),
    ] {
        let mut world = up(3).await;
        let mut n = 0u32;
        world.api.store.lock().fault = Some(Box::new(move |method: &Method, _| {
            n += 1;
            let read = *method == Method::GET;
            // A host that is not found is a lost host.
            let due =
                if read { n.is_multiple_of(11) && fault != Fault::NotFound } else { !n.is_multiple_of(3) };
            due.then_some(fault)
        }));
        world.edit(|c| {
            c["spec"]["replicas"] = json!(4);
            c["spec"]["config"] = json!({"log-format": "json"});
        });
        world.steps(120).await;
        world.api.store.lock().fault = None;
        world.until(name, |w| w.is_ready() && w.nodes.lock().records.len() == 4).await;
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_operator_does_not_undo_a_newer_status() {
    let world = up(3).await;
    let old = world.cluster();
    world
        .api
        .store
        .lock()
        .edit("streamclusters", "demo", |c| c["metadata"]["labels"] = json!({"touched": "yes"}));
    let mut stale = old.status.clone().unwrap();
    stale.cluster_uid = None;
    let planned = weir_operator::action::Planned {
        actions: vec![],
        status: Some(stale),
        notes: vec![],
        again: std::time::Duration::ZERO,
    };
    let applied = world.context.hands.apply(&old, &[], tokio::time::Instant::now(), planned).await;
    assert_eq!(applied.failures.len(), 1, "{:?}", applied.failures);
    assert!(!world.value()["status"]["clusterUid"].is_null());
}
