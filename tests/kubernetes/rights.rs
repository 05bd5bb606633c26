//! Scenario 9: restricted Pod Security holds for nodes and operator, and the operator may do no more than it does. A cluster
//! lives through all that needs a right; then what the roles grant is held against the API server's audit log.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use weir_tests::wait;

use crate::bed::{OPERATOR, OPERATOR_LABELS};
use crate::cluster::Cluster;
use crate::watched::LIMIT;

/// Granted, and not in the log for a reason.
const UNSEEN: &[(&str, &str)] = &[
    (
        "update weir.dev/streamclusters/finalizers",
        "asked for where owner references are checked, as on OpenShift",
    ),
    ("create /services", "a server-side apply is a patch in the log"),
    ("create /configmaps", "a server-side apply is a patch in the log"),
    ("create /serviceaccounts", "a server-side apply is a patch in the log"),
    ("create policy/poddisruptionbudgets", "a server-side apply is a patch in the log"),
];

/// What a pod must not ask for there.
async fn refuses_privileges(client: &Client, namespace: &str) -> Result<()> {
    let labels = Api::<Namespace>::all(client.clone()).get(namespace).await?.labels().clone();
    let level = labels.get("pod-security.kubernetes.io/enforce").map(String::as_str);
    ensure!(level == Some("restricted"), "{namespace}: {labels:?}");
    let bold: Pod = serde_json::from_value(json!({
        "metadata": {"name": "bold"},
        "spec": {"containers": [{"name": "bold", "image": "bold", "securityContext": {"privileged": true}}]},
    }))?;
    let try_out = PostParams { dry_run: true, ..PostParams::default() };
    match Api::<Pod>::namespaced(client.clone(), namespace).create(&try_out, &bold).await {
        Err(kube::Error::Api(s)) if s.message.contains("violates PodSecurity \"restricted") => Ok(()),
        other => anyhow::bail!("{namespace} let a privileged pod in: {other:?}"),
    }
}

/// What restricted Pod Security does not ask for, and holds all the same.
fn is_modest(pod: &Pod) -> Result<()> {
    let name = pod.name_any();
    let spec = pod.spec.as_ref().context("a spec")?;
    for container in &spec.containers {
        let context = container.security_context.as_ref().context("a security context")?;
        ensure!(context.read_only_root_filesystem == Some(true), "{name} may write its image");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the test bed: make kubernetes"]
async fn nodes_and_operator_run_under_restricted_pod_security() {
    let cluster = Cluster::start("modest", json!({"replicas": 1})).await.unwrap();
    let client = &cluster.bed.client;
    for namespace in [cluster.namespace.as_str(), OPERATOR] {
        refuses_privileges(client, namespace).await.unwrap();
    }
    let node = cluster.pod(0).unwrap();
    is_modest(&node).unwrap();
    // A node has nothing to ask of Kubernetes.
    assert_eq!(node.spec.and_then(|s| s.automount_service_account_token), Some(false));
    let operator = cluster.bed.operator_pods().await.unwrap();
    assert!(!operator.is_empty());
    operator.iter().for_each(|pod| is_modest(pod).unwrap());
    cluster.end(None).await.unwrap();
}

/// Lines of a command of the bed.
async fn lines(cluster: &Cluster, args: &[&str]) -> Result<BTreeSet<String>> {
    Ok(cluster.bed.run(args).await?.lines().map(str::to_owned).collect())
}

async fn until_none(cluster: &Cluster, kind: &str, name: &str) -> Result<()> {
    let gone = || async {
        let found = cluster.kubectl(&["get", kind, "-o", "name", "-l", "weir.dev/cluster"]).await?;
        Ok((!found.lines().any(|l| l.ends_with(name))).then_some(()))
    };
    wait::until(&format!("no {kind} {name}"), LIMIT, gone).await
}

/// Everything that an operator has to do in a cluster's life, by the edits that call for it.
async fn a_life(cluster: &Cluster) -> Result<()> {
    let first = cluster.kubectl(&["get", "configmap", "-o", "name", "-l", "weir.dev/cluster"]).await?;
    let first = first.trim().rsplit('/').next().unwrap_or_default().to_owned();
    cluster.patch(json!({"spec": {"slots": 2, "nodeServices": null}})).await?;
    until_none(cluster, "service", "/t-0").await?;
    cluster
        .bed
        .apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "own", "namespace": cluster.namespace},
        }))
        .await?;
    let template = json!({"serviceAccount": {"name": "own"}});
    let config = json!({"log-level": "debug"});
    cluster.patch(json!({"spec": {"podTemplate": template, "config": config}})).await?;
    until_none(cluster, "configmap", &first).await?;
    until_none(cluster, "serviceaccount", "/t").await?;
    cluster.until_ready().await?;
    cluster.patch(json!({"spec": {"replicas": 2}})).await?;
    cluster.until_ready().await?;
    let policy = json!({"whenDeleted": "Delete"});
    cluster.patch(json!({"spec": {"replicas": 1, "deletionPolicy": policy}})).await?;
    cluster.until_ready().await?;
    until_none(cluster, "pvc", "/data-t-1").await
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn no_right_is_granted_that_is_not_used_and_none_is_missed() {
        let spec = json!({
            "replicas": 1,
            "nodeServices": {},
            "deletionPolicy": {"whenScaled": "Delete"},
        });
        let cluster = Cluster::start("rights", spec).await.unwrap();
        a_life(&cluster).await.unwrap();
        let used = lines(&cluster, &["used", OPERATOR, "weir-operator"]).await.unwrap();
        // An API server that has just started knows no roles for a moment: what it also allowed was not missed.
        let allowed = |line: &str| used.contains(&line.replace(" REFUSED", " ALLOWED"));
        let refused: Vec<_> = used.iter().filter(|l| l.ends_with(" REFUSED") && !allowed(l)).collect();
        assert!(refused.is_empty(), "refused: {refused:#?}");
        let granted = lines(&cluster, &["granted", OPERATOR_LABELS]).await.unwrap();
        assert!(granted.len() > 20, "{granted:#?}");
        let unseen = |right: &str| UNSEEN.iter().any(|(known, _why)| *known == right);
        let unused: Vec<_> = granted
            .iter()
            .filter(|right| !unseen(right) && !used.contains(&format!("{right} ALLOWED")))
            .collect();
        assert!(unused.is_empty(), "granted and not used: {unused:#?}");
        let stale: Vec<_> = UNSEEN.iter().filter(|(right, _)| !granted.contains(*right)).collect();
        assert!(stale.is_empty(), "exceptions of nothing: {stale:?}");
        cluster.end(None).await.unwrap();
    }

    /// Whatever the list of exceptions says, a pod's command, and other people's Secrets, are none of the operator's.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make kubernetes"]
    async fn what_it_must_not_do_it_may_not() {
        let cluster = Cluster::prepare("may-not").await.unwrap();
        let account = format!("--as=system:serviceaccount:{OPERATOR}:weir-operator");
        for (verb, what) in [
            ("list", "secrets"),
            ("watch", "secrets"),
            ("update", "secrets"),
            ("delete", "secrets"),
            ("create", "pods --subresource=exec"),
            ("patch", "streamclusters"),
            ("update", "streamclusters"),
            ("delete", "streamclusters"),
            ("list", "nodes"),
            ("patch", "nodes"),
            ("delete", "namespaces"),
            ("create", "roles"),
        ] {
            let what_of: Vec<&str> = what.split(' ').collect();
            let args = [&["auth", "can-i", verb], &*what_of, &[&account]].concat();
            let answer = cluster.kubectl(&args).await;
            let said = answer.unwrap_or_else(|e| format!("{e:#}"));
            assert!(!said.trim().starts_with("yes"), "{verb} {what}: {said}");
        }
        let may = cluster.kubectl(&["auth", "can-i", "create", "pods", &account]).await.unwrap();
        assert_eq!(may.trim(), "yes");
        cluster.end(None).await.unwrap();
    }
}
