//! What has a name that a node would get and is not this cluster's.
//!
//! Invariant: asked for by name, and only where a node has no pod: a namespace may hold other clusters by the thousand.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams, PartialObjectMeta};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::{AT_ONCE, ObserveError, owned_by, read};
use crate::crd::StreamCluster;
use crate::names;
use crate::observed::{Observed, Stranger};

/// Names that are tried for one volume in one pass.
const TRIED: u32 = 16;

type Strangers = (BTreeMap<String, Stranger>, BTreeSet<String>);

/// Pods and claims of those names.
pub(super) async fn look(
    cluster: &StreamCluster,
    (pods, claims): (&Api<Pod>, &Api<PersistentVolumeClaim>),
    seen: &Observed,
) -> Result<Strangers, ObserveError> {
    let name = cluster.name_any();
    let look = |ordinal: u32| {
        let name = &name;
        async move {
            let pod = names::pod(name, ordinal);
            let found = by_name(pods, "a pod of a name that is needed", &pod).await?;
            let stranger = found.and_then(|p| stranger(cluster, &p)).map(|s| (pod, s));
            let mut taken = Vec::new();
            let own = seen.volumes.iter().filter(|v| v.ordinal == ordinal).map(|v| v.index);
            let first = own.max().map_or(0, |max| max + 1);
            for index in first..first + TRIED {
                let claim = names::volume(name, ordinal, index);
                match by_name(claims, "a volume claim of a name that is needed", &claim).await? {
                    Some(_) => taken.push(claim),
                    None => break,
                }
            }
            Ok::<_, ObserveError>((stranger, taken))
        }
    };
    let bare = (0..cluster.spec.replicas).filter(|n| !seen.pods.iter().any(|p| p.ordinal == *n));
    let all: Vec<_> = stream::iter(bare.map(look)).buffered(AT_ONCE).try_collect().await?;
    let (strangers, taken): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    Ok((strangers.into_iter().flatten().collect(), taken.into_iter().flatten().collect()))
}

/// One object of a kind. By a list, for which the operator has the right anyway.
async fn by_name<K>(
    api: &Api<K>,
    what: &'static str,
    name: &str,
) -> Result<Option<PartialObjectMeta<K>>, ObserveError>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let only = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = read(what, api.list_metadata(&only)).await?;
    Ok(found.items.into_iter().next())
}

fn stranger(cluster: &StreamCluster, pod: &PartialObjectMeta<Pod>) -> Option<Stranger> {
    let former = |o: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
        o.kind == StreamCluster::kind(&()) && o.name == cluster.name_any()
    };
    match owned_by(pod, cluster) {
        // It was made this moment, by another operator.
        true if pod.labels().get(names::CLUSTER) == Some(&cluster.name_any()) => None,
        _ if pod.metadata.deletion_timestamp.is_some() => Some(Stranger::Leaving),
        true => Some(Stranger::Unlabelled),
        false if pod.owner_references().iter().any(former) => Some(Stranger::Leaving),
        false => Some(Stranger::Foreign),
    }
}
