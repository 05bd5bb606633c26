//! Reads everything that a plan goes by, and changes nothing.
//!
//! Invariant: every call has a deadline; only this cluster's own objects come out, and the names that it needs and others
//! have; what is read does not grow with the namespace. A node that hangs delays a pass by half a second beyond the first
//! node that answers. Called by `controller`.

mod nodes;
mod strangers;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{
    ConfigMap, Node as KubeNode, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;

use crate::admin::{Admin, Target};
use crate::crd::StreamCluster;
use crate::names;
use crate::observed::{CredentialsView, HostView, Kind, ObjectView, Observed, PodView, Tokens};

/// A call to the API server takes this long at most.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// Hosts that are asked for at the same time.
const AT_ONCE: usize = 16;

/// Why there is no observation.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The API server refused, or is away.
    #[error("reading {what}: {}", words(error))]
    Api {
        /// What was read.
        what: &'static str,
        /// Why not.
        error: Box<kube::Error>,
    },
    /// It did not answer in time.
    #[error("reading {0}: no answer in {secs} s", secs = DEADLINE.as_secs())]
    Late(&'static str),
}

/// An observation, and whom commands go to.
#[derive(Debug)]
pub struct Seen {
    /// The values.
    pub observed: Observed,
    /// Nodes that showed the record, the leader first.
    pub targets: Vec<Target>,
    /// When the reading began.
    pub at: Instant,
}

/// Reads with a deadline.
async fn read<T>(
    what: &'static str,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ObserveError> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(ObserveError::Api { what, error: Box::new(error) }),
        Err(_elapsed) => Err(ObserveError::Late(what)),
    }
}

/// A StreamCluster as it is now.
#[derive(Debug)]
pub enum Fresh {
    /// As this operator knows it.
    Read(Box<StreamCluster>),
    /// It is not there.
    Gone,
    /// It holds what this operator does not know, by these words: another version wrote it.
    Unreadable(Box<DynamicObject>, String),
}

/// The cluster as it is now: a watch may be behind the operator's own writes.
pub async fn fresh(client: &Client, namespace: &str, name: &str) -> Result<Fresh, ObserveError> {
    let kind = ApiResource::erase::<StreamCluster>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let Some(object) = read("the StreamCluster", api.get_opt(name)).await? else { return Ok(Fresh::Gone) };
    Ok(match object.clone().try_parse() {
        Ok(cluster) => Fresh::Read(Box::new(cluster)),
        Err(e) => Fresh::Unreadable(Box::new(object), e.to_string()),
    })
}

/// Reads everything about a cluster. The turn ends when nothing more is read from the API server.
pub async fn observe(
    client: &Client,
    admin: &Admin,
    cluster: &StreamCluster,
    now_ms: i64,
    turn: Option<SemaphorePermit<'_>>,
) -> Result<Seen, ObserveError> {
    let at = Instant::now();
    let namespace = cluster.namespace().unwrap_or_default();
    let name = cluster.name_any();
    let list = ListParams::default().labels(&names::selector(&name));
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let tokens_name = names::tokens(&name);
    let (found, found_claims, tokens, credentials, objects) = futures::try_join!(
        read("pods", pods.list(&list)),
        read("volume claims", claims.list(&list)),
        read("the token Secret", secrets.get_opt(&tokens_name)),
        credentials(&secrets, cluster),
        objects(client, cluster, &list),
    )?;
    let is_ours = |p: &&Pod| owned_by(*p, cluster);
    let mut observed = Observed {
        now_ms,
        pods: found.items.iter().filter(is_ours).filter_map(|p| views::pod(cluster, p)).collect(),
        volumes: found_claims.items.iter().filter_map(|c| views::volume(cluster, c)).collect(),
        objects,
        credentials,
        ..Observed::default()
    };
    (observed.foreign_pods, observed.foreign_claims) =
        strangers::look(cluster, (&pods, &claims), &observed).await?;
    observed.hosts = hosts(client, &observed.pods).await?;
    let (tokens, token) = views::tokens(&tokens_name, tokens.as_ref());
    observed.tokens = tokens;
    drop(turn);
    let nodes = nodes::ask(admin, cluster, &observed.pods, token.as_deref()).await;
    observed.log = nodes.log;
    observed.probes = nodes.probes;
    Ok(Seen { observed, targets: nodes.targets, at })
}

/// Whether this StreamCluster, and not one of the same name before it, made an object.
fn owned_by<K: ResourceExt>(object: &K, cluster: &StreamCluster) -> bool {
    let uid = cluster.uid();
    let by = |o: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
        o.controller == Some(true) && Some(&o.uid) == uid.as_ref()
    };
    object.owner_references().iter().any(by)
}

/// The hosts that pods are on. `None` if reading hosts is not allowed.
async fn hosts(
    client: &Client,
    pods: &[PodView],
) -> Result<Option<BTreeMap<String, HostView>>, ObserveError> {
    let api: Api<KubeNode> = Api::all(client.clone());
    let named: BTreeSet<&String> = pods.iter().filter_map(|p| p.host.as_ref()).collect();
    let ask = |name: &String| {
        let (api, name) = (api.clone(), name.clone());
        async move { read("a host", api.get_opt(&name)).await.map(|host| (name, host)) }
    };
    let told: Result<Vec<_>, _> =
        stream::iter(named.into_iter().map(ask)).buffered(AT_ONCE).try_collect().await;
    match told {
        Ok(told) => {
            let there = told.into_iter().filter_map(|(name, host)| Some((name, views::host(&host?))));
            Ok(Some(there.collect()))
        }
        Err(ObserveError::Api { error, .. }) if is_forbidden(&error) => Ok(None),
        Err(e) => Err(e),
    }
}

/// What the API server said, without how the client came by it.
fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

async fn credentials(
    secrets: &Api<Secret>,
    cluster: &StreamCluster,
) -> Result<CredentialsView, ObserveError> {
    let Some(wanted) = &cluster.spec.object_store.credentials else {
        return Ok(CredentialsView::NotNeeded);
    };
    let secret = read("the object store's Secret", secrets.get_opt(&wanted.secret_name)).await?;
    Ok(views::credentials(wanted, secret.as_ref()))
}

async fn objects(
    client: &Client,
    cluster: &StreamCluster,
    list: &ListParams,
) -> Result<Vec<ObjectView>, ObserveError> {
    let name = cluster.name_any();
    let (headless, account) = (names::headless(&name), cluster.spec.pod_template.service_account.is_none());
    let mut services = vec![name.clone(), headless];
    if cluster.spec.node_services.is_some() {
        services.extend((0..cluster.spec.replicas).map(|ordinal| names::pod(&name, ordinal)));
    }
    let (services, maps, budgets, accounts) = futures::try_join!(
        of_kind::<Service>(client, cluster, list, Kind::Service, services),
        of_kind::<ConfigMap>(client, cluster, list, Kind::ConfigMap, vec![]),
        of_kind::<PodDisruptionBudget>(client, cluster, list, Kind::PodDisruptionBudget, vec![name.clone()]),
        of_kind::<ServiceAccount>(
            client,
            cluster,
            list,
            Kind::ServiceAccount,
            if account { vec![name.clone()] } else { vec![] }
        ),
    )?;
    Ok([services, maps, budgets, accounts].concat())
}

/// The objects of a kind that have the cluster's label, and those that have a name that it needs.
async fn of_kind<K>(
    client: &Client,
    cluster: &StreamCluster,
    list: &ListParams,
    kind: Kind,
    needed: Vec<String>,
) -> Result<Vec<ObjectView>, ObserveError>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    let api: Api<K> = Api::namespaced(client.clone(), &cluster.namespace().unwrap_or_default());
    let found = read("objects of the cluster", api.list(list)).await?;
    let mut all: Vec<ObjectView> = found.items.iter().map(|o| view(cluster, kind, o)).collect();
    let missing = needed.iter().filter(|n| !all.iter().any(|o| o.name == **n));
    let others = try_join_all(missing.map(|n| read("an object of the cluster", api.get_opt(n)))).await?;
    all.extend(others.iter().flatten().map(|o| view(cluster, kind, o)));
    Ok(all)
}

fn view<K: ResourceExt + Serialize>(cluster: &StreamCluster, kind: Kind, object: &K) -> ObjectView {
    let mut body = serde_json::to_value(object).unwrap_or_default();
    if let Some(meta) = body.get_mut("metadata").and_then(|m| m.as_object_mut()) {
        meta.remove("managedFields");
    }
    ObjectView {
        kind,
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        ours: owned_by(object, cluster),
        body,
    }
}

/// The tokens' state, for tests of other parts.
pub fn tokens_view(name: &str, secret: Option<&Secret>) -> Tokens {
    views::tokens(name, secret).0
}
