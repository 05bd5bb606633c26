//! Appends that put for themselves, on the thread they are on.

use std::time::Duration;

use super::rig::{frame, local, seal, session};
use crate::storage::wal::*;

/// However slow the machine of the tests is.
fn always() -> WalLimits {
    WalLimits { alone_below: Duration::MAX, ..WalLimits::default() }
}

/// Appends one after another until one was durable at once.
async fn until_alone(wal: &Wal, from: u64) -> u64 {
    for n in from..from + 10_000 {
        let ticket = wal.enqueue(frame(n, 100)).unwrap();
        if ticket.is_durable() {
            return n + 1;
        }
        ticket.wait().await.unwrap();
    }
    panic!("no append put for itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_alone_is_durable_when_it_returns_and_is_found_in_its_place() {
    let rig = local();
    let (wal, sink) = rig.pipeline(1, always()).await;
    let mut next = 0;
    for _ in 0..20 {
        next = until_alone(&wal, next).await;
        // Several at once are the thread's, and go on where that one ended.
        let together: Vec<_> = (next..next + 5).map(|n| wal.enqueue(frame(n, 100)).unwrap()).collect();
        next += 5;
        for ticket in together {
            ticket.wait().await.unwrap();
        }
    }
    assert_eq!(sink.frames(), (0..next).collect::<Vec<_>>());
    rig.tasks.stop().await;
    let (_, objects) = seal(&rig.wals, &session(1), 0, 1).await.unwrap();
    let frames: Vec<_> = objects.into_iter().flat_map(|o| o.frames).collect();
    assert_eq!(frames, (0..next).map(|n| frame(n, 100)).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_alone_finds_the_seal() {
    let rig = local();
    let (wal, sink) = rig.pipeline(1, always()).await;
    let next = until_alone(&wal, 0).await;
    seal(&rig.wals, &session(1), 0, 1).await.unwrap();
    let late = wal.enqueue(frame(next, 10)).unwrap();
    assert_eq!(late.wait().await, Err(Fenced));
    wal.sealed().cancelled().await;
    assert_eq!(wal.enqueue(frame(next + 1, 10)).unwrap_err(), WalBusy::Sealed);
    assert_eq!(sink.frames(), (0..next).collect::<Vec<_>>());
    rig.tasks.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn appends_from_many_threads_keep_their_order_whoever_puts() {
    let rig = local();
    let (wal, sink) = rig.pipeline(1, always()).await;
    let lanes = 4;
    let mut tasks = tokio::task::JoinSet::new();
    for lane in 0..lanes {
        let wal = wal.clone();
        tasks.spawn(async move {
            for n in 0..300 {
                wal.enqueue(frame(lane * 1000 + n, 40)).unwrap().wait().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    wal.settled().await;
    let told = sink.frames();
    for lane in 0..lanes {
        let mine: Vec<_> = told.iter().copied().filter(|n| n / 1000 == lane).collect();
        assert_eq!(mine, (0..300).map(|n| lane * 1000 + n).collect::<Vec<_>>());
    }
    rig.tasks.stop().await;
    let (_, objects) = seal(&rig.wals, &session(1), 0, 1).await.unwrap();
    let stored: Vec<u64> = objects.iter().flat_map(|o| &o.frames).map(|f| f.stream.0).collect();
    assert_eq!(stored, told, "told in the order in which it is stored");
}
