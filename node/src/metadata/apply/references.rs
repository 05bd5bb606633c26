//! Who needs a segment: counts of the extents and dedupe states that refer to it.
//!
//! Invariant: a segment dies when its count is zero and its commit has come to its last part; a dead one is never
//! referred to again, so that its object may go once the readers of old extents are done.

use super::super::command::SegmentId;
use super::super::state::{Extent, Segment, State};

/// One more.
pub(super) fn hold(state: &mut State, id: SegmentId) {
    let segment = segment(state, id);
    debug_assert!(segment.dead_since_ms.is_none(), "a dead segment never rises again");
    segment.references += 1;
}

/// One less.
pub(super) fn let_go(state: &mut State, id: SegmentId) {
    segment(state, id).references -= 1;
    bury_if_dead(state, id);
}

/// The extents and the dedupe state of a stream that ends.
pub(super) fn let_go_all(state: &mut State, extents: &[Extent], dedupe: Option<SegmentId>) {
    for id in extents.iter().map(|e| e.segment).chain(dedupe) {
        let_go(state, id);
    }
}

/// No more parts of this segment's commit are to come.
pub(super) fn finish(state: &mut State, id: SegmentId) {
    segment(state, id).under_way = false;
    bury_if_dead(state, id);
}

fn bury_if_dead(state: &mut State, id: SegmentId) {
    let now = state.time_ms;
    let segment = segment(state, id);
    if segment.references == 0 && !segment.under_way && segment.dead_since_ms.is_none() {
        segment.dead_since_ms = Some(now);
        state.dead_segments.insert((now, id));
    }
}

fn segment(state: &mut State, id: SegmentId) -> &mut Segment {
    state.segments.get_mut(&id).expect("whatever refers to a segment keeps it in the state")
}
