//! A client in Python that follows no redirect, through a node that owns nothing and forwards everything.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use weir_tests::cluster::assigned;

use crate::stranger;

/// A run that takes longer is stuck; it takes a second.
const DEADLINE: Duration = Duration::from_secs(120);
/// Times that the script goes through all it does.
const NAMES: usize = 6;
/// Checks of one time.
const CHECKS: usize = 28;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs python3: make conformance"]
async fn a_client_that_follows_no_redirect_does_everything_through_a_node_that_owns_nothing() {
    let (mut cluster, address) = stranger::start("forward").await.unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/client.py");
    let mut python = tokio::process::Command::new("python3");
    python.arg(script).arg(&address).arg(NAMES.to_string()).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, python.output()).await.expect("it ends").unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    assert_eq!(out.trim(), format!("{} checks held", NAMES * CHECKS));
    let counts = assigned(&cluster.nodes[0].admin().await.unwrap()).await.unwrap();
    assert!(counts[0] > 0 && counts[1] > 0 && counts[stranger::AT] == 0, "{counts:?}");
    cluster.end().await.unwrap();
}
