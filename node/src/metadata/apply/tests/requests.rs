//! Request numbers, and who may propose.

use super::world::*;
use crate::metadata::command::*;
use crate::metadata::limits;
use weir_api::{Offset, StreamEpoch, StreamId};

fn numbered(by: &weir_api::SessionId, number: u64, lowest_unanswered: u64, command: Command) -> Envelope {
    Envelope { request: Some(RequestId { session: by.clone(), number, lowest_unanswered }), command }
}

#[test]
fn a_repeated_number_is_answered_from_memory_and_applied_once() {
    let (mut w, [a]) = World::with(["a"]);
    let first = w.apply(numbered(&a, 1, 1, create("x")));
    // The command of the second copy does not even matter.
    let again = w.apply(numbered(&a, 1, 1, create("y")));
    assert_eq!(first, again);
    assert_eq!(w.state.streams.len(), 1);
}

#[test]
fn a_refusal_is_remembered_even_if_it_would_not_come_again() {
    let (mut w, [a]) = World::with(["a"]);
    let first = w.apply(numbered(&a, 1, 1, Command::Open { stream: StreamId(1) }));
    assert_eq!(first, Err(Refusal::NoSuchStream));
    w.apply(numbered(&a, 2, 1, create("x"))).unwrap();
    assert_eq!(w.apply(numbered(&a, 1, 1, Command::Open { stream: StreamId(1) })), first);
}

#[test]
fn answers_below_the_lowest_unanswered_number_are_forgotten_and_such_requests_stale() {
    let (mut w, [a]) = World::with(["a"]);
    for number in 1..=5 {
        w.apply(numbered(&a, number, 1, create(&number.to_string()))).unwrap();
    }
    w.apply(numbered(&a, 6, 5, create("6"))).unwrap();
    let kept: Vec<u64> = w.session(&a).answers.keys().copied().collect();
    assert_eq!(kept, [5, 6]);
    assert_eq!(w.apply(numbered(&a, 4, 1, create("4"))), Err(Refusal::StaleRequest));
    // A late copy that knows less does not bring the mark down.
    assert_eq!(w.session(&a).lowest_unanswered, 5);
}

#[test]
fn numbers_may_arrive_out_of_order() {
    let (mut w, [a]) = World::with(["a"]);
    w.apply(numbered(&a, 2, 1, create("x"))).unwrap();
    w.apply(numbered(&a, 1, 1, create("y"))).unwrap();
    assert_eq!(w.state.streams.len(), 2);
}

#[test]
fn a_number_far_above_the_lowest_unanswered_is_refused_so_that_memory_is_bounded() {
    let (mut w, [a]) = World::with(["a"]);
    let far = limits::REQUEST_WINDOW + 1;
    let outcome = w.apply(numbered(&a, far, 1, create("x")));
    assert!(matches!(outcome, Err(Refusal::Limit(_))), "{outcome:?}");
    w.apply(numbered(&a, far, 2, create("x"))).unwrap();
}

#[test]
fn every_command_of_a_session_that_is_not_current_is_refused() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let (x, epoch) = w.opened(&a, "x");
    w.join("a", 11);
    let commands = [
        create("y"),
        Command::Open { stream: x },
        release(x, epoch, 0),
        commit(CommitOrigin::Own, 1, &[range(x, epoch, 0, 5)], Some(2)),
        Command::Delete { stream: x, epoch: Some(epoch) },
        Command::EndSession,
        fence(&b, None, FenceReason::Silence),
        Command::RaiseFormat { version: 2 },
    ];
    for command in commands {
        assert_eq!(w.run(&a, command), Err(Refusal::SessionNotCurrent));
    }
    // So is one that never was.
    assert_eq!(w.run(&session("a", 12), create("y")), Err(Refusal::SessionNotCurrent));
}

#[test]
fn only_founding_commands_may_come_without_a_session() {
    let mut w = World::new();
    assert_eq!(w.found(create("x")), Err(Refusal::SessionNotCurrent));
    assert_eq!(w.found(Command::EndSession), Err(Refusal::SessionNotCurrent));
}

/// Every node may be pinned to a process that is no more, and then none has a session to say it under.
#[test]
fn an_administrator_fences_without_a_session_and_the_leader_does_not() {
    let (mut w, [a]) = World::with(["a"]);
    assert_eq!(w.found(fence(&a, None, FenceReason::Silence)), Err(Refusal::SessionNotCurrent));
    let to = fence(&a, Some("pod-2"), FenceReason::Admin);
    assert_eq!(w.found(to.clone()), Ok(Answer::Done));
    assert_eq!(w.run(&a, create("x")), Err(Refusal::SessionNotCurrent));
    // Again it changes nothing.
    let before = fingerprint(&w.state);
    assert_eq!(w.found(to), Ok(Answer::Done));
    assert_eq!(fingerprint(&w.state), before);
    // One of unknown fate that comes when another process has registered since ends nothing.
    assert_eq!(w.found(fence(&a, Some("a-at-11"), FenceReason::Admin)), Ok(Answer::Done));
    let next = w.join("a", 11);
    let late = w.found(fence(&a, Some("pod-2"), FenceReason::Admin));
    assert_eq!(late, Err(Refusal::FenceMismatch { registered: next.epoch }));
}

#[test]
fn the_end_of_a_session_is_told_again_until_its_node_registers_anew() {
    let (mut w, [a]) = World::with(["a"]);
    let end = w.envelope(&a, Command::EndSession);
    assert_eq!(w.apply(end.clone()), Ok(Answer::SessionEnded { clean: true }));
    assert_eq!(w.apply(end.clone()), Ok(Answer::SessionEnded { clean: true }));
    w.join("a", 11);
    assert_eq!(w.apply(end), Err(Refusal::SessionNotCurrent));
}

#[test]
fn the_retried_end_of_a_session_with_open_streams_is_not_clean() {
    let (mut w, [a]) = World::with(["a"]);
    w.opened(&a, "x");
    let end = w.envelope(&a, Command::EndSession);
    assert_eq!(w.apply(end.clone()), Ok(Answer::SessionEnded { clean: false }));
    assert_eq!(w.apply(end), Ok(Answer::SessionEnded { clean: false }));
}

#[test]
fn a_session_that_fences_itself_is_answered_and_then_not_current() {
    let (mut w, [a]) = World::with(["a"]);
    let me = fence(&a, None, FenceReason::Admin);
    assert_eq!(w.run(&a, me.clone()), Ok(Answer::Done));
    assert_eq!(w.run(&a, me), Err(Refusal::SessionNotCurrent));
}

#[test]
fn a_command_with_too_many_items_is_refused() {
    let (mut w, [a]) = World::with(["a"]);
    let n = limits::ITEMS + 1;
    let id = StreamId(1);
    for command in [
        Command::Release { streams: vec![(id, StreamEpoch(1), Offset(0)); n] },
        Command::Born { streams: vec![(id, StreamEpoch(1)); n] },
        Command::Touch { touches: vec![(id, 1); n] },
        Command::Expire { streams: vec![(id, None); n], now_ms: 1 },
        Command::ReapUnborn { streams: vec![(id, None); n] },
        Command::Sweep { segments: vec![SegmentId(1); n] },
        commit(CommitOrigin::Own, 1, &vec![range(id, StreamEpoch(1), 0, 1); n], None),
    ] {
        let outcome = w.run(&a, command);
        assert!(matches!(outcome, Err(Refusal::Limit(_))), "{outcome:?}");
    }
}
