//! Event streams from real nodes: many readers of many streams, readers that stop reading, restarts and releases.
//!
//! Every record says where it belongs, so that a reader sees at once what is lost, doubled, or another stream's.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use weir_tests::client::Client;
use weir_tests::files::Scratch;
use weir_tests::live::{End, Reader};
use weir_tests::node::{Node, PATIENCE, Setup};
use weir_tests::wait;

const RECORD: u64 = 16;

/// Record `n` of stream `s`: 16 bytes.
fn record(s: usize, n: u64) -> String {
    format!("{s:05}-{n:09};")
}

fn name(s: usize) -> String {
    format!("live/{s:05}")
}

/// Checks that `text` is what stream `s` holds at `at`.
fn check(s: usize, at: u64, text: &str) -> Result<()> {
    ensure!(
        at.is_multiple_of(RECORD) && (text.len() as u64).is_multiple_of(RECORD),
        "{at}, {} bytes",
        text.len()
    );
    for (part, n) in text.as_bytes().chunks(RECORD as usize).zip(at / RECORD..) {
        let part = String::from_utf8_lossy(part);
        ensure!(part == record(s, n), "{part:?} where {:?} belongs", record(s, n));
    }
    Ok(())
}

/// Room for `wanted` sockets in this process (the node sees to its own).
fn raise_limit(wanted: usize) {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let room = limit.maximum.unwrap_or(u64::MAX);
    assert!(
        room >= wanted as u64,
        "{room} open files are allowed here, the test needs {wanted}: raise ulimit -n"
    );
}

fn resident(node: &Node) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid().as_raw_nonzero())).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// A metric's value; 0 if it is not there.
async fn metric(node: &mut Node, name: &str) -> f64 {
    let text = node.admin().await.unwrap().get_text("/metrics").await.unwrap();
    let line = text.lines().find(|l| l.split(' ').next() == Some(name));
    line.and_then(|l| l.rsplit(' ').next()).map_or(0.0, |v| v.parse().unwrap())
}

async fn create(client: &Client, name: &str) {
    let target = format!("/v1/stream/{name}");
    let answer = client.send(Method::PUT, &target, &[("content-type", "text/plain")], Bytes::new()).await;
    assert_eq!(answer.unwrap().status, 201, "{name}");
}

/// Appends records `0..count`, each exactly once whatever becomes of the node, and closes with the last.
async fn write(address: impl Fn() -> String, s: usize, count: u64) -> Result<()> {
    let target = format!("/v1/stream/{}", name(s));
    let mut client = Client::new(&address(), Duration::from_secs(20));
    for n in 0..count {
        let seq = n.to_string();
        let mut headers = vec![
            ("content-type", "text/plain"),
            ("producer-id", "w"),
            ("producer-epoch", "0"),
            ("producer-seq", &seq),
        ];
        if n + 1 == count {
            headers.push(("stream-closed", "true"));
        }
        loop {
            match client.send(Method::POST, &target, &headers, record(s, n).into()).await {
                Ok(answer) if matches!(answer.status, 200 | 204) => break,
                Ok(answer) => ensure!(matches!(answer.status, 503 | 504), "{target} {n}: {answer:?}"),
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            client = Client::new(&address(), Duration::from_secs(20));
        }
    }
    Ok(())
}

async fn all(mut tasks: JoinSet<Result<()>>, what: &str, deadline: Duration) {
    let end = Instant::now() + deadline;
    while let Some(done) = tokio::time::timeout_at(end, tasks.join_next()).await.unwrap_or_else(|_| {
        panic!("{what}: {} still at it after {deadline:?}", tasks.len());
    }) {
        done.unwrap().unwrap();
    }
}

/// `readers` of `streams` streams, with a writer each that appends `records`.
async fn many(streams: usize, readers: usize, records: u64, lifetime: &str) {
    const DEADLINE: Duration = Duration::from_secs(300);
    raise_limit(readers + streams + 256);
    let scratch = Scratch::new();
    let mut node = Setup::new(scratch.path("data")).flag("sse-lifetime", lifetime).start().await.unwrap();
    let address = node.addresses().await.unwrap().client;
    let client = Client::new(&address, Duration::from_secs(60));
    for s in 0..streams {
        create(&client, &name(s)).await;
    }
    let before = resident(&node);
    let (here, responses, controls) =
        (Arc::new(AtomicUsize::new(0)), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let mut reading = JoinSet::new();
    for r in 0..readers {
        let (address, s) = (address.clone(), r % streams);
        let (here, responses, controls) = (here.clone(), responses.clone(), controls.clone());
        reading.spawn(async move {
            let (mut reader, mut first) = (Reader::new(&name(s)), true);
            let arrived = || {
                here.fetch_add(usize::from(std::mem::take(&mut first)), Ordering::Relaxed);
                controls.fetch_add(1, Ordering::Relaxed);
            };
            reader.read_to_end(|| address.clone(), |at, text| check(s, at, text), arrived).await?;
            ensure!(reader.at == records * RECORD, "{}: ended at {}", reader.path, reader.at);
            responses.fetch_add(reader.responses as usize, Ordering::Relaxed);
            Ok(())
        });
    }
    let arrived = || async { Ok((here.load(Ordering::Relaxed) == readers).then_some(())) };
    wait::until("every reader's first event", DEADLINE, arrived).await.unwrap();
    assert!(metric(&mut node, "weir_live_readers{kind=\"sse\"}").await > 0.0);
    let waiting = resident(&node);

    let since = Instant::now();
    let mut writing = JoinSet::new();
    for s in 0..streams {
        let address = address.clone();
        writing.spawn(async move { write(|| address.clone(), s, records).await });
    }
    all(writing, "writers", DEADLINE).await;
    let written = since.elapsed();
    let under_way = resident(&node);
    all(reading, "readers", DEADLINE).await;
    let deliveries = readers as u64 * records;
    println!(
        "{readers} readers of {streams} streams: {} bytes of memory each when they wait, {} under way; {} records \
         written in {:.2} s, {deliveries} delivered in {:.2} s, in {} events over {} responses",
        waiting.saturating_sub(before) / readers as u64,
        under_way.saturating_sub(before) / readers as u64,
        streams as u64 * records,
        written.as_secs_f64(),
        since.elapsed().as_secs_f64(),
        controls.load(Ordering::Relaxed),
        responses.load(Ordering::Relaxed),
    );
    assert!(responses.load(Ordering::Relaxed) >= readers);
    wait_for_no_readers(&mut node).await.unwrap();
}

async fn wait_for_no_readers(node: &mut Node) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while metric(node, "weir_live_readers{kind=\"sse\"}").await > 0.0 {
        ensure!(Instant::now() < end, "readers are counted that are gone");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_of_many_streams_lose_nothing_and_get_nothing_twice() {
    // Connections end and begin again all the while.
    many(200, 2_000, 20, "1s").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a benchmark: make bench"]
async fn live_ten_thousand_readers_of_a_thousand_streams() {
    many(1_000, 10_000, 20, "20s").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stream_feeds_a_thousand_readers() {
    many(1, 1_000, 100, "60s").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_go_on_by_offset_through_kills_and_stops() {
    const STREAMS: usize = 8;
    const RECORDS: u64 = 300;
    let scratch = Scratch::new();
    let setup = weir_tests::rounds::hurried(Setup::new(scratch.path("data"))).flag("sse-lifetime", "500ms");
    let mut node = setup.start().await.unwrap();
    let address = Arc::new(Mutex::new(node.addresses().await.unwrap().client));
    let client = node.client().await.unwrap();
    let (read, mut work) = (Arc::<AtomicUsize>::default(), JoinSet::new());
    for s in 0..STREAMS {
        create(&client, &name(s)).await;
    }
    for s in 0..STREAMS {
        let at = address.clone();
        work.spawn(async move { write(move || at.lock().unwrap().clone(), s, RECORDS).await });
        for _ in 0..3 {
            let (at, read) = (address.clone(), read.clone());
            work.spawn(async move {
                let mut reader = Reader::new(&name(s));
                let take = |at, text: &str| {
                    read.fetch_add(text.len(), Ordering::Relaxed);
                    check(s, at, text)
                };
                reader.read_to_end(|| at.lock().unwrap().clone(), take, || {}).await?;
                ensure!(reader.at == RECORDS * RECORD, "{}: ended at {}", reader.path, reader.at);
                Ok(())
            });
        }
    }
    let total = STREAMS * 3 * (RECORDS * RECORD) as usize;
    for quarter in 1..4 {
        let enough = || async { Ok((read.load(Ordering::Relaxed) >= total * quarter / 4).then_some(())) };
        wait::until("a quarter more to be read", Duration::from_secs(60), enough).await.unwrap();
        if quarter == 2 {
            assert!(node.terminate(PATIENCE).await.unwrap().success());
        } else {
            node.kill();
        }
        node = setup.start().await.unwrap();
        *address.lock().unwrap() = node.addresses().await.unwrap().client;
    }
    all(work, "readers and writers", Duration::from_secs(120)).await;
    assert_eq!(read.load(Ordering::Relaxed), total, "nothing twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_sends_readers_away_and_the_next_open_wakes_those_who_wait() {
    let scratch = Scratch::new();
    // No response ends by its age within this test.
    let setup = weir_tests::rounds::hurried(Setup::new(scratch.path("data"))).flag("sse-lifetime", "40s");
    let mut node = setup.start().await.unwrap();
    let address = node.addresses().await.unwrap().client;
    let client = node.client().await.unwrap();
    create(&client, &name(0)).await;
    let post = async |n: u64| {
        let target = format!("/v1/stream/{}", name(0));
        let sent =
            client.send(Method::POST, &target, &[("content-type", "text/plain")], record(0, n).into()).await;
        assert_eq!(sent.unwrap().status, 204);
    };
    post(0).await;
    let mut reader = Reader::new(&name(0));
    let take = |at: u64, text: &str| check(0, at, text);
    let first = timeout(Duration::from_secs(25), reader.read(&address, take, || {})).await;
    assert_eq!(first.expect("sent away after the release").unwrap(), End::Polite);
    assert_eq!(reader.at, RECORD);

    // The stream is not open, and waiting for it does not open it.
    let (told, seen) = tokio::sync::mpsc::unbounded_channel();
    let waiting = tokio::spawn(async move {
        let took = told.clone();
        let take = move |at: u64, text: &str| {
            took.send(()).context("nobody listens")?;
            check(0, at, text)
        };
        let end = reader.read(&address, take, || told.send(()).unwrap()).await;
        (end, reader)
    });
    let mut seen = seen;
    seen.recv().await.expect("told that it is up to date");
    assert_eq!(metric(&mut node, "weir_open_streams").await, 0.0);
    post(1).await;
    timeout(PATIENCE, seen.recv()).await.expect("woken").expect("with the record");
    assert!(node.terminate(PATIENCE).await.unwrap().success());
    let (end, reader) = waiting.await.unwrap();
    assert_eq!((end.unwrap(), reader.at, reader.up_to_date), (End::Polite, 2 * RECORD, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_stop_reading_delay_nobody_and_hold_little_memory() {
    const DEAF: u64 = 100;
    const BODY: usize = 1 << 20;
    const BODIES: u64 = 24;
    let scratch = Scratch::new();
    let mut node = Setup::new(scratch.path("data")).start().await.unwrap();
    let address = node.addresses().await.unwrap().client;
    let client = node.client().await.unwrap();
    create(&client, "wide").await;
    let target = "/v1/stream/wide";
    let headers = [("content-type", "text/plain")];
    let body = Bytes::from("wide ".repeat(BODY / 5));
    let length = body.len() as u64;
    for _ in 0..BODIES {
        assert_eq!(client.send(Method::POST, target, &headers, body.clone()).await.unwrap().status, 204);
    }
    let quick = async || {
        let (mut reader, mut bytes) = (Reader::new("wide"), 0);
        let take = |_: u64, text: &str| {
            bytes += text.len() as u64;
            Ok(())
        };
        let whole =
            timeout(PATIENCE, reader.read(&address, take, || {})).await.expect("nobody is in its way");
        (whole.unwrap(), bytes)
    };
    // Deaf ones take their first bytes and no more.
    let mut deaf = Vec::new();
    let connect = async || {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut socket = tokio::net::TcpStream::connect(&address).await.unwrap();
        let request = format!("GET {target}?live=sse&offset=-1 HTTP/1.1\r\nHost: test\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        socket.read_u8().await.unwrap();
        socket
    };
    deaf.push(connect().await);
    let before = resident(&node);
    while (deaf.len() as u64) < DEAF {
        deaf.push(connect().await);
    }
    assert_eq!(metric(&mut node, "weir_live_readers{kind=\"sse\"}").await, DEAF as f64);
    let sent =
        client.send(Method::POST, target, &[headers[0], ("stream-closed", "true")], body.clone()).await;
    assert_eq!(sent.unwrap().status, 204);
    assert_eq!(quick().await, (End::Closed, (BODIES + 1) * length));
    let each = resident(&node).saturating_sub(before) / DEAF;
    println!("{each} bytes of memory for each reader that does not read");
    assert!(each < 512 << 10, "{each} bytes for each reader that does not read");
}
