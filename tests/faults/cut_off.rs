//! A partition: one node hears no other, though clients and the bucket reach it. It is taken over, acknowledges nothing
//! more from the seal on, and ends.

use weir_tests::node::PATIENCE;

use crate::cluster::Cluster;
use crate::writers::{self, Of};
use weir_tests::figures::Figures;

async fn cut_off(leading: bool) {
    let mut cluster = Cluster::start(3).await.unwrap();
    let leader = cluster.leader(0).await.unwrap();
    let cut = if leading { leader } else { (leader + 1) % 3 };
    let writers = writers::start(&mut cluster, &[0, 1, 2]).await.unwrap();
    writers.longest_gap(Of::All);
    cluster.cut_from_peers(cut);
    // Until the others seal its WAL it serves its own streams, and is right to. Then it finds the seal where its next
    // object should go.
    let status = cluster.node(cut).exit(PATIENCE).await.unwrap();
    assert_eq!(status.code(), Some(4), "{}", cluster.node(cut).log_tail());
    let ended = writers.now();
    writers.all_append(ended, Of::All, "after it was taken over").await.unwrap();
    Figures::of(if leading { "leader-cut-off" } else { "cut-off" }, 3)
        // Nothing was away for longer than this.
        .took("appendsAgainS", writers.longest_gap(Of::All))
        .write(&writers);
    cluster.heal();
    cluster.restart(cut).await.unwrap();
    writers.all_append(writers.now(), Of::All, "after its return").await.unwrap();
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_cut_off_from_its_peers_is_taken_over_and_ends() {
    cut_off(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn so_does_the_leader() {
    cut_off(true).await;
}
