//! Scenario 3: a pod deleted, in order and by force; a container killed; a process frozen. The next incarnation has a
//! greater epoch, and the status and an event lead from the old one to it.

use anyhow::{Result, ensure};
use kube::ResourceExt;
use weir_tests::writers::{Of, Writers};

use crate::cluster::Cluster;
use crate::figures::Measured;

/// Waits until a node's next incarnation serves, and holds status and events to what they should say of it.
async fn next_incarnation(
    cluster: &Cluster,
    before: &weir_operator::crd::NodeState,
    new_pod: bool,
) -> Result<()> {
    let now = cluster.until_replaced(before).await?;
    let pod = cluster.pod(before.ordinal)?;
    ensure!(now.pod_uid == pod.uid(), "the status names {:?}, the pod is {:?}", now.pod_uid, pod.uid());
    ensure!((now.pod_uid != before.pod_uid) == new_pod, "{before:?} became {now:?}");
    ensure!(now.raft_id == before.raft_id, "the volume stayed, and yet {before:?} became {now:?}");
    let words = [
        format!("pod {} at epoch {}", before.pod_uid.clone().unwrap_or_default(), before.epoch.unwrap_or(0)),
        format!("pod {} at epoch {}", now.pod_uid.unwrap_or_default(), now.epoch.unwrap_or(0)),
    ];
    let reason = if new_pod { "NodeReplaced" } else { "NodeRestarted" };
    cluster.event(reason, |text| words.iter().all(|w| text.contains(w))).await?;
    Ok(())
}

async fn deleted(cluster: &Cluster, writers: &Writers, force: bool) -> Result<()> {
    let before = cluster.node(1)?;
    let name = if force { "pod-deleted-by-force" } else { "pod-deleted" };
    let measured = Measured::begin(name, cluster, writers).await?;
    cluster.delete_pod(1, force).await?;
    next_incarnation(cluster, &before, true).await?;
    measured.end(cluster, writers).await
}

async fn killed(cluster: &Cluster, writers: &Writers) -> Result<()> {
    let before = cluster.node(2)?;
    let measured = Measured::begin("container-killed", cluster, writers).await?;
    cluster.bed.run(&["pod", "kill", &cluster.namespace, &before.name]).await?;
    next_incarnation(cluster, &before, false).await?;
    measured.end(cluster, writers).await
}

/// For longer than the others wait for it: they have its streams when it wakes, and it ends.
async fn frozen(cluster: &Cluster, writers: &Writers) -> Result<()> {
    let before = cluster.node(0)?;
    let measured = Measured::begin("process-frozen", cluster, writers).await?;
    let (namespace, pod) = (cluster.namespace.as_str(), before.name.as_str());
    let thaw =
        cluster.bed.run_until(&["pod", "freeze", namespace, pod], &["pod", "thaw", namespace, pod]).await?;
    writers.all_append(writers.now(), Of::All, "while a process is frozen").await?;
    thaw.now().await?;
    next_incarnation(cluster, &before, false).await?;
    measured.end(cluster, writers).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the test bed: make kubernetes"]
async fn whatever_ends_a_process_leads_to_one_with_a_greater_epoch() {
    let cluster = Cluster::start("replaced", serde_json::Value::Null).await.unwrap();
    let writers = cluster.load().await.unwrap();
    deleted(&cluster, &writers, false).await.unwrap();
    deleted(&cluster, &writers, true).await.unwrap();
    killed(&cluster, &writers).await.unwrap();
    frozen(&cluster, &writers).await.unwrap();
    cluster.end(Some(writers)).await.unwrap();
}
