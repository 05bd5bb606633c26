//! Scenario 10: what cannot run is refused by the API server itself, with what is allowed in its place. The table is the one
//! that the rules are held to in memory. And all manifests in `deploy` are taken.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
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
    let try_out = PatchParams { dry_run: true, ..PatchParams::default() };
    for (prefix, pointer, field, expected) in table::frozen() {
        let name = prefix.as_str().unwrap_or("t").to_owned();
        let mut old = with(minimal(), "/spec/objectStore/prefix", prefix);
        // Only the API server is asked; the operator leaves it alone.
        let paused = json!({"weir.dev/paused": "true"});
        old["metadata"] = json!({"name": name, "namespace": cluster.namespace, "annotations": paused});
        cluster.bed.apply(&old).await?;
        // What changes nothing of that is taken.
        api(cluster).patch(&name, &try_out, &Patch::Merge(&json!({"spec": {"slots": 3}}))).await?;
        let new = pointer.rsplit('/').fold(field.clone(), |inner, key| match key {
            "" => inner,
            key => json!({key: inner}),
        });
        match api(cluster).patch(&name, &try_out, &Patch::Merge(&new)).await {
            Err(kube::Error::Api(status)) if status.message.contains(expected) => {}
            Err(e) => bail!("{pointer} = {field}: {expected:?} is not in: {e}"),
            Ok(_) => bail!("{pointer} = {field} is taken"),
        }
    }
    Ok(())
}

const OF_NO_NAMESPACE: [&str; 2] = ["Namespace", "CustomResourceDefinition"];
/// Whose definitions are not here.
const OF_OTHERS: [&str; 2] = ["monitoring.coreos.com/", "traefik.io/"];

/// The objects of a manifest of which this API server knows the kind.
async fn known(cluster: &Cluster, manifest: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(manifest)?;
    let of_others = |d: &&str| OF_OTHERS.iter().any(|group| d.contains(&format!("\napiVersion: {group}")));
    let all = format!("\n{text}");
    let ours: Vec<&str> = all.split("\n---").filter(|d| !of_others(d)).collect();
    // Kubectl tells the format by the name.
    let file = tempfile::Builder::new().suffix(".yaml").tempfile()?;
    std::fs::write(file.path(), ours.join("\n---"))?;
    if ours.is_empty() {
        return Ok(Vec::new());
    }
    cluster.bed.read(file.path()).await.with_context(|| manifest.display().to_string())
}

/// What is shown to users is what an API server takes: samples and quickstart, and the operator for who has no Helm.
async fn what_is_shown_is_taken(cluster: &Cluster) -> Result<()> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut clusters = 0;
    for folder in ["crds", "deploy", "deploy/samples"] {
        for entry in std::fs::read_dir(top.join(folder))? {
            let path = entry?.path();
            if path.extension().is_none_or(|e| e != "yaml") {
                continue;
            }
            let users = path.file_name().is_none_or(|n| n != "operator.yaml");
            for mut object in known(cluster, &path).await? {
                clusters += usize::from(object["kind"] == "StreamCluster");
                // Theirs may not be there.
                if users && !OF_NO_NAMESPACE.iter().any(|kind| object["kind"] == *kind) {
                    object["metadata"]["namespace"] = json!(cluster.namespace);
                }
                let tried = cluster.bed.try_out(&object).await;
                tried.with_context(|| path.display().to_string())?;
            }
        }
    }
    ensure!(clusters >= 7, "{clusters} StreamClusters in deploy");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the test bed: make kubernetes"]
async fn what_cannot_run_is_refused_with_what_is_allowed_and_what_is_shown_is_taken() {
    let cluster = Cluster::prepare("refused").await.unwrap();
    what_is_shown_is_taken(&cluster).await.unwrap();
    what_cannot_run(&cluster).await.unwrap();
    what_would_leave_records_behind(&cluster).await.unwrap();
    cluster.end(None).await.unwrap();
}
