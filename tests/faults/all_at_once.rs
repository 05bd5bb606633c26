//! Every node at once: the power comes back, or everything is stopped and started.

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use weir_tests::node::{PATIENCE, readiness};
use weir_tests::wait;

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

/// The last nodes of a cluster that stops find no majority to record the end of their session. Where nothing else has to be
/// recorded they give up on that alone, long before the grace period is over, and stop in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_without_a_majority_leaves_its_session_to_the_next_start() {
    let mut cluster = Cluster::start(3).await.unwrap();
    for i in [1, 2] {
        cluster.kill(i);
        cluster.node(i).exit(PATIENCE).await.unwrap();
    }
    let status = cluster.node(0).terminate(PATIENCE).await.unwrap();
    let log = cluster.node(0).log();
    assert!(status.success(), "{status}\n{}", cluster.node(0).log_tail());
    assert!(log.contains("session not ended: no majority answers"), "{}", cluster.node(0).log_tail());
    assert!(!log.contains("not stopped in order"), "{}", cluster.node(0).log_tail());
    for i in 0..3 {
        cluster.spawn(i).await.unwrap();
    }
    for i in 0..3 {
        cluster.ready(i).await.unwrap();
    }
    let writers = writers::start(&mut cluster, &[0]).await.unwrap();
    writers.progress(Of::All, 10).await.unwrap();
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}

/// Whoever runs the nodes says which processes they may be from now on.
async fn pin_all(cluster: &mut Cluster, asked: &[usize], to: &str) {
    for (i, asked) in asked.iter().enumerate() {
        let admin = cluster.node(*asked).admin().await.unwrap();
        let name = Cluster::name(i);
        let fence = async || {
            // It has to have its log first.
            let Ok(known) = admin.get_text(&format!("/admin/nodes/{name}")).await else { return Ok(None) };
            let known: Value = serde_json::from_str(&known)?;
            let body = json!({"epoch": known["epoch"], "incarnation": format!("{to}-{i}")}).to_string();
            let path = format!("/admin/nodes/{name}/fence");
            let json = [("content-type", "application/json")];
            // Who leads may be being found out.
            let told = admin.send(Method::POST, &path, &json, body.into()).await;
            Ok(told.is_ok_and(|t| t.status == 200).then_some(()))
        };
        wait::until("a fence to be in the log", PATIENCE, fence).await.unwrap();
    }
}

/// As when all pods of a cluster are made anew: each node is pinned to a process that is no more, so none registers, and none
/// has a session under which it could be said that they may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_all_pinned_to_processes_of_the_past_are_told_of_the_new_ones() {
    let mut cluster = Cluster::start(3).await.unwrap();
    let writers = writers::start(&mut cluster, &[0, 1, 2]).await.unwrap();
    for turn in ["second", "third"] {
        for i in 0..3 {
            cluster.kill(i);
        }
        for i in 0..3 {
            cluster.node(i).exit(PATIENCE).await.unwrap();
            cluster.flag(i, "incarnation", format!("{turn}-{i}"));
        }
        for i in 0..3 {
            cluster.spawn(i).await.unwrap();
        }
        if turn == "third" {
            for i in 0..3 {
                let addresses = cluster.node(i).addresses().await.unwrap();
                let why = format!("pinned to incarnation second-{i}");
                let pinned = async || Ok(readiness(&addresses.admin).await.1.contains(&why).then_some(()));
                wait::until("the reason", PATIENCE, pinned).await.unwrap();
            }
        }
        // Each through another node, or through itself.
        pin_all(&mut cluster, if turn == "third" { &[1, 1, 0] } else { &[0, 1, 2] }, turn).await;
        let started = writers.now();
        for i in 0..3 {
            cluster.ready(i).await.unwrap();
        }
        writers.all_append(started, Of::All, "after all are registered").await.unwrap();
    }
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}
