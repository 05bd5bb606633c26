//! Who may serve from a directory and a bucket: one process, of one cluster, under an epoch that only grows.

use anyhow::Result;
use serde_json::Value;
use weir_tests::files::{Scratch, copy_tree};
use weir_tests::load::{Load, Shape};
use weir_tests::node::{Node, PATIENCE, Setup};
use weir_tests::rng::{Rng, seed};
use weir_tests::s3::FakeS3;

const DAY_MS: i64 = 86_400_000;

async fn epoch(node: &mut Node) -> u64 {
    let text = node.admin().await.unwrap().get_text("/admin/nodes").await.unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    find_epoch(&value).unwrap_or_else(|| panic!("no epoch in {text}"))
}

fn find_epoch(value: &Value) -> Option<u64> {
    match value {
        Value::Array(all) => all.iter().find_map(find_epoch),
        Value::Object(map) => {
            map.get("epoch").and_then(Value::as_u64).or_else(|| map.values().find_map(find_epoch))
        }
        _ => None,
    }
}

/// One start with the wall clock shifted, some load, SIGKILL; gives the epoch it served under.
async fn life(setup: &Setup, offset_ms: i64, load: &std::sync::Arc<Load>, rng: &mut Rng) -> Result<u64> {
    let mut node = setup.clone().flag("test-clock-offset-ms", offset_ms).start().await?;
    let address = node.addresses().await?.client;
    // Between two lives the clock jumps, and a time to live may be over by that.
    load.clock_jumps().await;
    if !load.history.is_empty() {
        load.verify(&address, rng).await?;
    }
    let epoch = epoch(&mut node).await;
    let begin = load.history.now();
    let running = load.run(&address, rng);
    load.progress(begin, 50).await?;
    node.kill();
    load.history.died();
    running.stop().await;
    Ok(epoch)
}

async fn lives(offsets: &[i64]) -> Vec<u64> {
    let seed = seed();
    println!("WEIR_SEED={seed}");
    let mut rng = Rng::new(seed);
    let scratch = Scratch::new();
    let setup = Setup::new(scratch.path("data")).flag("long-poll-timeout", "200ms");
    let load = Load::new(rng.below(1 << 30), Shape::default());
    let mut epochs = Vec::new();
    for &offset in offsets {
        epochs.push(life(&setup, offset, &load, &mut rng).await.unwrap());
    }
    epochs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_back_a_day_still_gives_a_higher_epoch() {
    let epochs = lives(&[0, -DAY_MS, -2 * DAY_MS, 0]).await;
    assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
    assert!(epochs[1] - epochs[0] < 60_000, "the epoch goes on just above the recorded one: {epochs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_stands_still_never_gives_one_epoch_twice() {
    // So far back that wall time reads 0 at every start: each process mints the very epoch of the one before.
    let stopped = -4_000_000_000_000;
    let epochs = lives(&[stopped, stopped, stopped, 0]).await;
    assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_on_the_directory_is_refused_and_harms_nobody() {
    let scratch = Scratch::new();
    let setup = Setup::new(scratch.path("data"));
    let mut node = setup.start().await.unwrap();
    let client = node.client().await.unwrap();
    let before = epoch(&mut node).await;
    // It must not take the first one's addresses.json away either, so it gets no help from the harness.
    let (status, said) = setup.twin().refused().await.unwrap();
    assert_eq!(status.code(), Some(6), "{said}");
    let dir = scratch.path("data").display().to_string();
    assert!(said.contains(&dir) || said.contains("lock") || said.contains("another process"), "{said}");
    let put = client.send(http::Method::PUT, "/v1/stream/after", &[], "x".into()).await.unwrap();
    assert_eq!(put.status, 201, "the first process serves on");
    drop(node);
    let mut node = setup.start().await.unwrap();
    assert!(epoch(&mut node).await > before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_of_another_cluster_is_refused() {
    let scratch = Scratch::new();
    let bucket = FakeS3::start(1).await;
    // The bucket belongs to the cluster of directory `a`.
    let mut a = bucket.setup(scratch.path("a")).start().await.unwrap();
    a.terminate(PATIENCE).await.unwrap();
    // Directory `b` belongs to a cluster with a store of its own.
    let own =
        Setup::new(scratch.path("b")).flag("store", format!("file://{}", scratch.path("store").display()));
    let mut b = own.start().await.unwrap();
    b.terminate(PATIENCE).await.unwrap();
    let keys = bucket.keys();
    let (status, said) = bucket.setup(scratch.path("b")).refused().await.unwrap();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("cluster"), "{said}");
    assert_eq!(bucket.keys(), keys, "it wrote into a bucket that is not its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_directory_beside_the_original_does_not_serve_with_it() {
    let scratch = Scratch::new();
    let bucket = FakeS3::start(1).await;
    let setup = bucket.setup(scratch.path("data"));
    let mut node = setup.start().await.unwrap();
    let client = node.client().await.unwrap();
    client.send(http::Method::PUT, "/v1/stream/a", &[], "first".into()).await.unwrap();
    node.kill();
    copy_tree(&scratch.path("data"), &scratch.path("twin")).unwrap();
    let mut one = setup.start().await.unwrap();
    let client = one.client().await.unwrap();
    let append = |client: weir_tests::client::Client| async move {
        let headers = [("content-type", "application/octet-stream")];
        client.send(http::Method::POST, "/v1/stream/a", &headers, "x".into()).await
    };
    assert_eq!(append(client.clone()).await.unwrap().status, 204);
    let mut two = bucket.setup(scratch.path("twin")).spawn().unwrap();
    // The twin seals what it knows of, or is refused. Whichever serves on, the other must not acknowledge any more.
    let second = match two.ready(PATIENCE).await {
        Ok(addresses) => Some(weir_tests::client::Client::new(&addresses.client, PATIENCE)),
        Err(_refused) => None,
    };
    let Some(second) = second else { return };
    let first_acks = append(client).await.is_ok_and(|a| a.status == 204);
    let second_acks = append(second).await.is_ok_and(|a| a.status == 204);
    assert!(!(first_acks && second_acks), "both copies acknowledge appends to one stream");
}
