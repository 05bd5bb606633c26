//! The nodes' settings, as the environment variables of `weir serve`.
//!
//! Invariant: what is the same at every node stands in a ConfigMap that is named by its content and never changed, so that
//! a container that restarts in the midst of a roll comes back with what its pod was made for. What differs between
//! nodes, or changes without a restart, is in the pod (see `pod`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::Value;

use super::{json, metadata};
use crate::crd::{ObjectStore, StreamCluster};
use crate::names;

/// Seconds of the grace period that a node leaves to the kubelet and the hook before SIGTERM.
const GRACE_MARGIN: u32 = 8;

/// Nodes that are named as seeds whatever the cluster's size is, so that growing restarts nobody.
const SEEDS: u32 = 3;

/// The domain of the pods' names.
pub fn domain(cluster: &StreamCluster) -> String {
    let suffix = match &cluster.spec.routing.cluster_domain {
        Some(domain) => format!(".{domain}"),
        None => String::new(),
    };
    let namespace = cluster.namespace().unwrap_or_default();
    format!("{}.{namespace}.svc{suffix}", names::headless(&cluster.name_any()))
}

/// Nodes listen on IPv4 addresses only.
pub(super) fn only_ipv4(cluster: &StreamCluster) -> bool {
    matches!(cluster.spec.service.ip_families.as_slice(), [only] if only == "IPv4")
}

/// Settings that all nodes share.
pub fn settings(cluster: &StreamCluster) -> BTreeMap<String, String> {
    let spec = &cluster.spec;
    let ObjectStore { bucket, prefix, endpoint, region, credentials: _, adopt_cluster_uid } =
        &spec.object_store;
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (key, value) in &spec.config {
        all.insert(format!("WEIR_{}", key.to_ascii_uppercase().replace('-', "_")), value.clone());
    }
    let mut set = |name: &str, value: String| drop(all.insert(name.to_owned(), value));
    let any = if only_ipv4(cluster) { "0.0.0.0" } else { "[::]" };
    set("WEIR_LISTEN", format!("{any}:{}", names::HTTP_PORT));
    set("WEIR_PEER_LISTEN", format!("{any}:{}", names::PEER_PORT));
    set("WEIR_ADMIN_LISTEN", format!("{any}:{}", names::ADMIN_PORT));
    set("WEIR_DATA_DIR", names::DATA_PATH.to_owned());
    set("WEIR_ADMIN_TOKEN_FILE", format!("{}/tokens", names::TOKENS_PATH));
    set("WEIR_STORE", store_url(bucket, prefix.as_deref()));
    set("WEIR_JOIN", seeds(cluster));
    set("WEIR_CLUSTER_IDENTITY", cluster.uid().unwrap_or_default());
    set("WEIR_METADATA_VOTERS", spec.metadata.voters.to_string());
    set("WEIR_ROUTING", spec.routing.mode.as_str().to_owned());
    let grace = spec.pod_template.termination_grace_period_seconds.saturating_sub(GRACE_MARGIN).max(5);
    set("WEIR_SHUTDOWN_GRACE", format!("{grace}s"));
    if let Some(url) = &spec.routing.public_url {
        set("WEIR_PUBLIC_URL", url.clone());
    }
    if let Some(uid) = adopt_cluster_uid {
        set("WEIR_ADOPT_CLUSTER_UID", uid.clone());
    }
    if let Some(endpoint) = endpoint {
        set("AWS_ENDPOINT_URL", endpoint.clone());
        if endpoint.starts_with("http://") {
            set("AWS_ALLOW_HTTP", "true".to_owned());
        }
    }
    let region = region.clone().or_else(|| endpoint.as_ref().map(|_| "us-east-1".to_owned()));
    if let Some(region) = region {
        set("AWS_REGION", region);
    }
    all
}

fn store_url(bucket: &str, prefix: Option<&str>) -> String {
    match prefix {
        Some(prefix) => format!("s3://{bucket}/{prefix}"),
        None => format!("s3://{bucket}"),
    }
}

/// The first nodes by name, and all of them by the headless Service.
fn seeds(cluster: &StreamCluster) -> String {
    let (name, domain) = (cluster.name_any(), domain(cluster));
    let first = (0..SEEDS).map(|n| format!("{}.{domain}:{}", names::pod(&name, n), names::PEER_PORT));
    let all = std::iter::once(format!("{domain}:{}", names::PEER_PORT));
    first.chain(all).collect::<Vec<_>>().join(",")
}

/// The ConfigMap's name: by content.
pub fn map_name(cluster: &StreamCluster) -> String {
    let digest = names::digest(json(&settings(cluster)).to_string().as_bytes());
    format!("{}-config-{}", cluster.name_any(), &digest[..8])
}

/// The ConfigMap.
pub fn config_map(cluster: &StreamCluster) -> Value {
    json(&ConfigMap {
        metadata: metadata(cluster, map_name(cluster)),
        data: Some(settings(cluster)),
        immutable: Some(true),
        ..ConfigMap::default()
    })
}

/// A text of the user's with what it says of this node put in; other braces stay as they are.
pub(super) fn of_node(text: &str, cluster: &StreamCluster, ordinal: u32) -> String {
    let name = cluster.name_any();
    text.replace("{node}", &names::pod(&name, ordinal))
        .replace("{ordinal}", &ordinal.to_string())
        .replace("{cluster}", &name)
        .replace("{service}", &names::headless(&name))
        .replace("{namespace}", &cluster.namespace().unwrap_or_default())
}

/// Where clients reach a node.
pub fn advertised_url(cluster: &StreamCluster, ordinal: u32) -> String {
    let own =
        cluster.spec.nodes.iter().find(|n| n.ordinal == ordinal).and_then(|n| n.advertised_url.as_ref());
    if let Some(url) = own {
        return url.clone();
    }
    let routing = &cluster.spec.routing;
    let url = of_node(&routing.advertised_url, cluster, ordinal);
    // The default template ends in .svc; where names must be complete, so must this one be.
    match (&routing.cluster_domain, url.strip_suffix(&format!(".svc:{}", names::HTTP_PORT))) {
        (Some(domain), Some(host)) => format!("{host}.svc.{domain}:{}", names::HTTP_PORT),
        _ => url,
    }
}

/// Where other nodes reach a node.
pub fn peer_address(cluster: &StreamCluster, ordinal: u32) -> String {
    format!("{}.{}:{}", names::pod(&cluster.name_any(), ordinal), domain(cluster), names::PEER_PORT)
}
