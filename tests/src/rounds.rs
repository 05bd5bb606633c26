//! Rounds of load, sudden death and reckoning over one data directory.
//!
//! A round begins with a verified node and ends with one: its history holds everything since the directory was made.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::{Instant, sleep};

use crate::load::{Load, Shape};
use crate::node::{Node, Setup};
use crate::rng::Rng;
use std::sync::Arc;

/// Small sizes and short times, so that rounds of a second see segments, releases and trims.
pub fn hurried(setup: Setup) -> Setup {
    setup
        .flag("long-poll-timeout", "200ms")
        .flag("segment-objects", 24)
        .flag("segment-age", "150ms")
        .flag("segment-bytes", "128KiB")
        .flag("wal-object-bytes", "64KiB")
        .flag("idle-release", "150ms")
        .flag("max-read-chunk", "64KiB")
}

/// One data directory under fire.
pub struct Rounds {
    pub setup: Setup,
    pub load: Arc<Load>,
    pub node: Node,
    pub rng: Rng,
}

impl Rounds {
    /// The first start, on an empty directory.
    pub async fn begin(setup: Setup, shape: Shape, mut rng: Rng) -> Result<Self> {
        let load = Load::new(rng.below(1 << 30), shape);
        let node = setup.start().await?;
        Ok(Self { setup, load, node, rng })
    }

    /// Load for a random time, and SIGKILL in the middle of it.
    pub async fn load_and_kill(&mut self) -> Result<()> {
        let address = self.node.addresses().await?.client;
        let running = self.load.run(&address, &mut self.rng);
        sleep(Duration::from_millis(self.rng.between(50, 400))).await;
        self.node.kill();
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
        self.node = self.setup.start().await?;
        let address = self.node.addresses().await?.client;
        let verdict = self.load.verify(&address, &mut self.rng).await;
        verdict.with_context(|| format!("--- the node's last words ---\n{}", self.node.log_tail()))
    }
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
}
