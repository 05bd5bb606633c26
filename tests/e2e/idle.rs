//! What idle streams cost: memory and file descriptors at a node that was restarted over 100,000 of them.
//!
//! Ignored in the gate; `cargo test -p weir-tests --test e2e -- --ignored --nocapture idle` prints the figures. Times
//! are printed and never asserted.

use std::fs;
use std::time::Duration;

use http::Method;
use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_tests::files::Scratch;
use weir_tests::node::{Node, Setup};

const CONNECTIONS: u64 = 64;
/// Bytes of memory that one idle stream may cost.
const BOUND: u64 = 600;

fn streams() -> u64 {
    std::env::var("WEIR_IDLE_STREAMS").map_or(100_000, |n| n.parse().expect("a number"))
}

fn resident(node: &Node) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid().as_raw_nonzero())).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn descriptors(node: &Node) -> usize {
    fs::read_dir(format!("/proc/{}/fd", node.pid().as_raw_nonzero())).unwrap().count()
}

async fn create_all(node: &mut Node, total: u64) {
    let address = node.addresses().await.unwrap().client;
    let mut workers = JoinSet::new();
    for worker in 0..CONNECTIONS {
        let client = weir_tests::client::Client::new(&address, Duration::from_secs(60));
        workers.spawn(async move {
            for n in (worker..total).step_by(CONNECTIONS as usize) {
                let target = format!("/v1/stream/idle/{n:06}");
                let answer =
                    client.send(Method::PUT, &target, &[("content-type", "text/plain")], "".into()).await;
                assert_eq!(answer.unwrap().status, 201, "{target}");
            }
        });
    }
    while let Some(done) = workers.join_next().await {
        done.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a benchmark: make bench"]
async fn idle_streams_cost_little_memory_and_no_descriptor() {
    let scratch = Scratch::new();
    let total = streams();
    let empty = Setup::new(scratch.path("empty")).start().await.unwrap();
    let (empty_memory, empty_fds) = (resident(&empty), descriptors(&empty));
    drop(empty);

    let setup = Setup::new(scratch.path("data"));
    let mut node = setup.start().await.unwrap();
    let since = Instant::now();
    create_all(&mut node, total).await;
    println!("{total} streams created in {:.1} s", since.elapsed().as_secs_f64());
    node.terminate(Duration::from_secs(60)).await.unwrap();

    let since = Instant::now();
    let node = setup.start().await.unwrap();
    println!("ready after {:.3} s", since.elapsed().as_secs_f64());
    let (memory, fds) = (resident(&node), descriptors(&node));
    let each = memory.saturating_sub(empty_memory) / total;
    println!(
        "{each} bytes per idle stream ({empty_memory} empty, {memory} full); {empty_fds} and {fds} descriptors"
    );
    assert!(each <= BOUND, "{each} bytes per idle stream, at most {BOUND}");
    assert!(fds <= empty_fds + 16, "{fds} descriptors, {empty_fds} when empty");
}
