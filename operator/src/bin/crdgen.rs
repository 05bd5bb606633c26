//! Prints what is made from the operator's code; tests compare the files with it.
//!
//! `cargo run -p weir-operator --bin crdgen > crds/streamcluster.yaml`: the CustomResourceDefinition.
//! `cargo run -p weir-operator --bin crdgen metrics > node/src/metrics/operator.md`: its part of `docs/metrics.md`.

use std::io::{Error, Write as _};

fn main() -> std::io::Result<()> {
    let text = match std::env::args().nth(1).as_deref() {
        None => weir_operator::crd::yaml(),
        Some("metrics") => weir_operator::metrics::page(),
        Some(other) => {
            return Err(Error::other(format!("{other:?}: metrics, or nothing for the definition")));
        }
    };
    std::io::stdout().write_all(text.as_bytes())
}
