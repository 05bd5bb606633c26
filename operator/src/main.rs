//! Parses, logs, runs, exits with a code.

fn main() -> std::process::ExitCode {
    weir_operator::run::main()
}
