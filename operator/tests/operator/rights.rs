//! What the operator asks of the API server is what its roles allow: no less, and no more.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use weir_operator::controller;
use weir_operator::lease::{Election, Terms};

use crate::fixtures::minimal;
use crate::world::World;

type Rights = BTreeSet<(String, String)>;

/// Granted for what is not seen here.
const BESIDES: &[(&str, &str, &str)] = &[
    ("streamclusters/finalizers", "update", "asked for by API servers that check owner references"),
    ("customresourcedefinitions", "get", "at the start of the process"),
    ("events", "patch", "an event that is repeated"),
];

fn granted() -> Rights {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/weir-operator/templates");
    let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
    let helpers = read("_helpers.tpl");
    let rules = helpers.split("define \"weir.rules\"").nth(1).unwrap().split("{{- end }}").next().unwrap();
    let roles = read("rbac.yaml");
    let roles = roles.split("# For people").next().unwrap();
    let mut rights = Rights::new();
    let mut resources = Vec::new();
    let list = |text: &str| -> Vec<String> {
        let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
        inner.split(',').map(|s| s.trim().to_owned()).collect()
    };
    for line in rules.lines().chain(roles.lines()) {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("resources:") {
            resources = list(text);
        }
        if let Some(text) = line.strip_prefix("verbs:") {
            for verb in list(text) {
                rights.extend(resources.iter().map(|r| (r.clone(), verb.clone())));
            }
        }
    }
    rights
}

#[tokio::test(start_paused = true)]
async fn the_roles_allow_what_is_asked_for_and_nothing_else() {
    let mut world = World::new(&minimal(), 4);
    let secret = json!({"metadata": {"name": "s3", "namespace": "streams"},
        "data": {"AWS_ACCESS_KEY_ID": "aWQ=", "AWS_SECRET_ACCESS_KEY": "a2V5"}});
    world.api.store.lock().put("secrets", secret);
    world.until("ready", World::is_ready).await;
    world.give_streams(10);
    world.edit(|c| {
        c["spec"]["objectStore"]["credentials"] = json!({"secretName": "s3"});
        c["spec"]["nodeServices"] = json!({"type": "NodePort"});
        c["spec"]["config"] = json!({"log-format": "json"});
        c["spec"]["deletionPolicy"] = json!({"whenScaled": "Delete"});
        c["spec"]["metadata"] = json!({"voters": 3, "volume": {"size": "5Gi"}});
        c["spec"]["slots"] = json!(3);
        c["spec"]["replicas"] = json!(4);
    });
    world.at_rest().await;
    world.edit(|c| {
        c["spec"].as_object_mut().unwrap().remove("nodeServices");
        c["spec"]["podTemplate"] = json!({"serviceAccount": {"name": "of-the-user"}});
        c["spec"]["replicas"] = json!(3);
    });
    world.at_rest().await;
    let host = world.host_of(1);
    world.lose_host(&host);
    world
        .until("replaced", |w| {
            w.is_ready() && w.pod(1).is_some_and(|p| p["spec"]["nodeName"] != host.as_str())
        })
        .await;

    let stop = CancellationToken::new();
    let mut running = tokio::task::JoinSet::new();
    let (client, context) = (world.api.client(), world.context.clone());
    running.spawn(controller::run(client, context, Some("streams".to_owned()), stop.clone()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    stop.cancel();
    assert!(running.join_next().await.unwrap().is_ok());
    let terms = Terms {
        namespace: "streams".to_owned(),
        name: "weir-operator".to_owned(),
        identity: "a".to_owned(),
        duration: Duration::from_secs(15),
    };
    let election = Election::new(world.api.client(), terms);
    assert!(election.won(&CancellationToken::new()).await.is_some());
    election.release().await;

    let mut used = world.api.store.lock().used.clone();
    used.extend(BESIDES.iter().map(|(what, verb, _)| ((*what).to_owned(), (*verb).to_owned())));
    let granted = granted();
    let missing: Vec<_> = used.difference(&granted).collect();
    let unused: Vec<_> = granted.difference(&used).collect();
    assert!(missing.is_empty() && unused.is_empty(), "not granted: {missing:?}\ngranted in vain: {unused:?}");
}
