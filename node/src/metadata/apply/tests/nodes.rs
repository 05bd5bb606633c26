//! Drains and removals.

use super::world::*;
use crate::metadata::command::*;
use crate::metadata::limits;
use crate::metadata::state::Node;

fn remove(id: &str) -> Command {
    Command::RemoveNode { node: node(id) }
}

fn give_up(why: &str) -> Command {
    Command::GiveUpDrain { why: why.into() }
}

fn at<'a>(w: &'a World, id: &str) -> &'a Node {
    w.state.nodes.get(&node(id)).unwrap()
}

#[test]
fn a_node_is_removed_only_when_nothing_of_it_is_left() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    assert_eq!(w.run(&b, remove("z")), Err(Refusal::NoSuchNode));
    w.opened(&a, "x");
    assert_eq!(w.run(&b, remove("a")), Err(Refusal::NodeAlive(a.clone())));
    w.silence(&b, &a);
    assert_eq!(w.run(&b, remove("a")), Err(Refusal::AwaitingRecovery(a.clone())));
    // A later session of it that ended cleanly does not hide the earlier one.
    let a2 = w.join("a", 11);
    w.run(&a2, Command::EndSession).unwrap();
    assert_eq!(w.run(&b, remove("a")), Err(Refusal::AwaitingRecovery(a.clone())));
    let (claim, _) = w.claim(&b, &a, 0);
    w.run(&b, Command::Recovered { ended: a, claim }).unwrap();
    assert_eq!(w.run(&b, remove("a")), Ok(Answer::Done));
    assert_eq!(w.run(&b, remove("a")), Ok(Answer::Done), "sent again it is answered again");
    assert_eq!((at(&w, "a").epoch, at(&w, "a").incarnation.clone()), (a2.epoch, incarnation("a-at-11")));
}

#[test]
fn a_removal_clears_the_pin_and_the_drain_and_another_incarnation_begins_anew() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    w.run(&b, drain("a", true)).unwrap();
    w.run(&b, fence(&a, Some("pinned"), FenceReason::Admin)).unwrap();
    w.run(&b, remove("a")).unwrap();
    assert_eq!((at(&w, "a").draining, at(&w, "a").pinned.clone()), (false, None));
    for command in [drain("a", true), fence(&a, None, FenceReason::Admin)] {
        assert_eq!(w.run(&b, command), Err(Refusal::NoSuchNode));
    }
    // The process itself, should it still be there, is told that too.
    assert_eq!(w.found(Command::Register(registration("a", 10))), Err(Refusal::Removed));
    let again = w.join("a", 11);
    assert!(w.state.is_current(&again) && !at(&w, "a").removed && !at(&w, "a").draining);
}

#[test]
fn a_drain_stands_over_restarts_and_takes_no_streams() {
    let (mut w, [_, b]) = World::with(["a", "b"]);
    w.later(500).run(&b, drain("a", true)).unwrap();
    let since = at(&w, "a").draining_since_ms;
    assert_eq!(since, Some(START_MS + 500));
    w.later(500).run(&b, drain("a", true)).unwrap();
    assert_eq!(at(&w, "a").draining_since_ms, since, "the one under way is left alone");
    w.join("a", 11);
    assert_eq!((at(&w, "a").draining, at(&w, "a").draining_since_ms), (true, since));
    for i in 0..4 {
        let id = w.create(&b, &format!("s{i}"));
        assert_eq!(w.owner(id), Some(b.clone()));
    }
    w.run(&b, drain("a", false)).unwrap();
    let id = w.create(&b, "next");
    assert_eq!(w.owner(id).unwrap().node, node("a"));
}

#[test]
fn the_last_node_is_not_drained_while_it_has_streams() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    w.run(&b, drain("b", true)).unwrap();
    w.run(&b, drain("a", true)).expect("it has none");
    w.run(&b, drain("a", false)).unwrap();
    let (x, _) = w.opened(&a, "x");
    assert_eq!(w.run(&b, drain("a", true)), Err(Refusal::LastNode), "the other drains");
    w.run(&b, drain("b", false)).unwrap();
    w.run(
        &b,
        Command::SetSlots { node: node("b"), slots: weir_api::Slots::try_from(0).unwrap(), resource: None },
    )
    .unwrap();
    assert_eq!(w.run(&b, drain("a", true)), Err(Refusal::LastNode), "the other takes none");
    let c = w.join("c", 1);
    w.run(&b, drain("a", true)).expect("now there is one");
    w.run(&b, drain("a", false)).unwrap();
    w.silence(&b, &c);
    w.silence(&b, &a);
    assert_eq!(w.run(&b, drain("a", true)), Err(Refusal::LastNode), "what awaits recovery counts");
    assert!(!w.is_free(x));
}

#[test]
fn a_drain_that_gave_up_says_so_until_it_is_begun_again_or_cancelled() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    assert_eq!(w.run(&a, give_up("stuck")), Err(Refusal::NotDraining));
    w.run(&b, drain("a", true)).unwrap();
    w.run(&a, give_up("stuck")).unwrap();
    assert_eq!(at(&w, "a").drain_gave_up.as_deref(), Some("stuck"));
    assert!(at(&w, "a").draining, "it still takes none");
    w.later(700).run(&b, drain("a", true)).unwrap();
    assert_eq!(at(&w, "a").drain_gave_up, None);
    assert_eq!(at(&w, "a").draining_since_ms, Some(START_MS + 700));
    w.run(&a, give_up("stuck")).unwrap();
    w.run(&b, drain("a", false)).unwrap();
    assert_eq!((at(&w, "a").drain_gave_up.as_deref(), at(&w, "a").draining_since_ms), (None, None));
    w.run(&b, drain("a", true)).unwrap();
    let long = "x".repeat(limits::TEXT_BYTES + 1);
    assert!(matches!(w.run(&a, give_up(&long)), Err(Refusal::Limit(_))));
}
