//! No fault at all: mixed load is answered, every answer keeps the promises, and nothing is left without one.

use weir_tests::files::Scratch;
use weir_tests::history::Outcome;
use weir_tests::load::{Load, Shape};
use weir_tests::node::{PATIENCE, Setup};
use weir_tests::rng::{Rng, seed};
use weir_tests::rounds::hurried;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_load_is_answered_and_every_answer_holds() {
    let seed = seed();
    println!("WEIR_SEED={seed}");
    let mut rng = Rng::new(seed);
    let scratch = Scratch::new();
    // However slow the machine: each request gets its answer.
    let shape = Shape { deadline: PATIENCE, ..Shape::default() };
    let load = Load::new(rng.below(1 << 30), shape);
    let mut node = hurried(Setup::new(scratch.path("data"))).start().await.unwrap();
    let address = node.addresses().await.unwrap().client;
    let running = load.run(&address, &mut rng);
    load.progress(0, 2_000).await.unwrap();
    running.stop().await;
    load.verify(&address, &mut rng).await.unwrap();
    let ops = load.history.account().ops;
    let silent = ops.iter().find(|op| matches!(op.outcome, Outcome::Unknown));
    assert!(silent.is_none(), "without an answer: {silent:?}");
    println!("{} operations", ops.len());
}
