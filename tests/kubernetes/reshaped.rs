//! Scenario 6, its rest: fewer nodes are wanted while a roll is under way. Both come to their end, one node at a time.

use anyhow::{Result, ensure};
use serde_json::json;
use weir_operator::crd::ClusterState;
use weir_tests::wait;

use crate::cluster::Cluster;
use crate::figures::Measured;
use crate::watched::LIMIT;

async fn until_voters(cluster: &Cluster, count: usize) -> Result<()> {
    let settled = || async {
        let (voters, learners) = cluster.members().await?;
        Ok((voters.len() == count && learners.is_empty()).then_some(()))
    };
    wait::until(&format!("{count} voters and no learners"), LIMIT, settled).await
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn a_scale_down_within_a_roll() {
        let cluster = Cluster::start("reshaped", json!({"replicas": 5})).await.unwrap();
        let writers = cluster.load().await.unwrap();
        let before = cluster.lives();
        let measured = Measured::begin("scale-down-in-roll", &cluster, &writers).await.unwrap();
        cluster.patch(json!({"spec": {"podTemplate": {"labels": {"turn": "two"}}}})).await.unwrap();
        // In the middle of it: one is done, another has begun.
        cluster
            .until("the roll to be under way", |c| {
                let status = c.status.as_ref()?;
                let rolled = status.nodes.iter().filter(|n| n.updated && n.ready).count();
                (status.state == Some(ClusterState::Rolling) && rolled >= 1).then_some(())
            })
            .await
            .unwrap();
        cluster.kubectl(&["scale", "strc", "t", "--replicas=3"]).await.unwrap();
        cluster.until_ready().await.unwrap();
        until_voters(&cluster, 3).await.unwrap();
        measured.end(&cluster, &writers).await.unwrap();
        rolled(&cluster, &before).unwrap();
        cluster.end(Some(writers)).await.unwrap();
    }
}

/// The three that stay are new, and of the new template.
fn rolled(cluster: &Cluster, before: &[(String, String, i32)]) -> Result<()> {
    let now = cluster.lives();
    ensure!(now.len() == 3, "{now:?}");
    for (ordinal, life) in now.iter().enumerate() {
        ensure!(!before.contains(life), "{} was not restarted", life.0);
        let pod = cluster.pod(u32::try_from(ordinal)?)?;
        let labels = pod.metadata.labels.unwrap_or_default();
        ensure!(labels.get("turn").is_some_and(|t| t == "two"), "{}: {labels:?}", life.0);
    }
    Ok(())
}
