//! Parses, logs, runs, exits with a code.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::cli::main(std::env::args_os()).into()
}
