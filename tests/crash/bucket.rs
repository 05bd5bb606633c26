//! Damage to the WAL in a bucket: an object that does not verify, or is missing in the row, stops the recovery by name.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use weir_tests::files::{Damage, Scratch, copy_tree};
use weir_tests::load::Shape;
use weir_tests::node::{PATIENCE, Setup};
use weir_tests::rng::{Rng, seed};
use weir_tests::rounds::Rounds;
use weir_tests::s3::FakeS3;
use weir_tests::wait;

use crate::damage::{Answer, SOON, named, ready_or_refused};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_wal_object_is_never_taken_for_the_end() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let scratch = Scratch::new();
    let bucket = FakeS3::start(seed).await;
    let setup = bucket.setup(scratch.path("data")).flag("long-poll-timeout", "200ms");
    let shape = Shape { patience: SOON, deadline: SOON, ..Shape::default() };
    let mut rounds = Rounds::begin(setup.clone(), shape, rng.fork()).await.unwrap();
    let in_wal = |key: &String| key.contains("/wal/");
    let enough = || async { Ok((bucket.keys().iter().filter(|key| in_wal(key)).count() > 10).then_some(())) };
    let full = async { wait::until("more than 10 WAL objects", PATIENCE, enough).await.unwrap() };
    rounds.load_until_and_kill(full).await.unwrap();

    let objects = bucket.objects();
    let wal: Vec<&String> = objects.keys().filter(|key| in_wal(key)).collect();
    let victim = wal[wal.len() / 2];
    let mut failed = Vec::new();
    // Objects are smaller than a block.
    for damage in Damage::ALL.into_iter().filter(|d| *d != Damage::HalfOfBlocks) {
        let mut left = objects.clone();
        match damage.to_bytes(objects[victim].to_vec()) {
            Some(bytes) => left.insert(victim.clone(), bytes.into()),
            None => left.remove(victim),
        };
        bucket.hold(left);
        let copy = scratch.path(&format!("{damage:?}"));
        copy_tree(&setup.data, &copy).unwrap();
        let mut setup = setup.clone();
        (setup.log, setup.data) = (copy.with_extension("stderr"), copy);
        match refusal(&rounds, &setup, victim).await {
            Ok(why) => println!("{damage:?}: {why}"),
            Err(e) => failed.push(format!("{damage:?} of {victim}: {e:#}")),
        }
    }
    assert!(failed.is_empty(), "WEIR_SEED={seed}\n{}", failed.join("\n\n"));
}

async fn refusal(rounds: &Rounds, setup: &Setup, victim: &str) -> Result<String> {
    let mut node = setup.spawn()?;
    let key = victim.strip_prefix("test/").unwrap_or(victim);
    let files = [PathBuf::from(key)];
    if let Some(client) = ready_or_refused(&mut node, &files).await? {
        let load = rounds.load.copy();
        let verdict = load.verify(&client, &mut rounds.rng.clone()).await;
        load.judge_answers()?;
        ensure!(verdict.is_err(), "it has everything, though an object is damaged");
    }
    match named(&mut node, &files).await? {
        Answer::Refused(why) => Ok(why),
        Answer::Recovered => bail!("named() only names"),
    }
}
