//! Forks: the design holds in every state within the bounds, and each of its rules carries weight.

use stateright::{Checker, HasDiscoveries, Model, Path};
use weir_model::fork::{CURRENT, Faults, Forks, I2, I3, NAME, NO_LEAK};

#[test]
fn forks_keep_the_invariants() {
    let model = Forks::gate(Faults::default());
    let failure = HasDiscoveries::AnyFailures;
    let checker = model.checker().threads(2).finish_when(failure).spawn_dfs().join();
    eprintln!("{} states, {} steps", checker.unique_state_count(), checker.state_count());
    for invariant in [I2, I3, CURRENT, NAME, NO_LEAK] {
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
    let model = Forks::gate(faults);
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
    a_fork_of_what_is_not_committed_begins_with_less: not_committed breaks I3;
    a_fork_without_references_loses_its_beginning: no_reference breaks I2;
    extents_that_a_proposer_knew_may_be_swept: extents_carried breaks I2;
    a_fork_by_name_is_one_of_another_life: by_name breaks I3;
    without_a_tombstone_a_name_leads_elsewhere: no_tombstone breaks NAME;
    a_tombstone_that_stays_holds_its_name_for_ever: tombstone_stays breaks NO_LEAK;
    a_fork_of_what_awaits_recovery_misses_what_was_acknowledged: while_awaiting_recovery breaks CURRENT;
    a_fork_at_the_committed_end_misses_what_was_acknowledged: at_committed_end breaks CURRENT;
}
