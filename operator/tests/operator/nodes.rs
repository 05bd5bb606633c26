//! Weir's nodes, as far as the operator sees them: processes with data directories, a metadata log with members and a
//! record of nodes, streams that move, and the admin API. What must never happen is checked where it would happen.

mod admin;
mod members;

use std::collections::{BTreeMap, BTreeSet};

/// A session without a process ends after this.
const NODE_TIMEOUT_MS: i64 = 10_000;
/// A voter that was silent for so long gives its vote to another.
const VOTER_TIMEOUT_MS: i64 = 600_000;
/// A drain that has brought nothing about for so long gives up.
const STUCK_MS: i64 = 10_000;
/// Streams that a drain gives away in a tick.
const BATCH: u64 = 15;

/// What a directory remembers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dir {
    raft_id: Option<u64>,
}

/// A running process.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) node: String,
    pub(crate) pod_uid: String,
    pub(crate) dir: String,
    pub(crate) ip: String,
    pub(crate) host: String,
    pub(crate) bootstrap: bool,
    pub(crate) slots: u64,
    pub(crate) epoch: Option<u64>,
    pub(crate) superseded: bool,
    pub(crate) stopping: bool,
    /// Its admin API does not answer.
    pub(crate) hangs: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) epoch: u64,
    pub(crate) incarnation: String,
    pub(crate) raft_id: u64,
    pub(crate) alive: bool,
    pub(crate) draining: Option<i64>,
    gave_up: bool,
    pub(crate) slots: u64,
    pub(crate) set_by: Option<(String, u64)>,
    pub(crate) pinned: Option<String>,
    pub(crate) streams: u64,
    silent_since: Option<i64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) voter: bool,
    caught_up: bool,
    unheard_since: Option<i64>,
    pub(crate) dir: String,
}

#[derive(Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) now_ms: i64,
    pub(crate) identity: String,
    pub(crate) voters_wanted: usize,
    pub(crate) uid: Option<String>,
    pub(crate) index: u64,
    pub(crate) leader: Option<u64>,
    next_raft: u64,
    pub(crate) records: BTreeMap<String, Record>,
    pub(crate) members: BTreeMap<u64, Member>,
    removed: BTreeSet<String>,
    /// Raft ids under which a node has registered.
    registered: BTreeSet<u64>,
    epochs: BTreeMap<String, u64>,
    pub(crate) dirs: BTreeMap<String, Dir>,
    /// By pod UID.
    pub(crate) processes: BTreeMap<String, Process>,
    /// Hosts that reach nobody.
    pub(crate) cut: BTreeSet<String>,
    pub(crate) store_down: bool,
    /// Processes that drain can let go of no stream, while all else works.
    pub(crate) stuck: bool,
    /// Drains that gave up.
    pub(crate) gave_up: u32,
    /// Every n-th call to an admin API fails, in one of four ways; 0: none.
    pub(crate) unreliable: u32,
    pub(crate) calls: u32,
    /// Paths that nodes do not know: they are of another version.
    pub(crate) unknown_paths: Vec<&'static str>,
    /// Foundings, removals and so on, for the checks.
    pub(crate) foundings: u32,
    pub(crate) violations: Vec<String>,
    pub(crate) slot_changes: u64,
    pub(crate) commands: u64,
    probes: u64,
}

impl Nodes {
    pub(crate) fn of(identity: &str) -> Self {
        Self { identity: identity.to_owned(), ..Self::default() }
    }

    fn reachable(&self, p: &Process) -> bool {
        !self.cut.contains(&p.host)
    }

    fn is_up(&self, id: u64) -> bool {
        let Some(member) = self.members.get(&id) else { return false };
        self.processes.values().any(|p| p.dir == member.dir && self.reachable(p) && !p.superseded)
    }

    pub(crate) fn voters(&self) -> Vec<u64> {
        self.members.iter().filter(|(_, m)| m.voter).map(|(id, _)| *id).collect()
    }

    pub(crate) fn has_quorum(&self) -> bool {
        let voters = self.voters();
        let up = voters.iter().filter(|id| self.is_up(**id) && self.members[id].caught_up).count();
        !voters.is_empty() && up > voters.len() / 2
    }

    /// Voters that would be left without a node's.
    pub(crate) fn quorum_without(&self, pod_uid: &str) -> bool {
        let voters = self.voters();
        let Some(process) = self.processes.get(pod_uid) else { return true };
        let its = |id: &&u64| self.members[*id].dir == process.dir;
        if !voters.iter().any(|id| its(&id)) || !self.has_quorum() {
            return true;
        }
        // With nobody to take the only vote there is no other way.
        let takes = |r: &Record| r.alive && r.draining.is_none() && r.slots > 0 && r.incarnation != pod_uid;
        if voters.len() == 1 && !self.records.values().any(takes) {
            return true;
        }
        let up =
            voters.iter().filter(|id| !its(id) && self.is_up(**id) && self.members[id].caught_up).count();
        up > voters.len() / 2
    }

    /// The node's session is alive and its process can serve.
    pub(crate) fn serves(&self, node: &str) -> bool {
        let Some(record) = self.records.get(node) else { return false };
        let running = self.processes.get(&record.incarnation);
        record.alive && running.is_some_and(|p| self.reachable(p) && !p.superseded)
    }

    pub(crate) fn is_ready(&self, pod_uid: &str) -> bool {
        let Some(process) = self.processes.get(pod_uid) else { return false };
        let Some(record) = self.records.get(&process.node) else { return false };
        record.incarnation == process.pod_uid
            && record.alive
            && process.epoch == Some(record.epoch)
            && !process.stopping
            && !self.store_down
            && self.has_quorum()
            && self.reachable(process)
    }

    pub(crate) fn tick(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
        self.index += 1;
        let uids: Vec<String> = self.processes.keys().cloned().collect();
        for uid in uids {
            self.advance(&uid);
        }
        if !self.has_quorum() {
            self.leader = None;
            return;
        }
        if !self.leader.is_some_and(|id| self.is_up(id) && self.members.get(&id).is_some_and(|m| m.voter)) {
            self.leader = self.voters().into_iter().find(|id| self.is_up(*id) && self.members[id].caught_up);
        }
        self.end_sessions();
        self.tend_members();
        self.move_streams();
    }

    fn advance(&mut self, uid: &str) {
        let Some(process) = self.processes.get(uid).cloned() else { return };
        if process.superseded || process.stopping || self.store_down || !self.reachable(&process) {
            return;
        }
        let dir = self.dirs.entry(process.dir.clone()).or_default().clone();
        // A directory whose id has left the membership joins anew.
        let member = dir.raft_id.filter(|id| self.members.contains_key(id));
        let Some(raft_id) = member.or_else(|| self.join(&process)) else { return };
        if !self.has_quorum() || process.epoch.is_some() {
            return;
        }
        self.register(uid, &process, raft_id);
    }

    fn join(&mut self, process: &Process) -> Option<u64> {
        let id = match &self.uid {
            None if process.bootstrap => {
                self.foundings += 1;
                self.uid = Some(format!("{:032x}", 0xc1u64 + u64::from(self.foundings)));
                self.next_raft = 2;
                self.members.insert(
                    1,
                    Member { voter: true, caught_up: true, unheard_since: None, dir: process.dir.clone() },
                );
                1
            }
            None => return None,
            // The bucket knows a cluster: who was told to found joins all the same.
            Some(_) if !self.has_quorum() => return None,
            Some(_) => {
                let id = self.next_raft;
                self.next_raft += 1;
                let dir = process.dir.clone();
                self.members.insert(id, Member { voter: false, caught_up: false, unheard_since: None, dir });
                id
            }
        };
        self.dirs.insert(process.dir.clone(), Dir { raft_id: Some(id) });
        Some(id)
    }

    fn register(&mut self, uid: &str, process: &Process, raft_id: u64) {
        if self.removed.contains(&process.pod_uid) {
            return;
        }
        let had = self.records.get(&process.node).cloned();
        if had.as_ref().and_then(|r| r.pinned.as_ref()).is_some_and(|p| *p != process.pod_uid) {
            return;
        }
        let floor = self.epochs.get(&process.node).map_or(0, |e| e + 1);
        let epoch = u64::try_from(self.now_ms).unwrap().max(floor);
        self.epochs.insert(process.node.clone(), epoch);
        if let Some(had) = &had
            && let Some(other) =
                self.processes.get_mut(&had.incarnation).filter(|p| p.pod_uid != process.pod_uid)
        {
            other.superseded = true;
        }
        let record = Record {
            epoch,
            incarnation: process.pod_uid.clone(),
            raft_id,
            alive: true,
            draining: had.as_ref().and_then(|r| r.draining),
            gave_up: false,
            slots: had.as_ref().map_or(process.slots, |r| r.slots),
            set_by: had.as_ref().and_then(|r| r.set_by.clone()),
            pinned: had.as_ref().and_then(|r| r.pinned.clone()),
            streams: had.as_ref().map_or(0, |r| if r.alive { 0 } else { r.streams }),
            silent_since: None,
        };
        self.records.insert(process.node.clone(), record);
        self.registered.insert(raft_id);
        self.processes.get_mut(uid).unwrap().epoch = Some(epoch);
    }

    fn end_sessions(&mut self) {
        let now = self.now_ms;
        let names: Vec<String> = self.records.keys().cloned().collect();
        for name in names {
            let serves = self.serves(&name);
            let record = self.records.get_mut(&name).unwrap();
            match (serves, record.silent_since) {
                (true, _) => record.silent_since = None,
                (false, None) => record.silent_since = Some(now),
                (false, Some(since)) if now - since >= NODE_TIMEOUT_MS => {
                    record.alive = false;
                    let incarnation = record.incarnation.clone();
                    // It ends when it learns of it, and starts anew.
                    if let Some(process) = self.processes.get_mut(&incarnation) {
                        process.superseded = true;
                    }
                }
                (false, Some(_)) => {}
            }
        }
    }

    fn takers(&self, but: &str) -> Vec<String> {
        let takes =
            |(n, r): &(&String, &Record)| n.as_str() != but && r.alive && r.draining.is_none() && r.slots > 0;
        self.records.iter().filter(takes).map(|(n, _)| n.clone()).collect()
    }

    fn move_streams(&mut self) {
        let names: Vec<String> = self.records.keys().cloned().collect();
        for name in names {
            let record = &self.records[&name];
            let drains = record.alive && !record.gave_up;
            let since = record.draining.filter(|_| drains);
            let takers = self.takers(&name);
            if (record.alive && since.is_none()) || record.streams == 0 || takers.is_empty() {
                continue;
            }
            if let Some(since) = since.filter(|_| self.stuck) {
                let gives_up = self.now_ms - since >= STUCK_MS;
                self.records.get_mut(&name).unwrap().gave_up = gives_up;
                self.gave_up += u32::from(gives_up);
                continue;
            }
            let moved = BATCH.min(record.streams);
            self.records.get_mut(&name).unwrap().streams -= moved;
            let to = takers[usize::try_from(self.index).unwrap() % takers.len()].clone();
            self.records.get_mut(&to).unwrap().streams += moved;
        }
    }

    /// SIGTERM: streams given away, the session ended, the process gone.
    pub(crate) fn stop(&mut self, pod_uid: &str) {
        let Some(process) = self.processes.remove(pod_uid) else { return };
        let quorum = self.has_quorum();
        if let Some(record) = self.records.get_mut(&process.node)
            && record.incarnation == pod_uid
            && quorum
        {
            record.alive = false;
        }
    }
}
