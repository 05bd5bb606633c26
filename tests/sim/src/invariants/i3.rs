//! I3: one offset, one record, for ever; and answers that claim to be current are linearizable.
//!
//! The second and what readers saw of the first is `linear`'s to find. Here: no two acknowledged appends share an offset,
//! and what a client read where an owner acknowledged is what it acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir::metadata::command::{Answer, Command};
use weir_api::StreamId;
use weir_tests::history::{Outcome, Reading};
use weir_tests::record::Content;

use super::Verdict;
use super::log::Log;
use crate::linear::{Violation, calls};
use crate::trace::{Acked, Digest, Trace, What};

pub(super) fn check(verdict: &mut Verdict, trace: &Trace, log: &Log, said: &[Violation]) {
    for violation in said.iter().filter(|v| v.invariant() == "I3") {
        verdict.report("I3", violation.to_string());
    }
    let places = places(verdict, trace);
    check_readings(verdict, trace, &only_lives(log), &places);
}

/// Where everything acknowledged stands, by stream and first offset.
type Places<'a> = BTreeMap<StreamId, BTreeMap<u64, &'a Acked>>;

fn places<'a>(verdict: &mut Verdict, trace: &'a Trace) -> Places<'a> {
    let mut places: Places<'a> = BTreeMap::new();
    for event in &trace.events {
        let What::Acknowledged { session, appends, .. } = &event.what else { continue };
        // What has no length has no place.
        for a in appends.iter().filter(|a| a.start < a.end) {
            let of = places.entry(a.stream).or_default();
            let before = of.range(..a.end.0).next_back().filter(|(_, b)| b.end > a.start);
            if let Some((_, b)) = before {
                let m = format!(
                    "stream {}: {session} acknowledged {}..{} at epoch {}, where {}..{} had been at epoch {}",
                    a.stream, a.start, a.end, a.epoch, b.start, b.end, b.epoch
                );
                verdict.report("I3", m);
            }
            of.insert(a.start.0, a);
        }
    }
    places
}

/// Names that only one stream ever had.
fn only_lives(log: &Log) -> BTreeMap<Arc<str>, StreamId> {
    let mut lives: BTreeMap<Arc<str>, Option<StreamId>> = BTreeMap::new();
    for step in log.steps() {
        let (Command::Create { name, .. } | Command::Fork { name, .. }) = step.command() else { continue };
        if let Ok(Answer::Created { stream, .. }) = step.outcome {
            let one = lives.entry(name.clone()).or_insert(Some(*stream));
            if *one != Some(*stream) {
                *one = None;
            }
        }
    }
    lives.into_iter().filter_map(|(name, one)| Some((name, one?))).collect()
}

fn check_readings(
    verdict: &mut Verdict,
    trace: &Trace,
    lives: &BTreeMap<Arc<str>, StreamId>,
    places: &Places<'_>,
) {
    for call in calls(trace) {
        let Outcome::Read(reading) = &call.outcome else { continue };
        let Some(of) = lives.get(&call.ask.stream).and_then(|id| places.get(id)) else { continue };
        let until = reading.from + reading.content.len();
        for (start, a) in of.range(reading.from..until) {
            if a.end.0 <= until && digest(reading, *start, a.end.0) != a.digest {
                let m =
                    format!("{} reads {}..{} unlike it was acknowledged", call.ask.stream, a.start, a.end);
                verdict.report("I3", m);
            }
        }
    }
}

/// Of a part of a reading, as `trace` makes it of a frame.
fn digest(reading: &Reading, start: u64, end: u64) -> u64 {
    let at = |offset: u64| usize::try_from(offset - reading.from).expect("a reading fits into memory");
    match &reading.content {
        Content::Bytes(bytes) => Digest::of(&bytes[at(start)..at(end)]),
        Content::Json(elements) => {
            let mut digest = Digest::default();
            for element in &elements[at(start)..at(end)] {
                digest.take(element.as_bytes());
                digest.take(b",");
            }
            digest.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Made, breaks, content, holds};

    #[test]
    fn places_one_after_another() {
        let mut run = Made::new();
        let a = run.session("a", 1);
        let s = run.stream("s");
        run.open(&a, s, 1);
        let end = run.append(&a, "s", 1, 0, 7);
        run.append(&a, "s", 1, end, 8);
        run.read("s", &content(&[7, 8]));
        holds(&run, "I3");
    }

    #[test]
    fn an_offset_given_twice() {
        let mut run = Made::new();
        let (a, b) = (run.session("a", 1), run.session("b", 1));
        let s = run.stream("s");
        run.open(&a, s, 1).acked(&a, s, 1, 0, 5).open(&b, s, 2).acked(&b, s, 2, 3, 6);
        breaks(&run, "I3", "had been");
    }

    #[test]
    fn read_otherwise() {
        let mut run = Made::new();
        let a = run.session("a", 1);
        let s = run.stream("s");
        run.open(&a, s, 1);
        run.append(&a, "s", 1, 0, 7);
        run.read("s", &content(&[6]));
        breaks(&run, "I3", "unlike");
    }
}
