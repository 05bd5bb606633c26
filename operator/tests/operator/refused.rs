//! Invalid resources, and what the refusal must say: for the rules in memory, and for a real API server (`tests/kubernetes`).

use serde_json::{Value, json};

/// Pointer, value, and what the message must say.
pub(crate) fn refused() -> Vec<(&'static str, Value, &'static str)> {
    let long = "x".repeat(600);
    vec![
        ("/metadata/name", json!("Demo"), "1 to 40 of a-z, 0-9 and '-'"),
        ("/metadata/name", json!("0demo"), "begin with a letter"),
        ("/metadata/name", json!("d".repeat(41)), "1 to 40"),
        ("/metadata/name", json!("a.b"), "1 to 40 of a-z"),
        ("/spec/replicas", json!(0), "greater than or equal to 1"),
        ("/spec/replicas", json!(101), "less than or equal to 100"),
        ("/spec/replicas", json!("three"), "type integer"),
        ("/spec/slots", json!(-1), "greater than or equal to 0"),
        ("/spec/slots", json!(1_000_001), "less than or equal to 1000000"),
        ("/spec/nodes", json!([{"ordinal": 1}, {"ordinal": 1}]), "Duplicate value: "),
        ("/spec/nodes", json!([{"slots": 1}]), "ordinal: Required value"),
        ("/spec/nodes", json!([{"ordinal": 100}]), "less than or equal to 99"),
        ("/spec/nodes", json!([{"ordinal": 1, "slots": 2_000_000}]), "less than or equal to 1000000"),
        ("/spec/nodes", json!([{"ordinal": 1, "advertisedUrl": "weir-1:80"}]), "http(s)://HOST[:PORT]"),
        (
            "/spec/nodes",
            json!([{"ordinal": 1, "advertisedUrl": "http://{node}"}]),
            "without path and placeholders",
        ),
        ("/spec/image", json!("weir latest"), "without spaces"),
        ("/spec/imagePullPolicy", json!("Sometimes"), "\"Always\", \"IfNotPresent\", \"Never\""),
        ("/spec/objectStore", Value::Null, "objectStore: Required value"),
        ("/spec/objectStore", json!({}), "bucket: Required value"),
        ("/spec/objectStore/bucket", json!("My_Bucket"), "3 to 63 of a-z, 0-9, '.' and '-'"),
        ("/spec/objectStore/bucket", json!("ab"), "at least 3"),
        ("/spec/objectStore/prefix", json!("/a"), "none at its ends"),
        ("/spec/objectStore/prefix", json!("a//b"), "single slashes"),
        ("/spec/objectStore/prefix", json!("a b"), "A-Z, a-z, 0-9"),
        ("/spec/objectStore/endpoint", json!("minio:9000"), "http(s)://HOST[:PORT]"),
        ("/spec/objectStore/endpoint", json!("http://minio/path"), "without path"),
        ("/spec/objectStore/endpoint", json!("http://user@minio"), "credentials"),
        ("/spec/objectStore/endpoint", json!(format!("http://{long}")), "more than 500"),
        ("/spec/objectStore/region", json!("EU"), "such as eu-central-1"),
        ("/spec/objectStore/credentials", json!({}), "secretName: Required value"),
        ("/spec/objectStore/credentials", json!({"secretName": "S3"}), "name of a Secret"),
        ("/spec/objectStore/credentials", json!({"secretName": "s3"}), "region is needed"),
        ("/spec/objectStore/adoptClusterUid", json!("ABC"), "32 hexadecimal digits, lower case"),
        ("/spec/metadata", json!({"voters": 2}), "must be 1, 3 or 5"),
        ("/spec/metadata", json!({"voters": 7}), "must be 1, 3 or 5"),
        ("/spec/metadata", json!({"volume": {"size": "big"}}), "quantity above 0 such as 2Gi"),
        ("/spec/metadata", json!({"volume": {"size": "0"}}), "quantity above 0"),
        ("/spec/routing", json!({"mode": "proxy"}), "\"redirect\", \"forward\""),
        ("/spec/routing", json!({"advertisedUrl": "http://all.example"}), "must hold {node} or {ordinal}"),
        ("/spec/routing", json!({"advertisedUrl": "http://{node}.{zone}"}), "no other placeholders"),
        ("/spec/routing", json!({"advertisedUrl": "{node}:80"}), "http(s)://HOST[:PORT]"),
        (
            "/spec/routing",
            json!({"mode": "forward", "advertisedUrl": "https://{node}"}),
            "begins with http://",
        ),
        (
            "/spec",
            json!({
                "objectStore": {"bucket": "records"},
                "routing": {"mode": "forward"},
                "nodes": [{"ordinal": 0, "advertisedUrl": "https://x"}],
            }),
            "nodes[].advertisedUrl to begin with http://",
        ),
        ("/spec/routing", json!({"publicUrl": "streams.example"}), "routing.publicUrl must be http(s)://"),
        ("/spec/routing", json!({"clusterDomain": ".local"}), "such as cluster.local"),
        ("/spec/service", json!({"type": "ExternalName"}), "\"ClusterIP\", \"NodePort\", \"LoadBalancer\""),
        ("/spec/service", json!({"ipFamilies": ["IPv5"]}), "IPv4, IPv6 or both"),
        ("/spec/service", json!({"ipFamilies": ["IPv4", "IPv4"]}), "each once"),
        (
            "/spec/service",
            json!({"ipFamilyPolicy": "Dual"}),
            "SingleStack, PreferDualStack or RequireDualStack",
        ),
        ("/spec/config", json!({"node-id": "x"}), "no other field sets: cache-bytes"),
        ("/spec/config", json!({"cachebytes": "1"}), "cache-bytes"),
        ("/spec/config", json!({"cache-bytes": 1}), "type string"),
        ("/spec/podTemplate", json!({"labels": {"weir.dev/cluster": "x"}}), "begin with weir.dev/"),
        ("/spec/podTemplate", json!({"labels": {"app.kubernetes.io/name": "x"}}), "app.kubernetes.io/"),
        ("/spec/podTemplate", json!({"annotations": {"weir.dev/slots": "9"}}), "begin with weir.dev/"),
        ("/spec/podTemplate", json!({"env": [{"name": "WEIR_SLOTS", "value": "1"}]}), "see spec.config"),
        (
            "/spec/podTemplate",
            json!({"env": [{"name": "AWS_REGION", "value": "x"}]}),
            "AWS_ names of spec.objectStore",
        ),
        ("/spec/podTemplate", json!({"terminationGracePeriodSeconds": 5}), "greater than or equal to 15"),
        ("/spec/podTemplate", json!({"affinity": "none"}), "type object"),
        ("/spec/update", json!({"strategy": "Recreate"}), "\"Rolling\", \"OnDelete\""),
        ("/spec/update", json!({"drainTimeoutSeconds": 0}), "greater than or equal to 1"),
        ("/spec/deletionPolicy", json!({"whenDeleted": "Recycle"}), "\"Retain\", \"Delete\""),
    ]
}

/// Changes that would leave a cluster's records behind, after the prefix that it had.
pub(crate) fn frozen() -> Vec<(Value, &'static str, Value, &'static str)> {
    vec![
        (json!("a"), "/spec/objectStore/bucket", json!("others"), "bucket cannot be changed"),
        (json!("a"), "/spec/objectStore/prefix", json!("b"), "prefix cannot be changed"),
        (json!("a"), "/spec/objectStore/prefix", Value::Null, "prefix cannot be changed"),
        (Value::Null, "/spec/objectStore/prefix", json!("a"), "prefix cannot be changed"),
    ]
}
