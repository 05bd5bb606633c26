//! Place, open, release.

use super::world::*;
use crate::metadata::command::*;
use crate::metadata::query::Disposition;
use weir_api::{Offset, Slots, StreamEpoch};

fn owned(session: &weir_api::SessionId, open: Option<StreamEpoch>) -> Owner {
    Owner { session: session.clone(), open }
}

#[test]
fn placing_what_is_placed_at_a_live_node_answers_its_owner() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let x = w.create(&b, "x");
    assert_eq!(w.run(&b, Command::Place { stream: x }), Ok(Answer::Placed(owned(&a, None))));
    let epoch = w.open(&a, x);
    assert_eq!(w.run(&b, Command::Place { stream: x }), Ok(Answer::Placed(owned(&a, Some(epoch)))));
    assert_eq!(w.session(&a).assigned, 1);
}

#[test]
fn a_stream_placed_at_a_session_that_ended_is_placed_anew() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let x = w.create(&b, "x");
    w.silence(&b, &a);
    assert!(w.is_free(x));
    assert_eq!(w.run(&b, Command::Place { stream: x }), Ok(Answer::Placed(owned(&b, None))));
}

#[test]
fn a_stream_of_an_unrecovered_session_is_placed_and_opened_by_nobody() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let (x, _) = w.opened(&a, "x");
    w.silence(&b, &a);
    let waits = Err(Refusal::AwaitingRecovery(a));
    assert_eq!(w.run(&b, Command::Place { stream: x }), waits);
    assert_eq!(w.run(&b, Command::Open { stream: x }), waits);
}

#[test]
fn only_the_placed_owner_opens() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let x = w.create(&b, "x");
    assert_eq!(w.run(&b, Command::Open { stream: x }), Err(Refusal::NotOwner(owned(&a, None))));
    let epoch = w.open(&a, x);
    assert_eq!(epoch, StreamEpoch(1));
    assert_eq!(w.run(&b, Command::Open { stream: x }), Err(Refusal::NotOwner(owned(&a, Some(epoch)))));
    assert_eq!((w.session(&a).assigned, w.session(&a).open), (1, 1));
}

#[test]
fn opening_again_at_the_same_session_tells_the_epoch_and_bumps_nothing() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, epoch) = w.opened(&a, "x");
    assert_eq!(w.run(&a, Command::Open { stream: x }), Err(Refusal::AlreadyOpen { epoch }));
    assert_eq!(w.stream(x).epoch, epoch);
}

#[test]
fn a_released_stream_is_opened_by_the_asker_only_if_placement_picks_it() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let (x, epoch) = w.opened(&a, "x");
    only(w.run(&a, release(x, epoch, 0))).unwrap();
    // Both are empty, so the pick is a: for b that only places.
    assert_eq!(w.run(&b, Command::Open { stream: x }), Ok(Answer::Placed(owned(&a, None))));
    assert_eq!(w.stream(x).epoch, epoch);
    assert_eq!(w.open(&a, x), epoch.next());
    only(w.run(&a, release(x, epoch.next(), 0))).unwrap();
    assert_eq!(w.open(&a, x), StreamEpoch(3));
}

#[test]
fn an_unknown_stream_and_a_tombstone_are_told_apart() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, epoch) = w.opened(&a, "x");
    w.run(&a, fork(x, 0, "f")).unwrap();
    w.run(&a, Command::Delete { stream: x, epoch: Some(epoch) }).unwrap();
    let missing = weir_api::StreamId(99);
    for (stream, refusal) in [(x, Refusal::Tombstone), (missing, Refusal::NoSuchStream)] {
        assert_eq!(w.run(&a, Command::Open { stream }), Err(refusal.clone()));
        assert_eq!(w.run(&a, Command::Place { stream }), Err(refusal.clone()));
        assert_eq!(w.run(&a, Command::Delete { stream, epoch: None }), Err(refusal.clone()));
        assert_eq!(only(w.run(&a, release(stream, epoch, 0))), Err(refusal));
    }
}

#[test]
fn an_unborn_stream_can_be_placed_and_opened() {
    let (mut w, [a]) = World::with(["a"]);
    let x = w.create_unborn(&a, "x");
    let epoch = w.open(&a, x);
    only(w.run(&a, release(x, epoch, 0))).unwrap();
    w.run(&a, Command::Place { stream: x }).unwrap();
    w.open(&a, x);
}

#[test]
fn a_release_needs_session_epoch_and_tail() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let (x, epoch) = w.opened(&a, "x");
    w.commit(&a, 1, &[range(x, epoch, 0, 5)]).unwrap();
    let not_committed = Err(Refusal::NotCommitted { committed: Offset(5) });
    assert_eq!(only(w.run(&a, release(x, epoch, 4))), not_committed);
    assert_eq!(only(w.run(&a, release(x, epoch, 6))), not_committed);
    assert_eq!(only(w.run(&a, release(x, epoch.next(), 5))), Err(Refusal::AlreadyOpen { epoch }));
    assert_eq!(only(w.run(&b, release(x, epoch, 5))), Err(Refusal::NotOwner(owned(&a, Some(epoch)))));
    assert_eq!(only(w.run(&a, release(x, epoch, 5))), Ok(()));
    assert!(w.is_free(x));
    assert_eq!((w.session(&a).assigned, w.session(&a).open), (0, 0));
    assert_eq!(only(w.run(&a, release(x, epoch, 5))), Err(Refusal::NotOpen));
}

#[test]
fn releases_are_answered_one_by_one() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, ex) = w.opened(&a, "x");
    let (y, ey) = w.opened(&a, "y");
    let streams = vec![(x, ex, Offset(1)), (y, ey, Offset(0)), (y, ey, Offset(0))];
    let expected = vec![Err(Refusal::NotCommitted { committed: Offset(0) }), Ok(()), Err(Refusal::NotOpen)];
    assert_eq!(w.run(&a, Command::Release { streams }), Ok(Answer::Released(expected)));
}

#[test]
fn after_recovery_anyone_may_revive_a_stream() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let (x, epoch) = w.opened(&a, "x");
    w.silence(&b, &a);
    let no = w.state.session_by_id(&a).unwrap().0;
    assert_eq!(w.state.disposition(x), Some(Disposition::AwaitingRecovery(no)));
    let (claim, _) = w.claim(&b, &a, 0);
    w.run(&b, Command::Recovered { ended: a, claim }).unwrap();
    assert!(w.is_free(x));
    assert_eq!(w.open(&b, x), epoch.next());
}

#[test]
fn a_node_without_slots_or_draining_opens_nothing_released() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let (x, epoch) = w.opened(&a, "x");
    only(w.run(&a, release(x, epoch, 0))).unwrap();
    w.run(&a, Command::SetSlots { node: node("a"), slots: Slots::try_from(0).unwrap(), resource: None })
        .unwrap();
    assert_eq!(w.run(&a, Command::Open { stream: x }), Ok(Answer::Placed(owned(&b, None))));
}
