//! Every node at once: the power comes back, or everything is stopped and started.

use rustix::process::Signal;
use weir_tests::node::PATIENCE;

use crate::cluster::{Cluster, soaking};
use crate::writers::{self, Of};
use weir_tests::figures::Figures;

async fn restart_all(nodes: usize, rounds: usize) {
    let mut cluster = Cluster::start(nodes).await.unwrap();
    let doors: Vec<_> = (0..nodes).collect();
    let writers = writers::start(&mut cluster, &doors).await.unwrap();
    for round in 0..rounds {
        let in_order = round % 2 == 1;
        for i in 0..nodes {
            if in_order {
                cluster.node(i).signal(Signal::TERM);
            } else {
                cluster.kill(i);
            }
        }
        for i in 0..nodes {
            let status = cluster.node(i).exit(PATIENCE).await.unwrap();
            assert!(!in_order || status.success(), "{status}\n{}", cluster.node(i).log_tail());
        }
        let started = writers.now();
        for i in 0..nodes {
            cluster.spawn(i).await.unwrap();
        }
        for i in 0..nodes {
            cluster.ready(i).await.unwrap();
        }
        let again = writers.all_append(started, Of::All, "after all have started").await.unwrap();
        Figures::of(if in_order { "all-stopped" } else { "all-killed" }, nodes)
            .took("appendsAgainS", again)
            .write(&writers);
        cluster.settled(0).await.unwrap();
    }
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_killed_and_then_stopped_at_once_come_back_with_everything() {
    restart_all(3, if soaking() { 6 } else { 2 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn five_nodes_killed_at_once_come_back_with_everything() {
    restart_all(5, 4).await;
}
