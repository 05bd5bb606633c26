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
const STEPS: usize = 600;

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
        match self.rng.below(200) {
            0..6 => self.create(),
            6..9 => self.fork(),
            9..11 => self.delete(),
            11..51 => self.append(),
            51..57 => self.read(),
            57..81 => self.put(),
            81..105 => self.land(),
            105..135 => self.acknowledge(),
            135..142 => self.commit_own(),
            142..150 => self.release(),
            150..154 => self.abandon(),
            154..158 => self.look(),
            158..161 => self.fence(),
            161..164 => self.crash(),
            164..167 => self.restart(),
            167..177 => self.claim(),
            177..191 => self.recover(),
            191..192 => self.end_session(),
            192..194 => self.weigh(),
            194..195 => self.sweep(),
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

    /// Some process that runs and has `what`, if one has; else some.
    fn some_process_that(&mut self, what: impl Fn(&Process) -> bool) -> Option<usize> {
        let fit: Vec<usize> =
            (0..self.processes.len()).filter(|&p| self.processes[p].up && what(&self.processes[p])).collect();
        if fit.is_empty() { self.some_process() } else { Some(fit[self.rng.index(fit.len())]) }
    }

    /// Some stream that a view knows.
    fn some_stream(&mut self, process: usize) -> Option<StreamId> {
        let ids: Vec<StreamId> = self.processes[process].view.streams.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[self.rng.index(ids.len())])
    }
}
