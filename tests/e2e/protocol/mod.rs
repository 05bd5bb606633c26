//! The client protocol's first part, request by request: exact statuses and header fields, right forms and wrong ones.
//!
//! The tables run in order against one node; a row may build on those before it.

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

use case::{Case, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_gets_its_exact_answer() {
    let tables: [(&str, Vec<Case>); 8] = [
        ("create", create::table()),
        ("write", write::table()),
        ("producers", producers::table()),
        ("close", close::table()),
        ("read", read::table()),
        ("live", live::table()),
        ("names", names::table()),
        ("forks", forks::table()),
    ];
    let rows: usize = tables.iter().map(|(_, rows)| rows.len()).sum();
    assert!(rows >= 60, "{rows} rows");
    run(&tables).await;
}
