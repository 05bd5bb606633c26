//! A lost data directory: its node comes back as another member of the log, and the voters are as many as before.

use std::fs;

use anyhow::Result;
use weir_tests::node::PATIENCE;
use weir_tests::wait;

use crate::cluster::Cluster;
use crate::writers::{self, Of};
use weir_tests::figures::Figures;

async fn raft_id(cluster: &mut Cluster, at: usize, node: usize) -> Result<u64> {
    let about = cluster.about(at, &Cluster::name(node)).await?;
    about["raftId"].as_u64().ok_or_else(|| anyhow::anyhow!("no raft id: {about}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_its_disk_comes_back_as_another_member_and_votes() {
    let mut cluster = Cluster::start(3).await.unwrap();
    let writers = writers::start(&mut cluster, &[0, 1, 2]).await.unwrap();
    let leader = cluster.leader(0).await.unwrap();
    let (lost, third) = ((leader + 1) % 3, (leader + 2) % 3);
    let old = raft_id(&mut cluster, leader, lost).await.unwrap();
    let began = writers.now();
    cluster.kill(lost);
    fs::remove_dir_all(cluster.scratch.path(&Cluster::name(lost))).unwrap();
    cluster.restart(lost).await.unwrap();
    let again = writers.all_append(began, Of::All, "after the loss of a disk").await.unwrap();
    let new = raft_id(&mut cluster, leader, lost).await.unwrap();
    assert!(new > old, "{new} after {old}");
    Figures::of("lost-disk", 3).took("appendsAgainS", again).write(&writers);

    // Three vote again, of which two are enough: with another one gone, only if the new one votes.
    cluster.settled(leader).await.unwrap();
    let log = |seen: &serde_json::Value| seen["log"]["appliedIndex"].as_u64();
    let admin = cluster.node(leader).admin().await.unwrap();
    let votes = || async {
        let text = admin.get_text("/admin/members").await?;
        let seen: serde_json::Value = serde_json::from_str(&text)?;
        let members = seen["members"].as_array().into_iter().flatten();
        let voters: Vec<_> = members.filter(|m| m["voter"] == true).map(|m| m["raftId"].clone()).collect();
        Ok((voters.len() == 3 && voters.contains(&new.into()) && !voters.contains(&old.into())).then_some(()))
    };
    wait::until("the new one among three voters", PATIENCE, votes).await.unwrap();
    cluster.kill(third);
    let writers_go_on = writers.now();
    let before = log(&cluster.asked(lost, "/admin/cluster").await.unwrap());
    writers.all_append(writers_go_on, Of::All, "with the new voter's help").await.unwrap();
    let after = log(&cluster.asked(lost, "/admin/cluster").await.unwrap());
    assert!(after > before, "fencing takes commands: {before:?}, {after:?}");
    cluster.restart(third).await.unwrap();
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}
