//! Damage to every kind of file: a start has everything acknowledged, or refuses and names the file. Never fine and
//! less.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use weir_tests::files::{Damage, Scratch, copy_tree, files};
use weir_tests::load::Shape;
use weir_tests::node::{Setup, readiness};
use weir_tests::rng::{Rng, seed};
use weir_tests::rounds::{Rounds, hurried};
use weir_tests::wait;

/// What a kind of file is, by its path below the data directory, numbers taken out.
fn kind(file: &Path) -> String {
    let text: String =
        file.to_string_lossy().chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
    let mut short = String::new();
    for c in text.chars() {
        if !(c == '#' && short.ends_with('#')) {
            short.push(c);
        }
    }
    short
}

/// How a node took the damage.
enum Answer {
    Recovered,
    Refused(String),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_recovered_or_refused_by_name() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let scratch = Scratch::new();
    let setup = hurried(Setup::new(scratch.path("data")));
    let mut rounds = Rounds::begin(setup.clone(), Shape::default(), rng.fork()).await.unwrap();
    rounds.load_and_kill().await.unwrap();
    rounds.restart_and_verify().await.unwrap();
    rounds.load_and_kill().await.unwrap();

    let mut kinds: BTreeMap<String, PathBuf> = BTreeMap::new();
    for file in files(&setup.data).unwrap() {
        // The newest of a kind: the one that a start needs.
        kinds.insert(kind(&file), file);
    }
    let mut failed = Vec::new();
    for (kind, file) in &kinds {
        for damage in Damage::ALL {
            let copy = scratch.path("copy");
            if copy.exists() {
                std::fs::remove_dir_all(&copy).unwrap();
            }
            copy_tree(&setup.data, &copy).unwrap();
            damage.to(&copy.join(file)).unwrap();
            match start_over(&rounds, &setup, &copy, file).await {
                Ok(Answer::Recovered) => println!("{damage:?} {kind}: recovered"),
                Ok(Answer::Refused(why)) => println!("{damage:?} {kind}: refused, {why}"),
                Err(e) => failed.push(format!("{damage:?} of {}: {e:#}", file.display())),
            }
        }
    }
    assert!(failed.is_empty(), "WEIR_SEED={seed}\n{}", failed.join("\n\n"));
}

async fn start_over(rounds: &Rounds, setup: &Setup, copy: &Path, file: &Path) -> Result<Answer> {
    let mut setup = setup.clone();
    setup.data = copy.to_path_buf();
    let log = copy.with_extension("stderr");
    if log.exists() {
        std::fs::remove_file(&log)?;
    }
    let mut node = setup.spawn()?;
    let ready = node.ready(Duration::from_secs(6)).await;
    let Ok(addresses) = ready else {
        let reasons = match node.try_exit()? {
            Some(status) if status.success() => bail!("exit 0 on damaged data\n{}", node.log_tail()),
            Some(status) => format!("{status}: {}", node.log_tail()),
            None => {
                let admin = node.addresses().await?.admin;
                let poll = || async {
                    let (status, said) = readiness(&admin).await;
                    Ok((status == 503).then_some(said))
                };
                wait::until("a reason", Duration::from_secs(5), poll).await?
            }
        };
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if !reasons.contains(&name) && !reasons.contains(&*file.to_string_lossy()) {
            bail!("refused without naming {name}:\n{reasons}");
        }
        return Ok(Answer::Refused(reasons.lines().last().unwrap_or_default().to_owned()));
    };
    // A world of its own: what this node answers is no evidence against the next.
    let load = rounds.load.copy();
    load.verify(&addresses.client, &mut rounds.rng.clone()).await?;
    Ok(Answer::Recovered)
}
