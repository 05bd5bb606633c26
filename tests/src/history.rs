//! What clients did and saw: the only evidence that the checker takes.
//!
//! Invariant: an operation is written down before its request leaves and its outcome after the answer came, both under
//! one logical clock, so that "A ended before B began" is exactly what a client could know. An operation whose task
//! was dropped stays `Unknown`.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::{Content, Record};

/// A point on the history's own clock.
pub type Time = u64;

/// An idempotent producer's stamp.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    pub id: Arc<str>,
    pub epoch: u64,
    pub seq: u64,
}

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Create { first: Option<Record>, closed: bool },
    Append { record: Option<Record>, producer: Option<Stamp>, seq: Option<u64>, closes: bool },
    Delete,
    Head,
    Read,
}

/// A refusal: the request had surely no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 404 or 410.
    Missing,
    /// 409 with the final tail.
    Closed { next: u64 },
    /// 409 because of `Stream-Seq`.
    SeqConflict,
    /// 409, 403 or 400 because of the producer's epoch or sequence.
    Producer,
    /// 503 or 429.
    Unavailable,
    /// No connection: nothing was sent.
    NotSent,
    /// Any other status that says no.
    Other(u16),
}

/// A part of a stream as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub from: u64,
    pub content: Content,
    pub next: u64,
    pub up_to_date: bool,
    pub closed: bool,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Cut, timed out, 5xx: it may or may not have had effect.
    Unknown,
    Refused(Refusal),
    Created {
        new: bool,
        next: u64,
        closed: bool,
    },
    Appended {
        duplicate: bool,
        next: u64,
        closed: bool,
    },
    Deleted,
    Found {
        next: u64,
        closed: bool,
    },
    Read(Reading),
}

/// One operation.
#[derive(Debug, Clone)]
pub struct Op {
    pub stream: Arc<str>,
    pub json: bool,
    pub action: Action,
    pub began: Time,
    /// `Time::MAX` while no answer came.
    pub ended: Time,
    pub outcome: Outcome,
    /// Why an outcome is unknown. The checker does not look at it.
    pub why: Option<String>,
}

impl Op {
    /// The record it carries.
    pub fn record(&self) -> Option<Record> {
        match &self.action {
            Action::Create { first, .. } => *first,
            Action::Append { record, .. } => *record,
            Action::Delete | Action::Head | Action::Read => None,
        }
    }

    /// Whether it asked to close the stream.
    pub fn closes(&self) -> bool {
        matches!(self.action, Action::Create { closed: true, .. } | Action::Append { closes: true, .. })
    }

    /// Whether the answer says that it took effect.
    pub fn acknowledged(&self) -> bool {
        match &self.action {
            Action::Create { .. } => matches!(self.outcome, Outcome::Created { new: true, .. }),
            Action::Append { .. } => matches!(self.outcome, Outcome::Appended { .. }),
            Action::Delete => self.outcome == Outcome::Deleted,
            Action::Head | Action::Read => false,
        }
    }

    /// Whether it may have had effect.
    pub fn possible(&self) -> bool {
        self.acknowledged() || self.outcome == Outcome::Unknown
    }
}

/// A finished account: all operations in the order in which they began, and when processes died.
#[derive(Debug, Clone, Default)]
pub struct Account {
    pub ops: Vec<Op>,
    pub deaths: Vec<Time>,
}

impl Account {
    /// From when on `op` can no longer take effect: an open one still may, until the process that got it is dead.
    pub fn settled(&self, op: &Op) -> Time {
        if op.outcome != Outcome::Unknown {
            return op.ended;
        }
        let next = self.deaths.partition_point(|&d| d < op.began);
        self.deaths.get(next).copied().unwrap_or(Time::MAX)
    }
}

/// Names an operation under way.
#[derive(Debug, Clone, Copy)]
pub struct Pending(usize);

/// The account while it is written.
#[derive(Debug, Default)]
pub struct History {
    clock: AtomicU64,
    account: Mutex<Account>,
}

impl History {
    /// Now.
    pub fn now(&self) -> Time {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// To be called before the request leaves.
    pub fn begin(&self, stream: &Arc<str>, json: bool, action: Action) -> Pending {
        let mut account = self.account.lock().unwrap();
        let began = self.now();
        let stream = stream.clone();
        account.ops.push(Op {
            stream,
            json,
            action,
            began,
            ended: Time::MAX,
            outcome: Outcome::Unknown,
            why: None,
        });
        Pending(account.ops.len() - 1)
    }

    /// To be called after the answer came.
    pub fn end(&self, pending: Pending, outcome: Outcome, why: Option<String>) {
        let mut account = self.account.lock().unwrap();
        let ended = self.now();
        let op = &mut account.ops[pending.0];
        op.ended = ended;
        op.outcome = outcome;
        op.why = why;
    }

    /// To be called once a node's process is surely dead.
    pub fn died(&self) {
        let mut account = self.account.lock().unwrap();
        let now = self.now();
        account.deaths.push(now);
    }

    /// A copy of all so far.
    pub fn account(&self) -> Account {
        self.account.lock().unwrap().clone()
    }

    /// The same past, and a future of its own.
    pub fn copy(&self) -> Self {
        let account = Mutex::new(self.account());
        Self { clock: AtomicU64::new(self.clock.load(Ordering::SeqCst)), account }
    }

    /// How many changes that began at `since` or later are acknowledged.
    pub fn acknowledged(&self, since: Time) -> usize {
        let account = self.account.lock().unwrap();
        let from = account.ops.partition_point(|op| op.began < since);
        account.ops[from..].iter().filter(|op| op.acknowledged()).count()
    }

    /// How many operations there are.
    pub fn len(&self) -> usize {
        self.account.lock().unwrap().ops.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
