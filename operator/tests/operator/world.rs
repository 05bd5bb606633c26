//! A Kubernetes with Weir's nodes in it, in memory and in made-up time, and the operator's passes over it.
//!
//! What the operator must never do is checked where it does it: two nodes disturbed at once, voters below a majority,
//! a node removed before it was drained (in `nodes`), a second founding.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use kube::runtime::events::{Recorder, Reporter};
use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_operator::admin::Admin;
use weir_operator::apply::{Applied, Hands};
use weir_operator::controller::{Context, PassError, pass};
use weir_operator::crd::StreamCluster;
use weir_operator::fault::{WATCH, Watch};
use weir_operator::metrics::Metrics;

use crate::api::Api;
use crate::nodes::{Nodes, Process};

/// A step of made-up time.
pub(crate) const STEP_MS: i64 = 2_000;

/// The node that the operator disturbs, and since when.
type Disturbed = Arc<Mutex<Option<(String, i64)>>>;

pub(crate) struct World {
    pub(crate) api: Api,
    pub(crate) nodes: Arc<Mutex<Nodes>>,
    pub(crate) context: Arc<Context>,
    pub(crate) down: BTreeMap<String, i64>,
    hosts: Vec<String>,
    bound: BTreeMap<String, String>,
    superseded: BTreeMap<String, i64>,
    disturbed: Disturbed,
    violations: Arc<Mutex<Vec<String>>>,
    ip: u32,
}

fn context(
    api: &Api,
    nodes: &Arc<Mutex<Nodes>>,
    disturbed: &Disturbed,
    violations: &Arc<Mutex<Vec<String>>>,
) -> Context {
    let (nodes, disturbed, violations) = (nodes.clone(), disturbed.clone(), violations.clone());
    let admin = Admin::over(Arc::new(move |request| {
        let (nodes, disturbed, violations) = (nodes.clone(), disturbed.clone(), violations.clone());
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let ip = head.uri.host().unwrap_or_default().to_owned();
            let path = head.uri.path().to_owned();
            let (answer, fault) = {
                let mut nodes = nodes.lock();
                nodes.calls = nodes.calls.wrapping_add(1);
                let (n, every) = (nodes.calls, nodes.unreliable);
                let fault = (every > 0 && n.is_multiple_of(every)).then(|| n / every % 4);
                if fault == Some(0) {
                    return Response::builder().status(502).body(Bytes::new()).map_err(|e| e.to_string());
                }
                let drained = path.strip_prefix("/admin/nodes/").and_then(|p| p.strip_suffix("/drain"));
                let reached = nodes.processes.values().any(|p| p.ip == ip && !p.hangs);
                // One that pins follows a pod that is gone; one that does not takes a node away.
                let fenced = path.strip_prefix("/admin/nodes/").and_then(|p| p.strip_suffix("/fence"));
                if let Some(node) =
                    fenced.filter(|_| body["incarnation"].is_null() && reached && nodes.has_quorum())
                    && nodes.serves(node)
                {
                    disturb(&disturbed, &violations, &nodes, node, "fenced");
                }
                if let Some(node) = drained.filter(|_| head.method == "POST" && reached && nodes.has_quorum())
                {
                    let begun = nodes.records.get(node).is_some_and(|r| r.draining.is_some());
                    if !begun && nodes.serves(node) {
                        disturb(&disturbed, &violations, &nodes, node, "drained");
                    }
                }
                (nodes.answer(&ip, head.method.as_str(), &path, &body), fault)
            };
            match answer {
                // It is done, and nobody hears of it.
                _ if fault == Some(1) => Err("connection reset".to_owned()),
                Some(_) if fault == Some(2) => Ok(Response::new(Bytes::from("<html>"))),
                _ if fault == Some(3) => std::future::pending().await,
                None => std::future::pending().await,
                Some((status, body)) => Response::builder()
                    .status(status)
                    .body(Bytes::from(body.to_string()))
                    .map_err(|e| e.to_string()),
            }
        })
    }));
    let client = api.client();
    let reporter = Reporter { controller: "weir-operator".into(), instance: Some("test".into()) };
    let recorder = Recorder::new(client.clone(), reporter);
    Context::new(Hands { client, admin, recorder, metrics: Metrics::default() }, "weir:default".to_owned())
}

fn disturb(disturbed: &Disturbed, violations: &Mutex<Vec<String>>, nodes: &Nodes, node: &str, how: &str) {
    let mut slot = disturbed.lock();
    let now = nodes.now_ms;
    // Removed, or back, in this very tick.
    let over = |other: &String| match nodes.records.get(other) {
        Some(r) => r.draining.is_none() && nodes.is_ready(&r.incarnation),
        None => true,
    };
    if slot.as_ref().is_some_and(|(other, _)| over(other)) {
        *slot = None;
    }
    // The session of a lost host's node may be ended beside one that drains, for that still votes, and serves.
    let drains = |other: &String| {
        nodes.serves(other)
            && nodes
                .records
                .get(other)
                .is_some_and(|r| nodes.processes.get(&r.incarnation).is_some_and(|p| !p.stopping))
    };
    match slot.as_ref() {
        Some((other, _)) if how == "fenced" && drains(other) => {}
        Some((other, since)) if other != node => {
            violations
                .lock()
                .push(format!("{node} was {how} while {other} has been disturbed since {since}"));
        }
        Some(_) => {}
        None => *slot = Some((node.to_owned(), now)),
    }
}

impl World {
    pub(crate) fn new(cluster: &Value, hosts: usize) -> Self {
        let api = Api::new();
        let (disturbed, violations) = (Disturbed::default(), Arc::default());
        let nodes = Arc::new(Mutex::new(Nodes::of(crate::fixtures::UID)));
        let context = Arc::new(context(&api, &nodes, &disturbed, &violations));
        let mut this = Self {
            api,
            nodes,
            context,
            down: BTreeMap::new(),
            hosts: (0..hosts).map(|n| format!("host-{n}")).collect(),
            bound: BTreeMap::new(),
            superseded: BTreeMap::new(),
            disturbed,
            violations,
            ip: 0,
        };
        this.hook();
        let mut store = this.api.store.lock();
        store.put("streamclusters", cluster.clone());
        for host in &this.hosts {
            let node = json!({"metadata": {"name": host}, "spec": {},
                "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
            store.put("nodes", node);
        }
        drop(store);
        this
    }

    /// Another operator process, which remembers nothing.
    pub(crate) fn another_operator(&self) -> Arc<Context> {
        Arc::new(context(&self.api, &self.nodes, &self.disturbed, &self.violations))
    }

    fn hook(&mut self) {
        let (nodes, disturbed, violations) =
            (self.nodes.clone(), self.disturbed.clone(), self.violations.clone());
        let told = move |key: &(String, String, String), object: &Value, _force: bool| {
            if key.0 != "pods" {
                return;
            }
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
            let nodes = nodes.lock();
            if !nodes.processes.contains_key(uid) || !object["metadata"]["deletionTimestamp"].is_null() {
                return;
            }
            // Where nobody answers, nobody knows; no node is ready then, and the volume stays.
            let blind = nodes.processes.values().all(|p| p.hangs);
            if !nodes.quorum_without(uid) && !blind {
                violations.lock().push(format!("deleting {} takes the majority away", key.2));
            }
            let registered = nodes.records.get(&key.2).is_some_and(|r| r.incarnation == uid);
            if registered && nodes.serves(&key.2) && nodes.has_quorum() {
                disturb(&disturbed, &violations, &nodes, &key.2, "stopped");
            }
        };
        self.api.store.lock().on_delete = Some(Box::new(told));
    }

    pub(crate) fn cluster(&self) -> StreamCluster {
        let value = self.api.store.lock().get("streamclusters", "demo").cloned().unwrap();
        serde_json::from_value(value).unwrap()
    }

    pub(crate) fn value(&self) -> Value {
        self.api.store.lock().get("streamclusters", "demo").cloned().unwrap()
    }

    pub(crate) fn edit(&self, change: impl FnOnce(&mut Value)) {
        self.api.store.lock().edit("streamclusters", "demo", change);
    }

    pub(crate) fn pod(&self, ordinal: u32) -> Option<Value> {
        self.api.store.lock().get("pods", &format!("demo-{ordinal}")).cloned()
    }

    pub(crate) fn pod_uids(&self) -> BTreeMap<String, String> {
        let pods = self.api.store.lock().all("pods");
        let uid = |v: &Value| v["metadata"]["uid"].as_str().unwrap().to_owned();
        pods.into_iter().map(|((_, _, name), v)| (name, uid(&v))).collect()
    }

    pub(crate) fn condition(&self, kind: &str) -> (String, String, String) {
        let value = self.value();
        let all = value["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|c| c["type"] == kind).cloned().unwrap_or(Value::Null);
        let text = |k: &str| found[k].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    pub(crate) fn now(&self) -> i64 {
        self.api.store.lock().now_ms
    }

    /// Time passes for everything but the operator.
    pub(crate) fn tick(&mut self, ms: i64) {
        self.api.store.lock().now_ms += ms;
        let now = self.now();
        {
            let spec = self.value()["spec"].clone();
            let mut nodes = self.nodes.lock();
            nodes.voters_wanted = usize::try_from(spec["metadata"]["voters"].as_u64().unwrap_or(3)).unwrap();
            nodes.tick(now);
        }
        self.hosts_tick(now);
        self.pods_tick(now);
        self.settle();
        let founded = self.nodes.lock().foundings;
        assert!(founded <= 1, "{founded} logs were founded");
    }

    fn hosts_tick(&mut self, now: i64) {
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

    fn pods_tick(&mut self, now: i64) {
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

    /// Somebody deletes a claim whose pod goes on.
    pub(crate) fn delete_volume(&self, ordinal: u32) {
        let claim = Self::claim_of(&self.pod(ordinal).unwrap());
        let mut store = self.api.store.lock();
        let time = store.time();
        store.edit("persistentvolumeclaims", &claim, |c| c["metadata"]["deletionTimestamp"] = json!(time));
    }

    fn claim_of(pod: &Value) -> String {
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
            store.get("nodes", host).is_some_and(|n| n["spec"]["unschedulable"] == true)
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

    /// The disturbed node is back, or gone for good.
    fn settle(&self) {
        let Some((node, since)) = self.disturbed.lock().clone() else { return };
        let spec = self.value()["spec"].clone();
        let ordinal: u64 = node.rsplit('-').next().unwrap().parse().unwrap();
        let replicas = spec["replicas"].as_u64().unwrap_or(3);
        let nodes = self.nodes.lock();
        let record = nodes.records.get(&node);
        let asked = spec["nodes"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|n| n["ordinal"] == ordinal && n["drain"] == true);
        let store = self.api.store.lock();
        let pod = store.get("pods", &node);
        let uid = pod.and_then(|p| p["metadata"]["uid"].as_str()).unwrap_or_default();
        let cordoned = pod
            .and_then(|p| store.get("nodes", p["spec"]["nodeName"].as_str()?))
            .is_some_and(|h| h["spec"]["unschedulable"] == true);
        let back = record.is_some_and(|r| {
            let undrained = r.draining.is_none() || ((asked || cordoned) && r.streams == 0);
            undrained && r.alive && r.incarnation == uid && nodes.is_ready(uid)
        });
        let gone = ordinal >= replicas && record.is_none() && pod.is_none();
        // An operation that has failed for so long is over.
        let for_good = |r: &crate::nodes::Record| (asked || cordoned) && r.streams == 0;
        let failed =
            nodes.now_ms - since >= 300_000 && record.is_none_or(|r| r.draining.is_none() || for_good(r));
        if back || gone || failed {
            *self.disturbed.lock() = None;
        }
    }

    /// One pass of an operator that may die after some actions.
    pub(crate) async fn pass_by(
        &self,
        context: &Context,
        actions: Option<i64>,
    ) -> Result<(std::time::Duration, Applied), PassError> {
        let left = AtomicI64::new(actions.unwrap_or(i64::MAX));
        let alive = move |point: &str| {
            let step = point.starts_with("before-") && point != "before-write-status";
            left.fetch_sub(i64::from(step), Ordering::Relaxed) > 0
        };
        self.pass_watched(context, Arc::new(alive)).await
    }

    /// One pass of an operator that dies where the watch says so.
    pub(crate) async fn pass_watched(
        &self,
        context: &Context,
        watch: Watch,
    ) -> Result<(std::time::Duration, Applied), PassError> {
        let (cluster, now) = (self.cluster(), self.now());
        let dead = AtomicBool::new(false);
        let alive = move |point: &str| {
            assert!(!dead.load(Ordering::Relaxed), "{point} was passed after the operator's death");
            let alive = watch(point);
            dead.store(!alive, Ordering::Relaxed);
            alive
        };
        WATCH.scope(Arc::new(alive), pass(&cluster, context, now)).await
    }

    pub(crate) async fn pass(&self) -> Applied {
        match self.pass_by(&self.context, None).await {
            Ok((_, applied)) => applied,
            Err(e) => panic!("{e}"),
        }
    }

    /// Time and passes.
    pub(crate) async fn steps(&mut self, n: usize) {
        for _ in 0..n {
            self.tick(STEP_MS);
            let _outcome = self.pass_by(&self.context.clone(), None).await;
            self.check();
        }
    }

    /// Steps until a condition holds.
    pub(crate) async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        for _ in 0..600 {
            if holds(self) {
                return;
            }
            self.steps(1).await;
        }
        panic!("never: {what}\n{}", self.describe());
    }

    pub(crate) fn is_ready(&self) -> bool {
        let value = self.value();
        let settled = value["status"]["observedGeneration"] == value["metadata"]["generation"];
        let kind = |k| self.condition(k).0;
        settled && kind("Ready") == "True" && kind("Progressing") == "False" && kind("SlotsSynced") == "True"
    }

    /// Ready, nothing to do, and nothing written over many passes.
    pub(crate) async fn at_rest(&mut self) {
        self.steps(2).await;
        self.until("ready", Self::is_ready).await;
        self.is_still("at rest").await;
    }

    /// Whatever it waits for: nothing is written over many passes, and nothing commanded.
    pub(crate) async fn is_still(&mut self, when: &str) {
        // Counts are still written about once a minute; the world's own streams are still.
        self.steps(3).await;
        let before = (self.api.store.lock().writes.len(), self.nodes.lock().commands);
        self.steps(15).await;
        let after = (self.api.store.lock().writes.len(), self.nodes.lock().commands);
        if before != after {
            let store = self.api.store.lock();
            let new: Vec<String> = store.writes[before.0..]
                .iter()
                .map(|w| format!("{} {}/{}", w.verb, w.resource, w.name))
                .collect();
            panic!("{when} {} commands and: {new:?}\n{}", after.1 - before.1, self.value()["status"]);
        }
    }

    pub(crate) fn check(&self) {
        let mut all = self.violations.lock().clone();
        all.extend(self.nodes.lock().violations.clone());
        assert!(all.is_empty(), "{all:#?}\n{}", self.describe());
    }

    pub(crate) fn describe(&self) -> String {
        let nodes = self.nodes.lock();
        let status = serde_json::to_string_pretty(&self.value()["status"]).unwrap();
        let pods: Vec<String> = self
            .api
            .store
            .lock()
            .all("pods")
            .iter()
            .map(|((_, _, n), p)| format!("{n} {} {}", p["metadata"]["uid"], p["status"]))
            .collect();
        format!(
            "now {}\nrecords {:#?}\nmembers {:#?}\nprocesses {:#?}\npods {pods:#?}\ndown {:?}\n{status}",
            nodes.now_ms, nodes.records, nodes.members, nodes.processes, self.down
        )
    }

    // What happens to it.

    /// A container's process dies and is started again.
    pub(crate) fn kill(&self, ordinal: u32) {
        let mut nodes = self.nodes.lock();
        if let Some(p) = nodes.processes.values_mut().find(|p| p.node == format!("demo-{ordinal}")) {
            p.epoch = None;
        }
    }

    /// Somebody deletes a pod without grace.
    pub(crate) fn lose_pod(&self, ordinal: u32) {
        let name = format!("demo-{ordinal}");
        let Some(pod) = self.pod(ordinal) else { return };
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        let host = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if !self.down.contains_key(host) {
            self.nodes.lock().processes.remove(uid);
        }
        self.api.store.lock().remove("pods", &name);
    }

    /// Pod and volume are gone.
    pub(crate) fn lose_volume(&self, ordinal: u32) {
        let Some(pod) = self.pod(ordinal) else { return };
        let claim = Self::claim_of(&pod);
        self.lose_pod(ordinal);
        self.api.store.lock().remove("persistentvolumeclaims", &claim);
    }

    pub(crate) fn lose_host(&mut self, host: &str) {
        let now = self.now();
        self.down.entry(host.to_owned()).or_insert(now);
    }

    /// The host is cut off from everything.
    pub(crate) fn cut(&self, host: &str) {
        self.nodes.lock().cut.insert(host.to_owned());
    }

    pub(crate) fn host_returns(&mut self, host: &str) {
        self.down.remove(host);
        self.nodes.lock().cut.remove(host);
    }

    /// The host is removed from the cluster, its pods with it.
    pub(crate) fn remove_host(&mut self, host: &str) {
        let of = |w: &Self, n: u32| w.pod(n).is_some_and(|p| p["spec"]["nodeName"] == host);
        for n in (0..10).filter(|n| of(self, *n)).collect::<Vec<_>>() {
            self.lose_pod(n);
        }
        self.hosts.retain(|h| h != host);
        self.api.store.lock().remove("nodes", host);
    }

    pub(crate) fn host_of(&self, ordinal: u32) -> String {
        self.pod(ordinal).unwrap()["spec"]["nodeName"].as_str().unwrap().to_owned()
    }

    pub(crate) fn give_streams(&self, each: u64) {
        for record in self.nodes.lock().records.values_mut() {
            record.streams = each;
        }
    }

    pub(crate) fn streams(&self) -> u64 {
        self.nodes.lock().records.values().map(|r| r.streams).sum()
    }
}
