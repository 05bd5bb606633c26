//! What must hold of every run, an invariant of the design per file.
//!
//! Invariant: pure functions of a [`Trace`]. Those about what clients may conclude rest on `linear`;
//! those about the inside on what nodes applied and acknowledged, replayed by the code that the nodes ran. Each file
//! has traces made by hand that break it, so that no check is vacuous, and ones that hold.
//!
//! I10 is the operator's, and no part of a run of nodes.

mod i1;
mod i2;
mod i3;
mod i4;
mod i5;
mod i6;
mod i7;
mod i8;
mod i9;
mod log;
#[cfg(test)]
mod sample;

use std::fmt;

use crate::linear;
use crate::trace::Trace;
use log::Log;

/// One invariant broken once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Broken {
    /// `"I1"` to `"I9"`; `"run"` for a run that does not show what it was to show.
    pub invariant: &'static str,
    /// What was seen.
    pub message: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.message)
    }
}

/// All that a run breaks, at most so many of each kind that a person can read them.
pub fn check(trace: &Trace) -> Vec<Broken> {
    let log = Log::of(trace);
    let said = linear::check(trace);
    let mut verdict = Verdict::default();
    i1::check(&mut verdict, trace, &log);
    i2::check(&mut verdict, trace, &log, &said);
    i3::check(&mut verdict, trace, &log, &said);
    i4::check(&mut verdict, trace, &said);
    i5::check(&mut verdict, trace);
    i6::check(&mut verdict, &log);
    i7::check(&mut verdict, &log);
    i8::check(&mut verdict, trace, &log);
    i9::check(&mut verdict, &log, &said);
    for violation in said.iter().filter(|v| v.invariant() == "run") {
        verdict.report("run", violation.to_string());
    }
    verdict.0
}

/// What was found so far.
#[derive(Debug, Default)]
struct Verdict(Vec<Broken>);

/// More of one invariant only repeat the first.
const ENOUGH: usize = 8;

impl Verdict {
    fn report(&mut self, invariant: &'static str, message: impl Into<String>) {
        if self.0.iter().filter(|b| b.invariant == invariant).count() < ENOUGH {
            self.0.push(Broken { invariant, message: message.into() });
        }
    }
}
