//! The binary as a user meets it is tested in `tests/cli.rs`; here is what needs no process.

use clap::CommandFactory as _;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_exit_code_stands_in_the_help() {
    use ExitCode::{
        Closed, Denied, Failure, Foreign, InUse, NotFound, Ok, Refused, StoreUnfit, Superseded, Unavailable,
        Unknown, Usage,
    };
    let node = [Foreign, Superseded, StoreUnfit, InUse];
    let client = [Ok, Failure, Usage, NotFound, Refused, Closed, Unavailable, Unknown, Denied];
    for code in node.iter().chain(&client) {
        assert!(exit::EXIT_CODES.contains(&format!("\n  {}  ", *code as u8)), "{code:?}");
    }
    for code in client {
        assert!(exit::CLIENT_CODES.contains(&format!("\n  {}  ", code as u8)), "{code:?}");
    }
    let help = Cli::command().render_long_help().to_string();
    assert!(help.contains("Exit codes:"));
}

#[test]
fn the_reference_says_what_the_help_says() {
    let written = include_str!("../../../docs/cli.md");
    assert!(written == completions::reference(), "docs/cli.md is out of date: weir reference > docs/cli.md");
}

#[test]
fn every_command_teaches_by_examples_and_says_its_exit_codes() {
    fn look(command: &mut clap::Command, path: &str) {
        let help = command.render_long_help().to_string();
        let listed = command.get_subcommands().map(|c| c.get_name().to_owned()).collect::<Vec<_>>();
        let plain = ["weir version", "weir config", "weir completions"].contains(&path);
        let parent_shows = path.starts_with("weir admin ");
        assert!(plain || parent_shows || help.contains("Examples:"), "{path}");
        assert!(
            ["weir version", "weir completions"].contains(&path) || help.contains("Exit codes:"),
            "{path}"
        );
        for name in listed {
            let sub = command.find_subcommand_mut(&name).expect("it was listed");
            if !sub.is_hide_set() {
                look(sub, &format!("{path} {name}"));
            }
        }
    }
    look(&mut Cli::command(), "weir");
}
