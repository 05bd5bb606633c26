//! Prints the CustomResourceDefinition: `cargo run -p weir-operator --bin crdgen > crds/streamcluster.yaml`.
//!
//! A test compares the file with what this prints.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(weir_operator::crd::yaml().as_bytes())
}
