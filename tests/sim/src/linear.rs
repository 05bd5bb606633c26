//! Whether what clients were told is linearizable, stream by stream: as if each operation had taken effect at once, at
//! some moment between its question and its answer.
//!
//! # Why a checker of our own
//!
//! The general ones search for an order of all operations: porcupine (Go), Knossos and Elle (Clojure), and on crates.io
//! stateright's `LinearizabilityTester` and todc-utils, after Wing & Gong and Lowe. Without knowledge of the object that
//! is exponential in the operations under way at once, and every append without an answer is under way for ever. A
//! stream needs no search. An offset says where a record stands, so readings give the order of all appends, and what is
//! left is whether that order respects real time: each acknowledged append has its one place; an answer at a tail lies
//! behind all that ended before it began and before all that began after it ended. That is a sort and two searches for
//! each answer: O(n log n) ([`weir_tests::checker`], which real processes' histories go through too).
//!
//! Only a *name* gives no place: it is there or not, and creates and deletes without an answer may take effect at any
//! time. `names` searches there, over one bit and the few changes under way ([Lowe's][lowe] just-in-time order, where
//! changes without an answer only count, since they are alike). `lives` says which operations surely met one life of a
//! name, and `forks` takes what a fork begins with out of it and holds it against its source.
//!
//! [lowe]: https://doi.org/10.1002/cpe.3928

mod calls;
mod forks;
mod lives;
mod names;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use weir_tests::checker::{self, Kind};

use crate::trace::Trace;
pub(crate) use calls::calls;

/// One contradiction in what clients were told.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Which promise.
    pub kind: Kind,
    /// The stream's name.
    pub stream: Arc<str>,
    /// What was seen.
    pub message: String,
}

impl Violation {
    /// Which invariant of the design it breaks.
    pub fn invariant(&self) -> &'static str {
        match self.kind {
            Kind::LostRecord | Kind::LostStream => "I2",
            Kind::GhostStream
            | Kind::Rewritten
            | Kind::BadOffsets
            | Kind::TornRecord
            | Kind::ForeignRecord
            | Kind::OutOfOrder
            | Kind::StaleClaim
            | Kind::Reopened
            | Kind::PhantomClose
            | Kind::TornClose
            | Kind::SeqBroken => "I3",
            Kind::DoubledRecord | Kind::ProducerLost | Kind::ProducerDoubled | Kind::PhantomDuplicate => "I4",
            Kind::RefusedRecord => "I9",
            Kind::Harness => "run",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {}: {}", self.kind, self.stream, self.message)
    }
}

/// Every contradiction in what clients were told.
pub fn check(trace: &Trace) -> Vec<Violation> {
    let mut calls = calls(trace);
    let mut found = Vec::new();
    let mut by_name: BTreeMap<Arc<str>, Vec<usize>> = BTreeMap::new();
    let mut by_source: BTreeMap<Arc<str>, Vec<usize>> = BTreeMap::new();
    for (i, call) in calls.iter().enumerate() {
        by_name.entry(call.ask.stream.clone()).or_default().push(i);
        if let Some(fork) = &call.ask.fork {
            by_source.entry(fork.source.clone()).or_default().push(i);
        }
    }
    for (name, own) in &by_name {
        let forks = by_source.get(name).map_or(&[][..], Vec::as_slice);
        let said = names::observations(&calls, own, forks);
        names::check(&mut found, name, &said, names::is_mortal(&calls, own));
        names::check_mortal(&mut found, name, &calls, own, trace);
    }
    let mut sorted = Vec::new();
    for (name, own) in &by_name {
        sorted.push((name.clone(), own.clone(), lives::sort(&calls, name, own)));
    }
    forks::take_out(&mut found, &mut calls, &mut sorted);
    let account = calls::account(&calls);
    let lives = sorted.into_iter().map(|(name, _, lives)| (name, lives)).collect();
    let said = checker::check_lives(&account, lives);
    found.extend(said.into_iter().map(|v| Violation { kind: v.kind, stream: v.stream, message: v.message }));
    found
}
