//! Claims, and what they allow.

use super::world::*;
use crate::metadata::command::*;
use weir_api::{Offset, SessionId};

fn recovery(ended: &SessionId, claim: u64) -> CommitOrigin {
    CommitOrigin::Recovery { ended: ended.clone(), claim }
}

#[test]
fn claims_are_numbered_and_replace_only_the_one_they_name() {
    let (mut w, [a, b, c]) = World::with(["a", "b", "c"]);
    let (x, e) = w.opened(&a, "x");
    w.commit(&a, 7, &[range(x, e, 0, 5)]).unwrap();
    w.silence(&b, &a);
    let (first, wal_start) = w.claim(&b, &a, 0);
    assert_eq!(wal_start, 7);
    let hand_out = |replaces| Command::Claim { ended: a.clone(), claimant: c.clone(), replaces };
    let held = Err(Refusal::ClaimNotCurrent { held: first });
    assert_eq!(w.run(&c, hand_out(0)), held);
    assert_eq!(w.run(&c, hand_out(first + 1)), held);
    let (second, _) = w.claim(&c, &a, first);
    assert!(second > first);
    assert_eq!(w.session(&a).claim.as_ref().unwrap().claimant, c);
}

#[test]
fn a_claim_needs_an_ended_session_and_a_live_claimant() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let claim = |ended: &SessionId, claimant: &SessionId| Command::Claim {
        ended: ended.clone(),
        claimant: claimant.clone(),
        replaces: 0,
    };
    let none = Err(Refusal::ClaimNotCurrent { held: 0 });
    assert_eq!(w.run(&b, claim(&a, &b)), none);
    assert_eq!(w.run(&b, claim(&session("z", 1), &b)), none);
    w.opened(&a, "x");
    w.silence(&b, &a);
    assert_eq!(w.run(&b, claim(&a, &a)), Err(Refusal::ClaimantNotLive));
    assert_eq!(w.run(&b, claim(&a, &session("z", 1))), Err(Refusal::ClaimantNotLive));
}

#[test]
fn only_the_claimant_under_the_claim_that_holds_commits_and_marks_recovered() {
    let (mut w, [a, b, c]) = World::with(["a", "b", "c"]);
    let (x, e) = w.opened(&a, "x");
    w.silence(&b, &a);
    let (first, _) = w.claim(&b, &a, 0);
    let (second, _) = w.claim(&c, &a, first);
    let ranges = [range(x, e, 0, 5)];
    let held = Err(Refusal::ClaimNotCurrent { held: second });
    for (by, claim) in [(&b, first), (&b, second), (&c, first)] {
        assert_eq!(w.run(by, commit(recovery(&a, claim), 1, &ranges, Some(2))), held);
        assert_eq!(w.run(by, Command::Recovered { ended: a.clone(), claim }), held);
    }
    assert_eq!(taken(w.run(&c, commit(recovery(&a, second), 1, &ranges, Some(2)))), [true]);
    assert_eq!(w.run(&c, Command::Recovered { ended: a.clone(), claim: second }), Ok(Answer::Done));
    assert!(w.state.session_by_id(&a).is_none());
    assert!(w.is_free(x));
    assert_eq!(w.stream(x).committed, Offset(5));
    // The segment is the claimant's, who uploaded it.
    assert_eq!(w.segment(&c, 1).unwrap().references, 1);
    // Nothing of the claim is left to use.
    let none = Err(Refusal::ClaimNotCurrent { held: 0 });
    assert_eq!(w.run(&c, Command::Recovered { ended: a.clone(), claim: second }), none);
    assert_eq!(w.run(&c, commit(recovery(&a, second), 2, &ranges, None)), none);
}

#[test]
fn a_claimant_that_restarted_needs_a_new_claim() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    w.opened(&a, "x");
    w.silence(&b, &a);
    let (claim, _) = w.claim(&b, &a, 0);
    let b2 = w.join("b", 11);
    let recovered = Command::Recovered { ended: a.clone(), claim };
    assert_eq!(w.run(&b2, recovered.clone()), Err(Refusal::ClaimNotCurrent { held: claim }));
    assert_eq!(w.run(&b, recovered), Err(Refusal::SessionNotCurrent));
    let (again, _) = w.claim(&b2, &a, claim);
    w.run(&b2, Command::Recovered { ended: a, claim: again }).unwrap();
}

#[test]
fn a_recovery_commits_only_streams_open_at_the_ended_session_at_their_epoch() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let (x, ex) = w.opened(&a, "x");
    let (y, ey) = w.opened(&b, "y");
    w.silence(&b, &a);
    let (claim, _) = w.claim(&b, &a, 0);
    let ranges = [range(x, ex.next(), 0, 5), range(y, ey, 0, 5)];
    assert_eq!(taken(w.run(&b, commit(recovery(&a, claim), 1, &ranges, Some(2)))), [false, false]);
}

#[test]
fn a_recovery_raises_the_ended_sessions_wal_start_and_not_its_own() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let (x, e) = w.opened(&a, "x");
    w.silence(&b, &a);
    let (claim, _) = w.claim(&b, &a, 0);
    w.run(&b, commit(recovery(&a, claim), 1, &[range(x, e, 0, 5)], Some(40))).unwrap();
    assert_eq!(w.session(&a).wal_start, 40);
    assert_eq!(w.session(&b).wal_start, FIRST_WAL_SEQ);
    // Whoever goes on begins there.
    assert_eq!(w.claim(&b, &a, claim).1, 40);
}

#[test]
fn own_commits_and_a_recoverys_are_finished_apart_from_each_other() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let (x, ex) = w.opened(&a, "x");
    let (y, ey) = w.opened(&b, "y");
    w.silence(&b, &a);
    let (claim, _) = w.claim(&b, &a, 0);
    // The recovery's segment has a higher number and comes first, in parts, around one of b's own.
    w.run(&b, commit(recovery(&a, claim), 9, &[range(x, ex, 0, 5)], None)).unwrap();
    assert_eq!(taken(w.commit(&b, 8, &[range(y, ey, 0, 5)])), [true]);
    assert!(w.segment(&b, 9).unwrap().under_way);
    assert_eq!(taken(w.run(&b, commit(recovery(&a, claim), 9, &[range(x, ex, 5, 6)], Some(3)))), [true]);
    // A number is never used twice, whoever's records it holds.
    assert_eq!(w.commit(&b, 9, &[range(y, ey, 5, 6)]), Err(Refusal::SegmentFinished));
}

#[test]
fn a_new_claim_leaves_the_unfinished_segment_of_the_old_one_behind() {
    let (mut w, [a, b, c]) = World::with(["a", "b", "c"]);
    let (x, e) = w.opened(&a, "x");
    w.silence(&b, &a);
    let (first, _) = w.claim(&b, &a, 0);
    w.run(&b, commit(recovery(&a, first), 9, &[range(x, e, 0, 5)], None)).unwrap();
    let (second, _) = w.claim(&c, &a, first);
    assert!(!w.segment(&b, 9).unwrap().under_way);
    // What was committed stays; the rest comes in the new claimant's own segment, numbered as it likes.
    assert_eq!(taken(w.run(&c, commit(recovery(&a, second), 1, &[range(x, e, 0, 8)], Some(4)))), [true]);
    assert_eq!(w.stream(x).committed, Offset(8));
    // Claimed again, the same claimant does not come back to a finished one.
    let (third, _) = w.claim(&c, &a, second);
    let again = w.run(&c, commit(recovery(&a, third), 1, &[range(x, e, 8, 9)], Some(5)));
    assert_eq!(again, Err(Refusal::SegmentFinished));
}

#[test]
fn a_stream_that_awaits_recovery_does_not_end_and_is_not_forked() {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let x = created(w.run(&a, create_expiring("x", Expiry::Ttl(0))));
    let e = w.open(&a, x);
    w.silence(&b, &a);
    w.later(10_000);
    let waits = Refusal::AwaitingRecovery(a);
    for epoch in [None, Some(e)] {
        assert_eq!(w.run(&b, Command::Delete { stream: x, epoch }), Err(waits.clone()));
        let expire = Command::Expire { streams: vec![(x, epoch)], now_ms: u64::MAX };
        assert_eq!(only(w.run(&b, expire)), Err(waits.clone()));
    }
    assert_eq!(w.run(&b, fork(x, 0, "f")), Err(waits));
}
