//! The user's part of a pod, laid over the rendered one.
//!
//! Invariant: what a node cannot do without is not touched; an overlay that tries is refused with the field's name.

use serde_json::Value;

use super::Unbuildable;
use crate::names;

const FIELD: &str = "podTemplate.overlay";

/// Fields of the pod that only the operator sets.
const SPEC_RESERVED: &[&str] = &["hostname", "subdomain", "restartPolicy", "terminationGracePeriodSeconds"];

/// Fields of the node's container that only the operator sets.
const CONTAINER_RESERVED: &[&str] = &["command", "args", "envFrom", "image", "ports"];

/// The pod with the overlay in it.
pub(super) fn lay(pod: &mut Value, overlay: &Value) -> Result<(), Unbuildable> {
    check(overlay)?;
    merge(pod, overlay);
    Ok(())
}

fn refuse(what: &str) -> Unbuildable {
    Unbuildable { field: FIELD, why: format!("{what} is the operator's; remove it from the overlay") }
}

fn check(overlay: &Value) -> Result<(), Unbuildable> {
    let object = |v: &Value, what: &str| match v.as_object() {
        Some(map) => Ok(map.clone()),
        None => Err(Unbuildable { field: FIELD, why: format!("{what} must be an object") }),
    };
    for (key, part) in &object(overlay, "it")? {
        match key.as_str() {
            "metadata" => check_metadata(&object(part, "metadata")?)?,
            "spec" => check_spec(&object(part, "spec")?)?,
            other => {
                let why = format!("it may hold metadata and spec, not {other:?}");
                return Err(Unbuildable { field: FIELD, why });
            }
        }
    }
    Ok(())
}

fn check_metadata(meta: &serde_json::Map<String, Value>) -> Result<(), Unbuildable> {
    for (key, part) in meta {
        if key != "labels" && key != "annotations" {
            return Err(refuse(&format!("metadata.{key}")));
        }
        for name in part.as_object().into_iter().flat_map(|m| m.keys()) {
            let ours =
                name.starts_with("weir.dev/") || (key == "labels" && name.starts_with("app.kubernetes.io/"));
            if ours {
                return Err(refuse(&format!("metadata.{key}[{name:?}]")));
            }
        }
    }
    Ok(())
}

fn check_spec(spec: &serde_json::Map<String, Value>) -> Result<(), Unbuildable> {
    if let Some(key) = SPEC_RESERVED.iter().find(|key| spec.contains_key(**key)) {
        return Err(refuse(&format!("spec.{key}")));
    }
    let containers = spec.get("containers").and_then(Value::as_array);
    for container in containers.into_iter().flatten() {
        let name = container.get("name").and_then(Value::as_str);
        let Some(name) = name else {
            let why = "spec.containers: each needs a name".to_owned();
            return Err(Unbuildable { field: FIELD, why });
        };
        if name != names::CONTAINER {
            continue;
        }
        if let Some(key) = CONTAINER_RESERVED.iter().find(|key| container.get(**key).is_some()) {
            return Err(refuse(&format!("spec.containers[name={name}].{key}")));
        }
        let set = container.get("env").and_then(Value::as_array);
        for variable in set.into_iter().flatten().filter_map(|v| v.get("name").and_then(Value::as_str)) {
            if variable.starts_with("WEIR_") {
                return Err(refuse(&format!("spec.containers[name={name}].env[{variable}]")));
            }
        }
    }
    Ok(())
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
            "hostname": "demo-0", "dnsPolicy": "ClusterFirst",
            "containers": [{"name": "weir", "env": [{"name": "A", "value": "1"}], "command": ["x", "y"]}]}});
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
            (json!({"spec": {"containers": [{"image": "x"}]}}), "needs a name"),
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
