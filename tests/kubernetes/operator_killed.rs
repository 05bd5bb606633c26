//! Scenario 7, in part: the operator is killed as soon as a drain has begun, as soon as a pod was deleted, and while its next
//! one comes up: in a roll, in a scale-down, in a replacement. The next operator goes on where it was.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;
use weir_operator::crd::StreamCluster;
use weir_operator::names;
use weir_tests::wait;
use weir_tests::writers::{Of, Writers};

use crate::cluster::Cluster;
use crate::disruptions::is_ready;
use crate::figures::Measured;
use crate::watched::LIMIT;

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

mod long {
    use super::*;

    /// Waits until the pod is stopping, or gone, or another.
    async fn stops(cluster: &Cluster, ordinal: u32, uid: Option<&String>) -> Result<()> {
        let name = names::pod(&cluster.name, ordinal);
        cluster
            .until_pods(&format!("{name} to stop"), |pods| {
                let is_it =
                    |p: &&Arc<Pod>| p.uid().as_ref() == uid && p.metadata.deletion_timestamp.is_none();
                pods.get(&name).filter(is_it).is_none().then_some(())
            })
            .await
    }

    async fn three_members(cluster: &Cluster) -> Result<()> {
        let right = || async {
            let (voters, learners) = cluster.members().await?;
            Ok((voters.len() == 3 && learners.is_empty()).then_some(()))
        };
        wait::until("three members, all of them voters", LIMIT, right).await
    }

    async fn scales_down_all_the_same(cluster: &Cluster, writers: &Writers) -> Result<()> {
        let leaves = cluster.node(3)?;
        cluster.patch(json!({"spec": {"replicas": 3}})).await?;
        a_drain_has_begun(cluster).await?;
        cluster.bed.kill_operator().await?;
        stops(cluster, 3, leaves.pod_uid.as_ref()).await?;
        cluster.bed.kill_operator().await?;
        cluster.until_ready().await?;
        three_members(cluster).await?;
        let registered = cluster.asked("/admin/nodes").await?;
        ensure!(registered["nodes"].as_array().is_some_and(|n| n.len() == 3), "{registered}");
        writers.all_append(writers.now(), Of::All, "after the scale-down").await.map(drop)
    }

    /// Its volume is given up by its owner: drained, stopped, and another member in its place.
    async fn replaces_all_the_same(cluster: &Cluster, writers: &Writers) -> Result<()> {
        let before = cluster.node(1)?;
        let volume = before.volume.clone().context("a volume")?;
        cluster.kubectl(&["annotate", "pvc", &volume, "weir.dev/abandoned=by-a-test"]).await?;
        a_drain_has_begun(cluster).await?;
        cluster.bed.kill_operator().await?;
        stops(cluster, 1, before.pod_uid.as_ref()).await?;
        cluster.bed.kill_operator().await?;
        cluster
            .until_pods("its next pod", |pods| {
                let new = pods.get(&before.name).filter(|p| p.uid() != before.pod_uid);
                new.map(|_| ())
            })
            .await?;
        cluster.bed.kill_operator().await?;
        let now = cluster.until_replaced(&before).await?;
        ensure!(now.volume != before.volume && now.raft_id != before.raft_id, "{before:?} became {now:?}");
        cluster.until_ready().await?;
        three_members(cluster).await?;
        writers.all_append(writers.now(), Of::All, "after the replacement").await.map(drop)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn so_are_those_that_die_in_a_scale_down_and_in_a_replacement() {
        let cluster = Cluster::start("killed-twice", json!({"replicas": 4})).await.unwrap();
        let writers = cluster.load().await.unwrap();
        scales_down_all_the_same(&cluster, &writers).await.unwrap();
        replaces_all_the_same(&cluster, &writers).await.unwrap();
        cluster.end(Some(writers)).await.unwrap();
    }
}
