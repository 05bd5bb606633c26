//! The pods' identity in Kubernetes. They have no rights there; a cloud may give it access to the bucket.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt;
use serde_json::Value;

use super::{json, metadata};
use crate::crd::StreamCluster;

/// The pods' service account, unless the user has one.
pub fn service_account(cluster: &StreamCluster) -> Option<Value> {
    let template = &cluster.spec.pod_template;
    if template.service_account.is_some() {
        return None;
    }
    let mut meta = metadata(cluster, cluster.name_any());
    if !template.service_account_annotations.is_empty() {
        meta.annotations = Some(template.service_account_annotations.clone());
    }
    Some(json(&ServiceAccount {
        metadata: meta,
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }))
}
