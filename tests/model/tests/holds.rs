//! The design holds in every state within the bounds: nothing is cut by depth, time or chance.

use stateright::{Checker, HasDiscoveries, Model};
use weir_model::actions::{Bounds, Weir};
use weir_model::faults::Faults;
use weir_model::properties;

/// Explores all of it; every invariant holds everywhere, and every situation that matters is met somewhere.
fn explore(bounds: Bounds) {
    let model = Weir { faults: Faults::default(), bounds };
    let failure = HasDiscoveries::AnyFailures;
    let checker = model.checker().threads(2).finish_when(failure).spawn_dfs().join();
    eprintln!(
        "{bounds:?}: {} states, {} steps, depth {}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth()
    );
    for invariant in [properties::I1, properties::I2, properties::I3, properties::I4] {
        let broken = checker.discovery(invariant).map(|path| (*path.last_state(), path.into_actions()));
        assert!(broken.is_none(), "{invariant}: {broken:#?}");
    }
    let met = checker.discoveries();
    for situation in properties::situations(&bounds) {
        assert!(met.contains_key(situation), "never met: {situation}");
    }
    assert!(checker.unique_state_count() < 20_000_000);
}

#[test]
fn i1_to_i4_hold_with_two_appends_to_each_stream() {
    explore(Bounds::APPENDS);
}

#[test]
fn i1_to_i4_hold_when_a_stream_leaves_frames_of_a_dropped_epoch_behind() {
    explore(Bounds::ABANDON);
}

/// About as many states again; for the soak.
#[test]
#[ignore = "wider than the gate: minutes"]
fn i1_to_i4_hold_when_second_sessions_end_too() {
    explore(Bounds { appends: 2, second_session_ends: true, ..Bounds::APPENDS });
}
