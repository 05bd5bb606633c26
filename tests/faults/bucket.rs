//! The bucket is out of one node's reach: its own streams wait, all others go on, and it recovers by itself.

use weir_tests::node::PATIENCE;

use crate::cluster::{Cluster, soaking};
use crate::writers::{self, Of};
use weir_tests::figures::Figures;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_reach_the_bucket_says_so_and_goes_on_when_it_does() {
    let mut cluster = Cluster::start_with(3, &[("request-timeout", "4s")]).await.unwrap();
    let writers = writers::start(&mut cluster, &[0, 1, 2]).await.unwrap();
    for round in 0..if soaking() { 5 } else { 1 } {
        let cut = cluster.rng.index(3);
        let others = writers.count(Of::Others(cut));
        cluster.cut_from_bucket(cut, true);
        let why = cluster.node(cut).unready_for(&["store", "wal"]).await.unwrap();
        println!("node {cut} without the bucket: {why}");
        // The others' go on meanwhile; those through its door too.
        let others_begin = writers.now();
        writers.all_append(others_begin, Of::Others(cut), "to streams of the others").await.unwrap();
        writers.progress(Of::Others(cut), 20).await.unwrap();
        cluster.cut_from_bucket(cut, false);
        let back = writers.now();
        let again = writers.all_append(back, Of::All, "with the bucket back").await.unwrap();
        cluster.node(cut).ready(PATIENCE).await.unwrap();
        Figures::of("bucket-out-of-reach", 3)
            .with("round", round)
            .took("appendsAgainS", again)
            .with("othersFailed", writers.count(Of::Others(cut)).failed - others.failed)
            .write(&writers);
    }
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}
