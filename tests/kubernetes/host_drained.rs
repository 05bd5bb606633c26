//! Scenario 12: `kubectl drain` of a host. Nodes are spread over hosts; the disruption budget lets one go at a time; its
//! streams are served on without a request that fails twice; it comes back with its volume.

use anyhow::{Context, Result, bail, ensure};
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use weir_tests::writers::{Of, Writers};

use crate::cluster::Cluster;
use crate::figures::Measured;

/// A node on every host, and the wish for it in every pod, for zones too.
fn spread(cluster: &Cluster) -> Result<()> {
    let mut hosts = BTreeSet::new();
    for ordinal in 0..3 {
        let spec = cluster.pod(ordinal)?.spec.unwrap_or_default();
        let over: Vec<_> =
            spec.topology_spread_constraints.iter().flatten().map(|c| c.topology_key.as_str()).collect();
        ensure!(over == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"], "{over:?}");
        hosts.extend(spec.node_name);
    }
    ensure!(hosts.len() == 3, "three nodes on {hosts:?}");
    Ok(())
}

/// The budget is used up by the pod that is away. By kubectl, for the client here tries again whatever is refused so.
async fn no_other_may_be_evicted(cluster: &Cluster, away: u32) -> Result<()> {
    for ordinal in (0..3).filter(|n| *n != away) {
        let pod = cluster.pod(ordinal)?.name_any();
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod, "namespace": cluster.namespace},
        });
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), eviction.to_string())?;
        let path = file.path().to_str().context("a path")?;
        let target = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", cluster.namespace);
        match cluster.bed.kubectl(&["create", "--raw", &target, "-f", path]).await {
            Err(why) if format!("{why:#}").contains("disruption budget") => {}
            other => bail!("{pod} beside node {away}: {other:?}"),
        }
    }
    Ok(())
}

async fn drained(cluster: &Cluster, writers: &Writers) -> Result<()> {
    spread(cluster)?;
    // Of the others' pods and the operator nothing is wanted.
    let away = cluster.bed.operator_host().await?;
    let nodes = cluster.now()?.status.map(|s| s.nodes).unwrap_or_default();
    let before = nodes.into_iter().find(|n| n.host.as_ref().is_some_and(|h| *h != away));
    let Some(before) = before else { bail!("no node beside the operator's host") };
    let (ordinal, host) = (before.ordinal, before.host.clone().unwrap_or_default());
    let others: Vec<_> = cluster.lives().into_iter().filter(|l| l.0 != before.name).collect();
    cluster.expect_end_of(&cluster.pod(ordinal)?);

    let measured = Measured::begin("host-drained", cluster, writers).await?;
    let failed = writers.count(Of::All).failed_twice;
    let undo = ["in", "control", "kubectl", "uncordon", host.as_str()];
    let selector = format!("--pod-selector=weir.dev/cluster={}", cluster.name);
    let args =
        ["in", "control", "kubectl", "drain", &host, &selector, "--ignore-daemonsets", "--timeout=240s"];
    let cordoned = cluster.bed.run_until(&args, &undo).await?;
    // It is gone, and so are its streams.
    writers.know_owners(async |stream| cluster.owner(stream).await).await?;
    let left: Vec<_> = writers.owners().into_iter().filter(|(_, n)| *n == ordinal as usize).collect();
    ensure!(left.is_empty(), "{} is evicted and owns {left:?}", before.name);
    writers.all_append(writers.now(), Of::All, "beside an empty host").await?;
    no_other_may_be_evicted(cluster, ordinal).await?;
    let ready = cluster.now()?.status.map(|s| s.ready).unwrap_or_default();
    ensure!(ready == "2/3", "{ready}: the budget did not hold");

    cordoned.now().await?;
    let now = cluster.until_replaced(&before).await?;
    ensure!(now.raft_id == before.raft_id && now.host == before.host, "{before:?} came back as {now:?}");
    measured.end(cluster, writers).await?;
    let failed = writers.count(Of::All).failed_twice - failed;
    ensure!(failed == 0, "{failed} requests failed twice");
    let after: Vec<_> = cluster.lives().into_iter().filter(|l| l.0 != before.name).collect();
    ensure!(after == others, "the others: {others:?} became {after:?}");
    Ok(())
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn a_drained_host_costs_no_request_that_is_tried_again() {
        let cluster = Cluster::start("drain", Value::Null).await.unwrap();
        let writers = cluster.load().await.unwrap();
        drained(&cluster, &writers).await.unwrap();
        cluster.end(Some(writers)).await.unwrap();
    }
}
