//! Who votes: as the node's own `metadata::raft::membership` has it.

use std::collections::BTreeSet;

use super::{Member, Nodes, VOTER_TIMEOUT_MS};

impl Nodes {
    /// Learners catch up, and there is one change a tick.
    pub(super) fn tend_members(&mut self) {
        let (now_ms, up): (i64, Vec<u64>) =
            (self.now_ms, self.members.keys().copied().filter(|id| self.is_up(*id)).collect());
        for (id, member) in &mut self.members {
            let heard = up.contains(id);
            member.caught_up |= heard;
            member.unheard_since = if heard { None } else { member.unheard_since.or(Some(now_ms)) };
        }
        let now: BTreeSet<u64> = self.voters().into_iter().collect();
        match self.next_voters(&now) {
            Some(next)
                if next != now && next.iter().filter(|id| self.is_up(**id)).count() * 2 > next.len() =>
            {
                for (id, member) in &mut self.members {
                    member.voter = next.contains(id);
                }
                if !self.leader.is_some_and(|id| next.contains(&id)) {
                    self.leader = next.into_iter().find(|id| self.is_up(*id));
                }
            }
            _ => {
                let leaves = |id: &u64, m: &Member| {
                    let silent = m.unheard_since.is_some_and(|since| now_ms - since >= VOTER_TIMEOUT_MS);
                    !m.voter && (self.is_gone(*id) || (!self.is_used(*id) && silent))
                };
                let leaving: Vec<u64> =
                    self.members.iter().filter(|(id, m)| leaves(id, m)).map(|(id, _)| *id).collect();
                self.members.retain(|id, _| !leaving.contains(id));
            }
        }
        let mut seen = BTreeSet::new();
        for (id, member) in &self.members {
            let record = self.records.iter().find(|(_, r)| r.raft_id == *id);
            if member.voter
                && let Some((name, _)) = record
                && !seen.insert(name.clone())
            {
                self.violations.push(format!("{name} votes twice"));
            }
        }
    }

    fn is_used(&self, id: u64) -> bool {
        self.records.values().any(|r| r.raft_id == id)
    }

    /// Its node has registered under another one since, or was removed.
    fn is_gone(&self, id: u64) -> bool {
        self.registered.contains(&id) && !self.is_used(id)
    }

    fn next_voters(&self, now: &BTreeSet<u64>) -> Option<BTreeSet<u64>> {
        let target = largest_odd(self.voters_wanted.min(self.records.len())).max(1);
        let drains = |id: &u64| self.records.values().any(|r| r.raft_id == *id && r.draining.is_some());
        let silence = |id: &u64| self.members[id].unheard_since.map_or(0, |since| self.now_ms - since);
        let reluctance = |id: &u64| (self.is_gone(*id), silence(id), *id);
        let candidates: Vec<u64> = self
            .members
            .iter()
            .filter(|(id, m)| !m.voter && m.caught_up && self.is_used(**id) && self.is_up(**id))
            .map(|(id, _)| *id)
            .collect();
        let replace = |new: u64| {
            let lost = |id: &&u64| self.is_gone(**id) || silence(id) >= VOTER_TIMEOUT_MS;
            let others = now.iter().filter(|id| Some(**id) != self.leader);
            let lost = others.filter(lost).max_by_key(|id| reluctance(id))?;
            Some(now.iter().copied().filter(|id| id != lost).chain([new]).collect())
        };
        if now.len() < target {
            let missing = target - now.len();
            match candidates.len() >= missing {
                true => Some(now.iter().copied().chain(candidates.into_iter().take(missing)).collect()),
                false => replace(*candidates.first()?),
            }
        } else if now.len() > target {
            let mut leaving: Vec<u64> = now.iter().copied().filter(|id| Some(*id) != self.leader).collect();
            leaving.sort_by_key(|id| std::cmp::Reverse(reluctance(id)));
            leaving.truncate(now.len() - target);
            Some(now.iter().copied().filter(|id| !leaving.contains(id)).collect())
        } else if now.len() == 1 && now.iter().all(drains) {
            // The only vote does not go down with its node.
            Some([candidates.into_iter().find(|id| !drains(id))?].into())
        } else {
            replace(*candidates.first()?)
        }
    }
}

pub(super) fn largest_odd(n: usize) -> usize {
    if n % 2 == 1 { n } else { n.saturating_sub(1) }
}
