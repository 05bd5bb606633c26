//! SIGKILL: a node that comes back recovers itself, one that does not is taken over.

use weir_tests::wait;

use crate::cluster::{Cluster, soaking};
use crate::writers::{self, Of};
use weir_tests::figures::Figures;

/// Kills and starts nodes anew, one after the other.
async fn come_back(nodes: usize, rounds: usize) {
    let mut cluster = Cluster::start(nodes).await.unwrap();
    let doors: Vec<_> = (0..nodes).collect();
    let writers = writers::start(&mut cluster, &doors).await.unwrap();
    for round in 0..rounds {
        let victim = cluster.rng.index(nodes);
        let leads = cluster.leader((victim + 1) % nodes).await.unwrap() == victim;
        writers.progress(Of::All, 5).await.unwrap();
        writers.longest_gap(Of::All);
        cluster.kill(victim);
        let started = writers.now();
        cluster.restart(victim).await.unwrap();
        let took = writers.all_append(started, Of::All, "after the start").await.unwrap();
        Figures::of("killed-and-back", nodes)
            .with("round", round)
            .with("wasLeader", leads)
            .took("appendsAgainS", took)
            .took("longestGapS", writers.longest_gap(Of::All))
            .write(&writers);
        cluster.settled(victim).await.unwrap();
    }
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_back_recovers_itself() {
    come_back(3, if soaking() { 10 } else { 2 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn nodes_of_five_come_back() {
    come_back(5, 10).await;
}

/// Kills a node for good, the leader or another. Clients know the others.
async fn lose(nodes: usize, leading: bool) {
    let mut cluster = Cluster::start(nodes).await.unwrap();
    let leader = cluster.leader(0).await.unwrap();
    let victim = if leading { leader } else { (leader + 1) % nodes };
    let doors: Vec<_> = (0..nodes).filter(|i| *i != victim).collect();
    let writers = writers::start(&mut cluster, &doors).await.unwrap();
    let before = writers.count(Of::Others(victim));
    writers.longest_gap(Of::All);
    let lost = writers.now();
    cluster.kill(victim);
    let again = writers.all_append(lost, Of::All, "to the streams of the lost node").await.unwrap();
    let others = writers.count(Of::Others(victim));
    assert_eq!(
        others.failed, before.failed,
        "appends to open streams elsewhere need neither it nor a leader"
    );
    Figures::of(if leading { "leader-lost-for-good" } else { "lost-for-good" }, nodes)
        .took("appendsAgainS", again)
        .took("othersLongestGapS", writers.longest_gap(Of::Others(victim)))
        .with("othersFailed", others.failed - before.failed)
        .write(&writers);
    writers.verify().await.unwrap();
    cluster.settled(doors[0]).await.unwrap();
    cluster.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_lost_for_good_is_taken_over() {
    lose(3, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_lost_for_good_is_taken_over_and_appends_elsewhere_go_on() {
    lose(3, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn two_of_five_are_lost_one_after_the_other() {
    let mut cluster = Cluster::start(5).await.unwrap();
    // Voters are among the first to have joined; whoever they are, three of five are left.
    let doors = [0, 1, 2];
    let writers = writers::start(&mut cluster, &doors).await.unwrap();
    for victim in [3, 4] {
        let lost = writers.now();
        cluster.kill(victim);
        let again = writers.all_append(lost, Of::All, "to the streams of the lost node").await.unwrap();
        Figures::of("lost-for-good", 5).took("appendsAgainS", again).write(&writers);
        let admin = cluster.hasty_admin(0).await.unwrap();
        let text = || async {
            let text = admin.get_text("/admin/cluster").await?;
            let seen: serde_json::Value = serde_json::from_str(&text)?;
            Ok((seen["awaitingRecovery"] == 0).then_some(()))
        };
        wait::until("the recovery to end", weir_tests::node::PATIENCE, text).await.unwrap();
    }
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}
