//! Taking one state for another loses nothing: along long random walks, whatever may follow a state may follow its
//! representative, and the invariants say the same of both.

use std::collections::BTreeSet;

use stateright::{Expectation, Model};
use weir_model::actions::{Bounds, Weir};
use weir_model::canonical::representative;
use weir_model::faults::Faults;
use weir_model::state::State;

/// Fixed, so that a failure replays.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}

fn after(model: &Weir, state: &State) -> Vec<(weir_model::actions::Action, State)> {
    let mut actions = Vec::new();
    model.actions(state, &mut actions);
    let step = |action| {
        let mut next = *state;
        model.step(&mut next, action).map(|()| (action, next))
    };
    actions.into_iter().filter_map(step).collect()
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
                let reached = |s: &State| -> BTreeSet<State> {
                    after(&model, s)
                        .into_iter()
                        .map(|(_, next)| representative(next, &model.faults))
                        .collect()
                };
                let reached_from_known = reached(&known);
                for next in reached(&raw) {
                    assert!(
                        next == known || reached_from_known.contains(&next),
                        "after {action:?}, {raw:#?} leads to {next:#?}, but {known:#?} does not"
                    );
                }
                state = known;
            }
        }
    }
}
