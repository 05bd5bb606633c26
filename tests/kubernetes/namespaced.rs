//! Scenario 1, its rest: an operator of one namespace (`watchNamespace`), that may not read hosts either. With rights there
//! alone it puts a cluster up, changes it and replaces a pod; what is elsewhere it neither touches nor may see.

use std::fs;

use anyhow::{Result, ensure};
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use weir_operator::crd::StreamCluster;
use weir_tests::wait;

use crate::bed::{Bed, OPERATOR};
use crate::cluster::Cluster;
use crate::watched::LIMIT;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/weir-operator");
const RELEASE: &str = "narrow";

/// The chart, as the operator of all was installed but for its reach.
async fn install(cluster: &Cluster) -> Result<()> {
    let values = tempfile::NamedTempFile::new()?;
    let had = cluster.bed.helm(&["-n", OPERATOR, "get", "values", "weir-operator", "-o", "json"]).await?;
    let mut all: Value = serde_json::from_str(&had)?;
    all["watchNamespace"] = json!(cluster.namespace);
    all["nodeAccess"] = json!(false);
    all["crds"] = json!({"enabled": false});
    fs::write(values.path(), all.to_string())?;
    let values = values.path().to_string_lossy();
    let n = cluster.namespace.as_str();
    cluster.bed.helm(&["-n", n, "install", RELEASE, CHART, "-f", &values, "--wait"]).await.map(drop)
}

/// A StreamCluster that nobody but an operator of all namespaces looks after.
async fn elsewhere(cluster: &Cluster) -> Result<String> {
    let namespace = format!("{}-other", cluster.namespace);
    let meta = json!({"name": namespace, "labels": {"weir.dev/test": "elsewhere"}});
    cluster.bed.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})).await?;
    let mut object = cluster.manifest(cluster.least());
    object["metadata"]["namespace"] = json!(namespace);
    cluster.bed.apply(&object).await?;
    Ok(namespace)
}

async fn may(bed: &Bed, account: &str, verb: &str, what: &str, namespace: &str) -> bool {
    let asked = ["auth", "can-i", verb, what, "-n", namespace, account];
    // It says no with an exit code, too.
    bed.kubectl(&asked).await.is_ok_and(|said| said.trim() == "yes")
}

async fn works_alone(cluster: &Cluster, other: &str) -> Result<()> {
    let bed = &cluster.bed;
    cluster.create(json!({"replicas": 2})).await?;
    cluster.until_ready().await?;
    cluster.patch(json!({"spec": {"slots": 3}})).await?;
    cluster.until_ready().await?;
    let before = cluster.node(1)?;
    cluster.delete_pod(1, true).await?;
    cluster.until_replaced(&before).await?;
    cluster.until_ready().await?;

    let untouched: Api<StreamCluster> = Api::namespaced(bed.client.clone(), other);
    let found = untouched.get("t").await?;
    ensure!(found.status.is_none(), "{:?}", found.status);
    let made = bed.kubectl(&["-n", other, "get", "pods,services,pvc,secrets", "-o", "name"]).await?;
    ensure!(made.trim().is_empty(), "made elsewhere: {made}");
    let account = format!("--as=system:serviceaccount:{}:{RELEASE}-weir-operator", cluster.namespace);
    for (verb, what) in [("list", "pods"), ("get", "secrets"), ("list", "streamclusters.weir.dev")] {
        ensure!(may(bed, &account, verb, what, &cluster.namespace).await, "it cannot {verb} {what}");
        ensure!(!may(bed, &account, verb, what, other).await, "it can {verb} {what} elsewhere");
    }
    ensure!(!may(bed, &account, "get", "nodes", "").await, "it can read hosts");
    Ok(())
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn an_operator_of_one_namespace_runs_a_cluster_there_and_touches_nothing_else() {
        let cluster = Cluster::prepare("narrow").await.unwrap();
        let bed = &cluster.bed;
        let scale = |n: &'static str| {
            ["in", "control", "kubectl", "-n", OPERATOR, "scale", "deployment/weir-operator", n]
        };
        let all = bed.run_until(&scale("--replicas=0"), &scale("--replicas=1")).await.unwrap();
        let gone = || async { Ok(bed.operator_pods().await?.is_empty().then_some(())) };
        wait::until("the operator of all to go", LIMIT, gone).await.unwrap();
        let remove = bed.helm_at_last(&["-n", &cluster.namespace, "uninstall", RELEASE, "--wait"]);
        install(&cluster).await.unwrap();
        let other = elsewhere(&cluster).await.unwrap();
        let outcome = works_alone(&cluster, &other).await;
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(bed.client.clone());
        drop(namespaces.delete(&other, &DeleteParams::default()).await.unwrap());
        outcome.unwrap();
        // Before the operator of all is back: two that act on one cluster are not what is shown here.
        remove.now().await.unwrap();
        all.now().await.unwrap();
        bed.whole().await.unwrap();
        cluster.end(None).await.unwrap();
    }
}
