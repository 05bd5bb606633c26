//! The judge: does an [`Account`] of what clients did and saw keep the promises I2, I3 and I4 of the design?
//!
//! It knows nothing of the node. Per stream name it sorts operations into *lives* (a delete and a create begin a new
//! one), rebuilds each life's content from all readings, and holds every answer against it. Operations that race a
//! delete or a create belong surely to no life and promise little; all others promise everything. O(n log n).

mod claims;
mod content;
mod lives;
mod prefix;
mod producers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::history::{Account, Op, Time};
use crate::record::Record;
pub use lives::Life;

/// Which promise was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// I2: an acknowledged record is not there.
    LostRecord,
    /// I2: an acknowledged create, and yet the stream is absent though nobody deleted it.
    LostStream,
    /// A stream is there that was deleted, or never created.
    GhostStream,
    /// I3: one offset showed two different things.
    Rewritten,
    /// Offsets do not add up: content shorter or longer than the offsets around it say.
    BadOffsets,
    /// A record is there in part, or bytes that nobody sent.
    TornRecord,
    /// I9: a record is there whose append was refused for good.
    RefusedRecord,
    /// A record is there that was never sent, belongs to another life, or came before it was sent.
    ForeignRecord,
    /// I4: one record twice.
    DoubledRecord,
    /// A record acknowledged before another was sent stands behind it.
    OutOfOrder,
    /// I3: an answer that claims to be current knows less than was acknowledged or read before it was asked for.
    StaleClaim,
    /// Closed was seen, and then the stream was open, grew, or ended elsewhere.
    Reopened,
    /// Closed though nobody closed it.
    PhantomClose,
    /// An append and its close came apart.
    TornClose,
    /// I4: a producer that counts without gaps was told that it does not.
    ProducerLost,
    /// I4: one (producer, epoch, sequence) accepted as new twice.
    ProducerDoubled,
    /// I4: "duplicate" for what can never have had effect.
    PhantomDuplicate,
    /// `Stream-Seq` went backwards, or was refused without reason.
    SeqBroken,
    /// Not a fault of the node: the run ended without reading a stream back, or muddled its own account.
    Harness,
}

/// One broken promise.
#[derive(Debug, Clone)]
pub struct Violation {
    pub kind: Kind,
    pub stream: Arc<str>,
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {}: {}", self.kind, self.stream, self.message)
    }
}

/// The same for lives that the caller has sorted, none of two names in one: for accounts whose creates and deletes
/// overlap. What the sorting itself shows is the caller's to say.
pub fn check_lives(account: &Account, names: Vec<(Arc<str>, Vec<Life>)>) -> Vec<Violation> {
    let mut case = Case::new(account);
    for (name, lives) in names {
        for life in &lives {
            // A client may have sent to the next life what it had for the last.
            case.seen.clear();
            check_life(&mut case, life);
        }
        producers::check_each(&mut case, &name, &lives);
    }
    case.violations
}

/// All broken promises in `account`. To be asked after a read-back: a live stream with acknowledged records that were
/// never read after it is a fault of the run.
pub fn check(account: &Account) -> Vec<Violation> {
    let mut case = Case::new(account);
    let mut names: BTreeMap<&Arc<str>, Vec<usize>> = BTreeMap::new();
    for (i, op) in account.ops.iter().enumerate() {
        names.entry(&op.stream).or_default().push(i);
    }
    for (name, ops) in names {
        let lives = lives::sort(&mut case, name, &ops);
        lives.iter().for_each(|life| check_life(&mut case, life));
        producers::check(&mut case, name, &ops, &lives);
    }
    case.violations
}

fn check_life(case: &mut Case<'_>, life: &Life) {
    let content = content::check(case, life);
    claims::check(case, life, &content);
    producers::check_sequence(case, life);
}

/// What is known of one record over all its attempts.
struct Sent {
    stream: Arc<str>,
    record: Record,
    attempts: Vec<usize>,
    began: Time,
    /// When the first acknowledgement came; `Time::MAX` if none.
    acked: Time,
    possible: bool,
    closes: bool,
}

/// The account under judgement and the verdict so far.
struct Case<'a> {
    account: &'a Account,
    sent: HashMap<u64, Sent>,
    /// Records found in any life.
    seen: HashSet<u64>,
    violations: Vec<Violation>,
}

impl<'a> Case<'a> {
    fn new(account: &'a Account) -> Self {
        let mut sent: HashMap<u64, Sent> = HashMap::new();
        for (i, op) in account.ops.iter().enumerate() {
            let Some(record) = op.record() else { continue };
            let entry = sent.entry(record.id).or_insert_with(|| Sent {
                stream: op.stream.clone(),
                record,
                attempts: Vec::new(),
                began: op.began,
                acked: Time::MAX,
                possible: false,
                closes: false,
            });
            entry.attempts.push(i);
            entry.possible |= op.possible();
            entry.closes |= op.closes();
            if op.acknowledged() {
                entry.acked = entry.acked.min(op.ended);
            }
        }
        Self { account, sent, seen: HashSet::new(), violations: Vec::new() }
    }

    fn op(&self, i: usize) -> &'a Op {
        &self.account.ops[i]
    }

    /// Whether operation `i` may have met `life`.
    fn may_meet(&self, life: &Life, i: usize) -> bool {
        let op = self.op(i);
        op.began <= life.death && self.account.settled(op) >= life.birth
    }

    fn report(&mut self, kind: Kind, stream: &Arc<str>, message: impl Into<String>) {
        self.violations.push(Violation { kind, stream: stream.clone(), message: message.into() });
    }
}
