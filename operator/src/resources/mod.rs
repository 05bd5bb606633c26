//! Builders of Kubernetes objects.
//!
//! Invariant: pure; each object holds only fields that the operator means to own; the same input gives the same bytes, so
//! that nothing is written at rest. Called by `plan`.

pub mod account;
pub mod config;
pub mod disruption;
mod overlay;
pub mod pod;
pub mod services;
pub mod volume;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::Value;

use crate::crd::StreamCluster;
use crate::names;

/// Why an object cannot be built: the spec, in the user's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Unbuildable {
    /// The field of the spec.
    pub field: &'static str,
    /// What is wrong with it.
    pub why: String,
}

/// Name, namespace, labels and owner of an object of this cluster.
fn metadata(cluster: &StreamCluster, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: cluster.namespace(),
        labels: Some(names::labels(&cluster.name_any())),
        owner_references: Some(vec![owner(cluster)]),
        ..ObjectMeta::default()
    }
}

/// The garbage collector deletes what has this once the StreamCluster is gone.
pub fn owner(cluster: &StreamCluster) -> OwnerReference {
    OwnerReference {
        api_version: StreamCluster::api_version(&()).into_owned(),
        kind: StreamCluster::kind(&()).into_owned(),
        name: cluster.name_any(),
        uid: cluster.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// As it is sent.
fn json<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).expect("objects built from JSON values and texts serialize")
}

/// A part of a pod that the user gave as it would stand there.
fn parse<T: serde::de::DeserializeOwned>(field: &'static str, value: &Value) -> Result<T, Unbuildable> {
    serde_json::from_value(value.clone()).map_err(|e| Unbuildable { field, why: e.to_string() })
}
