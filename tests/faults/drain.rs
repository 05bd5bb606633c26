//! Streams that move on purpose, and processes that die while they do.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use http::Method;
use serde_json::{Value, json};
use weir_tests::node::PATIENCE;
use weir_tests::wait;

use crate::cluster::{Cluster, soaking};
use crate::writers::{self, Of};
use weir_tests::figures::Figures;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// Orders the drain of `node`, or its end, at node `at`, again if the log has no leader just then.
async fn drain(cluster: &mut Cluster, at: usize, node: usize, method: Method) -> Result<()> {
    let admin = cluster.node(at).admin().await?;
    let target = format!("/admin/nodes/{}/drain", Cluster::name(node));
    let ordered = || async {
        let answer =
            admin.send(method.clone(), &target, &[], "".into()).await.map_err(|e| anyhow!("{e:?}"))?;
        ensure!(matches!(answer.status, 200 | 202 | 503 | 504), "{answer:?}");
        Ok((answer.status < 300).then_some(()))
    };
    wait::until("the order", PATIENCE, ordered).await
}

async fn drained(cluster: &mut Cluster, at: usize, node: usize) -> Result<()> {
    let admin = cluster.node(at).admin().await?;
    let target = format!("/admin/nodes/{}/drain", Cluster::name(node));
    let done = || async {
        let state: Value = serde_json::from_str(&admin.get_text(&target).await?)?;
        ensure!(state["state"] != "gaveUp", "{state}");
        Ok((state["state"] == "drained").then_some(()))
    };
    wait::until("the drain to end", PATIENCE, done).await
}

/// Asks for a transfer. What is not possible just then is no failure.
async fn transfer(cluster: &mut Cluster, at: usize, stream: &str, to: usize) -> Result<u16> {
    let admin = cluster.hasty_admin(at).await?;
    let body = json!({"stream": stream, "toNode": Cluster::name(to)}).to_string();
    match admin.send(Method::POST, "/admin/transfer", &JSON, body.into()).await {
        Ok(answer) => {
            ensure!(matches!(answer.status, 200 | 202 | 409 | 503 | 504), "{answer:?}");
            Ok(answer.status)
        }
        Err(_cut) => Ok(0),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_is_drained_in_turn_and_takes_streams_again() {
    let mut cluster = Cluster::start(3).await.unwrap();
    let writers = writers::start(&mut cluster, &[0, 1, 2]).await.unwrap();
    for node in 0..3 {
        let at = (node + 1) % 3;
        writers.progress(Of::All, 5).await.unwrap();
        writers.count_on();
        writers.longest_gap(Of::All);
        let ordered = writers.now();
        drain(&mut cluster, at, node, Method::POST).await.unwrap();
        drained(&mut cluster, at, node).await.unwrap();
        let again = writers.all_append(ordered, Of::All, "after a drain").await.unwrap();
        writers.progress(Of::All, 5).await.unwrap();
        Figures::of("drain", 3)
            .took("appendsAgainS", again)
            .took("longestGapS", writers.longest_gap(Of::All))
            .write(&writers);
        writers::know_owners(&writers, &mut cluster, at).await.unwrap();
        assert!(writers.names(Of::Node(node)).is_empty(), "it has streams still");
        drain(&mut cluster, at, node, Method::DELETE).await.unwrap();
    }
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_die_while_streams_move_lose_nothing_and_leave_none_stuck() {
    let mut cluster = Cluster::start(3).await.unwrap();
    let writers = writers::start(&mut cluster, &[0, 1, 2]).await.unwrap();
    let mut moves = 0;
    for round in 0..if soaking() { 20 } else { 2 } {
        let at = cluster.rng.index(3);
        let victim = cluster.rng.index(3);
        let draining = round % 2 == 0;
        let moved = cluster.rng.index(3);
        if draining {
            drain(&mut cluster, at, moved, Method::POST).await.unwrap();
        } else {
            for name in writers.names(Of::All) {
                let to = cluster.rng.index(3);
                moves += usize::from(transfer(&mut cluster, at, &name, to).await.unwrap() < 300);
            }
        }
        // Somewhere in it.
        let moment = cluster.rng.between(0, 300);
        tokio::time::sleep(Duration::from_millis(moment)).await;
        cluster.kill(victim);
        let killed = writers.now();
        cluster.restart(victim).await.unwrap();
        let again = writers.all_append(killed, Of::All, "after a death among moves").await.unwrap();
        if draining {
            drain(&mut cluster, victim, moved, Method::DELETE).await.unwrap();
        }
        cluster.settled(victim).await.unwrap();
        Figures::of("killed-among-moves", 3)
            .with("draining", draining)
            .took("appendsAgainS", again)
            .write(&writers);
    }
    assert!(moves > 0, "nothing was moved");
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}
