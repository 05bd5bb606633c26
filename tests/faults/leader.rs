//! The metadata log's leader is killed again and again: appends to streams open elsewhere never notice.

use crate::cluster::{Cluster, soaking};
use crate::writers::{self, Of};
use weir_tests::figures::Figures;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_leader_again_and_again_appends_elsewhere_go_on() {
    // Three vote; the two that do not are the clients' doors, and live.
    let mut cluster = Cluster::start(5).await.unwrap();
    let writers = writers::start(&mut cluster, &[3, 4]).await.unwrap();
    for round in 0..if soaking() { 20 } else { 3 } {
        let leader = cluster.leader(4).await.unwrap();
        if leader > 2 {
            // It votes in place of one that was gone for long, as on a machine that is slow to start a process. Killing a door
            // would show nothing.
            assert!(round > 0, "node {leader} led before any was killed");
            break;
        }
        writers::know_owners(&writers, &mut cluster, 4).await.unwrap();
        let before = writers.count(Of::Others(leader));
        writers.longest_gap(Of::All);
        let killed = writers.now();
        cluster.kill(leader);
        let next = cluster.leader_but(4, leader).await.unwrap();
        writers.progress(Of::Others(leader), 10).await.unwrap();
        let failed = writers.count(Of::Others(leader)).failed - before.failed;
        let gap = writers.longest_gap(Of::Others(leader));
        cluster.restart(leader).await.unwrap();
        let again = writers.all_append(killed, Of::All, "after the leader's return").await.unwrap();
        Figures::of("leader-killed-again-and-again", 5)
            .with("round", round)
            .with("nextLeader", next)
            .took("appendsAgainS", again)
            .took("othersLongestGapS", gap)
            .with("othersFailed", failed)
            .write(&writers);
        assert_eq!(failed, 0, "appends to streams open at nodes that live were interrupted");
        cluster.settled(4).await.unwrap();
    }
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}
