//! What a fork begins with: held against its source, and taken out, so that the rest is a stream like any other.
//!
//! Invariant: after [`take_out`] every operation on a fork counts from where the fork left its source. A fork made at
//! an offset that no answer names promises nothing about content; neither does one whose name had several lives.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_tests::checker::{Kind, Life};
use weir_tests::history::{Action, Outcome, Reading, Refusal};
use weir_tests::record::Content;

use super::Violation;
use super::calls::Asked;
use crate::trace::ForkFrom;

/// A name with its operations and its lives.
pub(super) type Sorted = (Arc<str>, Vec<usize>, Vec<Life>);

/// Content by offset, as far as anybody read it. Bytes are elements of one byte.
type Cells = BTreeMap<u64, Arc<[u8]>>;

pub(super) fn take_out(found: &mut Vec<Violation>, calls: &mut [Asked], sorted: &mut [Sorted]) {
    let content: BTreeMap<Arc<str>, Cells> = sorted
        .iter()
        // A name may have had lives of which nobody can be sure: whoever forked it may have met one of those.
        .filter(|(_, own, lives)| {
            lives.len() == 1 && own.iter().filter(|&&i| may_create(&calls[i])).count() == 1
        })
        .map(|(name, _, lives)| (name.clone(), read(calls, lives[0].ops())))
        .collect();
    for (name, own, lives) in sorted {
        let points: Vec<ForkFrom> = own.iter().filter_map(|&i| calls[i].ask.fork.clone()).collect();
        let Some(point) = points.first() else { continue };
        let at = offset(calls, own, point);
        let (Some(at), true) = (at, points.iter().all(|p| p.source == point.source)) else {
            lives.clear();
            continue;
        };
        if let Some(source) = content.get(&point.source) {
            compare(found, name, &read(calls, own), source, at);
        }
        for &i in own.iter() {
            if let Err(next) = shift(&mut calls[i].outcome, at) {
                let message = format!("an answer names {next}, and the fork begins at {at}");
                found.push(Violation { kind: Kind::BadOffsets, stream: name.clone(), message });
            }
        }
    }
}

/// It made a stream, or may have.
fn may_create(call: &Asked) -> bool {
    let creates = matches!(call.ask.action, Action::Create { .. });
    creates && matches!(call.outcome, Outcome::Created { new: true, .. } | Outcome::Unknown)
}

/// Where the fork left its source.
fn offset(calls: &[Asked], own: &[usize], point: &ForkFrom) -> Option<u64> {
    point.at.or_else(|| {
        own.iter().map(|&i| &calls[i]).find_map(|c| match &c.outcome {
            Outcome::Created { new: true, next, .. } => {
                let first = match &c.ask.action {
                    Action::Create { first, .. } => *first,
                    _ => None,
                };
                next.checked_sub(first.map_or(0, |r| r.span(c.ask.json)))
            }
            _ => None,
        })
    })
}

fn read(calls: &[Asked], ops: &[usize]) -> Cells {
    let mut cells = Cells::new();
    for &i in ops {
        let Outcome::Read(reading) = &calls[i].outcome else { continue };
        for (at, cell) in (reading.from..).zip(elements(&reading.content)) {
            cells.entry(at).or_insert(cell);
        }
    }
    cells
}

fn elements(content: &Content) -> Vec<Arc<[u8]>> {
    match content {
        Content::Bytes(bytes) => bytes.iter().map(|b| Arc::from([*b])).collect(),
        Content::Json(elements) => elements.iter().map(|e| Arc::from(e.as_bytes())).collect(),
    }
}

fn compare(found: &mut Vec<Violation>, name: &Arc<str>, fork: &Cells, source: &Cells, at: u64) {
    let differs = fork.range(..at).find(|(offset, cell)| source.get(offset).is_some_and(|s| s != *cell));
    if let Some((offset, _)) = differs {
        let message = format!("at offset {offset} it differs from its source, which it left at {at}");
        found.push(Violation { kind: Kind::Rewritten, stream: name.clone(), message });
    }
}

/// Counts an answer from the fork's beginning; the error is a tail that lies before it.
fn shift(outcome: &mut Outcome, at: u64) -> Result<(), u64> {
    let down = |next: &mut u64| {
        let shifted = next.checked_sub(at).ok_or(*next);
        *next = next.saturating_sub(at);
        shifted.map(drop)
    };
    match outcome {
        Outcome::Created { next, .. }
        | Outcome::Appended { next, duplicate: false, .. }
        | Outcome::Found { next, .. }
        | Outcome::Refused(Refusal::Closed { next }) => down(next),
        // Of a duplicate its tail says nothing.
        Outcome::Appended { next, duplicate: true, .. } => {
            *next = next.saturating_sub(at);
            Ok(())
        }
        Outcome::Read(reading) => {
            let current = reading.up_to_date || reading.closed;
            let next = reading.next;
            cut(reading, at);
            if current && next < at { Err(next) } else { Ok(()) }
        }
        Outcome::Unknown | Outcome::Refused(_) | Outcome::Deleted => Ok(()),
    }
}

/// A reading without what lies before the fork's beginning. One that ends before it says nothing any more.
fn cut(reading: &mut Reading, at: u64) {
    let inherited = at.saturating_sub(reading.from).min(reading.content.len());
    reading.content = match &reading.content {
        Content::Bytes(bytes) => {
            Content::Bytes(bytes.slice(usize::try_from(inherited).unwrap_or(usize::MAX)..))
        }
        Content::Json(all) => Content::Json(all[usize::try_from(inherited).unwrap_or(usize::MAX)..].to_vec()),
    };
    reading.from = reading.from.saturating_sub(at);
    reading.next = reading.next.saturating_sub(at);
}
