//! `weir completions`, and the references that `docs/cli.md` and `docs/metrics.md` are.
//!
//! Invariant: they come from the definitions that parse the command line and that `/metrics` is written from, so they
//! cannot say anything else.

use clap::{Args, Command, CommandFactory as _, ValueEnum};
use clap_complete::Shell;

use super::{Cli, ExitCode, answer};
use crate::metrics;

pub(super) const HELP: &str = "\
Examples:
  weir completions bash > ~/.local/share/bash-completion/completions/weir
  weir completions zsh > ~/.zfunc/_weir
      With fpath+=~/.zfunc before compinit in ~/.zshrc
  weir completions fish > ~/.config/fish/completions/weir.fish";

/// Print a script with which a shell completes commands and flags
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

pub(super) fn run(args: &Completions) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "weir", &mut script);
    answer(&String::from_utf8_lossy(&script))
}

/// A page of the documentation.
#[derive(Debug, Args)]
pub(super) struct Reference {
    /// Which one
    #[arg(value_name = "PAGE", value_enum, default_value = "cli")]
    page: Page,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Page {
    /// `docs/cli.md`
    Cli,
    /// `docs/metrics.md`
    Metrics,
}

impl Reference {
    pub(super) fn page(&self) -> String {
        match self.page {
            Page::Cli => reference(),
            Page::Metrics => metrics::reference(),
        }
    }
}

/// Text columns of the reference.
const WIDTH: usize = 100;

/// `docs/cli.md`.
pub(super) fn reference() -> String {
    let mut text = "\
# The command line

Everything that `weir` can be asked. This page is made from the program's own help: `weir reference > docs/cli.md`
writes it, and a test checks that it is true.
"
    .to_owned();
    let mut root = Cli::command().term_width(WIDTH);
    root.build();
    section(&mut root, "weir", 2, &mut text);
    text
}

fn section(command: &mut Command, path: &str, level: usize, text: &mut String) {
    let help = command.clone().term_width(WIDTH).render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let hashes = "#".repeat(level);
    text.push_str(&format!("\n{hashes} {path}\n\n```text\n{}\n```\n", lines.join("\n").trim_end()));
    for sub in command.get_subcommands_mut().filter(|s| !s.is_hide_set() && s.get_name() != "help") {
        let path = format!("{path} {}", sub.get_name());
        section(sub, &path, level + 1, text);
    }
}
