//! Forks and tombstones.

use super::world::*;
use crate::metadata::command::*;
use weir_api::{Offset, SessionId, StreamEpoch, StreamId};

/// A source with records in two segments: 0 to 5 and 5 to 9.
fn source(w: &mut World, a: &SessionId) -> (StreamId, StreamEpoch) {
    let (x, e) = w.opened(a, "x");
    let dedupe = SegmentRange { dedupe: true, ..range(x, e, 0, 5) };
    w.commit(a, 1, &[dedupe]).unwrap();
    w.commit(a, 2, &[range(x, e, 5, 9)]).unwrap();
    (x, e)
}

fn delete(w: &mut World, by: &SessionId, stream: StreamId, epoch: Option<StreamEpoch>) {
    assert_eq!(w.run(by, Command::Delete { stream, epoch }), Ok(Answer::Done));
}

fn references(w: &World, by: &SessionId, number: u64) -> u64 {
    w.segment(by, number).unwrap().references
}

#[test]
fn a_fork_begins_with_its_sources_records_by_reference() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, _) = source(&mut w, &a);
    let f = created(w.run(&a, fork(x, 7, "f")));
    let (stream, from) = (w.stream(f), w.stream(x));
    assert_eq!(stream.committed, Offset(7));
    assert_eq!(stream.extents[0], from.extents[0]);
    assert_eq!((stream.extents[1].start, stream.extents[1].end), (Offset(5), Offset(7)));
    assert!(stream.extents.iter().all(|e| e.written_as == x));
    assert_eq!(stream.dedupe, None);
    assert_eq!(from.forks, 1);
    assert_eq!((references(&w, &a, 1), references(&w, &a, 2)), (3, 2));
    // It goes on by itself.
    let e = w.open(&a, f);
    w.commit(&a, 3, &[range(f, e, 7, 8)]).unwrap();
    assert_eq!(w.stream(f).extents.len(), 3);
    assert_eq!(w.stream(x).committed, Offset(9));
}

#[test]
fn a_fork_at_a_segments_edge_or_at_the_start_takes_only_what_it_needs() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, _) = source(&mut w, &a);
    for (at, extents) in [(0, 0), (1, 1), (5, 1), (6, 2), (9, 2)] {
        let f = created(w.run(&a, fork(x, at, &format!("f{at}"))));
        assert_eq!(w.stream(f).extents.len(), extents, "at {at}");
    }
}

#[test]
fn a_fork_needs_a_live_source_that_is_committed_up_to_it() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, _) = source(&mut w, &a);
    let unborn = w.create_unborn(&a, "u");
    assert_eq!(w.run(&a, fork(x, 10, "f")), Err(Refusal::NotCommitted { committed: Offset(9) }));
    assert_eq!(w.run(&a, fork(unborn, 0, "f")), Err(Refusal::NoSuchStream));
    assert_eq!(w.run(&a, fork(StreamId(99), 0, "f")), Err(Refusal::NoSuchStream));
    let id = w.state.streams.get_mut(&x).unwrap();
    std::sync::Arc::make_mut(id).start = Offset(3);
    let outcome = w.run(&a, fork(x, 2, "f"));
    assert_eq!(outcome, Err(Refusal::BeforeStart { start: Offset(3) }));
    let f = created(w.run(&a, fork(x, 3, "f")));
    assert!(w.stream(f).extents.is_empty());
}

#[test]
fn a_fork_made_twice_is_one_and_another_under_its_name_is_refused() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, _) = source(&mut w, &a);
    let f = created(w.run(&a, fork(x, 7, "f")));
    assert_eq!(w.run(&a, fork(x, 7, "f")), Ok(Answer::Exists { stream: f }));
    let taken = |stream| Err(Refusal::ConfigMismatch { stream });
    assert_eq!(w.run(&a, fork(x, 6, "f")), taken(f));
    assert_eq!(w.run(&a, fork(f, 7, "f")), taken(f));
    assert_eq!(w.run(&a, fork(f, 7, "x")), taken(x));
    // A name that waits for first bytes is free to take.
    let u = w.create_unborn(&a, "u");
    created(w.run(&a, fork(x, 7, "u")));
    assert!(w.state.stream(u).is_none());
}

#[test]
fn a_deleted_source_stays_as_a_tombstone_until_its_last_fork_goes() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, e) = source(&mut w, &a);
    let f = created(w.run(&a, fork(x, 5, "f")));
    let g = created(w.run(&a, fork(x, 0, "g")));
    delete(&mut w, &a, x, Some(e));
    // The name is taken, the records that no fork needs are gone, those that one needs are not.
    assert!(w.stream(x).tombstone);
    assert_eq!(w.run(&a, create("x")), Err(Refusal::Tombstone));
    assert_eq!(w.run(&a, fork(x, 0, "h")), Err(Refusal::Tombstone));
    assert_eq!(references(&w, &a, 1), 1);
    assert!(w.segment(&a, 2).unwrap().dead_since_ms.is_some());
    delete(&mut w, &a, f, None);
    assert!(w.stream(x).tombstone);
    delete(&mut w, &a, g, None);
    assert!(w.state.streams.is_empty() && w.state.names.is_empty());
    assert!(w.segment(&a, 1).unwrap().dead_since_ms.is_some());
}

#[test]
fn the_last_forks_end_takes_the_tombstones_up_the_chain() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, e) = source(&mut w, &a);
    let f = created(w.run(&a, fork(x, 5, "f")));
    let g = created(w.run(&a, fork(f, 5, "g")));
    let h = created(w.run(&a, fork(g, 5, "h")));
    delete(&mut w, &a, f, None);
    delete(&mut w, &a, x, Some(e));
    delete(&mut w, &a, h, None);
    assert_eq!(w.state.streams.keys().copied().collect::<Vec<_>>(), [x, f, g]);
    delete(&mut w, &a, g, None);
    assert!(w.state.streams.is_empty());
    created(w.run(&a, create("x")));
}

#[test]
fn a_fork_with_first_bytes_is_unborn_until_they_are_committed() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, _) = source(&mut w, &a);
    let unborn = |closes| {
        let mut command = fork(x, 7, "f");
        if let Command::Fork { closed, unborn, .. } = &mut command {
            (*closed, *unborn) = (closes, true);
        }
        command
    };
    let f = created(w.run(&a, unborn(true)));
    assert!(w.stream(f).unborn_since_ms.is_some() && !w.stream(f).closed);
    assert_eq!(w.run(&a, unborn(true)), Ok(Answer::Exists { stream: f }));
    assert_eq!(w.run(&a, fork(f, 7, "g")), Err(Refusal::NoSuchStream));
    let e = w.open(&a, f);
    w.commit(&a, 3, &[SegmentRange { born: true, ..range(f, e, 7, 8) }]).unwrap();
    assert!(w.stream(f).unborn_since_ms.is_none());
    // One that is never born lets its source go.
    let f = created(w.run(&a, fork(x, 7, "h")));
    delete(&mut w, &a, f, None);
    let g = created(w.run(&a, {
        let Command::Fork { source, offset, config, closed, .. } = fork(x, 7, "g") else { unreachable!() };
        Command::Fork { source, offset, name: "g".into(), config, closed, unborn: true }
    }));
    w.later(crate::metadata::limits::UNBORN_MS + 1);
    assert_eq!(only(w.run(&a, Command::ReapUnborn { streams: vec![(g, None)] })), Ok(()));
    assert_eq!(w.stream(x).forks, 1);
}

#[test]
fn a_source_that_lives_stays_when_its_forks_go() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, _) = source(&mut w, &a);
    let f = created(w.run(&a, fork(x, 5, "f")));
    delete(&mut w, &a, f, None);
    assert_eq!(w.stream(x).forks, 0);
    assert!(!w.stream(x).tombstone);
}

#[test]
fn an_expired_source_with_forks_becomes_a_tombstone_too() {
    let (mut w, [a]) = World::with(["a"]);
    let x = created(w.run(&a, create_expiring("x", Expiry::Ttl(0))));
    let f = created(w.run(&a, fork(x, 0, "f")));
    w.later(1);
    let expire = Command::Expire { streams: vec![(x, None)], now_ms: u64::MAX };
    assert_eq!(only(w.run(&a, expire.clone())), Ok(()));
    assert!(w.stream(x).tombstone && w.state.deadlines.is_empty());
    assert_eq!(only(w.run(&a, expire)), Err(Refusal::Tombstone));
    assert!(w.state.stream(f).is_some());
}
