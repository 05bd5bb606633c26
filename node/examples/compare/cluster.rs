//! What a cluster costs: three nodes as processes, by `weir dev up`, on this machine.
//!
//! One node owns all streams, so that a request to it is direct and one to another is forwarded; rounds take turns.
//! Called by `main`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use weir::bench::append::Append;
use weir::bench::create::Create;
use weir::bench::meter::Tally;
use weir::bench::{self, Common, Report, Target};
use weir::client::Client;
use weir::client::admin::AdminClient;
use weir::clock::Clock;
use weir::tasks::Tasks;
use weir_api::admin::ClusterStatus;

use super::page::thousands;
use super::servers;

/// A forwarded append may cost so many times a direct one.
const BAR: f64 = 2.0;
const START: Duration = Duration::from_secs(120);
const STOP: Duration = Duration::from_secs(30);
const WARMUP: Duration = Duration::from_millis(700);
/// Streams in the state that the apply rate is measured on, extents of each, and nodes.
const APPLIED: [&str; 3] = ["200000", "1", "50"];

#[derive(Deserialize)]
struct Told {
    nodes: Vec<Node>,
}

#[derive(Deserialize, Clone)]
struct Node {
    id: String,
    pid: u32,
    client: String,
    admin: String,
}

/// The processes; they end with this.
struct Cluster {
    up: Child,
    nodes: Vec<Node>,
}

impl Cluster {
    async fn start(weir: &Path, scratch: &Path) -> Result<Self> {
        let mut command = Command::new(weir);
        command.args(["dev", "up", "--fresh", "--base-port", "0", "--nodes", "3", "--slots", "1,0,0"]);
        command.args(["--routing", "forward", "--quiet", "--json", "--dir"]).arg(scratch.join("cluster"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let mut up = command.spawn()?;
        let mut lines = BufReader::new(up.stdout.take().context("it is piped")?).lines();
        let line = timeout(START, lines.next_line()).await.context("the cluster does not become ready")??;
        let told: Told = serde_json::from_str(&line.context("the cluster did not start")?)?;
        Ok(Self { up, nodes: told.nodes })
    }

    /// The node that leads the metadata log, and one that does not.
    async fn leader_and_another(&self, tasks: &Tasks) -> Result<(Node, Node)> {
        let origin = self.nodes[0].admin.parse().map_err(|e: String| anyhow::anyhow!(e))?;
        let admin = AdminClient::new(Client::new(origin, STOP, tasks.clone(), Clock::default()), None)?;
        let status: ClusterStatus = serde_json::from_slice(&admin.cluster().await?)?;
        let leader = status.log.leader_node.context("the cluster has a leader")?;
        let is = |node: &&Node| node.id == leader.as_str();
        let at = |found: Option<&Node>| found.cloned().context("a node of the cluster");
        Ok((at(self.nodes.iter().find(is))?, at(self.nodes.iter().find(|n| !is(n)))?))
    }

    /// Processor time of all nodes.
    fn cpu(&self) -> Result<Duration> {
        self.nodes.iter().map(|node| servers::cpu(node.pid)).sum()
    }

    async fn stop(mut self) -> Result<()> {
        let pid = self.up.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        kill_process(pid.context("it runs")?, Signal::TERM)?;
        timeout(STOP, self.up.wait()).await.context("the cluster does not stop")??;
        Ok(())
    }
}

/// What of a load's two sides was measured, a round each.
struct Row {
    name: &'static str,
    first: Vec<Taken>,
    second: Vec<Taken>,
}

#[derive(Clone)]
struct Taken {
    tally: Tally,
    cpu_us: f64,
}

impl Taken {
    fn text(&self) -> String {
        format!(
            "{}/s, p50 {:.2} ms, p99 {:.2} ms, {:.0} µs of processor time",
            thousands(self.tally.rate()),
            self.tally.percentile_ms(50.0),
            self.tally.percentile_ms(99.0),
            self.cpu_us
        )
    }
}

fn median(mut taken: Vec<Taken>) -> Option<Taken> {
    taken.sort_by(|a, b| a.tally.rate().total_cmp(&b.tally.rate()));
    taken.get(taken.len() / 2).cloned()
}

#[derive(Clone, Copy)]
enum What {
    Append { streams: usize },
    Create,
    Absent,
}

async fn load(what: What, at: &Node) -> Result<Report> {
    let connections = if let What::Append { streams } = what { streams } else { 64 };
    let common = Common {
        target: Target::parse(&at.client, "/v1/stream/")?,
        connections,
        duration: Duration::from_millis(2500),
        count: None,
        warmup: WARMUP,
        timeout: Duration::from_secs(20),
        keep: true,
    };
    let content_type = "application/octet-stream".to_owned();
    Ok(match what {
        What::Append { streams } => {
            let append = Append { streams, size: 256, content_type, producers: false, verify: false };
            bench::append::run(&common, &append).await?
        }
        What::Create => bench::create::run(&common, &Create { size: 0, content_type }).await?,
        What::Absent => bench::absent::run(&common).await?,
    })
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
async fn take(cluster: &Cluster, what: What, at: &Node) -> Result<Taken> {
    let before = cluster.cpu()?;
    let report = load(what, at).await?;
    let tally = report.main().clone();
    if tally.operations == 0 {
        bail!("nothing succeeded: {:?}", tally.errors);
    }
    if tally.failures() > 0 {
        println!("  failures: {:?}", tally.errors);
    }
    let spent = cluster.cpu()?.saturating_sub(before).as_secs_f64() * 1e6;
    // The warm-up's share of it belongs to operations that are not counted.
    let measured = tally.measured.as_secs_f64();
    let share = measured / (measured + WARMUP.as_secs_f64());
    Ok(Taken { cpu_us: spent * share / tally.operations as f64, tally })
}

/// Measures, and gives the part of the page.
pub(crate) async fn figures(
    weir: &Path,
    apply: Option<&Path>,
    scratch: &Path,
    rounds: usize,
) -> Result<String> {
    let tasks = Tasks::default();
    let cluster = Cluster::start(weir, scratch).await?;
    let (owner, other) = (cluster.nodes[0].clone(), cluster.nodes[1].clone());
    let (leader, follower) = cluster.leader_and_another(&tasks).await?;
    let mut text = String::from(
        "### A cluster of three\n\nThree nodes as processes on this machine, and the client beside them. One node owns all \
         streams; processor time is that of all three nodes.\n\n| load | at the owner | forwarded by another | cost | bar |\n\
         | --- | --- | --- | --- | --- |\n",
    );
    for (name, streams) in [("append 256 B, 1 × 1", 1), ("append 256 B, 64 × 64", 64)] {
        let row = measure(&cluster, name, What::Append { streams }, &owner, &other, rounds).await?;
        text += &row.forwarded()?;
    }
    text += "\n| load | at the leader | at another |\n| --- | --- | --- |\n";
    for (name, what) in [
        ("proposals: creates, 64 connections", What::Create),
        ("read indexes: 404, 64 connections", What::Absent),
    ] {
        let row = measure(&cluster, name, what, &leader, &follower, rounds).await?;
        text += &row.plain()?;
    }
    cluster.stop().await?;
    if let Some(apply) = apply {
        text += &applied(apply).await?;
    }
    Ok(text)
}

async fn measure(
    cluster: &Cluster,
    name: &'static str,
    what: What,
    first: &Node,
    second: &Node,
    rounds: usize,
) -> Result<Row> {
    let mut row = Row { name, first: Vec::new(), second: Vec::new() };
    for round in 0..rounds {
        // Who comes first changes.
        for turn in [round % 2, (round + 1) % 2] {
            let (at, taken) = if turn == 0 { (first, &mut row.first) } else { (second, &mut row.second) };
            let one = take(cluster, what, at).await.with_context(|| format!("{name} at {}", at.id))?;
            println!("{name:<34} {:<7} {}", at.id, one.text());
            taken.push(one);
        }
    }
    Ok(row)
}

impl Row {
    fn medians(self) -> Result<(Taken, Taken)> {
        median(self.first).zip(median(self.second)).context("a round at least")
    }

    fn forwarded(self) -> Result<String> {
        let name = self.name;
        let (direct, forwarded) = self.medians()?;
        let p50 = |t: &Taken| t.tally.percentile_ms(50.0);
        let (time, rate) = (p50(&forwarded) / p50(&direct), direct.tally.rate() / forwarded.tally.rate());
        let met = if time <= BAR && rate <= BAR { "met" } else { "**not met**" };
        let cpu = forwarded.cpu_us / direct.cpu_us;
        Ok(format!(
            "| {name} | {} | {} | rate {rate:.2}×, p50 {time:.2}×, processor {cpu:.2}× | {BAR}× in rate and p50: {met} |\n",
            direct.text(),
            forwarded.text()
        ))
    }

    fn plain(self) -> Result<String> {
        let name = self.name;
        let (first, second) = self.medians()?;
        Ok(format!("| {name} | {} | {} |\n", first.text(), second.text()))
    }
}

/// Runs the measurement of the state machine alone.
async fn applied(apply: &Path) -> Result<String> {
    let output = Command::new(apply).args(APPLIED).kill_on_drop(true).output();
    let output = timeout(START, output).await.context("apply_scale does not end")??;
    if !output.status.success() {
        bail!("apply_scale: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let told = ["per second", "nodes:", "bytes per stream"];
    let rates = said.lines().filter(|line| told.iter().any(|word| line.contains(word)));
    let list = rates.map(|line| format!("- {line}\n")).collect::<String>();
    Ok(format!(
        "\nApplying the log, to a state of {} streams on {} nodes, in memory and on one core:\n\n{list}",
        APPLIED[0], APPLIED[2]
    ))
}
