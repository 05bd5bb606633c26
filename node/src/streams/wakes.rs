//! Tells the followers of a stream that records became durable, without holding up whoever made them so.
//!
//! Invariant: followers who listened before the records became durable are told once; the caller (the WAL's pipeline,
//! on which every append's answer waits) does bounded work however many they are. Waking 10,000 readers in one call
//! takes 2 ms and puts all of them in front of everybody else's answer; in slices of a task that yields in between it
//! takes the caller 3 µs and a bystander waits 20 µs (`examples/wake_many.rs`). Fed by the WAL's sink.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Inner;
use super::signal::Signal;

/// So many are told on the spot.
const FEW: usize = 32;
/// So many are told before others get their turn.
const SLICE: usize = 128;

/// Streams whose many followers are to be told. A stream is in here at most once.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    queue: Mutex<VecDeque<Arc<Signal>>>,
    wake: Notify,
}

impl Wakes {
    /// New records of the signal's stream are durable, and followers can see them.
    pub(super) fn records(&self, signal: &Arc<Signal>) {
        match signal.followers() {
            0 => {}
            1..=FEW => signal.tell(),
            _ => {
                // Records that come while it is in the queue are told with those before them.
                if !signal.queued.swap(true, Ordering::AcqRel) {
                    self.queue.lock().push_back(signal.clone());
                    self.wake.notify_one();
                }
            }
        }
    }

    /// The next to be told, and how many are to be told before what comes after counts anew.
    fn take(&self) -> Option<(Arc<Signal>, usize)> {
        let signal = self.queue.lock().pop_front()?;
        // In this order records that come from now on queue it again. A swap, for whoever found it queued until now counted
        // his followers before, and the count below must not be taken ahead of that, as it could be of a plain store.
        signal.queued.swap(false, Ordering::AcqRel);
        let followers = signal.followers();
        Some((signal, followers))
    }
}

/// Runs until the node stops.
pub(super) async fn run(inner: Arc<Inner>) -> anyhow::Result<()> {
    let stopping = inner.tasks.stopping().clone();
    let mut under_way: VecDeque<(Arc<Signal>, usize)> = VecDeque::new();
    loop {
        under_way.extend(std::iter::from_fn(|| inner.wakes.take()));
        // In turns: a stream that never rests does not keep the others waiting.
        let Some((signal, left)) = under_way.pop_front() else {
            tokio::select! {
                () = stopping.cancelled() => return Ok(()),
                () = inner.wakes.wake.notified() => {}
            }
            continue;
        };
        let slice = left.min(SLICE);
        signal.tell_some(slice);
        if left > slice {
            under_way.push_back((signal, left - slice));
        }
        tokio::task::yield_now().await;
        if stopping.is_cancelled() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn few_are_told_at_once_and_many_through_the_queue_once() {
        let wakes = Wakes::default();
        let signal = Arc::new(Signal::default());
        wakes.records(&signal);
        assert!(wakes.take().is_none(), "nobody listens");
        let few = signal.follow();
        let news = signal.news();
        tokio::pin!(news);
        news.as_mut().enable();
        wakes.records(&signal);
        news.await;
        let many: Vec<_> = (0..FEW).map(|_| signal.follow()).collect();
        wakes.records(&signal);
        wakes.records(&signal);
        assert_eq!(wakes.take().map(|(_, n)| n), Some(FEW + 1));
        assert!(wakes.take().is_none(), "queued once");
        wakes.records(&signal);
        assert_eq!(wakes.take().map(|(_, n)| n), Some(FEW + 1), "records after the take queue it again");
        drop((few, many));
        assert_eq!(signal.followers(), 0);
    }

    #[tokio::test]
    async fn those_who_listen_first_are_told_first() {
        let signal = Signal::default();
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(signal.news())).collect();
        waiting.iter_mut().for_each(|w| assert!(!w.as_mut().enable()));
        signal.tell_some(2);
        let told: Vec<bool> = waiting.iter_mut().map(|w| w.as_mut().enable()).collect();
        assert_eq!(told, [true, true, false]);
    }
}
