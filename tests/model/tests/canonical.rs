//! Taking one state for another loses nothing: along long random walks, whatever may follow a state may follow its
//! representative, and the invariants say the same of both.

use std::collections::BTreeSet;

use stateright::{Expectation, Model};
use weir_model::actions::{Action, Bounds, Weir};
use weir_model::canonical::{images, representative};
use weir_model::faults::Faults;
use weir_model::state::{Slot, State};

/// Fixed, so that a failure replays.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}

fn after(model: &Weir, state: &State) -> Vec<(Action, State)> {
    let mut actions = Vec::new();
    model.actions(state, &mut actions);
    let step = |action| {
        let mut next = *state;
        model.step(&mut next, action).map(|()| (action, next))
    };
    actions.into_iter().filter_map(step).collect()
}

fn reached(model: &Weir, state: &State) -> BTreeSet<State> {
    after(model, state).into_iter().map(|(_, next)| but_for_the_mark(next, &model.faults)).collect()
}

/// Why a process stopped is remembered for one property only; nothing follows from it.
fn but_for_the_mark(state: State, faults: &Faults) -> State {
    let mut known = representative(state, faults);
    known.processes.iter_mut().for_each(|p| p.fenced = false);
    representative(known, faults)
}

/// A process that was forgotten may still look whether its put has landed. Undecided, the slot allows all that follows
/// from either answer.
fn differs_by_a_look(next: &State, known: &State) -> bool {
    images(next).into_iter().any(|mut image| {
        for (wal, before) in image.wals.iter_mut().zip(&known.wals) {
            for (slot, before) in wal.slots.iter_mut().zip(&before.slots) {
                if (*slot, *before) == (Slot::Object, Slot::Unseen) {
                    *slot = Slot::Unseen;
                }
            }
        }
        image == *known
    })
}

fn invariants_hold(model: &Weir, state: &State) -> bool {
    let always = model.properties().into_iter().filter(|p| p.expectation == Expectation::Always);
    always.into_iter().all(|p| (p.condition)(model, state))
}

#[test]
fn what_may_follow_a_state_may_follow_its_representative() {
    for bounds in [Bounds::APPENDS, Bounds::ABANDON, Bounds { second_session_ends: true, ..Bounds::APPENDS }]
    {
        let model = Weir { faults: Faults::default(), bounds };
        let dice = &mut Dice(1);
        for _walk in 0..1500 {
            let mut state = model.init_states()[0];
            loop {
                let ways = after(&model, &state);
                if ways.is_empty() {
                    break;
                }
                let (action, raw) = ways[dice.below(ways.len())];
                let known = representative(raw, &model.faults);
                assert_eq!(representative(known, &model.faults), known);
                assert_eq!(invariants_hold(&model, &raw), invariants_hold(&model, &known));
                for image in images(&known) {
                    assert_eq!(representative(image, &model.faults), known);
                }
                let reached_from_known = reached(&model, &known);
                for next in reached(&model, &raw) {
                    assert!(
                        differs_by_a_look(&next, &but_for_the_mark(known, &model.faults))
                            || reached_from_known.contains(&next),
                        "after {action:?}, {raw:?}\n leads to {next:?},\n but {known:?} does not"
                    );
                }
                state = known;
            }
        }
    }
}
