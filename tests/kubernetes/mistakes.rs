//! What no schema can refuse: a missing Secret, a wrong endpoint, a storage class that does not exist, an image that does not
//! start, one that cannot be pulled, a quota. The condition says it in words of the user's world, the operator does not run
//! hot over it, and once it is put right nobody has to help any further.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::requests;

/// Passes that are looked at while nothing gets better.
const PASSES: u32 = 6;
/// The shortest pause that the operator makes when nothing has happened, but for what clocks and logs round off.
const PAUSE_MS: i64 = 900;
/// What a pod does is known to the operator at another time than here.
const SLACK_MS: i64 = 1_500;
/// Writes of a pass that finds something new: an action, the status, its event.
const WRITES: usize = 3;

/// One node does: nothing here is about many.
fn one_node() -> Value {
    json!({"replicas": 1, "metadata": {"voters": 1, "volume": {"size": "100Mi"}}})
}

/// The operator tries again in its own time, and tells the API server nothing that it has told it.
async fn no_hot_loop(cluster: &Cluster) -> Result<()> {
    let bed = &cluster.bed;
    let passes = requests::passes_by_themselves(bed, &cluster.namespace, &cluster.name, PASSES).await?;
    let changes = cluster.changes.lock().unwrap().clone();
    // A container that ends again and again is news each time.
    let news = |from: i64, to: i64| changes.iter().any(|at| (from - SLACK_MS..to + SLACK_MS).contains(at));
    let (mut quiet, mut allowed) = (0, 1);
    for pair in passes.starts.windows(2) {
        if news(pair[0], pair[1]) {
            allowed += WRITES;
            continue;
        }
        quiet += 1;
        ensure!(pair[1] - pair[0] >= PAUSE_MS, "a hot loop: {passes:#?}");
    }
    // What a quota refuses is tried again each time.
    let writes = passes.writes.iter().filter(|w| !w.refused).count();
    println!("{} passes in {:?}, {quiet} of them without news, {writes} writes", passes.count, passes.took);
    ensure!(writes <= allowed, "nothing new, and more than {allowed} writes: {passes:#?}");
    Ok(())
}

/// A cluster with a mistake, what is said of it, and what puts it right.
async fn noticed_and_healed(
    cluster: &Cluster,
    condition: (&str, &str, &str),
    words: &[&str],
    put_right: impl AsyncFnOnce(&Cluster) -> Result<()>,
) -> Result<()> {
    let (kind, status, reason) = condition;
    let what = format!("{kind}={status} {reason} with {words:?}");
    let message = cluster
        .until(&what, |c| {
            let mut all = c.status.iter().flat_map(|s| &s.conditions);
            let found = all.find(|c| c.type_ == kind && c.status == status && c.reason == reason)?;
            words.iter().all(|w| found.message.contains(w)).then(|| found.message.clone())
        })
        .await
        .with_context(|| format!("{:#?}", cluster.now().map(|c| c.status)))?;
    println!("{reason}: {message}");
    no_hot_loop(cluster).await?;
    put_right(cluster).await?;
    cluster.until_ready().await.with_context(|| format!("after {reason} was put right"))?;
    Ok(())
}

async fn in_a_cluster(
    scenario: &str,
    spec: Value,
    condition: (&str, &str, &str),
    words: &[&str],
    put_right: impl AsyncFnOnce(&Cluster) -> Result<()>,
) -> Result<()> {
    let cluster = Cluster::prepare(scenario).await?;
    let mut all = one_node();
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    cluster.create(all).await?;
    let result = noticed_and_healed(&cluster, condition, words, put_right).await;
    if result.is_err() {
        cluster.report();
    }
    result?;
    cluster.end(None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the test bed: make kubernetes"]
async fn a_missing_secret_is_named_and_taken_when_it_comes() {
    let cluster = Cluster::prepare("secret").await.unwrap();
    let mut spec = cluster.least();
    spec["objectStore"]["credentials"]["secretName"] = json!("forgotten");
    for (field, value) in one_node().as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    cluster.create(spec).await.unwrap();
    let condition = ("StorageReady", "False", "CredentialsMissing");
    noticed_and_healed(&cluster, condition, &["forgotten"], async |c| {
        c.bed.apply(&c.secret("forgotten")).await
    })
    .await
    .unwrap();
    cluster.end(None).await.unwrap();
}

mod long {
    use super::*;
    use crate::bed::BUCKET;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn a_wrong_endpoint_is_named_and_left_when_it_is_put_right() {
        let cluster = Cluster::prepare("endpoint").await.unwrap();
        let mut spec = cluster.least();
        let wrong = format!("http://backet.{BUCKET}.svc:7070");
        let right = spec["objectStore"]["endpoint"].clone();
        spec["objectStore"]["endpoint"] = json!(wrong);
        for (field, value) in one_node().as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        cluster.create(spec).await.unwrap();
        let condition = ("StorageReady", "False", "StoreTrouble");
        noticed_and_healed(&cluster, condition, &["backet"], async |c| {
            c.patch(json!({"spec": {"objectStore": {"endpoint": right}}})).await
        })
        .await
        .unwrap();
        cluster.end(None).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn a_storage_class_that_does_not_exist_is_named_and_another_is_taken() {
        let volume = json!({"size": "100Mi", "storageClassName": "golden"});
        let spec = json!({"metadata": {"voters": 1, "volume": volume}});
        let condition = ("Ready", "False", "NodesNotReady");
        in_a_cluster("class", spec, condition, &["golden"], async |c| {
            c.patch(json!({"spec": {"metadata": {"volume": {"storageClassName": null}}}})).await
        })
        .await
        .unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn an_image_that_does_not_start_is_quoted_and_replaced() {
        let cluster = Cluster::prepare("image").await.unwrap();
        let (node, operator) = images(&cluster).await.unwrap();
        let mut spec = one_node();
        // It is there, and has no command `serve`.
        spec["image"] = json!(operator);
        cluster.create(spec).await.unwrap();
        let condition = ("Degraded", "True", "NodeBroken");
        noticed_and_healed(&cluster, condition, &["t-0", "ends with code 2"], async |c| {
            c.patch(json!({"spec": {"image": node}})).await
        })
        .await
        .unwrap();
        cluster.end(None).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn an_image_that_cannot_be_pulled_is_named_and_replaced() {
        let cluster = Cluster::prepare("pull").await.unwrap();
        let (node, _) = images(&cluster).await.unwrap();
        let mut spec = one_node();
        spec["image"] = json!("registry.invalid/weir:1.2.3");
        cluster.create(spec).await.unwrap();
        let condition = ("Degraded", "True", "NodeBroken");
        noticed_and_healed(&cluster, condition, &["t-0", "registry.invalid/weir:1.2.3"], async |c| {
            c.patch(json!({"spec": {"image": node}})).await
        })
        .await
        .unwrap();
        cluster.end(None).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn a_quota_is_quoted_and_what_it_held_up_is_done_when_it_is_lifted() {
        let cluster = Cluster::prepare("quota").await.unwrap();
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "small", "namespace": cluster.namespace},
            "spec": {"hard": {"persistentvolumeclaims": "0"}},
        });
        cluster.bed.apply(&quota).await.unwrap();
        // Enforced once its controller has counted what there is.
        cluster
            .kubectl(&["wait", "--for=jsonpath={.status.hard}", "resourcequota/small", "--timeout=60s"])
            .await
            .unwrap();
        cluster.create(one_node()).await.unwrap();
        let condition = ("Degraded", "True", "ActionFailed");
        noticed_and_healed(&cluster, condition, &["exceeded quota: small"], async |c| {
            c.kubectl(&["delete", "resourcequota", "small"]).await.map(drop)
        })
        .await
        .unwrap();
        cluster.end(None).await.unwrap();
    }

    /// The images of a node, as the operator was told, and of the operator.
    async fn images(cluster: &Cluster) -> Result<(String, String)> {
        let pods = cluster.bed.operator_pods().await?;
        let spec = pods.first().and_then(|p| p.spec.clone()).context("the operator's pod")?;
        let container = spec.containers.first().context("its container")?;
        let told = container.env.iter().flatten().find(|e| e.name == "WEIR_OPERATOR_IMAGE");
        let node = told.and_then(|e| e.value.clone()).context("the nodes' image")?;
        Ok((node, container.image.clone().context("its image")?))
    }
}
