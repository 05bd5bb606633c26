//! `weir bench`: the loads' flags, the runtime they run on, and where the outcome goes.

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use super::{ExitCode, answer, complain};
use crate::bench::append::Append;
use crate::bench::create::Create;
use crate::bench::mixed::{Mix, Mixed};
use crate::bench::plot::{Series, svg};
use crate::bench::read::Read;
use crate::bench::tail::{Live, Tail};
use crate::bench::{self, BenchError, Common, Report, Target};
use crate::config::units;
use crate::http::HttpLimits;
use crate::net;
use crate::tasks::Tasks;

pub(super) const ABOUT: &str = "\
Measure a server of the Durable Streams protocol, this one or another.

A load creates streams of its own, measures, and deletes them again. Connections send one request after another; what \
ends after the warm-up and before the time is up counts. TIME is a whole number with a unit: 500ms, 10s, 5m. SIZE is a \
number of bytes or has a unit: 256, 64KiB, 256MiB.";

pub(super) const EXAMPLES: &str = "\
Examples:
  weir bench append --connections 64 --streams 64 --size 256
      Appends for 10 s, then a line of figures
  weir bench append --producers --verify --count 100000
      As idempotent producers; then everything is read back and compared
  weir bench read --bytes 256MiB --connections 8
  weir bench tail --live sse --subscribers 1000 --rate 50 --plot tail.svg
  weir bench append --target http://127.0.0.1:4438 --prefix /v1/stream/ --json
      Another server; JSON for programs
  weir bench --serve-noop 127.0.0.1:4500
      A server that does nothing, in another terminal; then: weir bench append --target http://127.0.0.1:4500

Exit code 1 means that requests failed, or that records were lost, doubled or damaged.";

const APPEND_EXAMPLES: &str = "\
Examples:
  weir bench append --connections 64 --streams 1000 --size 256 --duration 30s
      64 connections go round 1,000 streams
  weir bench append --connections 8 --streams 8 --content-type application/json --verify
      JSON strings, read back and compared byte by byte";

const READ_EXAMPLES: &str = "\
Examples:
  weir bench read --bytes 256MiB --connections 8
      Appends 256 MiB, then eight connections read all of it, as often as the time allows
  weir bench read --bytes 1GiB --verify --json";

const TAIL_EXAMPLES: &str = "\
Examples:
  weir bench tail --subscribers 1000 --rate 50
      One stream, 50 records a second, 1,000 readers by server-sent events
  weir bench tail --live long-poll --subscribers 10000 --streams 1000 --rate 1 --duration 60s";

const CREATE_EXAMPLES: &str = "\
Examples:
  weir bench create --connections 32 --duration 10s
  weir bench create --connections 32 --count 20000 --keep
      Leaves 20,000 streams";

const MIXED_EXAMPLES: &str = "\
Examples:
  weir bench mixed --connections 16
  weir bench mixed --connections 16 --mix append=90,read=10 --plot mixed.svg";

fn with_codes(examples: &str) -> String {
    format!("{examples}\n\n{}", super::exit::EXIT_CODES)
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    load: Option<Load>,
    /// Serve at this address, answering 204 to everything, through the HTTP stack that `weir serve` uses
    #[arg(long, value_name = "ADDRESS")]
    serve_noop: Option<SocketAddr>,
}

#[derive(Debug, Subcommand)]
enum Load {
    /// Append records
    #[command(after_help = with_codes(APPEND_EXAMPLES))]
    Append(AppendArgs),
    /// Read a stream from its start to its tail, again and again
    #[command(after_help = with_codes(READ_EXAMPLES))]
    Read(ReadArgs),
    /// Follow streams live while records are appended at a steady rate
    #[command(after_help = with_codes(TAIL_EXAMPLES))]
    Tail(TailArgs),
    /// Create streams
    #[command(after_help = with_codes(CREATE_EXAMPLES))]
    Create(CreateArgs),
    /// Appends, reads, heads and creates beside each other
    #[command(after_help = with_codes(MIXED_EXAMPLES))]
    Mixed(MixedArgs),
}

#[derive(Debug, Args)]
struct AppendArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    connections: Connections,
    /// Streams; with more than connections each connection goes round its own, with fewer they share
    #[arg(long, value_name = "N", default_value = "1")]
    streams: NonZeroUsize,
    /// Size of a record
    #[arg(long, value_name = "SIZE", default_value = "256", value_parser = record_size)]
    size: usize,
    /// Content type of the streams
    #[arg(long, value_name = "TYPE", default_value = "application/octet-stream", value_parser = content_type)]
    content_type: String,
    /// Append as idempotent producers, one for each connection
    #[arg(long)]
    producers: bool,
    /// Read everything back and compare every byte in order
    #[arg(long)]
    verify: bool,
}

#[derive(Debug, Args)]
struct ReadArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    connections: Connections,
    /// Size of the stream, which is appended first
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = stream_size)]
    bytes: u64,
    /// Size of a record, each one append
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = record_size)]
    record: usize,
    /// Content type of the stream
    #[arg(long, value_name = "TYPE", default_value = "application/octet-stream", value_parser = content_type)]
    content_type: String,
    /// Compare every byte
    #[arg(long)]
    verify: bool,
}

#[derive(Debug, Args)]
struct TailArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// How readers follow
    #[arg(long, value_enum, default_value = "sse")]
    live: LiveArg,
    /// Readers, each with a connection
    #[arg(long, value_name = "N", default_value = "100")]
    subscribers: NonZeroUsize,
    /// Streams, each with a writer; readers are shared out among them
    #[arg(long, value_name = "N", default_value = "1")]
    streams: NonZeroUsize,
    /// Records a second on each stream, from 0.01 to 100000
    #[arg(long, value_name = "N", default_value = "50", value_parser = rate)]
    rate: f64,
    /// Size of a record
    #[arg(long, value_name = "SIZE", default_value = "256", value_parser = record_size)]
    size: usize,
    /// Content type of the streams: text/… or application/json
    #[arg(long, value_name = "TYPE", default_value = "text/plain", value_parser = content_type)]
    content_type: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LiveArg {
    Sse,
    LongPoll,
}

#[derive(Debug, Args)]
struct CreateArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    connections: Connections,
    /// Size of the first bytes; 0 creates empty streams
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = first_size)]
    size: usize,
    /// Content type of the streams
    #[arg(long, value_name = "TYPE", default_value = "application/octet-stream", value_parser = content_type)]
    content_type: String,
}

#[derive(Debug, Args)]
struct MixedArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    connections: Connections,
    /// Streams, used by all connections
    #[arg(long, value_name = "N", default_value = "64")]
    streams: NonZeroUsize,
    /// Size of a record
    #[arg(long, value_name = "SIZE", default_value = "256", value_parser = record_size)]
    size: usize,
    /// Shares of the operations
    #[arg(long, value_name = "MIX", default_value = "append=70,read=20,head=5,create=5", value_parser = Mix::parse)]
    mix: Mix,
    /// Content type of the streams
    #[arg(long, value_name = "TYPE", default_value = "application/octet-stream", value_parser = content_type)]
    content_type: String,
}

#[derive(Debug, Args)]
struct Connections {
    /// Connections, each with one request at a time
    #[arg(long, value_name = "N", default_value = "1")]
    connections: NonZeroUsize,
}

#[derive(Debug, Args)]
struct CommonArgs {
    /// The server, http only
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4437")]
    target: String,
    /// The path under which its streams are
    #[arg(long, value_name = "PATH", default_value = "/v1/stream/")]
    prefix: String,
    /// Measure for this long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = run_time)]
    duration: Duration,
    /// Stop after so many operations, if that is sooner
    #[arg(long, value_name = "N")]
    count: Option<NonZeroU64>,
    /// Run this long before measuring
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = warm_up)]
    warmup: Duration,
    /// Wait this long for an answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = run_time)]
    timeout: Duration,
    /// Threads of the client; more than one if the client is what limits
    #[arg(long, value_name = "N", default_value = "1")]
    threads: NonZeroUsize,
    /// Leave the streams on the server
    #[arg(long)]
    keep: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Draw the latency distribution into this file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

fn run_time(text: &str) -> Result<Duration, String> {
    units::duration(text, "10ms", "1d")
}

fn warm_up(text: &str) -> Result<Duration, String> {
    units::duration(text, "0ms", "1h")
}

fn record_size(text: &str) -> Result<usize, String> {
    units::size(text, "1B", "64MiB").map(|n| usize::try_from(n).unwrap_or(usize::MAX))
}

fn first_size(text: &str) -> Result<usize, String> {
    units::size(text, "0B", "64MiB").map(|n| usize::try_from(n).unwrap_or(usize::MAX))
}

fn stream_size(text: &str) -> Result<u64, String> {
    units::size(text, "1B", "1TiB")
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if (0.01..=100_000.0).contains(&n) => Ok(n),
        _ => Err("a number from 0.01 to 100000".to_owned()),
    }
}

fn content_type(text: &str) -> Result<String, String> {
    let plain = text.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
    let halves = text.split(';').next().and_then(|t| t.split_once('/'));
    match halves {
        Some((kind, sub)) if plain && !kind.trim().is_empty() && !sub.trim().is_empty() => {
            Ok(text.to_owned())
        }
        _ => Err("a media type, as application/json or text/plain; charset=utf-8".to_owned()),
    }
}

impl CommonArgs {
    fn common(&self, connections: usize) -> Result<Common, BenchError> {
        Ok(Common {
            target: Target::parse(&self.target, &self.prefix)?,
            connections,
            duration: self.duration,
            count: self.count.map(NonZeroU64::get),
            warmup: self.warmup,
            timeout: self.timeout,
            keep: self.keep,
        })
    }
}

pub(super) fn run(args: &BenchArgs) -> ExitCode {
    match (&args.load, args.serve_noop) {
        (Some(load), _) => run_load(load),
        (None, Some(address)) => serve_noop(address),
        (None, None) => complain("bench: say which load, or --serve-noop", ExitCode::Usage),
    }
}

fn run_load(load: &Load) -> ExitCode {
    let args = load.common();
    // A connection is a descriptor, and there may be ten thousand.
    net::raise_descriptor_limit();
    let runtime = match runtime(args.threads.get()) {
        Ok(runtime) => runtime,
        Err(e) => return complain(&format!("cannot start threads: {e}"), ExitCode::Failure),
    };
    match runtime.block_on(Box::pin(measure(load))) {
        Ok(report) => show(args, &report),
        Err(e @ BenchError::Usage(_)) => complain(&e.to_string(), ExitCode::Usage),
        Err(e @ BenchError::Server(_)) => complain(&e.to_string(), ExitCode::Failure),
    }
}

impl Load {
    fn common(&self) -> &CommonArgs {
        match self {
            Self::Append(a) => &a.common,
            Self::Read(a) => &a.common,
            Self::Tail(a) => &a.common,
            Self::Create(a) => &a.common,
            Self::Mixed(a) => &a.common,
        }
    }
}

async fn measure(load: &Load) -> Result<Report, BenchError> {
    match load {
        Load::Append(AppendArgs { common, connections, streams, size, content_type, producers, verify }) => {
            let load = Append {
                streams: streams.get(),
                size: *size,
                content_type: content_type.clone(),
                producers: *producers,
                verify: *verify,
            };
            bench::append::run(&common.common(connections.connections.get())?, &load).await
        }
        Load::Read(ReadArgs { common, connections, bytes, record, content_type, verify }) => {
            let load =
                Read { bytes: *bytes, record: *record, content_type: content_type.clone(), verify: *verify };
            bench::read::run(&common.common(connections.connections.get())?, &load).await
        }
        Load::Tail(TailArgs { common, live, subscribers, streams, rate, size, content_type }) => {
            let live = match live {
                LiveArg::Sse => Live::Sse,
                LiveArg::LongPoll => Live::LongPoll,
            };
            let load = Tail {
                live,
                streams: streams.get(),
                rate: *rate,
                size: *size,
                content_type: content_type.clone(),
            };
            bench::tail::run(&common.common(subscribers.get())?, &load).await
        }
        Load::Create(CreateArgs { common, connections, size, content_type }) => {
            let load = Create { size: *size, content_type: content_type.clone() };
            bench::create::run(&common.common(connections.connections.get())?, &load).await
        }
        Load::Mixed(MixedArgs { common, connections, streams, size, mix, content_type }) => {
            let load =
                Mixed { mix: *mix, streams: streams.get(), size: *size, content_type: content_type.clone() };
            bench::mixed::run(&common.common(connections.connections.get())?, &load).await
        }
    }
}

fn show(args: &CommonArgs, report: &Report) -> ExitCode {
    if let Some(file) = &args.plot {
        let series: Vec<_> =
            report.parts.iter().map(|p| Series { name: &p.name, latency: &p.tally.latency }).collect();
        let title = format!("weir bench {}, {}", report.load, args.target);
        if let Err(e) = std::fs::write(file, svg(&title, &series)) {
            return complain(&format!("cannot write {}: {e}", file.display()), ExitCode::Failure);
        }
    }
    let text = if args.json { format!("{:#}\n", report.json()) } else { report.table() };
    match answer(&text) {
        ExitCode::Ok if report.parts.iter().all(|p| p.tally.operations == 0) => {
            complain("nothing was done in the time", ExitCode::Failure)
        }
        ExitCode::Ok if !report.is_good() => ExitCode::Failure,
        code => code,
    }
}

/// One thread needs no locks and wakes nobody; it suffices to load a server on as many cores again.
fn runtime(threads: usize) -> std::io::Result<Runtime> {
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder.enable_all().build()
}

fn serve_noop(address: SocketAddr) -> ExitCode {
    let runtime = match Builder::new_multi_thread().enable_all().thread_name("weir").build() {
        Ok(runtime) => runtime,
        Err(e) => return complain(&format!("cannot start threads: {e}"), ExitCode::Failure),
    };
    let served: std::io::Result<()> = runtime.block_on(async {
        let listener = net::bind(address).await?;
        let at = listener.local_addr()?;
        let stop = CancellationToken::new();
        let ended = stop.clone();
        let tasks = Tasks::default();
        tasks.spawn(async move {
            // Without signals it serves until it is killed.
            if tokio::signal::ctrl_c().await.is_ok() {
                ended.cancel();
            }
        });
        answer(&format!("answers 204 to everything at http://{at}\n"));
        crate::http::serve_noop(listener, HttpLimits::default(), stop, tasks).await;
        Ok(())
    });
    match served {
        Ok(()) => ExitCode::Ok,
        Err(e) => complain(&e.to_string(), ExitCode::Failure),
    }
}
