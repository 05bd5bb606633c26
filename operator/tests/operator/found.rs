//! What the stories of `chaos` have found, each as short as it could be told.

use crate::chaos::Event::*;
use crate::chaos::story;

#[tokio::test(start_paused = true)]
async fn a_template_is_tried_on_one_node_while_the_store_is_down() {
    story(vec![StoreDown(true), Restart(0), Steps(64), Image(false), Steps(1)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_host_beside_a_roll_that_hangs_and_a_scale_down() {
    story(vec![Replicas(4), Image(false), Steps(1), Steps(1), Replicas(1), LoseHost(0), Steps(6)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_scale_down_while_a_roll_hangs_and_a_pod_is_lost() {
    story(vec![Image(false), Steps(6), LosePod(1), Replicas(1), OperatorDies(1)]).await;
}

#[tokio::test(start_paused = true)]
async fn who_is_to_leave_and_cannot_start_is_healed_while_its_vote_is_missing() {
    story(vec![Image(false), LoseVolume(0), LosePod(1), OperatorDies(1), Replicas(1)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_host_a_lost_volume_and_a_scale_down_to_one() {
    story(vec![
        LoseVolume(0),
        LoseHost(2),
        OperatorDies(0),
        OperatorDies(0),
        Replicas(1),
        OperatorDies(0),
        Steps(21),
        OperatorDies(0),
        Steps(12),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_be_asked_is_no_lost_majority() {
    story(vec![
        StoreDown(true),
        LoseVolume(1),
        Steps(34),
        OperatorDies(0),
        Hang(0, true),
        Steps(10),
        Image(false),
        OperatorDies(0),
        Replicas(3),
        Steps(15),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_has_just_come_back_ends_an_outage() {
    story(vec![
        StoreDown(true),
        LoseVolume(1),
        Steps(34),
        OperatorDies(0),
        ApiFaults(Some(2)),
        LosePod(2),
        Steps(24),
        Restart(0),
        OperatorDies(0),
        ApiFaults(None),
        Steps(3),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_drained_node_that_cannot_start_is_healed_before_another_leaves() {
    story(vec![
        LosePod(0),
        TwoOperators,
        TwoOperators,
        Replicas(2),
        Image(false),
        TwoOperators,
        OperatorDies(5),
        Steps(19),
        TwoOperators,
        LosePod(0),
        Replicas(5),
        Replicas(2),
        Restart(2),
        Steps(8),
        Kill(0),
        Steps(6),
        Replicas(1),
        TwoOperators,
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_drained_for_good_is_disturbed_while_it_restarts() {
    story(vec![Drain(0, true), Kill(0), Steps(23), Replicas(1), Restart(7), Steps(15), CutHost(2), Kill(2)])
        .await;
}

#[tokio::test(start_paused = true)]
async fn one_look_at_which_no_node_answers_is_no_outage() {
    story(vec![
        StoreDown(true),
        Steps(6),
        Replicas(1),
        LosePod(1),
        Steps(19),
        Image(false),
        Steps(15),
        Unreliable(2),
        Steps(21),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn of_two_that_leave_the_one_that_does_not_run_goes_first() {
    story(vec![LoseHost(1), Replicas(2), Steps(16), Image(false), Steps(21), Replicas(1)]).await;
}

#[tokio::test(start_paused = true)]
async fn streams_that_nobody_has_counted_may_be_there() {
    story(vec![Unreliable(4), Replicas(1), LosePod(1), Steps(2)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_to_leave_and_is_not_ready_counts_as_disturbed() {
    story(vec![
        Image(false),
        OperatorDies(1),
        StoreDown(true),
        Cordon(0, true),
        OperatorDies(1),
        Replicas(1),
        OperatorDies(1),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_pod_is_made_this_moment_counts_as_disturbed() {
    story(vec![Restart(0), Steps(29), Slots(1, 0), Steps(1), Restart(24), Replicas(1), Steps(10)]).await;
    story(vec![
        Kill(0),
        Restart(0),
        Restart(0),
        Replicas(3),
        Steps(12),
        Steps(17),
        Slots(1, 0),
        Steps(1),
        Restart(24),
        Replicas(1),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_could_take_the_streams_is_healed_before_their_node_leaves() {
    story(vec![
        Replicas(2),
        Restart(251),
        Steps(9),
        Kill(1),
        Steps(20),
        LosePod(0),
        Image(false),
        Replicas(1),
        Steps(8),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_template_is_tried_where_no_node_is_ready_and_nobody_answers() {
    story(vec![
        StoreDown(true),
        LoseVolume(1),
        Image(false),
        Hang(0, true),
        Steps(7),
        Hang(2, true),
        Steps(54),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_majority_that_is_heard_now_and_then_is_no_outage() {
    story(vec![
        StoreDown(true),
        LosePod(0),
        Unreliable(2),
        Steps(9),
        Image(false),
        Steps(14),
        Steps(23),
        Steps(17),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_voter_whose_pod_is_another_by_now_is_not_counted_on() {
    story(vec![LoseHost(1), Replicas(2), Steps(3), LosePod(1), Steps(2)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_never_registered_is_gone_in_time() {
    story(vec![LoseVolume(1), StoreDown(true), Steps(3), LoseHost(1), Steps(14), Steps(23)]).await;
}

/// Both are to leave: the one is drained, and the other's drain, which its cordoned host called for, is under way.
#[tokio::test(start_paused = true)]
async fn of_two_that_drain_and_leave_the_second_waits_for_its_turn() {
    story(vec![Cordon(2, true), Steps(4), Cordon(1, true), OperatorDies(1), Replicas(1)]).await;
}
