//! The design holds: the whole space, no cut.

use stateright::{Checker, Model};
use weir_model::actions::{Bounds, Weir};
use weir_model::faults::Faults;

#[test]
fn the_design_keeps_i1_to_i4_in_every_reachable_state() {
    let begun = std::time::SystemTime::now();
    let mut bounds = Bounds::GATE;
    let e = |n: &str, d: usize| std::env::var(n).ok().and_then(|s| s.parse().ok()).unwrap_or(d);
    bounds.appends = e("APPENDS", bounds.appends);
    bounds.backlog = e("BACKLOG", bounds.backlog as usize) as u8;
    bounds.claims = e("CLAIMS", bounds.claims as usize) as u8;
    bounds.second_session_ends = e("SECOND", 0) == 1;
    let model = Weir { faults: Faults::default(), bounds };
    let checker = model.checker().threads(2).timeout(std::time::Duration::from_secs(e("TMO", 100) as u64)).spawn_dfs().join();
    println!(
        "{} states, {} steps, depth {}, done {}, {:?}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        checker.is_done(),
        begun.elapsed().unwrap()
    );
    checker.assert_properties();
}
