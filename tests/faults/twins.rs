//! One node id claimed by two processes, in both orders: the later registration serves, the other ends and, started
//! again, waits.

use anyhow::Result;
use rustix::process::Signal;
use weir_tests::node::{Node, PATIENCE, Setup};

use crate::cluster::Cluster;
use crate::writers::{self, Of};
use weir_tests::figures::Figures;

/// Another directory, hence another member of the log, under the id of node `i`. Reached directly.
fn twin_of(cluster: &Cluster, i: usize, name: &str) -> Setup {
    let mut twin = cluster.setup(i);
    twin.data = cluster.scratch.path(name);
    twin.log = cluster.scratch.path(&format!("{name}.stderr"));
    twin.flags.retain(|f| !f.starts_with("--peer-advertise=") && !f.starts_with("--bootstrap="));
    twin
}

async fn replaced(node: &mut Node) -> Result<()> {
    let status = node.exit(PATIENCE).await?;
    anyhow::ensure!(status.code() == Some(4), "{status}\n{}", node.log_tail());
    let log = node.log();
    anyhow::ensure!(log.contains("another process has registered as node"), "{}", node.log_tail());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_processes_with_one_id_the_later_serves_and_the_other_waits() {
    let mut cluster = Cluster::start(3).await.unwrap();
    let writers = writers::start(&mut cluster, &[0, 1]).await.unwrap();
    let began = writers.now();
    let mut twin = twin_of(&cluster, 2, "twin").spawn().unwrap();
    let mut first = cluster.take(2);
    replaced(&mut first).await.unwrap();
    twin.ready(PATIENCE).await.unwrap();
    let again = writers.all_append(began, Of::All, "after the replacement").await.unwrap();
    Figures::of("claimed-twice", 3).took("appendsAgainS", again).write(&writers);
    // The replaced one does not come back at once.
    cluster.spawn(2).await.unwrap();
    let why = cluster.node(2).unready_for(&["session"]).await.unwrap();
    assert!(why.contains("replaced by another"), "{why}");
    assert!(twin.try_exit().unwrap().is_none(), "{}", twin.log_tail());
    cluster.kill(2);

    // The other order: the one that serves hangs, another claims its id, and it wakes.
    twin.signal(Signal::STOP);
    let began = writers.now();
    let mut third = twin_of(&cluster, 2, "third").start().await.unwrap();
    twin.signal(Signal::CONT);
    replaced(&mut twin).await.unwrap();
    let again = writers.all_append(began, Of::All, "after the second replacement").await.unwrap();
    Figures::of("claimed-twice-while-hung", 3).took("appendsAgainS", again).write(&writers);
    assert!(third.try_exit().unwrap().is_none(), "{}", third.log_tail());
    writers.verify().await.unwrap();
    assert!(third.terminate(PATIENCE).await.unwrap().success());
    cluster.end().await.unwrap();
}

/// The one that comes later has the clock that is behind: it claims the id all the same, above the epoch recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn a_twin_whose_clock_is_behind_replaces_too() {
    let mut cluster = Cluster::start(3).await.unwrap();
    let writers = writers::start(&mut cluster, &[0, 1]).await.unwrap();
    let began = writers.now();
    let twin = twin_of(&cluster, 2, "twin").flag("test-clock-offset-ms", -3_600_000);
    let mut twin = twin.spawn().unwrap();
    let mut first = cluster.take(2);
    replaced(&mut first).await.unwrap();
    twin.ready(PATIENCE).await.unwrap();
    writers.all_append(began, Of::All, "after the replacement").await.unwrap();
    writers.verify().await.unwrap();
    assert!(twin.terminate(PATIENCE).await.unwrap().success());
    cluster.end().await.unwrap();
}
