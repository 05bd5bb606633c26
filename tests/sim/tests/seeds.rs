//! Runs from fixed seeds, which must hold whatever they break; and fresh ones, for as long as one likes.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a test, outside of the node's doors")]

use std::time::{Duration, Instant};

use weir_sim::farm::{play, play_all, tell};
use weir_tests::rng;

const SIM: &str = env!("CARGO_BIN_EXE_weir-sim");

/// How many of the first seeds every gate plays.
const FIXED: u64 = 100;

#[test]
fn fixed_seeds_hold() {
    let seeds: Vec<u64> = (1..=FIXED).collect();
    let failed = play_all(SIM, &seeds, &[]);
    assert!(failed.is_empty(), "{}", tell(&failed));
}

/// Two nodes whose views lag send requests to each other: a few hops, then a refusal that says when to come again, and in
/// the end everybody knows the owner.
#[test]
fn stale_views_send_nobody_in_circles() {
    let seeds: Vec<u64> = (1..=8).collect();
    let failed = play_all(SIM, &seeds, &["--scenario", "stale-views"]);
    assert!(failed.is_empty(), "{}", tell(&failed));
}

/// Nodes that others took for dead, and that clients still reach.
#[test]
fn nodes_that_are_not_heard_promise_nothing() {
    // 27 of the zombies: one that was fenced told a producer which number comes next.
    for (scenario, seeds) in [("zombies", [1, 2, 27]), ("islands", [1, 2, 3]), ("sleepers", [1, 2, 3])] {
        let failed = play_all(SIM, &seeds, &["--scenario", scenario]);
        assert!(failed.is_empty(), "{scenario}: {}", tell(&failed));
    }
}

/// Nothing is broken here: it is the number of nodes and streams that is tried.
#[test]
fn fifty_nodes_make_ten_thousand_streams() {
    let report = play(SIM, 1, &["--scenario", "many:50:10000"]);
    assert!(report.good, "{}", tell(&[report]));
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 1_000_003] {
        let (first, second) = (play(SIM, seed, &[]), play(SIM, seed, &[]));
        assert!(first.hash.is_some(), "{}", first.text);
        assert_eq!(first.hash, second.hash, "seed {seed}");
    }
    assert_ne!(play(SIM, 3, &[]).hash, play(SIM, 4, &[]).hash);
}

/// `make soak`: `WEIR_SIM_SECONDS` of fresh seeds, from `WEIR_SEED` on if that is set. All that fail are printed.
#[test]
#[ignore = "as long as one likes"]
fn fresh_seeds_hold() {
    let seconds = std::env::var("WEIR_SIM_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(600);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut from, mut played, mut failed) = (rng::seed() % 1_000_000_000_000, 0, Vec::new());
    println!("from seed {from}");
    while Instant::now() < end {
        let seeds: Vec<u64> = (from..from + 20).collect();
        let new = play_all(SIM, &seeds, &[]);
        if !new.is_empty() {
            println!("{}", tell(&new));
        }
        failed.extend(new.into_iter().map(|report| report.seed));
        from += 20;
        played += 20;
    }
    assert!(failed.is_empty(), "of {played} seeds failed: {failed:?}");
}
