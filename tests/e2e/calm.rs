//! An open stream costs no periodic work: with ten thousand of them open and nobody at them, a node wakes up as often as
//! with none, writes nothing to its log and asks nothing of its store.
//!
//! What is counted are wake-ups by the kernel's own count, over a stretch of time that is long only so that there is
//! something to count; a machine that is busy makes them fewer, not more.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use tokio::task::JoinSet;
use weir_tests::client::Client;
use weir_tests::files::Scratch;
use weir_tests::node::{Node, PATIENCE, Setup};
use weir_tests::wait;

const STREAMS: usize = 10_000;
const CONNECTIONS: usize = 32;
/// What is looked at; each stream that woke up once in it would be seen.
const STRETCH: Duration = Duration::from_secs(4);

/// What idling costs, as counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    log: u64,
    puts: u64,
    store: u64,
    wakes: u64,
}

/// The sum of a metric's series.
fn sum(metrics: &str, name: &str) -> Result<u64> {
    let lines = metrics.lines().filter(|line| line.starts_with(name));
    let of = |line: &str| line.rsplit(' ').next().and_then(|n| n.parse::<f64>().ok());
    let values: Option<Vec<f64>> = lines.map(of).collect();
    let values = values.filter(|all| !all.is_empty()).with_context(|| format!("{name} in {metrics}"))?;
    Ok(values.iter().sum::<f64>() as u64)
}

/// How often threads of the process went to sleep.
fn wakes(node: &Node) -> Result<u64> {
    let mut all = 0;
    for task in fs::read_dir(format!("/proc/{}/task", node.pid().as_raw_nonzero()))? {
        // A thread that has just ended counts no more.
        let Ok(status) = fs::read_to_string(task?.path().join("status")) else { continue };
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:"));
        all += line.and_then(|l| l.split_whitespace().nth(1)).context("a count")?.parse::<u64>()?;
    }
    Ok(all)
}

async fn counts(node: &Node, admin: &Client) -> Result<Counts> {
    let metrics = admin.get_text("/metrics").await?;
    Ok(Counts {
        log: sum(&metrics, "weir_metadata_applied_index")?,
        puts: sum(&metrics, "weir_wal_puts_total")?,
        store: sum(&metrics, "weir_store_request_seconds_count")?,
        wakes: wakes(node)?,
    })
}

async fn over_a_stretch(node: &Node, admin: &Client) -> Result<Counts> {
    let before = counts(node, admin).await?;
    tokio::time::sleep(STRETCH).await;
    let after = counts(node, admin).await?;
    Ok(Counts {
        log: after.log - before.log,
        puts: after.puts - before.puts,
        store: after.store - before.store,
        wakes: after.wakes.saturating_sub(before.wakes),
    })
}

async fn open_all(address: &str) -> Result<()> {
    let mut workers = JoinSet::new();
    for worker in 0..CONNECTIONS {
        let client = Client::new(address, PATIENCE);
        workers.spawn(async move {
            for n in (worker..STREAMS).step_by(CONNECTIONS) {
                let target = format!("/v1/stream/calm/{n}");
                let text = [("content-type", "text/plain")];
                let made = client.send(Method::PUT, &target, &text, Bytes::from_static(b"x")).await;
                let made = made.map_err(|e| anyhow::anyhow!("{target}: {e:?}"))?;
                ensure!(made.status == 201, "{target}: {made:?}");
            }
            Ok(())
        });
    }
    while let Some(done) = workers.join_next().await {
        done??;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_streams_that_nobody_uses_cost_no_periodic_work() {
    let scratch = Scratch::new();
    // They stay open, and nothing is due but what the node does at all times.
    let setup = Setup::new(scratch.path("data")).flag("idle-release", "1h").flag("segment-age", "1h");
    let setup = setup.flag("segment-objects", 100_000).flag("wal-backlog-objects", 200_000);
    let mut node = setup.start().await.unwrap();
    let (admin, address) = (node.admin().await.unwrap(), node.addresses().await.unwrap().client);
    let without = over_a_stretch(&node, &admin).await.unwrap();
    open_all(&address).await.unwrap();
    let open = async || {
        Ok((sum(&admin.get_text("/metrics").await?, "weir_open_streams")? >= STREAMS as u64).then_some(()))
    };
    wait::until("all streams to be open", PATIENCE, open).await.unwrap();
    // What opening them left to do is done first: a commit of what was born.
    let calm = async || {
        let with = over_a_stretch(&node, &admin).await?;
        Ok((with.log == 0 && with.puts == 0).then_some(with))
    };
    let with = wait::until("nothing to be written", PATIENCE, calm).await.unwrap();
    println!("over {STRETCH:?}: {without:?} with none open, {with:?} with {STREAMS}");
    assert!(with.store <= without.store + 4, "nothing is asked of the store: {without:?}, {with:?}");
    let room = 2 * without.wakes + STREAMS as u64 / 10;
    assert!(with.wakes <= room, "{} wake-ups, {} with none open", with.wakes, without.wakes);
}
