//! Proposals and reads through any node, whoever leads, and whatever happens to it.

use std::time::Duration;

use super::rig::*;
use crate::metadata::ProposeError;
use crate::metadata::command::Answer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_agree_on_what_each_proposes() {
    let cluster = Cluster::of(3, |_| {}).await;
    assert_eq!(cluster.voters().len(), 3);
    let load = Load::through(cluster.running().cloned());
    load.goes_on(300).await;
    let created = load.end().await;
    cluster.are_alike().await;
    for node in cluster.running() {
        assert!(created.iter().all(|name| node.has(name)));
        assert_eq!(node.streams(), created.len());
        let (_, address) = node.metadata.leader_address().unwrap();
        assert!(cluster.addresses().contains(&address));
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_costs_no_command_and_doubles_none() {
    let mut cluster = Cluster::of(3, |_| {}).await;
    let mut all = Vec::new();
    for _ in 0..2 {
        let leader = cluster.leader().await;
        let others = cluster.nodes.iter().enumerate().filter(|(i, _)| *i != leader);
        let load = Load::through(others.filter_map(|(_, node)| node.clone()));
        load.goes_on(50).await;
        cluster.kill(leader).await;
        load.goes_on(50).await;
        // It comes back where nobody knows it.
        cluster.start(leader).await;
        load.goes_on(50).await;
        all.extend(load.end().await);
        cluster.register(leader).await;
        cluster.voters_are_together().await;
    }
    cluster.are_alike().await;
    assert_eq!(cluster.node(0).streams(), all.len());
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_follows_its_commands_up_once_it_is_back() {
    let cluster = Cluster::of(3, |_| {}).await;
    let leader = cluster.leader().await;
    let alone = Load::through([cluster.node(leader).clone()]);
    let others = cluster.nodes.iter().enumerate().filter(|(i, _)| *i != leader);
    let others = Load::through(others.filter_map(|(_, node)| node.clone()));
    alone.goes_on(20).await;
    others.goes_on(20).await;
    cluster.node(leader).peers.cut(true);
    others.goes_on(50).await;
    cluster.node(leader).peers.cut(false);
    alone.goes_on(20).await;
    others.goes_on(20).await;
    let created = alone.end().await.len() + others.end().await.len();
    cluster.are_alike().await;
    assert_eq!(cluster.node(leader).streams(), created);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_at_one_node_is_seen_behind_a_read_index_at_every_other() {
    let cluster = Cluster::of(3, |_| {}).await;
    for round in 0..12 {
        let at = cluster.node(round % 3);
        let name = format!("s{round}");
        assert!(matches!(at.create(&name).await, Ok(Answer::Created { .. })));
        for node in cluster.running() {
            let index = node.metadata.read_index(PATIENCE).await.unwrap();
            assert!(node.has(&name), "{name} of {} is not at {} at index {index}", at.name, node.name);
        }
        if round % 4 == 3 {
            let leader = cluster.leader().await;
            cluster.node(leader).metadata.hand_over(PATIENCE).await.unwrap();
        }
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_claims_nothing() {
    let cluster = Cluster::of(3, |cfg| cfg.leader_wait = Duration::from_secs(2)).await;
    let alone = cluster.follower().await;
    let alone = cluster.node(alone);
    alone.peers.cut(true);
    let late = alone.metadata.read_index(Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(late, ProposeError::Unavailable(_)), "{late}");
    let before = alone.streams();
    let no = alone.create("nowhere").await.unwrap_err();
    assert!(matches!(no, ProposeError::Unavailable(_)), "it surely never left: {no}");
    alone.peers.cut(false);
    assert!(matches!(alone.create("somewhere").await, Ok(Answer::Created { .. })));
    alone.metadata.read_index(PATIENCE).await.unwrap();
    assert!(!alone.has("nowhere"));
    assert_eq!(alone.streams(), before + 1);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_handed_over_under_load_without_a_loss() {
    let cluster = Cluster::of(3, |_| {}).await;
    let load = Load::through(cluster.running().cloned());
    load.goes_on(30).await;
    for _ in 0..4 {
        let leader = cluster.leader().await;
        let term = cluster.node(leader).metadata.leadership().borrow().term;
        cluster.node(leader).metadata.hand_over(PATIENCE).await.unwrap();
        load.goes_on(30).await;
        let new = cluster.leader().await;
        assert!(cluster.node(new).metadata.leadership().borrow().term > term);
    }
    let created = load.end().await;
    cluster.are_alike().await;
    assert_eq!(cluster.node(0).streams(), created.len());
    cluster.stop_all().await;
}
