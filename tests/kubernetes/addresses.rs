//! Scenario 13: names and addresses. Where names must be complete they are, under whatever domain the cluster has; where an
//! address stands in place of a name, of either family, it does as well: the bucket's, a node's, a client's door.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use http::Method;
use k8s_openapi::api::core::v1::Service;
use kube::api::Api;
use serde_json::{Value, json};
use weir_operator::names;
use weir_tests::client::{Client, path};
use weir_tests::wait;
use weir_tests::writers::{Of, Writers};

use crate::bed::{BUCKET, Bed, at, cluster_domain, ip_family};
use crate::cluster::Cluster;
use crate::watched::LIMIT;

/// A Service's address and port, as URLs have it.
async fn door_of(bed: &Bed, namespace: &str, name: &str) -> Result<String> {
    let api: Api<Service> = Api::namespaced(bed.client.clone(), namespace);
    let spec = api.get(name).await?.spec.unwrap_or_default();
    let port = spec.ports.iter().flatten().next().context("a port")?.port;
    Ok(at(&spec.cluster_ip.context("an address")?, u16::try_from(port)?))
}

async fn spec(cluster: &Cluster) -> Result<Value> {
    let mut store = cluster.least()["objectStore"].clone();
    store["endpoint"] = json!(format!("http://{}", door_of(&cluster.bed, BUCKET, "bucket").await?));
    let service = json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": [ip_family()]});
    let routing = json!({"clusterDomain": cluster_domain()});
    Ok(json!({"objectStore": store, "routing": routing, "service": service, "nodeServices": service}))
}

async fn all_are_of_the_family(cluster: &Cluster) -> Result<()> {
    let api: Api<Service> = Api::namespaced(cluster.bed.client.clone(), &cluster.namespace);
    for name in ["t", "t-nodes", "t-0"] {
        let spec = api.get(name).await?.spec.unwrap_or_default();
        ensure!(spec.ip_families == Some(vec![ip_family().to_owned()]), "{name}: {spec:?}");
    }
    for ordinal in 0..3 {
        let ips = cluster.pod(ordinal)?.status.and_then(|s| s.pod_ips).unwrap_or_default();
        let ips = ips.iter().map(|i| i.ip.parse()).collect::<Result<Vec<IpAddr>, _>>()?;
        let fits = |ip: &IpAddr| ip.is_ipv6() == (ip_family() == "IPv6");
        ensure!(ips.len() == 1 && ips.iter().all(fits), "{ips:?} on a bed of {}", ip_family());
    }
    Ok(())
}

async fn names_are_complete(cluster: &Cluster) -> Result<()> {
    let told = cluster.asked("/admin/nodes").await?;
    for ordinal in 0..3 {
        let name = names::pod(&cluster.name, ordinal);
        let mut nodes = told["nodes"].as_array().into_iter().flatten();
        let node = nodes.find(|n| n["id"] == name.as_str()).with_context(|| told.to_string())?;
        let (url, peer) =
            (format!("http://{}", cluster.door(ordinal)), cluster.node_address(ordinal, names::PEER_PORT));
        ensure!(url.ends_with(&format!(".svc.{}:{}", cluster_domain(), names::HTTP_PORT)), "{url}");
        ensure!(node["httpUrl"] == url.as_str() && node["peerAddress"] == peer.as_str(), "{node}");
    }
    Ok(())
}

/// Where a node, asked at its pod's address, sends a client who wants a stream of another node's.
async fn redirect(cluster: &Cluster, asked: u32, stream: &str) -> Result<String> {
    let ip = cluster.pod(asked)?.status.and_then(|s| s.pod_ip).context("an address")?;
    let client = Client::new(&at(&ip, names::HTTP_PORT), LIMIT);
    let target = format!("{}?offset=-1", path(stream));
    let sent = || async {
        let answer = client.send(Method::GET, &target, &[], "".into()).await;
        let answer = answer.ok().filter(|a| a.status == 307);
        Ok(answer.and_then(|a| a.header("location").map(str::to_owned)))
    };
    wait::until(&format!("a redirect to {stream}"), LIMIT, sent).await
}

async fn redirects_lead_there(cluster: &Cluster, writers: &Writers) -> Result<()> {
    let stream = writers.names(Of::Node(0)).first().cloned().context("a stream")?;
    let to = redirect(cluster, 1, &stream).await?;
    ensure!(to.starts_with(&format!("http://{}/", cluster.door(0))), "redirected to {to}");

    // And so to an address, if a node is to be reached at one.
    let door = door_of(&cluster.bed, &cluster.namespace, "t-0").await?;
    let before = cluster.node(0)?;
    let url = format!("http://{door}");
    cluster.patch(json!({"spec": {"nodes": [{"ordinal": 0, "advertisedUrl": url}]}})).await?;
    cluster.until_replaced(&before).await?;
    cluster.until_ready().await?;
    let stream = cluster.stream_of(0).await?;
    let to = redirect(cluster, 1, &stream).await?;
    ensure!(to.starts_with(&format!("{url}/")), "redirected to {to}, not to {url}");
    let client = Client::new(&cluster.door(1), LIMIT).following(true);
    let bytes = [("content-type", "application/octet-stream")];
    let answer = client.send(Method::POST, &path(&stream), &bytes, "by its address".into()).await;
    let answer = answer.map_err(|e| anyhow::anyhow!("{e:?}"))?;
    ensure!(matches!(answer.status, 200 | 204), "an append, redirected to {to}: {answer:?}");
    writers.all_append(writers.now(), Of::All, "with a node at an address").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the test bed: make kubernetes"]
async fn complete_names_lead_to_nodes_and_so_do_addresses() {
    let cluster = Cluster::prepare("addresses").await.unwrap();
    cluster.create(spec(&cluster).await.unwrap()).await.unwrap();
    cluster.until_ready().await.unwrap();
    all_are_of_the_family(&cluster).await.unwrap();
    names_are_complete(&cluster).await.unwrap();
    let writers = cluster.load().await.unwrap();
    redirects_lead_there(&cluster, &writers).await.unwrap();
    cluster.end(Some(writers)).await.unwrap();
}
