//! Scenario 1: the chart. It installs, and the minimal sample becomes a cluster; an upgrade brings another schema and
//! restarts no pod; its removal keeps clusters and data, and the next installation takes them up again.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tempfile::TempDir;
use weir_tests::wait;
use weir_tests::writers::{Of, Writers};

use crate::bed::{Bed, OPERATOR};
use crate::cluster::Cluster;
use crate::watched::LIMIT;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/weir-operator");
const MINIMAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/samples/minimal.yaml");
const RELEASE: &str = "weir-operator";
/// A field that no version has.
const FIELD: &str = "fieldOfTomorrow";

/// `deploy/samples/minimal.yaml`, with this bed's bucket in place of the reader's.
async fn minimal(cluster: &Cluster) -> Result<Value> {
    let text = cluster.kubectl(&["create", "--dry-run=client", "-o", "json", "-f", MINIMAL]).await?;
    let sample: Value = serde_json::from_str(&text)?;
    let mut spec = sample["spec"].clone();
    ensure!(spec["objectStore"]["bucket"].is_string(), "the sample names a bucket: {sample}");
    // Which the S3 server of the bed is in.
    spec["objectStore"]["region"] = json!("us-east-1");
    for (field, value) in cluster.least()["objectStore"].as_object().into_iter().flatten() {
        spec["objectStore"][field] = value.clone();
    }
    Ok(cluster.manifest(spec))
}

/// The chart, with one more field in the schema of its CRD.
fn changed_chart(to: &Path) -> Result<()> {
    copy(Path::new(CHART), to)?;
    let file = to.join("files/streamcluster.yaml");
    let text = fs::read_to_string(&file)?;
    let at = text.find("replicas:\n").and_then(|at| text[..at].rfind('\n')).context("spec.replicas")? + 1;
    let indent: String = text[at..].chars().take_while(|c| *c == ' ').collect();
    let field = format!("{indent}{FIELD}:\n{indent}  type: string\n");
    fs::write(&file, format!("{}{field}{}", &text[..at], &text[at..]))?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}

async fn helm(bed: &Bed, args: &[&str]) -> Result<String> {
    let all: Vec<&str> = ["-n", OPERATOR].iter().chain(args).copied().collect();
    bed.helm(&all).await
}

/// What the API server keeps of a field that the installed schema may know.
async fn kept(cluster: &Cluster) -> Result<Value> {
    let with = json!({"spec": {FIELD: "there"}}).to_string();
    let patched = ["patch", "strc", "t", "--type", "merge", "--dry-run=server", "-o", "json", "-p", &with];
    let text = cluster.kubectl(&patched).await?;
    Ok(serde_json::from_str::<Value>(&text)?["spec"][FIELD].clone())
}

async fn upgraded(cluster: &Cluster, folder: &TempDir) -> Result<()> {
    ensure!(kept(cluster).await?.is_null(), "the field is known already");
    let changed = folder.path().join("chart");
    changed_chart(&changed)?;
    let chart = changed.to_str().context("a path")?;
    helm(&cluster.bed, &["upgrade", RELEASE, chart, "--reuse-values", "--wait"]).await?;
    ensure!(kept(cluster).await? == "there", "helm upgrade did not bring the new schema");
    helm(&cluster.bed, &["upgrade", RELEASE, CHART, "--reuse-values", "--wait"]).await?;
    ensure!(kept(cluster).await?.is_null(), "helm upgrade did not bring the schema back");
    Ok(())
}

async fn volumes(cluster: &Cluster) -> Result<Vec<Option<String>>> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(cluster.bed.client.clone(), &cluster.namespace);
    Ok(api.list(&ListParams::default()).await?.iter().map(ResourceExt::uid).collect())
}

async fn removed(cluster: &Cluster, writers: &Writers, folder: &TempDir) -> Result<()> {
    let values = folder.path().join("values.json");
    fs::write(&values, helm(&cluster.bed, &["get", "values", RELEASE, "-o", "json"]).await?)?;
    let values = values.to_str().context("a path")?;
    let install =
        ["-n", OPERATOR, "upgrade", "--install", RELEASE, CHART, "-f", values, "--wait", "--timeout", "3m"];
    let back = cluster.bed.helm_at_last(&install);
    let claims = volumes(cluster).await?;
    ensure!(claims.len() == 3, "{claims:?}");
    helm(&cluster.bed, &["uninstall", RELEASE, "--wait"]).await?;
    let gone = || async { Ok(cluster.bed.operator_pods().await?.is_empty().then_some(())) };
    wait::until("the operator to go", LIMIT, gone).await?;
    // It serves on, and is there for whoever comes next.
    writers.all_append(writers.now(), Of::All, "without an operator").await?;
    let shown = cluster.kubectl(&["get", "strc", "t", "-o", "name"]).await?;
    ensure!(shown.trim() == "streamcluster.weir.dev/t", "{shown}");
    ensure!(volumes(cluster).await? == claims, "volumes went with the operator");
    back.now().await?;
    // The new one works: it does what is asked.
    cluster.patch(json!({"spec": {"slots": 2}})).await?;
    cluster.until_ready().await?;
    cluster.until_condition("SlotsSynced", "True", "").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the test bed: make kubernetes"]
async fn the_chart_installs_upgrades_its_schema_and_leaves_clusters_and_data_when_it_goes() {
    let cluster = Cluster::prepare("install").await.unwrap();
    helm(&cluster.bed, &["test", RELEASE]).await.unwrap();
    let sample = minimal(&cluster).await.unwrap();
    cluster.bed.apply(&sample).await.unwrap();
    cluster.until_ready().await.unwrap();
    let writers = cluster.load().await.unwrap();
    let lives = cluster.lives();
    let folder = tempfile::tempdir().unwrap();
    upgraded(&cluster, &folder).await.unwrap();
    removed(&cluster, &writers, &folder).await.unwrap();
    assert_eq!(cluster.lives(), lives, "no pod restarts");
    cluster.end(Some(writers)).await.unwrap();
}
