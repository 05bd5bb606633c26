//! Damage to the WAL in a bucket: an object that does not verify, or is missing in the row, stops the recovery by name.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use weir_tests::files::{Damage, Scratch, copy_tree};
use weir_tests::load::Shape;
use weir_tests::node::Setup;
use weir_tests::rng::{Rng, seed};
use weir_tests::rounds::Rounds;
use weir_tests::s3::FakeS3;

use crate::damage::{Answer, SOON, named};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_wal_object_is_never_taken_for_the_end() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let scratch = Scratch::new();
    let bucket = FakeS3::start(seed).await;
    let setup = bucket.setup(scratch.path("data")).flag("long-poll-timeout", "200ms");
    let shape = Shape { patience: SOON, deadline: SOON, ..Shape::default() };
    let mut rounds = Rounds::begin(setup.clone(), shape, rng.fork()).await.unwrap();
    rounds.load_and_kill().await.unwrap();

    let objects = bucket.objects();
    let wal: Vec<&String> = objects.keys().filter(|key| key.contains("/wal/")).collect();
    assert!(wal.len() > 10, "{} WAL objects", wal.len());
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
    if let Ok(addresses) = node.ready(Duration::from_secs(3)).await {
        let load = rounds.load.copy();
        let verdict = load.verify(&addresses.client, &mut rounds.rng.clone()).await;
        load.judge_answers()?;
        ensure!(verdict.is_err(), "it has everything, though an object is damaged");
    }
    match named(&mut node, &[PathBuf::from(key)]).await? {
        Answer::Refused(why) => Ok(why),
        Answer::Recovered => bail!("named() only names"),
    }
}
