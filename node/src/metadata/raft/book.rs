//! Where members are and when they were last heard: what this process has seen itself.
//!
//! Invariant: a hint, never more. The membership in the log says where members are; one that has moved announces its new
//! address, which is tried first from then on, until it fails and the other has its turn. Nothing here is stored. Used by
//! `network` (addresses, hearing) and by the leader's care for the members.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Members that are remembered; more than a cluster has.
const MOST: usize = 4096;

/// What was seen of the members.
#[derive(Debug, Default)]
pub(super) struct Book {
    seen: Mutex<HashMap<u64, Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    announced: Option<String>,
    /// The announced address failed last: the membership's has its turn.
    doubted: bool,
    heard: Option<Instant>,
}

impl Book {
    /// Where to reach a member of which the membership says `recorded`.
    pub(super) fn address(&self, id: u64, recorded: &str) -> String {
        let seen = self.seen.lock();
        let announced = seen.get(&id).filter(|s| !s.doubted).and_then(|s| s.announced.clone());
        announced.unwrap_or_else(|| recorded.to_owned())
    }

    /// A member said where it is.
    pub(super) fn announced(&self, id: u64, address: &str) {
        self.with(id, |seen| {
            seen.announced = Some(address.to_owned());
            seen.doubted = false;
        });
    }

    /// A member has answered, or spoken.
    pub(super) fn heard(&self, id: u64) {
        self.with(id, |seen| seen.heard = Some(Instant::now()));
    }

    /// A member was not reached where it was looked for.
    pub(super) fn failed(&self, id: u64) {
        self.with(id, |seen| seen.doubted = !seen.doubted);
    }

    /// When a member was last heard.
    pub(super) fn last_heard(&self, id: u64) -> Option<Instant> {
        self.seen.lock().get(&id).and_then(|seen| seen.heard)
    }

    fn with(&self, id: u64, change: impl FnOnce(&mut Seen)) {
        let mut seen = self.seen.lock();
        if seen.len() < MOST || seen.contains_key(&id) {
            change(seen.entry(id).or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announced_address_is_tried_first_and_then_in_turn() {
        let book = Book::default();
        assert_eq!(book.address(2, "old:1"), "old:1");
        book.announced(2, "new:1");
        assert_eq!(book.address(2, "old:1"), "new:1");
        book.failed(2);
        assert_eq!(book.address(2, "old:1"), "old:1");
        book.failed(2);
        assert_eq!(book.address(2, "old:1"), "new:1");
        book.failed(2);
        book.announced(2, "newer:1");
        assert_eq!(book.address(2, "old:1"), "newer:1");
        assert!(book.last_heard(2).is_none());
        book.heard(2);
        assert!(book.last_heard(2).is_some());
    }
}
