//! One stream name as the load's clients know it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tokio::sync::Mutex;

use crate::history::Stamp;
use crate::recorded::{Append, Name};

/// What the clients believe of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Belief {
    Absent,
    Open,
    Closed,
    /// A create or delete without an answer: not touched before a look after the next restart.
    Unsure,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) name: Name,
    /// Never closed nor deleted: it grows old.
    pub(super) calm: bool,
    belief: AtomicU8,
    /// Held by whoever creates or deletes: one at a time.
    pub(super) life: Mutex<u64>,
    pub(super) producers: [Mutex<Producer>; 2],
    /// The one writer with sequence numbers.
    pub(super) sequence: Mutex<Sequence>,
    /// An offset that some answer named: where readers begin.
    seen: AtomicU64,
    /// Up to here everything was read back once.
    pub(super) verified: AtomicU64,
}

/// An idempotent producer: its next request, and the one that still waits for a definite answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Producer {
    pub(super) stamp: Option<Stamp>,
    pub(super) waiting: Option<Append>,
    /// The last one accepted, to be sent again after a restart.
    pub(super) accepted: Option<Append>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Sequence {
    pub(super) next: u64,
    pub(super) accepted: Option<u64>,
}

impl Slot {
    pub(super) fn new(name: &str, json: bool, calm: bool) -> Self {
        Self {
            name: Name { text: name.into(), json },
            calm,
            belief: AtomicU8::new(Belief::Absent as u8),
            life: Mutex::new(0),
            producers: Default::default(),
            sequence: Mutex::default(),
            seen: AtomicU64::new(0),
            verified: AtomicU64::new(0),
        }
    }

    /// While nobody works on it.
    pub(super) fn copy(&self) -> Self {
        fn of<T: Clone>(m: &Mutex<T>) -> Mutex<T> {
            Mutex::new(m.try_lock().expect("no worker runs").clone())
        }
        Self {
            name: self.name.clone(),
            calm: self.calm,
            belief: AtomicU8::new(self.belief() as u8),
            life: of(&self.life),
            producers: [of(&self.producers[0]), of(&self.producers[1])],
            sequence: of(&self.sequence),
            seen: AtomicU64::new(self.seen()),
            verified: AtomicU64::new(self.verified.load(Ordering::Relaxed)),
        }
    }

    pub(super) fn belief(&self) -> Belief {
        let all = [Belief::Absent, Belief::Open, Belief::Closed, Belief::Unsure];
        all[usize::from(self.belief.load(Ordering::SeqCst))]
    }

    pub(super) fn believe(&self, belief: Belief) {
        self.belief.store(belief as u8, Ordering::SeqCst);
    }

    /// Somebody learned that it is closed. Says nothing of a stream that is not believed open.
    pub(super) fn learn_closed(&self) {
        let (open, closed) = (Belief::Open as u8, Belief::Closed as u8);
        // Whoever believes otherwise by now knows better.
        let _unchanged = self.belief.compare_exchange(open, closed, Ordering::SeqCst, Ordering::SeqCst);
    }

    pub(super) fn saw(&self, offset: u64) {
        self.seen.fetch_max(offset, Ordering::Relaxed);
    }

    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// A new life: producers start anew under new ids, offsets at 0.
    pub(super) async fn reborn(&self, life: u64) {
        for (n, producer) in self.producers.iter().enumerate() {
            let id = format!("{}/{life}/{n}", self.name.text).into();
            *producer.lock().await =
                Producer { stamp: Some(Stamp { id, epoch: 0, seq: 0 }), waiting: None, accepted: None };
        }
        *self.sequence.lock().await = Sequence::default();
        self.seen.store(0, Ordering::Relaxed);
        self.verified.store(0, Ordering::Relaxed);
    }
}
