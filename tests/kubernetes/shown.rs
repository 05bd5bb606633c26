//! What people see who look with `kubectl`: columns, scaling, waiting, events.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cluster::Cluster;

/// The columns' titles, and the cells of the cluster's row.
async fn table(cluster: &Cluster, args: &[&str]) -> Result<(Vec<String>, Vec<String>)> {
    let mut all = vec!["get", "strc"];
    all.extend(args);
    let text = cluster.kubectl(&all).await?;
    let mut lines = text.lines().map(|l| l.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let (titles, row) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    println!("{text}");
    Ok((titles, row))
}

async fn columns(cluster: &Cluster) -> Result<()> {
    let (titles, row) = table(cluster, &[]).await?;
    ensure!(titles == ["NAME", "READY", "STATUS", "LEADER", "STREAMS", "AGE"], "{titles:?}");
    ensure!(row[..5] == ["t", "1/1", "Ready", "t-0", "0"], "{row:?}");
    let (titles, row) = table(cluster, &["-o", "wide"]).await?;
    ensure!(titles[6..] == ["SLOTS", "MESSAGE"] && row[6] == "3", "{titles:?} {row:?}");
    // Those who look for all, and for all of Weir.
    for category in ["all", "weir"] {
        let text = cluster.kubectl(&["get", category, "-o", "name"]).await?;
        ensure!(text.contains("streamcluster.weir.dev/t"), "{category}: {text}");
    }
    let text = cluster.kubectl(&["explain", "strc.spec.slots"]).await?;
    ensure!(text.contains("Capacity weight of a node"), "{text}");
    Ok(())
}

async fn scaled(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["scale", "strc", "t", "--replicas=2"]).await?;
    cluster.kubectl(&["wait", "--for=condition=Ready=false", "strc/t", "--timeout=60s"]).await?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "strc/t", "--timeout=240s"]).await?;
    cluster.until_ready().await?;
    let (_, row) = table(cluster, &[]).await?;
    ensure!(row[1..3] == ["2/2", "Ready"], "{row:?}");
    let scale = cluster.kubectl(&["get", "strc", "t", "--subresource=scale", "-o", "json"]).await?;
    let scale: serde_json::Value = serde_json::from_str(&scale)?;
    ensure!(scale["status"] == json!({"replicas": 2, "selector": "weir.dev/cluster=t"}), "{scale}");
    Ok(())
}

async fn described(cluster: &Cluster) -> Result<()> {
    cluster.event("Ready", |_| true).await?;
    let text = cluster.kubectl(&["describe", "strc", "t"]).await?;
    for word in
        ["Conditions:", "AllNodesReady", "Events:", "CreatingPod", "t-1", "CreatingVolume", "data-t-1"]
    {
        ensure!(text.contains(word), "no {word:?} in:\n{text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the test bed: make kubernetes"]
async fn kubectl_tells_what_is_and_what_was_done() {
    let cluster = Cluster::start("shown", json!({"replicas": 1, "slots": 3})).await.unwrap();
    columns(&cluster).await.unwrap();
    scaled(&cluster).await.unwrap();
    described(&cluster).await.unwrap();
    cluster.end(None).await.unwrap();
}
