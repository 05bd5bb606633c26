//! Services: one for clients, a headless one for names, one per node where asked.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec as KubeServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde_json::Value;

use super::{config, json, metadata};
use crate::crd::{ServiceSpec, StreamCluster};
use crate::names;

fn port(name: &str, number: u16) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(number),
        target_port: Some(IntOrString::String(name.to_owned())),
        protocol: Some("TCP".to_owned()),
        // Service meshes go by it. Peers and health are plain HTTP too.
        app_protocol: Some("http".to_owned()),
        ..ServicePort::default()
    }
}

/// Gives pods their names, ready or not: nodes must find each other before they can be ready.
pub fn headless(cluster: &StreamCluster) -> Value {
    let name = cluster.name_any();
    let families = &cluster.spec.service.ip_families;
    json(&Service {
        metadata: metadata(cluster, names::headless(&name)),
        spec: Some(KubeServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some([(names::CLUSTER.to_owned(), name)].into()),
            ports: Some(vec![
                port("http", names::HTTP_PORT),
                port("peer", names::PEER_PORT),
                port("admin", names::ADMIN_PORT),
            ]),
            ip_family_policy: cluster.spec.service.ip_family_policy.clone(),
            ip_families: (!families.is_empty()).then(|| families.clone()),
            ..KubeServiceSpec::default()
        }),
        status: None,
    })
}

/// Where clients connect first: any node that is ready.
pub fn client(cluster: &StreamCluster) -> Value {
    let name = cluster.name_any();
    let selector = [(names::CLUSTER.to_owned(), name.clone())].into();
    facing(cluster, name, &cluster.spec.service, selector, None)
}

/// One node's, for clients outside. Its annotations may name the node, for a DNS name of its own.
pub fn of_node(cluster: &StreamCluster, ordinal: u32) -> Option<Value> {
    let spec = cluster.spec.node_services.as_ref()?;
    let name = cluster.name_any();
    let selector =
        [(names::CLUSTER.to_owned(), name.clone()), (names::ORDINAL.to_owned(), ordinal.to_string())];
    Some(facing(cluster, names::pod(&name, ordinal), spec, selector.into(), Some(ordinal)))
}

fn facing(
    cluster: &StreamCluster,
    name: String,
    spec: &ServiceSpec,
    selector: BTreeMap<String, String>,
    one_node: Option<u32>,
) -> Value {
    let ServiceSpec { service_type, annotations, ip_family_policy, ip_families } = spec;
    let mut meta = metadata(cluster, name);
    if !annotations.is_empty() {
        let text = |text: &String| match one_node {
            Some(ordinal) => config::of_node(text, cluster, ordinal),
            None => text.clone(),
        };
        meta.annotations = Some(annotations.iter().map(|(key, value)| (key.clone(), text(value))).collect());
    }
    json(&Service {
        metadata: meta,
        spec: Some(KubeServiceSpec {
            type_: Some(service_type.as_str().to_owned()),
            selector: Some(selector),
            ports: Some(vec![port("http", names::HTTP_PORT)]),
            ip_family_policy: ip_family_policy.clone(),
            ip_families: (!ip_families.is_empty()).then(|| ip_families.clone()),
            // A redirect leads to this node, and it alone knows whether it can answer.
            publish_not_ready_addresses: one_node.map(|_| true),
            ..KubeServiceSpec::default()
        }),
        status: None,
    })
}
