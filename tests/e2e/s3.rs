//! The protocol, and a bucket that goes away, over a real S3 server. `make s3` runs these.

use std::time::Duration;

use weir_tests::files::Scratch;
use weir_tests::rng::seed;
use weir_tests::s3::{FaultProxy, Outage, RealBucket};

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
