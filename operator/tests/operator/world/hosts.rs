//! What Kubernetes does with hosts and pods as time passes: the scheduler, kubelets, and who watches over them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::World;
use crate::nodes::Process;

impl World {
    pub(super) fn hosts_tick(&mut self, now: i64) {
        let mut store = self.api.store.lock();
        let time = store.time();
        for host in &self.hosts {
            let lost = self.down.get(host).is_some_and(|since| now - since >= 10_000);
            store.edit("nodes", host, |node| {
                let condition = &mut node["status"]["conditions"][0];
                let status = if lost { "Unknown" } else { "True" };
                if condition["status"] != status {
                    condition["status"] = json!(status);
                    condition["lastTransitionTime"] = json!(time);
                }
            });
        }
    }

    pub(super) fn pods_tick(&mut self, now: i64) {
        let pods = self.api.store.lock().all("pods");
        for ((_, _, name), pod) in &pods {
            let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
            match pod["spec"]["nodeName"].as_str() {
                None => self.schedule(name, pod),
                Some(host) if self.down.contains_key(host) => {
                    if self.down.get(host).is_some_and(|since| now - since >= 10_000) {
                        self.set_ready(name, false);
                    }
                }
                Some(_) if !pod["metadata"]["deletionTimestamp"].is_null() => {
                    let mut nodes = self.nodes.lock();
                    match nodes.processes.get_mut(&uid).filter(|p| !p.stopping) {
                        Some(process) => process.stopping = true,
                        None => {
                            nodes.stop(&uid);
                            self.api.store.lock().remove("pods", name);
                        }
                    }
                }
                Some(host) => self.run(name, pod, &uid, host, now),
            }
        }
        self.claims_tick();
        // A pod that is gone from the API is stopped by its kubelet, where there is one.
        let there: BTreeSet<String> = self.pod_uids().into_values().collect();
        let mut nodes = self.nodes.lock();
        let orphans: Vec<String> = nodes
            .processes
            .values()
            .filter(|p| !there.contains(&p.pod_uid) && !self.down.contains_key(&p.host))
            .map(|p| p.pod_uid.clone())
            .collect();
        for uid in orphans {
            nodes.stop(&uid);
        }
    }

    /// A claim that is deleted stays as long as a pod uses it.
    fn claims_tick(&self) {
        let mut store = self.api.store.lock();
        let used: BTreeSet<String> = store.all("pods").iter().map(|(_, pod)| Self::claim_of(pod)).collect();
        for ((_, _, name), claim) in store.all("persistentvolumeclaims") {
            if !claim["metadata"]["deletionTimestamp"].is_null() && !used.contains(&name) {
                store.remove("persistentvolumeclaims", &name);
            }
        }
    }

    pub(super) fn claim_of(pod: &Value) -> String {
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        let claim = volumes.iter().find_map(|v| v["persistentVolumeClaim"]["claimName"].as_str());
        claim.unwrap().to_owned()
    }

    fn schedule(&mut self, name: &str, pod: &Value) {
        let claim = Self::claim_of(pod);
        let mut store = self.api.store.lock();
        let unscheduled = |store: &mut crate::api::Store, why: &str| {
            store.edit("pods", name, |pod| {
                pod["status"] = json!({"phase": "Pending", "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}]});
            });
        };
        let Some(volume) = store.get("persistentvolumeclaims", &claim).cloned() else {
            unscheduled(&mut store, &format!("persistentvolumeclaim \"{claim}\" not found"));
            return;
        };
        let uid = volume["metadata"]["uid"].as_str().unwrap().to_owned();
        let cordoned = |store: &crate::api::Store, host: &str| {
            let tainted = |n: &Value| n["spec"]["taints"].as_array().is_some_and(|all| !all.is_empty());
            store.get("nodes", host).is_some_and(|n| n["spec"]["unschedulable"] == true || tainted(n))
        };
        let usable: Vec<&String> =
            self.hosts.iter().filter(|h| !self.down.contains_key(*h) && !cordoned(&store, h)).collect();
        let host = match self.bound.get(&uid) {
            Some(host) => usable.iter().find(|h| **h == host).map(|h| (*h).clone()),
            None => {
                let load = |h: &String| {
                    store.all("pods").iter().filter(|(_, p)| p["spec"]["nodeName"] == h.as_str()).count()
                };
                usable.iter().min_by_key(|h| load(h)).map(|h| (*h).clone())
            }
        };
        let class = volume["spec"]["storageClassName"].as_str();
        if class.is_some_and(|c| c.contains("missing")) {
            unscheduled(
                &mut store,
                "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
            );
            return;
        }
        match host {
            Some(host) => {
                self.bound.insert(uid, host.clone());
                store.edit("persistentvolumeclaims", &claim, |c| c["status"]["phase"] = json!("Bound"));
                store.edit("pods", name, |pod| pod["spec"]["nodeName"] = json!(host));
            }
            None => {
                let all = self.hosts.len();
                let why = match self.bound.get(&uid).is_some_and(|h| self.hosts.contains(h)) {
                    true => format!(
                        "1 node(s) were unschedulable, {} node(s) had volume node affinity conflict",
                        all - 1
                    ),
                    false => format!("{all} node(s) had volume node affinity conflict"),
                };
                unscheduled(&mut store, &format!("0/{all} nodes are available: {why}. preemption: 0"));
            }
        }
    }

    fn set_ready(&self, name: &str, ready: bool) {
        let mut store = self.api.store.lock();
        let time = store.time();
        store.edit("pods", name, |pod| {
            let conditions = pod["status"]["conditions"].as_array_mut();
            if let Some(c) = conditions.and_then(|c| c.iter_mut().find(|c| c["type"] == "Ready")) {
                let status = if ready { "True" } else { "False" };
                if c["status"] != status {
                    c["status"] = json!(status);
                    c["lastTransitionTime"] = json!(time);
                }
            }
        });
    }

    fn run(&mut self, name: &str, pod: &Value, uid: &str, host: &str, now: i64) {
        let image = pod["spec"]["containers"][0]["image"].as_str().unwrap();
        let config = pod["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"].as_str().unwrap();
        let missing = self.api.store.lock().get("configmaps", config).is_none();
        let waiting = match (image.contains("bad"), missing) {
            (true, _) => Some(("ImagePullBackOff", format!("Back-off pulling image \"{image}\""))),
            (_, true) => Some(("CreateContainerConfigError", format!("configmap \"{config}\" not found"))),
            _ => None,
        };
        if let Some((reason, message)) = waiting.filter(|_| !self.nodes.lock().processes.contains_key(uid)) {
            self.api.store.lock().edit("pods", name, |pod| {
                pod["status"] = json!({"phase": "Pending", "conditions": [], "containerStatuses": [
                    {"name": "weir", "state": {"waiting": {"reason": reason, "message": message}}}]});
            });
            return;
        }
        let claim = self.api.store.lock().get("persistentvolumeclaims", &Self::claim_of(pod)).cloned();
        let Some(claim) = claim else { return };
        let annotation =
            |key: &str| pod["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned();
        let mut nodes = self.nodes.lock();
        if !nodes.processes.contains_key(uid) {
            self.ip += 1;
            let process = Process {
                node: name.to_owned(),
                pod_uid: uid.to_owned(),
                dir: claim["metadata"]["uid"].as_str().unwrap().to_owned(),
                ip: format!("10.{}.{}.{}", self.ip >> 16, (self.ip >> 8) & 255, self.ip & 255),
                host: host.to_owned(),
                bootstrap: annotation("weir.dev/bootstrap") == "true",
                slots: annotation("weir.dev/slots").parse().unwrap(),
                epoch: None,
                superseded: false,
                stopping: false,
                hangs: false,
            };
            nodes.processes.insert(uid.to_owned(), process);
        }
        // Superseded: it exits, and its next start waits a minute.
        let process = nodes.processes.get_mut(uid).unwrap();
        match (process.superseded, self.superseded.get(uid)) {
            (true, None) => drop(self.superseded.insert(uid.to_owned(), now)),
            (true, Some(since)) if now - since >= 60_000 => {
                process.superseded = false;
                process.epoch = None;
                self.superseded.remove(uid);
            }
            _ => {}
        }
        let ip = process.ip.clone();
        let ready = nodes.is_ready(uid);
        drop(nodes);
        let created = pod["metadata"]["creationTimestamp"].clone();
        self.api.store.lock().edit("pods", name, |pod| {
            if pod["status"]["podIP"] != ip.as_str() {
                pod["status"] = json!({"phase": "Running", "podIP": ip,
                    "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": created}],
                    "containerStatuses": [{"name": "weir", "state": {"running": {"startedAt": created}}}]});
            }
        });
        self.set_ready(name, ready);
    }
}
