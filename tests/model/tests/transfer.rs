//! A stream on its way: the design holds in every state within the bounds, and each of its rules carries weight.

use stateright::{Checker, HasDiscoveries, Model, Path};
use weir_model::transfer::{Bounds, Faults, GOES_ON, I1, I2, I4, MEANT, Transfer};

#[test]
fn a_transfer_keeps_the_invariants_and_ends() {
    let model = Transfer { faults: Faults::default(), bounds: Bounds::GATE };
    let failure = HasDiscoveries::AnyFailures;
    let checker = model.checker().threads(2).finish_when(failure).spawn_dfs().join();
    eprintln!("{} states, {} steps", checker.unique_state_count(), checker.state_count());
    for invariant in [I1, I2, I4, MEANT, GOES_ON] {
        let broken = checker.discovery(invariant).map(|path| (*path.last_state(), path.into_actions()));
        assert!(broken.is_none(), "{invariant}: {broken:#?}");
    }
    let met = checker.discoveries();
    for property in model.properties() {
        let situation = property.expectation == stateright::Expectation::Sometimes;
        assert!(!situation || met.contains_key(property.name), "never met: {}", property.name);
    }
}

/// Breadth first, so that the schedule found is a shortest one.
fn falls(faults: Faults, invariant: &'static str) {
    let model = Transfer { faults, bounds: Bounds::GATE };
    let found = HasDiscoveries::AnyOf([invariant].into());
    let checker = model.checker().finish_when(found).spawn_bfs().join();
    let path = checker.discovery(invariant);
    assert!(path.is_some(), "{faults:?} broke nothing in {} states", checker.unique_state_count());
    let (states, actions) = (checker.unique_state_count(), path.map(Path::into_actions));
    eprintln!("{invariant} falls, after {states} states, by {actions:#?}");
}

macro_rules! each {
    ($($test:ident: $fault:ident breaks $($invariant:ident)and+;)+) => {
        $(#[test] fn $test() {
            $(falls(Faults { $fault: true, ..Faults::default() }, $invariant);)+
        })+
    };
}

each! {
    a_release_at_another_tail_loses_what_is_above_it: release_tail_not_checked breaks I2;
    a_source_that_goes_on_acknowledges_what_is_left_behind: source_does_not_stop breaks I2;
    a_source_that_resumes_too_early_is_released_while_it_serves: resume_with_release_in_flight breaks I2;
    a_target_that_opens_early_gives_offsets_again: target_opens_early breaks I2;
    what_awaits_recovery_and_is_moved_loses_what_was_acknowledged: moves_what_awaits_recovery breaks I2;
    what_was_called_off_completes_all_the_same: aborted_completes breaks MEANT;
    whoever_comes_first_takes_what_was_meant_for_another: released_to_anyone breaks MEANT;
    a_transfer_that_outlives_its_sides_locks_the_stream: outlives_its_sides breaks GOES_ON;
    a_source_that_never_resumes_is_stuck: never_resumes breaks GOES_ON;
}
