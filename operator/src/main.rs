//! Parses, logs, runs, exits with a code.

fn main() {}
