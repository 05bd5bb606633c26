//! Scenario 4: a host is lost. Its kubelet falls silent while its pods run on, still connected; then it is cut off from the
//! API server and the other nodes, but not from the bucket. Others serve its streams, its node comes back elsewhere as
//! another member of the metadata log, and when the host returns its old pod can register and acknowledge nothing.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::Api;
use serde_json::{Value, json};
use weir_operator::crd::NodeState;
use weir_operator::names;
use weir_tests::wait;
use weir_tests::writers::{Of, Writers};

use crate::bed::{Bed, at};
use crate::cluster::Cluster;
use crate::figures::Measured;
use crate::watched::LIMIT;

/// A node on a host that has neither the operator nor the bucket.
async fn victim(cluster: &Cluster) -> Result<NodeState> {
    let spared = cluster.bed.operator_host().await?;
    let nodes = cluster.now()?.status.unwrap_or_default().nodes;
    let found = nodes.into_iter().rev().find(|n| n.host.as_ref().is_some_and(|h| *h != spared));
    found.with_context(|| format!("a node that is not on {spared}"))
}

async fn until_host(bed: &Bed, host: &str, ready: bool) -> Result<()> {
    let api: Api<Node> = Api::all(bed.client.clone());
    let is = || async {
        let node = api.get(host).await?;
        let conditions = node.status.and_then(|s| s.conditions).unwrap_or_default();
        let now = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
        Ok((now == ready).then_some(()))
    };
    wait::until(&format!("{host} to be seen as ready: {ready}"), LIMIT, is).await
}

/// What the old pod is to take: once, while its host is well.
const LAST_WORDS: &str = "from a zombie";
/// In place of a status.
const NO_ANSWER: u16 = 599;

/// Asks the old pod itself, from its own host, to take an append; `None` once nobody listens there. Its answer.
async fn old_pod_answers(bed: &Bed, host: &str, pod_ip: &str, stream: &str) -> Result<Option<u16>> {
    let url = format!("http://{}/v1/stream/{stream}", at(pod_ip, names::HTTP_PORT));
    let tried = bed
        .run(&[
            "in",
            host,
            "curl",
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--max-time",
            "20",
            "-X",
            "POST",
            "-H",
            "content-type: application/octet-stream",
            "--data-binary",
            LAST_WORDS,
            &url,
        ])
        .await;
    match tried {
        Ok(text) => Ok(Some(text.trim().parse()?)),
        // Curl's word for: refused.
        Err(error) if error.to_string().contains("exit status: 7") => Ok(None),
        Err(_no_answer) => Ok(Some(NO_ANSWER)),
    }
}

async fn lost(cluster: &Cluster, writers: &Writers, before: &NodeState) -> Result<()> {
    let bed = &cluster.bed;
    let host = before.host.clone().context("a host")?;
    let old = cluster.pod(before.ordinal)?;
    let old_ip = old.status.as_ref().and_then(|s| s.pod_ip.clone()).context("an address")?;
    let of_old = before.ordinal as usize;
    let stream = cluster.stream_of(before.ordinal).await?;
    let answer = old_pod_answers(bed, &host, &old_ip, &stream).await?;
    ensure!(
        answer.is_some_and(|status| (200..300).contains(&status)),
        "what is to be refused later must be taken now: {answer:?}"
    );

    // Silent, and yet at work: nothing fails.
    let awake = bed.run_until(&["kubelet", "pause", &host], &["kubelet", "continue", &host]).await?;
    until_host(bed, &host, false).await?;
    writers.all_append(writers.now(), Of::Node(of_old), "while the kubelet is silent").await?;

    let measured = Measured::begin("host-lost", cluster, writers).await?;
    let cut = bed.run_until(&["cut", &host], &["heal", &host]).await?;
    writers.all_append(writers.now(), Of::All, "after its host is cut off").await?;
    let answer = old_pod_answers(bed, &host, &old_ip, &stream).await?;
    ensure!(answer.is_none_or(|status| status >= 300), "the old pod acknowledges: {answer:?}");

    let now = cluster.until_replaced(before).await?;
    ensure!(now.pod_uid != before.pod_uid && now.raft_id != before.raft_id, "{before:?} became {now:?}");
    ensure!(now.host.as_ref() != Some(&host) && now.volume != before.volume, "{before:?} became {now:?}");
    let said =
        format!("pod {} at epoch {}", before.pod_uid.clone().unwrap_or_default(), before.epoch.unwrap_or(0));
    cluster.event("NodeReplaced", |text| text.contains(&said)).await?;
    measured.end(cluster, writers).await?;
    let (voters, learners) = cluster.members().await?;
    ensure!(voters.len() == 3 && learners.is_empty(), "{voters:?} {learners:?}");
    ensure!(!voters.contains(&before.raft_id.unwrap_or(0)), "the lost member still votes: {voters:?}");

    returned(cluster, &old, &host, &old_ip, &stream, cut, awake).await?;
    let held = cluster.read(&stream).await?;
    ensure!(held == LAST_WORDS.as_bytes(), "{stream} holds {held:?}");
    let at_last = cluster.node(before.ordinal)?;
    ensure!(at_last.epoch == now.epoch && at_last.pod_uid == now.pod_uid, "{now:?} became {at_last:?}");
    Ok(())
}

/// The host is back: first its network, while nobody ends its pods; then its kubelet, which does.
async fn returned(
    cluster: &Cluster,
    old: &Pod,
    host: &str,
    old_ip: &str,
    stream: &str,
    cut: crate::bed::Undo,
    awake: crate::bed::Undo,
) -> Result<()> {
    let bed = &cluster.bed;
    cut.now().await?;
    let ended = || async {
        let answer = old_pod_answers(bed, host, old_ip, stream).await?;
        ensure!(answer.is_none_or(|status| status >= 300), "the old pod acknowledges: {answer:?}");
        Ok(answer.is_none().then_some(()))
    };
    wait::until("the old process to end by itself", LIMIT, ended).await?;
    awake.now().await?;
    until_host(bed, host, true).await?;
    let registered = cluster.asked("/admin/nodes").await?;
    let old_uid = old.uid().context("a UID")?;
    let all: Vec<&Value> = registered["nodes"].as_array().into_iter().flatten().collect();
    ensure!(all.len() == 3, "{registered}");
    ensure!(!registered.to_string().contains(&old_uid), "the old pod {old_uid} is registered: {registered}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the test bed: make kubernetes"]
async fn a_lost_hosts_node_comes_back_elsewhere_and_its_old_pod_never_acknowledges_again() {
    let cluster = Cluster::start("host", json!({})).await.unwrap();
    let writers = cluster.load().await.unwrap();
    let before = victim(&cluster).await.unwrap();
    lost(&cluster, &writers, &before).await.unwrap();
    cluster.end(Some(writers)).await.unwrap();
}
