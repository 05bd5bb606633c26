//! The table of fault points: for each, a process that aborts exactly there, and a start after it that has everything.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use weir_tests::files::{Scratch, files};
use weir_tests::load::Shape;
use weir_tests::node::{Setup, aborted, has_fault_points};
use weir_tests::rng::{Rng, seed};
use weir_tests::rounds::{Rounds, hurried};

/// Every fault point of the node, and at which passes it is tried.
const POINTS: &[(&str, &[u32])] = &[];

/// The names in the node's source.
fn in_source() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../node/src");
    let mut found = BTreeSet::new();
    for file in files(&root).unwrap() {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        for part in text.split("fault::point(\"").skip(1) {
            found.insert(part.split('"').next().unwrap().to_owned());
        }
    }
    found
}

#[test]
fn the_table_has_every_point_of_the_source() {
    let table: BTreeSet<String> = POINTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(table, in_source(), "left: this table, right: node/src");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_at_any_point_loses_nothing() {
    assert!(has_fault_points(), "build the node with --features fault-points");
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut failed = Vec::new();
    for &(name, passes) in POINTS {
        for &pass in passes {
            let verdict = abort_at(name, pass, rng.fork()).await;
            if let Err(e) = verdict.with_context(|| format!("at {name}:{pass}")) {
                failed.push(format!("{e:#}"));
            }
        }
    }
    assert!(failed.is_empty(), "replay with WEIR_SEED={seed}\n{}", failed.join("\n\n"));
}

async fn abort_at(name: &str, pass: u32, rng: Rng) -> Result<()> {
    let scratch = Scratch::new();
    let setup = hurried(Setup::new(scratch.path("data")));
    // A killed session first, so that the armed process has something to recover.
    let mut rounds = Rounds::begin(setup.clone(), Shape::default(), rng).await?;
    rounds.load_and_kill().await?;
    rounds.setup = setup.clone().env("WEIR_FAULT_POINT", format!("{name}:{pass}"));
    load_until_abort(&mut rounds).await?;
    rounds.setup = setup;
    rounds.restart_and_verify().await
}

/// Runs the armed process through start, load and, if it still lives, SIGTERM.
async fn load_until_abort(rounds: &mut Rounds) -> Result<()> {
    let mut node = rounds.setup.spawn()?;
    let mut served = None;
    if let Ok(addresses) = node.ready(Duration::from_secs(20)).await {
        let running = rounds.load.run(&addresses.client, &mut rounds.rng);
        served = Some(node.exit(Duration::from_secs(8)).await);
        if let Some(Err(_lives)) = &served {
            served = Some(node.terminate(Duration::from_secs(30)).await);
        }
        running.stop().await;
    }
    let status = match served {
        Some(status) => status?,
        None => node.exit(Duration::from_secs(5)).await?,
    };
    rounds.load.history.died();
    if status.success() {
        bail!("never reached");
    }
    ensure!(aborted(status), "ended by {status}, not by the fault point\n{}", node.log_tail());
    Ok(())
}
