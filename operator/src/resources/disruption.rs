//! At most one pod is evicted at a time, and none while another is down.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde_json::Value;

use super::{json, metadata};
use crate::crd::StreamCluster;
use crate::names;

/// The disruption budget. Kubernetes counts the pods wanted by the StreamCluster's scale subresource.
pub fn budget(cluster: &StreamCluster) -> Value {
    let name = cluster.name_any();
    let labels = [(names::CLUSTER.to_owned(), name.clone())];
    json(&PodDisruptionBudget {
        metadata: metadata(cluster, name),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector { match_labels: Some(labels.into()), ..LabelSelector::default() }),
            // An unready pod may hold the vote that the others need.
            unhealthy_pod_eviction_policy: Some("IfHealthyBudget".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    })
}
