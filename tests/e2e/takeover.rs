//! Nodes die, hang and come twice, and the others take their streams over: what was acknowledged is there, and who was
//! replaced acknowledges nothing more and ends by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use rustix::process::Signal;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use weir_tests::client::Client;
use weir_tests::node::{PATIENCE, Setup};
use weir_tests::wait;

use super::cluster::{BYTES, Three, asked, leader};

/// A writer's patience with one append.
const HASTE: Duration = Duration::from_secs(5);

/// Long enough for a loaded machine not to fence the healthy.
fn soon(setup: Setup) -> Setup {
    setup.flag("node-timeout", "5s").flag("lease", "2s").flag("request-timeout", "10s")
}

/// A door serves every stream, its own or not.
fn doors(setup: Setup) -> Setup {
    soon(setup).flag("routing", "forward")
}

/// As [`doors`], but the last node answers only for itself.
fn doors_but_the_last(setup: Setup) -> Setup {
    if setup.flags.contains(&"--node-id=node-2".to_owned()) { soon(setup) } else { doors(setup) }
}

/// A stream, who owned it at first, and its one writer.
struct Writer {
    path: String,
    owner: usize,
    acknowledged: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    task: JoinHandle<Vec<u64>>,
}

impl Writer {
    /// Appends one number after the other until `stop`; gives those that were acknowledged.
    fn start(client: Client, path: String, owner: usize, stop: Arc<AtomicBool>) -> Self {
        let (acknowledged, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (good, bad, to) = (acknowledged.clone(), failed.clone(), path.clone());
        let task = tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                match client.send(Method::POST, &to, &BYTES, format!("{n}\n").into()).await {
                    Ok(answer) if answer.status == 204 => {
                        acknowledged.push(n);
                        good.fetch_add(1, Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    _ => {
                        bad.fetch_add(1, Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            }
            acknowledged
        });
        Self { path, owner, acknowledged, failed, task }
    }

    fn count(&self) -> usize {
        self.acknowledged.load(Ordering::Relaxed)
    }
}

/// Writers on so many streams, three at each node.
struct Load {
    door: Client,
    stop: Arc<AtomicBool>,
    writers: Vec<Writer>,
}

impl Load {
    async fn start(three: &mut Three, at: usize) -> Result<Self> {
        let admin = three.nodes[at].admin().await?;
        let door = Client::new(&three.nodes[at].addresses().await?.client, PATIENCE);
        // Who asks a node that hangs asks again.
        let hasty = Client::new(&three.nodes[at].addresses().await?.client, HASTE);
        let stop = Arc::new(AtomicBool::new(false));
        let mut writers = Vec::new();
        for i in 0..9 {
            let path = format!("/v1/stream/s{i}");
            let put = door.send(Method::PUT, &path, &BYTES, "".into()).await;
            let put = put.map_err(|e| anyhow::anyhow!("{e:?}"))?;
            ensure!(put.status == 201, "{path}: {}", put.status);
            let status = asked(&admin, &format!("/admin/streams/s{i}")).await?;
            let owner = status["ownership"]["node"].as_str().context("an owner")?;
            let owner = owner.trim_start_matches("node-").parse()?;
            writers.push(Writer::start(hasty.clone(), path, owner, stop.clone()));
        }
        for node in 0..3 {
            ensure!(writers.iter().any(|w| w.owner == node), "node {node} owns nothing");
        }
        let this = Self { door, stop, writers };
        this.all_append("before anything happens", |_| true).await?;
        Ok(this)
    }

    /// Waits until the streams chosen have each taken a few appends more; gives how long that took.
    async fn all_append(&self, when: &str, which: impl Fn(&Writer) -> bool) -> Result<Duration> {
        let began = Instant::now();
        let chosen: Vec<_> = self.writers.iter().filter(|w| which(w)).map(|w| (w, w.count() + 5)).collect();
        ensure!(!chosen.is_empty(), "no such stream");
        let what = format!("appends {when}");
        let all = async || Ok(chosen.iter().all(|(w, target)| w.count() >= *target).then_some(()));
        wait::until(&what, PATIENCE, all).await?;
        Ok(began.elapsed())
    }

    fn failures(&self, which: impl Fn(&Writer) -> bool) -> usize {
        self.writers.iter().filter(|w| which(w)).map(|w| w.failed.load(Ordering::Relaxed)).sum()
    }

    /// Stops the writers and reads everything back: all that was acknowledged is there once and in order, and nothing
    /// that nobody wrote.
    async fn verify(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.writers {
            let acknowledged = writer.task.await?;
            let numbers = read(&self.door, &writer.path).await?;
            ensure!(numbers.is_sorted_by(|a, b| a < b), "{}: {numbers:?}", writer.path);
            for n in &acknowledged {
                ensure!(
                    numbers.binary_search(n).is_ok(),
                    "{}: {n} was acknowledged and is lost",
                    writer.path
                );
            }
        }
        Ok(())
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
        let answer = answer.map_err(|e| anyhow::anyhow!("{path}: {e:?}"))?;
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

/// Kills a node for good under load. The others' streams are not interrupted, and its own are taken over.
async fn lose(which: fn(usize) -> usize) {
    let mut three = Three::start_with(doors).await.unwrap();
    let victim = which(leader(&three.nodes[0].admin().await.unwrap()).await.unwrap());
    let load = Load::start(&mut three, usize::from(victim == 0)).await.unwrap();
    let before = load.failures(|w| w.owner != victim);
    three.nodes[victim].kill();
    let others = load.all_append("at the others", |w| w.owner != victim).await.unwrap();
    assert_eq!(load.failures(|w| w.owner != victim), before, "appends to open streams need no leader");
    let all = load.all_append("to the streams of the lost node", |w| w.owner == victim).await.unwrap();
    println!("node {victim} lost: the others went on within {others:?}, its own streams {:?}", others + all);
    load.verify().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_lost_for_good_is_taken_over() {
    lose(|leader| (leader + 1) % 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_lost_for_good_is_taken_over_and_appends_elsewhere_go_on() {
    lose(|leader| leader).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hung_is_taken_over_and_ends_when_it_wakes() {
    let mut three = Three::start_with(doors_but_the_last).await.unwrap();
    let load = Load::start(&mut three, 0).await.unwrap();
    let zombie = three.nodes[2].client().await.unwrap();
    three.nodes[2].signal(Signal::STOP);
    let took = load.all_append("to the streams of the node that hangs", |w| w.owner == 2).await.unwrap();
    println!("node 2 hung: its streams take appends again after {took:?}");
    // They lie in its sockets when it wakes.
    let late: Vec<_> = load
        .writers
        .iter()
        .filter(|w| w.owner == 2)
        .map(|w| (zombie.clone(), w.path.clone()))
        .map(|(client, path)| {
            tokio::spawn(async move { client.send(Method::POST, &path, &BYTES, "zombie\n".into()).await })
        })
        .collect();
    assert!(!late.is_empty());
    three.nodes[2].signal(Signal::CONT);
    let status = three.nodes[2].exit(PATIENCE).await.unwrap();
    assert_eq!(status.code(), Some(4), "{}", three.nodes[2].log_tail());
    let log = three.nodes[2].log();
    assert!(log.contains("fenced"), "{}", three.nodes[2].log_tail());
    for answer in late {
        if let Ok(answer) = answer.await.unwrap() {
            assert!(answer.status >= 300, "a fenced node acknowledged an append: {}", answer.status);
        }
    }
    // Nobody replaced it, so it need not wait before it comes back.
    three.restart(2).await.unwrap();
    load.all_append("after its return", |_| true).await.unwrap();
    load.verify().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_processes_with_one_node_id_the_later_serves() {
    let mut three = Three::start_with(doors).await.unwrap();
    let load = Load::start(&mut three, 0).await.unwrap();
    let seed = three.nodes[0].addresses().await.unwrap().peer;
    // Another directory: another member of the log, which claims the id of node 2.
    let mut twin = three.setup(2);
    twin.data = three.scratch.path("twin");
    twin.log = three.scratch.path("twin.stderr");
    let mut twin = twin.flag("join", seed).spawn().unwrap();
    let status = three.nodes[2].exit(PATIENCE).await.unwrap();
    assert_eq!(status.code(), Some(4), "{}", three.nodes[2].log_tail());
    assert!(three.nodes[2].log().contains("another process has registered as node node-2"));
    twin.ready(PATIENCE).await.unwrap();
    load.all_append("after the replacement", |_| true).await.unwrap();
    // The replaced one does not come back at once.
    let mut back =
        three.setup(2).flag("join", three.nodes[0].addresses().await.unwrap().peer).spawn().unwrap();
    let why = back.unready_for(&["session"]).await.unwrap();
    assert!(why.contains("replaced by another"), "{why}");
    load.verify().await.unwrap();
    assert!(twin.try_exit().unwrap().is_none(), "{}", twin.log_tail());
}
