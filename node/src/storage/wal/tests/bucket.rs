//! A bucket that loses replies, answers late or not at all, or has been tampered with.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use super::rig::*;
use crate::storage::faults::{Fault, FaultStore};
use crate::storage::keys;
use crate::storage::seal::Seal;
use crate::storage::wal::*;

fn faults(rig: &Rig) -> Arc<FaultStore> {
    rig.faults.clone().expect("a bucket")
}

fn path(seq: u64) -> Path {
    Path::from(format!("p/{}", keys::wal(1, &session(1), seq)))
}

/// The end of object `seq`'s key.
fn key(seq: u64) -> String {
    format!("{seq:020}")
}

/// Every way a put can go wrong that a retry heals.
#[tokio::test(start_paused = true)]
async fn unknown_outcomes_are_put_again_until_known() {
    for fault in [Fault::FailBefore, Fault::FailAfter, Fault::Conflict, Fault::HangBefore, Fault::HangAfter] {
        let rig = bucket_in_memory();
        let (wal, sink) = rig.pipeline(1, WalLimits::default()).await;
        faults(&rig).on_put(&key(1), fault);
        faults(&rig).on_put(&key(1), fault);
        let ticket = wal.enqueue(frame(7, 10)).unwrap();
        ticket.wait().await.unwrap();
        assert_eq!(sink.frames(), [7], "{fault:?}");
        assert!(wal.status().puts >= 2, "{fault:?}");
        assert_eq!(wal.status().error, None, "{fault:?}");
        rig.tasks.stop().await;
        let (end, objects) = seal(&rig.wals, &session(1), 0, 1).await.unwrap();
        assert_eq!((end, objects.len()), (2, 1), "{fault:?}");
    }
}

/// A put whose reply never came lands at some later time: before the seal, or after it.
#[tokio::test]
async fn a_late_put_never_lands_behind_a_seal() {
    for landed_first in [true, false] {
        let rig = bucket();
        let (s, writer) = (session(1), rig.writer(1).await);
        writer.put(1, object(&s, 1, 10)).await.unwrap();
        faults(&rig).on_put(&key(2), Fault::Late);
        let late = writer.put(2, object(&s, 2, 10)).await;
        assert!(matches!(late, Err(PutError::Unknown(_))));
        if landed_first {
            assert_eq!(faults(&rig).land_late_puts().await, 1);
        }
        let (end, objects) = seal(&rig.wals, &s, 0, 1).await.unwrap();
        if !landed_first {
            assert_eq!(faults(&rig).land_late_puts().await, 0, "the seal stands in its place");
        }
        let again = writer.put(2, object(&s, 2, 10)).await;
        let want = if landed_first { (3, Ok(())) } else { (2, Err(PutError::Sealed)) };
        assert_eq!((end, again), want);
        assert_eq!(objects.len() as u64, end - 1);
        assert_eq!(seal(&rig.wals, &s, 0, 2).await.unwrap(), (end, objects));
    }
}

/// Two puts under way, the first lost: the second is stored but lies behind the seal.
#[tokio::test(start_paused = true)]
async fn the_second_put_is_not_acknowledged_without_the_first() {
    let rig = bucket_in_memory();
    let limits = WalLimits { interval: Some(Duration::ZERO), ..WalLimits::default() };
    let (wal, sink) = rig.pipeline(1, limits).await;
    faults(&rig).on_put(&key(1), Fault::Late);
    let first = wal.enqueue(frame(1, 10)).unwrap();
    idle().await;
    // The first waits for its second try, which comes after the seal because the clock stands.
    let second = wal.enqueue(frame(2, 10)).unwrap();
    idle().await;
    assert_eq!(faults(&rig).counts().puts, 2, "both are under way");
    assert!(!first.is_durable() && !second.is_durable());
    assert_eq!(seal(&rig.wals, &session(1), 0, 1).await.unwrap(), (1, vec![]));
    assert_eq!(faults(&rig).land_late_puts().await, 0);
    assert_eq!((first.wait().await, second.wait().await), (Err(Fenced), Err(Fenced)));
    assert!(sink.frames().is_empty());
    assert_eq!(seal(&rig.wals, &session(1), 0, 2).await.unwrap(), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_wait_for_all_before_them() {
    let rig = bucket_in_memory();
    let limits = WalLimits { interval: Some(Duration::ZERO), ..WalLimits::default() };
    let (wal, sink) = rig.pipeline(1, limits).await;
    faults(&rig).on_put(&key(1), Fault::HangBefore);
    let first = wal.enqueue(frame(1, 10)).unwrap();
    idle().await;
    let second = wal.enqueue(frame(2, 10)).unwrap();
    idle().await;
    assert!(!second.is_durable(), "stored, but the one before it is not");
    assert!(sink.frames().is_empty());
    faults(&rig).release();
    second.wait().await.unwrap();
    assert!(first.is_durable());
    assert_eq!(*sink.batches.lock(), [(1, vec![1]), (2, vec![2])]);
}

#[tokio::test]
async fn another_writers_object_ends_the_process() {
    let rig = bucket();
    let (wal, _) = rig.pipeline(1, WalLimits::default()).await;
    faults(&rig).put(&path(1), PutPayload::from(object(&session(1), 1, 99))).await.unwrap();
    let ticket = wal.enqueue(frame(1, 10)).unwrap();
    assert_eq!(ticket.wait().await, Err(Fenced));
    let why = format!("{:#}", rig.tasks.failed().await);
    assert!(why.contains("another process runs as session n-0@1"), "{why}");
    assert!(wal.status().failed.is_some());
    assert!(!wal.sealed().is_cancelled());
}

#[tokio::test]
async fn a_lost_or_damaged_object_stops_the_recovery_by_name() {
    let rig = bucket();
    let (s, writer) = (session(1), rig.writer(1).await);
    for seq in 1..=5 {
        writer.put(seq, object(&s, seq, 10)).await.unwrap();
    }
    let whole = faults(&rig).get(&path(2)).await.unwrap().bytes().await.unwrap();
    faults(&rig).delete(&path(2)).await.unwrap();
    let error = seal(&rig.wals, &s, 0, 1).await.unwrap_err();
    assert!(error.to_string().contains(&key(2)) && error.to_string().contains("missing"), "{error}");
    let mut bad = whole.to_vec();
    *bad.last_mut().unwrap() ^= 1;
    for bad in [Bytes::from(bad), whole.slice(..whole.len() - 1), Bytes::new(), object(&s, 3, 10)] {
        faults(&rig).put(&path(2), PutPayload::from(bad)).await.unwrap();
        let error = seal(&rig.wals, &s, 0, 1).await.unwrap_err();
        assert!(matches!(&error, WalError::Corrupt { object, .. } if object.ends_with(&key(2))), "{error}");
    }
    // Put right, it goes on: no seal was put by the failed attempts.
    faults(&rig).put(&path(2), PutPayload::from(whole)).await.unwrap();
    assert_eq!(seal(&rig.wals, &s, 0, 1).await.unwrap().0, 6);
}

/// Wherever a pass over the row happens to end.
#[tokio::test]
async fn an_object_lost_from_any_place_but_the_last_two_is_never_the_end() {
    let rig = bucket();
    let (s, writer) = (session(1), rig.writer(1).await);
    for seq in 1..=70 {
        writer.put(seq, object(&s, seq, 10)).await.unwrap();
    }
    for seq in 1..=68 {
        let whole = faults(&rig).get(&path(seq)).await.unwrap().bytes().await.unwrap();
        faults(&rig).delete(&path(seq)).await.unwrap();
        let error = seal(&rig.wals, &s, 0, 1).await.unwrap_err();
        assert!(error.to_string().contains(&key(seq)) && error.to_string().contains("missing"), "{error}");
        faults(&rig).put(&path(seq), PutPayload::from(whole)).await.unwrap();
    }
    assert_eq!(seal(&rig.wals, &s, 0, 1).await.unwrap().0, 71);
}

#[tokio::test(start_paused = true)]
async fn sealing_survives_lost_replies_and_says_when_the_store_is_down() {
    for fault in [
        Fault::FailBefore,
        Fault::FailAfter,
        Fault::Conflict,
        Fault::HangBefore,
        Fault::HangAfter,
        Fault::Late,
    ] {
        let rig = bucket_in_memory();
        let (s, writer) = (session(1), rig.writer(1).await);
        writer.put(1, object(&s, 1, 10)).await.unwrap();
        faults(&rig).on_put(&key(2), fault);
        faults(&rig).on_put(&key(2), fault);
        assert_eq!(seal(&rig.wals, &s, 0, 1).await.unwrap().0, 2, "{fault:?}");
        faults(&rig).clear_puts();
        faults(&rig).land_late_puts().await;
        assert_eq!(seal(&rig.wals, &s, 0, 2).await.unwrap().0, 2, "{fault:?}");
        assert_eq!(writer.put(2, object(&s, 2, 10)).await, Err(PutError::Sealed));
    }
    let rig = bucket_in_memory();
    faults(&rig).down(true);
    let error = seal(&rig.wals, &session(1), 0, 1).await.unwrap_err();
    assert!(matches!(error, WalError::Unavailable(_)), "{error}");
    faults(&rig).down(false);
    seal(&rig.wals, &session(1), 0, 1).await.unwrap();
}

/// A zombie so busy that it stores every number just before the seal comes.
#[tokio::test]
async fn a_zombie_that_wins_every_race_is_blocked_ahead() {
    let rig = bucket();
    let (s, writer) = (session(1), rig.writer(1).await);
    // The block is put 16 numbers ahead once the race for number 5 is on.
    for seq in 1..=20 {
        faults(&rig).overtake(&key(seq), object(&s, seq, 10));
    }
    let (end, objects) = seal(&rig.wals, &s, 0, 1).await.unwrap();
    assert_eq!(end, 21);
    assert_eq!(seal(&rig.wals, &s, 0, 2).await.unwrap(), (end, objects));
    assert_eq!(writer.put(end, object(&s, end, 10)).await, Err(PutError::Sealed));
}

/// What such a block leaves behind: a seal ahead of the row's end.
#[tokio::test]
async fn the_first_seal_in_the_row_is_the_end_wherever_others_stand() {
    for stored in 0..=6 {
        let rig = bucket();
        let (s, writer) = (session(1), rig.writer(1).await);
        let ahead = Seal { cluster: CLUSTER, ended: s.clone(), seq: 5, note: note(1) };
        faults(&rig).put(&path(5), PutPayload::from(ahead.encode())).await.unwrap();
        let mut written = 0;
        for seq in 1..=stored {
            match writer.put(seq, object(&s, seq, 10)).await {
                Ok(()) => written = seq,
                Err(e) => {
                    assert_eq!((seq, e), (5, PutError::Sealed));
                    break;
                }
            }
        }
        let sealed = seal(&rig.wals, &s, 0, 2).await.unwrap();
        assert_eq!((sealed.0, sealed.1.len() as u64), (written + 1, written));
        assert_eq!(writer.put(written + 1, object(&s, written + 1, 10)).await, Err(PutError::Sealed));
        assert_eq!(seal(&rig.wals, &s, 0, 3).await.unwrap(), sealed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_for_a_minute_stalls_and_comes_back() {
    let rig = bucket_in_memory();
    let (wal, sink) = rig.pipeline(1, WalLimits::default()).await;
    faults(&rig).down(true);
    let caught = wal.enqueue(frame(1, 10)).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let status = wal.status();
    let (why, since) = status.error.unwrap();
    assert!(why.contains("the store is down") && since >= Duration::from_secs(59), "{why} {since:?}");
    assert!(status.stalled && status.oldest_waiting.unwrap() >= Duration::from_secs(59));
    let refused = wal.enqueue(frame(2, 10)).unwrap_err();
    assert!(matches!(&refused, WalBusy::Stalled(why) if why.contains("the store is down")), "{refused}");
    faults(&rig).down(false);
    caught.wait().await.unwrap();
    wal.enqueue(frame(3, 10)).unwrap().wait().await.unwrap();
    assert_eq!(sink.frames(), [1, 3]);
    assert!(wal.status().error.is_none() && !wal.status().stalled);
}

#[tokio::test(start_paused = true)]
async fn a_skipped_object_counts_as_empty_and_keeps_the_writer_out() {
    for lost in [true, false] {
        let rig = bucket_in_memory();
        let (s, writer) = (session(1), rig.writer(1).await);
        for seq in 1..=5 {
            writer.put(seq, object(&s, seq, 10)).await.unwrap();
        }
        if lost {
            faults(&rig).delete(&path(2)).await.unwrap();
        } else {
            faults(&rig).put(&path(2), PutPayload::from_static(b"garbage")).await.unwrap();
        }
        let error = seal(&rig.wals, &s, 0, 1).await.unwrap_err();
        assert!(matches!(error, WalError::Corrupt { seq: Some(2), .. }), "{error}");
        let other = seal_without(&rig.wals, &s, 0, 1, &BTreeSet::from([3])).await.unwrap_err();
        assert_eq!(other, error, "only what is named is skipped");
        let (end, objects) = seal_without(&rig.wals, &s, 0, 1, &BTreeSet::from([2, 3])).await.unwrap();
        let with: Vec<u64> = objects.iter().filter(|o| !o.frames.is_empty()).map(|o| o.seq).collect();
        assert_eq!((end, with), (6, vec![1, 3, 4, 5]), "what verifies is not skipped");
        // A writer that tries its old put again must not take it for stored.
        let late = writer.put(2, object(&s, 2, 10)).await;
        assert!(matches!(late, Err(PutError::Failed(_))), "{late:?}");
    }
}
