//! The public suite and the TypeScript client, each on both versions of Node that are common: against one node, and
//! against a cluster through a node that owns nothing.

use weir_tests::cluster::assigned;
use weir_tests::files::Scratch;
use weir_tests::node::Setup;

use crate::stranger;
use crate::vitest::{self, Report};

/// All of the suite but its subscription tests, which only run where a server claims to have subscriptions.
const SUITE: (usize, usize) = (332, 6);
/// All of `client.test.mjs`.
const CLIENT: (usize, usize) = (19, 0);

/// Exactly so many tests passed and were skipped, and only those failed that may.
fn judge(major: u32, file: &str, report: &Report, (passed, skipped): (usize, usize), may_fail: &[&str]) {
    let counts = (report.passed.len(), report.failed.len(), report.skipped.len());
    println!("{file} on Node {major}: {} passed, {} failed, {} skipped", counts.0, counts.1, counts.2);
    assert_eq!(
        counts,
        (passed - may_fail.len(), may_fail.len(), skipped),
        "passed, failed and skipped tests of {file} on Node {major}; failed:\n  {}\nskipped:\n  {}",
        report.failed.join("\n  "),
        report.skipped.join("\n  ")
    );
    for failed in &report.failed {
        assert!(may_fail.iter().any(|name| failed.starts_with(name)), "{file} on Node {major}: {failed}");
    }
    let subscriptions = |name: &String| name.starts_with("Reserved subscription APIs");
    assert!(report.skipped.iter().all(subscriptions), "skipped: {:#?}", report.skipped);
}

/// Runs a file against a fresh node.
async fn alone(major: u32, file: &str, counts: (usize, usize)) {
    let scratch = Scratch::new();
    // Two tests of the suite wait for a long-poll to time out.
    let setup = Setup::new(scratch.path("data")).flag("long-poll-timeout", "500ms");
    let mut node = setup.start().await.unwrap();
    let address = node.addresses().await.unwrap().client;
    let report = vitest::run(major, file, &address).await.unwrap();
    judge(major, file, &report, counts, &[]);
    assert!(node.try_exit().unwrap().is_none(), "the node ended\n{}", node.log_tail());
}

/// Runs a file against a fresh cluster, through a node that owns nothing, before and after.
async fn through_a_stranger(
    mode: &'static str,
    major: u32,
    file: &str,
    counts: (usize, usize),
    may_fail: &[&str],
) {
    let (mut cluster, address) = stranger::start(mode).await.unwrap();
    let report = vitest::run(major, file, &address).await.unwrap();
    judge(major, file, &report, counts, may_fail);
    let counts = assigned(&cluster.nodes[0].admin().await.unwrap()).await.unwrap();
    assert!(counts[0] > 0 && counts[1] > 0 && counts[stranger::AT] == 0, "streams at the nodes: {counts:?}");
    for node in &mut cluster.nodes {
        assert!(node.try_exit().unwrap().is_none(), "a node ended\n{}", node.log_tail());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs npm packages: make conformance"]
async fn the_public_suite_passes_on_node_20() {
    alone(20, "suite.test.mjs", SUITE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs npm packages: make conformance"]
async fn the_public_suite_passes_on_node_24() {
    alone(24, "suite.test.mjs", SUITE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs npm packages: make conformance"]
async fn the_typescript_client_gets_every_byte_on_node_20() {
    alone(20, "client.test.mjs", CLIENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs npm packages: make conformance"]
async fn the_typescript_client_gets_every_byte_on_node_24() {
    alone(24, "client.test.mjs", CLIENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs npm packages: make conformance"]
async fn the_public_suite_passes_through_a_node_that_owns_nothing_on_node_24() {
    through_a_stranger("forward", 24, "suite.test.mjs", SUITE, &[]).await;
}

/// What the gate has no time for: `make conformance-all`.
mod long {
    use weir_tests::node::PATIENCE;

    use super::{CLIENT, SUITE, through_a_stranger};
    use crate::vitest;

    /// Tests that append bytes: the `fetch` of Node 20 gives an `ArrayBuffer` away with the first request and has nothing
    /// left to send where a redirect leads. Text it can repeat, and Node 24 both.
    const NODE_20_CANNOT: &[&str] = &[
        "Browser Security Headers should include Cross-Origin-Resource-Policy header on GET responses",
        "Protocol Edge Cases should handle binary data with integrity",
        "Chunking and Large Payloads should handle chunk-size pagination correctly",
        "Chunking and Large Payloads should handle large payload appropriately",
        "SSE Mode base64 SSE catch-up pairs every data event with a control event",
        "SSE Mode should auto-detect binary streams and return base64 encoded data in SSE mode",
        "SSE Mode should include Stream-SSE-Data-Encoding header for binary streams",
        "SSE Mode should base64 encode data events only, control events remain JSON",
        "SSE Mode should handle large binary payload with auto-detected base64 encoding",
        "SSE Mode should handle binary data with special bytes using auto-detected base64 encoding",
        "SSE Mode should auto-detect base64 encoding for application/x-protobuf streams",
        "SSE Mode should auto-detect base64 encoding for image/png streams",
        "SSE Mode should handle offset=now with auto-detected base64 encoding for binary streams",
        "Property-Based Tests (fast-check) Byte-Exactness Property concurrent readers see consistent data during writes",
        "Property-Based Tests (fast-check) Byte-Exactness Property single byte values cover full range (0-255) with concurrent readers during write",
        "Property-Based Tests (fast-check) Operation Sequence Properties random operation sequences maintain stream invariants",
        "Property-Based Tests (fast-check) Operation Sequence Properties offsets are always monotonically increasing",
        "Property-Based Tests (fast-check) Operation Sequence Properties read-your-writes: data is immediately visible after append",
        "Property-Based Tests (fast-check) Immutability Properties data at offset never changes after additional appends",
        "Property-Based Tests (fast-check) State Hash Verification replay produces identical content hash",
        "Property-Based Tests (fast-check) State Hash Verification content hash changes with each append",
        "Property-Based Tests (fast-check) State Hash Verification deterministic ordering - same data in same order produces same hash",
    ];

    /// Posts text and bytes to a server of its own that redirects once; prints what arrived.
    const REPEATS: &str = r#"
        const server = require("node:http").createServer((request, response) => {
            let size = 0;
            request.on("data", (part) => (size += part.length)).on("end", () => {
                if (request.url === "/a") response.writeHead(307, { location: "/b" });
                response.end(String(size));
            });
        });
        server.listen(0, "127.0.0.1", async () => {
            const url = `http://127.0.0.1:${server.address().port}/a`;
            for (const body of ["text", new Uint8Array(4)]) {
                const answer = await fetch(url, { method: "POST", body }).then((r) => r.text(), () => "nothing");
                console.log(answer);
            }
            server.close();
            server.closeAllConnections();
        });
    "#;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "takes long: make conformance-all"]
    async fn node_20_cannot_repeat_bytes_and_node_24_can() {
        for (major, bytes) in [(20, "nothing"), (24, "4")] {
            let mut node = tokio::process::Command::new(vitest::binary(major).await.unwrap());
            let output = node.args(["-e", REPEATS]).kill_on_drop(true).output();
            let output = tokio::time::timeout(PATIENCE, output).await.expect("it ends").unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), format!("4\n{bytes}\n"), "{output:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "takes long: make conformance-all"]
    async fn the_public_suite_passes_through_a_forwarding_stranger_on_node_20() {
        through_a_stranger("forward", 20, "suite.test.mjs", SUITE, &[]).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "takes long: make conformance-all"]
    async fn the_public_suite_passes_through_a_redirecting_stranger_on_node_24() {
        through_a_stranger("redirect", 24, "suite.test.mjs", SUITE, &[]).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "takes long: make conformance-all"]
    async fn the_public_suite_passes_through_a_redirecting_stranger_on_node_20_but_for_bytes() {
        through_a_stranger("redirect", 20, "suite.test.mjs", SUITE, NODE_20_CANNOT).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "takes long: make conformance-all"]
    async fn the_typescript_client_gets_every_byte_through_a_stranger_in_both_modes() {
        for (mode, major) in [("forward", 20), ("redirect", 24)] {
            through_a_stranger(mode, major, "client.test.mjs", CLIENT, &[]).await;
        }
    }
}
