//! Rendered objects, as files. A change here is a change of what an operator upgrade does to running clusters: the
//! templates' digests must stay what they are, or every pod restarts. `GOLDEN=write` writes the files anew.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir_operator::crd::StreamCluster;
use weir_operator::names;
use weir_operator::resources::pod::{self, PodInput};
use weir_operator::resources::{account, config, disruption, services, volume};

use crate::fixtures::{cluster, full, minimal};

fn pod_of(c: &StreamCluster, ordinal: u32) -> Value {
    let image = c.spec.image.clone().unwrap_or_else(|| "weir:default".to_owned());
    let annotations: BTreeMap<String, String> = [
        (names::SLOTS.to_owned(), "1".to_owned()),
        (names::BOOTSTRAP.to_owned(), "false".to_owned()),
        (names::TEMPLATE.to_owned(), pod::template(c, ordinal, &image)),
    ]
    .into();
    let claim = names::volume("demo", ordinal, 0);
    pod::pod(c, &PodInput { ordinal, image: &image, claim: &claim, annotations }).unwrap()
}

fn rendered(c: &StreamCluster) -> Value {
    json!({
        "pod-0": pod_of(c, 0),
        "pod-3": pod_of(c, 3),
        "claim": volume::claim(c, 1, 0),
        "config": config::config_map(c),
        "headless": services::headless(c),
        "client": services::client(c),
        "of-node": services::of_node(c, 2),
        "budget": disruption::budget(c),
        "account": account::service_account(c),
    })
}

#[test]
fn rendered_objects_are_as_they_were() {
    for (name, value) in [("minimal", minimal()), ("full", full())] {
        let path = format!("{}/tests/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let now = serde_json::to_string_pretty(&rendered(&cluster(&value))).unwrap() + "\n";
        #[allow(clippy::disallowed_methods, reason = "a test's switch")]
        if std::env::var("GOLDEN").as_deref() == Ok("write") {
            std::fs::write(&path, &now).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        for (i, (was, is)) in golden.lines().zip(now.lines()).enumerate() {
            assert_eq!(was, is, "{path}:{}", i + 1);
        }
        assert_eq!(golden.len(), now.len(), "{path}");
    }
}

#[test]
fn the_templates_digest_changes_with_what_needs_a_restart_and_with_nothing_else() {
    use crate::fixtures::with;
    let digest = |v: &Value| pod::template(&cluster(v), 1, "weir:1");
    let base = digest(&full());
    for (pointer, field) in [
        ("/spec/replicas", json!(7)),
        ("/spec/slots", json!(9)),
        ("/spec/nodes/0/slots", json!(3)),
        ("/spec/nodes/0/advertisedUrl", json!("http://elsewhere")),
        ("/spec/metadata/volume/size", json!("20Gi")),
        ("/spec/update/strategy", json!("Rolling")),
        ("/spec/deletionPolicy/whenDeleted", json!("Retain")),
        ("/spec/service/annotations", json!({"a": "b"})),
        ("/spec/nodeServices", Value::Null),
        ("/spec/podTemplate/serviceAccountAnnotations", json!({"role": "x"})),
        ("/metadata/annotations", json!({"other": "x"})),
    ] {
        assert_eq!(digest(&with(full(), pointer, field)), base, "{pointer} restarts pods");
    }
    for (pointer, field) in [
        ("/spec/imagePullPolicy", json!("Never")),
        ("/spec/objectStore/endpoint", json!("http://other:9000")),
        ("/spec/objectStore/credentials/secretName", json!("other")),
        ("/spec/metadata/voters", json!(3)),
        ("/spec/routing/mode", json!("redirect")),
        ("/spec/config/cache-bytes", json!("2GiB")),
        ("/spec/podTemplate/resources/requests/cpu", json!("1")),
        ("/spec/podTemplate/overlay/spec/runtimeClassName", json!("gvisor")),
        ("/spec/podTemplate/terminationGracePeriodSeconds", json!(90)),
        ("/spec/service/ipFamilies", json!(["IPv4"])),
        ("/metadata/annotations", json!({names::RESTARTED_AT: "2026-11-30"})),
    ] {
        assert_ne!(digest(&with(full(), pointer, field)), base, "{pointer} restarts nothing");
    }
    assert_ne!(pod::template(&cluster(&full()), 1, "weir:2"), base);
    let own = with(full(), "/spec/nodes/1/advertisedUrl", json!("http://three"));
    assert_eq!(digest(&own), base);
    assert_ne!(pod::template(&cluster(&own), 3, "weir:1"), pod::template(&cluster(&full()), 3, "weir:1"));
}

/// What pods of released operators carry. A line here is never changed: another digest restarts every pod of such a cluster.
/// If a field was added, leave it out of the digest where it is not set; then these hold.
#[test]
fn the_templates_digest_is_what_it_was_in_every_operator_before() {
    let digest = |v: &Value| pod::template(&cluster(v), 1, "weir:1");
    assert_eq!(digest(&minimal()), "0af9a049d2df7a09");
    assert_eq!(digest(&full()), "3bb69e9a82ae5247");
}

#[test]
fn a_pod_keeps_to_the_restricted_profile_and_starts_a_node_with_what_it_needs() {
    let pod = pod_of(&cluster(&minimal()), 0);
    let spec = &pod["spec"];
    let container = &spec["containers"][0];
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!((&spec["hostname"], &spec["subdomain"]), (&json!("demo-0"), &json!("demo-nodes")));
    let env: BTreeMap<&str, &Value> =
        container["env"].as_array().unwrap().iter().map(|e| (e["name"].as_str().unwrap(), e)).collect();
    let path = |name: &str| env[name]["valueFrom"]["fieldRef"]["fieldPath"].as_str().unwrap().to_owned();
    assert_eq!(path("WEIR_INCARNATION"), "metadata.uid");
    assert_eq!(path("WEIR_NODE_ID"), "metadata.name");
    assert_eq!(path("WEIR_SLOTS"), "metadata.annotations['weir.dev/slots']");
    assert_eq!(path("WEIR_BOOTSTRAP"), "metadata.annotations['weir.dev/bootstrap']");
    assert_eq!(env["WEIR_ADVERTISE_URL"]["value"], "http://demo-0.demo-nodes.streams.svc:4437");
    assert_eq!(env["WEIR_PEER_ADVERTISE"]["value"], "demo-0.demo-nodes.streams.svc:4438");
    let config = config::config_map(&cluster(&minimal()));
    assert_eq!(container["envFrom"][0]["configMapRef"]["name"], config["metadata"]["name"]);
    assert_eq!(config["data"]["WEIR_STORE"], "s3://records");
    assert_eq!(config["data"]["WEIR_CLUSTER_IDENTITY"], crate::fixtures::UID);
    assert!(config["data"].get("AWS_REGION").is_none(), "workload identity brings its own");
    assert!(config["data"]["WEIR_JOIN"].as_str().unwrap().ends_with("demo-nodes.streams.svc:4438"));
}

#[test]
fn a_full_domain_is_in_every_name() {
    let value = crate::fixtures::with(minimal(), "/spec/routing", json!({"clusterDomain": "k8s.example"}));
    let c = cluster(&value);
    assert_eq!(config::advertised_url(&c, 1), "http://demo-1.demo-nodes.streams.svc.k8s.example:4437");
    assert_eq!(config::peer_address(&c, 1), "demo-1.demo-nodes.streams.svc.k8s.example:4438");
}

#[test]
fn annotations_of_a_nodes_service_name_the_node_and_those_of_the_common_one_stay() {
    use crate::fixtures::with;
    let given = json!({
        "dns": "{node}.example.org,n{ordinal}.{cluster}.{namespace}",
        "of-the-cloud": "{\"ports\": {\"http\": \"{other}\"}}",
        "{node}": "a key is no text",
    });
    let of_node = with(minimal(), "/spec/nodeServices", json!({"annotations": given.clone()}));
    let c = cluster(&with(of_node, "/spec/service", json!({"annotations": given.clone()})));
    let said = |service: Value| service["metadata"]["annotations"].clone();
    let seven = said(services::of_node(&c, 7).unwrap());
    assert_eq!(seven["dns"], "demo-7.example.org,n7.demo.streams");
    assert_eq!(seven["of-the-cloud"], given["of-the-cloud"]);
    assert_eq!(seven["{node}"], given["{node}"]);
    assert_eq!(said(services::of_node(&c, 12).unwrap())["dns"], "demo-12.example.org,n12.demo.streams");
    assert_eq!(said(services::client(&c)), given);
}
