//! SIGSTOP for longer than lease and node-timeout, then SIGCONT: what the zombie still had to do never counts.

use bytes::Bytes;
use http::Method;
use rustix::process::Signal;
use weir_tests::node::PATIENCE;

use crate::cluster::Cluster;
use crate::writers::{self, Of};
use weir_tests::figures::Figures;

const BYTES: [(&str, &str); 1] = [("content-type", "application/octet-stream")];

async fn hang(leading: bool) {
    let mut cluster = Cluster::start(3).await.unwrap();
    let leader = cluster.leader(0).await.unwrap();
    let hung = if leading { leader } else { (leader + 1) % 3 };
    if !leading {
        // It answers for itself alone: what lies in its sockets must not be passed on when it wakes.
        cluster.kill(hung);
        cluster.flag(hung, "routing", "redirect");
        cluster.restart(hung).await.unwrap();
        cluster.settled(hung).await.unwrap();
    }
    let doors: Vec<_> = (0..3).filter(|i| *i != hung).collect();
    let writers = writers::start(&mut cluster, &doors).await.unwrap();
    let others = writers.count(Of::Others(hung));
    let zombie = cluster.node(hung).client().await.unwrap();
    writers.longest_gap(Of::All);
    let stopped = writers.now();
    cluster.node(hung).signal(Signal::STOP);
    let again = writers.all_append(stopped, Of::All, "to the streams of the node that hangs").await.unwrap();
    let others_failed = writers.count(Of::Others(hung)).failed - others.failed;
    // These lie in its sockets when it wakes: bytes that the checker would find to be nobody's.
    let late = if leading { Vec::new() } else { writers.names(Of::Node(hung)) };
    let late: Vec<_> = late
        .into_iter()
        .map(|name| {
            let zombie = zombie.clone();
            tokio::spawn(async move {
                let path = format!("/v1/stream/{name}?weir-test=late");
                zombie.send(Method::POST, &path, &BYTES, Bytes::from_static(b"zombie\n")).await
            })
        })
        .collect();
    cluster.node(hung).signal(Signal::CONT);
    let status = cluster.node(hung).exit(PATIENCE).await.unwrap();
    assert_eq!(status.code(), Some(4), "{}", cluster.node(hung).log_tail());
    for answer in late {
        if let Ok(answer) = answer.await.unwrap() {
            assert!(answer.status >= 300, "a fenced node acknowledged an append: {}", answer.status);
        }
    }
    Figures::of(if leading { "leader-hung" } else { "hung" }, 3)
        .took("appendsAgainS", again)
        .took("othersLongestGapS", writers.longest_gap(Of::Others(hung)))
        .with("othersFailed", others_failed)
        .write(&writers);
    // Nobody replaced it, so it need not wait before it comes back.
    cluster.restart(hung).await.unwrap();
    writers.all_append(writers.now(), Of::All, "after its return").await.unwrap();
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hung_ends_when_it_wakes_and_acknowledges_nothing() {
    hang(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn so_does_the_leader() {
    hang(true).await;
}
