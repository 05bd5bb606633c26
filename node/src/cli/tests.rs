//! The binary as a user meets it is tested in `tests/cli.rs`; here is what needs no process.

use clap::CommandFactory as _;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_exit_code_stands_in_the_help() {
    use ExitCode::{Failure, Foreign, InUse, Ok, StoreUnfit, Superseded, Usage};
    for code in [Ok, Failure, Usage, Foreign, Superseded, StoreUnfit, InUse] {
        assert!(exit::EXIT_CODES.contains(&format!("\n  {}  ", code as u8)));
    }
    let help = Cli::command().render_long_help().to_string();
    assert!(help.contains("Exit codes:"));
}
