//! The choice of a node.

use super::pick;
use crate::metadata::apply::apply;
use crate::metadata::apply::tests::world::{World, create, node};
use crate::metadata::command::{Answer, Batch, Command};
use crate::metadata::consistency::check_consistency;
use weir_api::{SessionId, Slots};

fn picked(w: &World) -> Option<SessionId> {
    pick(&w.state).map(|no| w.state.session(no).unwrap().id.clone())
}

fn weigh(w: &mut World, id: &str, slots: u64) {
    w.state.nodes.get_mut(&node(id)).unwrap().slots = Slots::try_from(slots).unwrap();
}

fn load(w: &mut World, id: &SessionId, assigned: u64) {
    let no = w.state.session_by_id(id).unwrap().0;
    w.state.sessions.get_mut(&no).unwrap().assigned = assigned;
}

#[test]
fn nobody_is_picked_without_an_eligible_node() {
    let (mut w, [a]) = World::with(["a"]);
    weigh(&mut w, "a", 0);
    assert_eq!(picked(&w), None);
    weigh(&mut w, "a", 1);
    assert_eq!(picked(&w), Some(a.clone()));
    w.run(&a, Command::SetDraining { node: node("a"), draining: true }).unwrap();
    assert_eq!(picked(&w), None);
    assert_eq!(picked(&World::new()), None);
}

#[test]
fn a_tie_goes_to_the_lower_node_id() {
    let (w, [_, a]) = World::with(["b", "a"]);
    assert_eq!(picked(&w), Some(a));
}

#[test]
fn the_lowest_ratio_wins_by_exact_arithmetic() {
    // (assigned, slots) of a and of b → picked
    for (a, b, expected) in [
        ((1, 1), (0, 1), "b"),
        ((3, 4), (1, 1), "a"),
        ((4, 4), (1, 1), "a"),
        ((5, 4), (1, 1), "b"),
        // Beyond what floating point tells apart.
        ((u64::MAX, 1_000_000), (u64::MAX - 1, 1_000_000), "b"),
        ((1 << 60, 999_999), (1 << 60, 1_000_000), "b"),
    ] {
        let (mut w, [sa, sb]) = World::with(["a", "b"]);
        weigh(&mut w, "a", a.1);
        weigh(&mut w, "b", b.1);
        load(&mut w, &sa, a.0);
        load(&mut w, &sb, b.0);
        assert_eq!(picked(&w).unwrap().node, node(expected), "{a:?} {b:?}");
    }
}

#[test]
fn a_node_with_four_slots_takes_four_times_the_streams() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    weigh(&mut w, "b", 4);
    for i in 0..50 {
        w.create(&a, &format!("s{i}"));
    }
    assert_eq!((w.session(&a).assigned, w.session(&b).assigned), (10, 40));
}

/// As if from as many clients at once as there are creates: who asks decides nothing.
#[test]
fn six_thousand_creates_are_shared_to_within_one_stream() {
    let (mut w, sessions) = World::with(["a", "b", "c"]);
    let slots = [4, 1, 1];
    for (id, slots) in ["a", "b", "c"].into_iter().zip(slots) {
        weigh(&mut w, id, slots);
    }
    let creates = 6_000;
    for batch in 0..creates / 50 {
        let asked = (0..50).map(|i| {
            let n = batch * 50 + i;
            w.envelope(&sessions[n % 3], create(&format!("s{n}")))
        });
        let commands = asked.collect();
        let batch = Batch { time_ms: w.time_ms, commands };
        for outcome in apply(&mut w.state, &batch) {
            assert!(matches!(outcome, Ok(Answer::Created { .. })), "{outcome:?}");
        }
        // At every moment, not only at the end.
        let all: u64 = sessions.iter().map(|s| w.session(s).assigned).sum();
        for (session, slots) in sessions.iter().zip(slots) {
            let (has, exact) = (w.session(session).assigned * 6, all * slots);
            assert!(has.abs_diff(exact) <= 6, "{session} has {has}/6 of {all}, exact were {exact}/6");
        }
    }
    check_consistency(&w.state).unwrap();
}
