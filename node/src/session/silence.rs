//! How long each session has been silent, as far as one leader can say, and which are to be fenced for it.
//!
//! Invariant (I3): a session is condemned only after a full timeout of looks that came on time, under confirmed leadership,
//! in one term of one process; a leader that slept, was cut off or has just begun starts counting anew. From the moment
//! it is condemned its heartbeats count no more, so no lease outlives the fence. Pure; filled by `heartbeat`, asked by
//! `duties`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir_api::SessionId;

use crate::metadata::limits;

/// What one leader has heard, in one term.
#[derive(Debug)]
pub(super) struct Silence {
    timeout: Duration,
    term: u64,
    /// The last look that leadership was confirmed for.
    looked: Option<Duration>,
    silent: BTreeMap<SessionId, Duration>,
    /// Since that look.
    heard: BTreeSet<SessionId>,
    condemned: BTreeSet<SessionId>,
}

impl Silence {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            term: 0,
            looked: None,
            silent: BTreeMap::new(),
            heard: BTreeSet::new(),
            condemned: BTreeSet::new(),
        }
    }

    fn enter(&mut self, term: u64) {
        if term != self.term {
            *self = Self { term, ..Self::new(self.timeout) };
        }
    }

    /// A heartbeat came, to the leader of this term. `false`: too late, the session is being fenced.
    pub(super) fn hear(&mut self, term: u64, session: &SessionId) -> bool {
        self.enter(term);
        if self.condemned.contains(session) {
            return false;
        }
        // Each look empties it. What has no room was heard by nobody, and says so again.
        if self.heard.len() < 2 * limits::NODES {
            self.heard.insert(session.clone());
        }
        true
    }

    /// For how long a session has been counted silent in this term, if it has been looked at.
    pub(super) fn of(&self, term: u64, session: &SessionId) -> Option<Duration> {
        if term != self.term {
            return None;
        }
        let heard = self.heard.contains(session) && !self.condemned.contains(session);
        if heard { Some(Duration::ZERO) } else { self.silent.get(session).copied() }
    }

    /// Leadership of this term was just confirmed, at `now` on a clock that counts suspension. Gives the sessions to
    /// fence; they stay condemned until they are gone from `live` or the term is over.
    pub(super) fn look(&mut self, term: u64, now: Duration, live: BTreeSet<SessionId>) -> Vec<SessionId> {
        self.enter(term);
        let round = self.looked.replace(now).map(|before| now.saturating_sub(before));
        let counts = match round {
            Some(round) if round <= self.timeout / 8 => round,
            // Late: whoever was silent may have been so because of it.
            Some(round) if round <= self.timeout / 4 => Duration::ZERO,
            Some(_) | None => {
                self.silent.clear();
                Duration::ZERO
            }
        };
        let heard = std::mem::take(&mut self.heard);
        self.silent.retain(|session, _| live.contains(session));
        self.condemned.retain(|session| live.contains(session));
        for session in live {
            let before = self.silent.get(&session).copied();
            let silent = match before {
                Some(before) if !heard.contains(&session) => before + counts,
                Some(_) | None => Duration::ZERO,
            };
            if silent >= self.timeout {
                self.condemned.insert(session.clone());
            }
            self.silent.insert(session, silent);
        }
        self.condemned.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use weir_api::NodeEpoch;

    use super::*;

    fn session(node: &str) -> SessionId {
        SessionId { node: node.parse().unwrap(), epoch: NodeEpoch(1) }
    }

    /// Looks at a life with a timeout of 8 s, so that a round of 1 s is on time and one above 2 s is sleep.
    struct Leader {
        silence: Silence,
        term: u64,
        now: u64,
    }

    impl Leader {
        fn new() -> Self {
            Self { silence: Silence::new(Duration::from_secs(8)), term: 1, now: 100 }
        }

        fn look_after(&mut self, seconds: u64) -> Vec<SessionId> {
            self.now += seconds;
            let live = BTreeSet::from([session("a"), session("b")]);
            self.silence.look(self.term, Duration::from_secs(self.now), live)
        }

        /// On-time looks until somebody is condemned, with `b` heard in every round.
        fn looks_until_fenced(&mut self) -> u64 {
            for looks in 1..100 {
                assert!(self.silence.hear(self.term, &session("b")));
                let condemned = self.look_after(1);
                if !condemned.is_empty() {
                    assert_eq!(condemned, [session("a")]);
                    return looks;
                }
            }
            unreachable!("nobody is fenced");
        }
    }

    #[test]
    fn a_new_leader_counts_a_full_timeout() {
        let mut leader = Leader::new();
        // The first look counts nothing: nobody knows what was before it.
        assert_eq!(leader.looks_until_fenced(), 9);
    }

    #[test]
    fn who_is_heard_in_time_is_not_fenced() {
        let mut leader = Leader::new();
        for round in 0..50 {
            leader.silence.hear(1, &session("b"));
            if round % 7 == 0 {
                assert!(leader.silence.hear(1, &session("a")));
            }
            assert_eq!(leader.look_after(1), []);
        }
    }

    #[test]
    fn what_ends_the_count() {
        // What happens after seven counted seconds, and how many looks it then takes until the fence.
        type Case = (&'static str, fn(&mut Leader), u64);
        let cases: [Case; 4] = [
            ("a late look counts nothing", |l| assert_eq!(l.look_after(2), []), 1),
            ("sleep, or no confirmation, counts anew", |l| assert_eq!(l.look_after(3), []), 8),
            ("so does another term", |l| l.term = 2, 9),
            ("and being heard", |l| assert!(l.silence.hear(1, &session("a"))), 9),
        ];
        for (what, happens, looks) in cases {
            let mut leader = Leader::new();
            for _ in 0..8 {
                leader.silence.hear(1, &session("b"));
                assert_eq!(leader.look_after(1), [], "{what}");
            }
            let silent = |name| leader.silence.of(1, &session(name));
            assert_eq!(silent("a"), Some(Duration::from_secs(7)), "{what}");
            assert_eq!(silent("b"), Some(Duration::ZERO), "{what}");
            assert_eq!((silent("c"), leader.silence.of(2, &session("a"))), (None, None));
            leader.silence.hear(leader.term, &session("b"));
            happens(&mut leader);
            assert_eq!(leader.looks_until_fenced(), looks, "{what}");
        }
    }

    #[test]
    fn the_condemned_are_heard_no_more_in_this_term() {
        let mut leader = Leader::new();
        leader.looks_until_fenced();
        assert!(!leader.silence.hear(1, &session("a")));
        leader.silence.hear(1, &session("b"));
        assert_eq!(leader.look_after(1), [session("a")], "until it is gone");
        leader.now += 1;
        let rest = BTreeSet::from([session("b")]);
        assert_eq!(leader.silence.look(1, Duration::from_secs(leader.now), rest), []);
        assert!(leader.silence.hear(2, &session("a")), "another term, another count");
    }
}
