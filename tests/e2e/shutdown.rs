//! SIGTERM: every request that reached the node is answered, the process exits in time, and nothing is left to recover.

use weir_tests::files::Scratch;
use weir_tests::history::Outcome;
use weir_tests::load::{Load, Shape};
use weir_tests::node::{PATIENCE, Setup};
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
        load.progress(begin, 100).await.unwrap();
        // Whatever began before this moment has left its client when the signal comes: so much happened since.
        let mark = load.history.now();
        load.progress(mark, 100).await.unwrap();
        let status = node.terminate(PATIENCE).await.unwrap();
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

/// How many sessions the process found to recover at its start: those it has recovered and those that still wait.
async fn recovered(node: &mut weir_tests::node::Node) -> u64 {
    let metrics = node.admin().await.unwrap().get_text("/metrics").await.unwrap();
    let value = |name: &str| -> u64 {
        let line = metrics.lines().find(|l| l.starts_with(name) && !l.starts_with('#'));
        let line = line.unwrap_or_else(|| panic!("no {name} in\n{metrics}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64
    };
    // In this order a session that is recovered in between counts twice, never not at all.
    value("weir_sessions_awaiting_recovery") + value("weir_recovered_sessions_total")
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
    load.progress(0, 100).await.unwrap();
    bucket.set(Faults { outage: Some(Outage::Hangs), ..Faults::default() });
    let hangs = || async { Ok((bucket.unanswered() > 0).then_some(())) };
    weir_tests::wait::until("a request that hangs", PATIENCE, hangs).await.unwrap();
    let status = node.terminate(PATIENCE).await.unwrap();
    load.history.died();
    running.stop().await;
    assert!(status.success(), "{status}");
    bucket.set(Faults::default());
    let mut node = setup.start().await.unwrap();
    let address = node.addresses().await.unwrap().client;
    load.verify(&address, &mut rng).await.unwrap();
    assert_eq!(recovered(&mut node).await, 1);
}

/// One stream with one record in a fresh directory, through plain requests.
async fn append_one(node: &mut weir_tests::node::Node, name: &str) -> weir_tests::client::Client {
    let client = node.client().await.unwrap();
    let target = format!("/v1/stream/{name}");
    let headers = [("content-type", "text/plain")];
    let put = client.send(http::Method::PUT, &target, &headers, "".into()).await.unwrap();
    assert!(matches!(put.status, 200 | 201), "{}", put.status);
    assert_eq!(client.send(http::Method::POST, &target, &headers, "x".into()).await.unwrap().status, 204);
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_a_deleted_stream_do_not_hold_up_a_stop() {
    let scratch = Scratch::new();
    let setup = Setup::new(scratch.path("data"));
    let mut node = setup.start().await.unwrap();
    let client = append_one(&mut node, "short").await;
    let gone = client.send(http::Method::DELETE, "/v1/stream/short", &[], "".into()).await.unwrap();
    assert_eq!(gone.status, 204);
    assert!(node.terminate(PATIENCE).await.unwrap().success());
    let mut node = setup.start().await.unwrap();
    assert_eq!(recovered(&mut node).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_are_over_leave_no_wal_behind() {
    let scratch = Scratch::new();
    let setup = Setup::new(scratch.path("data"));
    for round in 0..4 {
        let mut node = setup.start().await.unwrap();
        append_one(&mut node, "kept").await;
        if round % 2 == 0 {
            node.terminate(PATIENCE).await.unwrap();
        } else {
            node.kill();
        }
    }
    let _node = setup.start().await.unwrap();
    let held = || async {
        let all = weir_tests::files::files(&setup.data).unwrap();
        let mut held: Vec<_> = all
            .iter()
            .filter(|f| f.extension().is_some_and(|e| e == "log") || f.to_string_lossy().contains("/spare-"))
            .filter_map(|f| f.parent().map(std::path::Path::to_path_buf))
            .collect();
        held.dedup();
        // Only the session that serves may hold any.
        Ok((held.len() <= 1).then_some(()))
    };
    weir_tests::wait::until("old WAL files to go", PATIENCE, held).await.unwrap();
}
