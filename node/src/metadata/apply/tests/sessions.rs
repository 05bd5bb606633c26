//! Founding, registrations, fences, weights.

use super::world::*;
use crate::metadata::command::*;
use crate::metadata::limits;
use crate::metadata::state::{Ownership, SessionNo};
use weir_api::{ClusterUid, NodeEpoch, Nonce, RaftId, Slots};

fn slots(n: u64) -> Slots {
    Slots::try_from(n).unwrap()
}

#[test]
fn founding_twice_answers_the_first_uid() {
    let mut w = World::new();
    let again = w.found(Command::Found { uid: ClusterUid(8), identity: Some("other".into()), size: 3 });
    assert_eq!(again, Ok(Answer::Founded { uid: ClusterUid(7) }));
    assert_eq!(w.state.cluster.as_ref().unwrap().size, 1);
}

#[test]
fn nothing_is_registered_before_the_cluster_is_founded() {
    let mut w = World::new();
    w.state.cluster = None;
    assert_eq!(w.found(Command::Register(registration("a", 1))), Err(Refusal::WrongCluster(None)));
    assert_eq!(w.found(Command::AllocateRaftId { nonce: Nonce(1) }), Err(Refusal::WrongCluster(None)));
}

#[test]
fn raft_ids_begin_at_two_and_a_nonce_gets_one_once() {
    let mut w = World::new();
    let mut ask = |n| w.found(Command::AllocateRaftId { nonce: Nonce(n) }).unwrap();
    assert_eq!(ask(1), Answer::RaftId(RaftId(2)));
    assert_eq!(ask(2), Answer::RaftId(RaftId(3)));
    assert_eq!(ask(1), Answer::RaftId(RaftId(2)));
}

#[test]
fn a_registration_sent_again_is_answered_again() {
    let mut w = World::new();
    let r = Command::Register(registration("a", 10));
    let first = w.found(r.clone());
    assert_eq!(first, Ok(Answer::Registered { slots: Slots::ONE, format: 1 }));
    assert_eq!(w.found(r), first);
    assert_eq!(w.state.sessions.len(), 1);
    assert_eq!(w.state.next.session, 2);
}

#[test]
fn an_equal_or_lower_epoch_of_another_process_is_too_low() {
    let (mut w, _) = World::with(["a"]);
    for epoch in [9, 10] {
        let mut r = registration("a", epoch);
        r.nonce = Nonce(99);
        assert_eq!(w.found(Command::Register(r)), Err(Refusal::EpochTooLow { recorded: NodeEpoch(10) }));
    }
}

#[test]
fn a_process_that_was_replaced_is_superseded_at_any_epoch() {
    let (mut w, _) = World::with(["a"]);
    w.join("a", 11);
    w.join("a", 12);
    for epoch in [10, 13] {
        let mut r = registration("a", 10);
        r.session = session("a", epoch);
        assert_eq!(w.found(Command::Register(r)), Err(Refusal::Superseded { by: NodeEpoch(12) }));
    }
}

#[test]
fn a_process_whose_session_was_fenced_or_ended_is_superseded() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    w.silence(&b, &a);
    let again = w.found(Command::Register(registration("a", 10)));
    assert_eq!(again, Err(Refusal::Superseded { by: NodeEpoch(10) }));
    w.run(&b, Command::EndSession).unwrap();
    let again = w.found(Command::Register(registration("b", 10)));
    assert_eq!(again, Err(Refusal::Superseded { by: NodeEpoch(10) }));
}

#[test]
fn a_bounded_number_of_earlier_processes_is_remembered() {
    let (mut w, _) = World::with(["a"]);
    for epoch in 11..40 {
        w.join("a", epoch);
    }
    let earlier = &w.state.nodes.get(&node("a")).unwrap().earlier;
    assert_eq!(earlier.len(), limits::EARLIER_NONCES);
    assert_eq!(earlier.last(), Some(&registration("a", 38).nonce));
}

#[test]
fn a_format_that_a_process_cannot_read_keeps_it_out() {
    let mut w = World::new();
    let mut r = registration("a", 10);
    r.formats = (2, 3);
    assert_eq!(w.found(Command::Register(r)), Err(Refusal::FormatUnreadable { cluster: 1 }));
}

#[test]
fn the_format_rises_only_when_every_node_reads_it() {
    let mut w = World::new();
    let mut r = registration("a", 10);
    r.formats = (1, 2);
    let a = r.session.clone();
    w.found(Command::Register(r)).unwrap();
    w.join("b", 10);
    let refused = Err(Refusal::FormatNotRaised { wanted: 2, cluster: 1 });
    assert_eq!(w.run(&a, Command::RaiseFormat { version: 2 }), refused);
    let mut r = registration("b", 11);
    r.formats = (1, 2);
    w.found(Command::Register(r)).unwrap();
    assert_eq!(w.run(&a, Command::RaiseFormat { version: 2 }), Ok(Answer::Done));
    let refused = Err(Refusal::FormatNotRaised { wanted: 2, cluster: 2 });
    assert_eq!(w.run(&a, Command::RaiseFormat { version: 2 }), refused);
    assert_eq!(w.state.cluster.as_ref().unwrap().format, 2);
}

#[test]
fn the_logs_slots_outlive_a_restart_and_the_configured_ones_count_only_at_first() {
    let (mut w, [a]) = World::with(["a"]);
    w.run(&a, Command::SetSlots { node: node("a"), slots: slots(5), resource: None }).unwrap();
    let mut r = registration("a", 11);
    r.slots = slots(9);
    assert_eq!(w.found(Command::Register(r)), Ok(Answer::Registered { slots: slots(5), format: 1 }));
}

#[test]
fn an_older_generation_of_the_same_resource_does_not_set_slots() {
    let (mut w, [a]) = World::with(["a"]);
    let mut set = |n, uid: Option<&str>, generation| {
        let resource = uid.map(|u| (u.to_owned(), generation));
        w.run(&a, Command::SetSlots { node: node("a"), slots: slots(n), resource })
    };
    assert_eq!(set(2, Some("u"), 7), Ok(Answer::Done));
    assert_eq!(set(3, Some("u"), 6), Err(Refusal::OlderGeneration { known: 7 }));
    assert_eq!(set(3, Some("u"), 7), Ok(Answer::Done));
    // A person's change goes through, and the resource's older ones stay refused after it.
    assert_eq!(set(4, None, 0), Ok(Answer::Done));
    assert_eq!(set(5, Some("u"), 6), Err(Refusal::OlderGeneration { known: 7 }));
    assert_eq!(set(5, Some("another"), 1), Ok(Answer::Done));
    assert_eq!(
        w.run(&a, Command::SetSlots { node: node("z"), slots: slots(1), resource: None }),
        Err(Refusal::NoSuchNode)
    );
}

#[test]
fn changing_slots_moves_no_stream_and_shifts_later_placements() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let before: Vec<_> = (0..4).map(|i| w.create(&a, &format!("s{i}"))).collect();
    let owners: Vec<_> = before.iter().map(|id| w.owner(*id)).collect();
    w.run(&a, Command::SetSlots { node: node("a"), slots: slots(0), resource: None }).unwrap();
    assert_eq!(before.iter().map(|id| w.owner(*id)).collect::<Vec<_>>(), owners);
    for i in 4..8 {
        let id = w.create(&a, &format!("s{i}"));
        assert_eq!(w.owner(id), Some(b.clone()));
    }
}

#[test]
fn a_new_registration_ends_the_session_before_it() {
    let (mut w, [a]) = World::with(["a"]);
    let (open, _) = w.opened(&a, "open");
    let placed = w.create(&a, "placed");
    let a2 = w.join("a", 11);
    assert!(w.session(&a).ended.is_some());
    assert_eq!(w.session(&a2).assigned, 0);
    // What was only placed is void at once, without having been touched.
    assert!(w.is_free(placed));
    assert_eq!(w.stream(placed).ownership, Ownership::Placed(SessionNo(1)));
    assert_eq!(w.run(&a2, Command::Open { stream: open }), Err(Refusal::AwaitingRecovery(a)));
    w.open(&a2, placed);
}

#[test]
fn a_session_that_ends_without_open_streams_is_forgotten_at_once() {
    let (mut w, [a]) = World::with(["a"]);
    let placed = w.create(&a, "placed");
    w.join("a", 11);
    assert!(w.state.session_by_id(&a).is_none());
    assert!(w.is_free(placed));
}

#[test]
fn a_lease_is_over_when_the_same_directory_returns_under_the_same_boot() {
    // (same directory, boot before, boot after) → lease over
    let boot = |n: u128| Some(Nonce(n));
    for (same_directory, before, after, over) in [
        (true, boot(1), boot(1), true),
        (true, boot(1), boot(2), false),
        (false, boot(1), boot(1), false),
        (true, None, None, false),
        (true, boot(1), None, false),
    ] {
        let mut w = World::new();
        let mut r = registration("a", 10);
        r.boot_id = before;
        let a = r.session.clone();
        w.found(Command::Register(r)).unwrap();
        w.opened(&a, "x");
        let mut r = registration("a", 11);
        r.boot_id = after;
        r.raft_id = if same_directory { r.raft_id } else { RaftId(77) };
        w.found(Command::Register(r)).unwrap();
        assert_eq!(
            w.session(&a).ended.as_ref().unwrap().lease_over,
            over,
            "{same_directory} {before:?} {after:?}"
        );
    }
}

#[test]
fn a_lease_left_running_by_an_admins_fence_is_over_once_the_directory_returns() {
    let mut w = World::new();
    let mut r = registration("a", 10);
    r.boot_id = Some(Nonce(1));
    let a = r.session.clone();
    w.found(Command::Register(r)).unwrap();
    let b = w.join("b", 10);
    w.opened(&a, "x");
    w.run(&b, fence(&a, None, FenceReason::Admin)).unwrap();
    assert!(!w.session(&a).ended.as_ref().unwrap().lease_over);
    let mut r = registration("a", 11);
    r.boot_id = Some(Nonce(1));
    w.found(Command::Register(r)).unwrap();
    assert!(w.session(&a).ended.as_ref().unwrap().lease_over);
}

#[test]
fn a_fence_for_silence_leaves_no_lease_to_wait_for() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    w.opened(&a, "x");
    w.silence(&b, &a);
    let end = w.session(&a).ended.clone().unwrap();
    assert!(end.lease_over);
    assert_eq!(end.at_ms, START_MS);
    // A second fence of the same epoch finds nothing to end and is no error.
    assert_eq!(w.run(&b, fence(&a, None, FenceReason::Silence)), Ok(Answer::Done));
}

#[test]
fn a_fence_of_another_epoch_is_refused() {
    let (mut w, [_, b]) = World::with(["a", "b"]);
    let refused = Err(Refusal::FenceMismatch { registered: NodeEpoch(10) });
    assert_eq!(w.run(&b, fence(&session("a", 9), None, FenceReason::Silence)), refused);
    assert_eq!(w.run(&b, fence(&session("a", 9), Some("stranger"), FenceReason::Admin)), refused);
    assert_eq!(w.run(&b, fence(&session("z", 9), None, FenceReason::Admin)), Err(Refusal::NoSuchNode));
}

#[test]
fn a_fence_pins_the_node_so_that_the_old_pod_never_returns() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    w.run(&b, fence(&a, Some("a-at-11"), FenceReason::Admin)).unwrap();
    assert!(!w.state.is_current(&a));
    // The old pod's container restarts with another nonce.
    let mut old = registration("a", 12);
    old.incarnation = incarnation("a-at-10");
    let pinned = Err(Refusal::Pinned { to: incarnation("a-at-11") });
    assert_eq!(w.found(Command::Register(old.clone())), pinned);
    let new = w.join("a", 11);
    assert!(w.state.is_current(&new));
    // The pin outlives the registration.
    old.session = session("a", 20);
    assert_eq!(w.found(Command::Register(old)), pinned);
}

#[test]
fn a_fence_does_not_end_the_session_of_the_incarnation_it_names() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    w.run(&b, fence(&a, Some("a-at-10"), FenceReason::Admin)).unwrap();
    assert!(w.state.is_current(&a));
    // It is accepted by that name alone, whatever the epoch, and only pins.
    w.run(&b, fence(&session("a", 3), Some("a-at-10"), FenceReason::Admin)).unwrap();
    assert!(w.state.is_current(&a));
    assert_eq!(w.state.nodes.get(&node("a")).unwrap().pinned, Some(incarnation("a-at-10")));
}

#[test]
fn a_removed_node_keeps_its_epoch_and_its_incarnation_out() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    w.silence(&b, &a);
    w.run(&b, Command::RemoveNode { node: node("a") }).unwrap();
    let mut r = registration("a", 12);
    r.incarnation = incarnation("a-at-10");
    assert_eq!(w.found(Command::Register(r.clone())), Err(Refusal::Removed));
    r.incarnation = incarnation("fresh");
    r.session = session("a", 10);
    let low = Err(Refusal::EpochTooLow { recorded: NodeEpoch(10) });
    assert_eq!(w.found(Command::Register(r.clone())), low);
    assert_eq!(w.run(&b, fence(&a, None, FenceReason::Admin)), Err(Refusal::NoSuchNode));
    // As a new member it brings its own slots.
    (r.session, r.slots) = (session("a", 13), slots(4));
    assert_eq!(w.found(Command::Register(r)), Ok(Answer::Registered { slots: slots(4), format: 1 }));
}

#[test]
fn overlong_texts_of_a_node_are_refused() {
    let mut w = World::new();
    let mut r = registration("a", 10);
    r.http_url = "x".repeat(limits::TEXT_BYTES + 1);
    assert!(matches!(w.found(Command::Register(r)), Err(Refusal::Limit(_))));
}
