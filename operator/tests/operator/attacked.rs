//! Schedules that once broke a promise, found by reading the operator with the intent to break it.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use weir_operator::action::{Action, Planned};

use crate::api::Fault;
use crate::fixtures::{minimal, with};
use crate::world::World;

async fn up(replicas: u32) -> World {
    let mut world = World::new(&with(minimal(), "/spec/replicas", json!(replicas)), 4);
    world.until("ready", World::is_ready).await;
    world.give_streams(40);
    world
}

/// A class that does not let volumes grow.
#[tokio::test(start_paused = true)]
async fn a_volume_that_may_not_grow_holds_up_nothing_else() {
    let mut world = up(3).await;
    world.api.store.lock().fault = Some(Box::new(|method: &Method, (resource, _, _)| {
        (*method == Method::PATCH && resource == "persistentvolumeclaims").then_some(Fault::Forbidden)
    }));
    world.edit(|c| c["spec"]["metadata"]["volume"]["size"] = json!("90Gi"));
    world.steps(3).await;
    let (_, reason, message) = world.condition("Degraded");
    assert_eq!(reason, "ActionFailed");
    assert!(message.contains("changing PersistentVolumeClaim"), "{message}");
    let before = world.pod_uids();
    world.lose_pod(1);
    world.until("its pod is made anew", |w| w.condition("Ready").0 == "True").await;
    world.edit(|c| c["spec"]["config"] = json!({"log-format": "json"}));
    let rolled = |w: &World| {
        let now = w.pod_uids();
        now.len() == 3 && now.iter().all(|(name, uid)| before.get(name) != Some(uid))
    };
    world.until("a roll", |w| rolled(w) && w.condition("Ready").0 == "True").await;
    world.edit(|c| c["spec"]["replicas"] = json!(2));
    world.until("a node less", |w| w.pod_uids().len() == 2).await;
}

/// Every pod finds the ConfigMap that it was made for, as long as it is there.
fn assert_pods_have_their_settings(world: &World) {
    let store = world.api.store.lock();
    for ((_, _, name), pod) in store.all("pods") {
        let map = pod["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"].as_str().unwrap();
        assert!(store.get("configmaps", map).is_some(), "{map}, which {name} is started with, is gone");
    }
}

#[tokio::test(start_paused = true)]
async fn settings_in_use_stay_while_the_spec_cannot_be_built() {
    let mut world = up(3).await;
    let before = world.pod_uids();
    world.edit(|c| c["spec"]["config"] = json!({"log-format": "json"}));
    world
        .until("one to be rolled", |w| {
            w.pod_uids().iter().any(|(n, uid)| before.get(n).is_some_and(|b| b != uid))
        })
        .await;
    world.edit(|c| {
        c["spec"]["config"] = json!({"log-format": "text"});
        c["spec"]["podTemplate"]["affinity"] = json!({"nodeAffinity": "not one"});
    });
    for _ in 0..30 {
        world.steps(1).await;
        assert_pods_have_their_settings(&world);
    }
    assert_eq!(world.condition("Stalled").0, "True");
    world.edit(|c| c["spec"]["podTemplate"]["affinity"] = Value::Null);
    world.at_rest().await;
    assert_pods_have_their_settings(&world);
    assert_eq!(world.api.store.lock().all("configmaps").len(), 1);
}

/// An operator that was stopped in the middle of a pass, while another led.
#[tokio::test(start_paused = true)]
async fn nobody_is_disturbed_by_an_old_observation() {
    let world = up(3).await;
    let (name, uid) = world.pod_uids().pop_last().unwrap();
    let delete = || Planned {
        actions: vec![Action::DeletePod {
            name: name.clone(),
            uid: uid.clone(),
            force: false,
            why: String::new(),
        }],
        status: None,
        notes: vec![],
        again: Duration::ZERO,
    };
    let seen_at = tokio::time::Instant::now();
    tokio::time::advance(Duration::from_secs(11)).await;
    let applied = world.context.hands.apply(&world.cluster(), &[], seen_at, delete()).await;
    assert!(applied.failures[0].passing, "{:?}", applied.failures);
    assert_eq!(world.pod_uids().get(&name), Some(&uid));
    assert!(world.pod(2).unwrap()["metadata"]["deletionTimestamp"].is_null());
    let fresh = tokio::time::Instant::now();
    let applied = world.context.hands.apply(&world.cluster(), &[], fresh, delete()).await;
    assert_eq!(applied.failures, []);
    assert!(world.pod(2).is_none_or(|p| !p["metadata"]["deletionTimestamp"].is_null()));
}

/// `kubectl delete pvc` waits for the pod, and the pod must not go: the only copy of the metadata log is on it.
#[tokio::test(start_paused = true)]
async fn the_only_vote_is_not_stopped_while_its_claim_is_being_deleted() {
    for replicas in [1, 2] {
        let mut world = up(replicas).await;
        let holder = {
            let nodes = world.nodes.lock();
            let [vote] = nodes.voters()[..] else { panic!("{:?}", nodes.members) };
            let (name, _) = nodes.records.iter().find(|(_, r)| r.raft_id == vote).unwrap();
            name.rsplit('-').next().unwrap().parse::<u32>().unwrap()
        };
        world.delete_volume(holder);
        world.edit(|c| c["spec"]["config"] = json!({"log-format": "json"}));
        world.steps(400).await;
        if replicas == 1 {
            assert!(
                world.is_ready() || world.condition("Progressing").2.contains("only vote"),
                "{}",
                world.describe()
            );
        } else {
            world.at_rest().await;
        }
        assert_eq!(world.nodes.lock().foundings, 1);
        assert!(world.nodes.lock().has_quorum(), "{}", world.describe());
    }
}

/// Nor where the other node takes no streams, so that there can be no drain, which moves the vote: that is said, and waited
/// for.
#[tokio::test(start_paused = true)]
async fn the_only_vote_stays_with_its_volume_while_nobody_could_take_its_streams() {
    let mut world = up(2).await;
    let [vote] = world.nodes.lock().voters()[..] else { panic!("one votes of two") };
    let is_its = |w: &World, n: u32| w.nodes.lock().records[&format!("demo-{n}")].raft_id == vote;
    let (holder, other) = if is_its(&world, 0) { (0, 1) } else { (1, 0) };
    world.edit(|c| c["spec"]["nodes"] = json!([{"ordinal": other, "slots": 0}]));
    world.at_rest().await;
    world.delete_volume(holder);
    for _ in 0..100 {
        world.steps(1).await;
        let claims = world.api.store.lock().all("persistentvolumeclaims");
        let nodes = world.nodes.lock();
        let has_disk = |id: &u64| {
            let dir = nodes.members[id].dir.as_str();
            claims.iter().any(|(_, claim)| claim["metadata"]["uid"] == dir)
        };
        assert!(nodes.voters().iter().any(has_disk), "nobody has the metadata log any more");
    }
    let (_, _, message) = world.condition("Progressing");
    assert!(message.contains("it has the only vote, and no other node could take its streams"), "{message}");
    world.is_still("while nobody takes streams").await;
    world.edit(|c| c["spec"]["nodes"] = json!([]));
    world.at_rest().await;
    assert_ne!(world.nodes.lock().voters(), [vote], "it has another volume, and so another raft id");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_deleted_under_its_pod_is_replaced_gently() {
    let mut world = up(3).await;
    let raft = |w: &World| w.nodes.lock().records["demo-1"].raft_id;
    let (before, uids) = (raft(&world), world.pod_uids());
    world.delete_volume(1);
    world.until("another volume", |w| raft(w) != before && w.is_ready()).await;
    world.at_rest().await;
    let after = world.pod_uids();
    assert_eq!((&after["demo-0"], &after["demo-2"]), (&uids["demo-0"], &uids["demo-2"]));
    assert_eq!(world.nodes.lock().voters().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_stopped_that_could_not_be_made_anew() {
    let secret = json!({"secretName": "s3"});
    let mut world = World::new(&with(minimal(), "/spec/objectStore/credentials", secret), 3);
    world.api.store.lock().put(
        "secrets",
        json!({"metadata": {"name": "s3", "namespace": "streams"}, "data": {"AWS_ACCESS_KEY_ID": "YQ==", "AWS_SECRET_ACCESS_KEY": "YQ=="}}),
    );
    world.until("ready", World::is_ready).await;
    let before = world.pod_uids();
    world.edit(|c| c["spec"]["objectStore"]["credentials"]["secretName"] = json!("misspelt"));
    world.steps(60).await;
    assert_eq!(world.pod_uids(), before);
    let (status, reason, message) = world.condition("StorageReady");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "CredentialsMissing"));
    assert!(message.contains("misspelt"), "{message}");
    world.is_still("while a Secret is missing").await;
    world.edit(|c| c["spec"]["objectStore"]["credentials"]["secretName"] = json!("s3"));
    world.at_rest().await;
    assert_eq!(world.pod_uids(), before);
}

/// A host is given up in the very moment in which another voter, which is not wanted any more, stops.
#[tokio::test(start_paused = true)]
async fn a_voter_that_is_being_stopped_is_not_counted_on() {
    for delay in 28..31 {
        let mut world = up(3).await;
        // A young pod would be waited for.
        world.steps(160).await;
        // Its process goes on.
        let host = world.host_of(0);
        world.lose_host(&host);
        world.steps(delay).await;
        world.edit(|c| c["spec"]["replicas"] = json!(2));
        for _ in 0..60 {
            // The world checks who is disturbed beside whom.
            world.steps(1).await;
            assert!(world.nodes.lock().has_quorum(), "after {delay} steps\n{}", world.describe());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_when_it_is_to_be_changed_is_no_failure() {
    let world = up(3).await;
    let (name, uid) = world.pod_uids().pop_last().unwrap();
    let annotate = |uid: &str| Planned {
        actions: vec![Action::AnnotatePod {
            name: name.clone(),
            uid: uid.to_owned(),
            annotations: [("weir.dev/slots".to_owned(), "9".to_owned())].into(),
        }],
        status: None,
        notes: vec![],
        again: Duration::ZERO,
    };
    let now = tokio::time::Instant::now();
    let applied = world.context.hands.apply(&world.cluster(), &[], now, annotate("another")).await;
    assert_eq!((applied.failures, applied.writes), (vec![], 0));
    world.lose_pod(2);
    let applied = world.context.hands.apply(&world.cluster(), &[], now, annotate(&uid)).await;
    assert_eq!((applied.failures, applied.writes), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn one_look_without_a_leader_brings_back_nobody_who_has_left() {
    let mut world = up(4).await;
    world.edit(|c| c["spec"]["replicas"] = json!(3));
    loop {
        world.tick(crate::world::STEP_MS);
        if world.pod(3).is_none() {
            break;
        }
        let _applied = world.pass().await;
    }
    let leader = world.nodes.lock().leader.take();
    assert!(world.nodes.lock().records.contains_key("demo-3"));
    let _applied = world.pass().await;
    assert!(world.pod(3).is_none(), "{}", world.describe());
    world.nodes.lock().leader = leader;
    world.at_rest().await;
}

/// In a Service somebody adds a port, and on two stacks the API server adds the second address family.
#[tokio::test(start_paused = true)]
async fn what_others_add_to_a_list_is_theirs() {
    let mut world = up(3).await;
    world.edit(|c| {
        c["spec"]["service"] = json!({"ipFamilies": ["IPv6"], "ipFamilyPolicy": "PreferDualStack"})
    });
    world.steps(5).await;
    world.api.store.lock().edit("services", "demo", |s| {
        s["spec"]["ipFamilies"] = json!(["IPv6", "IPv4"]);
        let own = s["spec"]["ports"].as_array().unwrap().clone();
        let mut ports = vec![json!({"name": "extra", "port": 9})];
        ports.extend(own);
        s["spec"]["ports"] = json!(ports);
    });
    world.at_rest().await;
    assert_eq!(world.api.store.lock().get("services", "demo").unwrap()["spec"]["ports"][0]["name"], "extra");
}

#[tokio::test(start_paused = true)]
async fn a_sidecar_that_does_not_come_up_is_named_and_replaced_when_the_template_is_put_right() {
    let mut world = up(3).await;
    let before = world.pod_uids();
    world.edit(|c| {
        c["spec"]["podTemplate"]["overlay"] =
            json!({"spec": {"containers": [{"name": "proxy", "image": "nowhere/proxy:1"}]}});
    });
    let changed = |w: &World| {
        w.pod_uids()
            .into_iter()
            .find(|(name, uid)| before.get(name).is_some_and(|b| b != uid))
            .map(|(name, _)| name)
    };
    world.until("one to be rolled", |w| changed(w).is_some()).await;
    let name = changed(&world).unwrap();
    let stuck = |w: &World| {
        w.api.store.lock().edit("pods", &name, |pod| {
            let statuses = pod["status"]["containerStatuses"].as_array_mut();
            if let Some(all) = statuses.filter(|all| all.len() == 1) {
                all.push(
                    json!({"name": "proxy", "ready": false, "image": "", "imageID": "", "restartCount": 0,
                    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}),
                );
            }
            for condition in pod["status"]["conditions"].as_array_mut().into_iter().flatten() {
                if condition["type"] == "Ready" {
                    condition["status"] = json!("False");
                }
            }
        });
    };
    for _ in 0..60 {
        world.tick(crate::world::STEP_MS);
        stuck(&world);
        let _applied = world.pass().await;
    }
    let (_, reason, message) = world.condition("Degraded");
    assert_eq!(reason, "RolloutFailed", "{}", world.describe());
    assert!(message.contains("its container proxy: ImagePullBackOff: no such image"), "{message}");
    assert_eq!(world.pod_uids().iter().filter(|(n, uid)| before.get(*n) != Some(uid)).count(), 1);
    world.edit(|c| c["spec"]["podTemplate"]["overlay"] = Value::Null);
    world.at_rest().await;
    assert!(world.pod_uids().keys().len() == 3);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_makes_the_status_unknown() {
    let mut world = up(3).await;
    world.api.store.lock().fault = Some(Box::new(|method: &Method, (resource, _, _)| {
        (*method == Method::GET && resource == "poddisruptionbudgets").then_some(Fault::Forbidden)
    }));
    let uid = world.value()["status"]["clusterUid"].clone();
    let control = |w: &World| {
        let (client, context) = (w.api.client(), w.context.clone());
        weir_operator::controller::run(client, context, None, tokio_util::sync::CancellationToken::new())
    };
    tokio::time::timeout(Duration::from_secs(60), control(&world)).await.unwrap_err();
    for kind in ["Ready", "Degraded", "QuorumHealthy", "SlotsSynced", "StorageReady"] {
        let (status, reason, message) = world.condition(kind);
        assert_eq!((status.as_str(), reason.as_str()), ("Unknown", "NotObserved"), "{kind}: {message}");
        assert!(message.contains("made up"), "{message}");
        let shown = format!("weir_cluster=\"demo\",condition=\"{kind}\",status=\"unknown\"}} 1");
        assert!(world.context.hands.metrics.text().contains(&shown), "{shown}");
    }
    assert_eq!(world.value()["status"]["clusterUid"], uid, "what must not be forgotten");
    world.api.store.lock().fault = None;
    world.at_rest().await;
}
