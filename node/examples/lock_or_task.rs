//! What ordering an append costs under a stream's short lock, and what through a stream's own task; see ADR 2.
//!
//! `cargo run --release -p weir --example lock_or_task`. Both ways run in one process, one after the other, several
//! times; compare them with each other, not with another machine.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement")]

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

const CLIENTS: usize = 64;
const APPENDS: usize = 20_000;

#[derive(Default)]
struct Log {
    tail: u64,
}

impl Log {
    /// Stands for check and accept.
    fn order(&mut self, bytes: u64) -> u64 {
        self.tail += std::hint::black_box(bytes);
        self.tail
    }
}

async fn by_lock(streams: usize) -> f64 {
    let logs: Arc<Vec<Mutex<Log>>> = Arc::new((0..streams).map(|_| Mutex::default()).collect());
    let run = |client: usize| {
        let logs = logs.clone();
        async move {
            for n in 0..APPENDS {
                std::hint::black_box(logs[(client + n) % logs.len()].lock().order(256));
                tokio::task::consume_budget().await;
            }
        }
    };
    timed(run).await
}

async fn by_task(streams: usize) -> f64 {
    type Ask = (u64, oneshot::Sender<u64>);
    let mailboxes: Vec<mpsc::Sender<Ask>> = (0..streams)
        .map(|_| {
            let (tx, mut rx) = mpsc::channel::<Ask>(64);
            tokio::spawn(async move {
                let mut log = Log::default();
                while let Some((bytes, answer)) = rx.recv().await {
                    answer.send(log.order(bytes)).ok();
                }
            });
            tx
        })
        .collect();
    let mailboxes = Arc::new(mailboxes);
    let run = |client: usize| {
        let mailboxes = mailboxes.clone();
        async move {
            for n in 0..APPENDS {
                let (tx, rx) = oneshot::channel();
                let mailbox = &mailboxes[(client + n) % mailboxes.len()];
                if mailbox.send((256, tx)).await.is_ok() {
                    std::hint::black_box(rx.await.ok());
                }
            }
        }
    };
    timed(run).await
}

/// Nanoseconds of wall time per append.
async fn timed<F: Future<Output = ()> + Send + 'static>(run: impl Fn(usize) -> F) -> f64 {
    let began = Instant::now();
    let clients: Vec<_> = (0..CLIENTS).map(|client| tokio::spawn(run(client))).collect();
    for client in clients {
        client.await.ok();
    }
    began.elapsed().as_secs_f64() * 1e9 / (CLIENTS * APPENDS) as f64
}

#[tokio::main]
async fn main() {
    println!("streams   lock ns   task ns   ratio");
    for streams in [1, 64, 1000] {
        for _ in 0..3 {
            let (lock, task) = (by_lock(streams).await, by_task(streams).await);
            println!("{streams:>7} {lock:>9.0} {task:>9.0} {:>7.1}", task / lock);
        }
    }
}
