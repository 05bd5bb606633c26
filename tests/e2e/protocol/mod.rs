//! The client protocol, request by request: exact statuses and header fields, right forms and wrong ones.
//!
//! The tables run in order against one node; a row may build on those before it.

mod bad;
mod case;
mod close;
mod create;
mod forks;
mod framing;
mod live;
mod names;
mod producers;
mod read;
mod write;

use case::Case;
use weir_tests::files::Scratch;
use weir_tests::node::Setup;

/// Runs every row against a fresh node.
pub(crate) async fn run(setup: Setup) {
    let tables: [(&str, Vec<Case>); 9] = [
        ("create", create::table()),
        ("write", write::table()),
        ("producers", producers::table()),
        ("close", close::table()),
        ("read", read::table()),
        ("live", live::table()),
        ("names", names::table()),
        ("forks", forks::table()),
        ("bad", bad::table()),
    ];
    let refusals = tables.iter().flat_map(|(_, rows)| rows).filter(|row| row.is_refusal()).count();
    assert!(refusals >= 300, "{refusals} rows of bad input");
    case::run(setup, &tables).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_gets_its_exact_answer() {
    let scratch = Scratch::new();
    run(Setup::new(scratch.path("data"))).await;
}
