//! Actions on Kubernetes objects.

use std::fs::File;
use std::io::Read as _;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Failure, in_time};
use crate::action::Action;
use crate::crd::StreamCluster;
use crate::names;
use crate::observed::Kind;
use crate::resources::owner;

/// Whether it was written; false: it was so already, or the object is another now.
pub(super) async fn act(client: &Client, cluster: &StreamCluster, action: &Action) -> Result<bool, Failure> {
    let at = At { client, cluster };
    match action {
        Action::Apply { kind, name, exists, body } => match kind {
            Kind::ServiceAccount => at.apply::<ServiceAccount>(name, *exists, body).await,
            Kind::Service => at.apply::<Service>(name, *exists, body).await,
            Kind::ConfigMap => at.apply::<ConfigMap>(name, *exists, body).await,
            Kind::PodDisruptionBudget => at.apply::<PodDisruptionBudget>(name, *exists, body).await,
        },
        Action::Prune { kind, name, uid } => match kind {
            Kind::ServiceAccount => at.delete::<ServiceAccount>(name, uid, false).await,
            Kind::Service => at.delete::<Service>(name, uid, false).await,
            Kind::ConfigMap => at.delete::<ConfigMap>(name, uid, false).await,
            Kind::PodDisruptionBudget => at.delete::<PodDisruptionBudget>(name, uid, false).await,
        },
        Action::CreateTokens => at.create_tokens().await,
        // Somebody else's may have come by that name: no pod is made before it is seen whose it is.
        Action::CreateVolume { name, body } => match at.create::<PersistentVolumeClaim>(name, body).await? {
            true => Ok(true),
            false => Err(Failure {
                what: format!("creating PersistentVolumeClaim {name}"),
                why: "it is there already".to_owned(),
                passing: true,
            }),
        },
        Action::PatchVolume { name, uid, patch, gives_up: _, why: _ } => {
            at.patch::<PersistentVolumeClaim>(name, uid, patch.clone()).await
        }
        Action::DeleteVolume { name, uid, version, why: _ } => {
            at.delete_at::<PersistentVolumeClaim>(name, uid, version.as_deref(), false).await
        }
        Action::CreatePod { name, body } => at.create::<Pod>(name, body).await,
        Action::AnnotatePod { name, uid, annotations } => {
            at.patch::<Pod>(name, uid, json!({"metadata": {"annotations": annotations}})).await
        }
        Action::DeletePod { name, uid, force, why: _ } => at.delete::<Pod>(name, uid, *force).await,
        Action::SetSlots { .. }
        | Action::Pin { .. }
        | Action::CancelDrain { .. }
        | Action::Drain { .. }
        | Action::EndSession { .. }
        | Action::RemoveNode { .. } => Ok(false),
    }
}

trait Object:
    Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + Serialize
    + DeserializeOwned
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned
{
}

struct At<'a> {
    client: &'a Client,
    cluster: &'a StreamCluster,
}

impl At<'_> {
    fn api<K: Object>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.cluster.namespace().unwrap_or_default())
    }

    async fn apply<K: Object>(&self, name: &str, exists: bool, body: &Value) -> Result<bool, Failure> {
        let what = format!("applying {} {name}", K::kind(&()));
        let api = self.api::<K>();
        if !exists && let Some(found) = in_time(&what, api.get_metadata_opt(name)).await? {
            let uid = self.cluster.uid();
            let ours = found.owner_references().iter().any(|o| Some(&o.uid) == uid.as_ref());
            if !ours {
                let why = "it is there and belongs to somebody else; the cluster needs that name".to_owned();
                return Err(Failure { what, why, passing: false });
            }
        }
        let mut body = body.clone();
        body["apiVersion"] = json!(K::api_version(&()));
        body["kind"] = json!(K::kind(&()));
        let params = PatchParams::apply(names::MANAGER).force();
        in_time(&what, async { api.patch(name, &params, &Patch::Apply(&body)).await.map(drop) }).await?;
        Ok(true)
    }

    async fn create<K: Object>(&self, name: &str, body: &Value) -> Result<bool, Failure> {
        let what = format!("creating {} {name}", K::kind(&()));
        let odd = |e: serde_json::Error| Failure { what: what.clone(), why: e.to_string(), passing: false };
        let object: K = serde_json::from_value(body.clone()).map_err(odd)?;
        let params = PostParams { field_manager: Some(names::MANAGER.to_owned()), ..PostParams::default() };
        in_time(&what, async { unless_there(self.api::<K>().create(&params, &object).await) }).await
    }

    async fn patch<K: Object>(&self, name: &str, uid: &str, mut patch: Value) -> Result<bool, Failure> {
        let what = format!("changing {} {name}", K::kind(&()));
        // A patch of another object of that name is refused.
        patch["metadata"]["uid"] = json!(uid);
        let params = PatchParams { field_manager: Some(names::MANAGER.to_owned()), ..PatchParams::default() };
        let call = async {
            match self.api::<K>().patch(name, &params, &Patch::Merge(&patch)).await {
                Ok(_) => Ok(true),
                Err(kube::Error::Api(status)) if status.code == 404 || is_another(&status) => Ok(false),
                Err(e) => Err(e),
            }
        };
        in_time(&what, call).await
    }

    async fn delete<K: Object>(&self, name: &str, uid: &str, force: bool) -> Result<bool, Failure> {
        self.delete_at::<K>(name, uid, None, force).await
    }

    async fn delete_at<K: Object>(
        &self,
        name: &str,
        uid: &str,
        version: Option<&str>,
        force: bool,
    ) -> Result<bool, Failure> {
        let what = format!("deleting {} {name}", K::kind(&()));
        let params = DeleteParams {
            grace_period_seconds: force.then_some(0),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: version.map(str::to_owned),
            }),
            ..DeleteParams::default()
        };
        let call = async {
            match self.api::<K>().delete(name, &params).await {
                Ok(_) => Ok(true),
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
                Err(e) => Err(e),
            }
        };
        in_time(&what, call).await
    }

    async fn create_tokens(&self) -> Result<bool, Failure> {
        let name = names::tokens(&self.cluster.name_any());
        let what = format!("creating Secret {name}");
        let token = token().map_err(|e| Failure { what: what.clone(), why: e.to_string(), passing: true })?;
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: self.cluster.namespace(),
                labels: Some(names::labels(&self.cluster.name_any())),
                owner_references: Some(vec![owner(self.cluster)]),
                ..ObjectMeta::default()
            },
            data: Some([("tokens".to_owned(), ByteString(format!("{token}\n").into_bytes()))].into()),
            ..Secret::default()
        };
        let params = PostParams { field_manager: Some(names::MANAGER.to_owned()), ..PostParams::default() };
        in_time(&what, async { unless_there(self.api::<Secret>().create(&params, &secret).await) }).await
    }
}

/// The object of that name has another UID by now, which a patch may not change.
fn is_another(status: &kube::core::Status) -> bool {
    let fields = status.details.iter().flat_map(|d| &d.causes).map(|c| c.field.as_str());
    status.code == 422 && fields.into_iter().any(|f| f == "metadata.uid")
}

/// What is there already is seen at the next pass, as whatever it is.
fn unless_there<K>(created: Result<K, kube::Error>) -> Result<bool, kube::Error> {
    match created {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(false),
        Err(e) => Err(e),
    }
}

/// 256 random bits, in hexadecimal.
fn token() -> std::io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}
