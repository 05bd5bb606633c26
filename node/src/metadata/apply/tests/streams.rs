//! Names, creates, births.

use super::world::*;
use crate::metadata::command::*;
use crate::metadata::limits;
use weir_api::{Offset, StreamEpoch};

fn only_born(
    w: &mut World,
    by: &weir_api::SessionId,
    id: weir_api::StreamId,
    epoch: u64,
) -> Result<(), Refusal> {
    only(w.run(by, Command::Born { streams: vec![(id, StreamEpoch(epoch))] }))
}

#[test]
fn a_new_name_gets_a_stream_that_is_placed_at_once() {
    let (mut w, [a]) = World::with(["a"]);
    let outcome = w.run(&a, create("x"));
    let stream = w.state.stream_by_name("x").unwrap().0;
    assert_eq!(outcome, Ok(Answer::Created { stream, owner: a.clone() }));
    assert_eq!(w.owner(stream), Some(a));
    assert_eq!(w.stream(stream).epoch, StreamEpoch(0));
}

#[test]
fn a_name_that_exists_is_told_by_its_configuration() {
    let (mut w, [a]) = World::with(["a"]);
    let x = w.create(&a, "x");
    assert_eq!(w.run(&a, create("x")), Ok(Answer::Exists { stream: x }));
    let upper =
        Command::Create { name: "x".into(), config: config("Text/PLAIN"), closed: false, unborn: true };
    assert_eq!(w.run(&a, upper), Ok(Answer::Exists { stream: x }));
    let mismatch = Err(Refusal::ConfigMismatch { stream: x });
    assert_eq!(w.run(&a, unborn("x", "text/html")), mismatch);
    assert_eq!(w.run(&a, create_expiring("x", Expiry::Ttl(1))), mismatch);
}

#[test]
fn streams_of_one_configuration_share_it() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, y) = (w.create(&a, "x"), w.create(&a, "y"));
    assert!(std::sync::Arc::ptr_eq(&w.stream(x).config, &w.stream(y).config));
    for stream in [x, y] {
        w.run(&a, Command::Delete { stream, epoch: None }).unwrap();
    }
    assert!(w.state.configs.is_empty());
}

#[test]
fn a_create_without_an_eligible_node_leaves_nothing_behind() {
    let (mut w, [a]) = World::with(["a"]);
    w.run(&a, drain("a", true)).unwrap();
    assert_eq!(w.run(&a, create("x")), Err(Refusal::NoEligibleNode));
    assert!(w.state.names.is_empty());
}

#[test]
fn a_stream_created_closed_is_closed_and_empty() {
    let (mut w, [a]) = World::with(["a"]);
    let closed = Command::Create { name: "x".into(), config: config("a/b"), closed: true, unborn: false };
    let x = created(w.run(&a, closed));
    assert!(w.stream(x).closed);
    // With first bytes to come the close rides on their record.
    let closed = Command::Create { name: "y".into(), config: config("a/b"), closed: true, unborn: true };
    let y = created(w.run(&a, closed));
    assert!(!w.stream(y).closed);
}

#[test]
fn deadlines_begin_with_the_create() {
    let (mut w, [a]) = World::with(["a"]);
    for (name, expiry, deadline) in [
        ("never", Expiry::Never, None),
        ("ttl", Expiry::Ttl(100), Some(START_MS + 110_000)),
        ("zero", Expiry::Ttl(0), Some(START_MS)),
        ("huge", Expiry::Ttl(u64::MAX), Some(u64::MAX)),
        ("at", Expiry::At(5), Some(5)),
    ] {
        let id = created(w.run(&a, create_expiring(name, expiry)));
        assert_eq!(w.stream(id).deadline_ms, deadline, "{name}");
    }
}

#[test]
fn names_and_content_types_have_limits() {
    let (mut w, [a]) = World::with(["a"]);
    w.create(&a, &"n".repeat(limits::NAME_BYTES));
    let long = w.run(&a, create(&"n".repeat(limits::NAME_BYTES + 1)));
    assert!(matches!(long, Err(Refusal::Limit(_))), "{long:?}");
    let long = w.run(&a, unborn("x", &"t".repeat(limits::CONTENT_TYPE_BYTES + 1)));
    assert!(matches!(long, Err(Refusal::Limit(_))), "{long:?}");
    assert!(matches!(w.run(&a, create("")), Err(Refusal::Malformed(_))));
}

#[test]
fn a_name_deleted_and_created_anew_is_another_stream() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, epoch) = w.opened(&a, "x");
    w.commit(&a, 1, &[range(x, epoch, 0, 5)]).unwrap();
    w.run(&a, Command::Delete { stream: x, epoch: Some(epoch) }).unwrap();
    let y = w.create(&a, "x");
    assert_ne!(x, y);
    assert_eq!(w.stream(y).committed, Offset(0));
    assert_eq!(w.stream(y).epoch, StreamEpoch(0));
    assert_eq!(w.run(&a, Command::Open { stream: x }), Err(Refusal::NoSuchStream));
}

#[test]
fn a_create_of_the_same_configuration_finds_the_unborn_stream() {
    let (mut w, [a]) = World::with(["a"]);
    let x = w.create_unborn(&a, "x");
    assert_eq!(w.run(&a, unborn("x", "text/plain")), Ok(Answer::Exists { stream: x }));
    assert_eq!(w.run(&a, create("x")), Ok(Answer::Exists { stream: x }));
    w.open(&a, x);
    assert_eq!(w.run(&a, unborn("x", "text/plain")), Ok(Answer::Exists { stream: x }));
    assert!(w.stream(x).unborn_since_ms.is_some());
}

#[test]
fn a_create_of_another_configuration_takes_over_an_unborn_stream_that_is_not_open() {
    let (mut w, [a]) = World::with(["a"]);
    let x = w.create_unborn(&a, "x");
    let y = created(w.run(&a, unborn("x", "text/html")));
    assert_ne!(x, y);
    assert!(w.state.stream(x).is_none());
    assert_eq!(w.session(&a).assigned, 1);
    // Placed at a session that ended: just as well.
    let a2 = w.join("a", 11);
    let z = created(w.run(&a2, create("x")));
    assert!(w.state.stream(y).is_none());
    assert!(w.stream(z).unborn_since_ms.is_none());
}

#[test]
fn an_open_unborn_stream_is_its_owners_to_give_up() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let x = w.create_unborn(&a, "x");
    let epoch = w.open(&a, x);
    let owner = Owner { session: a.clone(), open: Some(epoch) };
    let other = unborn("x", "text/html");
    assert_eq!(w.run(&b, other.clone()), Err(Refusal::NotOwner(owner)));
    // The owner knows that no birth is under way and lets go first.
    only(w.run(&a, release(x, epoch, 0))).unwrap();
    created(w.run(&b, other));
}

#[test]
fn an_unborn_stream_that_awaits_recovery_is_not_taken_over() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let x = w.create_unborn(&a, "x");
    w.open(&a, x);
    w.silence(&b, &a);
    let other = unborn("x", "text/html");
    assert_eq!(w.run(&b, other.clone()), Err(Refusal::AwaitingRecovery(a.clone())));
    let (claim, _) = w.claim(&b, &a, 0);
    w.run(&b, Command::Recovered { ended: a, claim }).unwrap();
    created(w.run(&b, other));
}

#[test]
fn only_the_owner_at_its_epoch_bears_a_stream() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let x = w.create_unborn(&a, "x");
    assert_eq!(only_born(&mut w, &a, x, 0), Err(Refusal::NotOpen));
    let epoch = w.open(&a, x);
    let owner = Owner { session: a.clone(), open: Some(epoch) };
    assert_eq!(only_born(&mut w, &b, x, epoch.0), Err(Refusal::NotOwner(owner)));
    assert_eq!(only_born(&mut w, &a, x, epoch.0 + 1), Err(Refusal::AlreadyOpen { epoch }));
    assert_eq!(only_born(&mut w, &a, x, epoch.0), Ok(()));
    assert_eq!(w.stream(x).unborn_since_ms, None);
    assert_eq!(only_born(&mut w, &a, x, epoch.0), Ok(()));
}

/// There may be millions of them.
#[test]
fn a_stream_stays_small() {
    assert!(size_of::<crate::metadata::state::Stream>() <= 152);
}
