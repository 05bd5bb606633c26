//! This server beside the official one, load by load, on this machine: `make bench`.
//!
//! Each load runs in rounds, and in each round on both servers one after the other, each started on a fresh directory of
//! the same disk; the table shows each server's median round. Then a cluster of three of ours. Writes the generated part of `docs/benchmarks.md` and two
//! pictures beside it; asserts nothing.

#![allow(clippy::print_stdout, reason = "a measurement for people")]

mod cluster;
mod loads;
mod machine;
mod page;
mod servers;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use loads::{LOADS, Measured};
use servers::Side;

const USAGE: &str = "compare --ours WEIR --theirs DURABLE-STREAMS-SERVER --dir SCRATCH [--apply APPLY_SCALE] [--rounds N] [--only TEXT] [--out PAGE.md]";

/// What `--only` calls the part of the cluster.
const CLUSTER: &str = "cluster of three";

struct Args {
    ours: PathBuf,
    theirs: PathBuf,
    dir: PathBuf,
    apply: Option<PathBuf>,
    rounds: usize,
    only: Option<String>,
    out: Option<PathBuf>,
}

fn args() -> Result<Args> {
    let (mut ours, mut theirs, mut dir, mut apply, mut only, mut out) = (None, None, None, None, None, None);
    let mut rounds = 3;
    let mut words = std::env::args().skip(1);
    while let Some(flag) = words.next() {
        let value = words.next().with_context(|| format!("{flag} lacks a value; usage: {USAGE}"))?;
        match flag.as_str() {
            "--ours" => ours = Some(PathBuf::from(value)),
            "--theirs" => theirs = Some(PathBuf::from(value)),
            "--dir" => dir = Some(PathBuf::from(value)),
            "--apply" => apply = Some(PathBuf::from(value)),
            "--rounds" => rounds = value.parse().context("--rounds is a number")?,
            "--only" => only = Some(value),
            "--out" => out = Some(PathBuf::from(value)),
            _ => bail!("unknown flag {flag}; usage: {USAGE}"),
        }
    }
    let needed = |path: Option<PathBuf>| path.with_context(|| format!("usage: {USAGE}"));
    let rounds = rounds.max(1);
    Ok(Args { ours: needed(ours)?, theirs: needed(theirs)?, dir: needed(dir)?, apply, rounds, only, out })
}

fn main() -> Result<()> {
    let args = args()?;
    // One thread, as `weir bench` has by default.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(&args))
}

async fn run(args: &Args) -> Result<()> {
    std::fs::create_dir_all(&args.dir)?;
    machine::files();
    let binaries = servers::Binaries { ours: args.ours.clone(), theirs: args.theirs.clone() };
    let mut page = page::Page::new(machine::describe(&args.dir)?, args.rounds);
    println!("{}", page.machine());
    for load in LOADS.iter().filter(|l| args.only.as_ref().is_none_or(|text| l.name.contains(text.as_str())))
    {
        let mut rounds: Vec<(Side, Vec<Measured>)> = load.sides.iter().map(|side| (*side, vec![])).collect();
        let mut refused = None;
        for round in 0..load.rounds.unwrap_or(args.rounds) {
            // Who comes first changes, since whoever comes second finds the disk as the first left it.
            let order: Vec<usize> =
                if round % 2 == 0 { (0..rounds.len()).collect() } else { (0..rounds.len()).rev().collect() };
            for at in order {
                let (side, measured) = &mut rounds[at];
                match loads::measure(load, &binaries, *side, &args.dir).await {
                    Ok(one) => {
                        println!("{:<34} {:<7} {}", load.name, side.name(), one.line());
                        measured.push(one);
                    }
                    Err(e) => {
                        println!("{:<34} {:<7} {e:#}", load.name, side.name());
                        refused = Some(format!("{}: {e:#}", side.name()));
                    }
                }
            }
        }
        page.add(load, rounds, refused);
    }
    if args.only.as_ref().is_none_or(|text| CLUSTER.contains(text.as_str())) {
        page.cluster =
            Some(cluster::figures(&args.ours, args.apply.as_deref(), &args.dir, args.rounds).await?);
    }
    let text = page.generated();
    println!("\n{text}");
    if let Some(out) = &args.out {
        page.write(out)?;
    }
    Ok(())
}
