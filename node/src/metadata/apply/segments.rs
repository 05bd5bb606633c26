//! Commits of segments: how records reach the state, and how segments leave it.
//!
//! Invariants: only records of the session and stream epoch at which a stream is open are taken (I1), from its committed
//! end on, without gaps (I2, I3); what else a command carries is skipped, because a segment holds many streams. All
//! of a command is checked before any of it is taken. The WAL start never goes down.
//!
//! One segment may come in several commands. It is *under way* from the first to the one that says what is covered,
//! and cannot be swept in between; once finished its number is spent: another copy of a part changes nothing, and one
//! that would is refused. Else a late part could refer to an object that is gone.

use weir_api::{Offset, StreamId};

use super::super::command::{
    Answer, CommitOrigin, NewSegment, Outcome, RangeOutcome, Refusal, SegmentId, SegmentRange,
};
use super::super::limits;
use super::super::state::{Extent, Ownership, Segment, SessionNo, State, Stream};
use super::requests::Proposer;
use super::{create, items, recovery, references};
use crate::mutant::{self, Mutant};

/// What is taken of one range.
struct Take {
    stream: StreamId,
    /// The committed end before.
    from: Offset,
    /// The committed end after.
    end: Offset,
    closes: bool,
    bears: bool,
    dedupe: bool,
}

/// A commit that has passed every check.
struct Plan {
    /// Whose records they are.
    of: SessionNo,
    /// The segment's commit is finished, so there is nothing to take.
    spent: bool,
    /// One per range; `None` is skipped.
    takes: Vec<Option<Take>>,
}

/// Where a segment stands.
struct Stand {
    /// Its number in the state, if an earlier part has brought it there.
    known: Option<SegmentId>,
    /// Its commit is finished.
    spent: bool,
}

pub(super) fn commit(
    state: &mut State,
    by: Proposer<'_>,
    origin: &CommitOrigin,
    segment: Option<&NewSegment>,
    ranges: &[SegmentRange],
    wal_covered: Option<u64>,
) -> Outcome {
    let plan = check(state, by, origin, segment, ranges)?;
    if !plan.spent {
        carry_out(state, by, &plan, segment, wal_covered);
    }
    let outcome = |take: &Option<Take>| match take {
        Some(_) => RangeOutcome::Committed,
        None => RangeOutcome::Skipped,
    };
    Ok(Answer::Committed(plan.takes.iter().map(outcome).collect()))
}

fn check(
    state: &State,
    by: Proposer<'_>,
    origin: &CommitOrigin,
    segment: Option<&NewSegment>,
    ranges: &[SegmentRange],
) -> Result<Plan, Refusal> {
    let of = match origin {
        CommitOrigin::Own => by.no,
        CommitOrigin::Recovery { ended, claim } => recovery::check_claim(state, by, ended, *claim)?,
    };
    items(ranges.len())?;
    check_form(segment, ranges)?;
    let Stand { known, spent } = stand(state, by, of, segment);
    let takes = ranges.iter().map(|r| check_range(state, of, r, known)).collect::<Result<Vec<_>, _>>()?;
    if spent && takes.iter().any(Option::is_some) {
        return Err(Refusal::SegmentFinished);
    }
    Ok(Plan { of, spent, takes })
}

fn check_form(segment: Option<&NewSegment>, ranges: &[SegmentRange]) -> Result<(), Refusal> {
    if ranges.iter().any(|r| r.start > r.end) {
        return Err(Refusal::Malformed("a range ends before it begins".into()));
    }
    if ranges.windows(2).any(|two| two[0].stream >= two[1].stream) {
        return Err(Refusal::Malformed("ranges do not go up by stream".into()));
    }
    if segment.is_none() && ranges.iter().any(|r| r.start < r.end || r.dedupe) {
        return Err(Refusal::Malformed("records without a segment".into()));
    }
    Ok(())
}

fn stand(state: &State, by: Proposer<'_>, of: SessionNo, segment: Option<&NewSegment>) -> Stand {
    let Some(segment) = segment else { return Stand { known: None, spent: false } };
    let commits = state.session(of).expect("checked").commits;
    let known = state.segment_ids.get(&(by.id.clone(), segment.number)).copied();
    let over = known.is_some() && known != commits.under_way;
    Stand { known, spent: over || segment.number < commits.finished_below }
}

fn check_range(
    state: &State,
    of: SessionNo,
    range: &SegmentRange,
    segment: Option<SegmentId>,
) -> Result<Option<Take>, Refusal> {
    let held = |s: &&Stream| {
        let here = s.ownership == Ownership::Open(of) || mutant::on(Mutant::NoOwnerCheck);
        let now = s.epoch == range.epoch || mutant::on(Mutant::NoStreamEpochCheck);
        here && (now || mutant::on(Mutant::NoOwnerCheck))
    };
    let Some(stream) = state.stream(range.stream).filter(held) else { return Ok(None) };
    let from = stream.committed;
    if range.start > from {
        return Err(Refusal::Gap { stream: range.stream, committed: from });
    }
    if range.end < from {
        return Ok(None);
    }
    let adds = range.end > from;
    let take = Take {
        stream: range.stream,
        from,
        end: range.end,
        closes: range.closed && !stream.closed,
        // A stream's first record is its birth, whatever the range says.
        bears: (range.born || adds) && stream.unborn_since_ms.is_some(),
        dedupe: range.dedupe && (segment.is_none() || stream.dedupe != segment),
    };
    let news = adds || take.closes || take.bears || take.dedupe;
    Ok(news.then_some(take))
}

/// Finds the segment in the state or puts it there, under way.
fn take_up(state: &mut State, by: Proposer<'_>, of: SessionNo, segment: &NewSegment) -> SegmentId {
    let key = (by.id.clone(), segment.number);
    if let Some(known) = state.segment_ids.get(&key) {
        return *known;
    }
    // The next segment begins, so no more of the one before it will come.
    abandon(state, of);
    let id = SegmentId(state.next.segment);
    state.next.segment += 1;
    let entry = Segment {
        session: by.id.clone(),
        number: segment.number,
        bytes: segment.bytes,
        references: 0,
        under_way: true,
        dead_since_ms: None,
    };
    state.segments.insert(id, entry);
    state.segment_ids.insert(key, id);
    state.sessions.get_mut(&of).expect("checked").commits.under_way = Some(id);
    id
}

fn carry_out(
    state: &mut State,
    by: Proposer<'_>,
    plan: &Plan,
    segment: Option<&NewSegment>,
    wal_covered: Option<u64>,
) {
    let segment = segment.map(|s| take_up(state, by, plan.of, s));
    for take in plan.takes.iter().flatten() {
        advance(state, take, segment);
    }
    if let Some(covered) = wal_covered {
        abandon(state, plan.of);
        let session = state.sessions.get_mut(&plan.of).expect("checked");
        session.wal_start = session.wal_start.max(covered);
    }
}

fn advance(state: &mut State, take: &Take, segment: Option<SegmentId>) {
    if let Some(segment) = segment {
        refer(state, take, segment);
    }
    if take.bears {
        create::bear(state, take.stream);
    }
    let stream = state.stream_mut(take.stream);
    stream.committed = take.end;
    stream.closed |= take.closes;
}

fn refer(state: &mut State, take: &Take, segment: SegmentId) {
    let stream = state.stream_mut(take.stream);
    let before = take.dedupe.then(|| stream.dedupe.replace(segment)).flatten();
    let (start, end) = (take.from, take.end);
    let new_extent =
        start < end && push_extent(stream, Extent { segment, written_as: take.stream, start, end });
    // Up before down: what is only replaced must not pass through zero.
    for _ in 0..usize::from(new_extent) + usize::from(take.dedupe) {
        references::hold(state, segment);
    }
    if let Some(before) = before {
        references::let_go(state, before);
    }
}

/// Adds an extent, or lengthens the last one; answers whether there is one more now.
fn push_extent(stream: &mut Stream, extent: Extent) -> bool {
    if let Some(last) = stream.extents.last_mut()
        && (last.segment, last.written_as, last.end) == (extent.segment, extent.written_as, extent.start)
    {
        last.end = extent.end;
        return false;
    }
    // Most streams have few: no spare room for those.
    if stream.extents.len() < 8 {
        stream.extents.reserve_exact(1);
    }
    stream.extents.push(extent);
    true
}

/// No more of the segment under way will come: it is finished, and its number and those before it are spent.
pub(super) fn abandon(state: &mut State, of: SessionNo) {
    let session = state.sessions.get_mut(&of).expect("the caller looked it up");
    let Some(id) = session.commits.under_way.take() else { return };
    let number = state.segments.get(&id).expect("a segment under way stays").number;
    session.commits.finished_below = session.commits.finished_below.max(number.saturating_add(1));
    references::finish(state, id);
}

/// Forgets the dead among these segments whose grace period is over. The rest are passed over.
pub(super) fn sweep(state: &mut State, segments: &[SegmentId]) -> Outcome {
    items(segments.len())?;
    let mut swept = Vec::new();
    for &id in segments {
        let over = |since: &u64| state.time_ms >= since.saturating_add(limits::SWEEP_GRACE_MS);
        let Some(since) = state.segments.get(&id).and_then(|s| s.dead_since_ms).filter(over) else {
            continue;
        };
        let segment = state.segments.remove(&id).expect("just found");
        state.segment_ids.remove(&(segment.session, segment.number));
        state.dead_segments.remove(&(since, id));
        swept.push(id);
    }
    Ok(Answer::Swept(swept))
}
