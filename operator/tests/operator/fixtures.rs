//! StreamClusters to test with.

use serde_json::{Value, json};
use weir_operator::crd::StreamCluster;

pub(crate) const UID: &str = "5f1c0000-0000-4000-8000-000000000001";

/// The least that a user can write.
pub(crate) fn minimal() -> Value {
    json!({
        "apiVersion": "weir.dev/v1alpha1",
        "kind": "StreamCluster",
        "metadata": {"name": "demo", "namespace": "streams", "uid": UID, "generation": 1},
        "spec": {"objectStore": {"bucket": "records"}},
    })
}

/// Most of what a user can write.
pub(crate) fn full() -> Value {
    let mut all = minimal();
    all["spec"] = json!({
        "replicas": 5,
        "slots": 2,
        "nodes": [{"ordinal": 0, "slots": 8, "advertisedUrl": "http://weir-0.example.org:8080"}, {"ordinal": 3, "drain": true}],
        "image": "registry.example/weir:1.2.3",
        "imagePullPolicy": "Always",
        "imagePullSecrets": [{"name": "registry"}],
        "objectStore": {
            "bucket": "records", "prefix": "prod/eu", "endpoint": "http://minio.storage:9000", "region": "eu-central-1",
            "credentials": {"secretName": "s3", "accessKeyIdKey": "id", "secretAccessKeyKey": "key", "sessionTokenKey": "token"},
            "adoptClusterUid": "0123456789abcdef0123456789abcdef",
        },
        "metadata": {"voters": 5, "volume": {"size": "10Gi", "storageClassName": "fast"}},
        "routing": {"mode": "forward", "advertisedUrl": "http://{node}.{service}.{namespace}.svc:4437",
            "publicUrl": "https://streams.example.org", "clusterDomain": "k8s.example"},
        "service": {"type": "LoadBalancer", "annotations": {"lb": "internal"}, "ipFamilyPolicy": "PreferDualStack",
            "ipFamilies": ["IPv6", "IPv4"]},
        "nodeServices": {"type": "NodePort"},
        "config": {"cache-bytes": "1GiB", "log-format": "json"},
        "podTemplate": {
            "labels": {"team": "data"}, "annotations": {"note": "x"},
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
            "env": [{"name": "RUST_BACKTRACE", "value": "1"}],
            "nodeSelector": {"disk": "ssd"},
            "affinity": {"nodeAffinity": {}},
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
            "priorityClassName": "high", "serviceAccount": {"name": "bucket-reader"},
            "terminationGracePeriodSeconds": 120, "securityContext": {"runAsNonRoot": true},
            "overlay": {"spec": {"runtimeClassName": "kata", "containers": [{"name": "proxy", "image": "proxy:1"}]}},
        },
        "update": {"strategy": "OnDelete", "drainTimeoutSeconds": 60},
        "deletionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
    });
    all
}

pub(crate) fn cluster(value: &Value) -> StreamCluster {
    serde_json::from_value(value.clone()).expect("a fixture is a StreamCluster")
}

/// `value` with the field at a JSON pointer set, its parents made where they are missing; null removes it.
pub(crate) fn with(mut value: Value, pointer: &str, field: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer has a slash");
    let mut at = &mut value;
    for key in parent.split('/').skip(1) {
        at = match at {
            Value::Array(items) => &mut items[key.parse::<usize>().expect("an index")],
            other => &mut other[key],
        };
    }
    match (at, field) {
        (Value::Object(map), Value::Null) => drop(map.remove(name)),
        (Value::Array(items), field) => items[name.parse::<usize>().expect("an index")] = field,
        (other, field) => other[name] = field,
    }
    value
}
