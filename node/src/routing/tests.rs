//! The table, row by row, and against a reference over whatever histories come up.

use proptest::prelude::*;
use weir_api::StreamEpoch;

use super::*;
use crate::metadata::apply::tests::world::{World, create, fence, registration, release, transfer};
use crate::metadata::command::{Command, FenceReason};
use crate::metadata::state::Ownership;

const ME: SessionNo = SessionNo(1);
const OTHER: SessionNo = SessionNo(2);
const THIRD: SessionNo = SessionNo(3);

#[test]
fn every_row_of_the_table() {
    let open = |no| Disposition::OpenAt(no, StreamEpoch(4));
    let handoff = Row::Wait(Reason::Handoff);
    let recovery = Row::Wait(Reason::Recovery);
    for (transfer, disposition, expected) in [
        // A pending transfer comes first, whatever else is true.
        (Some(OTHER), open(ME), Row::There(OTHER)),
        (Some(OTHER), open(OTHER), Row::There(OTHER)),
        (Some(OTHER), open(THIRD), Row::There(OTHER)),
        (Some(OTHER), Disposition::PlacedAt(ME), Row::There(OTHER)),
        (Some(OTHER), Disposition::AwaitingRecovery(THIRD), Row::There(OTHER)),
        (Some(OTHER), Disposition::Released, Row::There(OTHER)),
        (Some(ME), open(OTHER), handoff),
        (Some(ME), Disposition::PlacedAt(OTHER), handoff),
        (Some(ME), Disposition::AwaitingRecovery(OTHER), handoff),
        (Some(ME), Disposition::Released, handoff),
        (Some(ME), open(ME), Row::Here),
        (None, open(ME), Row::Here),
        (None, open(OTHER), Row::There(OTHER)),
        (None, Disposition::PlacedAt(ME), Row::Here),
        (None, Disposition::PlacedAt(OTHER), Row::There(OTHER)),
        (None, Disposition::AwaitingRecovery(ME), recovery),
        (None, Disposition::AwaitingRecovery(OTHER), recovery),
        (None, Disposition::Released, Row::Here),
    ] {
        assert_eq!(rule(transfer, disposition, |no| no == ME), expected, "{transfer:?} {disposition:?}");
    }
}

/// A small cluster whose streams are placed where the test says.
fn cluster() -> (World, [SessionId; 2]) {
    World::with(["a", "b"])
}

fn at(session: &SessionId) -> Route {
    let node = &session.node;
    Route::At(Target {
        session: session.clone(),
        http_url: format!("http://{node}:4437"),
        peer_address: format!("{node}:4438"),
    })
}

#[test]
fn a_name_that_is_not_registered_is_served_by_whoever_is_asked() {
    let (w, [a, b]) = cluster();
    for me in [&a, &b] {
        assert_eq!(by_name(&w.state, me, "none"), Route::Local);
    }
}

#[test]
fn a_stream_is_followed_from_its_placement_to_its_recovery() {
    let (mut w, [a, b]) = cluster();
    // A tie goes to a, the next to b.
    let first = w.create(&b, "first");
    let second = w.create(&b, "second");
    let routes = |w: &World, name| [&a, &b].map(|me| by_name(&w.state, me, name));
    assert_eq!(routes(&w, "first"), [Route::Local, at(&a)], "placed");
    assert_eq!(routes(&w, "second"), [at(&b), Route::Local]);
    let epoch = w.open(&a, first);
    assert_eq!(routes(&w, "first"), [Route::Local, at(&a)], "open");
    w.run(&a, release(first, epoch, 0)).unwrap();
    assert_eq!(routes(&w, "first"), [Route::Local, Route::Local], "released: anybody may revive it");
    w.open(&b, second);
    w.silence(&a, &b);
    let recovery = Route::Wait(Reason::Recovery);
    assert_eq!(routes(&w, "second"), [recovery.clone(), recovery], "its session ended, open");
    let (claim, _) = w.claim(&a, &b, 0);
    w.run(&a, Command::Recovered { ended: b.clone(), claim }).unwrap();
    assert_eq!(routes(&w, "second"), [Route::Local, Route::Local], "recovered");
}

#[test]
fn what_was_only_placed_at_a_session_that_ended_is_as_if_not_placed() {
    let (mut w, [a, b]) = cluster();
    w.create(&a, "first");
    w.silence(&b, &a);
    assert_eq!(by_name(&w.state, &b, "first"), Route::Local);
}

#[test]
fn a_stream_on_its_way_is_asked_for_at_its_target_which_waits() {
    let (mut w, [a, b, c]) = World::with(["a", "b", "c"]);
    let id = w.create(&b, "s");
    let epoch = w.open(&a, id);
    w.run(&c, transfer(id, &b)).unwrap();
    let routes = |w: &World| [&a, &b, &c].map(|me| by_name(&w.state, me, "s"));
    let handoff = Route::Wait(Reason::Handoff);
    assert_eq!(routes(&w), [at(&b), handoff, at(&b)]);
    w.run(&a, release(id, epoch, 0)).unwrap();
    assert_eq!(routes(&w), [at(&b), Route::Local, at(&b)], "handed over");
    w.run(&a, transfer(id, &a)).unwrap();
    w.open(&a, id);
    w.run(&a, transfer(id, &b)).unwrap();
    w.silence(&a, &b);
    assert_eq!(by_name(&w.state, &c, "s"), at(&a), "without its target it stays");
}

#[test]
fn a_node_that_came_back_is_another_session() {
    let (mut w, [a, b]) = cluster();
    w.create(&a, "first");
    let again = w.join("a", 11);
    assert_eq!(by_name(&w.state, &b, "first"), Route::Local, "the placement was the earlier session's");
    assert_eq!(target(&w.state, &a), None);
    assert!(target(&w.state, &again).is_some());
}

/// One step of a history; numbers choose among what there is.
#[derive(Debug, Clone)]
enum Step {
    Join(usize),
    Silence(usize),
    EndPinned(usize),
    Recover(usize),
    Create(usize),
    Open(usize, usize),
    Release(usize),
    Delete(usize),
    Transfer(usize, usize),
    Drain(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let n = || 0..4usize;
    prop_oneof![
        2 => n().prop_map(Step::Join),
        1 => n().prop_map(Step::Silence),
        1 => n().prop_map(Step::EndPinned),
        2 => n().prop_map(Step::Recover),
        4 => n().prop_map(Step::Create),
        5 => (n(), 0..6usize).prop_map(|(by, s)| Step::Open(by, s)),
        2 => (0..6usize).prop_map(Step::Release),
        1 => (0..6usize).prop_map(Step::Delete),
        3 => (0..6usize, n()).prop_map(|(s, to)| Step::Transfer(s, to)),
        1 => (n(), any::<bool>()).prop_map(|(node, on)| Step::Drain(node, on)),
    ]
}

/// Does what can be done of a step; what is refused changes nothing.
fn play(w: &mut World, epoch: u64, step: &Step) {
    let live: Vec<SessionId> =
        w.state.sessions.values().filter(|s| s.ended.is_none()).map(|s| s.id.clone()).collect();
    let ended: Vec<SessionId> =
        w.state.sessions.values().filter(|s| s.ended.is_some()).map(|s| s.id.clone()).collect();
    let streams: Vec<StreamId> = w.state.streams.keys().copied().collect();
    let some = |of: &[SessionId], n: usize| (!of.is_empty()).then(|| of[n % of.len()].clone());
    let stream = |n: usize| (!streams.is_empty()).then(|| streams[n % streams.len()]);
    match step {
        Step::Join(n) => {
            w.found(Command::Register(registration(["a", "b", "c", "d"][*n], epoch))).ok();
        }
        Step::Silence(n) | Step::EndPinned(n) => {
            let (Some(gone), Some(by)) = (some(&live, *n), some(&live, n + 1)) else { return };
            let pin = matches!(step, Step::EndPinned(_)).then_some("another");
            w.run(&by, fence(&gone, pin, FenceReason::Silence)).ok();
        }
        Step::Recover(n) => {
            let (Some(gone), Some(by)) = (some(&ended, *n), some(&live, *n)) else { return };
            let replaces = w.session(&gone).claim.as_ref().map_or(0, |c| c.number);
            let (claim, _) = w.claim(&by, &gone, replaces);
            w.run(&by, Command::Recovered { ended: gone, claim }).unwrap();
        }
        Step::Create(n) => {
            let Some(by) = some(&live, *n) else { return };
            w.run(&by, create(&format!("s{epoch}"))).ok();
        }
        Step::Open(by, n) => {
            let (Some(by), Some(stream)) = (some(&live, *by), stream(*n)) else { return };
            w.run(&by, Command::Open { stream }).ok();
        }
        Step::Release(n) => {
            let Some(id) = stream(*n) else { return };
            let (Some(by), s) = (w.owner(id), w.stream(id).clone()) else { return };
            w.run(&by, release(id, s.epoch, s.committed.0)).ok();
        }
        Step::Delete(n) => {
            let (Some(stream), Some(by)) = (stream(*n), some(&live, *n)) else { return };
            w.run(&by, Command::Delete { stream, epoch: None }).ok();
        }
        Step::Transfer(n, to) => {
            let (Some(stream), Some(to)) = (stream(*n), some(&live, *to)) else { return };
            w.run(&to, transfer(stream, &to)).ok();
        }
        Step::Drain(n, draining) => {
            let Some(by) = some(&live, *n) else { return };
            w.run(&by, Command::SetDraining { node: by.node.clone(), draining: *draining }).ok();
        }
    }
}

/// The specification's sentences over the raw state, without any helper of it.
fn reference(state: &State, me: &SessionId, id: StreamId, stream: &Stream) -> Route {
    let session = |no: SessionNo| state.sessions.get(&no);
    if let Some(transfer) = state.transfers.get(&id) {
        let target = &state.sessions[&transfer.target].id;
        return if target == me { Route::Wait(Reason::Handoff) } else { at(target) };
    }
    match stream.ownership {
        Ownership::Released => Route::Local,
        Ownership::Placed(no) => match session(no) {
            Some(s) if s.ended.is_none() && s.id == *me => Route::Local,
            Some(s) if s.ended.is_none() => at(&s.id),
            _ => Route::Local,
        },
        Ownership::Open(no) => match session(no) {
            Some(s) if s.ended.is_some() => Route::Wait(Reason::Recovery),
            Some(s) if s.id == *me => Route::Local,
            Some(s) => at(&s.id),
            None => Route::Local,
        },
    }
}

proptest! {
    #[test]
    fn routes_are_those_of_the_reference_and_never_lead_to_the_dead(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let (mut w, _) = cluster();
        let mut everybody: Vec<SessionId> = Vec::new();
        for (epoch, step) in (100..).zip(&steps) {
            play(&mut w, epoch, step);
            everybody.extend(w.state.sessions.values().map(|s| s.id.clone()));
            everybody.sort();
            everybody.dedup();
            for me in &everybody {
                for (id, stream) in &w.state.streams {
                    let got = route(&w.state, me, *id, stream);
                    prop_assert_eq!(&got, &reference(&w.state, me, *id, stream));
                    if let Route::At(target) = got {
                        prop_assert!(w.state.is_current(&target.session), "I8: {:?}", target);
                        prop_assert_ne!(&target.session, me);
                    }
                }
            }
        }
    }
}
