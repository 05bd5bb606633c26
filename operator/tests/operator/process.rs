//! The operator as a process.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

/// Built together with the node there are two implementations of cryptography, between which rustls chooses by panicking.
#[test]
fn it_comes_as_far_as_to_call_the_api_server_over_tls() {
    let folder = std::env::temp_dir().join(format!("weir-operator-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = folder.join("kubeconfig");
    // Nobody listens there.
    let text = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}]}"#;
    std::fs::write(&config, text).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir-operator"))
        .args(["--image", "weir:test", "--kubeconfig", "--no-leader-election", "--listen", "127.0.0.1:0"])
        .env("KUBECONFIG", &config)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = Vec::new();
    let mut called = false;
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        called = line.contains("definition cannot be read") || line.contains("API server does not answer");
        lines.push(line);
        if called {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let all = lines.join("\n");
    assert!(called && !all.contains("panicked"), "{all}");
}
