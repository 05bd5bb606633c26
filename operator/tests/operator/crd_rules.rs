//! What the schema refuses, and what it says. `tests/kubernetes` asks the same of a real API server.

use kube::core::cel::Validator;
use serde_json::{Value, json};
use weir_operator::crd::{self, CONFIG_KEYS};

use crate::fixtures::{full, minimal, with};
use crate::refused::{frozen, refused};

fn schema() -> Value {
    let crd = serde_json::to_value(crd::definition()).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Types, bounds, choices and required fields, as the API server checks them before the rules.
fn structural(schema: &Value, value: &Value, path: &str, errors: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    let mut say = |text: String| errors.push(format!("{path}: {text}"));
    let fits = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    if !fits {
        return say(format!("must be of type {}", schema["type"].as_str().unwrap_or_default()));
    }
    if let (Some(n), Some(min)) = (value.as_f64(), schema["minimum"].as_f64())
        && n < min
    {
        say(format!("should be greater than or equal to {min}"));
    }
    if let (Some(n), Some(max)) = (value.as_f64(), schema["maximum"].as_f64())
        && n > max
    {
        say(format!("should be less than or equal to {max}"));
    }
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as u64;
        if schema["minLength"].as_u64().is_some_and(|min| length < min) {
            say(format!("should be at least {} chars long", schema["minLength"]));
        }
        if schema["maxLength"].as_u64().is_some_and(|max| length > max) {
            say(format!("may not be more than {} bytes", schema["maxLength"]));
        }
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        let all: Vec<String> = choices.iter().filter(|c| !c.is_null()).map(ToString::to_string).collect();
        say(format!("supported values: {}", all.join(", ")));
    }
    if let Some(items) = value.as_array() {
        if schema["maxItems"].as_u64().is_some_and(|max| items.len() as u64 > max) {
            say(format!("must have at most {} items", schema["maxItems"]));
        }
        if let Some(keys) = schema["x-kubernetes-list-map-keys"].as_array() {
            let key =
                |item: &Value| keys.iter().map(|k| item[k.as_str().unwrap()].to_string()).collect::<Vec<_>>();
            for (i, item) in items.iter().enumerate() {
                if items[..i].iter().any(|other| key(other) == key(item)) {
                    say(format!("Duplicate value: {}", key(item).join(", ")));
                }
            }
        }
        for (i, item) in items.iter().enumerate() {
            structural(&schema["items"], item, &format!("{path}[{i}]"), errors);
        }
    }
    let Some(map) = value.as_object() else { return };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !map.contains_key(name) {
            errors.push(format!("{path}.{name}: Required value"));
        }
    }
    for (name, field) in map {
        let inner = match &schema["properties"][name] {
            Value::Null => &schema["additionalProperties"],
            inner => inner,
        };
        if !inner.is_null() {
            structural(inner, field, &format!("{path}.{name}"), errors);
        }
    }
}

/// As the API server would: the structure first, then the rules, old state beside new.
fn verdict(new: &Value, old: Option<&Value>) -> Result<(), String> {
    let schema = schema();
    let mut errors = Vec::new();
    structural(&schema["properties"]["spec"], &new["spec"], "spec", &mut errors);
    if errors.is_empty()
        && let Err(broken) = Validator::new().validate(&schema, new, old)
    {
        errors.extend(broken.into_vec().into_iter().map(|e| e.to_string()));
    }
    if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
}

#[test]
fn what_a_user_may_write_is_taken() {
    for (name, value) in [("minimal", minimal()), ("full", full())] {
        assert_eq!(verdict(&value, None), Ok(()), "{name}");
        assert_eq!(verdict(&value, Some(&value)), Ok(()), "{name}");
        let _typed = crate::fixtures::cluster(&value);
    }
    for key in CONFIG_KEYS {
        assert_eq!(verdict(&with(minimal(), "/spec/config", json!({*key: "1"})), None), Ok(()), "{key}");
    }
}

#[test]
fn what_cannot_run_is_refused_with_what_is_allowed() {
    let table = refused();
    assert!(table.len() >= 30);
    for (pointer, field, expected) in table {
        let value = with(minimal(), pointer, field.clone());
        let why = verdict(&value, None).expect_err(&format!("{pointer} = {field} was taken"));
        assert!(why.contains(expected), "{pointer} = {field}: {why:?} does not say {expected:?}");
    }
}

#[test]
fn what_would_leave_records_behind_cannot_be_changed() {
    for (prefix, pointer, field, expected) in frozen() {
        let old = with(minimal(), "/spec/objectStore/prefix", prefix);
        let new = with(old.clone(), pointer, field.clone());
        let why = verdict(&new, Some(&old)).expect_err(&format!("{pointer} = {field} was taken"));
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn who_has_taken_a_cluster_over_goes_on_saying_so() {
    let uid = "0123456789abcdef0123456789abcdef";
    let other = json!("f".repeat(32));
    let adopting = with(minimal(), "/spec/objectStore/adoptClusterUid", json!(uid));
    let adopted = with(adopting.clone(), "/status", json!({"clusterUid": uid}));
    for (field, what) in [(Value::Null, "removed"), (other.clone(), "changed")] {
        let new = with(adopted.clone(), "/spec/objectStore/adoptClusterUid", field.clone());
        let why = verdict(&new, Some(&adopted)).expect_err(what);
        assert!(why.contains("must stay as it is once the cluster has been taken over"), "{why}");
        // A wrong one, with which nothing came up yet, can be put right.
        let new = with(adopting.clone(), "/spec/objectStore/adoptClusterUid", field);
        assert_eq!(verdict(&new, Some(&adopting)), Ok(()), "{what}");
    }
    assert_eq!(verdict(&with(adopted.clone(), "/spec/replicas", json!(5)), Some(&adopted)), Ok(()));
    let mut own = with(minimal(), "/status", json!({"clusterUid": uid}));
    assert_eq!(verdict(&own, Some(&own)), Ok(()));
    own["status"]["message"] = json!("of the operator");
    assert_eq!(verdict(&own, Some(&own)), Ok(()));
}

#[test]
fn all_else_may_be_changed() {
    let mut new = full();
    new["spec"]["objectStore"]["bucket"] = json!("records");
    let old = with(minimal(), "/spec/objectStore/prefix", json!("prod/eu"));
    assert_eq!(verdict(&new, Some(&old)), Ok(()));
    assert_eq!(verdict(&old, Some(&new)), Ok(()));
}

#[test]
fn the_generated_file_is_up_to_date_and_small() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../crds/streamcluster.yaml");
    let file = std::fs::read_to_string(path).unwrap();
    assert!(file == crd::yaml(), "run: cargo run -p weir-operator --bin crdgen > crds/streamcluster.yaml");
    assert!(file.len() < 64 << 10, "{} bytes", file.len());
}

#[test]
fn every_field_of_the_spec_says_its_default_its_limits_and_whether_it_restarts_pods() {
    /// Their values are named, which is the limit.
    const NAMED: &[&str] = &["ipFamilyPolicy", "ipFamilies", "adoptClusterUid"];
    fn limits(name: &str, field: &Value) -> Vec<String> {
        let keys =
            ["maxLength", "maxItems", "maxProperties", "maximum"].iter().filter(|_| !NAMED.contains(&name));
        keys.filter_map(|k| field[*k].as_f64()).map(|n| format!("{n:.0}")).collect()
    }
    fn walk(schema: &Value, path: &str, restarts_said: bool, bad: &mut Vec<String>) {
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            let text = inner["description"].as_str().unwrap_or_default();
            if text.len() < 8 {
                bad.push(format!("{path}: no description"));
            }
            let said = restarts_said
                || text.to_lowercase().replace('\n', " ").contains("restart")
                || text.contains("Cannot be changed");
            let leaf = inner["properties"].is_null() && inner["items"]["properties"].is_null();
            if leaf && !said {
                bad.push(format!("{path}: does not say whether it restarts pods"));
            }
            let required = schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
            if leaf && !required && !text.to_lowercase().contains("default") {
                bad.push(format!("{path}: does not say its default"));
            }
            for limit in limits(name, inner).iter().filter(|limit| !text.contains(*limit)) {
                bad.push(format!("{path}: does not say its limit of {limit}"));
            }
            walk(inner, &path, said, bad);
            walk(&inner["items"], &path, said, bad);
        }
    }
    let mut bad = Vec::new();
    walk(&schema()["properties"]["spec"], "spec", false, &mut bad);
    bad.retain(|b| !b.contains("nodes.ordinal"));
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn every_setting_of_a_node_is_a_field_or_allowed_in_config() {
    let cli = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md")).unwrap();
    let serve = cli.split("### weir serve").nth(1).unwrap().split("### ").next().unwrap();
    let flags = serve
        .lines()
        .filter_map(|l| l.trim().strip_prefix("--"))
        .map(|l| l.split([' ', '[', '=']).next().unwrap_or_default());
    let ours = [
        "config",
        "node-id",
        "data-dir",
        "slots",
        "incarnation",
        "listen",
        "peer-listen",
        "admin-listen",
        "advertise-url",
        "peer-advertise",
        "public-url",
        "join",
        "bootstrap",
        "cluster-size",
        "metadata-voters",
        "cluster-identity",
        "adopt-cluster-uid",
        "routing",
        "store",
        "shutdown-grace",
        "admin-token-file",
    ];
    let mut seen = 0;
    for flag in flags.filter(|f| f.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')) {
        assert!(
            ours.contains(&flag) || CONFIG_KEYS.contains(&flag),
            "--{flag} is neither a field nor in config"
        );
        seen += usize::from(CONFIG_KEYS.contains(&flag));
    }
    assert!(seen >= CONFIG_KEYS.len(), "config allows settings that do not exist");
}
