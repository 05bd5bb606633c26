//! SIGKILL at random moments under mixed load: in service, in recovery, and with a bucket on a bad day.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;
use weir_tests::files::Scratch;
use weir_tests::load::Shape;
use weir_tests::node::{PATIENCE, Setup};
use weir_tests::rng::{Rng, seed};
use weir_tests::rounds::{Rounds, Tally, hurried};
use weir_tests::s3::{FakeS3, Faults};
use weir_tests::wait;

/// Rounds after which a new directory begins: histories grow, and checks with them.
const PER_DIRECTORY: u64 = 20;

/// What a round may take on average.
const ROUND: Duration = Duration::from_millis(1500);

/// This test's share, in percent, of all rounds.
fn share(percent: u64) -> u64 {
    let all = std::env::var("WEIR_CRASH_ROUNDS").map_or(200, |n| n.parse().expect("a number of rounds"));
    (all * percent).div_ceil(100)
}

pub(crate) enum Kills {
    InService,
    InRecoveryToo,
}

async fn run(rounds: u64, kills: Kills, bad_day: bool) -> Result<()> {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut tally = Tally::default();
    while tally.rounds < rounds {
        let n = PER_DIRECTORY.min(rounds - tally.rounds);
        let verdict = directory(n, &kills, bad_day, rng.fork(), &mut tally).await;
        verdict.with_context(|| format!("in round {}; replay with WEIR_SEED={seed}", tally.rounds))?;
    }
    tally.report(ROUND)
}

async fn directory(n: u64, kills: &Kills, bad_day: bool, mut rng: Rng, tally: &mut Tally) -> Result<()> {
    let scratch = Scratch::new();
    let bucket = if bad_day { Some(FakeS3::start(rng.bits()).await) } else { None };
    let setup = match &bucket {
        Some(bucket) => bucket.setup(scratch.path("data")),
        None => Setup::new(scratch.path("data")),
    };
    let setup = if rng.one_in(3) { setup.flag("long-poll-timeout", "200ms") } else { hurried(setup) };
    let mut rounds = Rounds::begin(setup, Shape::default(), rng.fork()).await?;
    if let Some(bucket) = &bucket {
        bucket.set(Faults::bad_day());
    }
    let verdict = fight(&mut rounds, n, kills, rng, tally).await;
    if verdict.is_err() {
        if let Some(bucket) = &bucket {
            std::fs::write(scratch.path("bucket.log"), bucket.journal())?;
        }
        scratch.keep();
    }
    verdict
}

/// So many rounds over what `rounds` has begun.
pub(crate) async fn fight(
    rounds: &mut Rounds,
    n: u64,
    kills: &Kills,
    mut rng: Rng,
    tally: &mut Tally,
) -> Result<()> {
    for _ in 0..n {
        let since = Instant::now();
        rounds.load_and_kill().await?;
        if let Kills::InRecoveryToo = kills {
            for _ in 0..rng.between(1, 2) {
                rounds.start_and_kill().await?;
            }
        }
        rounds.restart_and_verify().await?;
        tally.add(since);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_service_nothing_acknowledged_is_lost() {
    run(share(45), Kills::InService, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_recovery_and_again_nothing_acknowledged_is_lost() {
    run(share(25), Kills::InRecoveryToo, false).await.unwrap();
}

/// The other rounds kill at random moments, which may all come before or after a recovery: here the bucket holds one up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_it_seals_and_while_it_uploads_what_it_recovered_nothing_is_lost() {
    let seed = seed();
    println!("WEIR_SEED={seed}");
    let mut rng = Rng::new(seed);
    let scratch = Scratch::new();
    let bucket = FakeS3::start(rng.bits()).await;
    let setup = bucket.setup(scratch.path("data")).flag("long-poll-timeout", "200ms");
    let mut rounds = Rounds::begin(setup, Shape::default(), rng.fork()).await.unwrap();
    let load = rounds.load.clone();
    let loaded = async { load.progress(0, 50).await.unwrap() };
    rounds.load_until_and_kill(loaded).await.unwrap();
    for held in ["/wal/", "/segments/"] {
        bucket.set(Faults { held: Some(held), ..Faults::default() });
        let before = bucket.unanswered();
        let mut node = rounds.setup.spawn().unwrap();
        // Nobody writes: what is put under such a key is put by a recovery.
        let arrived = || async { Ok((bucket.unanswered() > before).then_some(())) };
        wait::until(held, PATIENCE, arrived).await.unwrap();
        node.kill();
        rounds.load.history.died();
    }
    bucket.set(Faults::default());
    rounds.restart_and_verify().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_the_bucket_fails_nothing_acknowledged_is_lost() {
    run(share(30), Kills::InRecoveryToo, true).await.unwrap();
}
