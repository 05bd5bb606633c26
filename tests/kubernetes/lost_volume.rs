//! Scenario 5: a volume goes with its pod. The node comes back as another member of the metadata log, the voters return to
//! their number, and nothing acknowledged is lost.

use anyhow::{Result, ensure};
use serde_json::Value;
use weir_tests::wait;

use crate::cluster::{Cluster, node_of};
use crate::figures::Measured;
use crate::watched::LIMIT;

async fn until_members(cluster: &Cluster, gone: u64, come: u64) -> Result<()> {
    let settled = || async {
        let (voters, learners) = cluster.members().await?;
        let all = voters.len() == 3 && learners.is_empty();
        Ok((all && !voters.contains(&gone) && voters.contains(&come)).then_some(()))
    };
    wait::until("three voters with the new one among them", LIMIT, settled).await
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn a_node_without_its_volume_joins_as_another_member() {
        let cluster = Cluster::start("volume", Value::Null).await.unwrap();
        let writers = cluster.load().await.unwrap();
        // A follower and the leader.
        let leader = cluster.now().unwrap().status.and_then(|s| s.leader).unwrap();
        let leads = weir_operator::names::ordinal_of(&cluster.name, &leader).unwrap();
        for ordinal in [(leads + 1) % 3, leads] {
            lose(&cluster, &writers, ordinal).await.unwrap();
        }
        cluster.end(Some(writers)).await.unwrap();
    }
}

async fn lose(cluster: &Cluster, writers: &weir_tests::writers::Writers, ordinal: u32) -> Result<()> {
    let before = cluster.node(ordinal)?;
    let measured = Measured::begin("volume-lost", cluster, writers).await?;
    let volume = before.volume.clone().unwrap_or_default();
    // It goes when its pod has.
    cluster.kubectl(&["delete", "pvc", &volume, "--wait=false"]).await?;
    cluster.delete_pod(ordinal, false).await?;
    let now = cluster
        .until(&format!("another raft id of {}", before.name), |c| {
            let node = node_of(c, ordinal)?;
            (node.raft_id.is_some() && node.raft_id != before.raft_id && node.ready).then(|| node.clone())
        })
        .await?;
    ensure!(now.epoch > before.epoch && now.pod_uid != before.pod_uid, "{before:?} became {now:?}");
    until_members(cluster, before.raft_id.unwrap_or(0), now.raft_id.unwrap_or(0)).await?;
    measured.end(cluster, writers).await
}
