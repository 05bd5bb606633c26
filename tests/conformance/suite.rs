//! The public suite and the TypeScript client, each on both versions of Node that are common.

use weir_tests::files::Scratch;
use weir_tests::node::Setup;

use crate::vitest;

/// All of the suite but its subscription tests, which only run where a server claims to have subscriptions.
const SUITE: (usize, usize) = (332, 6);
/// All of `client.test.mjs`.
const CLIENT: (usize, usize) = (19, 0);

/// Runs a file against a fresh node; exactly so many tests pass and are skipped, and none fails.
async fn all_pass(major: u32, file: &str, (passed, skipped): (usize, usize)) {
    let scratch = Scratch::new();
    // Two tests of the suite wait for a long-poll to time out.
    let setup = Setup::new(scratch.path("data")).flag("long-poll-timeout", "500ms");
    let mut node = setup.start().await.unwrap();
    let address = node.addresses().await.unwrap().client;
    let report = vitest::run(major, file, &address).await.unwrap();
    let counts = (report.passed.len(), report.failed.len(), report.skipped.len());
    println!("{file} on Node {major}: {} passed, {} failed, {} skipped", counts.0, counts.1, counts.2);
    assert_eq!(
        counts,
        (passed, 0, skipped),
        "passed, failed and skipped tests of {file} on Node {major}; failed:\n  {}\nskipped:\n  {}",
        report.failed.join("\n  "),
        report.skipped.join("\n  ")
    );
    let subscriptions = |name: &String| name.starts_with("Reserved subscription APIs");
    assert!(report.skipped.iter().all(subscriptions), "skipped: {:#?}", report.skipped);
    assert!(node.try_exit().unwrap().is_none(), "the node ended\n{}", node.log_tail());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs npm packages: make conformance"]
async fn the_public_suite_passes_on_node_20() {
    all_pass(20, "suite.test.mjs", SUITE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs npm packages: make conformance"]
async fn the_public_suite_passes_on_node_24() {
    all_pass(24, "suite.test.mjs", SUITE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs npm packages: make conformance"]
async fn the_typescript_client_gets_every_byte_on_node_20() {
    all_pass(20, "client.test.mjs", CLIENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs npm packages: make conformance"]
async fn the_typescript_client_gets_every_byte_on_node_24() {
    all_pass(24, "client.test.mjs", CLIENT).await;
}
