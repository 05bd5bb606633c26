//! Damage to every kind of file: a start has everything acknowledged, or refuses (to start, to be ready, to read that
//! stream) and names the file. Never fine and less.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use weir_tests::files::{Damage, Scratch, copy_tree, files};
use weir_tests::load::Shape;
use weir_tests::node::{Node, PATIENCE, Setup, readiness};
use weir_tests::rng::{Rng, seed};
use weir_tests::rounds::{Rounds, hurried};

/// How long clients wait here: what a recovery holds up is refused anyway.
pub(crate) const SOON: Duration = Duration::from_millis(1500);

/// Trials side by side: they mostly wait.
const AT_ONCE: usize = 4;

/// Files that a start makes anew and may trust nothing of.
const FREE: [&str; 2] = ["addresses.json", "lock"];

/// What a kind of file is: its path below the data directory with numbers taken out.
fn kind(file: &Path) -> String {
    let mut short = String::new();
    for c in file.to_string_lossy().chars() {
        let c = if c.is_ascii_digit() { '#' } else { c };
        if c != '#' || !short.ends_with('#') {
            short.push(c);
        }
    }
    short
}

pub(crate) enum Answer {
    Recovered,
    Refused(String),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_recovered_or_refused_by_name() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let scratch = Scratch::new();
    let setup = Setup::new(scratch.path("data")).flag("long-poll-timeout", "200ms");
    let shape = Shape { patience: SOON, deadline: SOON, ..Shape::default() };
    let rounds = aged(setup.clone(), shape, rng.fork()).await.unwrap();

    let mut kinds: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in files(&setup.data).unwrap() {
        kinds.entry(kind(&file)).or_default().push(file);
    }
    let rounds = Arc::new(rounds);
    let mut trials = JoinSet::new();
    let mut failed = Vec::new();
    for (n, (kind, files)) in kinds.into_iter().enumerate() {
        for damage in Damage::ALL {
            if trials.len() == AT_ONCE {
                failed.extend(trials.join_next().await.unwrap().unwrap());
            }
            let copy = scratch.path(&format!("{n}-{damage:?}"));
            trials.spawn(trial(rounds.clone(), copy, kind.clone(), files.clone(), damage));
        }
    }
    failed.extend(trials.join_all().await.into_iter().flatten());
    assert!(failed.is_empty(), "WEIR_SEED={seed}\n{}", failed.join("\n\n"));
}

/// A directory with something in every kind of file: snapshots, segments, a sealed WAL, and one not yet recovered that
/// is in no segment.
async fn aged(setup: Setup, shape: Shape, rng: Rng) -> Result<Rounds> {
    let mut rounds = Rounds::begin(hurried(setup.clone()), shape, rng).await?;
    for _ in 0..3 {
        rounds.load_well_and_kill().await?;
        rounds.restart_and_verify().await?;
    }
    let mut node = rounds.node.take().context("a verified round")?;
    node.terminate(PATIENCE).await?;
    rounds.load.history.died();
    rounds.setup = setup;
    rounds.restart_and_verify().await?;
    rounds.load_well_and_kill().await?;
    Ok(rounds)
}

/// Damages all files of a kind in a copy and starts over it; says what is wrong with the answer.
async fn trial(
    rounds: Arc<Rounds>,
    copy: PathBuf,
    kind: String,
    files: Vec<PathBuf>,
    damage: Damage,
) -> Option<String> {
    copy_tree(&rounds.setup.data, &copy).unwrap();
    for file in &files {
        damage.to(&copy.join(file)).unwrap();
    }
    match start_over(&rounds, &copy, &files).await {
        Ok(Answer::Recovered) => println!("{damage:?} {kind}: recovered"),
        Ok(Answer::Refused(_)) if FREE.contains(&&*kind) => {
            return Some(format!("{damage:?} of {kind} stops a start"));
        }
        Ok(Answer::Refused(why)) => println!("{damage:?} {kind}: refused, {why}"),
        Err(e) => return Some(format!("{damage:?} of {kind}: {e:#}")),
    }
    std::fs::remove_dir_all(&copy).unwrap();
    None
}

/// Starts over the damaged copy and waits for one of three: it ends, a reason in `/readyz` names a damaged file, or it
/// is ready and then has everything, or refuses a part of it and names the file. How long that takes is no matter.
async fn start_over(rounds: &Rounds, copy: &Path, files: &[PathBuf]) -> Result<Answer> {
    let mut setup = rounds.setup.clone();
    setup.data = copy.to_path_buf();
    setup.log = copy.with_extension("stderr");
    let mut node = setup.spawn()?;
    let end = Instant::now() + PATIENCE;
    let Some(client) = ready_or_refused(&mut node, files).await? else {
        return named(&mut node, files).await;
    };
    // A world of its own: what this node answers is no evidence against the next.
    let load = rounds.load.copy();
    loop {
        let Err(refused) = load.verify(&client, &mut rounds.rng.clone()).await else {
            return Ok(Answer::Recovered);
        };
        // Whatever it refuses, what it answered holds.
        load.judge_answers()?;
        if let Some(line) = naming(&mut node, files).await? {
            return Ok(Answer::Refused(line));
        }
        if Instant::now() > end {
            return Err(refused).with_context(|| format!("refused without naming it\n{}", node.log_tail()));
        }
    }
}

/// Its clients' address, or `None` if it ended or says that it is not ready for one of the files.
pub(crate) async fn ready_or_refused(node: &mut Node, files: &[PathBuf]) -> Result<Option<String>> {
    let Ok(addresses) = node.addresses().await else { return Ok(None) };
    let end = Instant::now() + PATIENCE;
    loop {
        let (status, reasons) = readiness(&addresses.admin).await;
        if status == 200 {
            return Ok(Some(addresses.client));
        }
        if files.iter().any(|file| names(&reasons, file)) {
            return Ok(None);
        }
        if let Some(status) = node.try_exit()? {
            ensure!(!status.success(), "exit 0 on damaged data\n{}", node.log_tail());
            return Ok(None);
        }
        ensure!(Instant::now() < end, "neither ready nor refused: {reasons}\n{}", node.log_tail());
        sleep(Duration::from_millis(5)).await;
    }
}

/// The line of `/readyz` or of the log that names one of the damaged files (or, for a file that is gone, its folder).
async fn naming(node: &mut Node, files: &[PathBuf]) -> Result<Option<String>> {
    let mut said = String::new();
    if node.try_exit()?.is_none() {
        said = readiness(&node.addresses().await?.admin).await.1;
    }
    let said = format!("{}\n{said}", node.log());
    let line = said.lines().rev().find(|line| files.iter().any(|file| names(line, file)));
    Ok(line.map(str::to_owned))
}

/// Waits for [`naming`].
pub(crate) async fn named(node: &mut Node, files: &[PathBuf]) -> Result<Answer> {
    let end = Instant::now() + PATIENCE;
    loop {
        // In this order: what it says before it ends is in the log by then.
        let ended = node.try_exit()?.is_some();
        if let Some(line) = naming(node, files).await? {
            return Ok(Answer::Refused(line));
        }
        ensure!(!ended && Instant::now() < end, "refused without naming it\n{}", node.log_tail());
        sleep(Duration::from_millis(5)).await;
    }
}

fn names(line: &str, file: &Path) -> bool {
    let folder = file.parent().filter(|folder| folder.components().count() >= 2);
    [Some(file), file.file_name().map(Path::new), folder].into_iter().flatten().any(|name| {
        // Of a store's file the key is named.
        let text = name.to_string_lossy();
        line.contains(text.trim_start_matches("store/"))
    })
}
