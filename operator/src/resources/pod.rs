//! A node's pod, and the template that tells when it is outdated.
//!
//! Invariant: [`template`] is a digest of fields of the spec, never of what is rendered from them, so that an operator that
//! renders otherwise restarts nobody; golden files (`tests/golden`) show when rendering changes. Weight, founding and cluster
//! size are annotations that the container reads when it starts: changing them restarts nothing.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, ConfigMapEnvSource, Container, ContainerPort, EnvFromSource, EnvVar,
    EnvVarSource, ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler, LocalObjectReference,
    ObjectFieldSelector, PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext, PodSpec, Probe,
    ResourceRequirements, SeccompProfile, SecretKeySelector, SecretVolumeSource, SecurityContext,
    SleepAction, Toleration, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Unbuildable, config, metadata, overlay, parse};
use crate::crd::StreamCluster;
use crate::names;

/// User and group of a node.
const USER: i64 = 65_532;

/// How long a node serves on before SIGTERM, so that Services have stopped sending clients.
const PAUSE_BEFORE_STOP: i64 = 3;

/// What is said of one pod beside the spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodInput<'a> {
    /// Which node.
    pub ordinal: u32,
    /// The node's image.
    pub image: &'a str,
    /// The claim of its data.
    pub claim: &'a str,
    /// Annotations that are read when the container starts, and the template's.
    pub annotations: BTreeMap<String, String>,
}

/// A digest of everything that a restart is needed for.
pub fn template(cluster: &StreamCluster, ordinal: u32, image: &str) -> String {
    let spec = &cluster.spec;
    let own = spec.nodes.iter().find(|n| n.ordinal == ordinal);
    // A field that is new here must be left out where it is not set, or every pod restarts.
    let inputs = json!({
        "image": image,
        "imagePullPolicy": spec.image_pull_policy,
        "imagePullSecrets": spec.image_pull_secrets,
        "config": spec.config,
        "objectStore": spec.object_store,
        "voters": spec.metadata.voters,
        "routing": spec.routing,
        "onlyIpv4": config::only_ipv4(cluster),
        "advertisedUrl": own.and_then(|n| n.advertised_url.as_ref()),
        "podTemplate": without_live_fields(cluster),
        "restartedAt": cluster.annotations().get(names::RESTARTED_AT),
    });
    names::digest(inputs.to_string().as_bytes())
}

/// The pod template but for what takes effect without a restart.
fn without_live_fields(cluster: &StreamCluster) -> Value {
    let mut template = super::json(&cluster.spec.pod_template);
    if let Some(map) = template.as_object_mut() {
        map.remove("serviceAccountAnnotations");
    }
    template
}

/// The pod.
pub fn pod(cluster: &StreamCluster, input: &PodInput<'_>) -> Result<Value, Unbuildable> {
    let name = names::pod(&cluster.name_any(), input.ordinal);
    let template = &cluster.spec.pod_template;
    let mut meta = metadata(cluster, name.clone());
    let labels = meta.labels.get_or_insert_default();
    labels.extend(template.labels.clone());
    labels.insert(names::ORDINAL.to_owned(), input.ordinal.to_string());
    let mut annotations = template.annotations.clone();
    annotations.extend(input.annotations.clone());
    meta.annotations = Some(annotations);
    let pod = Pod { metadata: meta, spec: Some(spec(cluster, name, input)?), status: None };
    let mut pod = super::json(&pod);
    if let Some(over) = &template.overlay {
        overlay::lay(&mut pod, over)?;
        // Only what is a pod still is sent.
        let checked: Pod = parse("podTemplate.overlay", &pod)?;
        pod = super::json(&checked);
    }
    Ok(pod)
}

fn spec(cluster: &StreamCluster, name: String, input: &PodInput<'_>) -> Result<PodSpec, Unbuildable> {
    let template = &cluster.spec.pod_template;
    let cluster_name = cluster.name_any();
    let affinity: Option<Affinity> =
        template.affinity.as_ref().map(|v| parse("podTemplate.affinity", v)).transpose()?;
    let tolerations: Vec<Toleration> =
        template.tolerations.iter().map(|v| parse("podTemplate.tolerations", v)).collect::<Result<_, _>>()?;
    let security: PodSecurityContext = match &template.security_context {
        Some(given) => parse("podTemplate.securityContext", given)?,
        None => default_security(),
    };
    let account = template.service_account.as_ref().map_or_else(|| cluster_name.clone(), |a| a.name.clone());
    let pull: Vec<_> = cluster
        .spec
        .image_pull_secrets
        .iter()
        .map(|s| LocalObjectReference { name: s.name.clone() })
        .collect();
    Ok(PodSpec {
        hostname: Some(name),
        subdomain: Some(names::headless(&cluster_name)),
        restart_policy: Some("Always".to_owned()),
        termination_grace_period_seconds: Some(i64::from(template.termination_grace_period_seconds)),
        service_account_name: Some(account),
        automount_service_account_token: Some(false),
        // A Service called weir would set WEIR_PORT.
        enable_service_links: Some(false),
        security_context: Some(security),
        image_pull_secrets: (!pull.is_empty()).then_some(pull),
        node_selector: (!template.node_selector.is_empty()).then(|| template.node_selector.clone()),
        affinity,
        tolerations: (!tolerations.is_empty()).then_some(tolerations),
        topology_spread_constraints: Some(spread(cluster)?),
        priority_class_name: template.priority_class_name.clone(),
        containers: vec![container(cluster, input)?],
        volumes: Some(volumes(cluster, input.claim)),
        ..PodSpec::default()
    })
}

fn default_security() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(USER),
        run_as_group: Some(USER),
        fs_group: Some(USER),
        // A volume of many files is not walked at each start.
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..SeccompProfile::default()
        }),
        ..PodSecurityContext::default()
    }
}

/// Over hosts and zones, where possible: a cluster on one host still starts.
fn spread(cluster: &StreamCluster) -> Result<Vec<TopologySpreadConstraint>, Unbuildable> {
    if let Some(given) = &cluster.spec.pod_template.topology_spread_constraints {
        return given.iter().map(|v| parse("podTemplate.topologySpreadConstraints", v)).collect();
    }
    let selector = [(names::CLUSTER.to_owned(), cluster.name_any())];
    let over = |key: &str| TopologySpreadConstraint {
        max_skew: 1,
        topology_key: key.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(LabelSelector {
            match_labels: Some(selector.clone().into()),
            ..LabelSelector::default()
        }),
        ..TopologySpreadConstraint::default()
    };
    Ok(vec![over("kubernetes.io/hostname"), over("topology.kubernetes.io/zone")])
}

fn container(cluster: &StreamCluster, input: &PodInput<'_>) -> Result<Container, Unbuildable> {
    let template = &cluster.spec.pod_template;
    let resources: Option<ResourceRequirements> = match &template.resources {
        Some(given) => Some(parse("podTemplate.resources", &super::json(given))?),
        None => None,
    };
    let port = |name: &str, number: u16| ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(number),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let mount = |name: &str, path: &str, read_only: bool| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    };
    Ok(Container {
        name: names::CONTAINER.to_owned(),
        image: Some(input.image.to_owned()),
        image_pull_policy: Some(cluster.spec.image_pull_policy.as_str().to_owned()),
        args: Some(vec!["serve".to_owned()]),
        env_from: Some(vec![EnvFromSource {
            config_map_ref: Some(ConfigMapEnvSource { name: config::map_name(cluster), optional: None }),
            ..EnvFromSource::default()
        }]),
        env: Some(environment(cluster, input.ordinal)?),
        ports: Some(vec![
            port("http", names::HTTP_PORT),
            port("peer", names::PEER_PORT),
            port("admin", names::ADMIN_PORT),
        ]),
        resources,
        volume_mounts: Some(vec![
            mount(names::DATA, names::DATA_PATH, false),
            mount(names::TOKENS, names::TOKENS_PATH, true),
        ]),
        // A recovery of a large backlog, or a join over a slow link, is no reason to be killed: an hour to start.
        startup_probe: Some(probe("/livez", 5, 720)),
        // The process answers, or it is restarted; whether it may serve is the other probe's matter.
        liveness_probe: Some(probe("/livez", 10, 6)),
        readiness_probe: Some(probe("/readyz", 2, 2)),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                sleep: Some(SleepAction { seconds: PAUSE_BEFORE_STOP }),
                exec: None::<ExecAction>,
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..SecurityContext::default()
        }),
        // Why a node stopped stands in the pod's status, and from there in the cluster's.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    })
}

fn probe(path: &str, period: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("admin".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(5),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

fn environment(cluster: &StreamCluster, ordinal: u32) -> Result<Vec<EnvVar>, Unbuildable> {
    let plain =
        |name: &str, value: String| EnvVar { name: name.to_owned(), value: Some(value), value_from: None };
    let field = |name: &str, path: &str| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { field_path: path.to_owned(), api_version: None }),
            ..EnvVarSource::default()
        }),
    };
    let annotation = |name: &str, key: &str| field(name, &format!("metadata.annotations['{key}']"));
    let mut all = vec![
        field("WEIR_NODE_ID", "metadata.name"),
        field("WEIR_INCARNATION", "metadata.uid"),
        annotation("WEIR_SLOTS", names::SLOTS),
        annotation("WEIR_BOOTSTRAP", names::BOOTSTRAP),
        annotation("WEIR_CLUSTER_SIZE", names::CLUSTER_SIZE),
        plain("WEIR_ADVERTISE_URL", config::advertised_url(cluster, ordinal)),
        plain("WEIR_PEER_ADVERTISE", config::peer_address(cluster, ordinal)),
    ];
    if let Some(credentials) = &cluster.spec.object_store.credentials {
        for (name, key) in credentials.variables() {
            all.push(EnvVar {
                name: name.to_owned(),
                value: None,
                value_from: Some(EnvVarSource {
                    secret_key_ref: Some(SecretKeySelector {
                        name: credentials.secret_name.clone(),
                        key: key.to_owned(),
                        optional: None,
                    }),
                    ..EnvVarSource::default()
                }),
            });
        }
    }
    for given in &cluster.spec.pod_template.env {
        let value_from =
            given.value_from.as_ref().map(|v| parse("podTemplate.env[].valueFrom", v)).transpose()?;
        all.push(EnvVar { name: given.name.clone(), value: given.value.clone(), value_from });
    }
    Ok(all)
}

fn volumes(cluster: &StreamCluster, claim: &str) -> Vec<Volume> {
    vec![
        Volume {
            name: names::DATA.to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim.to_owned(),
                read_only: None,
            }),
            ..Volume::default()
        },
        Volume {
            name: names::TOKENS.to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(names::tokens(&cluster.name_any())),
                default_mode: Some(0o440),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        },
    ]
}
