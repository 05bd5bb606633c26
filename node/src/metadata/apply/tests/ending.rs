//! Deletes, deadlines, the unborn.

use super::world::*;
use crate::metadata::command::*;
use crate::metadata::limits;
use weir_api::{StreamEpoch, StreamId};

fn expire(stream: StreamId, epoch: Option<StreamEpoch>, now_ms: u64) -> Command {
    Command::Expire { streams: vec![(stream, epoch)], now_ms }
}

fn reap(stream: StreamId, epoch: Option<StreamEpoch>) -> Command {
    Command::ReapUnborn { streams: vec![(stream, epoch)] }
}

#[test]
fn an_open_stream_is_deleted_only_by_its_owner_at_its_epoch() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let (x, epoch) = w.opened(&a, "x");
    w.commit(&a, 1, &[range(x, epoch, 0, 5)]).unwrap();
    let not_owner = Err(Refusal::NotOwner(Owner { session: a.clone(), open: Some(epoch) }));
    assert_eq!(w.run(&b, Command::Delete { stream: x, epoch: None }), not_owner);
    assert_eq!(w.run(&b, Command::Delete { stream: x, epoch: Some(epoch) }), not_owner);
    let already_open = Err(Refusal::AlreadyOpen { epoch });
    assert_eq!(w.run(&a, Command::Delete { stream: x, epoch: None }), already_open);
    assert_eq!(w.run(&a, Command::Delete { stream: x, epoch: Some(epoch) }), Ok(Answer::Done));
    assert!(w.state.stream(x).is_none() && w.state.names.is_empty());
    assert_eq!((w.session(&a).assigned, w.session(&a).open), (0, 0));
    assert_eq!(w.segment(&a, 1).unwrap().dead_since_ms, Some(START_MS));
}

#[test]
fn a_stream_that_is_not_open_is_deleted_by_anyone_who_says_so() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let x = w.create(&a, "x");
    let claims_to_own = Command::Delete { stream: x, epoch: Some(StreamEpoch(1)) };
    assert_eq!(w.run(&b, claims_to_own), Err(Refusal::NotOpen));
    assert_eq!(w.run(&b, Command::Delete { stream: x, epoch: None }), Ok(Answer::Done));
    assert_eq!(w.session(&a).assigned, 0);
}

#[test]
fn an_unborn_stream_is_deleted_only_by_an_owner_that_may_know_of_its_birth() {
    let (mut w, [a]) = World::with(["a"]);
    let x = w.create_unborn(&a, "x");
    assert_eq!(w.run(&a, Command::Delete { stream: x, epoch: None }), Err(Refusal::NoSuchStream));
    let epoch = w.open(&a, x);
    assert_eq!(w.run(&a, Command::Delete { stream: x, epoch: Some(epoch) }), Ok(Answer::Done));
}

#[test]
fn touches_move_deadlines_forward_and_only_those_of_a_ttl() {
    let (mut w, [a]) = World::with(["a"]);
    let ttl = created(w.run(&a, create_expiring("ttl", Expiry::Ttl(10))));
    let at = created(w.run(&a, create_expiring("at", Expiry::At(START_MS + 5))));
    let never = w.create(&a, "never");
    let deadline = START_MS + 11_000;
    let touch =
        |by| Command::Touch { touches: [ttl, at, never, StreamId(99)].map(|s| (s, deadline + by)).into() };
    w.run(&a, touch(7)).unwrap();
    assert_eq!(w.stream(ttl).deadline_ms, Some(deadline + 7));
    assert_eq!(w.stream(at).deadline_ms, Some(START_MS + 5));
    assert_eq!(w.stream(never).deadline_ms, None);
    w.run(&a, touch(3)).unwrap();
    assert_eq!(w.stream(ttl).deadline_ms, Some(deadline + 7));
}

#[test]
fn a_stream_expires_only_once_both_clocks_are_past_its_deadline() {
    let (mut w, [a]) = World::with(["a"]);
    let x = created(w.run(&a, create_expiring("x", Expiry::Ttl(10))));
    let deadline = START_MS + 11_000;
    let too_early = Err(Refusal::NotExpired { deadline_ms: Some(deadline) });
    // (the leader's clock, the proposer's)
    for (leader, proposer) in
        [(deadline - 1, deadline), (deadline, deadline - 1), (deadline - 1, deadline - 1)]
    {
        // The leader's clock may come back; state time does not, so it is tried on a copy.
        let state = w.state.clone();
        w.time_ms = leader;
        assert_eq!(only(w.run(&a, expire(x, None, proposer))), too_early, "{leader} {proposer}");
        w.state = state;
    }
    w.time_ms = deadline;
    assert_eq!(only(w.run(&a, expire(x, None, deadline))), Ok(()));
    assert!(w.state.names.is_empty() && w.state.deadlines.is_empty());
}

#[test]
fn who_has_a_stream_open_may_end_it_a_tenth_of_its_ttl_sooner_and_nobody_else() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let x = created(w.run(&a, create_expiring("x", Expiry::Ttl(10))));
    let at = created(w.run(&a, create_expiring("at", Expiry::At(START_MS + 11_000))));
    let (end, deadline) = (START_MS + 10_000, START_MS + 11_000);
    let too_early = Err(Refusal::NotExpired { deadline_ms: Some(deadline) });
    w.time_ms = end;
    assert_eq!(only(w.run(&a, expire(x, None, end))), too_early, "placed, but not open");
    let (epoch, at_epoch) = (w.open(&a, x), w.open(&b, at));
    assert_eq!(only(w.run(&b, expire(x, Some(epoch), end))), too_early);
    assert_eq!(only(w.run(&a, expire(x, None, end))), too_early);
    assert_eq!(only(w.run(&a, expire(x, Some(StreamEpoch(9)), end))), too_early);
    assert_eq!(only(w.run(&a, expire(x, Some(epoch), end - 1))), too_early);
    assert_eq!(only(w.run(&b, expire(at, Some(at_epoch), end))), too_early, "a fixed end is exact");
    assert_eq!(only(w.run(&a, expire(x, Some(epoch), end))), Ok(()));
}

#[test]
fn state_time_does_not_go_back_with_a_new_leaders_clock() {
    let (mut w, [a]) = World::with(["a"]);
    w.later(500).create(&a, "x");
    w.time_ms = 3;
    w.create(&a, "y");
    assert_eq!(w.state.time_ms, START_MS + 500);
}

#[test]
fn a_stream_without_a_deadline_does_not_expire() {
    let (mut w, [a]) = World::with(["a"]);
    let x = w.create(&a, "x");
    let outcome = only(w.run(&a, expire(x, None, u64::MAX)));
    assert_eq!(outcome, Err(Refusal::NotExpired { deadline_ms: None }));
    assert_eq!(only(w.run(&a, expire(StreamId(99), None, 1))), Err(Refusal::NoSuchStream));
}

#[test]
fn a_touched_stream_outlives_an_expiry_that_was_proposed_before_the_touch() {
    let (mut w, [a]) = World::with(["a"]);
    let x = created(w.run(&a, create_expiring("x", Expiry::Ttl(10))));
    let deadline = START_MS + 11_000;
    w.time_ms = deadline + 1;
    w.run(&a, Command::Touch { touches: vec![(x, deadline + 9_000)] }).unwrap();
    let outcome = only(w.run(&a, expire(x, None, deadline + 1)));
    assert_eq!(outcome, Err(Refusal::NotExpired { deadline_ms: Some(deadline + 9_000) }));
}

#[test]
fn an_open_stream_expires_only_by_its_owner() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let x = created(w.run(&a, create_expiring("x", Expiry::Ttl(0))));
    let epoch = w.open(&a, x);
    w.later(1);
    let not_owner = Err(Refusal::NotOwner(Owner { session: a.clone(), open: Some(epoch) }));
    assert_eq!(only(w.run(&b, expire(x, None, u64::MAX))), not_owner);
    assert_eq!(only(w.run(&a, expire(x, None, u64::MAX))), Err(Refusal::AlreadyOpen { epoch }));
    assert_eq!(only(w.run(&a, expire(x, Some(epoch), u64::MAX))), Ok(()));
}

#[test]
fn the_unborn_are_reaped_after_an_hour() {
    let (mut w, [a]) = World::with(["a"]);
    let x = w.create_unborn(&a, "x");
    let may = START_MS + limits::UNBORN_MS;
    w.time_ms = may;
    assert_eq!(only(w.run(&a, reap(x, None))), Err(Refusal::NotExpired { deadline_ms: Some(may) }));
    w.later(1);
    let epoch = w.open(&a, x);
    assert_eq!(only(w.run(&a, reap(x, None))), Err(Refusal::AlreadyOpen { epoch }));
    assert_eq!(only(w.run(&a, reap(x, Some(epoch)))), Ok(()));
    assert!(w.state.names.is_empty() && w.state.unborn.is_empty());
}

#[test]
fn a_born_stream_is_not_reaped() {
    let (mut w, [a]) = World::with(["a"]);
    let x = w.create_unborn(&a, "x");
    let epoch = w.open(&a, x);
    only(w.run(&a, Command::Born { streams: vec![(x, epoch)] })).unwrap();
    w.later(limits::UNBORN_MS * 2);
    let outcome = only(w.run(&a, reap(x, Some(epoch))));
    assert_eq!(outcome, Err(Refusal::NotExpired { deadline_ms: None }));
}
