//! One node's wall clock an hour off: nothing that is acknowledged depends on it.

use crate::cluster::{Cluster, soaking};
use crate::writers::{self, Of};
use weir_tests::figures::Figures;

const HOUR_MS: i64 = 3_600_000;

async fn epoch(cluster: &mut Cluster, node: usize) -> u64 {
    let about = cluster.about(node, &Cluster::name(node)).await.unwrap();
    about["epoch"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_an_hour_forward_or_back_loses_nothing_and_epochs_grow() {
    let mut cluster = Cluster::start(3).await.unwrap();
    let writers = writers::start(&mut cluster, &[0, 1, 2]).await.unwrap();
    let rounds = if soaking() { 3 } else { 1 };
    for _ in 0..rounds {
        // Wherever the leadership goes meanwhile, the time of log entries jumps with it.
        let off = cluster.leader(0).await.unwrap();
        let mut epochs = vec![epoch(&mut cluster, off).await];
        for (what, offset) in [("forward", HOUR_MS), ("back", -HOUR_MS), ("right", 0)] {
            cluster.flag(off, "test-clock-offset-ms", offset);
            cluster.kill(off);
            let started = writers.now();
            cluster.restart(off).await.unwrap();
            let again = writers.all_append(started, Of::All, "with a clock that is off").await.unwrap();
            epochs.push(epoch(&mut cluster, off).await);
            Figures::of("clock-off", 3).with("clock", what).took("appendsAgainS", again).write(&writers);
            cluster.settled(off).await.unwrap();
        }
        assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
    }
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}
