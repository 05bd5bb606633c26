//! Weir's nodes, as far as the operator sees them: processes with data directories, a metadata log with members and a
//! record of nodes, streams that move, and the admin API. What must never happen is checked where it would happen.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// A session without a process ends after this.
const NODE_TIMEOUT_MS: i64 = 10_000;
/// A voter that was silent for so long gives its vote to another.
const VOTER_TIMEOUT_MS: i64 = 600_000;
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

    /// As `metadata::raft::membership` of the node has it: learners catch up, and there is one change a tick.
    fn tend_members(&mut self) {
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

    fn takers(&self, but: &str) -> Vec<String> {
        let takes =
            |(n, r): &(&String, &Record)| n.as_str() != but && r.alive && r.draining.is_none() && r.slots > 0;
        self.records.iter().filter(takes).map(|(n, _)| n.clone()).collect()
    }

    fn move_streams(&mut self) {
        let names: Vec<String> = self.records.keys().cloned().collect();
        for name in names {
            let record = &self.records[&name];
            let leaves = !record.alive || record.draining.is_some();
            let takers = self.takers(&name);
            if !leaves || record.streams == 0 || takers.is_empty() {
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

    // The admin API.

    pub(crate) fn answer(
        &mut self,
        ip: &str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Option<(u16, Value)> {
        let process = self.processes.values().find(|p| p.ip == ip)?.clone();
        if process.hangs || !self.reachable(&process) {
            return None;
        }
        if self.unknown_paths.contains(&path) {
            return Some(problem(404, "no-such-path", path));
        }
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let quorum = self.has_quorum();
        if method == "GET" && parts == ["readyz"] {
            let ready = self.is_ready(&process.pod_uid);
            let code = if self.store_down { "store" } else { "joining" };
            // As nodes do, it says how long it has been so.
            self.probes += 1;
            let detail = format!("because, for {} s", self.probes);
            let reasons =
                if ready { json!([]) } else { json!([{"code": code, "detail": detail, "sinceMs": 1}]) };
            return Some((if ready { 200 } else { 503 }, json!({"ready": ready, "reasons": reasons})));
        }
        let knows = self.dirs.get(&process.dir).is_some_and(|d| d.raft_id.is_some());
        if !knows {
            return Some(problem(503, "unavailable", "the node is starting"));
        }
        Some(match (method, parts.as_slice()) {
            ("GET", ["admin", "cluster"]) => (200, self.cluster(&process)),
            ("GET", ["admin", "nodes"]) => (200, json!({"nodes": self.list()})),
            ("GET", ["admin", "members"]) => (200, self.member_list(&process)),
            ("GET", ["admin", "nodes", id, "drain"]) => match self.records.get(*id) {
                Some(record) => (200, self.drain_status(id, record)),
                None => no_such(id),
            },
            _ if !quorum => problem(503, "unavailable", "no leader"),
            ("POST", ["admin", "nodes", id]) => self.set_slots(id, body),
            ("POST", ["admin", "nodes", id, "drain"]) => self.drain(id),
            ("DELETE", ["admin", "nodes", id, "drain"]) => match self.records.get_mut(*id) {
                Some(record) => {
                    record.draining = None;
                    self.commands += 1;
                    let record = self.records[*id].clone();
                    (200, self.drain_status(id, &record))
                }
                None => no_such(id),
            },
            ("POST", ["admin", "nodes", id, "fence"]) => self.fence(id, body),
            ("DELETE", ["admin", "nodes", id]) => self.remove(id),
            _ => problem(404, "no-such-path", path),
        })
    }

    fn cluster(&self, process: &Process) -> Value {
        let leader_node =
            self.leader.and_then(|id| self.records.iter().find(|(_, r)| r.raft_id == id)).map(|(n, _)| n);
        json!({"uid": self.uid, "identity": self.identity, "configuredSize": 3, "formatVersion": 1,
            "answeredBy": {"node": process.node, "version": "0.1.0"},
            "log": {"leader": self.leader, "leaderNode": leader_node, "term": 1, "appliedIndex": self.index, "timeMs": self.now_ms},
            "nodes": self.records.len(), "nodesAlive": self.records.values().filter(|r| r.alive).count(),
            "streams": self.records.values().map(|r| r.streams).sum::<u64>(), "awaitingRecovery": 0, "recoveries": []})
    }

    fn status(&self, id: &str, r: &Record) -> Value {
        let set_by = r.set_by.as_ref().map(|(uid, generation)| json!({"uid": uid, "generation": generation}));
        let mut value = json!({"id": id, "epoch": r.epoch, "incarnation": r.incarnation, "raftId": r.raft_id, "alive": r.alive,
            "draining": r.draining.is_some(), "slots": r.slots, "slotsSetBy": set_by, "assignedStreams": if r.alive { r.streams } else { 0 },
            "openStreams": 0, "pinnedTo": r.pinned, "httpUrl": "http://x", "peerAddress": "x:1", "formatMin": 1, "formatMax": 1});
        value.as_object_mut().unwrap().retain(|_, v| !v.is_null());
        value
    }

    fn list(&self) -> Vec<Value> {
        self.records.iter().map(|(id, r)| self.status(id, r)).collect()
    }

    fn member_list(&self, process: &Process) -> Value {
        let leads = self.leader.is_some_and(|id| self.members.get(&id).is_some_and(|m| m.dir == process.dir));
        let members: Vec<Value> = self
            .members
            .iter()
            .map(|(id, m)| {
                let node = self.records.iter().find(|(_, r)| r.raft_id == *id).map(|(n, _)| n);
                let is_leader = self.leader == Some(*id);
                let mut value = json!({"raftId": id, "node": node, "peerAddress": "x:1", "voter": m.voter, "leader": is_leader,
                    "caughtUp": leads.then_some(m.caught_up && self.is_up(*id)),
                    "heardMsAgo": (leads && !is_leader).then_some(if self.is_up(*id) { 200 } else { 60_000 })});
                value.as_object_mut().unwrap().retain(|_, v| !v.is_null());
                value
            })
            .collect();
        let target = largest_odd(self.voters_wanted.min(self.records.len()));
        let mut value = json!({"voterTarget": target, "quorumHealthy": leads.then(|| self.has_quorum()), "members": members});
        value.as_object_mut().unwrap().retain(|_, v| !v.is_null());
        value
    }

    fn drain_status(&self, id: &str, r: &Record) -> Value {
        let state = match (r.draining.is_some(), r.streams) {
            (false, _) => "notDraining",
            (true, 0) => "drained",
            (true, _) => "draining",
        };
        let mut value = json!({"node": id, "epoch": r.epoch, "state": state, "remainingStreams": r.streams, "openStreams": 0,
            "sinceMs": r.draining});
        value.as_object_mut().unwrap().retain(|_, v| !v.is_null());
        value
    }

    fn set_slots(&mut self, id: &str, body: &Value) -> (u16, Value) {
        let Some(record) = self.records.get_mut(id) else { return no_such(id) };
        let by =
            (body["resourceUid"].as_str().unwrap().to_owned(), body["resourceGeneration"].as_u64().unwrap());
        if record.set_by.as_ref().is_some_and(|(uid, generation)| *uid == by.0 && *generation > by.1) {
            return problem(409, "older-generation", "a newer one has spoken");
        }
        record.slots = body["slots"].as_u64().unwrap();
        record.set_by = Some(by);
        self.slot_changes += 1;
        self.commands += 1;
        (200, self.status(id, &self.records[id].clone()))
    }

    fn drain(&mut self, id: &str) -> (u16, Value) {
        let takers = self.takers(id);
        let now = self.now_ms;
        let Some(record) = self.records.get_mut(id) else { return no_such(id) };
        if takers.is_empty() {
            return problem(409, "last-node", "no other node could take the streams");
        }
        record.draining.get_or_insert(now);
        self.commands += 1;
        (202, self.drain_status(id, &self.records[id].clone()))
    }

    fn fence(&mut self, id: &str, body: &Value) -> (u16, Value) {
        let Some(record) = self.records.get_mut(id) else { return no_such(id) };
        let incarnation = body["incarnation"].as_str().map(str::to_owned);
        let same = incarnation.as_ref() == Some(&record.incarnation);
        if body["epoch"] != record.epoch && !same {
            return problem(409, "other-epoch", "another epoch is registered");
        }
        if incarnation.is_some() {
            record.pinned = incarnation;
        }
        if !same {
            record.alive = false;
            if let Some(process) = self.processes.get_mut(&record.incarnation) {
                process.superseded = true;
            }
        }
        self.commands += 1;
        (200, self.status(id, &self.records[id].clone()))
    }

    fn remove(&mut self, id: &str) -> (u16, Value) {
        let Some(record) = self.records.get(id) else { return no_such(id) };
        if record.alive {
            self.violations.push(format!("{id} was to be removed while alive"));
            return problem(409, "node-alive", "drain it and stop it first");
        }
        if record.streams > 0 {
            self.violations.push(format!("{id} was to be removed with {} streams", record.streams));
            return problem(409, "awaiting-recovery", "it has streams");
        }
        let record = self.records.remove(id).unwrap();
        if let Some(process) = self.processes.get_mut(&record.incarnation) {
            process.superseded = true;
        }
        self.removed.insert(record.incarnation.clone());
        self.commands += 1;
        (200, json!({"id": id, "epoch": record.epoch, "incarnation": record.incarnation}))
    }
}

fn no_such(id: &str) -> (u16, Value) {
    problem(404, "no-such-node", id)
}

fn problem(status: u16, code: &str, detail: &str) -> (u16, Value) {
    (status, json!({"type": "t", "code": code, "title": code, "status": status, "detail": detail}))
}

fn largest_odd(n: usize) -> usize {
    if n % 2 == 1 { n } else { n.saturating_sub(1) }
}
