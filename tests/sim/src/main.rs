//! `weir-sim SEED`: plays one run and says what it showed; with `--trace`, all that happened.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a test program, outside of the node's doors")]

use std::process::ExitCode;

use weir_sim::run;

fn main() -> ExitCode {
    let mut seed = None;
    let mut print = false;
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--trace" => print = true,
            text => seed = text.parse::<u64>().ok(),
        }
    }
    let Some(seed) = seed else {
        println!("usage: weir-sim SEED [--trace]");
        return ExitCode::from(2);
    };
    if let Ok(filter) = std::env::var("WEIR_SIM_LOG") {
        tracing_subscriber::fmt().with_env_filter(filter).without_time().with_writer(std::io::stderr).init();
    }
    // Hash maps draw their order once per thread: in a thread that has none yet, it follows from the seed.
    let verdict = std::thread::spawn(move || {
        weir_chance::take_over(seed);
        run::run(seed, weir_chance::tell)
    });
    let Ok(verdict) = verdict.join() else {
        println!("seed {seed}: a part of the simulation has panicked");
        return ExitCode::from(3);
    };
    if print {
        println!("{}", verdict.trace.print(0));
    }
    println!("seed {seed} hash {:016x} events {}", verdict.trace.hash(), verdict.trace.events.len());
    for (name, what) in &verdict.broken {
        println!("BROKEN {name}: {what}");
    }
    if verdict.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
