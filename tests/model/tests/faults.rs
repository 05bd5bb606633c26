//! Each rule of the design carries weight: without it, a named invariant falls.

use stateright::{Checker, HasDiscoveries, Model, Path};
use weir_model::actions::{Bounds, Weir};
use weir_model::faults::Faults;
use weir_model::properties::{I1, I2, I3, I4};

/// Breadth first, so that the schedule found is a shortest one.
fn falls(faults: Faults, invariant: &'static str) {
    let model = Weir { faults, bounds: Bounds::ABANDON };
    let found = HasDiscoveries::AnyOf([invariant].into());
    let checker = model.checker().finish_when(found).spawn_bfs().join();
    let path = checker.discovery(invariant);
    assert!(path.is_some(), "{faults:?} broke nothing in {} states", checker.unique_state_count());
    eprintln!(
        "{invariant} falls, after {} states, by {:#?}",
        checker.unique_state_count(),
        path.map(Path::into_actions)
    );
}

macro_rules! each {
    ($($test:ident: $fault:ident breaks $($invariant:ident)and+;)+) => {
        $(#[test] fn $test() {
            $(falls(Faults { $fault: true, ..Faults::default() }, $invariant);)+
        })+
    };
}

each! {
    without_the_seal_a_zombie_acknowledges_what_nobody_recovers: no_seal breaks I2 and I3;
    a_deleted_seal_is_no_seal: seal_deleted breaks I2;
    without_the_stream_epoch_a_dropped_frame_takes_the_place_of_an_acknowledged_one: no_stream_epoch_check breaks I2 and I3;
    out_of_order_acknowledgements_are_lost_behind_the_first_absent_object: ack_out_of_order breaks I2;
    readers_of_what_is_not_durable_see_it_go: read_before_durable breaks I3;
    an_old_claim_declares_a_recovery_done_that_is_not: claim_not_checked breaks I2;
    a_clean_end_with_open_streams_forgets_their_records: clean_end_with_open_streams breaks I2;
    an_open_before_recovery_gives_offsets_again: open_before_recovered breaks I2 and I3;
    without_a_new_epoch_two_sessions_acknowledge_at_one: epoch_not_bumped breaks I1;
    a_release_with_puts_in_flight_loses_them: release_without_settle breaks I2;
    an_early_duplicate_answer_acknowledges_what_a_crash_takes: duplicate_answered_before_durable breaks I2;
    without_the_producers_a_retry_has_effect_twice: producer_state_forgotten breaks I4;
}
