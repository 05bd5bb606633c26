//! A Kubernetes with Weir's nodes in it, in memory and in made-up time, and the operator's passes over it.
//!
//! What the operator must never do is checked where it does it: two nodes disturbed at once, voters below a majority,
//! a node removed before it was drained (in `nodes`), a second founding.

mod disturbed;
mod hosts;
mod line;
mod mishaps;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_operator::apply::Applied;
use weir_operator::controller::{Context, PassError, pass};
use weir_operator::crd::StreamCluster;
use weir_operator::fault::{WATCH, Watch};

use self::disturbed::Disturbed;
use self::line::context;
use crate::api::Api;
use crate::nodes::Nodes;

/// A step of made-up time.
pub(crate) const STEP_MS: i64 = 2_000;

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

impl World {
    pub(crate) fn new(cluster: &Value, hosts: usize) -> Self {
        let api = Api::new();
        let (disturbed, violations) = (Disturbed::default(), Arc::default());
        let nodes = Arc::new(Mutex::new(Nodes::of(crate::fixtures::UID)));
        let context = Arc::new(context(&api, &nodes, &disturbed, &violations));
        let this = Self {
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

    /// Reasons and texts of all events, the oldest first: their names hold the time.
    pub(crate) fn notes(&self) -> Vec<(String, String)> {
        let text = |e: &Value, field: &str| e[field].as_str().unwrap().to_owned();
        let all = self.api.store.lock().all("events");
        all.iter().map(|(_, e)| (text(e, "reason"), text(e, "note"))).collect()
    }

    /// Texts of the events of a reason.
    pub(crate) fn told(&self, reason: &str) -> Vec<String> {
        self.notes().into_iter().filter(|(r, _)| r == reason).map(|(_, text)| text).collect()
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
