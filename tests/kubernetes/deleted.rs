//! Scenario 8: deletion with `Retain` and with `Delete`, of a whole namespace; two clusters in one namespace; a second one on
//! the same place in the bucket.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use weir_operator::crd::StreamCluster;
use weir_operator::names;
use weir_tests::wait;
use weir_tests::writers::Of;

use crate::cluster::Cluster;
use crate::watched::LIMIT;

/// Kinds of which nothing stays.
const OWNED: &str = "pods,services,configmaps,secrets,serviceaccounts,poddisruptionbudgets";

/// Deletes the StreamCluster; what follows from that is no deed of the operator.
async fn delete(cluster: &Cluster) -> Result<()> {
    cluster.pods.now().values().for_each(|pod| cluster.expect_end_of(pod));
    let api: Api<StreamCluster> = Api::namespaced(cluster.bed.client.clone(), &cluster.namespace);
    api.delete(&cluster.name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until nothing that it made is left but its volumes.
async fn until_gone(cluster: &Cluster) -> Result<()> {
    let selector = names::selector(&cluster.name);
    let left = || async {
        let left = cluster.kubectl(&["get", OWNED, "-l", &selector, "-o", "name"]).await?;
        Ok(left.trim().is_empty().then_some(()))
    };
    wait::until("everything of the cluster to be gone", LIMIT, left).await
}

async fn claims(cluster: &Cluster) -> Result<Vec<PersistentVolumeClaim>> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(cluster.bed.client.clone(), &cluster.namespace);
    Ok(api.list(&ListParams::default().labels(&names::selector(&cluster.name))).await?.items)
}

async fn until_no_claims(cluster: &Cluster) -> Result<()> {
    let none = || async { Ok(claims(cluster).await?.is_empty().then_some(())) };
    wait::until("the volumes to be gone", LIMIT, none).await
}

mod long {
    use super::*;

    /// Under load all the time: clients wait for it to come back, and find what they had.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn what_is_retained_is_taken_over_and_what_is_not_goes() {
        let cluster = Cluster::start("retained", Value::Null).await.unwrap();
        let writers = cluster.load().await.unwrap();
        let uid = cluster.now().unwrap().status.and_then(|s| s.cluster_uid).unwrap();
        let had: Vec<_> = claims(&cluster).await.unwrap().iter().map(ResourceExt::uid).collect();
        delete(&cluster).await.unwrap();
        until_gone(&cluster).await.unwrap();
        let kept: Vec<_> = claims(&cluster).await.unwrap().iter().map(ResourceExt::uid).collect();
        assert_eq!(kept, had, "volumes under Retain");

        let mut spec = cluster.least();
        spec["objectStore"]["adoptClusterUid"] = json!(uid);
        spec["deletionPolicy"] = json!({"whenDeleted": "Delete"});
        cluster.create(spec).await.unwrap();
        cluster.until_ready().await.unwrap();
        let now: Vec<_> = claims(&cluster).await.unwrap().iter().map(ResourceExt::uid).collect();
        assert_eq!(now, had, "they are used again");
        writers.all_append(writers.now(), Of::All, "after the cluster came back").await.unwrap();
        let count = writers.verify().await.unwrap();
        assert!(count.acknowledged > 0);

        // With `Delete` the volumes go too; the records stay where they are.
        let owned = || async {
            let all = claims(&cluster).await?;
            Ok(all.iter().all(|c| !c.owner_references().is_empty()).then_some(()))
        };
        wait::until("the volumes to be owned", LIMIT, owned).await.unwrap();
        delete(&cluster).await.unwrap();
        until_gone(&cluster).await.unwrap();
        until_no_claims(&cluster).await.unwrap();
        cluster.end(None).await.unwrap();
    }

    /// All nodes stop at once, and the last has nobody to give anything to: nothing waits for that.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn a_namespace_goes_with_all_that_is_in_it() {
        let spec = json!({"deletionPolicy": {"whenDeleted": "Delete"}});
        let cluster = Cluster::start("namespace", spec).await.unwrap();
        let writers = cluster.load().await.unwrap();
        cluster.pods.now().values().for_each(|pod| cluster.expect_end_of(pod));
        let since = writers.now();
        let api: Api<Namespace> = Api::all(cluster.bed.client.clone());
        api.delete(&cluster.namespace, &DeleteParams::default()).await.unwrap();
        cluster.until_pods("the pods to be gone", |pods| pods.is_empty().then_some(())).await.unwrap();
        println!("pods gone after {:?}", writers.since(since));
        let gone = || async { Ok(api.get_opt(&cluster.namespace).await?.is_none().then_some(())) };
        wait::until("the namespace to be gone", LIMIT, gone).await.unwrap();
        println!("namespace gone after {:?}", writers.since(since));
        drop(writers);
        cluster.end(None).await.unwrap();
    }

    /// `t` and `t-1`: the name of one cluster is that of a node of the other.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn neighbours_do_not_touch_each_other() {
        let cluster = Cluster::start("neighbours", Value::Null).await.unwrap();
        let writers = cluster.load().await.unwrap();
        let lives = cluster.lives();
        let other = cluster.beside("t-1");
        other.create(json!({"replicas": 2, "metadata": {"voters": 1}})).await.unwrap();
        other.until_ready().await.unwrap();
        let others = other.lives();
        assert_eq!(cluster.lives(), lives, "the first, while the second is made");

        // A new volume of the first one's node 1 has the name that the second one's node 1 has taken.
        let before = cluster.node(1).unwrap();
        let volume = before.volume.clone().unwrap();
        let mark = ["annotate", "pvc", &volume, "weir.dev/abandoned=test"];
        cluster.kubectl(&mark).await.unwrap();
        let moved = cluster
            .until("another volume of node 1", |c| {
                let node = crate::cluster::node_of(c, 1)?;
                (node.raft_id != before.raft_id && node.ready).then(|| node.clone())
            })
            .await
            .unwrap();
        assert!(moved.volume.is_some_and(|v| v != volume && v != "data-t-1-1"));
        cluster.until_ready().await.unwrap();
        assert_eq!(other.lives(), others, "the second, while a node of the first is made anew");

        delete(&other).await.unwrap();
        until_gone(&other).await.unwrap();
        assert_eq!(claims(&cluster).await.unwrap().len(), 4, "volumes of the first");
        cluster.until_ready().await.unwrap();
        assert_ne!(cluster.lives(), lives);
        cluster.end(Some(writers)).await.unwrap();
        other.end(None).await.unwrap();
    }

    /// Bucket and prefix are one cluster's. A second one is told so, and the first does not notice.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn a_second_cluster_in_the_same_place_is_refused() {
        let cluster = Cluster::start("twice", Value::Null).await.unwrap();
        let writers = cluster.load().await.unwrap();
        let lives = cluster.lives();
        let second = cluster.beside("second");
        let mut spec = cluster.least();
        spec["replicas"] = json!(1);
        second.create(spec).await.unwrap();
        let why = second.until_condition("StorageReady", "False", "OtherCluster").await.unwrap();
        println!("{why}");
        let uid = cluster.now().unwrap().status.and_then(|s| s.cluster_uid).unwrap();
        assert!(why.contains(&uid), "{why} does not name the cluster {uid}");
        second.until_condition("Ready", "False", "").await.unwrap();
        writers.all_append(writers.now(), Of::All, "beside a refused cluster").await.unwrap();
        assert_eq!(cluster.lives(), lives);
        cluster.until_ready().await.unwrap();
        cluster.end(Some(writers)).await.unwrap();
        second.end(None).await.context("the second").unwrap();
    }
}
