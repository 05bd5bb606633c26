//! The command line: what `weir` can be asked, one file per command, and the code it exits with.
//!
//! Invariant: answers go to stdout, everything else to stderr; an error says what to change. Called by
//! `main` alone.

mod admin;
mod append;
mod bench;
mod completions;
mod config;
mod connect;
mod create;
mod dev;
mod exit;
mod human;
mod info;
mod input;
mod logging;
mod members;
mod moves;
mod output;
mod progress;
mod read;
mod serve;
mod sink;
mod source;
mod stop;
#[cfg(test)]
mod tests;
mod values;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::{Parser, Subcommand};

pub use exit::ExitCode;

use crate::config::SettingArgs;
use crate::format;

#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    about = "Durable, append-only streams over HTTP",
    after_help = format!("{EXAMPLES}\n\n{}", exit::EXIT_CODES),
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  weir serve
      Run a node, data in ./data
  weir create notes --content-type text/plain
  weir append notes 'first ' 'second '
  weir read notes
  weir tail notes
  weir dev up
      A cluster of three on this machine, to play with

`weir COMMAND --help` has more of them.";

const UNITS: &str = "\
Every setting can be given as a flag, as an environment variable or as a key of the TOML file of --config; a flag wins \
over the environment, that over the file, that over the default. TIME is a whole number with a unit: 500ms, 10s, 5m, \
1h, 7d. SIZE is a number of bytes or has a unit: 64KiB, 8MiB, 1GiB.";

const SERVE_EXAMPLES: &str = "\
Examples:
  weir serve
      A cluster of one on this machine; data in ./data, clients at http://127.0.0.1:4437
  weir serve --data-dir /var/lib/weir --store s3://records/weir
      Records in a bucket; AWS_REGION and credentials from the environment
  weir serve --config /etc/weir.toml --log-format json
      Settings from a file; `weir config --config /etc/weir.toml` shows what they amount to

SIGTERM and SIGINT stop it in order, within --shutdown-grace.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node
    #[command(long_about = format!("Run a node.\n\n{UNITS}"), after_help = format!("{SERVE_EXAMPLES}\n\n{}", exit::EXIT_CODES))]
    Serve(SettingArgs),
    /// Print the configuration that `serve` would run with, and where each value comes from
    #[command(long_about = format!("Print the configuration that `serve` would run with, as TOML, and where each value \
        comes from.\n\n{UNITS}"), after_help = exit::EXIT_CODES)]
    Config {
        #[command(flatten)]
        settings: SettingArgs,
        /// Print JSON instead of TOML
        #[arg(long)]
        json: bool,
    },
    Create(create::Create),
    Append(Box<append::AppendArgs>),
    Read(Box<read::Read>),
    Tail(read::Tail),
    Head(info::Head),
    Ls(info::Ls),
    Close(info::Close),
    Rm(info::Rm),
    Fork(create::Fork),
    /// Measure a server of the protocol
    #[command(long_about = bench::ABOUT, after_help = format!("{}\n\n{}", bench::EXAMPLES, exit::EXIT_CODES))]
    Bench(bench::BenchArgs),
    Admin(admin::Admin),
    Dev(Box<dev::Dev>),
    Completions(completions::Completions),
    /// Print the version and the format versions it reads
    Version,
    /// Print a page of the documentation that is made from the program
    #[command(hide = true)]
    Reference(completions::Reference),
}

/// Runs one command line, program name first.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match Cli::try_parse_from(args) {
        Ok(cli) => run(cli.command),
        Err(e) => {
            let code = if e.use_stderr() { ExitCode::Usage } else { ExitCode::Ok };
            // Nobody is left to tell if stdout or stderr is closed.
            e.print().map_or(ExitCode::Failure, |()| code)
        }
    }
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Serve(settings) => serve::run(&settings),
        Command::Config { settings, json } => config::run(&settings, json),
        Command::Bench(args) => bench::run(&args),
        Command::Create(args) => create::create(args),
        Command::Append(args) => append::run(*args),
        Command::Read(args) => read::read(*args),
        Command::Tail(args) => read::tail(args),
        Command::Head(args) => info::head(args),
        Command::Ls(args) => info::ls(args),
        Command::Close(args) => info::close(args),
        Command::Rm(args) => info::rm(args),
        Command::Fork(args) => create::fork(args),
        Command::Admin(args) => admin::run(args),
        Command::Dev(args) => dev::run(*args),
        Command::Completions(args) => completions::run(&args),
        Command::Reference(args) => answer(&args.page()),
        Command::Version => {
            let version = env!("CARGO_PKG_VERSION");
            answer(&format!("weir {version}\nformats {}\n", format::range()))
        }
    }
}

/// Writes to stdout. A reader that went away, as `head` does, is no failure.
fn answer(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::Ok,
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::Ok,
        Err(e) => complain(&format!("cannot write to stdout: {e}"), ExitCode::Failure),
    }
}

/// One line to stderr; for errors before, or outside of, logging.
fn complain(text: &str, code: ExitCode) -> ExitCode {
    // If stderr is closed, the exit code must do.
    drop(writeln!(io::stderr().lock(), "weir: {text}"));
    code
}

/// One line to stderr that is no error: a hint, or where to go on.
fn note(text: &str) {
    // If stderr is closed, nobody wants to know.
    drop(writeln!(io::stderr().lock(), "{text}"));
}
