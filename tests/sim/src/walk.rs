//! Random walks over the real metadata state machine, with nodes, WAL and bucket in a few lines each.
//!
//! Between the exhaustive models (all schedules of a world that is rebuilt by hand) and the simulation (few schedules of
//! everything): the log's code is the node's own, what stands around it is as careless as a node may be – it proposes
//! what it should have known better and leaves it to the log to refuse – and a walk takes a millisecond. Views lag,
//! proposals come twice or after their proposer's death, puts land late, claims pass on, two processes share a node id.
//! What comes of it is a [`Trace`], judged like any other run's.
//!
//! Left out: time (leases, expiry), routing, births, what a node's own code does: that is the simulation's.

mod clients;
mod log;
mod moves;
mod nodes;
mod recovery;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_api::{Offset, SessionId, StreamEpoch, StreamId};
use weir_tests::rng::Rng;

use crate::trace::{Host, Trace, What};
use log::Ledger;
use nodes::Process;
use recovery::Recovering;

/// Names of nodes.
const NODES: [&str; 3] = ["a", "b", "c"];
/// Steps before everything settles.
const STEPS: usize = 260;

/// One accepted append.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Frame {
    stream: StreamId,
    epoch: StreamEpoch,
    offset: Offset,
    bytes: Arc<[u8]>,
    producer: Option<(Arc<str>, u64)>,
}

impl Frame {
    fn end(&self) -> Offset {
        Offset(self.offset.0 + self.bytes.len() as u64)
    }
}

/// What stands under a number of a session's WAL.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Slot {
    Object(Vec<Frame>),
    Seal,
    /// It was covered and deleted.
    Trimmed,
}

/// One stream's share of a segment.
#[derive(Debug, Clone, Default)]
struct Part {
    frames: Vec<Frame>,
    producers: Producers,
}

/// Each producer's last number.
type Producers = BTreeMap<Arc<str>, u64>;

/// The bucket.
#[derive(Debug, Default)]
struct Bucket {
    /// By session: its WAL from number 1 on.
    wal: BTreeMap<SessionId, BTreeMap<u64, Slot>>,
    segments: BTreeMap<(SessionId, u64), BTreeMap<StreamId, Part>>,
}

/// The world.
struct Walk {
    rng: Rng,
    trace: Trace,
    log: Ledger,
    bucket: Bucket,
    processes: Vec<Process>,
    recovering: Vec<Recovering>,
    clients: clients::Clients,
    nonces: u128,
    wall_ms: u64,
    at_us: u64,
    /// Nothing is broken any more.
    calm: bool,
}

/// A walk from a seed.
pub fn run(seed: u64) -> Trace {
    let mut walk = Walk::new(seed);
    for _ in 0..STEPS {
        walk.step();
    }
    walk.settle();
    walk.finish()
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut trace = Trace { seed, ..Trace::default() };
        trace.host("log");
        let mut walk = Self {
            rng: Rng::new(seed),
            trace,
            log: Ledger::default(),
            bucket: Bucket::default(),
            processes: Vec::new(),
            recovering: Vec::new(),
            clients: clients::Clients::default(),
            nonces: 0,
            wall_ms: 1_000,
            at_us: 0,
            calm: false,
        };
        walk.found();
        NODES.iter().for_each(|node| walk.start(node));
        walk
    }

    fn event(&mut self, what: What) -> usize {
        self.at_us += 1_000;
        self.trace.events.push(crate::trace::Event { at_us: self.at_us, what });
        self.trace.events.len() - 1
    }

    /// The machine that a process runs on.
    fn host(&mut self, process: usize) -> Host {
        let name = self.processes[process].session.node.to_string();
        self.trace.host(&name)
    }

    fn step(&mut self) {
        self.wall_ms += self.rng.below(5);
        match self.rng.below(100) {
            0..4 => self.create(),
            4..6 => self.fork(),
            6..7 => self.delete(),
            7..31 => self.append(),
            31..34 => self.read(),
            34..39 => self.put(),
            39..50 => self.land(),
            50..66 => self.acknowledge(),
            66..74 => self.commit_own(),
            74..78 => self.release(),
            78..80 => self.abandon(),
            80..82 => self.look(),
            82..84 => self.fence(),
            84..86 => self.crash(),
            86..88 => self.restart(),
            88..92 => self.claim(),
            92..96 => self.recover(),
            96..97 => self.end_session(),
            97..98 => self.weigh(),
            98..99 => self.sweep(),
            _ => self.move_streams(),
        }
    }

    /// Everything comes to rest, and all is read back.
    fn settle(&mut self) {
        self.calm = true;
        self.event(What::Calm);
        for round in 0..40 {
            self.bring_back();
            self.land_all();
            self.recover_all();
            if self.commit_all() && round > 2 {
                break;
            }
        }
        self.event(What::ReadBack);
        self.read_back();
    }

    fn finish(mut self) -> Trace {
        let host = self.trace.host("log");
        self.trace.states.push((host, self.log.index, self.log.head.clone()));
        let segment =
            |(session, number): &(SessionId, u64)| weir::storage::keys::segment(0, session, *number);
        self.trace.bucket = self.bucket.segments.keys().map(|key| (segment(key), 0)).collect();
        self.trace.bucket.push(("cluster.json".to_owned(), 0));
        self.trace
    }

    /// Some process that runs.
    fn some_process(&mut self) -> Option<usize> {
        let up: Vec<usize> = (0..self.processes.len()).filter(|&p| self.processes[p].up).collect();
        (!up.is_empty()).then(|| up[self.rng.index(up.len())])
    }

    /// Some stream that a view knows.
    fn some_stream(&mut self, process: usize) -> Option<StreamId> {
        let ids: Vec<StreamId> = self.processes[process].view.streams.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[self.rng.index(ids.len())])
    }
}
