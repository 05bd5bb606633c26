//! SIGTERM: every request that reached the node is answered, the process exits in time, and nothing is left to recover.

use std::time::Duration;

use tokio::time::sleep;
use weir_tests::files::Scratch;
use weir_tests::history::Outcome;
use weir_tests::load::{Load, Shape};
use weir_tests::node::Setup;
use weir_tests::rng::{Rng, seed};
use weir_tests::s3::{FakeS3, Faults, Outage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load_cuts_nobody_and_leaves_nothing_to_recover() {
    let seed = seed();
    println!("WEIR_SEED={seed}");
    let mut rng = Rng::new(seed);
    let scratch = Scratch::new();
    let setup = Setup::new(scratch.path("data")).flag("long-poll-timeout", "20s");
    let load = Load::new(rng.below(1 << 30), Shape::default());
    for round in 0..3 {
        let mut node = setup.start().await.unwrap();
        let recovered = recovered(&mut node).await;
        assert_eq!(recovered, 0, "round {round}: the stop before left sessions to recover");
        let address = node.addresses().await.unwrap().client;
        let begin = load.history.now();
        let running = load.run(&address, &mut rng);
        sleep(Duration::from_millis(400)).await;
        // Whatever began before this moment has left its client when the signal comes.
        let mark = load.history.now();
        sleep(Duration::from_millis(20)).await;
        let status = node.terminate(Duration::from_secs(15)).await.unwrap();
        load.history.died();
        running.stop().await;
        assert!(status.success(), "{status}");
        let mut cut = load.history.account().ops;
        // A request on an idle connection may meet its end half way: only those under way at the signal count.
        cut.retain(|op| (begin..mark).contains(&op.began) && op.outcome == Outcome::Unknown);
        assert!(cut.is_empty(), "{} requests were cut, among them {:?}", cut.len(), cut[0]);
    }
    let mut node = setup.start().await.unwrap();
    assert_eq!(recovered(&mut node).await, 0);
    let address = node.addresses().await.unwrap().client;
    load.verify(&address, &mut rng).await.unwrap();
}

/// How many sessions this process recovered at its start.
async fn recovered(node: &mut weir_tests::node::Node) -> u64 {
    let metrics = node.admin().await.unwrap().get_text("/metrics").await.unwrap();
    let line = metrics.lines().find(|l| l.starts_with("weir_recovered_sessions_total"));
    let line = line.unwrap_or_else(|| panic!("no weir_recovered_sessions_total in\n{metrics}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_with_a_hanging_bucket_exits_all_the_same_and_the_next_start_recovers() {
    let seed = seed();
    println!("WEIR_SEED={seed}");
    let mut rng = Rng::new(seed);
    let scratch = Scratch::new();
    let bucket = FakeS3::start(seed).await;
    let setup = bucket
        .setup(scratch.path("data"))
        .flag("long-poll-timeout", "1s")
        .flag("request-timeout", "2s")
        .flag("shutdown-grace", "4s");
    let load = Load::new(rng.below(1 << 30), Shape::default());
    let mut node = setup.start().await.unwrap();
    let address = node.addresses().await.unwrap().client;
    let running = load.run(&address, &mut rng);
    sleep(Duration::from_millis(300)).await;
    bucket.set(Faults { outage: Some(Outage::Hangs), ..Faults::default() });
    sleep(Duration::from_millis(300)).await;
    let status = node.terminate(Duration::from_secs(12)).await.unwrap();
    load.history.died();
    running.stop().await;
    assert!(status.success(), "{status}");
    bucket.set(Faults::default());
    let mut node = setup.start().await.unwrap();
    let address = node.addresses().await.unwrap().client;
    load.verify(&address, &mut rng).await.unwrap();
    assert_eq!(recovered(&mut node).await, 1);
}
