//! Scenario 6, scaling: 3 → 5 → 3 with `kubectl scale`. Streams leave a node before it goes, and the members of the metadata
//! log are right after each step.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::json;
use weir_tests::wait;
use weir_tests::writers::Writers;

use crate::cluster::Cluster;
use crate::figures::Measured;
use crate::watched::LIMIT;

/// Waits until the metadata log has so many members, three of which vote.
async fn members(cluster: &Cluster, all: usize) -> Result<()> {
    let right = || async {
        let (voters, learners) = cluster.members().await?;
        Ok((voters.len() == 3 && voters.len() + learners.len() == all).then_some(()))
    };
    wait::until(&format!("{all} members, three of them voters"), LIMIT, right).await
}

async fn scale(cluster: &Cluster, replicas: &str) -> Result<()> {
    cluster.kubectl(&["scale", "strc/t", "--replicas", replicas]).await.map(drop)
}

async fn up(cluster: &Cluster, writers: &Writers) -> Result<()> {
    let measured = Measured::begin("scaled-up", cluster, writers).await?;
    scale(cluster, "5").await?;
    cluster.until("five nodes to be wanted", |c| (c.spec.replicas == 5).then_some(())).await?;
    cluster.until_ready().await?;
    members(cluster, 5).await?;
    measured.end(cluster, writers).await
}

/// A node that is told to go has given its streams away when its pod is stopped; and when the next one is begun, the
/// membership has followed.
async fn leaves(cluster: &Cluster, writers: &Writers, ordinal: u32) -> Result<()> {
    let name = format!("t-{ordinal}");
    let begun = |c: &weir_operator::crd::StreamCluster| {
        c.status.as_ref()?.operation.as_ref().filter(|o| o.kind == "Remove" && o.node == name).map(|_| ())
    };
    cluster.until(&format!("{name} to be removed"), begun).await?;
    let (voters, learners) = cluster.members().await?;
    ensure!(
        voters.len() == 3 && voters.len() + learners.len() == ordinal as usize + 1,
        "when {name} is begun the voters are {voters:?}, the others {learners:?}"
    );
    cluster
        .until_pods(&format!("{name} to stop"), |pods| {
            pods.get(&name).is_none_or(|p| p.metadata.deletion_timestamp.is_some()).then_some(())
        })
        .await?;
    writers.know_owners(async |stream| cluster.owner(stream).await).await?;
    let left: Vec<_> = writers.owners().into_iter().filter(|(_, o)| *o == ordinal as usize).collect();
    ensure!(left.is_empty(), "{name} stops with streams: {left:?}");
    Ok(())
}

async fn down(cluster: &Cluster, writers: &Writers) -> Result<()> {
    let measured = Measured::begin("scaled-down", cluster, writers).await?;
    scale(cluster, "3").await?;
    leaves(cluster, writers, 4).await?;
    leaves(cluster, writers, 3).await?;
    cluster.until_ready().await?;
    members(cluster, 3).await?;
    measured.end(cluster, writers).await?;
    let nodes: BTreeSet<u32> =
        cluster.now()?.status.unwrap_or_default().nodes.iter().map(|n| n.ordinal).collect();
    ensure!(nodes == (0..3).collect(), "the status knows {nodes:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the test bed: make kubernetes"]
async fn nodes_come_and_go_and_the_metadata_log_follows() {
    let cluster = Cluster::start("scale", json!({})).await.unwrap();
    let writers = cluster.load().await.unwrap();
    let three = cluster.lives();
    up(&cluster, &writers).await.unwrap();
    // Streams for the new nodes, too.
    let more = cluster.load().await.unwrap();
    down(&cluster, &more).await.unwrap();
    assert_eq!(cluster.lives(), three, "those that stay do not restart");
    more.verify().await.unwrap();
    cluster.end(Some(writers)).await.unwrap();
}
