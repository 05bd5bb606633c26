//! Streams move on purpose: one at a time and all of a node's, under load, with either side dying in between. Nothing
//! acknowledged is lost or doubled, readers go on, and clients notice next to nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use weir_tests::cli::Weir;
use weir_tests::client::{Client, Failure};
use weir_tests::live::Reader;
use weir_tests::load::{Load, Shape};
use weir_tests::node::{PATIENCE, Setup, aborted, has_fault_points};
use weir_tests::rng::{Rng, seed};
use weir_tests::rounds::hurried;
use weir_tests::wait;

use super::cluster::{Three, asked};

const TEXT: [(&str, &str); 1] = [("content-type", "text/plain")];
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// A door serves every stream; long enough for a loaded machine not to fence the healthy.
fn doors(setup: Setup) -> Setup {
    setup
        .flag("node-timeout", "5s")
        .flag("lease", "2s")
        .flag("request-timeout", "10s")
        .flag("routing", "forward")
}

/// What one try of an append came to.
enum Tried {
    Acknowledged,
    /// Nothing entered the order.
    Refused,
    Unknown,
}

async fn try_append(client: &Client, path: &str, n: u64) -> Tried {
    match client.send(Method::POST, path, &TEXT, format!("{n}\n").into()).await {
        Ok(answer) if answer.status == 204 => Tried::Acknowledged,
        Ok(answer) if answer.status == 503 => Tried::Refused,
        Err(Failure::NotSent(_)) => Tried::Refused,
        Ok(_) | Err(_) => Tried::Unknown,
    }
}

/// Appends one number after the other to a stream; each is tried again once, a second later.
struct Writer {
    path: String,
    acknowledged: Arc<AtomicUsize>,
    task: JoinHandle<Written>,
}

#[derive(Default)]
struct Written {
    acknowledged: Vec<u64>,
    /// Refused twice, or unknown.
    failed: Vec<u64>,
}

impl Writer {
    fn start(client: Client, path: String, pause: Duration, stop: Arc<AtomicBool>) -> Self {
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let (count, to) = (acknowledged.clone(), path.clone());
        let task = tokio::spawn(async move {
            let mut written = Written::default();
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let mut tried = try_append(&client, &to, n).await;
                if matches!(tried, Tried::Refused) {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    tried = try_append(&client, &to, n).await;
                }
                match tried {
                    Tried::Acknowledged => {
                        written.acknowledged.push(n);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Tried::Refused | Tried::Unknown => written.failed.push(n),
                }
                tokio::time::sleep(pause).await;
            }
            written
        });
        Self { path, acknowledged, task }
    }
}

/// Writers behind one door.
struct Writers {
    door: Client,
    stop: Arc<AtomicBool>,
    all: Vec<Writer>,
}

impl Writers {
    /// One on each of these streams, which exist.
    fn start(door: &Client, paths: impl IntoIterator<Item = String>, pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |path| Writer::start(door.clone(), path, pause, stop.clone());
        Self { door: door.clone(), all: paths.into_iter().map(start).collect(), stop }
    }

    /// Waits until each has had a few more appends acknowledged.
    async fn all_append(&self, when: &str) -> Result<()> {
        let count = |w: &Writer| w.acknowledged.load(Ordering::Relaxed);
        let targets: Vec<_> = self.all.iter().map(|w| count(w) + 3).collect();
        let all =
            async || Ok(self.all.iter().zip(&targets).all(|(w, target)| count(w) >= *target).then_some(()));
        wait::until(&format!("appends {when}"), PATIENCE, all).await
    }

    /// Stops them and reads everything back: what was acknowledged is there once and in order, and nothing that nobody
    /// wrote. Gives how many appends failed although they were tried twice.
    async fn verify(self) -> Result<usize> {
        self.stop.store(true, Ordering::Relaxed);
        let mut failed = 0;
        for writer in self.all {
            let written = writer.task.await?;
            let path = &writer.path;
            let numbers = read(&self.door, path).await?;
            ensure!(numbers.is_sorted_by(|a, b| a < b), "{path}: {numbers:?}");
            for n in &written.acknowledged {
                ensure!(numbers.binary_search(n).is_ok(), "{path}: {n} was acknowledged and is lost");
            }
            failed += written.failed.len();
        }
        Ok(failed)
    }
}

/// All numbers in a stream.
async fn read(client: &Client, path: &str) -> Result<Vec<u64>> {
    let mut text = Vec::new();
    let mut offset = "-1".to_owned();
    let end = Instant::now() + PATIENCE;
    loop {
        ensure!(Instant::now() < end, "{path} cannot be read to its end");
        let answer = client.send(Method::GET, &format!("{path}?offset={offset}"), &[], "".into()).await;
        let answer = answer.map_err(|e| anyhow!("{path}: {e:?}"))?;
        if answer.status == 503 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        ensure!(answer.status == 200, "{path}: {}", answer.status);
        text.extend_from_slice(&answer.body);
        if answer.flag("stream-up-to-date") {
            break;
        }
        offset = answer.header("stream-next-offset").context("a next offset")?.to_owned();
    }
    let text = String::from_utf8(text)?;
    text.lines().map(|line| line.parse().with_context(|| format!("{path}: {line:?}"))).collect()
}

async fn create(door: &Client, name: &str) -> Result<String> {
    let path = format!("/v1/stream/{name}");
    let put = door.send(Method::PUT, &path, &TEXT, "".into()).await.map_err(|e| anyhow!("{e:?}"))?;
    ensure!(put.status == 201, "{path}: {}", put.status);
    Ok(path)
}

/// `None`: nobody has it, or it is gone.
async fn owner(admin: &Client, name: &str) -> Result<Option<usize>> {
    let answer = admin.send(Method::GET, &format!("/admin/streams/{name}"), &[], "".into()).await;
    let answer = answer.map_err(|e| anyhow!("{e:?}"))?;
    let status: Value = serde_json::from_slice(&answer.body)?;
    let node = status["ownership"]["node"].as_str();
    node.map(|n| Ok(n.trim_start_matches("node-").parse()?)).transpose()
}

/// Asks for a transfer; gives status and body.
async fn transfer(admin: &Client, name: &str, to: usize) -> Result<(u16, Value)> {
    let body = json!({"stream": name, "toNode": format!("node-{to}")}).to_string();
    let answer = admin.send(Method::POST, "/admin/transfer", &JSON, body.into()).await;
    let answer = answer.map_err(|e| anyhow!("{e:?}"))?;
    Ok((answer.status, serde_json::from_slice(&answer.body)?))
}

/// Asks until the stream is there.
async fn transferred(admin: &Client, name: &str, to: usize) -> Result<()> {
    let done = async || match transfer(admin, name, to).await? {
        (200, status) if status["state"] == "done" => Ok(Some(())),
        (202, _) | (503, _) => Ok(None),
        other => bail!("{name} to node {to}: {other:?}"),
    };
    wait::until(&format!("{name} at node {to}"), PATIENCE, done).await
}

/// Mixed load through one door while its streams go round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_under_mixed_load_break_no_promise() {
    let seed = seed();
    println!("WEIR_SEED={seed}");
    let mut rng = Rng::new(seed);
    let mut three = Three::start_with(|setup| hurried(doors(setup))).await.unwrap();
    let address = three.nodes[0].addresses().await.unwrap().client;
    let admin = three.nodes[1].admin().await.unwrap();
    let load = Load::new(rng.below(1 << 30), Shape { deadline: PATIENCE, ..Shape::default() });
    let running = load.run(&address, &mut rng);
    load.progress(0, 200).await.unwrap();
    let mut moved = 0;
    for round in 0..18 {
        let (name, to) = (format!("load-{}", round % load.shape.streams), rng.index(3));
        // Some of them are deleted now and then.
        match transfer(&admin, &name, to).await.unwrap() {
            (200 | 202, status) => moved += usize::from(status["state"] != "done"),
            (404, _) => {}
            other => panic!("{name} to node {to}: {other:?}"),
        }
        load.progress(load.history.now(), 20).await.unwrap();
    }
    assert!(moved > 3, "the streams stayed where they were");
    running.stop().await;
    load.verify(&address, &mut rng).await.unwrap();
}

/// An event stream and long-polls, through a door, of a stream that goes round twice while it is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_go_on_at_the_target() {
    let mut three = Three::start_with(doors).await.unwrap();
    let door = three.nodes[0].client().await.unwrap();
    let admin = three.nodes[0].admin().await.unwrap();
    let path = create(&door, "s").await.unwrap();
    let address = three.nodes[2].addresses().await.unwrap().client;
    let events = tokio::spawn(async move {
        let (mut reader, mut text) = (Reader::new("s"), String::new());
        let take = |_, data: &str| {
            text.push_str(data);
            Ok(())
        };
        reader.read_to_end(|| address.clone(), take, || {}).await.map(|()| (text, reader.responses))
    });
    let polls = {
        let (door, path) = (three.nodes[1].client().await.unwrap(), path.clone());
        tokio::spawn(async move { poll_to_end(&door, &path).await })
    };
    let writers = Writers::start(&door, [path.clone()], Duration::from_millis(5));
    writers.all_append("before anything moves").await.unwrap();
    for to in [0, 1, 2, 0, 1, 2] {
        transferred(&admin, "s", to).await.unwrap();
        writers.all_append("after a transfer").await.unwrap();
    }
    let stop = writers.stop.clone();
    stop.store(true, Ordering::Relaxed);
    assert_eq!(writers.verify().await.unwrap(), 0, "no append failed that was tried twice");
    let closed = door.send(Method::POST, &path, &[("stream-closed", "true")], "".into()).await.unwrap();
    assert_eq!(closed.status, 204);
    let whole: Vec<u64> = read(&door, &path).await.unwrap();
    let (text, responses) = tokio::time::timeout(PATIENCE, events).await.unwrap().unwrap().unwrap();
    let lines = |text: &str| text.lines().map(|l| l.parse().unwrap()).collect::<Vec<u64>>();
    assert_eq!(lines(&text), whole, "the event stream");
    assert!(responses > 1, "it was sent away");
    let polled = tokio::time::timeout(PATIENCE, polls).await.unwrap().unwrap().unwrap();
    assert_eq!(lines(&polled), whole, "long-polls");
}

async fn poll_to_end(door: &Client, path: &str) -> Result<String> {
    let (mut text, mut offset) = (String::new(), "-1".to_owned());
    loop {
        let target = format!("{path}?offset={offset}&live=long-poll");
        let answer = match door.send(Method::GET, &target, &[], "".into()).await {
            Ok(answer) => answer,
            Err(e) => bail!("{target}: {e:?}"),
        };
        match answer.status {
            200 | 204 => {}
            503 => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            status => bail!("{target}: {status}"),
        }
        text.push_str(std::str::from_utf8(&answer.body)?);
        if answer.flag("stream-closed") {
            return Ok(text);
        }
        offset = answer.header("stream-next-offset").context("a next offset")?.to_owned();
    }
}

/// So many streams, all open and spread over the nodes, with one number in each. Gives their paths.
async fn many(door: &Client, streams: usize) -> Result<Vec<String>> {
    let paths: Vec<String> = (0..streams).map(|n| format!("/v1/stream/many-{n}")).collect();
    let (turn, busy) = (Arc::new(AtomicUsize::new(0)), 32.min(streams));
    let making = (0..busy).map(|_| {
        let (door, turn, paths) = (door.clone(), turn.clone(), paths.clone());
        tokio::spawn(async move {
            loop {
                let Some(path) = paths.get(turn.fetch_add(1, Ordering::Relaxed)) else { return Ok(()) };
                for (method, status) in [(Method::PUT, 201), (Method::POST, 204)] {
                    let body = if status == 204 { "1000000000\n" } else { "" };
                    let end = Instant::now() + PATIENCE;
                    loop {
                        let sent = door.send(method.clone(), path, &TEXT, body.into()).await;
                        let answer = sent.map_err(|e| anyhow!("{path}: {e:?}"))?;
                        if answer.status == status {
                            break;
                        }
                        // Nothing was changed: the node is busy with the others.
                        ensure!(answer.status == 503 && Instant::now() < end, "{path}: {}", answer.status);
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        })
    });
    for made in making.collect::<Vec<_>>() {
        made.await??;
    }
    Ok(paths)
}

async fn until_drained(admin: &Client, node: usize) -> Result<()> {
    let drained = async || {
        let status = asked(admin, &format!("/admin/nodes/node-{node}/drain")).await?;
        ensure!(status["state"] != "gaveUp", "{status}");
        Ok((status["state"] == "drained").then_some(()))
    };
    wait::until("the drain", PATIENCE, drained).await
}

/// Writers at another node and at the one that is drained; each append that is refused is tried again once.
async fn drain(streams: usize) {
    let mut three = Three::start_with(doors).await.unwrap();
    let (door, own) = (three.nodes[0].client().await.unwrap(), three.nodes[1].client().await.unwrap());
    let mut weir = Weir::new("127.0.0.1:1");
    weir.admin = format!("http://{}", three.nodes[2].addresses().await.unwrap().admin);
    let paths = many(&door, streams).await.unwrap();
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for n in 0..30 {
        here.push(create(&door, &format!("here-{n}")).await.unwrap());
        there.push(create(&own, &format!("there-{n}")).await.unwrap());
    }
    let pause = Duration::from_millis(20);
    let writers = [Writers::start(&door, here, pause), Writers::start(&own, there, pause)];
    for some in &writers {
        some.all_append("before the drain").await.unwrap();
    }
    let admin = three.nodes[0].admin().await.unwrap();
    let open = asked(&admin, "/admin/nodes").await.unwrap()["nodes"][1]["openStreams"].as_u64().unwrap();
    assert!(open as usize > streams / 4, "{open} streams are open at the node");
    let began = Instant::now();
    let told = weir.run(&["admin", "drain", "node-1", "--wait"]).await.ok();
    println!("{open} open streams drained in {:?}", began.elapsed());
    assert_eq!(told, "node-1: drained\n");
    for some in &writers {
        some.all_append("after the drain").await.unwrap();
    }
    let nodes = asked(&admin, "/admin/nodes").await.unwrap();
    assert_eq!(
        (&nodes["nodes"][1]["draining"], &nodes["nodes"][1]["assignedStreams"]),
        (&json!(true), &json!(0))
    );
    for some in writers {
        assert_eq!(some.verify().await.unwrap(), 0, "no append failed that was tried twice");
    }
    for path in paths.iter().step_by(7) {
        assert_eq!(read(&door, path).await.unwrap(), [1_000_000_000]);
    }
    // It has nothing to do any more.
    let status = three.nodes[1].terminate(PATIENCE).await.unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_under_load_fails_no_request_that_is_tried_twice() {
    drain(300).await;
}

/// The aim is ten seconds; the time is printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: a measurement, for `make soak`"]
async fn a_drain_of_ten_thousand_open_streams() {
    drain(30_000).await;
}

/// With everything that is refused, as a person meets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drains_and_transfers_are_told_what_they_may_not() {
    let mut three = Three::start_with(doors).await.unwrap();
    let door = three.nodes[0].client().await.unwrap();
    let mut weir = Weir::new("127.0.0.1:1");
    weir.admin = format!("http://{}", three.nodes[0].addresses().await.unwrap().admin);
    many(&door, 9).await.unwrap();
    let moved = weir.run(&["admin", "transfer", "many-0", "node-2", "--wait"]).await.ok();
    assert_eq!(moved, "many-0 is at node-2\n");
    let again: Value =
        serde_json::from_str(&weir.run(&["admin", "transfer", "many-0", "node-2", "--json"]).await.ok())
            .unwrap();
    assert_eq!(again["state"], "done");
    assert_eq!(weir.run(&["admin", "drain", "node-1", "--wait"]).await.ok(), "node-1: drained\n");
    assert_eq!(weir.run(&["admin", "drain", "node-2", "--wait"]).await.ok(), "node-2: drained\n");
    for (args, code, says) in [
        (&["admin", "drain", "node-0"][..], 8, "no other node could take them"),
        (&["admin", "drain", "node-9"], 7, "no node node-9"),
        (&["admin", "transfer", "many-0", "node-2"], 8, "it is draining"),
        (&["admin", "transfer", "many-0", "node-9"], 7, "no node node-9"),
        (&["admin", "transfer", "nothing", "node-0"], 7, "no stream has the name"),
        (&["admin", "transfer", "many-0", "node-0", "--cancel"], 7, "no transfer of"),
        (&["admin", "drain", "node-0", "--wait", "--cancel"], 2, "cannot be used with"),
    ] {
        let ended = weir.run(args).await;
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        assert!(ended.err.contains(says), "{args:?}: {ended:?}");
    }
    let cancelled = weir.run(&["admin", "drain", "node-1", "--cancel"]).await.ok();
    assert_eq!(cancelled, "node-1: not draining; it has 0 streams\n");
    assert_eq!(weir.run(&["admin", "drain", "node-0", "--wait"]).await.ok(), "node-0: drained\n");
    let admin = three.nodes[0].admin().await.unwrap();
    assert_eq!(owner(&admin, "many-0").await.unwrap(), Some(1), "the only one that is left");
}

/// The node is told to stop while it drains: it ends in order, and everything is at the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_during_a_drain_ends_in_order() {
    let mut three = Three::start_with(doors).await.unwrap();
    let door = three.nodes[0].client().await.unwrap();
    let admin = three.nodes[0].admin().await.unwrap();
    let paths = many(&door, 120).await.unwrap();
    let mut written = Vec::new();
    for n in 0..9 {
        written.push(create(&door, &format!("written-{n}")).await.unwrap());
    }
    let writers = Writers::start(&door, written, Duration::from_millis(10));
    writers.all_append("before the drain").await.unwrap();
    let begun = admin.send(Method::POST, "/admin/nodes/node-2/drain", &[], "".into()).await.unwrap();
    assert!(matches!(begun.status, 200 | 202), "{begun:?}");
    let status = three.nodes[2].terminate(PATIENCE).await.unwrap();
    assert!(status.success(), "{status}");
    assert!(three.nodes[2].log().contains("session ended"), "{}", three.nodes[2].log_tail());
    until_drained(&admin, 2).await.unwrap();
    writers.all_append("afterwards").await.unwrap();
    writers.verify().await.unwrap();
    for path in &paths {
        assert_eq!(read(&door, path).await.unwrap(), [1_000_000_000]);
    }
}

/// One side of a transfer dies at a point between two of its steps; the stream goes on without it, and the node comes
/// back.
async fn dies(side: Side, point: &'static str) {
    assert!(has_fault_points(), "build with --features fault-points");
    let mortal = move |setup: Setup| match setup.flags.contains(&"--node-id=node-1".to_owned()) {
        true => setup.env("WEIR_FAULT_POINT", point),
        false => setup,
    };
    let mut three = Three::start_with(move |setup| mortal(doors(setup))).await.unwrap();
    let door = Client::new(&three.nodes[0].addresses().await.unwrap().client, Duration::from_secs(15));
    let admin = three.nodes[0].admin().await.unwrap();
    let path = create(&door, "s").await.unwrap();
    let (from, to) = match side {
        Side::Source => (1, 2),
        Side::Target => (2, 1),
    };
    // Placed, it goes at once.
    transfer(&admin, "s", from).await.unwrap();
    let writers = Writers::start(&door, [path], Duration::from_millis(5));
    writers.all_append("at the source").await.unwrap();
    assert_eq!(owner(&admin, "s").await.unwrap(), Some(from));
    let (status, body) = transfer(&admin, "s", to).await.unwrap();
    assert!(matches!(status, 200 | 202), "{body}");
    let ended = three.nodes[1].exit(PATIENCE).await.unwrap();
    assert!(aborted(ended), "{ended}: {}", three.nodes[1].log_tail());
    writers.all_append("without it").await.unwrap();
    let seed = three.nodes[0].addresses().await.unwrap().peer;
    let mut back = three.setup(1).flag("join", seed);
    back.env.clear();
    three.nodes[1] = back.start().await.unwrap();
    transferred(&admin, "s", 1).await.unwrap();
    writers.all_append("after its return").await.unwrap();
    writers.verify().await.unwrap();
}

#[derive(Clone, Copy)]
enum Side {
    Source,
    Target,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_dies_with_appends_stopped_is_taken_over() {
    dies(Side::Source, "handover.stopped").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_dies_before_it_lets_go_is_taken_over() {
    dies(Side::Source, "release.before_propose").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_dies_after_it_let_go_holds_nobody_up() {
    dies(Side::Source, "release.after_propose").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_dies_before_it_opens_leaves_the_stream_to_others() {
    dies(Side::Target, "handover.arrived").await;
}

/// The source hangs with the stream in its hands: it is fenced, which ends the transfer, and the stream is recovered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_hangs_does_not_hold_its_stream() {
    let mut three = Three::start_with(doors).await.unwrap();
    let door = Client::new(&three.nodes[0].addresses().await.unwrap().client, Duration::from_secs(15));
    let admin = three.nodes[0].admin().await.unwrap();
    let path = create(&door, "s").await.unwrap();
    transfer(&admin, "s", 1).await.unwrap();
    let writers = Writers::start(&door, [path], Duration::from_millis(5));
    writers.all_append("at the source").await.unwrap();
    three.nodes[1].signal(Signal::STOP);
    let (status, body) = transfer(&admin, "s", 2).await.unwrap();
    assert_eq!((status, body["state"].as_str()), (202, Some("pending")));
    writers.all_append("without it").await.unwrap();
    let stream = asked(&admin, "/admin/streams/s").await.unwrap();
    assert!(stream.get("transfer").is_none(), "{stream}");
    writers.verify().await.unwrap();
    three.nodes[1].signal(Signal::CONT);
    let ended = three.nodes[1].exit(PATIENCE).await.unwrap();
    assert_eq!(ended.code(), Some(4), "{}", three.nodes[1].log_tail());
}

/// The source hangs, and nobody holds that against it for as long as the test runs. Gives the cluster with the transfer
/// pending, and the clients of the target.
async fn hung_in_a_transfer() -> (Three, Client, Client) {
    let patient = |setup: Setup| {
        let setup = setup.flag("node-timeout", "10m").flag("lease", "5m");
        setup.flag("request-timeout", "1s").flag("routing", "forward")
    };
    let mut three = Three::start_with(patient).await.unwrap();
    let (door, admin) = (three.nodes[2].client().await.unwrap(), three.nodes[2].admin().await.unwrap());
    create(&door, "s").await.unwrap();
    // Placed, it goes at once, and is opened by the first append.
    transfer(&admin, "s", 1).await.unwrap();
    appended(&door, 0).await;
    assert_eq!(owner(&admin, "s").await.unwrap(), Some(1));
    three.nodes[1].signal(Signal::STOP);
    // Whoever leads now.
    let begun = async || match transfer(&admin, "s", 2).await? {
        (202, status) if status["state"] == "pending" => Ok(Some(())),
        (503, _) => Ok(None),
        other => bail!("{other:?}"),
    };
    wait::until("a transfer", PATIENCE, begun).await.unwrap();
    let pending = async || Ok(asked(&admin, "/admin/streams/s").await?.get("transfer").cloned());
    wait::until("the target to know of it", PATIENCE, pending).await.unwrap();
    (three, door, admin)
}

/// Appends until it is acknowledged.
async fn appended(door: &Client, n: u64) {
    let done = async || match try_append(door, "/v1/stream/s", n).await {
        Tried::Acknowledged => Ok(Some(())),
        Tried::Refused => Ok(None),
        Tried::Unknown => bail!("nobody knows whether {n} was appended"),
    };
    wait::until("an append", PATIENCE, done).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_waits_in_vain_for_its_stream_says_try_again() {
    let (three, door, admin) = hung_in_a_transfer().await;
    let began = Instant::now();
    let answer = door.send(Method::POST, "/v1/stream/s", &TEXT, "1\n".into()).await.unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{answer:?}");
    // As long as such a wait is with this request-timeout; 10 s where that is longer.
    assert!(began.elapsed() >= Duration::from_secs(1), "it does not wait");
    three.nodes[1].signal(Signal::CONT);
    let there = async || Ok((owner(&admin, "s").await? == Some(2)).then_some(()));
    wait::until("the stream at its target", PATIENCE, there).await.unwrap();
    appended(&door, 2).await;
    assert_eq!(read(&door, "/v1/stream/s").await.unwrap(), [0, 2], "nothing of what was refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes half a minute: for `make soak`; streams::tests::handover does it on a clock of its own"]
async fn a_transfer_whose_source_hangs_is_called_off_after_thirty_seconds() {
    let (three, door, admin) = hung_in_a_transfer().await;
    let began = Instant::now();
    let over = async || Ok(asked(&admin, "/admin/streams/s").await?.get("transfer").is_none().then_some(()));
    wait::until("the transfer to be called off", PATIENCE * 2, over).await.unwrap();
    println!("called off after {:?}", began.elapsed());
    assert_eq!(owner(&admin, "s").await.unwrap(), Some(1));
    three.nodes[1].signal(Signal::CONT);
    appended(&door, 2).await;
    assert_eq!(read(&door, "/v1/stream/s").await.unwrap(), [0, 2]);
    assert_eq!(owner(&admin, "s").await.unwrap(), Some(1), "it goes on where it was");
}
