//! Commits and sweeps.

use super::world::*;
use crate::metadata::command::*;
use crate::metadata::limits;
use crate::metadata::state::Extent;
use weir_api::{Offset, SessionId, StreamEpoch, StreamId};

fn dedupe(r: SegmentRange) -> SegmentRange {
    SegmentRange { dedupe: true, ..r }
}

fn closing(r: SegmentRange) -> SegmentRange {
    SegmentRange { closed: true, ..r }
}

fn part(w: &mut World, by: &SessionId, number: u64, ranges: &[SegmentRange], last: bool) -> Outcome {
    w.run(by, commit(CommitOrigin::Own, number, ranges, last.then_some(number)))
}

fn bounds(w: &World, id: StreamId) -> Vec<(u64, u64)> {
    w.stream(id).extents.iter().map(|e| (e.start.0, e.end.0)).collect()
}

#[test]
fn a_commit_moves_the_committed_end_and_adds_an_extent() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, e) = w.opened(&a, "x");
    assert_eq!(taken(w.commit(&a, 4, &[dedupe(range(x, e, 0, 5))])), [true]);
    let stream = w.stream(x);
    assert_eq!(stream.committed, Offset(5));
    let segment = stream.dedupe.unwrap();
    let extent = Extent { segment, written_as: x, start: Offset(0), end: Offset(5) };
    assert_eq!(stream.extents, [extent]);
    let segment = w.segment(&a, 4).unwrap();
    assert_eq!((segment.references, segment.under_way, segment.bytes), (2, false, 1000));
    assert_eq!(w.session(&a).wal_start, 4);
}

#[test]
fn a_range_is_skipped_unless_open_at_exactly_this_session_and_epoch() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let (x, e) = w.opened(&a, "x");
    let gone = StreamId(99);
    // Another node, an older epoch, a later epoch, a stream that is not there.
    assert_eq!(taken(w.commit(&b, 1, &[range(x, e, 0, 5)])), [false]);
    let ranges = [range(x, StreamEpoch(0), 0, 5), range(gone, e, 0, 5)];
    assert_eq!(taken(w.commit(&a, 1, &ranges)), [false, false]);
    assert_eq!(taken(w.commit(&a, 2, &[range(x, e.next(), 0, 5)])), [false]);
    // Released.
    only(w.run(&a, release(x, e, 0))).unwrap();
    assert_eq!(taken(w.commit(&a, 3, &[range(x, e, 0, 5)])), [false]);
    assert_eq!(w.stream(x).committed, Offset(0));
}

#[test]
fn a_session_that_ended_commits_nothing_even_if_its_streams_are_still_open_at_it() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let (x, e) = w.opened(&a, "x");
    w.silence(&b, &a);
    assert_eq!(w.commit(&a, 1, &[range(x, e, 0, 5)]), Err(Refusal::SessionNotCurrent));
}

#[test]
fn a_range_is_cut_at_the_committed_end() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, e) = w.opened(&a, "x");
    w.commit(&a, 1, &[range(x, e, 0, 5)]).unwrap();
    assert_eq!(taken(w.commit(&a, 2, &[range(x, e, 3, 9)])), [true]);
    assert_eq!(bounds(&w, x), [(0, 5), (5, 9)]);
}

#[test]
fn a_range_committed_up_to_its_end_is_skipped_and_its_segment_dead_at_once() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, e) = w.opened(&a, "x");
    w.commit(&a, 1, &[range(x, e, 0, 5)]).unwrap();
    for (number, r) in [(2, range(x, e, 0, 5)), (3, range(x, e, 2, 4)), (4, range(x, e, 5, 5))] {
        assert_eq!(taken(w.commit(&a, number, &[r])), [false]);
        assert_eq!(w.segment(&a, number).unwrap().dead_since_ms, Some(START_MS));
    }
    assert_eq!(bounds(&w, x), [(0, 5)]);
}

#[test]
fn a_gap_refuses_the_whole_command() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, ex) = w.opened(&a, "x");
    let (y, ey) = w.opened(&a, "y");
    let gap = w.commit(&a, 9, &[range(x, ex, 0, 5), range(y, ey, 1, 5)]);
    assert_eq!(gap, Err(Refusal::Gap { stream: y, committed: Offset(0) }));
    assert_eq!(w.stream(x).committed, Offset(0));
    assert_eq!(w.session(&a).wal_start, FIRST_WAL_SEQ);
    assert!(w.segment(&a, 9).is_none());
    // A range without length leaves no gap either.
    let gap = w.commit(&a, 9, &[closing(range(x, ex, 3, 3))]);
    assert_eq!(gap, Err(Refusal::Gap { stream: x, committed: Offset(0) }));
}

#[test]
fn a_range_without_length_carries_news() {
    let (mut w, [a]) = World::with(["a"]);
    let x = w.create_unborn(&a, "x");
    let e = w.open(&a, x);
    let born = SegmentRange { born: true, ..range(x, e, 0, 0) };
    assert_eq!(taken(w.commit(&a, 1, std::slice::from_ref(&born))), [true]);
    assert_eq!(w.stream(x).unborn_since_ms, None);
    assert_eq!(taken(w.commit(&a, 2, &[born])), [false]);
    assert_eq!(taken(w.commit(&a, 3, &[dedupe(range(x, e, 0, 0))])), [true]);
    assert_eq!(w.segment(&a, 3).unwrap().references, 1);
    assert_eq!(taken(w.commit(&a, 4, &[closing(range(x, e, 0, 0))])), [true]);
    assert!(w.stream(x).closed);
    assert_eq!(taken(w.commit(&a, 5, &[closing(range(x, e, 0, 0))])), [false]);
    assert_eq!(bounds(&w, x), []);
}

#[test]
fn news_without_records_needs_no_segment() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, e) = w.opened(&a, "x");
    let bare = |ranges| Command::CommitSegment {
        origin: CommitOrigin::Own,
        segment: None,
        ranges,
        wal_covered: Some(7),
    };
    assert_eq!(taken(w.run(&a, bare(vec![closing(range(x, e, 0, 0))]))), [true]);
    assert!(w.stream(x).closed);
    assert!(taken(w.run(&a, bare(vec![]))).is_empty());
    assert_eq!(w.session(&a).wal_start, 7);
    for r in [range(x, e, 0, 1), dedupe(range(x, e, 0, 0))] {
        let outcome = w.run(&a, bare(vec![r]));
        assert!(matches!(outcome, Err(Refusal::Malformed(_))), "{outcome:?}");
    }
}

#[test]
fn the_first_record_is_a_birth_whatever_the_range_says() {
    let (mut w, [a]) = World::with(["a"]);
    let x = w.create_unborn(&a, "x");
    let e = w.open(&a, x);
    w.commit(&a, 1, &[range(x, e, 0, 5)]).unwrap();
    assert_eq!(w.stream(x).unborn_since_ms, None);
}

#[test]
fn a_newer_dedupe_state_lets_the_older_segment_go() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, e) = w.opened(&a, "x");
    w.commit(&a, 1, &[dedupe(range(x, e, 0, 0))]).unwrap();
    w.commit(&a, 2, &[dedupe(range(x, e, 0, 5))]).unwrap();
    assert_eq!(w.segment(&a, 1).unwrap().dead_since_ms, Some(START_MS));
    assert_eq!(w.segment(&a, 2).unwrap().references, 2);
    // A range that says nothing of producers leaves what is known.
    w.commit(&a, 3, &[range(x, e, 5, 6)]).unwrap();
    assert_eq!(w.segment(&a, 2).unwrap().references, 2);
}

#[test]
fn a_commit_in_parts_stays_one_segment_and_covers_with_the_last() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, ex) = w.opened(&a, "x");
    let (y, ey) = w.opened(&a, "y");
    part(&mut w, &a, 5, &[range(x, ex, 0, 5)], false).unwrap();
    assert!(w.segment(&a, 5).unwrap().under_way);
    assert_eq!(w.session(&a).wal_start, FIRST_WAL_SEQ);
    part(&mut w, &a, 5, &[range(y, ey, 0, 5)], true).unwrap();
    assert_eq!(w.state.segments.len(), 1);
    assert_eq!(w.segment(&a, 5).unwrap().references, 2);
    assert_eq!(w.session(&a).wal_start, 5);
}

#[test]
fn a_segment_under_way_does_not_die_between_its_parts() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, ex) = w.opened(&a, "x");
    let (y, ey) = w.opened(&a, "y");
    // Nothing of the first part is taken, and what the second brought is deleted again.
    part(&mut w, &a, 5, &[range(x, ex.next(), 0, 5)], false).unwrap();
    part(&mut w, &a, 5, &[range(x, ex, 0, 5)], false).unwrap();
    w.run(&a, Command::Delete { stream: x, epoch: Some(ex) }).unwrap();
    let segment = w.segment(&a, 5).unwrap();
    assert_eq!((segment.references, segment.dead_since_ms), (0, None));
    let id = w.state.segment_ids.get(&(a.clone(), 5)).copied().unwrap();
    w.later(limits::SWEEP_GRACE_MS * 2);
    assert_eq!(w.run(&a, Command::Sweep { segments: vec![id] }), Ok(Answer::Swept(vec![])));
    assert_eq!(taken(part(&mut w, &a, 5, &[range(y, ey, 0, 5)], true)), [true]);
    assert_eq!(w.segment(&a, 5).unwrap().references, 1);
}

#[test]
fn a_finished_segment_takes_no_more_parts() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, e) = w.opened(&a, "x");
    part(&mut w, &a, 5, &[range(x, e, 0, 5)], true).unwrap();
    for number in [5, 4] {
        let late = part(&mut w, &a, number, &[range(x, e, 5, 6)], true);
        assert_eq!(late, Err(Refusal::SegmentFinished));
    }
    // Also once it was swept: else the extent would lead to an object that is gone.
    w.run(&a, Command::Delete { stream: x, epoch: Some(e) }).unwrap();
    let id = w.state.segment_ids.get(&(a.clone(), 5)).copied().unwrap();
    w.later(limits::SWEEP_GRACE_MS);
    assert_eq!(w.run(&a, Command::Sweep { segments: vec![id] }), Ok(Answer::Swept(vec![id])));
    let (y, e) = w.opened(&a, "y");
    assert_eq!(part(&mut w, &a, 5, &[range(y, e, 0, 5)], true), Err(Refusal::SegmentFinished));
}

/// A proposer that does not know what became of a commit makes it again, under a new request number.
#[test]
fn a_finished_commit_made_again_changes_nothing_and_is_no_error() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, e) = w.opened(&a, "x");
    let ranges = [closing(dedupe(range(x, e, 0, 5)))];
    assert_eq!(taken(part(&mut w, &a, 5, &ranges, true)), [true]);
    let before = fingerprint(&w.state);
    assert_eq!(taken(part(&mut w, &a, 5, &ranges, true)), [false]);
    assert_eq!(fingerprint(&w.state), before);
}

#[test]
fn the_next_segment_finishes_the_one_before() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, e) = w.opened(&a, "x");
    part(&mut w, &a, 5, &[range(x, e.next(), 0, 5)], false).unwrap();
    part(&mut w, &a, 6, &[range(x, e, 0, 5)], false).unwrap();
    assert_eq!(w.segment(&a, 5).unwrap().dead_since_ms, Some(START_MS));
    assert_eq!(w.session(&a).commits.finished_below, 6);
    // A late last part of the one before neither covers nor finishes anything.
    assert!(taken(part(&mut w, &a, 5, &[], true)).is_empty());
    assert!(w.segment(&a, 6).unwrap().under_way);
    assert_eq!(w.session(&a).wal_start, FIRST_WAL_SEQ);
}

#[test]
fn the_end_of_a_session_finishes_its_segment() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let (x, e) = w.opened(&a, "x");
    part(&mut w, &a, 5, &[range(x, e.next(), 0, 5)], false).unwrap();
    w.silence(&b, &a);
    assert_eq!(w.segment(&a, 5).unwrap().dead_since_ms, Some(START_MS));
}

#[test]
fn the_wal_start_never_goes_down() {
    let (mut w, [a]) = World::with(["a"]);
    let covered = |n| Command::CommitSegment {
        origin: CommitOrigin::Own,
        segment: None,
        ranges: vec![],
        wal_covered: Some(n),
    };
    w.run(&a, covered(9)).unwrap();
    w.run(&a, covered(3)).unwrap();
    assert_eq!(w.session(&a).wal_start, 9);
}

#[test]
fn ranges_that_contradict_each_other_are_malformed() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, ex) = w.opened(&a, "x");
    let (y, ey) = w.opened(&a, "y");
    for ranges in [
        vec![range(x, ex, 5, 0)],
        vec![range(y, ey, 0, 5), range(x, ex, 0, 5)],
        vec![range(x, ex, 0, 5), range(x, ex, 5, 6)],
    ] {
        let outcome = w.commit(&a, 1, &ranges);
        assert!(matches!(outcome, Err(Refusal::Malformed(_))), "{outcome:?}");
    }
}

#[test]
fn commits_move_no_deadline() {
    let (mut w, [a]) = World::with(["a"]);
    let x = created(w.run(&a, create_expiring("x", Expiry::Ttl(10))));
    let e = w.open(&a, x);
    let before = w.stream(x).deadline_ms;
    w.later(5_000).commit(&a, 1, &[range(x, e, 0, 5)]).unwrap();
    assert_eq!(w.stream(x).deadline_ms, before);
}

#[test]
fn only_segments_dead_for_the_grace_period_are_swept() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, e) = w.opened(&a, "x");
    w.commit(&a, 1, &[range(x, e, 0, 5)]).unwrap();
    w.commit(&a, 2, &[range(x, e, 0, 5)]).unwrap();
    let segments: Vec<SegmentId> = w.state.segments.keys().copied().collect();
    let (used, dead) = (segments[0], segments[1]);
    let all = Command::Sweep { segments: vec![used, dead, SegmentId(99), dead] };
    w.later(limits::SWEEP_GRACE_MS - 1);
    assert_eq!(w.run(&a, all.clone()), Ok(Answer::Swept(vec![])));
    w.later(1);
    assert_eq!(w.run(&a, all), Ok(Answer::Swept(vec![dead])));
    assert_eq!(w.state.segments.keys().copied().collect::<Vec<_>>(), [used]);
}

#[test]
fn the_largest_numbers_do_no_harm() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, e) = w.opened(&a, "x");
    assert_eq!(taken(w.commit(&a, u64::MAX, &[range(x, e, 0, u64::MAX)])), [true]);
    only(w.run(&a, release(x, e, u64::MAX))).unwrap();
    w.time_ms = u64::MAX;
    w.run(&a, create_expiring("t", Expiry::Ttl(u64::MAX))).unwrap();
    w.create_unborn(&a, "u");
}
