//! What holds for any sequence of commands; most of it is checked while `player` plays.

use proptest::prelude::*;

use super::player::{operations, play};
use super::world::START_MS;
use crate::metadata::apply::apply;
use crate::metadata::codec::{read_state, state_hash, write_state};
use crate::metadata::command::*;
use crate::metadata::consistency::check_consistency;
use crate::metadata::state::State;

fn replay(state: &mut State, log: &[Batch]) -> Vec<Outcome> {
    log.iter().flat_map(|entry| apply(state, entry)).collect()
}

fn cases(n: u32) -> ProptestConfig {
    ProptestConfig { cases: n, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(96))]

    /// I1, I6, I7, I9 and the consistency of every count, at every step.
    #[test]
    fn every_step_keeps_every_rule(operations in operations(120)) {
        play(&operations);
    }

    /// I5.
    #[test]
    fn the_same_log_makes_the_same_state_from_any_snapshot(operations in operations(100), cut in any::<prop::sample::Index>()) {
        let (log, played) = play(&operations);
        let mut state = State::default();
        let outcomes = replay(&mut state, &log);
        prop_assert_eq!(state_hash(&state), state_hash(&played));

        let cut = cut.index(log.len() + 1);
        let mut state = State::default();
        let mut mixed = replay(&mut state, &log[..cut]);
        let mut bytes = Vec::new();
        write_state(&state, &mut bytes).unwrap();
        let mut restored = read_state(&mut bytes.as_slice()).unwrap();
        check_consistency(&restored).unwrap();
        prop_assert_eq!(state_hash(&restored), state_hash(&state));
        mixed.extend(replay(&mut restored, &log[cut..]));
        check_consistency(&restored).unwrap();
        prop_assert_eq!(state_hash(&restored), state_hash(&played));
        prop_assert_eq!(mixed, outcomes);
    }

    /// How the leader groups commands into entries makes no difference but by their time.
    #[test]
    fn grouping_makes_no_difference(operations in operations(60), size in 2usize..9) {
        let (mut log, _) = play(&operations);
        for entry in &mut log {
            entry.time_ms = START_MS;
        }
        let grouped: Vec<_> = log
            .chunks(size)
            .map(|c| Batch { time_ms: START_MS, commands: c.iter().flat_map(|b| b.commands.clone()).collect() })
            .collect();
        let (mut one, mut other) = (State::default(), State::default());
        prop_assert_eq!(replay(&mut one, &log), replay(&mut other, &grouped));
        prop_assert_eq!(state_hash(&one), state_hash(&other));
    }
}

/// The generator is worth something only if commands succeed: over many logs each kind does.
#[test]
fn random_logs_reach_every_answer() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..60 {
        let operations = operations(150).new_tree(&mut runner).unwrap().current();
        let (log, _) = play(&operations);
        let mut state = State::default();
        let outcomes = replay(&mut state, &log);
        for (entry, outcome) in log.iter().zip(outcomes) {
            let command = format!("{:?}", entry.commands[0].command);
            let command: String = command.chars().take_while(|c| c.is_alphanumeric()).collect();
            let found = match outcome {
                Ok(Answer::Swept(each)) => !each.is_empty(),
                Ok(Answer::Released(each) | Answer::Born(each) | Answer::Ended(each)) => {
                    each.contains(&Ok(()))
                }
                Ok(Answer::Committed(each)) => each.contains(&RangeOutcome::Committed),
                other => other.is_ok(),
            };
            if found {
                seen.insert(command);
            }
        }
    }
    let all = [
        "AbortTransfer",
        "AllocateRaftId",
        "BeginTransfer",
        "Born",
        "Claim",
        "CommitSegment",
        "Create",
        "Delete",
        "EndSession",
        "Expire",
        "Fence",
        "Fork",
        "Found",
        "GiveUpDrain",
        "HandOver",
        "Open",
        "Place",
        "RaiseFormat",
        "ReapUnborn",
        "Recovered",
        "Register",
        "Release",
        "RemoveNode",
        "SetDraining",
        "SetSlots",
        "Sweep",
        "Touch",
    ];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), all);
}
