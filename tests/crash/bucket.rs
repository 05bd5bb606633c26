//! Damage to the WAL in a bucket: an object that does not verify, or is missing in the row, stops the recovery by name.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use http::Method;
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
    let wal = killed_over_a_wal(&bucket, &mut rounds).await;
    let objects = bucket.objects();
    let victim = &wal[wal.len() / 2];
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

/// Load until the WAL has more than ten objects, then SIGKILL; their keys.
async fn killed_over_a_wal(bucket: &FakeS3, rounds: &mut Rounds) -> Vec<String> {
    let in_wal = |key: &String| key.contains("/wal/");
    let enough = || async { Ok((bucket.keys().iter().filter(|key| in_wal(key)).count() > 10).then_some(())) };
    let full = async { wait::until("more than 10 WAL objects", PATIENCE, enough).await.unwrap() };
    rounds.load_until_and_kill(full).await.unwrap();
    bucket.keys().into_iter().filter(in_wal).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_wal_object_is_skipped_by_order_and_only_by_order() {
    let seed = seed();
    println!("WEIR_SEED={seed}");
    let mut rng = Rng::new(seed);
    let scratch = Scratch::new();
    let bucket = FakeS3::start(seed).await;
    let setup = bucket.setup(scratch.path("data")).flag("long-poll-timeout", "200ms");
    let mut rounds = Rounds::begin(setup.clone(), Shape::default(), rng.fork()).await.unwrap();
    let wal = killed_over_a_wal(&bucket, &mut rounds).await;
    let victim = &wal[wal.len() / 2];
    let damaged = Damage::Middle.to_bytes(bucket.get(victim).unwrap().to_vec()).unwrap();
    bucket.put(victim, damaged.into());
    let seq: u64 = victim.rsplit('/').next().unwrap().parse().unwrap();

    let mut node = setup.spawn().unwrap();
    let why = node.unready_for(&["recovery"]).await.unwrap();
    assert!(
        why.contains(victim.trim_start_matches("test/")) && why.contains("/admin/recovery/skip"),
        "{why}"
    );
    let admin = node.admin().await.unwrap();
    let seen = async || -> serde_json::Value {
        serde_json::from_str(&admin.get_text("/admin/cluster").await.unwrap()).unwrap()
    };
    let recovery = seen().await["recoveries"][0].clone();
    assert_eq!(recovery["stoppedOn"]["seq"], seq, "{recovery}");
    let skip = async |seq: u64| {
        let body = serde_json::json!({"node": recovery["node"], "epoch": recovery["epoch"], "seq": seq});
        let headers = [("content-type", "application/json")];
        admin.send(Method::POST, "/admin/recovery/skip", &headers, body.to_string().into()).await.unwrap()
    };
    assert_eq!(skip(seq + 1).await.status, 409);
    assert_eq!(skip(seq).await.status, 200);
    node.ready(PATIENCE).await.unwrap();
    let recovered = || async { Ok((seen().await["awaitingRecovery"] == 0).then_some(())) };
    wait::until("the recovery to end", PATIENCE, recovered).await.unwrap();
    assert!(node.log().contains("told to skip a damaged WAL object"), "{}", node.log_tail());
    // Streams are shorter, and none is stuck; a restart finds nothing to recover anew.
    let address = node.addresses().await.unwrap().client;
    rounds.load.touch_all(&address, &mut rng).await.unwrap();
    assert!(node.terminate(PATIENCE).await.unwrap().success());
    let mut node = setup.start().await.unwrap();
    let address = node.addresses().await.unwrap().client;
    rounds.load.touch_all(&address, &mut rng).await.unwrap();
}
