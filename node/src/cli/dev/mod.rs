//! `weir dev up`: a cluster of real processes on this machine, to play with and for tests.
//!
//! Invariant: every node is an ordinary `weir serve` with a configuration file that can be started by hand; what this
//! adds is choosing addresses, waiting, showing, and stopping. One idea a file: `folder` is what is kept on disk, `plan`
//! the nodes' configuration (pure), `process` one node, `logs` what they write, `screen` what the user reads (pure), `up`
//! the order of it all.

mod folder;
mod logs;
mod plan;
mod process;
mod screen;
#[cfg(test)]
mod tests;
mod up;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use weir_api::Slots;

use super::{ExitCode, connect, exit};

const UP_EXAMPLES: &str = "\
Examples:
  weir dev up
      Three nodes; prints where they are and what to try, then follows their logs. Ctrl-C stops all, what is stored stays
  weir dev up --nodes 5 --slots 4,1,1,1,1 --routing forward --fresh
      Five nodes, the first with four times the share of new streams; begins anew, and nobody is redirected
  weir dev up --dir /tmp/other --quiet --json
      A second cluster beside the first, for a script: one JSON object once all are ready, no logs
  weir dev up -- --node-timeout 2s --lease 1s
      What follows -- goes to every `weir serve`: here the streams of a node that dies go on after two seconds

To watch a takeover, kill a node by the process id that is shown; what is printed then says how to start it again.";

/// A cluster of separate processes on this machine
#[derive(Debug, Args)]
#[command(after_help = format!("{UP_EXAMPLES}\n\n{}", exit::EXIT_CODES), subcommand_required = true,
          arg_required_else_help = true, disable_help_subcommand = true)]
pub(super) struct Dev {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Start a cluster, show where it is, follow its logs, and stop it at Ctrl-C
    #[command(after_help = format!("{UP_EXAMPLES}\n\n{}", exit::EXIT_CODES))]
    Up(Up),
}

/// What the user asks for.
#[derive(Debug, Args)]
struct Up {
    /// Nodes, 1 to 9; more than were there join, fewer need --fresh [default: as many as were there, at first 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=9))]
    nodes: Option<u16>,
    /// Folder of bucket, data directories, configurations and logs, kept across runs
    /// [default: $XDG_STATE_HOME/weir/dev, ~/.local/state/weir/dev]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Delete what the folder holds, and begin anew
    #[arg(long)]
    fresh: bool,
    /// First port: node n listens at PORT + 10n for clients, the next for nodes, the next for administration; 0 takes
    /// any free ones [default: 4437 and 9090 as `weir serve`, 4447 and 9091 …, others where these are taken]
    #[arg(long, value_name = "PORT", value_parser = base_port)]
    base_port: Option<u16>,
    /// Weights for new streams, one for each node, as 4,1,1; 0 takes none [default: 1 each, or what was set before]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    slots: Vec<Slots>,
    /// What a node does with a request for another's stream [default: redirect]
    #[arg(long, value_name = "MODE")]
    routing: Option<Routing>,
    /// Do not follow the nodes' logs; they are in the folder
    #[arg(long)]
    quiet: bool,
    /// Print addresses and process ids as one JSON object once all are ready
    #[arg(long)]
    json: bool,
    /// Flags for every `weir serve`
    #[arg(last = true, value_name = "SERVE FLAGS")]
    more: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Routing {
    /// 307 to the owner
    Redirect,
    /// Pass it on
    Forward,
}

fn base_port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) => Ok(0),
        Ok(port @ 1024..=plan::BASE_MAX) => Ok(port),
        _ => Err(format!("allowed: 0, or 1024 to {}, so that nine nodes have room", plan::BASE_MAX)),
    }
}

pub(super) fn run(dev: Dev) -> ExitCode {
    let What::Up(up) = dev.what;
    connect::run(async move |tasks| up::up(up, tasks).await)
}
