//! The metadata log of a run, put together from what its nodes applied.
//!
//! Invariant: holds the entries from the first on without a gap; an entry is as the first node applied it (that all
//! applied the same is I5's to show).

use std::collections::BTreeMap;
use std::sync::Arc;

use weir::metadata::apply;
use weir::metadata::command::{Batch, Command, Envelope, Outcome};
use weir::metadata::state::State;

use crate::trace::{Trace, What};

/// One entry.
#[derive(Debug, Clone)]
struct Entry {
    batch: Arc<Batch>,
    outcomes: Vec<Outcome>,
}

/// The log.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    entries: BTreeMap<u64, Entry>,
}

/// One command of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) index: u64,
    pub(super) envelope: &'a Envelope,
    pub(super) outcome: &'a Outcome,
}

impl<'a> Step<'a> {
    pub(super) fn command(&self) -> &'a Command {
        &self.envelope.command
    }
}

impl Log {
    pub(super) fn of(trace: &Trace) -> Self {
        let mut seen: BTreeMap<u64, Option<Entry>> = BTreeMap::new();
        for event in &trace.events {
            if let What::Applied { index, batch, outcomes, .. } = &event.what {
                seen.entry(*index).or_insert_with(|| {
                    batch.as_ref().map(|b| Entry { batch: b.clone(), outcomes: outcomes.clone() })
                });
            }
        }
        let Some(first) = seen.keys().next().copied() else { return Self::default() };
        let whole = seen.into_iter().zip(first..).take_while(|((index, _), due)| index == due);
        let entries = whole.filter_map(|((index, entry), _)| Some((index, entry?))).collect();
        Self { entries }
    }

    /// Every command with what it came to.
    pub(super) fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        self.entries.iter().flat_map(|(&index, entry)| {
            let pairs = entry.batch.commands.iter().zip(&entry.outcomes);
            pairs.map(move |(envelope, outcome)| Step { index, envelope, outcome })
        })
    }

    /// Applies the log anew, command by command, and shows each with the states before and after.
    pub(super) fn replay(&self, mut see: impl FnMut(&State, &State, Step<'_>)) {
        let mut state = State::default();
        for (&index, entry) in &self.entries {
            for (envelope, outcome) in entry.batch.commands.iter().zip(&entry.outcomes) {
                let before = state.clone();
                let one = Batch { time_ms: entry.batch.time_ms, commands: vec![envelope.clone()] };
                apply::apply(&mut state, &one);
                see(&before, &state, Step { index, envelope, outcome });
            }
        }
    }

    /// The state after each entry up to `index`, if the log reaches so far.
    pub(super) fn states(&self) -> BTreeMap<u64, State> {
        let mut state = State::default();
        let mut states = BTreeMap::new();
        for (&index, entry) in &self.entries {
            apply::apply(&mut state, &entry.batch);
            states.insert(index, state.clone());
        }
        states
    }
}
