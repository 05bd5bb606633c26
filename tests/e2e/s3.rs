//! The protocol, a bucket that goes away, and nodes that share one, over a real S3 server. `make s3` runs these.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use http::Method;
use tokio::task::JoinHandle;
use weir_tests::client::Client;
use weir_tests::cluster::{Cluster, assigned};
use weir_tests::doors::Doors;
use weir_tests::files::Scratch;
use weir_tests::node::{PATIENCE, Setup};
use weir_tests::rng::seed;
use weir_tests::s3::{FaultProxy, Outage, RealBucket};

use weir_tests::wait;

use crate::{outage, protocol};

/// Long enough for every put under way to run into its deadline.
const AWAY: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an S3 server: make s3"]
async fn every_request_gets_its_exact_answer_from_a_real_bucket() {
    let (scratch, bucket) = (Scratch::new(), RealBucket::new().unwrap());
    protocol::run(bucket.access().setup(scratch.path("data"))).await;
}

async fn away(kind: Outage) {
    let (scratch, bucket, seed) = (Scratch::new(), RealBucket::new().unwrap(), seed());
    let proxy = FaultProxy::start(bucket.address(), seed).await;
    let setup = bucket.access_at(proxy.address()).setup(scratch.path("data"));
    outage::away(setup, |faults| proxy.set(faults), kind, AWAY, seed).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an S3 server: make s3"]
async fn a_real_bucket_whose_connections_are_cut() {
    away(Outage::Cuts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an S3 server: make s3"]
async fn a_real_bucket_that_does_not_answer() {
    away(Outage::Hangs).await;
}

const TEXT: [(&str, &str); 1] = [("content-type", "text/plain")];
const STREAMS: usize = 12;

/// Appends one number after the other through a node that lives, and gives those that were acknowledged.
struct Writer {
    acknowledged: Arc<AtomicUsize>,
    task: JoinHandle<Vec<usize>>,
}

impl Writer {
    fn start(client: Client, target: String, stop: Arc<AtomicBool>) -> Self {
        let count = Arc::new(AtomicUsize::new(0));
        let acknowledged = count.clone();
        let task = tokio::spawn(async move {
            let mut good = Vec::new();
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                match client.send(Method::POST, &target, &TEXT, format!("{n}\n").into()).await {
                    Ok(answer) if answer.status == 204 => {
                        good.push(n);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    // Whether it took effect or not: each number is tried once.
                    _ => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
            good
        });
        Self { acknowledged, task }
    }
}

async fn all_append(writers: &[Writer], when: &str) -> Result<()> {
    let targets: Vec<_> = writers.iter().map(|w| w.acknowledged.load(Ordering::Relaxed) + 5).collect();
    let all = async || {
        let each = writers.iter().zip(&targets);
        Ok(each.into_iter().all(|(w, t)| w.acknowledged.load(Ordering::Relaxed) >= *t).then_some(()))
    };
    wait::until(&format!("appends {when}"), PATIENCE, all).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an S3 server: make s3"]
async fn three_nodes_share_a_real_bucket_and_the_streams_of_one_that_dies_go_on() {
    let bucket = RealBucket::new().unwrap();
    let access = bucket.access();
    let change = move |_, setup: Setup| {
        let setup = access.of(setup).flag("routing", "forward").flag("request-timeout", "10s");
        setup.flag("node-timeout", "5s").flag("lease", "2s")
    };
    let mut cluster = Cluster::start(3, change).await.unwrap();
    let doors = Doors::of(&mut cluster.nodes).await.unwrap();
    let mut writers = Vec::new();
    let stop = Arc::new(AtomicBool::new(false));
    for s in 0..STREAMS {
        let target = format!("/v1/stream/shared/{s}");
        let none = Bytes::new();
        let made = doors.ask(s % 3, &Method::PUT, &target, &TEXT, &none).await.unwrap();
        assert_eq!(made.status, 201, "{made:?}");
        // Read where it was not written, at once.
        let read = doors.ask((s + 1) % 3, &Method::GET, &target, &[], &none).await.unwrap();
        assert_eq!((read.status, read.body.len()), (200, 0), "{read:?}");
        let hasty =
            Client::new(&cluster.nodes[s % 2].addresses().await.unwrap().client, Duration::from_secs(5));
        writers.push(Writer::start(hasty, target, stop.clone()));
    }
    let counts = assigned(&cluster.nodes[0].admin().await.unwrap()).await.unwrap();
    assert!(counts.iter().all(|n| *n > 0), "streams at the nodes: {counts:?}");
    all_append(&writers, "before anything happens").await.unwrap();
    cluster.nodes[2].kill();
    all_append(&writers, "after the loss of node 2").await.unwrap();
    stop.store(true, Ordering::Relaxed);
    for (s, writer) in writers.into_iter().enumerate() {
        let good = writer.task.await.unwrap();
        verify(&doors, s, &good).await.unwrap();
    }
}

/// All that was acknowledged is there, once and in order, by the word of both that are left.
async fn verify(doors: &Doors, s: usize, good: &[usize]) -> Result<()> {
    let target = format!("/v1/stream/shared/{s}");
    for node in 0..2 {
        let read = doors.ask(node, &Method::GET, &target, &[], &Bytes::new()).await?;
        ensure!(read.status == 200 && read.flag("stream-up-to-date"), "{target}: {read:?}");
        let numbers: Vec<usize> =
            std::str::from_utf8(&read.body)?.lines().map(str::parse).collect::<Result<_, _>>()?;
        ensure!(numbers.is_sorted_by(|a, b| a < b), "{target}: {numbers:?}");
        let lost = good.iter().find(|n| numbers.binary_search(n).is_err());
        ensure!(lost.is_none(), "{target}: {lost:?} was acknowledged and is lost");
    }
    Ok(())
}
