//! Scenario 7, in part: the operator is killed as soon as a drain has begun, as soon as a pod was deleted, and in the
//! middle of a replacement. The next one goes on where it was, and at rest nothing is written.

use anyhow::{Result, ensure};
use serde_json::json;
use weir_operator::crd::StreamCluster;
use weir_tests::writers::Writers;

use crate::cluster::Cluster;
use crate::disruptions::is_ready;
use crate::figures::Measured;

/// How many nodes have the new template and serve.
fn done(c: &StreamCluster) -> usize {
    let nodes = c.status.iter().flat_map(|s| &s.nodes);
    nodes.filter(|n| n.updated && n.ready).count()
}

async fn a_drain_has_begun(cluster: &Cluster) -> Result<()> {
    cluster
        .until("a drain", |c| c.status.iter().flat_map(|s| &s.nodes).find(|n| n.draining).map(|_| ()))
        .await
}

async fn a_pod_was_deleted(cluster: &Cluster) -> Result<()> {
    cluster
        .until_pods("a pod to be deleted", |pods| {
            let stops = pods.values().any(|p| p.metadata.deletion_timestamp.is_some());
            (stops || pods.len() < 3).then_some(())
        })
        .await
}

async fn a_pod_is_new(cluster: &Cluster, had: &[String]) -> Result<()> {
    cluster
        .until_pods("a pod that is not ready yet", |pods| {
            let new = |uid: &str| !had.iter().any(|h| h == uid);
            pods.values().any(|p| p.metadata.uid.as_deref().is_some_and(new) && !is_ready(p)).then_some(())
        })
        .await
}

async fn rolls_all_the_same(cluster: &Cluster, writers: &Writers) -> Result<()> {
    let had = cluster.lives();
    let measured = Measured::begin("operator-killed", cluster, writers).await?;
    cluster.patch(json!({"metadata": {"annotations": {"weir.dev/restarted-at": "now"}}})).await?;
    a_drain_has_begun(cluster).await?;
    cluster.bed.kill_operator().await?;
    cluster.until("a node to be restarted", |c| (done(c) >= 1).then_some(())).await?;
    a_pod_was_deleted(cluster).await?;
    cluster.bed.kill_operator().await?;
    cluster.until("two nodes to be restarted", |c| (done(c) >= 2).then_some(())).await?;
    let known: Vec<_> = cluster.lives().into_iter().map(|(_, uid, _)| uid).collect();
    a_pod_is_new(cluster, &known).await?;
    cluster.bed.kill_operator().await?;
    cluster.until("three nodes to be restarted", |c| (done(c) == 3).then_some(())).await?;
    measured.end(cluster, writers).await?;
    let now = cluster.lives();
    ensure!(had.iter().zip(&now).all(|(a, b)| a.0 == b.0 && a.1 != b.1), "{had:?} became {now:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the test bed: make kubernetes"]
async fn an_operator_that_dies_at_any_step_of_a_roll_is_followed_by_one_that_goes_on() {
    let cluster = Cluster::start("killed", json!({})).await.unwrap();
    let writers = cluster.load().await.unwrap();
    rolls_all_the_same(&cluster, &writers).await.unwrap();
    cluster.end(Some(writers)).await.unwrap();
}
