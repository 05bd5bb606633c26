//! The admin API, as far as the operator calls it. What it must never ask for is noted where it asks.

use serde_json::{Value, json};

use super::members::largest_odd;
use super::{Nodes, Process, Record};

impl Nodes {
    /// What the process at an address answers; none: nothing, for ever.
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
                    (record.draining, record.gave_up) = (None, false);
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
        let state = match (r.draining.is_some(), r.streams, r.gave_up) {
            (false, _, _) => "notDraining",
            (true, 0, _) => "drained",
            (true, _, true) => "gaveUp",
            (true, _, false) => "draining",
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
        // Who asks again begins anew.
        if record.draining.is_none() || record.gave_up {
            (record.draining, record.gave_up) = (Some(now), false);
        }
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
