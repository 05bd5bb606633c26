//! Members come, go and are replaced.

use std::time::Duration;

use super::rig::*;
use crate::metadata::ProposeError;
use crate::metadata::command::{Answer, Command};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_nodes_have_three_voters_and_go_on_without_two_nodes() {
    let mut cluster = Cluster::of(5, |_| {}).await;
    assert_eq!(cluster.voters().len(), 3);
    let (leader, voters) = (cluster.leader().await, cluster.voters());
    let id = |i: usize| cluster.node(i).raft_id.0;
    let voter = (0..5).find(|i| *i != leader && voters.contains(&id(*i))).unwrap();
    let learner = (0..5).find(|i| !voters.contains(&id(*i))).unwrap();
    let rest = (0..5).filter(|i| ![voter, learner].contains(i)).map(|i| cluster.node(i).clone());
    let load = Load::through(rest);
    load.goes_on(20).await;
    cluster.kill(voter).await;
    cluster.kill(learner).await;
    load.goes_on(60).await;
    assert_eq!(cluster.voters(), voters, "absence alone changes nothing");
    cluster.start(voter).await;
    cluster.start(learner).await;
    let created = load.end().await;
    cluster.are_alike().await;
    assert_eq!(cluster.node(learner).streams(), created.len());
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_is_lost_gives_its_vote_to_another_and_leaves_once_its_node_has_a_new_directory() {
    let mut cluster = Cluster::of(4, |cfg| cfg.voter_timeout = Duration::from_secs(1)).await;
    let (leader, voters) = (cluster.leader().await, cluster.voters());
    let lost = (0..4).find(|i| *i != leader && voters.contains(&cluster.node(*i).raft_id.0)).unwrap();
    let spare = (0..4).find(|i| !voters.contains(&cluster.node(*i).raft_id.0)).unwrap();
    let old = cluster.node(lost).raft_id;
    let spare = cluster.node(spare).raft_id.0;
    cluster.kill(lost).await;
    let mut wanted = voters.clone();
    wanted.remove(&old.0);
    wanted.insert(spare);
    until("the spare votes instead", || cluster.voters() == wanted).await;
    let is_member = |cluster: &Cluster| {
        let leader = cluster.running().find(|node| node.leads());
        leader.is_none_or(|node| node.metadata.members().iter().any(|m| m.raft_id == old))
    };
    assert!(is_member(&cluster), "it stays a member, without a vote");
    // The node's directory is lost, too: it joins anew, and only then the old number goes.
    cluster.rejoin(lost).await;
    assert!(cluster.node(lost).raft_id > old);
    until("the old directory has left", || !is_member(&cluster)).await;
    cluster.are_alike().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_vote_goes_to_another_before_its_node_leaves() {
    let mut cluster = Cluster::of(2, |_| {}).await;
    let leader = cluster.leader().await;
    let other = 1 - leader;
    let (old, new) = (cluster.node(leader).raft_id.0, cluster.node(other).raft_id.0);
    assert_eq!(cluster.voters(), [old].into());
    let drain = Command::SetDraining { node: name(leader), draining: true };
    cluster.node(leader).metadata.propose(drain).await.unwrap();
    until("the other votes and leads", || cluster.node(other).leads() && cluster.voters() == [new].into())
        .await;
    cluster.kill(leader).await;
    assert!(matches!(cluster.node(other).create("after").await, Ok(Answer::Created { .. })));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_whose_number_has_left_is_told_so_and_never_takes_part() {
    let mut cluster = Cluster::of(4, |_| {}).await;
    let voters = cluster.voters();
    let i = (0..4).find(|i| !voters.contains(&cluster.node(*i).raft_id.0)).unwrap();
    let old = cluster.node(i).raft_id;
    cluster.kill(i).await;
    cluster.rejoin(i).await;
    let new = cluster.node(i).raft_id;
    cluster.kill(i).await;
    cluster.exchange_folder(i, old);
    cluster.start_as(i, false).await;
    let left = tokio::time::timeout(PATIENCE, cluster.node(i).metadata.settled()).await.unwrap();
    assert_eq!(left.unwrap_err().0, old);
    cluster.kill(i).await;
    cluster.exchange_folder(i, new);
    cluster.start(i).await;
    cluster.are_alike().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_may_move_at_once_if_they_know_one_address() {
    let mut cluster = Cluster::of(3, |_| {}).await;
    assert!(matches!(cluster.node(1).create("before").await, Ok(Answer::Created { .. })));
    cluster.are_alike().await;
    for i in 0..3 {
        cluster.stop(i).await;
    }
    // The first finds nobody, the second the first, the third both.
    for i in 0..3 {
        cluster.start_as(i, false).await;
    }
    for i in 0..3 {
        tokio::time::timeout(PATIENCE, cluster.node(i).metadata.settled()).await.unwrap().unwrap();
        cluster.register(i).await;
    }
    assert!(matches!(cluster.node(2).create("after").await, Ok(Answer::Created { .. })));
    let addresses = cluster.addresses();
    let recorded = || {
        let members = cluster.node(0).metadata.members();
        addresses.iter().all(|address| members.iter().any(|m| m.address == *address))
    };
    until("the membership follows", recorded).await;
    cluster.are_alike().await;
    assert!(cluster.node(0).has("before"));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_several_nodes_takes_no_writes_before_its_voters_are_together() {
    let mut cluster = Cluster::unfounded();
    cluster.found(3).await;
    let refused = |outcome: Result<Answer, ProposeError>| match outcome {
        Err(ProposeError::Unavailable(why)) => assert!(why.contains("forming"), "{why}"),
        other => panic!("{other:?}"),
    };
    refused(cluster.node(0).create("early").await);
    cluster.add().await;
    refused(cluster.node(1).create("early").await);
    cluster.add().await;
    cluster.voters_are_together().await;
    until("node 0 knows", || cluster.node(0).metadata.unformed().is_none()).await;
    assert!(matches!(cluster.node(0).create("now").await, Ok(Answer::Created { .. })));
    cluster.stop_all().await;
}
