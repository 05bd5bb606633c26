//! The user's part of a pod, laid over the rendered one.
//!
//! Invariant: what a node cannot do without is not touched; an overlay that tries is refused with the field's name.

use serde_json::Value;

use super::Unbuildable;
use crate::names;

const FIELD: &str = "podTemplate.overlay";

/// Fields of the pod that only the operator sets.
const SPEC_RESERVED: &[&str] =
    &["hostname", "subdomain", "restartPolicy", "terminationGracePeriodSeconds", "enableServiceLinks"];

/// Fields of the node's container that only the operator sets.
const CONTAINER_RESERVED: &[&str] = &["command", "args", "envFrom", "image", "ports", "restartPolicy"];

/// Volumes of the pod that a node cannot do without, and where they are.
const VOLUMES: &[(&str, &str)] = &[(names::DATA, names::DATA_PATH), (names::TOKENS, names::TOKENS_PATH)];

/// Environment variables that `spec.objectStore` sets; those that begin with WEIR_ are its settings.
const STORE_VARIABLES: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_ALLOW_HTTP",
];

type Object = serde_json::Map<String, Value>;

/// The pod with the overlay in it.
pub(super) fn lay(pod: &mut Value, overlay: &Value) -> Result<(), Unbuildable> {
    check(overlay)?;
    merge(pod, overlay);
    Ok(())
}

fn refuse(what: &str) -> Unbuildable {
    Unbuildable { field: FIELD, why: format!("{what} is the operator's; remove it from the overlay") }
}

fn object<'a>(v: &'a Value, what: &str) -> Result<&'a Object, Unbuildable> {
    // Null would remove what the operator has put there.
    v.as_object().ok_or_else(|| Unbuildable { field: FIELD, why: format!("{what} must be an object") })
}

/// A list that is merged by name: any other would replace the operator's.
fn named<'a>(v: &'a Value, what: &str) -> Result<Vec<(&'a str, &'a Value)>, Unbuildable> {
    let must = |how: &str| Unbuildable { field: FIELD, why: format!("{what}{how}") };
    let all = v.as_array().filter(|a| !a.is_empty());
    let all = all.ok_or_else(|| must(" must be a list with something in it, or be left out"))?;
    all.iter().map(|v| name_of(v).map(|name| (name, v)).ok_or_else(|| must(": each needs a name"))).collect()
}

fn check(overlay: &Value) -> Result<(), Unbuildable> {
    for (key, part) in object(overlay, "it")? {
        match key.as_str() {
            "metadata" => check_metadata(object(part, "metadata")?)?,
            "spec" => check_spec(object(part, "spec")?)?,
            other => {
                let why = format!("it may hold metadata and spec, not {other:?}");
                return Err(Unbuildable { field: FIELD, why });
            }
        }
    }
    Ok(())
}

fn check_metadata(meta: &Object) -> Result<(), Unbuildable> {
    for (key, part) in meta {
        if key != "labels" && key != "annotations" {
            return Err(refuse(&format!("metadata.{key}")));
        }
        for name in object(part, &format!("metadata.{key}"))?.keys() {
            let ours =
                name.starts_with("weir.dev/") || (key == "labels" && name.starts_with("app.kubernetes.io/"));
            if ours {
                return Err(refuse(&format!("metadata.{key}[{name:?}]")));
            }
        }
    }
    Ok(())
}

fn check_spec(spec: &Object) -> Result<(), Unbuildable> {
    if let Some(key) = SPEC_RESERVED.iter().find(|key| spec.contains_key(**key)) {
        return Err(refuse(&format!("spec.{key}")));
    }
    if let Some(volumes) = spec.get("volumes") {
        for (name, _) in named(volumes, "spec.volumes")? {
            if VOLUMES.iter().any(|(ours, _)| *ours == name) {
                return Err(refuse(&format!("spec.volumes[name={name}]")));
            }
        }
    }
    if let Some(containers) = spec.get("containers") {
        for (name, container) in named(containers, "spec.containers")? {
            if name == names::CONTAINER {
                check_container(container, &format!("spec.containers[name={name}]"))?;
            }
        }
    }
    Ok(())
}

/// The node's own.
fn check_container(container: &Value, at: &str) -> Result<(), Unbuildable> {
    if let Some(key) = CONTAINER_RESERVED.iter().find(|key| container.get(**key).is_some()) {
        return Err(refuse(&format!("{at}.{key}")));
    }
    if let Some(variables) = container.get("env") {
        for (name, _) in named(variables, &format!("{at}.env"))? {
            if name.starts_with("WEIR_") || STORE_VARIABLES.contains(&name) {
                return Err(refuse(&format!("{at}.env[{name}]")));
            }
        }
    }
    if let Some(mounts) = container.get("volumeMounts") {
        for (name, mount) in named(mounts, &format!("{at}.volumeMounts"))? {
            let path = mount.get("mountPath").and_then(Value::as_str).unwrap_or_default();
            if VOLUMES.iter().any(|(ours, theirs)| *ours == name || is_within(path, theirs)) {
                return Err(refuse(&format!("{at}.volumeMounts[name={name}]")));
            }
        }
    }
    Ok(())
}

/// Whether something at `path` would stand in `folder`, or above it.
fn is_within(path: &str, folder: &str) -> bool {
    fn parts(path: &str) -> impl Iterator<Item = &str> {
        path.split('/').filter(|part| !part.is_empty() && *part != ".")
    }
    path.starts_with('/') && parts(path).zip(parts(folder)).all(|(a, b)| a == b)
}

fn name_of(v: &Value) -> Option<&str> {
    v.get("name").and_then(Value::as_str)
}

/// Objects are merged, lists whose entries have names by name, null removes, all else replaces.
fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                match value {
                    Value::Null => drop(base.remove(key)),
                    value => merge(base.entry(key).or_insert(Value::Null), value),
                }
            }
        }
        (Value::Array(base), Value::Array(over))
            if !over.is_empty() && over.iter().all(|v| name_of(v).is_some()) =>
        {
            for value in over {
                match base.iter_mut().find(|b| name_of(b) == name_of(value)) {
                    Some(found) => merge(found, value),
                    None => base.push(value.clone()),
                }
            }
        }
        (base, over) => *base = over.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn laid(overlay: Value) -> Result<Value, String> {
        let mut pod = json!({"metadata": {"labels": {"a": "1"}}, "spec": {
            "hostname": "demo-0", "dnsPolicy": "ClusterFirst", "volumes": [{"name": "data"}],
            "containers": [{"name": "weir", "env": [{"name": "A", "value": "1"}], "command": ["x", "y"],
                "volumeMounts": [{"name": "data", "mountPath": "/var/lib/weir"}]}]}});
        lay(&mut pod, &overlay).map(|()| pod).map_err(|e| e.to_string())
    }

    #[test]
    fn objects_are_merged_and_named_lists_by_name() {
        let pod = laid(json!({"metadata": {"labels": {"b": "2"}}, "spec": {"dnsPolicy": null, "runtimeClassName": "kata",
            "containers": [{"name": "weir", "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]},
                {"name": "proxy", "image": "proxy:1"}]}}))
        .unwrap();
        assert_eq!(pod["metadata"]["labels"], json!({"a": "1", "b": "2"}));
        assert_eq!(pod["spec"]["runtimeClassName"], "kata");
        assert!(pod["spec"].get("dnsPolicy").is_none());
        assert_eq!(pod["spec"]["containers"][0]["command"], json!(["x", "y"]));
        assert_eq!(
            pod["spec"]["containers"][0]["env"],
            json!([{"name": "A", "value": "2"}, {"name": "B", "value": "3"}])
        );
        assert_eq!(pod["spec"]["containers"][1]["name"], "proxy");
    }

    /// An overlay of the node's container.
    fn weir(mut container: Value) -> Value {
        container["name"] = json!("weir");
        json!({"spec": {"containers": [container]}})
    }

    fn mount(name: &str, path: &str) -> Value {
        json!({"volumeMounts": [{"name": name, "mountPath": path}]})
    }

    #[test]
    fn volumes_and_mounts_beside_the_operators_are_taken() {
        let mut overlay = weir(mount("scratch", "/var/lib/weird"));
        overlay["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
        let pod = laid(overlay).unwrap();
        assert_eq!(pod["spec"]["volumes"][0]["name"], "data");
        assert_eq!(pod["spec"]["volumes"][1]["name"], "scratch");
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][1]["mountPath"], "/var/lib/weird");
    }

    #[test]
    fn what_the_schema_refuses_in_env_is_refused_in_an_overlay_too() {
        let schema = crate::crd::yaml();
        for name in STORE_VARIABLES {
            assert!(schema.contains(&format!("'{name}'")), "{name}");
        }
    }

    #[test]
    fn what_a_node_cannot_do_without_is_refused_by_name() {
        for (overlay, named) in [
            (json!([]), "must be an object"),
            (json!({"status": {}}), "metadata and spec"),
            (json!({"metadata": {"name": "x"}}), "metadata.name"),
            (json!({"metadata": {"annotations": {"weir.dev/slots": "9"}}}), "weir.dev/slots"),
            (json!({"metadata": {"labels": {"app.kubernetes.io/name": "x"}}}), "app.kubernetes.io/name"),
            (json!({"spec": {"hostname": "x"}}), "spec.hostname"),
            (json!({"spec": {"restartPolicy": "Never"}}), "spec.restartPolicy"),
            (json!({"spec": {"enableServiceLinks": null}}), "spec.enableServiceLinks"),
            (json!({"spec": {"containers": [{"image": "x"}]}}), "needs a name"),
            // What would take away all of the operator's.
            (json!({"metadata": null}), "metadata must be an object"),
            (json!({"metadata": {"annotations": null}}), "metadata.annotations must be an object"),
            (json!({"metadata": {"labels": null}}), "metadata.labels must be an object"),
            (json!({"metadata": {"labels": []}}), "metadata.labels must be an object"),
            (json!({"spec": null}), "spec must be an object"),
            (json!({"spec": {"containers": null}}), "spec.containers must be a list"),
            (json!({"spec": {"containers": []}}), "spec.containers must be a list"),
            (json!({"spec": {"volumes": null}}), "spec.volumes must be a list"),
            (json!({"spec": {"volumes": []}}), "spec.volumes must be a list"),
            (json!({"spec": {"volumes": [{"emptyDir": {}}]}}), "spec.volumes: each needs a name"),
            // An empty data directory at each start would be another member of the metadata log each time.
            (json!({"spec": {"volumes": [{"name": "data", "emptyDir": {}}]}}), "spec.volumes[name=data]"),
            (json!({"spec": {"volumes": [{"name": "tokens", "emptyDir": {}}]}}), "spec.volumes[name=tokens]"),
            (weir(json!({"env": null})), ".env must be a list"),
            (weir(json!({"env": [{"value": "x"}]})), ".env: each needs a name"),
            (weir(json!({"env": [{"name": "AWS_REGION", "value": "x"}]})), "env[AWS_REGION]"),
            (weir(json!({"restartPolicy": "Never"})), "containers[name=weir].restartPolicy"),
            (weir(json!({"volumeMounts": null})), ".volumeMounts must be a list"),
            (weir(json!({"volumeMounts": []})), ".volumeMounts must be a list"),
            (weir(mount("data", "/elsewhere")), "volumeMounts[name=data]"),
            (weir(mount("mine", "/var/lib/weir")), "volumeMounts[name=mine]"),
            (weir(mount("mine", "/var/lib/weir/raft")), "volumeMounts[name=mine]"),
            (weir(mount("mine", "/var//lib/")), "volumeMounts[name=mine]"),
            (weir(mount("mine", "/etc/weir/tokens/x")), "volumeMounts[name=mine]"),
            (
                json!({"spec": {"containers": [{"name": "weir", "args": ["x"]}]}}),
                "containers[name=weir].args",
            ),
            (
                json!({"spec": {"containers": [{"name": "weir", "image": "x"}]}}),
                "containers[name=weir].image",
            ),
            (json!({"spec": {"containers": [{"name": "weir", "env": [{"name": "WEIR_X"}]}]}}), "env[WEIR_X]"),
        ] {
            let why = laid(overlay).unwrap_err();
            assert!(why.contains(named), "{why}");
        }
    }
}
