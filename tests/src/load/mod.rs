//! Mixed load: several connections over a few streams, with everything that the protocol's first part offers, and one
//! that forks streams and lets them end.
//!
//! A [`Load`] belongs to one data directory and outlives the node's processes: producers go on where they were,
//! requests without an answer are sent again, creates and deletes whose outcome is unknown are settled by a look after
//! the restart.

mod family;
mod slot;
mod verify;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::history::{History, Time};
use crate::node::PATIENCE;
use crate::record::Record;
use crate::recorded::Recorded;
use crate::rng::Rng;
use crate::wait;
use slot::Slot;

/// How much load.
#[derive(Debug, Clone)]
pub struct Shape {
    pub streams: usize,
    pub connections: usize,
    /// Beside them, connections that only long-poll.
    pub long_polls: usize,
    /// How long a client waits for an answer.
    pub deadline: Duration,
    /// How long a ready node may still refuse one stream before it counts as stuck.
    pub patience: Duration,
    /// Once in how many actions a stream is deleted (and made anew), if it is not one of the calm third.
    pub delete_one_in: u64,
    /// The largest filler of the rare large records.
    pub large: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            streams: 6,
            connections: 6,
            long_polls: 2,
            deadline: Duration::from_secs(10),
            patience: PATIENCE,
            delete_one_in: 150,
            large: 100_000,
        }
    }
}

/// The clients' world.
#[derive(Debug)]
pub struct Load {
    pub history: Arc<History>,
    pub shape: Shape,
    slots: Vec<Slot>,
    next_record: AtomicU64,
    family: tokio::sync::Mutex<family::Family>,
}

impl Load {
    /// Streams not created yet; `seed` makes records unlike those of other loads.
    pub fn new(seed: u64, shape: Shape) -> Arc<Self> {
        let slots =
            (0..shape.streams).map(|n| Slot::new(&format!("load-{n}"), n % 2 == 1, n % 3 == 0)).collect();
        let history = Arc::new(History::default());
        let family = tokio::sync::Mutex::new(family::Family::new(seed));
        Arc::new(Self { history, shape, slots, next_record: AtomicU64::new((seed << 32) | 1), family })
    }

    /// The same world apart: what happens to one is no evidence against the other. No worker may run.
    pub fn copy(&self) -> Self {
        Self {
            history: Arc::new(self.history.copy()),
            shape: self.shape.clone(),
            slots: self.slots.iter().map(Slot::copy).collect(),
            next_record: AtomicU64::new(self.next_record.load(Ordering::Relaxed)),
            family: tokio::sync::Mutex::new(self.family_copy()),
        }
    }

    /// Several copies may be made at once.
    fn family_copy(&self) -> family::Family {
        loop {
            if let Ok(family) = self.family.try_lock() {
                return family.clone();
            }
            std::thread::yield_now();
        }
    }

    /// A client that writes into this load's history.
    pub fn recorded(&self, address: &str) -> Recorded {
        Recorded { client: Client::new(address, self.shape.deadline), history: self.history.clone() }
    }

    /// Starts the workers against a node.
    pub fn run(self: &Arc<Self>, address: &str, rng: &mut Rng) -> Running {
        let stop = Arc::new(AtomicBool::new(false));
        let mut workers = JoinSet::new();
        for _ in 0..self.shape.connections {
            let (load, client, rng) = (self.clone(), self.recorded(address), rng.fork());
            let stop = stop.clone();
            workers.spawn(async move { load.work(&client, rng, &stop).await });
        }
        for _ in 0..self.shape.long_polls {
            let (load, client, rng) = (self.clone(), self.recorded(address), rng.fork());
            let stop = stop.clone();
            workers.spawn(async move { load.follow(&client, rng, &stop).await });
        }
        let (load, client, rng) = (self.clone(), Client::new(address, self.shape.deadline), rng.fork());
        let stop_family = stop.clone();
        workers.spawn(async move { load.raise_family(&client, rng, &stop_family).await });
        Running { stop, workers }
    }

    /// Waits until `n` changes that began at `since` or later are acknowledged.
    pub async fn progress(&self, since: Time, n: usize) -> Result<()> {
        let done = || async { Ok((self.history.acknowledged(since) >= n).then_some(())) };
        wait::until(&format!("{n} acknowledged changes"), PATIENCE, done).await
    }

    fn record(&self, rng: &mut Rng) -> Record {
        let id = self.next_record.fetch_add(1, Ordering::Relaxed);
        let pad = match rng.below(200) {
            0 => rng.below(self.shape.large),
            1..20 => rng.below(5_000),
            _ => rng.below(150),
        };
        let elements = if rng.one_in(4) { rng.between(2, 6) } else { 1 };
        Record { id, pad: pad as u32 / elements as u32, elements: elements as u32 }
    }
}

/// Workers at work.
#[derive(Debug)]
pub struct Running {
    stop: Arc<AtomicBool>,
    workers: JoinSet<()>,
}

impl Running {
    /// Lets every worker finish its request and waits for all.
    pub async fn stop(mut self) {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.workers.join_next().await {
            ended.expect("no worker panics");
        }
    }
}
