//! A bucket that is away, and a store without put-if-absent. The node says so, and goes on by itself when it can;
//! nothing acknowledged is lost, no stream is stuck.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, sleep};
use weir_tests::files::Scratch;
use weir_tests::load::{Load, Shape};
use weir_tests::node::{PATIENCE, Setup};
use weir_tests::rng::{Rng, seed};
use weir_tests::s3::{FakeS3, Faults, Outage};

/// How long the bucket is away: a minute, or `WEIR_OUTAGE_S`.
fn outage_time() -> Duration {
    let s = std::env::var("WEIR_OUTAGE_S").map_or(60, |s| s.parse().expect("seconds"));
    Duration::from_secs(s)
}

async fn bucket_away(kind: Outage) -> Result<()> {
    let seed = seed();
    let scratch = Scratch::new();
    let bucket = FakeS3::start(seed).await;
    away(bucket.setup(scratch.path("data")), |faults| bucket.set(faults), kind, outage_time(), seed).await
}

/// A bucket under load that is away for a time; `set` decides what is wrong with it.
pub(crate) async fn away(
    setup: Setup,
    set: impl Fn(Faults),
    kind: Outage,
    time: Duration,
    seed: u64,
) -> Result<()> {
    println!("WEIR_SEED={seed}");
    let mut rng = Rng::new(seed);
    let setup = setup.flag("long-poll-timeout", "500ms").flag("request-timeout", "3s");
    let load = Load::new(rng.below(1 << 30), Shape::default());
    let mut node = setup.start().await?;
    let address = node.addresses().await?.client;
    let running = load.run(&address, &mut rng);
    load.progress(0, 100).await?;

    let since = Instant::now();
    set(Faults { outage: Some(kind), ..Faults::default() });
    let why = node.unready_for(&["store"]).await.context("the bucket is away")?;
    ensure!(why.starts_with("the store "), "the reason does not begin with the store: {why}");
    sleep(time.saturating_sub(since.elapsed())).await;
    ensure!(node.try_exit()?.is_none(), "the node ended\n{}", node.log_tail());

    set(Faults::default());
    node.ready(PATIENCE).await.context("the bucket is back")?;
    // It serves on: load over it, before anything restarts.
    load.progress(load.history.now(), 100).await?;
    running.stop().await;
    load.touch_all(&address, &mut rng).await?;
    node.kill();
    load.history.died();
    let mut node = setup.start().await?;
    let address = node.addresses().await?.client;
    load.verify(&address, &mut rng).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_errs_for_a_minute() {
    bucket_away(Outage::Errors).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_hangs_for_a_minute() {
    bucket_away(Outage::Hangs).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_without_put_if_absent_is_refused_by_the_name_of_the_property() {
    let scratch = Scratch::new();
    let bucket = FakeS3::start(1).await;
    bucket.set(Faults { overwrites: true, ..Faults::default() });
    let mut node = bucket.setup(scratch.path("data")).spawn().unwrap();
    let status = node.exit(PATIENCE).await.unwrap();
    let said = node.log();
    assert_eq!(status.code(), Some(5), "{said}");
    assert!(said.contains("put-if-absent"), "{said}");
}
