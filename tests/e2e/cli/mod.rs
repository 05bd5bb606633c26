//! The command line against real nodes: it does what its help says, survives what nodes and users do to it, and says
//! what to type instead.

mod commands;
mod misuse;
mod transfers;

use weir_tests::cli::Weir;
use weir_tests::files::Scratch;
use weir_tests::node::{Node, Setup};

/// A node and a command line that talks to it.
async fn node() -> (Scratch, Node, Weir) {
    let scratch = Scratch::new();
    let mut node = Setup::new(scratch.path("data")).flag("long-poll-timeout", "1s").start().await.unwrap();
    let addresses = node.addresses().await.unwrap();
    let mut weir = Weir::new(&addresses.client);
    weir.admin = format!("http://{}", addresses.admin);
    (scratch, node, weir)
}

/// An offset as it is printed.
fn at(n: u64) -> String {
    format!("{n:020}")
}
