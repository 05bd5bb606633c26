//! Says of a StreamCluster that it cannot be read.

use kube::Resource as _;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Hands, in_time};
use crate::action::Note;
use crate::crd::StreamCluster;
use crate::{names, status};

impl Hands {
    /// In an event and the status, once for each change of what is wrong, and in the metrics.
    pub async fn tell_unreadable(&self, object: &DynamicObject, why: &str, now_ms: i64) {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let text = format!("weir-operator {} cannot read this: {why}", env!("CARGO_PKG_VERSION"));
        let had = object.data.get("status").unwrap_or(&Value::Null);
        let (wanted, said) = status::unreadable(had, object.metadata.generation, &text, now_ms);
        self.metrics.forget((&namespace, &name));
        self.metrics.conditions((&namespace, &name), &said);
        if *had == wanted {
            return;
        }
        let kind = ApiResource::erase::<StreamCluster>(&());
        let note = Note { warning: true, reason: "Unreadable", text };
        self.publish(&object.object_ref(&kind), &note).await;
        let body = json!({
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "resourceVersion": object.resource_version()},
            "status": wanted,
        });
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &kind);
        let params = PatchParams::apply(names::MANAGER).force();
        let call = async { api.patch_status(&name, &params, &Patch::Apply(&body)).await.map(drop) };
        if let Err(failure) = in_time("writing the status", call).await {
            tracing::warn!(cluster = name, %failure, "the status keeps what it said before");
        }
    }
}
