//! Who recovers which ended session, by the leader's view.
//!
//! Invariant: an ended session has a claim of a live session, which is passed on only when that session has ended, or
//! has made no progress for a while and somebody else is there to try. A wrong choice costs time, never records: apply
//! numbers the claims, and only the newest one's commits count. Pure; asked by `duties`.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_api::SessionId;

use crate::metadata::command::Command;
use crate::metadata::state::{ClaimRecord, CommitProgress, Session, State};

/// A claim without progress for so long is passed on.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// What changes while a recovery gets on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    claim: u64,
    wal_start: u64,
    commits: CommitProgress,
    /// The claimant's own count.
    steps: Option<u64>,
}

/// What a leader knows of the recoveries under way.
#[derive(Debug, Default)]
pub(super) struct HandOut {
    marks: BTreeMap<SessionId, (Mark, Duration)>,
}

impl HandOut {
    /// The claims to propose now. `steps` tells what the claimant last reported of a claim.
    pub(super) fn look(
        &mut self,
        now: Duration,
        state: &State,
        steps: impl Fn(u64) -> Option<u64>,
    ) -> Vec<Command> {
        let ended: Vec<&Session> = state.sessions.values().filter(|s| s.ended.is_some()).collect();
        let mut load: BTreeMap<SessionId, usize> = BTreeMap::new();
        for claim in ended.iter().filter_map(|s| s.claim.as_ref()) {
            *load.entry(claim.claimant.clone()).or_default() += 1;
        }
        self.marks.retain(|id, _| state.session_by_id(id).is_some_and(|(_, s)| s.ended.is_some()));
        let mut given = Vec::new();
        for session in ended {
            let held = session.claim.as_ref().filter(|c| state.is_current(&c.claimant));
            let stuck = held.filter(|c| self.is_stuck(now, session, c, &steps)).map(|c| &c.claimant);
            if held.is_some() && stuck.is_none() {
                continue;
            }
            let Some(claimant) = choose(state, session, stuck, &load) else { continue };
            *load.entry(claimant.clone()).or_default() += 1;
            let replaces = session.claim.as_ref().map_or(0, |c| c.number);
            given.push(Command::Claim { ended: session.id.clone(), claimant, replaces });
        }
        given
    }

    fn is_stuck(
        &mut self,
        now: Duration,
        session: &Session,
        claim: &ClaimRecord,
        steps: impl Fn(u64) -> Option<u64>,
    ) -> bool {
        let mark = Mark {
            claim: claim.number,
            wal_start: session.wal_start,
            commits: session.commits,
            steps: steps(claim.number),
        };
        let known = self.marks.entry(session.id.clone()).or_insert((mark, now));
        if known.0 != mark {
            *known = (mark, now);
        }
        now.saturating_sub(known.1) >= PATIENCE
    }
}

/// The node's own new session, else the live session with the fewest recoveries; drained ones last.
fn choose(
    state: &State,
    ended: &Session,
    stuck: Option<&SessionId>,
    load: &BTreeMap<SessionId, usize>,
) -> Option<SessionId> {
    let live = state.nodes.iter().filter_map(|(id, node)| Some((id, node, state.live(node.session?)?)));
    live.filter(|(_, _, session)| Some(&session.id) != stuck)
        .min_by_key(|(id, node, session)| {
            let own = **id == ended.id.node;
            (!own, node.draining, load.get(&session.id).copied().unwrap_or(0), (*id).clone())
        })
        .map(|(_, _, session)| session.id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::apply::tests::world::World;

    fn claims(given: &[Command]) -> Vec<(String, String, u64)> {
        let claim = |command: &Command| match command {
            Command::Claim { ended, claimant, replaces } => {
                (ended.to_string(), claimant.to_string(), *replaces)
            }
            other => panic!("{other:?}"),
        };
        given.iter().map(claim).collect()
    }

    fn expected(ended: &SessionId, claimant: &SessionId, replaces: u64) -> (String, String, u64) {
        (ended.to_string(), claimant.to_string(), replaces)
    }

    /// Nodes a, b and c; `c` died with an open stream.
    fn one_dead() -> (World, [SessionId; 3]) {
        let (mut w, [a, b, c]) = World::with(["a", "b", "c"]);
        // Creating places at whoever has least: one of three lands at c.
        for i in 0..3 {
            let id = w.create(&a, &format!("s{i}"));
            if w.owner(id).as_ref() == Some(&c) {
                w.open(&c, id);
            }
        }
        w.silence(&a, &c);
        assert!(w.session(&c).ended.is_some());
        (w, [a, b, c])
    }

    const NOW: Duration = Duration::from_secs(1_000);

    #[test]
    fn an_ended_session_is_given_to_one_live_session_and_stays_there_while_it_gets_on() {
        let (mut w, [a, _, c]) = one_dead();
        let mut hand_out = HandOut::default();
        assert_eq!(claims(&hand_out.look(NOW, &w.state, |_| None)), [expected(&c, &a, 0)]);
        let (number, _) = w.claim(&a, &c, 0);
        for i in 0..10 {
            let now = NOW + PATIENCE / 2 * i;
            assert!(
                hand_out.look(now, &w.state, |n| (n == number).then_some(u64::from(i))).is_empty(),
                "{i}"
            );
        }
    }

    #[test]
    fn a_claim_without_progress_is_passed_on() {
        let (mut w, [a, b, c]) = one_dead();
        let (number, _) = w.claim(&a, &c, 0);
        let mut hand_out = HandOut::default();
        let at = |hand_out: &mut HandOut, s: u64| {
            hand_out.look(NOW + Duration::from_secs(s), &w.state, |_| Some(7))
        };
        assert!(at(&mut hand_out, 0).is_empty());
        assert!(at(&mut hand_out, 29).is_empty());
        assert_eq!(claims(&at(&mut hand_out, 30)), [expected(&c, &b, number)]);
        assert!(
            HandOut::default().look(NOW * 9, &w.state, |_| None).is_empty(),
            "another leader looks first"
        );
    }

    #[test]
    fn a_claim_whose_session_ended_is_passed_on_at_once_and_with_its_own_node_back_goes_there() {
        let (mut w, [a, b, c]) = one_dead();
        let (number, _) = w.claim(&a, &c, 0);
        w.silence(&b, &a);
        let mut hand_out = HandOut::default();
        assert!(claims(&hand_out.look(NOW, &w.state, |_| None)).contains(&expected(&c, &b, number)));
        let back = w.join("c", 20);
        assert!(claims(&hand_out.look(NOW, &w.state, |_| None)).contains(&expected(&c, &back, number)));
    }

    #[test]
    fn who_is_alone_keeps_it() {
        let (mut w, [a]) = World::with(["a"]);
        w.opened(&a, "s");
        let next = w.join("a", 20);
        let mut hand_out = HandOut::default();
        assert_eq!(claims(&hand_out.look(NOW, &w.state, |_| None)), [expected(&a, &next, 0)]);
        w.claim(&next, &a, 0);
        assert!(hand_out.look(NOW, &w.state, |_| None).is_empty());
        assert!(hand_out.look(NOW + PATIENCE * 2, &w.state, |_| None).is_empty());
    }
}
