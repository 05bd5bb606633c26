//! Rounds of load, sudden death and reckoning over one data directory.
//!
//! A round begins with a verified node and ends with one: its history holds everything since the directory was made.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, sleep};

use crate::load::{Load, Shape};
use crate::node::{Node, Setup};
use crate::rng::Rng;
use std::sync::Arc;

/// Small sizes and short times, so that rounds of a second see segments, releases, trims and snapshots.
pub fn hurried(setup: Setup) -> Setup {
    setup
        .flag("long-poll-timeout", "200ms")
        .flag("segment-objects", 24)
        .flag("segment-age", "150ms")
        .flag("segment-bytes", "128KiB")
        .flag("wal-object-bytes", "64KiB")
        .flag("idle-release", "150ms")
        .flag("max-read-chunk", "64KiB")
        .flag("test-snapshot-log-bytes", "8KiB")
}

/// One data directory under fire.
pub struct Rounds {
    pub setup: Setup,
    pub load: Arc<Load>,
    /// Between rounds, the one that runs.
    pub node: Option<Node>,
    pub rng: Rng,
}

impl Rounds {
    /// An empty directory and no process.
    pub fn over(setup: Setup, shape: Shape, mut rng: Rng) -> Self {
        let load = Load::new(rng.below(1 << 30), shape);
        Self { setup, load, node: None, rng }
    }

    /// The first start, on an empty directory.
    pub async fn begin(setup: Setup, shape: Shape, rng: Rng) -> Result<Self> {
        let mut rounds = Self::over(setup, shape, rng);
        rounds.node = Some(rounds.setup.start().await?);
        Ok(rounds)
    }

    /// Load for a random time, and SIGKILL in the middle of it.
    pub async fn load_and_kill(&mut self) -> Result<()> {
        let moment = sleep(Duration::from_millis(self.rng.between(50, 400)));
        self.load_until_and_kill(moment).await
    }

    /// The same, but not before there is something that the next process must find.
    pub async fn load_well_and_kill(&mut self) -> Result<()> {
        let (load, begin) = (self.load.clone(), self.load.history.now());
        let pause = Duration::from_millis(self.rng.between(0, 300));
        let mut progress = Ok(());
        let moment = async {
            progress = load.progress(begin, 30).await;
            sleep(pause).await;
        };
        self.load_until_and_kill(moment).await?;
        progress
    }

    /// Load until `moment` comes, and SIGKILL in the middle of it.
    pub async fn load_until_and_kill(&mut self, moment: impl Future<Output = ()>) -> Result<()> {
        let mut node = self.node.take().context("a round begins with a node")?;
        let address = node.addresses().await?.client;
        let running = self.load.run(&address, &mut self.rng);
        moment.await;
        node.kill();
        self.load.history.died();
        running.stop().await;
        Ok(())
    }

    /// Starts a process and kills it somewhere in its start.
    pub async fn start_and_kill(&mut self) -> Result<()> {
        let mut node = self.setup.spawn()?;
        sleep(Duration::from_micros(self.rng.between(0, 150_000))).await;
        node.kill();
        self.load.history.died();
        Ok(())
    }

    /// Starts a process, and holds it to everything that was acknowledged.
    pub async fn restart_and_verify(&mut self) -> Result<()> {
        let mut node = self.setup.start().await?;
        let address = node.addresses().await?.client;
        let verdict = self.load.verify(&address, &mut self.rng).await;
        let words = || format!("--- the node's last words ---\n{}", node.log_tail());
        verdict.with_context(words)?;
        self.node = Some(node);
        Ok(())
    }
}

/// Above so many tasks per core, times say nothing of the node: the crash suite by itself makes about one.
const BUSY: f64 = 1.75;

/// The system's load average of the last minute, per core.
fn load_per_core() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(f64::MAX);
    load / std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64
}

/// How many rounds, and how long they took.
#[derive(Debug, Default)]
pub struct Tally {
    pub rounds: u64,
    pub longest: Duration,
    pub total: Duration,
}

impl Tally {
    /// Counts one round.
    pub fn add(&mut self, since: Instant) {
        let took = since.elapsed();
        self.rounds += 1;
        self.longest = self.longest.max(took);
        self.total += took;
    }

    /// Prints mean and maximum, and holds the mean to `bound`.
    ///
    /// Not the maximum, which is the machine's as much as the node's; and not while the machine has more to do than
    /// this: a mean over hundreds of rounds grows by what the rounds wait for, or by what else runs.
    pub fn report(&self, bound: Duration) -> Result<()> {
        let mean = self.total.div_f64(self.rounds.max(1) as f64);
        let load = load_per_core();
        let (rounds, most) = (self.rounds, self.longest.as_secs_f64());
        println!("{rounds} rounds, {:.2} s on average, {most:.2} s at most", mean.as_secs_f64());
        if load > BUSY {
            println!(
                "{load:.1} tasks per core want to run: the bound of {bound:?} is not held against the node"
            );
            return Ok(());
        }
        ensure!(mean <= bound, "a round takes {mean:?} on average, {bound:?} is the bound");
        Ok(())
    }
}
