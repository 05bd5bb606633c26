//! `weir-sim SEED`: plays one run and says what it showed. `--trace`: and all that happened. `--mutant NAME`: with a
//! deliberate mistake in the nodes. `--scenario NAME`: not the schedule that follows from the seed but one made by hand.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test program, outside of the node's doors"
)]

use std::process::ExitCode;

use weir::mutant::{self, Mutant};
use weir_sim::run;
use weir_sim::schedule::Scenario;

/// Events of a failed run that are printed without being asked for.
const LAST: usize = 40;

fn main() -> ExitCode {
    let mut seed = None;
    let mut print = false;
    let mut mutant = None;
    let mut scenario = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--trace" => print = true,
            "--scenario" => {
                let name = args.next().unwrap_or_default();
                scenario = Scenario::named(&name);
                if scenario.is_none() {
                    println!(
                        "no such scenario: {name:?}; there are stale-views, zombies, islands, sleepers and many:NODES:STREAMS"
                    );
                    return ExitCode::from(2);
                }
            }
            "--mutant" => {
                let name = args.next().unwrap_or_default();
                mutant = Mutant::ALL.iter().copied().find(|m| format!("{m:?}") == name);
                if mutant.is_none() {
                    println!("no such mutant: {name:?}; there are {:?}", Mutant::ALL);
                    return ExitCode::from(2);
                }
            }
            text => seed = text.parse::<u64>().ok(),
        }
    }
    let Some(seed) = seed else {
        println!("usage: weir-sim SEED [--trace] [--mutant NAME] [--scenario NAME]");
        return ExitCode::from(2);
    };
    if let Ok(filter) = std::env::var("WEIR_SIM_LOG") {
        tracing_subscriber::fmt().with_env_filter(filter).without_time().with_writer(std::io::stderr).init();
    }
    // Hash maps draw their order once per thread: in a thread that has none yet, it follows from the seed.
    let verdict = std::thread::spawn(move || {
        weir_chance::take_over(seed);
        mutant::set(mutant);
        run::run(seed, scenario, weir_chance::tell)
    });
    let Ok(verdict) = verdict.join() else {
        println!("seed {seed}\nBROKEN run: a part of the simulation has panicked");
        return ExitCode::from(3);
    };
    if print {
        println!("{}", verdict.trace.print(0));
    }
    println!("seed {seed} hash {:016x} events {}", verdict.trace.hash(), verdict.trace.events.len());
    for broken in &verdict.broken {
        println!("BROKEN {broken}");
    }
    if !verdict.broken.is_empty() && !print {
        println!("{}", verdict.trace.print(verdict.trace.events.len().saturating_sub(LAST)));
    }
    if verdict.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
