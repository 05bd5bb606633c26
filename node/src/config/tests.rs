//! Every setting from every source, and every wrong value of each.

use std::collections::BTreeMap;
use std::io::Write as _;

use clap::{Args as _, Command, FromArgMatches as _};

use super::settings::SETTINGS;
use super::*;

/// Flags, environment and file of one case.
fn load_with(flags: &[&str], env: &[(&str, &str)], file: Option<&str>) -> Result<Loaded, ConfigError> {
    let mut on_disk = tempfile::NamedTempFile::new().unwrap();
    let mut line = vec!["weir".to_owned()];
    if let Some(text) = file {
        on_disk.write_all(text.as_bytes()).unwrap();
        line.extend(["--config".to_owned(), on_disk.path().display().to_string()]);
    }
    line.extend(flags.iter().map(|f| (*f).to_owned()));
    let matches = SettingArgs::augment_args(Command::new("weir")).try_get_matches_from(line).unwrap();
    let args = SettingArgs::from_arg_matches(&matches).unwrap();
    let env: BTreeMap<_, _> = env.iter().copied().collect();
    load(&args, &|name| env.get(name).map(OsString::from))
}

fn flags(flags: &[&str]) -> Result<ServeConfig, ConfigError> {
    load_with(flags, &[], None).map(|l| l.config)
}

fn refusal(r: Result<impl std::fmt::Debug, ConfigError>) -> String {
    r.expect_err("should be refused").to_string()
}

#[test]
fn nothing_said_is_a_cluster_of_one_in_the_current_directory() {
    let c = flags(&[]).unwrap();
    assert_eq!(c.node_id.as_str(), "node-0");
    assert_eq!(c.data_dir, std::env::current_dir().unwrap().join("data"));
    assert_eq!(c.store, StoreUrl::File(c.data_dir.join("store")));
    assert_eq!(c.listen.to_string(), "127.0.0.1:4437");
    assert_eq!(c.peer_listen.to_string(), "127.0.0.1:4438");
    assert_eq!(c.admin_listen.to_string(), "127.0.0.1:9090");
    assert_eq!(c.advertised_url(c.listen), "http://127.0.0.1:4437");
    assert_eq!(c.routing, RoutingMode::Redirect);
    assert!(c.bootstrap);
    assert_eq!((c.node_timeout, c.lease), (Duration::from_secs(10), Duration::from_secs(5)));
    assert_eq!(c.max_body, 16 << 20);
}

#[test]
fn a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default() {
    let slots = |f: &[&str], e: &[(&str, &str)], t| load_with(f, e, t).unwrap().config.slots.get();
    let file = Some("slots = 4");
    assert_eq!(slots(&[], &[], None), 1);
    assert_eq!(slots(&[], &[], file), 4);
    assert_eq!(slots(&[], &[("WEIR_SLOTS", "3")], file), 3);
    assert_eq!(slots(&["--slots", "2"], &[("WEIR_SLOTS", "3")], file), 2);
}

#[test]
fn the_file_may_be_named_by_the_environment() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"node-id = 'demo-7'").unwrap();
    let path = file.path().to_str().unwrap();
    let loaded = load_with(&[], &[("WEIR_CONFIG", path)], None).unwrap();
    assert_eq!(loaded.config.node_id.as_str(), "demo-7");
}

#[test]
fn an_empty_variable_is_not_set() {
    let c = load_with(&[], &[("WEIR_CLUSTER_IDENTITY", ""), ("WEIR_SLOTS", "")], None).unwrap().config;
    assert_eq!((c.cluster_identity, c.slots), (None, Slots::ONE));
}

#[test]
fn every_value_of_the_file_has_its_type() {
    let text = "slots = 3\nmax-body = \"1MiB\"\nmax-read-chunk = 4096\nmetrics-open = true\njoin = ['a:1', 'b:2']\n\
                lease = '1s'\nstore = 's3://b/p'";
    let c = load_with(&[], &[], Some(text)).unwrap().config;
    assert_eq!((c.max_body, c.max_read_chunk), (1 << 20, 4096));
    assert!(c.metrics_open);
    assert_eq!(c.join, ["a:1", "b:2"]);
    for (bad, allowed) in [
        ("slots = '3'", "a whole number"),
        ("slots = 1.5", "a whole number"),
        ("metrics-open = 1", "true or false"),
        ("join = [1]", "a list of strings"),
        ("node-id = true", "a string"),
        ("lease = 5", "with a unit"),
    ] {
        let text = refusal(load_with(&[], &[], Some(bad)));
        let key = bad.split(' ').next().unwrap();
        assert!(text.contains(&format!(": {key}: ")) && text.contains(allowed), "{text}");
    }
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_one() {
    for (key, nearest) in
        [("slot", "slots"), ("node_id", "node-id"), ("NodeTimeout", "node-timeout"), ("x", "join")]
    {
        let text = refusal(load_with(&[], &[], Some(&format!("{key} = 1"))));
        assert!(text.contains(&format!("unknown key {key:?}")), "{text}");
        assert!(nearest == "join" || text.contains(&format!("nearest is {nearest:?}")), "{text}");
    }
}

#[test]
fn a_file_that_is_absent_or_no_toml_is_named() {
    let text = refusal(flags(&["--config", "/nowhere/weir.toml"]));
    assert!(text.starts_with("/nowhere/weir.toml: "), "{text}");
    let text = refusal(load_with(&[], &[], Some("slots = \n")));
    assert!(text.contains("line 1"), "{text}");
}

#[test]
fn every_wrong_value_names_flag_value_and_what_is_allowed() {
    let cases: &[(&str, &[&str], &str)] = &[
        ("node-id", &["", "Demo", "-a", "a_b", "a.b"], "a-z"),
        ("slots", &["-1", "1.5", "1000001", "many", "18446744073709551616"], "0 to 1000000"),
        ("incarnation", &["", "a b", "a/b"], "A-Z"),
        (
            "listen",
            &["", "4437", "localhost:4437", "127.0.0.1", "127.0.0.1:65536"],
            "an IP address and a port",
        ),
        ("peer-listen", &["x"], "an IP address and a port"),
        ("admin-listen", &["x"], "an IP address and a port"),
        ("advertise-url", &["", "demo:1", "ftp://a", "http://a/b"], "http://HOST[:PORT]"),
        ("peer-advertise", &["", "demo", "demo:0"], "host name or IP address and a port"),
        ("public-url", &["", "weir.example"], "http://HOST[:PORT]"),
        ("join", &["a", "a:1,b"], "host name or IP address and a port"),
        ("cluster-size", &["0", "-3", "1001", "three"], "1 to 1000"),
        ("metadata-voters", &["0", "2", "7", "three"], "1, 3 or 5"),
        ("cluster-identity", &["", "a\tb"], "253 printable"),
        ("adopt-cluster-uid", &["", "1234", "ABCDEF00000000000000000000000000"], "32 hexadecimal digits"),
        ("routing", &["", "proxy", "Redirect"], "redirect or forward"),
        ("store", &["", "/data", "file://host/x", "file:x", "s3:", "gs://b", "s3://b?x=1"], "s3://bucket"),
        ("wal-interval", &["10", "11s", "-1ms"], "0ms to 10s"),
        ("wal-object-bytes", &["0", "1MB", "1GiB"], "64KiB to 64MiB"),
        ("wal-backlog-bytes", &["1KiB", "x"], "1MiB to 16GiB"),
        ("wal-backlog-objects", &["0", "x"], "16 to 1000000"),
        ("segment-bytes", &["0"], "64KiB to 1GiB"),
        ("segment-objects", &["0"], "1 to 1000000"),
        ("segment-age", &["0s", "5min"], "100ms to 1d"),
        ("cache-bytes", &["0"], "1MiB to 1TiB"),
        ("max-body", &["0", "65MiB"], "1KiB to 64MiB"),
        ("max-read-chunk", &["0"], "1KiB to 64MiB"),
        ("max-streams", &["0"], "1 to 100000000"),
        ("max-open-streams", &["0"], "1 to 10000000"),
        ("max-connections", &["0"], "1 to 1000000"),
        ("max-waiters", &["0"], "1 to 1000000"),
        ("max-producers", &["0"], "1 to 1000000"),
        ("node-timeout", &["10", "0s", "1d"], "1s to 10m"),
        ("lease", &["5", "0ms", "6m"], "500ms to 5m"),
        ("long-poll-timeout", &["0s"], "10ms to 10m"),
        ("sse-lifetime", &["0s", "1", "2d"], "100ms to 1d"),
        ("request-timeout", &["0s"], "100ms to 1h"),
        ("shutdown-grace", &["0s"], "100ms to 1h"),
        ("idle-release", &["0s"], "100ms to 7d"),
        ("log-level", &["loud", "info,=x"], "error, warn"),
        ("log-format", &["yaml"], "text or json"),
        ("test-clock-offset-ms", &["x"], "a whole number"),
        ("test-snapshot-log-bytes", &["0", "x"], "1KiB to 1GiB"),
        ("parent-pid", &["0", "-1", "x"], "1 to 4294967295"),
    ];
    for (name, values, allowed) in cases {
        for value in *values {
            let flag = format!("--{name}");
            let text = refusal(flags(&[&flag, value]));
            let start = format!("{flag}: {value:?} is not allowed; allowed: ");
            assert!(text.starts_with(&start) && text.contains(allowed), "{text}");
        }
    }
    for name in ["bootstrap", "metrics-open"] {
        let text = refusal(flags(&[&format!("--{name}=yes")]));
        assert_eq!(text, format!("--{name}: \"yes\" is not allowed; allowed: true or false"));
    }
    let free = ["data-dir", "admin-token-file", "bootstrap", "metrics-open"];
    for s in SETTINGS.iter().filter(|s| !free.contains(&s.name)) {
        assert!(cases.iter().any(|(name, ..)| *name == s.name), "{} has no wrong value here", s.name);
    }
}

#[test]
fn a_wrong_value_from_the_environment_names_the_variable() {
    let text = refusal(load_with(&[], &[("WEIR_SLOTS", "many")], None));
    assert!(text.starts_with("environment variable WEIR_SLOTS: \"many\""), "{text}");
    let text = refusal(load_with(&[], &[("AWS_ENDPOINT_URL", "minio:9000")], None));
    assert!(text.starts_with("environment variable AWS_ENDPOINT_URL: \"minio:9000\""), "{text}");
}

#[test]
fn a_huge_value_is_cut() {
    assert!(refusal(flags(&["--node-id", &"x".repeat(1 << 20)])).len() < 400);
}

#[test]
fn settings_that_do_not_go_together_are_refused_by_name() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--lease", "10s"], &["--lease", "--node-timeout"]),
        (&["--lease", "5s", "--node-timeout", "5500ms"], &["--lease", "--node-timeout"]),
        (&["--segment-bytes", "256MiB"], &["--segment-bytes", "--wal-backlog-bytes"]),
        (&["--wal-backlog-bytes", "8MiB"], &["--wal-backlog-bytes", "64MiB"]),
        (&["--segment-objects", "4096"], &["--segment-objects", "--wal-backlog-objects"]),
        (&["--admin-listen", "0.0.0.0:9090"], &["--admin-listen", "--admin-token-file"]),
        (&["--admin-listen", "127.0.0.1:4437"], &["--admin-listen", "--listen", "4437"]),
        (&["--listen", "0.0.0.0:9090"], &["--admin-listen", "--listen"]),
        (&["--cluster-size", "3"], &["--cluster-size", "--join", "--bootstrap"]),
        (&["--cluster-size", "3", "--bootstrap"], &["--store"]),
        (&["--join", "a:1", "--peer-listen", "0.0.0.0:1"], &["--peer-advertise"]),
        (&["--peer-listen", "0.0.0.0:1"], &["--peer-listen", "--admin-token-file"]),
        (&["--join", "a:1"], &["--join", "--store"]),
        (&["--adopt-cluster-uid", "00000000000000000000000000000001"], &["--cluster-identity"]),
    ];
    for (given, named) in cases {
        let text = refusal(flags(given));
        assert!(named.iter().all(|n| text.contains(n)), "{given:?}: {text}");
    }
}

#[test]
fn ports_of_zero_do_not_clash_and_are_advertised_as_bound() {
    let c =
        flags(&["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    let c = c.unwrap();
    assert_eq!(c.advertised_url("127.0.0.1:5000".parse().unwrap()), "http://127.0.0.1:5000");
    assert_eq!(c.advertised_peer("0.0.0.0:5001".parse().unwrap()), "localhost:5001");
}

#[test]
fn several_nodes_share_a_store() {
    let several = flags(&["--join", "a:1", "--join", "b:2,c:3", "--store", "s3://b/p"]).unwrap();
    assert_eq!(several.join, ["a:1", "b:2", "c:3"]);
    assert!(!several.bootstrap);
}

#[test]
fn bootstrap_is_said_by_its_name_alone() {
    let args = ["--cluster-size", "3", "--store", "s3://b/p/"];
    assert!(flags(&[&args[..], &["--bootstrap"]].concat()).unwrap().bootstrap);
    assert!(!flags(&["--bootstrap=false"]).unwrap().bootstrap);
}

#[test]
fn store_urls_name_a_directory_or_a_bucket() {
    let s3 = |bucket: &str, prefix: &str| StoreUrl::S3 { bucket: bucket.into(), prefix: prefix.into() };
    assert_eq!(flags(&["--store", "s3://b"]).unwrap().store, s3("b", ""));
    assert_eq!(flags(&["--store", "s3://b/x/y/"]).unwrap().store, s3("b", "x/y"));
    assert_eq!(flags(&["--store", "file:///srv/a%20b"]).unwrap().store, StoreUrl::File("/srv/a b".into()));
}

#[test]
fn what_config_prints_is_read_again_and_means_the_same() {
    let loaded = load_with(
        &["--slots", "7", "--store", "s3://b/p"],
        &[("WEIR_NODE_ID", "demo-1"), ("WEIR_LEASE", "1s")],
        Some("max-body = 4096\njoin = ['a:1']"),
    );
    let loaded = loaded.unwrap();
    let printed = loaded.shown.toml();
    let again = load_with(&[], &[], Some(&printed)).unwrap();
    assert_eq!(
        format!("{:?}", again.config),
        format!(
            "{:?}",
            ServeConfig {
                advertise_url: again.config.advertise_url.clone(),
                peer_advertise: again.config.peer_advertise.clone(),
                ..loaded.config
            }
        )
    );
    for line in [
        "slots = 7  # --slots",
        "node-id = \"demo-1\"  # environment variable WEIR_NODE_ID",
        "node-timeout = \"10s\"  # default",
        "# incarnation is not set: drawn at random",
    ] {
        assert!(printed.contains(line), "{line} not in\n{printed}");
    }
    assert!(printed.contains(": max-body\n"), "{printed}");
    assert!(!printed.contains("test-clock"));
}

#[test]
fn config_as_json_has_value_and_origin_of_each_setting() {
    let json = load_with(&["--slots", "7"], &[], None).unwrap().shown.json();
    assert_eq!(json["settings"]["slots"], serde_json::json!({"value": 7, "origin": "--slots"}));
    assert_eq!(json["settings"]["bootstrap"], serde_json::json!({"value": true, "origin": "default"}));
    assert_eq!(json["settings"]["incarnation"]["value"], serde_json::Value::Null);
}

#[test]
fn secrets_show_nowhere() {
    let env = [
        ("AWS_ACCESS_KEY_ID", "key-one"),
        ("AWS_SECRET_ACCESS_KEY", "secret-two"),
        ("AWS_SESSION_TOKEN", "token-three"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000"),
    ];
    let loaded = load_with(&[], &env, None).unwrap();
    assert_eq!(loaded.config.s3.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
    assert_eq!(loaded.config.s3.secret_access_key.as_deref(), Some("secret-two"));
    let shown = format!("{}{}", loaded.shown.toml(), loaded.shown.json());
    assert!(!shown.contains("key-one"));
    let everywhere = format!("{shown}{loaded:?}");
    for secret in ["secret-two", "token-three"] {
        assert!(!everywhere.contains(secret));
    }
}

#[test]
fn the_help_names_variable_and_default_of_every_setting() {
    let help = SettingArgs::augment_args(Command::new("weir").term_width(0)).render_long_help().to_string();
    for s in SETTINGS.iter().filter(|s| !s.hidden()) {
        assert!(help.contains(&format!("--{}", s.name)), "{}", s.name);
        assert!(help.contains(&format!("[env: {}]", s.variable())), "{}", s.name);
    }
    assert!(!help.contains("test-clock"));
}
