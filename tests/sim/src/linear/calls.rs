//! Calls put together from the trace: what was asked, what was told, and when, in places of the trace.

use weir_tests::history::{Account, Op, Outcome, Refusal, Time};

use crate::trace::{Ask, Told, Trace, What};

/// One call.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) ask: Ask,
    pub(crate) began: Time,
    /// `Time::MAX` while no answer came: it may take effect at any time.
    pub(crate) ended: Time,
    pub(crate) began_us: u64,
    pub(crate) ended_us: u64,
    pub(crate) outcome: Outcome,
    pub(crate) told: Option<Told>,
}

impl Asked {
    /// What is there or not is the source of a fork, not its name.
    pub(crate) fn speaks_of_source(&self) -> bool {
        self.ask.fork.is_some() && self.outcome == Outcome::Refused(Refusal::Missing)
    }
}

/// All calls in the order in which they began.
pub(crate) fn calls(trace: &Trace) -> Vec<Asked> {
    let mut calls: Vec<Asked> = Vec::new();
    let mut at = std::collections::HashMap::new();
    for (place, event) in trace.events.iter().enumerate() {
        match &event.what {
            What::Asked { ask, .. } => {
                at.insert(place, calls.len());
                calls.push(Asked {
                    ask: ask.clone(),
                    began: place as Time,
                    ended: Time::MAX,
                    began_us: event.at_us,
                    ended_us: u64::MAX,
                    outcome: Outcome::Unknown,
                    told: None,
                });
            }
            What::Answered { call, told } => {
                let call = &mut calls[at[&call.0]];
                call.outcome = told.outcome.clone();
                call.told = Some(told.clone());
                // Without an outcome it is still under way, whatever the client does next.
                if told.outcome != Outcome::Unknown {
                    (call.ended, call.ended_us) = (place as Time, event.at_us);
                }
            }
            _ => {}
        }
    }
    calls
}

/// The account that the checker takes.
pub(super) fn account(calls: &[Asked]) -> Account {
    let op = |call: &Asked| Op {
        stream: call.ask.stream.clone(),
        json: call.ask.json,
        action: call.ask.action.clone(),
        began: call.began,
        ended: call.ended,
        outcome: call.outcome.clone(),
        why: None,
    };
    Account { ops: calls.iter().map(op).collect(), deaths: Vec::new() }
}
