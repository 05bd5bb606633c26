//! The loads of the table, and how one is measured.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weir::bench::append::Append;
use weir::bench::create::Create;
use weir::bench::meter::Tally;
use weir::bench::read::Read;
use weir::bench::tail::{Live, Tail};
use weir::bench::{self, Common, Report, Target};

use super::machine;
use super::servers::{Binaries, Server, Side};

/// What a load does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Append { streams: usize, connections: usize, size: usize, producers: bool },
    Read { connections: usize },
    Sse { subscribers: usize, rate: f64 },
    Create { connections: usize },
    Idle { streams: u64 },
}

/// What a result must and should reach.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// Ours a second over theirs; whether the 99th percentile may be no higher, for the aim; and no stall, for the aim.
    Rate { bar: f64, aim: f64, p99: bool, stall_ms: Option<f64> },
    /// Bytes a second: a figure for the bar, a share of theirs for the aim.
    Bytes { bar: f64, aim: f64 },
    /// Ours over theirs, of p50 and p99, nothing lost or doubled.
    Latency { bar: f64, aim: f64 },
    /// A figure.
    Figure { bar: f64, aim: f64 },
    /// MiB and seconds.
    Idle { bar: (f64, f64), aim: (f64, f64) },
    /// A share of what the server that does nothing does.
    Noop { aim: f64 },
}

pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) what: What,
    pub(crate) goal: Goal,
    pub(crate) sides: &'static [Side],
    /// Other than asked for.
    pub(crate) rounds: Option<usize>,
}

const BOTH: &[Side] = &[Side::Theirs, Side::Ours];

const fn append(streams: usize, connections: usize, size: usize, producers: bool) -> What {
    What::Append { streams, connections, size, producers }
}

const MANY: Goal = Goal::Rate { bar: 1.0, aim: 1.5, p99: true, stall_ms: None };

pub(crate) const LOADS: &[Load] = &[
    Load {
        name: "append 256 B, 1 × 1",
        what: append(1, 1, 256, false),
        goal: Goal::Rate { bar: 1.0, aim: 1.3, p99: false, stall_ms: None },
        sides: BOTH,
        rounds: None,
    },
    Load {
        name: "append 256 B, 64 × 64",
        what: append(64, 64, 256, false),
        goal: MANY,
        sides: BOTH,
        rounds: None,
    },
    Load {
        name: "append 256 B, 1,000 × 64",
        what: append(1000, 64, 256, false),
        goal: MANY,
        sides: BOTH,
        rounds: None,
    },
    Load {
        name: "append 256 B, producers, 64 × 64",
        what: append(64, 64, 256, true),
        goal: Goal::Rate { bar: 1.0, aim: 1.5, p99: false, stall_ms: None },
        sides: BOTH,
        rounds: None,
    },
    Load {
        name: "append 64 KiB, 8 × 8",
        what: append(8, 8, 64 << 10, false),
        goal: Goal::Rate { bar: 0.5, aim: 1.0, p99: false, stall_ms: Some(50.0) },
        sides: BOTH,
        rounds: None,
    },
    Load {
        name: "catch-up 256 MiB, 1 connection",
        what: What::Read { connections: 1 },
        goal: Goal::Bytes { bar: 1.1e9, aim: 1.0 },
        sides: BOTH,
        rounds: None,
    },
    Load {
        name: "catch-up 256 MiB, 8 connections",
        what: What::Read { connections: 8 },
        goal: Goal::Bytes { bar: 1.1e9, aim: 0.6 },
        sides: BOTH,
        rounds: None,
    },
    Load {
        name: "SSE, 1,000 readers, 50/s",
        what: What::Sse { subscribers: 1000, rate: 50.0 },
        goal: Goal::Latency { bar: 1.0, aim: 0.7 },
        sides: BOTH,
        rounds: None,
    },
    Load {
        name: "create, 32 connections",
        what: What::Create { connections: 32 },
        goal: Goal::Figure { bar: 9_000.0, aim: 12_000.0 },
        sides: BOTH,
        rounds: None,
    },
    Load {
        name: "20,000 idle streams",
        what: What::Idle { streams: 20_000 },
        goal: Goal::Idle { bar: (32.0, 0.5), aim: (16.0, 0.1) },
        sides: BOTH,
        rounds: Some(1),
    },
    Load {
        name: "HTTP alone, 64 × 64",
        what: append(64, 64, 256, false),
        goal: Goal::Noop { aim: 0.6 },
        sides: &[Side::Noop, Side::Ours],
        rounds: None,
    },
];

/// One round on one server.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    /// Processor time of the server for one operation, set-up and warm-up included.
    pub(crate) cpu_us: f64,
    /// Resident memory after it, MiB.
    pub(crate) memory: f64,
    /// Until ready again.
    pub(crate) ready: Duration,
    /// Lost and doubled.
    pub(crate) faults: u64,
}

impl Measured {
    pub(crate) fn line(&self) -> String {
        format!(
            "{:>9.0}/s {:>7.1} MB/s  p50 {:>7.3}  p99 {:>7.3}  max {:>7.1} ms  stall {:>5.1} ms  cpu {:>6.1} µs  {:>6.1} MiB  ready {:.3} s",
            self.tally.rate(),
            self.tally.byte_rate() / 1e6,
            self.tally.percentile_ms(50.0),
            self.tally.percentile_ms(99.0),
            self.tally.percentile_ms(100.0),
            self.tally.longest_stall.as_secs_f64() * 1e3,
            self.cpu_us,
            self.memory,
            self.ready.as_secs_f64(),
        )
    }
}

fn common(server: &Server, connections: usize) -> Result<Common> {
    Ok(Common {
        target: Target::parse(&server.url(), "/v1/stream/")?,
        connections,
        duration: Duration::from_millis(2500),
        count: None,
        warmup: Duration::from_millis(700),
        timeout: Duration::from_secs(20),
        keep: true,
    })
}

const BYTES: &str = "application/octet-stream";

/// Runs `load` once on a fresh server.
pub(crate) async fn measure(
    load: &Load,
    binaries: &Binaries,
    side: Side,
    scratch: &Path,
) -> Result<Measured> {
    let server = Server::fresh(binaries, side, scratch).await?;
    let before = server.cpu()?;
    let report = match load.what {
        What::Append { streams, connections, size, producers } => {
            let append = Append { streams, size, content_type: BYTES.into(), producers, verify: false };
            bench::append::run(&common(&server, connections)?, &append).await?
        }
        What::Read { connections } => {
            let read = Read { bytes: 256 << 20, record: 64 << 10, content_type: BYTES.into(), verify: false };
            bench::read::run(&common(&server, connections)?, &read).await?
        }
        What::Sse { subscribers, rate } => {
            let (live, content_type) = (Live::Sse, "text/plain".into());
            let tail = Tail { live, streams: 1, rate, size: 256, content_type };
            bench::tail::run(&common(&server, subscribers)?, &tail).await?
        }
        What::Create { connections } => {
            let create = Create { size: 0, content_type: BYTES.into() };
            bench::create::run(&common(&server, connections)?, &create).await?
        }
        What::Idle { streams } => {
            // The official server keeps a file open for each.
            let streams = streams.min(machine::files().saturating_sub(1_000));
            return idle(server, binaries, side, streams).await;
        }
    };
    measured(&server, &report, before, Duration::ZERO)
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn measured(server: &Server, report: &Report, before: Duration, ready: Duration) -> Result<Measured> {
    let tally = report.main().clone();
    if tally.operations == 0 {
        bail!("nothing succeeded: {:?}", tally.errors);
    }
    if tally.failures() > 0 {
        println!("  failures: {:?}", tally.errors);
    }
    Ok(Measured {
        cpu_us: server.cpu()?.saturating_sub(before).as_secs_f64() * 1e6 / tally.operations as f64,
        memory: server.memory()? as f64 / (1 << 20) as f64,
        ready,
        faults: report.delivered.as_ref().map_or(0, |d| d.lost + d.doubled),
        tally,
    })
}

/// Creates the streams, starts the server anew over them, and looks.
async fn idle(server: Server, binaries: &Binaries, side: Side, streams: u64) -> Result<Measured> {
    let mut common = common(&server, 32)?;
    common.warmup = Duration::ZERO;
    common.duration = Duration::from_secs(60);
    common.count = Some(streams);
    let report = bench::create::run(&common, &Create { size: 0, content_type: BYTES.into() }).await?;
    if report.main().operations < streams {
        bail!("only {} streams were created: {:?}", report.main().operations, report.main().errors);
    }
    let run = report.first_name.clone().context("a create reports the first name")?;
    let (server, ready) = server.restart(binaries, side, &run).await?;
    // What it does in the first moments after a start is not what idling costs.
    tokio::time::sleep(Duration::from_secs(2)).await;
    measured(&server, &report, Duration::ZERO, ready)
}
