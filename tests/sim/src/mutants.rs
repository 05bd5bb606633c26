//! Runs with a deliberate mistake in the node's code, and whether somebody notices.
//!
//! Invariant: a mutant is found only by an invariant that its run breaks, or by the code's own panic; a run that is
//! found wanting as a run ("run") finds nothing. `docs/mutants.md` lists them.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weir::mutant::{self, Mutant};

use crate::invariants::{self, Broken};
use crate::trace::Trace;

/// How a mutant was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// By the run of this seed.
    pub seed: u64,
    /// What was broken, or what the code said when it panicked.
    pub broken: Broken,
}

/// The first seed whose run shows the mistake.
pub fn find(mutant: Mutant, seeds: Range<u64>, run: impl Fn(u64) -> Trace) -> Option<Found> {
    find_broken(mutant, seeds, |seed| worst(invariants::check(&run(seed)), true))
}

/// What one run breaks, with a mistake in the code or without.
pub fn judge(mutant: Option<Mutant>, seed: u64, run: impl Fn(u64) -> Trace) -> Option<Broken> {
    judge_broken(mutant, seed, |seed| worst(invariants::check(&run(seed)), mutant.is_some()))
}

fn worst(broken: Vec<Broken>, mutated: bool) -> Option<Broken> {
    broken.into_iter().find(|b| b.invariant != "run" || !mutated)
}

/// As [`find`], for runs that judge themselves.
pub fn find_broken(mutant: Mutant, seeds: Range<u64>, run: impl Fn(u64) -> Option<Broken>) -> Option<Found> {
    seeds.into_iter().find_map(|seed| {
        let broken = judge_broken(Some(mutant), seed, &run)?;
        Some(Found { seed, broken })
    })
}

/// As [`judge`].
pub fn judge_broken(
    mutant: Option<Mutant>,
    seed: u64,
    run: impl Fn(u64) -> Option<Broken>,
) -> Option<Broken> {
    mutant::set(mutant);
    let judged = catch_unwind(AssertUnwindSafe(|| run(seed)));
    mutant::set(None);
    judged.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Some(Broken { invariant: "panic", message: said.unwrap_or_default() })
    })
}

#[cfg(test)]
mod tests {
    use weir::mutant::Mutant;

    /// The document has a row for each of them, and for nothing else.
    #[test]
    fn the_document_lists_every_mutant() {
        let document = include_str!("../../../docs/mutants.md");
        let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let mut listed: Vec<&str> =
            rows.filter(|name| name.chars().next().is_some_and(char::is_uppercase)).collect();
        listed.sort_unstable();
        let mut all: Vec<String> = Mutant::ALL.iter().map(|m| format!("{m:?}")).collect();
        all.sort_unstable();
        assert_eq!(listed, all);
    }
}
