//! A cluster of three, asked through the one that owns nothing.

use anyhow::Result;
use weir_tests::cluster::Cluster;

/// The node with no slots.
pub(crate) const AT: usize = 2;

/// Starts the cluster; gives the client address of its stranger.
pub(crate) async fn start(mode: &'static str) -> Result<(Cluster, String)> {
    let change = move |node, setup: weir_tests::node::Setup| {
        // Two tests of the suite wait for a long-poll to time out.
        let setup = setup.flag("long-poll-timeout", "500ms").flag("routing", mode);
        if node == AT { setup.flag("slots", 0) } else { setup }
    };
    let mut cluster = Cluster::start(3, change).await?;
    let address = cluster.nodes[AT].addresses().await?.client;
    Ok((cluster, address))
}
