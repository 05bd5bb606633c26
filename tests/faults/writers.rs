//! The load of these scenarios, through the gates of their cluster.

use anyhow::Result;
use weir_tests::node::PATIENCE;
pub(crate) use weir_tests::writers::{Of, Writers};
use weir_tests::writers::{Plan, owner_of};

use crate::cluster::Cluster;

/// Creates streams until every node owns one, and begins. `doors`: the nodes that clients know.
pub(crate) async fn start(cluster: &mut Cluster, doors: &[usize]) -> Result<Writers> {
    let addresses = cluster.doors();
    let plan = Plan {
        doors: doors.iter().map(|i| addresses[*i].clone()).collect(),
        streams: "f".to_owned(),
        nodes: cluster.size(),
        follow: false,
        patience: PATIENCE,
    };
    let (rng, at) = (cluster.rng.fork(), doors[0]);
    Writers::start(plan, rng, async |stream| owner(cluster, at, stream).await).await
}

/// Looks who owns each stream now, by the word of node `at`.
pub(crate) async fn know_owners(writers: &Writers, cluster: &mut Cluster, at: usize) -> Result<()> {
    writers.know_owners(async |stream| owner(cluster, at, stream).await).await
}

async fn owner(cluster: &mut Cluster, at: usize, stream: &str) -> Result<usize> {
    let about = cluster.asked(at, &format!("/admin/streams/{stream}")).await?;
    Ok(owner_of(&about)?.trim_start_matches("node-").parse()?)
}
