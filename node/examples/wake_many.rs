//! What waking many readers of one stream costs those who have nothing to do with it: `Notify::notify_waiters` from
//! the thread that makes records durable, against the same readers woken in slices by a task that yields in between.
//!
//! A bystander is a task that is woken right after the readers, as an append's answer is; each reader works for about
//! as long as a small write takes. Run by hand: `cargo run --release --example wake_many`.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used, reason = "a measurement")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

const ROUNDS: usize = 30;
const SLICE: usize = 128;
const WORK: Duration = Duration::from_micros(5);

fn work() {
    let since = Instant::now();
    while since.elapsed() < WORK {
        black_box(());
    }
}

#[derive(Default)]
struct Readers {
    notify: Notify,
    armed: AtomicUsize,
}

fn main() {
    println!("{:>8} {:>9}  {:>12} {:>12} {:>12}", "readers", "way", "wake call", "bystander", "last reader");
    for readers in [100, 1_000, 10_000] {
        for sliced in [false, true] {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let (mut call, mut bystander, mut last) = runtime.block_on(measure(readers, sliced));
            for times in [&mut call, &mut bystander, &mut last] {
                times.sort_unstable();
            }
            let way = if sliced { "slices" } else { "at once" };
            let mid = |times: &[Duration]| times[times.len() / 2];
            println!(
                "{readers:>8} {way:>9}  {:>12.1?} {:>12.1?} {:>12.1?}",
                mid(&call),
                mid(&bystander),
                mid(&last)
            );
        }
    }
}

async fn measure(readers: usize, sliced: bool) -> (Vec<Duration>, Vec<Duration>, Vec<Duration>) {
    let shared = Arc::new(Readers::default());
    let done = Arc::new(AtomicUsize::new(0));
    for _ in 0..readers {
        let (shared, done) = (shared.clone(), done.clone());
        tokio::spawn(async move {
            loop {
                let woken = shared.notify.notified();
                tokio::pin!(woken);
                woken.as_mut().enable();
                shared.armed.fetch_add(1, Ordering::SeqCst);
                woken.await;
                work();
                done.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let (mut call, mut bystander, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        while shared.armed.load(Ordering::SeqCst) < readers * (round + 1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (ack, acked) = oneshot::channel();
        let waiting = tokio::spawn(async move {
            let since: Instant = acked.await.unwrap();
            since.elapsed()
        });
        tokio::task::yield_now().await;
        let notify = shared.clone();
        // The durable side: wakes the readers, then answers the append.
        let since = Instant::now();
        let waking = tokio::spawn(async move {
            let since = Instant::now();
            if sliced {
                let slices = tokio::spawn(async move {
                    for n in 0..readers {
                        if n % SLICE == 0 {
                            tokio::task::yield_now().await;
                        }
                        notify.notify.notify_one();
                    }
                });
                let took = since.elapsed();
                ack.send(since).unwrap();
                slices.await.unwrap();
                took
            } else {
                notify.notify.notify_waiters();
                let took = since.elapsed();
                ack.send(since).unwrap();
                took
            }
        });
        bystander.push(waiting.await.unwrap());
        call.push(waking.await.unwrap());
        while done.load(Ordering::SeqCst) < readers * (round + 1) {
            tokio::task::yield_now().await;
        }
        last.push(since.elapsed());
    }
    (call, bystander, last)
}
