//! I9: an unknown outcome is never reported as failure; retries of a proposal are recognised and applied once.

use std::collections::BTreeMap;

use weir::metadata::command::{Answer, Command, Outcome, Refusal};
use weir::metadata::state::State;
use weir_api::SessionId;

use super::Verdict;
use super::log::{Log, Step};
use crate::linear::Violation;

pub(super) fn check(verdict: &mut Verdict, log: &Log, said: &[Violation]) {
    for violation in said.iter().filter(|v| v.invariant() == "I9") {
        verdict.report("I9", violation.to_string());
    }
    let mut first: BTreeMap<(SessionId, u64), Outcome> = BTreeMap::new();
    log.replay(|before, after, step| {
        check_abort(verdict, after, step);
        let Some(request) = &step.envelope.request else { return };
        let key = (request.session.clone(), request.number);
        match first.get(&key) {
            Some(known) => again(verdict, before, after, step, known),
            None => drop(first.insert(key, step.outcome.clone())),
        }
    });
}

/// What was said to be called off is.
fn check_abort(verdict: &mut Verdict, after: &State, step: Step<'_>) {
    let (Command::AbortTransfer { stream, to }, Ok(_)) = (step.command(), step.outcome) else { return };
    let pending = after.transfer(*stream).and_then(|t| after.session(t.target));
    // A retry of the answer may meet another transfer to the same session; that one is not called off.
    if pending.is_some_and(|s| s.id == *to) {
        let index = step.index;
        verdict.report(
            "I9",
            format!("entry {index} calls the transfer of {stream} to {to} off, and it is pending"),
        );
    }
}

/// A retry comes to what the first came to, or is refused as one, and has no effect.
fn again(verdict: &mut Verdict, before: &State, after: &State, step: Step<'_>, known: &Outcome) {
    let refused = matches!(step.outcome, Err(Refusal::StaleRequest | Refusal::SessionNotCurrent));
    let ended = matches!(step.command(), Command::EndSession)
        && matches!(step.outcome, Ok(Answer::SessionEnded { .. }));
    if step.outcome != known && !refused && !ended {
        let (index, outcome) = (step.index, step.outcome);
        verdict.report(
            "I9",
            format!("entry {index} is a retry and came to {outcome:?}, the first to {known:?}"),
        );
    }
    // What a request says of answers it has is all that a retry changes; neither counts as an effect.
    let same = before.streams.len() == after.streams.len()
        && before.streams.iter().zip(&after.streams).all(|((a, x), (b, y))| a == b && x == y)
        && before.segments == after.segments
        && before.nodes == after.nodes
        && before.next == after.next
        && before.sessions.len() == after.sessions.len();
    if !same {
        verdict.report("I9", format!("entry {} is a retry and had effect", step.index));
    }
}

#[cfg(test)]
mod tests {
    use weir::metadata::command::{Envelope, RequestId};
    use weir_tests::history::{Action, Refusal as Refused};

    use super::super::sample::{Made, breaks, content, holds, record};
    use super::*;

    fn place(run: &Made, by: &SessionId) -> Envelope {
        let stream = *run.state.names.values().next().unwrap();
        let request = Some(RequestId { session: by.clone(), number: 77, lowest_unanswered: 1 });
        Envelope { request, command: Command::Place { stream } }
    }

    #[test]
    fn a_retry_that_is_told_the_same() {
        let mut run = Made::new();
        let a = run.session("a", 1);
        run.stream("s");
        let envelope = place(&run, &a);
        run.entry(envelope.clone(), None);
        run.entry(envelope, None);
        holds(&run, "I9");
    }

    #[test]
    fn a_retry_that_is_told_otherwise() {
        let mut run = Made::new();
        let a = run.session("a", 1);
        run.stream("s");
        let envelope = place(&run, &a);
        run.entry(envelope.clone(), None);
        run.entry(envelope, Some(Err(Refusal::NoEligibleNode)));
        breaks(&run, "I9", "is a retry and came to");
    }

    #[test]
    fn a_retry_that_has_effect() {
        let mut run = Made::new();
        let a = run.session("a", 1);
        let before = run.state.clone();
        run.stream("s");
        let envelope = place(&run, &a);
        let outcome = Ok(Answer::Done);
        let mut verdict = Verdict::default();
        let step = Step { index: 3, envelope: &envelope, outcome: &outcome };
        again(&mut verdict, &before, &run.state, step, &outcome);
        assert!(verdict.0[0].message.contains("had effect"), "{verdict:?}");
    }

    #[test]
    fn a_refused_append_that_is_there() {
        let mut run = Made::new();
        run.session("a", 1);
        run.stream("s");
        let action = Action::Append { record: Some(record(7)), producer: None, seq: None, closes: false };
        let call = run.asked("s", action);
        run.told(call, weir_tests::history::Outcome::Refused(Refused::Unavailable));
        run.read("s", &content(&[7]));
        breaks(&run, "I9", "was refused");
    }
}
