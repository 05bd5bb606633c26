//! The table of fault points: for each, a process that aborts exactly there, and a start after it that has everything.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http::Method;
use tokio::time::Instant;
use weir_tests::files::{Scratch, files};
use weir_tests::load::Shape;
use weir_tests::node::{Node, PATIENCE, Setup, aborted, has_fault_points};
use weir_tests::rng::{Rng, seed};
use weir_tests::rounds::{Rounds, hurried};
use weir_tests::s3::FakeS3;
use weir_tests::wait;

/// What the armed process starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scene {
    /// An empty directory.
    Founding,
    /// A directory whose process was killed under load, and a local store.
    Local,
    /// The same with a bucket.
    Bucket,
    /// As `Local`, half an hour later by the clock.
    Later,
}

use Scene::{Bucket, Founding, Later, Local};

/// Every fault point of the node, where it is reached, and at which passes it is tried.
const POINTS: &[(&str, Scene, &[u32])] = &[
    ("founding.log_founded", Founding, &[1]),
    ("founding.identity_written", Founding, &[1]),
    ("founding.bucket_written", Founding, &[1]),
    ("metadata.vote.saved", Founding, &[1]),
    ("metadata.vote.saved", Local, &[1]),
    ("metadata.log.append.before_sync", Founding, &[1]),
    ("metadata.log.append.before_sync", Local, &[1, 9]),
    ("metadata.log.append.synced", Local, &[1, 2, 9]),
    ("metadata.log.before_purge", Local, &[1]),
    ("metadata.snapshot.written", Local, &[1, 2]),
    ("metadata.snapshot.renamed", Local, &[1, 2]),
    ("recovery.claimed", Local, &[1]),
    ("recovery.sealed", Local, &[1]),
    ("recovery.uploaded", Local, &[1]),
    ("recovery.committed", Local, &[1]),
    ("recovery.recovered", Local, &[1]),
    ("recovery.sealed", Bucket, &[1]),
    ("recovery.committed", Bucket, &[1]),
    ("open.before_load", Local, &[1, 3]),
    ("create.before_birth", Local, &[1, 2]),
    ("delete.before_propose", Local, &[1]),
    ("fork.committed", Local, &[1, 4]),
    ("fork.created", Local, &[1, 4]),
    ("touch.before_propose", Local, &[1, 2]),
    ("touch.after_propose", Local, &[1]),
    ("expire.before_propose", Local, &[1]),
    ("expire.after_propose", Local, &[1]),
    ("flush.before_upload", Local, &[1, 3]),
    ("flush.after_upload", Local, &[1, 3]),
    ("commit.before_propose", Local, &[1, 3]),
    ("commit.after_propose", Local, &[1, 3]),
    ("flush.before_trim", Local, &[1, 3]),
    ("release.before_propose", Local, &[1]),
    ("release.after_propose", Local, &[1]),
    ("sweep.forgotten", Later, &[1]),
    ("wal.ack.before", Local, &[1, 40]),
    ("wal.local.created", Local, &[1]),
    ("wal.local.write.before", Local, &[1, 25]),
    ("wal.local.write.after", Local, &[1, 25]),
    ("wal.local.sync.after", Local, &[1, 25]),
    ("wal.local.rotate.before", Local, &[1]),
    ("wal.local.rotate.renamed", Local, &[1]),
    ("wal.local.rotate.after", Local, &[1]),
    ("wal.local.spare.fill", Local, &[1]),
    ("wal.local.trim", Local, &[1]),
    ("wal.local.seal.before", Local, &[1]),
    ("wal.local.seal.created", Local, &[1]),
    ("wal.local.seal.written", Local, &[1]),
    ("wal.local.end.before", Local, &[1]),
    ("wal.local.end.after", Local, &[1]),
    ("wal.object.put.before", Bucket, &[1, 15]),
    ("wal.object.put.after", Bucket, &[1, 15]),
    ("wal.object.seal.before", Bucket, &[1]),
    ("wal.object.seal.after", Bucket, &[1]),
    ("wal.object.trim", Bucket, &[1]),
];

/// Points that want more data than a round has, and stop a unit test beside them; and those that want a cluster, and
/// stop a node in `faults/steps.rs` or `e2e/moves.rs`.
const ELSEWHERE: &[&str] = &[
    "wal.local.trim.recycled",
    "joining.nonce_kept",
    "joining.number_given",
    "joining.identity_written",
    "members.before_change",
    "members.changed",
    "session.registered",
    "fence.before_propose",
    "fence.fenced",
    "claim.handed_out",
    "session.before_end",
    "session.ended",
    "handover.arrived",
    "handover.stopped",
    "lead.yielding",
    "lead.handed",
];

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
    let names = POINTS.iter().map(|(name, ..)| name).chain(ELSEWHERE);
    let table: BTreeSet<String> = names.map(|name| (*name).to_owned()).collect();
    assert_eq!(table, in_source(), "left: this table, right: node/src");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_at_any_point_loses_nothing() {
    assert!(has_fault_points(), "build the node with --features fault-points");
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut failed = Vec::new();
    let only = std::env::var("WEIR_POINT").unwrap_or_default();
    for &(name, scene, passes) in POINTS.iter().filter(|(name, ..)| name.contains(&only)) {
        for &pass in passes {
            let since = Instant::now();
            let verdict = abort_at(name, scene, pass, rng.fork()).await;
            println!("{name}:{pass} {scene:?}: {:.1} s", since.elapsed().as_secs_f64());
            if let Err(e) = verdict.with_context(|| format!("at {name}:{pass}, {scene:?}")) {
                failed.push(format!("{e:#}"));
            }
        }
    }
    assert!(failed.is_empty(), "replay with WEIR_SEED={seed}\n{}", failed.join("\n\n"));
}

async fn abort_at(name: &str, scene: Scene, pass: u32, mut rng: Rng) -> Result<()> {
    let scratch = Scratch::new();
    let bucket = FakeS3::start(rng.bits()).await;
    let setup = match scene {
        Bucket => bucket.setup(scratch.path("data")),
        Founding | Local | Later => Setup::new(scratch.path("data")),
    };
    let setup = hurried(setup);
    let mut armed = setup.clone();
    if scene == Later {
        armed = armed.flag("test-clock-offset-ms", 30 * 60 * 1000);
    }
    let armed = armed.env("WEIR_FAULT_POINT", format!("{name}:{pass}"));
    let shape = Shape { delete_one_in: 20, large: 400_000, ..Shape::default() };
    let mut rounds = match scene {
        Founding => Rounds::over(armed, shape, rng),
        Local | Bucket | Later => {
            // A killed session first, so that the armed process has something to recover.
            let mut rounds = Rounds::begin(setup.clone(), shape, rng).await?;
            if scene == Later {
                leave_a_segment_that_nothing_needs(&mut rounds).await?;
            }
            rounds.load_well_and_kill().await?;
            rounds.load.clock_jumps().await;
            rounds.setup = armed;
            rounds
        }
    };
    load_until_abort(&mut rounds).await?;
    rounds.setup = setup;
    rounds.load.clock_jumps().await;
    rounds.restart_and_verify().await
}

/// A stream alone at its node gets a segment of its own, and is deleted.
async fn leave_a_segment_that_nothing_needs(rounds: &mut Rounds) -> Result<()> {
    let node = rounds.node.as_mut().context("a round has begun")?;
    let (client, admin) = (node.client().await?, node.admin().await?);
    let (target, headers) = ("/v1/stream/alone", [("content-type", "text/plain")]);
    for (method, body, status) in [(Method::PUT, "", 201), (Method::POST, "x", 204)] {
        let answer = client.send(method, target, &headers, body.into()).await;
        ensure!(answer.as_ref().is_ok_and(|a| a.status == status), "{answer:?}");
    }
    let committed = || async {
        let text = admin.get_text("/admin/streams/alone").await?;
        let stream: serde_json::Value = serde_json::from_str(&text)?;
        Ok((stream["committedOffset"] == 1).then_some(()))
    };
    wait::until("its segment", PATIENCE, committed).await?;
    let deleted = client.send(Method::DELETE, target, &[], "".into()).await;
    ensure!(deleted.as_ref().is_ok_and(|a| a.status == 204), "{deleted:?}");
    Ok(())
}

/// Runs the armed process through start and then load and idleness in turn, until it aborts; how many turns it takes is the
/// machine's affair.
async fn load_until_abort(rounds: &mut Rounds) -> Result<()> {
    let mut node = rounds.setup.spawn()?;
    let status = match node.ready(PATIENCE).await {
        Ok(addresses) => turns_until_end(rounds, &mut node, &addresses.client).await?,
        Err(_aborted) => node.exit(PATIENCE).await?,
    };
    rounds.load.history.died();
    if status.success() {
        bail!("never reached");
    }
    ensure!(aborted(status), "ended by {status}, not by the fault point\n{}", node.log_tail());
    Ok(())
}

async fn turns_until_end(rounds: &mut Rounds, node: &mut Node, address: &str) -> Result<ExitStatus> {
    let end = Instant::now() + PATIENCE;
    loop {
        let running = rounds.load.run(address, &mut rounds.rng);
        let loaded = node.exit(Duration::from_millis(2500)).await;
        running.stop().await;
        if let Ok(status) = loaded {
            return Ok(status);
        }
        // Idle streams are released.
        if let Ok(status) = node.exit(Duration::from_millis(1200)).await {
            return Ok(status);
        }
        if Instant::now() > end {
            return node.terminate(PATIENCE).await;
        }
    }
}
