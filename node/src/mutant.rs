//! Deliberate mistakes, to show that the proofs find them.
//!
//! Invariant: without the cargo feature `mutants` (never in a release) no mutant is ever on and the compiler drops
//! what it would do. With it, [`set`] switches one on for the calling thread, which is all of a simulation's nodes.
//! What each breaks and who finds it: `docs/mutants.md`.

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// A commit takes records of any stream epoch, whoever has the stream open.
    NoStreamEpochCheck,
}

impl Mutant {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::NoStreamEpochCheck];
}

/// Whether this mistake is to be made.
#[inline]
pub fn on(mutant: Mutant) -> bool {
    #[cfg(feature = "mutants")]
    return switch::on(mutant);
    #[cfg(not(feature = "mutants"))]
    {
        let _: Mutant = mutant;
        false
    }
}

#[cfg(feature = "mutants")]
pub use switch::{met, set};

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static NOW: Cell<Option<Mutant>> = const { Cell::new(None) };
        static MET: Cell<u64> = const { Cell::new(0) };
    }

    /// From now on this mistake is made on this thread, and no other.
    pub fn set(mutant: Option<Mutant>) {
        NOW.set(mutant);
        MET.set(0);
    }

    /// How often the place of the mistake was passed since [`set`]: a run that never came there shows nothing.
    pub fn met() -> u64 {
        MET.get()
    }

    pub(super) fn on(mutant: Mutant) -> bool {
        let on = NOW.get() == Some(mutant);
        if on {
            MET.set(MET.get() + 1);
        }
        on
    }
}
