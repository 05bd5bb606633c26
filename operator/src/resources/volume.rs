//! Volume claims: each node's copy of the metadata log.
//!
//! Invariant: a volume has no owner unless `deletionPolicy.whenDeleted` is Delete; then Kubernetes' garbage collector
//! deletes it with its StreamCluster. So no finalizer is needed, and nothing hangs where the operator is gone.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{metadata, owner};
use crate::crd::{Policy, StreamCluster};
use crate::names;

/// A node's claim.
pub fn claim(cluster: &StreamCluster, ordinal: u32, index: u32) -> Value {
    let name = cluster.name_any();
    let mut meta = metadata(cluster, names::volume(&name, ordinal, index));
    meta.labels.get_or_insert_default().insert(names::ORDINAL.to_owned(), ordinal.to_string());
    let uid = cluster.uid().unwrap_or_default();
    let ours = [(names::RESOURCE_UID.to_owned(), uid), (names::APPLIED.to_owned(), asked(cluster))];
    meta.annotations = Some(ours.into());
    if cluster.spec.deletion_policy.when_deleted == Policy::Retain {
        meta.owner_references = None;
    }
    let volume = &cluster.spec.metadata.volume;
    let size = [("storage".to_owned(), Quantity(volume.size.clone()))];
    super::json(&PersistentVolumeClaim {
        metadata: meta,
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: volume.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(size.into()),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    })
}

/// A digest of what a claim asks for: one that was never bound and asks for something else is of no use.
pub fn asked(cluster: &StreamCluster) -> String {
    names::digest(super::json(&cluster.spec.metadata.volume).to_string().as_bytes())
}

/// Marks a claim never to be used again.
pub fn abandon(why: &str) -> Value {
    json!({"metadata": {"annotations": {names::ABANDONED: why}}})
}

/// Makes a claim of a deleted StreamCluster this one's.
pub fn adopt(cluster: &StreamCluster) -> Value {
    json!({"metadata": {"annotations": {names::RESOURCE_UID: cluster.uid().unwrap_or_default()}}})
}

/// Lets the garbage collector have a claim with its StreamCluster, or not.
pub fn ownership(cluster: &StreamCluster, owned: bool) -> Value {
    let owners = if owned { super::json(&vec![owner(cluster)]) } else { Value::Null };
    json!({"metadata": {"ownerReferences": owners}})
}

/// Asks for another size.
pub fn resize(size: &str) -> Value {
    json!({"spec": {"resources": {"requests": {"storage": size}}}})
}

/// A quantity in whole units; `None` if it is none. Fractions are rounded up, as Kubernetes does.
pub fn quantity(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let exponent = |s: &str| s.strip_prefix(['e', 'E'])?.parse::<i32>().ok();
    let factor = match suffix {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        other => 10f64.powi(exponent(other)?),
    };
    let value = (number * factor).ceil();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range by the check")]
    (value.is_finite() && (0.0..1.8e19).contains(&value)).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_is_read_in_every_notation() {
        for (text, bytes) in [
            ("1", 1),
            ("2Gi", 2 << 30),
            ("1.5Gi", 3 << 29),
            ("500M", 500_000_000),
            ("1e3", 1000),
            ("2E", 2_000_000_000_000_000_000),
            ("1500m", 2),
        ] {
            assert_eq!(quantity(text), Some(bytes), "{text}");
        }
        for bad in ["", "Gi", "1GiB", "-1", "1e", "x"] {
            assert_eq!(quantity(bad), None, "{bad}");
        }
    }
}
