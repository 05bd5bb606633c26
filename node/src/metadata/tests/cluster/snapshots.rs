//! Members that are so far behind that only a snapshot helps them.

use super::rig::*;
use crate::metadata::command::Answer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_far_behind_gets_a_snapshot_and_then_the_rest() {
    let small = |cfg: &mut crate::metadata::MetadataConfig| {
        cfg.snapshot_log_bytes = 16 << 10;
        cfg.log_cache_bytes = 2 << 10;
    };
    let mut cluster = Cluster::of(3, small).await;
    let behind = cluster.follower().await;
    let seen = cluster.node(behind).metadata.stats().applied;
    cluster.kill(behind).await;
    let load = Load::through(cluster.running().cloned());
    let purged = || cluster.running().all(|node| node.metadata.stats().purged > seen);
    load.goes_on(200).await;
    until("what it needs is gone from the log", purged).await;
    cluster.start(behind).await;
    load.goes_on(20).await;
    let created = load.end().await;
    cluster.are_alike().await;
    let node = cluster.node(behind);
    assert!(node.metadata.stats().snapshot > seen, "{:?}", node.metadata.stats());
    assert_eq!(node.streams(), created.len());
    // And a directory that is new gets one, too; what it got survives a restart.
    let new = cluster.add().await;
    cluster.are_alike().await;
    cluster.stop(new).await;
    cluster.register(behind).await;
    assert!(matches!(cluster.node(behind).create("meanwhile").await, Ok(Answer::Created { .. })));
    cluster.start(new).await;
    cluster.are_alike().await;
    assert_eq!(cluster.node(new).streams(), created.len() + 1);
    cluster.stop_all().await;
}
