//! Transfers, and what a draining node gives away.

use super::world::*;
use crate::metadata::command::*;
use crate::metadata::limits;
use crate::metadata::state::{State, Transfer};
use weir_api::{Offset, SessionId, Slots, StreamEpoch, StreamId};

/// `x` is open at `a` and has five bytes in a segment; `b` and `c` are there too.
fn three() -> (World, [SessionId; 3], StreamId, StreamEpoch) {
    let (mut w, [a, b, c]) = World::with(["a", "b", "c"]);
    let x = w.create(&b, "x");
    let epoch = w.open(&a, x);
    w.commit(&a, 1, &[range(x, epoch, 0, 5)]).unwrap();
    (w, [a, b, c], x, epoch)
}

fn placed(session: &SessionId) -> Owner {
    Owner { session: session.clone(), open: None }
}

fn counts(w: &World, of: &[SessionId]) -> Vec<(u64, u64)> {
    of.iter().map(|s| (w.session(s).assigned, w.session(s).open)).collect()
}

#[test]
fn a_transfer_is_pending_until_the_source_lets_go_and_then_only_the_target_opens() {
    let (mut w, sessions, x, epoch) = three();
    let [a, b, c] = &sessions;
    assert_eq!(w.run(c, transfer(x, b)), Ok(Answer::Done));
    assert_eq!(w.owner(x).as_ref(), Some(a), "the source has it until it lets go");
    // Who asks meanwhile: the target waits, the others go there, the source has it open.
    assert_eq!(w.run(b, Command::Open { stream: x }), Err(Refusal::TransferPending { to: b.clone() }));
    assert_eq!(w.run(c, Command::Open { stream: x }), Err(Refusal::NotOwner(placed(b))));
    assert_eq!(w.run(a, Command::Open { stream: x }), Err(Refusal::AlreadyOpen { epoch }));
    // Appends go on until then.
    w.commit(a, 2, &[range(x, epoch, 5, 9)]).unwrap();
    let not_all = Err(Refusal::NotCommitted { committed: Offset(9) });
    assert_eq!(only(w.run(a, release(x, epoch, 5))), not_all);
    assert!(w.state.transfer(x).is_some());
    assert_eq!(only(w.run(a, release(x, epoch, 9))), Ok(()));
    assert_eq!(w.owner(x).as_ref(), Some(b));
    assert_eq!(w.state.transfer(x), None);
    assert_eq!(counts(&w, &sessions), [(0, 0), (1, 0), (0, 0)]);
    for other in [a, c] {
        assert_eq!(w.run(other, Command::Open { stream: x }), Err(Refusal::NotOwner(placed(b))));
    }
    assert_eq!(w.open(b, x), epoch.next());
    assert_eq!(counts(&w, &sessions), [(0, 0), (1, 1), (0, 0)]);
}

#[test]
fn what_is_not_open_goes_at_once() {
    let (mut w, sessions, x, epoch) = three();
    let [a, b, c] = &sessions;
    only(w.run(a, release(x, epoch, 5))).unwrap();
    w.run(a, transfer(x, c)).unwrap();
    assert_eq!((w.owner(x).as_ref(), w.state.transfer(x)), (Some(c), None), "nobody had it");
    w.run(a, transfer(x, b)).unwrap();
    assert_eq!((w.owner(x).as_ref(), w.state.transfer(x)), (Some(b), None), "it was only placed");
    assert_eq!(counts(&w, &sessions), [(0, 0), (1, 0), (0, 0)]);
    assert_eq!(w.run(c, Command::Open { stream: x }), Err(Refusal::NotOwner(placed(b))));
}

#[test]
fn a_transfer_to_who_has_it_or_asked_for_twice_changes_nothing() {
    let (mut w, [a, b, c], x, _) = three();
    w.run(&b, transfer(x, &a)).unwrap();
    assert_eq!(w.state.transfer(x), None);
    w.run(&b, transfer(x, &b)).unwrap();
    let pending = w.state.transfer(x).cloned();
    w.later(1000);
    w.run(&c, transfer(x, &b)).unwrap();
    assert_eq!(w.state.transfer(x).cloned(), pending);
    assert_eq!(w.run(&c, transfer(x, &c)), Err(Refusal::TransferPending { to: b }));
}

#[test]
fn who_takes_no_streams_is_sent_none() {
    let (mut w, [a, b, c], x, _) = three();
    let refused = |w: &mut World, to: &SessionId, why| {
        let refusal = Refusal::NotEligible { to: to.clone(), why };
        assert_eq!(w.run(&a, transfer(x, to)), Err(refusal));
    };
    refused(&mut w, &session("z", 1), Ineligible::NotAlive);
    refused(&mut w, &session("b", 9), Ineligible::NotAlive);
    w.run(&a, Command::SetSlots { node: node("b"), slots: Slots::try_from(0).unwrap(), resource: None })
        .unwrap();
    refused(&mut w, &b, Ineligible::NoSlots);
    w.run(&a, drain("c", true)).unwrap();
    refused(&mut w, &c, Ineligible::Draining);
    w.silence(&a, &c);
    refused(&mut w, &c, Ineligible::NotAlive);
    assert_eq!(w.run(&a, transfer(StreamId(99), &b)), Err(Refusal::NoSuchStream));
}

#[test]
fn nothing_is_moved_that_awaits_recovery() {
    let (mut w, [a, b, c], x, _) = three();
    w.silence(&b, &a);
    assert_eq!(w.run(&b, transfer(x, &c)), Err(Refusal::AwaitingRecovery(a)));
}

/// What ends a transfer other than its completion; the stream stays where it is, or gets no owner that nobody named.
#[test]
fn a_transfer_ends_with_either_side_with_the_stream_and_by_command() {
    type Ends = fn(&mut World, &[SessionId; 3], StreamId, StreamEpoch);
    let cases: [(&str, Ends); 6] = [
        ("the source ends", |w, [a, b, _], _, _| w.silence(b, a)),
        ("the target ends", |w, [a, b, _], _, _| w.silence(a, b)),
        ("the target comes back as another session", |w, _, _, _| drop(w.join("b", 11))),
        ("the target drains", |w, [a, ..], _, _| drop(w.run(a, drain("b", true)).unwrap())),
        ("the stream is deleted", |w, [a, ..], x, e| {
            drop(w.run(a, Command::Delete { stream: x, epoch: Some(e) }).unwrap());
        }),
        ("it is aborted", |w, [_, b, c], x, _| {
            drop(w.run(c, Command::AbortTransfer { stream: x, to: b.clone() }).unwrap());
        }),
    ];
    for (what, ends) in cases {
        let (mut w, sessions, x, epoch) = three();
        let [a, b, _] = &sessions;
        w.run(a, transfer(x, b)).unwrap();
        ends(&mut w, &sessions, x, epoch);
        assert_eq!(w.state.transfer(x), None, "{what}");
        assert!(w.state.transfer_sides.is_empty(), "{what}");
        if w.state.is_current(a) && w.state.stream(x).is_some() {
            assert_eq!(w.owner(x).as_ref(), Some(a), "{what}: the source keeps it");
            assert_eq!(only(w.run(a, release(x, epoch, 5))), Ok(()));
            assert!(w.is_free(x), "{what}: a later release is a plain one");
        }
    }
}

#[test]
fn only_the_transfer_that_is_meant_is_aborted() {
    let (mut w, [a, b, c], x, epoch) = three();
    let abort = |to: &SessionId| Command::AbortTransfer { stream: x, to: to.clone() };
    assert_eq!(w.run(&a, abort(&b)), Err(Refusal::NoSuchTransfer));
    w.run(&a, transfer(x, &b)).unwrap();
    assert_eq!(w.run(&a, abort(&c)), Err(Refusal::NoSuchTransfer));
    only(w.run(&a, release(x, epoch, 5))).unwrap();
    assert_eq!(w.run(&a, abort(&b)), Err(Refusal::NoSuchTransfer), "it has completed");
    assert_eq!(w.owner(x), Some(b));
}

/// The target dies between the source's release and its own opening: the placement is void, as any.
#[test]
fn what_was_handed_to_a_session_that_ended_is_anybodys() {
    let (mut w, [a, b, c], x, epoch) = three();
    w.run(&a, transfer(x, &b)).unwrap();
    only(w.run(&a, release(x, epoch, 5))).unwrap();
    w.silence(&a, &b);
    assert!(w.is_free(x));
    w.run(&c, transfer(x, &c)).unwrap();
    assert_eq!(w.open(&c, x), epoch.next());
}

#[test]
fn pending_transfers_are_bounded() {
    let (mut w, [a, b, _], x, _) = three();
    let target = w.state.session_by_id(&b).unwrap().0;
    let mut full = State::clone(&w.state);
    for n in 0..limits::TRANSFERS {
        let source = full.session_by_id(&a).unwrap().0;
        full.transfers.insert(StreamId(1_000 + n as u64), Transfer { source, target, begun_ms: 0 });
    }
    let envelope = w.envelope(&a, transfer(x, &b));
    let batch = Batch { time_ms: w.time_ms, commands: vec![envelope] };
    let outcome = crate::metadata::apply::apply(&mut full, &batch).pop().unwrap();
    assert!(matches!(outcome, Err(Refusal::Limit(_))), "{outcome:?}");
}

#[test]
fn a_draining_node_hands_over_what_it_has_and_each_stream_is_placed_anew() {
    let (mut w, sessions, x, epoch) = three();
    let [a, b, c] = &sessions;
    let y = w.create(a, "y");
    w.run(a, transfer(y, a)).unwrap();
    let held = Some((epoch, 5));
    assert_eq!(w.run(a, hand_over(x, held)), Err(Refusal::NotDraining));
    w.run(b, drain("a", true)).unwrap();
    assert_eq!(counts(&w, &sessions)[0], (2, 1), "draining by itself moves nothing");
    assert_eq!(
        only(w.run(a, hand_over(x, Some((epoch, 4))))),
        Err(Refusal::NotCommitted { committed: Offset(5) })
    );
    assert_eq!(only(w.run(a, hand_over(x, None))), Err(Refusal::AlreadyOpen { epoch }));
    assert_eq!(only(w.run(a, hand_over(x, held))), Ok(()));
    assert_eq!(only(w.run(a, hand_over(y, None))), Ok(()));
    assert_eq!(counts(&w, &sessions), [(0, 0), (1, 0), (1, 0)], "each to whoever had least");
    assert_eq!(only(w.run(a, hand_over(x, held))), Err(Refusal::NotOpen), "not twice");
    assert_eq!(only(w.run(a, hand_over(y, None))), Err(Refusal::NotOwner(placed(c))));
    assert_eq!(w.run(b, hand_over(x, None)), Err(Refusal::NotDraining), "by the draining node only");
}

#[test]
fn what_a_draining_node_has_on_its_way_goes_where_it_was_to_go() {
    let (mut w, sessions, x, epoch) = three();
    let [a, _, c] = &sessions;
    w.run(a, transfer(x, c)).unwrap();
    w.run(a, drain("a", true)).unwrap();
    assert!(w.state.transfer(x).is_some(), "what leaves the node goes on");
    assert_eq!(only(w.run(a, hand_over(x, Some((epoch, 5))))), Ok(()));
    assert_eq!(w.owner(x).as_ref(), Some(c));
    assert_eq!(counts(&w, &sessions), [(0, 0), (0, 0), (1, 0)]);
}

#[test]
fn without_anybody_to_take_it_a_stream_stays() {
    let (mut w, [a, b, c], x, epoch) = three();
    w.run(&a, drain("a", true)).unwrap();
    w.silence(&a, &b);
    w.silence(&a, &c);
    assert_eq!(w.run(&a, hand_over(x, Some((epoch, 5)))), Err(Refusal::NoEligibleNode));
    assert_eq!(w.owner(x), Some(a));
}
