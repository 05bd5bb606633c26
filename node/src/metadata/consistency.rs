//! The state's consistency, recomputed from scratch: what tests hold `apply` and `codec` against.
//!
//! Invariant: looks only at what is stored, never at how apply keeps it. Costs O(state); not for a running node's
//! hot path. Called by tests, by simulations and on demand.

use std::collections::BTreeMap;

use imbl::{OrdMap, OrdSet};
use weir_api::{SessionId, StreamId};

use super::command::SegmentId;
use super::state::{Ownership, SessionNo, State, Stream};

macro_rules! ensure {
    ($holds:expr, $($why:tt)*) => {
        if !$holds {
            return Err(format!($($why)*));
        }
    };
}

/// What streams amount to, counted anew.
#[derive(Default)]
struct Counted<'a> {
    configs: OrdMap<&'a super::command::StreamConfig, u64>,
    references: BTreeMap<SegmentId, u64>,
    forks: BTreeMap<StreamId, u32>,
    placed: BTreeMap<SessionNo, u64>,
    open: BTreeMap<SessionNo, u64>,
    deadlines: OrdSet<(u64, StreamId)>,
    unborn: OrdSet<(u64, StreamId)>,
}

/// The first thing found that does not fit, if any.
pub fn check_consistency(state: &State) -> Result<(), String> {
    let mut counted = Counted::default();
    for (id, stream) in &state.streams {
        check_stream(state, *id, stream)?;
        count(&mut counted, *id, stream);
    }
    ensure!(state.names.len() == state.streams.len(), "names without streams");
    check_derived(state, &counted)?;
    check_sessions(state, &counted)?;
    check_transfers(state)?;
    check_segments(state, &counted)
}

fn check_stream(state: &State, id: StreamId, s: &Stream) -> Result<(), String> {
    ensure!(id.0 < state.next.stream, "stream {id} is above the counter");
    ensure!(state.names.get(&s.name) == Some(&id), "stream {id} does not have its name");
    let interned =
        state.configs.get_key_value(&s.config).is_some_and(|(c, _)| std::sync::Arc::ptr_eq(c, &s.config));
    ensure!(interned, "stream {id} does not share its configuration");
    let mut at = s.start;
    for (i, e) in s.extents.iter().enumerate() {
        // Only the first may begin below what is kept.
        let follows = e.start == at || (i == 0 && e.start < at);
        ensure!(follows && e.end > at, "stream {id}: {e:?} does not follow {at}");
        at = e.end;
    }
    ensure!(at == s.committed, "stream {id}: extents end at {at}, committed is {}", s.committed);
    if let Some(f) = &s.forked_from {
        ensure!(f.source < id && state.streams.contains_key(&f.source), "stream {id}: its source is gone");
    }
    if s.unborn_since_ms.is_some() {
        let begins = s.forked_from.as_ref().map_or(0, |f| f.at.0);
        ensure!(s.committed.0 == begins && s.forks == 0, "unborn {id} has records or forks of its own");
    }
    if s.tombstone {
        let bare = s.extents.is_empty()
            && s.dedupe.is_none()
            && s.deadline_ms.is_none()
            && s.unborn_since_ms.is_none()
            && s.ownership == Ownership::Released;
        ensure!(bare && s.forks > 0, "tombstone {id} holds something or stays for nothing");
    }
    let (Ownership::Open(no) | Ownership::Placed(no)) = s.ownership else { return Ok(()) };
    ensure!(no.0 < state.next.session, "stream {id}: {no:?} is above the counter");
    ensure!(matches!(s.ownership, Ownership::Placed(_)) || s.epoch.0 > 0, "stream {id} is open at epoch 0");
    Ok(())
}

fn count<'a>(c: &mut Counted<'a>, id: StreamId, s: &'a Stream) {
    *c.configs.entry(s.config.as_ref()).or_insert(0) += 1;
    for segment in s.extents.iter().map(|e| e.segment).chain(s.dedupe) {
        *c.references.entry(segment).or_default() += 1;
    }
    if let Some(f) = &s.forked_from {
        *c.forks.entry(f.source).or_default() += 1;
    }
    match s.ownership {
        Ownership::Released => {}
        Ownership::Placed(no) => *c.placed.entry(no).or_default() += 1,
        Ownership::Open(no) => *c.open.entry(no).or_default() += 1,
    }
    c.deadlines.extend(s.deadline_ms.map(|d| (d, id)));
    c.unborn.extend(s.unborn_since_ms.map(|d| (d, id)));
}

fn check_derived(state: &State, c: &Counted<'_>) -> Result<(), String> {
    let same = state.configs.len() == c.configs.len()
        && state.configs.iter().all(|(k, n)| c.configs.get(k.as_ref()) == Some(n));
    ensure!(same, "configurations are counted wrongly: {:?}, not {:?}", state.configs, c.configs);
    ensure!(state.deadlines == c.deadlines, "deadlines: {:?}, not {:?}", state.deadlines, c.deadlines);
    ensure!(state.unborn == c.unborn, "unborn: {:?}, not {:?}", state.unborn, c.unborn);
    for (id, s) in &state.streams {
        let forks = c.forks.get(id).copied().unwrap_or(0);
        ensure!(s.forks == forks, "stream {id} has {forks} forks, not {}", s.forks);
    }
    Ok(())
}

fn check_sessions(state: &State, c: &Counted<'_>) -> Result<(), String> {
    for (no, s) in &state.sessions {
        let id = &s.id;
        let open = c.open.get(no).copied().unwrap_or(0);
        let placed = if s.ended.is_some() { 0 } else { c.placed.get(no).copied().unwrap_or(0) };
        ensure!(s.open == open, "session {id} counts {} open, not {open}", s.open);
        ensure!(
            s.assigned == open + placed,
            "session {id} counts {} assigned, not {}",
            s.assigned,
            open + placed
        );
        ensure!(s.ended.is_none() || open > 0, "session {id} has ended and needs no recovery");
        ensure!(s.ended.is_none() || s.answers.is_empty(), "session {id} has ended and remembers answers");
        ensure!(s.ended.is_some() || s.claim.is_none(), "session {id} is alive and claimed");
        ensure!(no.0 < state.next.session, "session {id} is above the counter");
        ensure!(state.session_numbers.get(id) == Some(no), "session {id} is not found by its name");
        let current = state.nodes.get(&id.node).and_then(|n| n.session) == Some(*no);
        ensure!(current == s.ended.is_none(), "session {id} and its node disagree on its life");
        ensure!(
            s.answers.get_min().is_none_or(|(n, _)| *n >= s.lowest_unanswered),
            "session {id} remembers answers that were confirmed"
        );
    }
    ensure!(state.session_numbers.len() == state.sessions.len(), "numbers of sessions that are gone");
    for (id, n) in &state.nodes {
        let live = n.session.map(|no| state.live(no).map(|s| &s.id));
        let mine = SessionId { node: id.clone(), epoch: n.epoch };
        ensure!(live.is_none_or(|s| s == Some(&mine)), "node {id} has another's session");
        ensure!(n.draining == n.draining_since_ms.is_some(), "node {id} drains and does not");
        ensure!(n.draining || n.drain_gave_up.is_none(), "node {id} gave up what it does not do");
        let gone = !n.removed || (n.session.is_none() && n.pinned.is_none() && !n.draining);
        ensure!(gone, "node {id} was removed and is not");
    }
    Ok(())
}

fn check_transfers(state: &State) -> Result<(), String> {
    let mut sides = OrdSet::new();
    for (id, t) in &state.transfers {
        let open = state.stream(*id).is_some_and(|s| s.ownership == Ownership::Open(t.source));
        let alive = state.live(t.source).is_some() && state.live(t.target).is_some();
        ensure!(open && alive && t.source != t.target, "the transfer of {id} dangles: {t:?}");
        sides.extend([(t.source, *id), (t.target, *id)]);
    }
    ensure!(state.transfer_sides == sides, "sides: {:?}, not {sides:?}", state.transfer_sides);
    ensure!(state.transfers.len() <= super::limits::TRANSFERS, "{} transfers", state.transfers.len());
    Ok(())
}

fn check_segments(state: &State, c: &Counted<'_>) -> Result<(), String> {
    let mut dead = OrdSet::new();
    let mut under_way = 0;
    for (id, s) in &state.segments {
        let references = c.references.get(id).copied().unwrap_or(0);
        ensure!(s.references == references, "{id:?} counts {}, not {references}", s.references);
        let is_dead = references == 0 && !s.under_way;
        ensure!(s.dead_since_ms.is_some() == is_dead, "{id:?} is wrongly dead or alive");
        ensure!(id.0 < state.next.segment, "{id:?} is above the counter");
        let key = (s.session.clone(), s.number);
        ensure!(state.segment_ids.get(&key) == Some(id), "{id:?} is not found by its key");
        dead.extend(s.dead_since_ms.map(|since| (since, *id)));
        under_way += usize::from(s.under_way);
    }
    ensure!(state.segment_ids.len() == state.segments.len(), "keys of segments that are gone");
    ensure!(state.dead_segments == dead, "dead: {:?}, not {dead:?}", state.dead_segments);
    ensure!(
        c.references.keys().all(|id| state.segments.contains_key(id)),
        "a reference to a segment that is gone"
    );
    let of_sessions: Vec<SegmentId> = state.sessions.values().filter_map(|s| s.commits.under_way).collect();
    let all_are = of_sessions.iter().all(|id| state.segments.get(id).is_some_and(|s| s.under_way));
    ensure!(
        all_are && of_sessions.len() == under_way,
        "commits under way: {of_sessions:?}, {under_way} segments"
    );
    Ok(())
}
