//! Scenario 10: what cannot run is refused by the API server itself, with what is allowed in its place. The table is the one
//! that the rules are held to in memory.

use anyhow::{Context, Result, bail};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::cluster::Cluster;

#[path = "../../operator/tests/operator/fixtures.rs"]
#[allow(dead_code, reason = "the operator's tests use the rest")]
mod fixtures;
#[path = "../../operator/tests/operator/refused.rs"]
mod table;

use fixtures::{full, minimal, with};

fn api(cluster: &Cluster) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("weir.dev", "v1alpha1", "StreamCluster");
    Api::namespaced_with(cluster.bed.client.clone(), &cluster.namespace, &ApiResource::from_gvk(&kind))
}

/// A fixture as a user of this namespace would write it.
fn written(value: &Value, cluster: &Cluster) -> Result<DynamicObject> {
    let mut value = value.clone();
    value["metadata"] = json!({"name": value["metadata"]["name"], "namespace": cluster.namespace});
    Ok(serde_json::from_value(value)?)
}

/// What the API server says against it.
async fn verdict(cluster: &Cluster, value: &Value) -> Result<Option<String>> {
    let try_out = PostParams { dry_run: true, ..PostParams::default() };
    match api(cluster).create(&try_out, &written(value, cluster)?).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => Ok(Some(status.message.clone())),
        Err(e) => Err(e).context("the API server"),
    }
}

async fn what_cannot_run(cluster: &Cluster) -> Result<()> {
    for value in [minimal(), full()] {
        if let Some(why) = verdict(cluster, &value).await? {
            bail!("refused what may be written: {why}\n{value}");
        }
    }
    let mut wrong = Vec::new();
    let table = table::refused();
    for (pointer, field, expected) in &table {
        let value = with(minimal(), pointer, field.clone());
        match verdict(cluster, &value).await? {
            None => wrong.push(format!("{pointer} = {field} is taken")),
            Some(why) if why.contains(expected) => {}
            Some(why) => wrong.push(format!("{pointer} = {field}: {expected:?} is not in: {why}")),
        }
    }
    if table.len() < 30 || !wrong.is_empty() {
        bail!("{} of {}:\n{}", wrong.len(), table.len(), wrong.join("\n"));
    }
    Ok(())
}

async fn what_would_leave_records_behind(cluster: &Cluster) -> Result<()> {
    let mut old = with(minimal(), "/spec/objectStore/prefix", json!("a"));
    // Only the API server is asked; the operator leaves it alone.
    old["metadata"] =
        json!({"name": "t", "namespace": cluster.namespace, "annotations": {"weir.dev/paused": "true"}});
    cluster.bed.apply(&old).await?;
    let try_out = PatchParams { dry_run: true, ..PatchParams::default() };
    for (pointer, field, expected) in table::frozen() {
        let new = pointer.rsplit('/').fold(field.clone(), |inner, key| match key {
            "" => inner,
            key => json!({key: inner}),
        });
        match api(cluster).patch("t", &try_out, &Patch::Merge(&new)).await {
            Err(kube::Error::Api(status)) if status.message.contains(expected) => {}
            Err(e) => bail!("{pointer} = {field}: {expected:?} is not in: {e}"),
            Ok(_) => bail!("{pointer} = {field} is taken"),
        }
    }
    // What changes nothing of that is.
    api(cluster).patch("t", &try_out, &Patch::Merge(&json!({"spec": {"slots": 3}}))).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the test bed: make kubernetes"]
async fn what_cannot_run_is_refused_with_what_is_allowed() {
    let cluster = Cluster::prepare("refused").await.unwrap();
    what_cannot_run(&cluster).await.unwrap();
    what_would_leave_records_behind(&cluster).await.unwrap();
    cluster.end(None).await.unwrap();
}
