//! SIGKILL over a real S3 server, and over one behind a bad network. `make s3` runs these.
//!
//! `WEIR_S3_ROUNDS` is the number of rounds in all (40).

use anyhow::{Context, Result, ensure};
use weir_tests::files::Scratch;
use weir_tests::load::Shape;
use weir_tests::rng::{Rng, seed};
use weir_tests::rounds::{Rounds, Tally, hurried};
use weir_tests::s3::{FaultProxy, Faults, Met, RealBucket};

use crate::rounds::{Kills, fight};

const PER_DIRECTORY: u64 = 10;

/// This test's share, in percent, of all rounds.
fn share(percent: u64) -> u64 {
    let all = std::env::var("WEIR_S3_ROUNDS").map_or(40, |n| n.parse().expect("a number of rounds"));
    (all * percent).div_ceil(100)
}

async fn run(rounds: u64, faults: Faults) -> Result<()> {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut tally = Tally::default();
    let mut met = Vec::new();
    while tally.rounds < rounds {
        let n = PER_DIRECTORY.min(rounds - tally.rounds);
        let verdict = directory(n, &faults, rng.fork(), &mut tally, &mut met).await;
        verdict.with_context(|| format!("in round {}; replay with WEIR_SEED={seed}", tally.rounds))?;
    }
    let each = |fault: fn(&Met) -> u64| met.iter().map(fault).sum::<u64>();
    let faulty = [each(|m| m.refused), each(|m| m.lost), each(|m| m.late), each(|m| m.conflict)];
    println!("{} rounds; refused, lost, late, in conflict: {faulty:?}; seed {seed}", tally.rounds);
    let came = if faults.failed > 0 { faulty.iter().all(|n| *n > 0) } else { faulty == [0; 4] };
    ensure!(came, "the faults that came to pass: {met:?}; seed {seed}");
    Ok(())
}

async fn directory(
    n: u64,
    faults: &Faults,
    mut rng: Rng,
    tally: &mut Tally,
    met: &mut Vec<Met>,
) -> Result<()> {
    let (scratch, bucket) = (Scratch::new(), RealBucket::new()?);
    let proxy = FaultProxy::start(bucket.address(), rng.bits()).await;
    let setup = bucket.access_at(proxy.address()).setup(scratch.path("data"));
    let setup = if rng.one_in(3) { setup.flag("long-poll-timeout", "200ms") } else { hurried(setup) };
    let mut rounds = Rounds::begin(setup, Shape::default(), rng.fork()).await?;
    proxy.set(faults.clone());
    let verdict = fight(&mut rounds, n, &Kills::InRecoveryToo, rng, tally).await;
    met.push(proxy.met());
    if verdict.is_err() {
        std::fs::write(scratch.path("proxy.log"), proxy.journal())?;
        scratch.keep();
    }
    verdict
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an S3 server: make s3"]
async fn killed_over_a_real_bucket_nothing_acknowledged_is_lost() {
    run(share(40), Faults::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an S3 server: make s3"]
async fn killed_while_replies_of_a_real_bucket_get_lost_nothing_acknowledged_is_lost() {
    run(share(60), Faults::bad_day()).await.unwrap();
}
