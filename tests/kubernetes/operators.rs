//! Scenario 7, its rest: an operator that sleeps through its lease while another works, an API server that restarts in a roll,
//! a node whose admin API hangs; and at rest, no writes.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use serde_json::{Value, json};
use weir_operator::crd::{ClusterState, StreamCluster};
use weir_operator::names;
use weir_tests::writers::Writers;

use crate::bed::{OPERATOR, Undo};
use crate::cluster::{Cluster, node_of};
use crate::figures::Measured;
use crate::requests;

/// Looks at a cluster that is as wanted.
const LOOKS: u32 = 25;

async fn holder(cluster: &Cluster) -> Result<String> {
    let api: Api<Lease> = Api::namespaced(cluster.bed.client.clone(), OPERATOR);
    let lease = api.get("weir-operator").await?;
    lease.spec.and_then(|s| s.holder_identity).context("a holder of the lease")
}

async fn roll_begins(cluster: &Cluster, turn: &str) -> Result<()> {
    cluster.patch(json!({"spec": {"podTemplate": {"labels": {"turn": turn}}}})).await?;
    cluster
        .until("the roll to begin", |c| {
            let status = c.status.as_ref()?;
            let begun = status.observed_generation == c.metadata.generation;
            (begun && status.state == Some(ClusterState::Rolling)).then_some(())
        })
        .await
}

/// Every pod was made anew once, and by nobody's mistake more often.
fn rolled(cluster: &Cluster, turn: &str) -> Result<()> {
    for ordinal in 0..3 {
        let pod = cluster.pod(ordinal)?;
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        ensure!(labels.get("turn").is_some_and(|t| t == turn), "node {ordinal}: {labels:?}");
        ensure!(crate::cluster::restarts(&pod) == 0, "node {ordinal} was restarted");
    }
    Ok(())
}

/// The one that works is put to sleep in a roll for longer than its lease; it wakes beside its successor.
async fn two_operators(cluster: &Cluster, writers: &Writers) -> Result<()> {
    let scale = |n: &'static str| {
        ["in", "control", "kubectl", "-n", OPERATOR, "scale", "deployment/weir-operator", n]
    };
    let one = cluster.bed.run_until(&scale("--replicas=2"), &scale("--replicas=1")).await?;
    cluster.bed.whole().await?;
    let sleeper = holder(cluster).await?;
    let measured = Measured::begin("two-operators", cluster, writers).await?;
    roll_begins(cluster, "two").await?;
    let freeze = ["pod", "freeze", OPERATOR, sleeper.as_str()];
    let thaw = ["pod", "thaw", OPERATOR, sleeper.as_str()];
    let asleep: Undo = cluster.bed.run_until(&freeze, &thaw).await?;
    let taken_over = || async { Ok((holder(cluster).await? != sleeper).then_some(())) };
    weir_tests::wait::until("another to hold the lease", crate::watched::LIMIT, taken_over).await?;
    cluster
        .until("the successor to go on with the roll", |c| {
            let nodes = c.status.as_ref().map(|s| s.nodes.as_slice()).unwrap_or_default();
            nodes.iter().any(|n| n.updated).then_some(())
        })
        .await?;
    asleep.now().await?;
    cluster.until_ready().await?;
    rolled(cluster, "two")?;
    measured.end(cluster, writers).await?;
    ensure!(holder(cluster).await? != sleeper, "the sleeper works again");
    one.now().await?;
    cluster.bed.whole().await
}

async fn api_server_restarts(cluster: &Cluster, writers: &Writers) -> Result<()> {
    let measured = Measured::begin("api-server-restarts", cluster, writers).await?;
    roll_begins(cluster, "three").await?;
    cluster.bed.run(&["api", "restart"]).await?;
    cluster.until_ready().await?;
    rolled(cluster, "three")?;
    measured.end(cluster, writers).await
}

/// What the operator sends to one node's admin port is lost; what the kubelet asks of it is not.
async fn admin_hangs(cluster: &Cluster) -> Result<()> {
    let away = cluster.bed.operator_host().await?;
    let nodes = cluster.now()?.status.map(|s| s.nodes).unwrap_or_default();
    let node =
        nodes.iter().find(|n| n.host.as_ref().is_some_and(|h| *h != away)).context("a node elsewhere")?;
    let host = node.host.clone().unwrap_or_default();
    let ip = cluster.pod(node.ordinal)?.status.and_then(|s| s.pod_ip).context("its address")?;
    let port = names::ADMIN_PORT.to_string();
    let rule = |what| {
        let port = port.as_str();
        [
            "in", &host, "iptables", "-w", what, "FORWARD", "-d", &ip, "-p", "tcp", "--dport", port, "-j",
            "DROP",
        ]
    };
    let hung = cluster.bed.run_until(&rule("-I"), &rule("-D")).await?;
    let lives = cluster.lives();
    cluster.patch(json!({"spec": {"slots": 7}})).await?;
    let all_applied = |c: &StreamCluster| {
        let applied = |n: u32| node_of(c, n)?.slots.as_ref()?.applied;
        (0..3).all(|n| applied(n) == Some(7)).then_some(())
    };
    cluster.until("the weight to be applied on every node", all_applied).await?;
    // It serves: nothing is done to it.
    ensure!(cluster.lives() == lives, "{lives:?} became {:?}", cluster.lives());
    hung.now().await?;
    cluster.until_ready().await.map(drop)
}

/// The operator looks, and writes nothing: not to the API server about this cluster, whatever makes it look.
async fn at_rest(cluster: &Cluster) -> Result<()> {
    let settled = cluster.until_ready().await?;
    let nudge = async |n: u32| {
        let annotation = json!({"metadata": {"annotations": {"example.org/nudge": n.to_string()}}});
        cluster.patch(annotation).await
    };
    let bed = &cluster.bed;
    let seen = requests::passes(bed, &cluster.namespace, &cluster.name, LOOKS, nudge).await?;
    ensure!(seen.count == LOOKS && seen.writes.is_empty(), "at rest: {seen:#?}");
    let status = cluster.now()?.status;
    ensure!(status == settled.status, "{:?} became {status:?}", settled.status);
    Ok(())
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn a_cluster_that_is_as_wanted_is_not_written_to() {
        let cluster = Cluster::start("rest", Value::Null).await.unwrap();
        at_rest(&cluster).await.unwrap();
        cluster.end(None).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn a_node_whose_admin_api_hangs_holds_nothing_up() {
        let cluster = Cluster::start("hung", Value::Null).await.unwrap();
        let writers = cluster.load().await.unwrap();
        admin_hangs(&cluster).await.unwrap();
        cluster.end(Some(writers)).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn a_roll_outlives_operators_and_the_api_server() {
        let cluster = Cluster::start("operators", Value::Null).await.unwrap();
        let writers = cluster.load().await.unwrap();
        two_operators(&cluster, &writers).await.unwrap();
        api_server_restarts(&cluster, &writers).await.unwrap();
        cluster.end(Some(writers)).await.unwrap();
    }
}
