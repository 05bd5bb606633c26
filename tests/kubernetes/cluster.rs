//! A StreamCluster in a namespace of its own, as its user, its nodes' clients and its administrator see it.
//!
//! Invariant: the namespace enforces restricted Pod Security; what the operator does is written down from the start
//! ([`disruptions`](crate::disruptions)) and judged at the end; a test that fails leaves behind what is needed to understand
//! it, on stdout, and the namespace goes all the same (unless `WEIR_KEEP_NAMESPACES` is set).

use std::process::Command;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::Method;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use weir_operator::crd::{ClusterState, NodeState, StreamCluster};
use weir_operator::names;
use weir_tests::client::{Answer, Client as Http, path};
use weir_tests::rng::{Rng, seed};
use weir_tests::wait;
use weir_tests::writers::{Plan, Writers, owner_of};

use crate::bed::{BUCKET, Bed, OPERATOR, address};
use crate::disruptions::{Log, is_ready};
use crate::watched::{LIMIT, Objects, Seen, Watched};

/// A moment's patience with a node's admin API; `asked` tries again.
const ADMIN: Duration = Duration::from_secs(5);
/// Namespaces and loads of one run of tests differ.
static MADE: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Cluster {
    pub(crate) bed: Bed,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The StreamCluster, alone under its name.
    pub(crate) watched: Watched<StreamCluster>,
    /// All pods of the namespace.
    pub(crate) pods: Watched<Pod>,
    events: Watched<Event>,
    /// Every state of the StreamCluster that the watch has shown, in order.
    pub(crate) history: Arc<Mutex<Vec<StreamCluster>>>,
    log: Log,
    /// When the watch has shown a change of any pod of the namespace, in milliseconds since 1970.
    pub(crate) changes: Arc<Mutex<Vec<i64>>>,
    /// Of the spec that the last patch made: what the watch shows of an older one is not looked at.
    generation: AtomicI64,
    /// Whether the namespace goes with this.
    owns_namespace: bool,
}

impl Cluster {
    /// A cluster of a scenario, ready. `spec` is laid over [`Cluster::least`].
    pub(crate) async fn start(scenario: &str, spec: Value) -> Result<Self> {
        let this = Self::prepare(scenario).await?;
        this.create(spec).await?;
        this.until_ready().await?;
        Ok(this)
    }

    /// A namespace with the bucket's Secret and nothing else. The cluster will be called `t`.
    pub(crate) async fn prepare(scenario: &str) -> Result<Self> {
        let bed = Bed::get().await?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("e2e-{scenario}-{:x}-{number}", std::process::id());
        println!("namespace {namespace}");
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted", "weir.dev/test": scenario});
        bed.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace, "labels": labels},
        }))
        .await?;
        let this = Self::watch(bed, namespace, "t", true);
        this.bed.apply(&this.secret("bucket")).await?;
        Ok(this)
    }

    /// Another cluster in the same namespace; nothing is made yet.
    pub(crate) fn beside(&self, name: &str) -> Self {
        Self::watch(self.bed.clone(), self.namespace.clone(), name, false)
    }

    fn watch(bed: Bed, namespace: String, name: &str, owns_namespace: bool) -> Self {
        let log = Log::new();
        let (name, client) = (name.to_owned(), bed.client.clone());
        let history = Arc::new(Mutex::new(Vec::new()));
        let (own, mine, states) = (log.clone(), name.clone(), history.clone());
        let watched = Watched::start(Api::namespaced(client.clone(), &namespace), move |seen| {
            own.cluster_named(&mine, &seen);
            if let Seen::There(cluster) = seen {
                let cluster: &StreamCluster = cluster;
                if cluster.name_any() == mine {
                    states.lock().unwrap().push(cluster.clone());
                }
            }
        });
        let changes = Arc::new(Mutex::new(Vec::new()));
        let (own, mine, times) = (log.clone(), name.clone(), changes.clone());
        let pods = Watched::start(Api::namespaced(client.clone(), &namespace), move |seen| {
            own.pod_of(&mine, &seen);
            times.lock().unwrap().push(Timestamp::now().as_millisecond());
        });
        let events = Watched::start(Api::namespaced(client, &namespace), |_| {});
        Self {
            bed,
            namespace,
            name,
            watched,
            pods,
            events,
            history,
            log,
            changes,
            generation: AtomicI64::new(0),
            owns_namespace,
        }
    }

    /// The bucket's credentials, as a Secret of this namespace.
    pub(crate) fn secret(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": self.namespace},
            "stringData": {
                "AWS_ACCESS_KEY_ID": "quickstart",
                "AWS_SECRET_ACCESS_KEY": "not-a-secret-for-anything-real",
            },
        })
    }

    /// The least that a spec must say here: a place of its own in the bucket that all tests share.
    pub(crate) fn least(&self) -> Value {
        json!({"objectStore": {
            "bucket": "weir",
            "prefix": format!("{}/{}", self.namespace, self.name),
            "endpoint": format!("http://bucket.{BUCKET}.svc:7070"),
            "credentials": {"secretName": "bucket"},
        }})
    }

    fn over_least(&self, spec: Value) -> Value {
        let mut all = self.least();
        for (field, value) in spec.as_object().into_iter().flatten() {
            all[field] = value.clone();
        }
        all
    }

    /// Creates the StreamCluster; top-level fields of `spec` replace those of [`Cluster::least`].
    pub(crate) async fn create(&self, spec: Value) -> Result<()> {
        self.bed.apply(&self.manifest(self.over_least(spec))).await
    }

    /// The StreamCluster with this spec, and nothing laid under it.
    pub(crate) fn manifest(&self, spec: Value) -> Value {
        json!({
            "apiVersion": "weir.dev/v1alpha1", "kind": "StreamCluster",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": spec,
        })
    }

    /// `kubectl patch --type merge`.
    pub(crate) async fn patch(&self, patch: Value) -> Result<()> {
        let now = self.bed.patch::<StreamCluster>(&self.namespace, &self.name, &patch).await?;
        self.generation.fetch_max(now.metadata.generation.unwrap_or(0), Ordering::SeqCst);
        Ok(())
    }

    /// `kubectl` in the namespace.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let all: Vec<&str> = ["-n", &self.namespace].iter().chain(args).copied().collect();
        self.bed.kubectl(&all).await
    }

    // What the API shows.

    /// Waits until `look` gives something of the StreamCluster, whose spec is as it was last patched.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        mut look: impl FnMut(&StreamCluster) -> Option<T>,
    ) -> Result<T> {
        let least = self.generation.load(Ordering::SeqCst);
        let current = |c: &&Arc<StreamCluster>| c.metadata.generation.unwrap_or(0) >= least;
        let found = self.watched.until(what, |all| look(all.get(&self.name).filter(current)?)).await;
        found.with_context(|| self.told())
    }

    /// Waits until all is as the spec of now wants it.
    pub(crate) async fn until_ready(&self) -> Result<StreamCluster> {
        let ready = self.until("the cluster to be ready", |c| is_as_wanted(c).then(|| c.clone())).await?;
        let replicas = ready.spec.replicas as usize;
        self.until_pods("all pods to be ready", |pods| {
            (pods.len() == replicas && pods.values().all(|p| is_ready(p))).then_some(())
        })
        .await?;
        Ok(ready)
    }

    /// Waits until a condition has a status and, if it is not empty, a reason; gives its message.
    pub(crate) async fn until_condition(&self, kind: &str, status: &str, reason: &str) -> Result<String> {
        self.until(&format!("{kind}={status} {reason}"), |c| {
            let mut all = c.status.iter().flat_map(|s| &s.conditions);
            let found = all.find(|c| c.type_ == kind && c.status == status)?;
            (reason.is_empty() || found.reason == reason).then(|| found.message.clone())
        })
        .await
    }

    /// Waits until `look` gives something of the cluster's pods, by name.
    pub(crate) async fn until_pods<T>(
        &self,
        what: &str,
        mut look: impl FnMut(&Objects<Pod>) -> Option<T>,
    ) -> Result<T> {
        let of_this = |all: &Objects<Pod>| {
            let ours = all.iter().filter(|(_, p)| p.labels().get(names::CLUSTER) == Some(&self.name));
            ours.map(|(n, p)| (n.clone(), p.clone())).collect::<Objects<Pod>>()
        };
        self.pods.until(what, |all| look(&of_this(all))).await.with_context(|| self.told())
    }

    /// What the status says in a line, for errors.
    pub(crate) fn told(&self) -> String {
        let Some(cluster) = self.watched.now().get(&self.name).cloned() else {
            return "there is no StreamCluster".to_owned();
        };
        let status = cluster.status.clone().unwrap_or_default();
        format!("the cluster says {:?} {}: {}", status.state, status.ready, status.message)
    }

    /// The StreamCluster as it is.
    pub(crate) fn now(&self) -> Result<StreamCluster> {
        let found = self.watched.now().get(&self.name).map(|c| (**c).clone());
        found.context("there is no StreamCluster")
    }

    /// What the status says of a node.
    pub(crate) fn node(&self, ordinal: u32) -> Result<NodeState> {
        node_of(&self.now()?, ordinal).cloned().with_context(|| format!("the status names no node {ordinal}"))
    }

    /// A node's pod as it is.
    pub(crate) fn pod(&self, ordinal: u32) -> Result<Pod> {
        let name = names::pod(&self.name, ordinal);
        self.pods.now().get(&name).map(|p| (**p).clone()).with_context(|| format!("there is no pod {name}"))
    }

    /// Each pod's UID and its containers' restarts: whatever restarts a node changes it.
    pub(crate) fn lives(&self) -> Vec<(String, String, i32)> {
        let pods = self.pods.now();
        let ours = pods.values().filter(|p| p.labels().get(names::CLUSTER) == Some(&self.name));
        ours.map(|pod| (pod.name_any(), pod.uid().unwrap_or_default(), restarts(pod))).collect()
    }

    /// Waits for an event of the StreamCluster whose text `fits`; gives it.
    pub(crate) async fn event(&self, reason: &str, fits: impl Fn(&str) -> bool) -> Result<String> {
        self.events
            .until(&format!("an event {reason}"), |all| {
                let ours = all.values().filter(|e| e.reason.as_deref() == Some(reason));
                let about = |e: &&Arc<Event>| {
                    e.regarding.as_ref().is_some_and(|r| r.name.as_ref() == Some(&self.name))
                };
                ours.filter(about).filter_map(|e| e.note.clone()).find(|note| fits(note))
            })
            .await
            .with_context(|| format!("the events are {:#?}", self.notes()))
    }

    /// Reasons and texts of all events so far.
    pub(crate) fn notes(&self) -> Vec<(String, String)> {
        let all = self.events.now();
        let text =
            |e: &Arc<Event>| (e.reason.clone().unwrap_or_default(), e.note.clone().unwrap_or_default());
        all.values().map(text).collect()
    }

    // What nodes say.

    /// Where clients reach a node.
    pub(crate) fn door(&self, ordinal: u32) -> String {
        self.node_address(ordinal, names::HTTP_PORT)
    }

    /// Where clients reach any node.
    pub(crate) fn front_door(&self) -> String {
        address(&self.name, &self.namespace, names::HTTP_PORT)
    }

    pub(crate) fn node_address(&self, ordinal: u32, port: u16) -> String {
        let host = format!("{}.{}", names::pod(&self.name, ordinal), names::headless(&self.name));
        address(&host, &self.namespace, port)
    }

    /// What a node's admin API answers, at the first try.
    pub(crate) async fn admin(
        &self,
        ordinal: u32,
        method: Method,
        target: &str,
        body: &Value,
    ) -> Result<Answer> {
        let token = self.token().await?;
        let http = Http::new(&self.node_address(ordinal, names::ADMIN_PORT), ADMIN);
        let (authorization, text) = (format!("Bearer {token}"), body.to_string());
        let mut headers = vec![("authorization", authorization.as_str())];
        let mut content = Bytes::new();
        if !body.is_null() {
            headers.push(("content-type", "application/json"));
            content = text.into();
        }
        let answer = http.send(method, target, &headers, content).await;
        answer.map_err(|e| anyhow::anyhow!("{target} of node {ordinal}: {e:?}"))
    }

    async fn token(&self) -> Result<String> {
        let api: Api<Secret> = Api::namespaced(self.bed.client.clone(), &self.namespace);
        let secret = api.get(&names::tokens(&self.name)).await?;
        let tokens = secret.data.unwrap_or_default().remove("tokens").context("the Secret's key `tokens`")?;
        let text = String::from_utf8(tokens.0)?;
        Ok(text.lines().next().context("a token")?.to_owned())
    }

    /// What the cluster's record says, by any node that answers: JSON of a GET.
    pub(crate) async fn asked(&self, target: &str) -> Result<Value> {
        let answered = || async {
            let nodes = self.watched.now().get(&self.name).map_or(0, |c| c.spec.replicas);
            for ordinal in 0..nodes {
                match self.admin(ordinal, Method::GET, target, &Value::Null).await {
                    Ok(answer) if answer.status == 200 => {
                        return Ok(Some(serde_json::from_slice(&answer.body)?));
                    }
                    _ => {}
                }
            }
            Ok(None)
        };
        wait::until(&format!("an answer to {target}"), LIMIT, answered).await
    }

    /// Ids of the voters and of the learners of the metadata log, by the word of its leader.
    pub(crate) async fn members(&self) -> Result<(Vec<u64>, Vec<u64>)> {
        let told = self.asked("/admin/members").await?;
        let of = |voter: bool| {
            let all = told["members"].as_array().into_iter().flatten();
            let mut ids: Vec<u64> =
                all.filter(|m| m["voter"] == voter).filter_map(|m| m["raftId"].as_u64()).collect();
            ids.sort_unstable();
            ids
        };
        ensure!(told["members"].is_array(), "members: {told}");
        Ok((of(true), of(false)))
    }

    /// The number of the node that owns a stream.
    pub(crate) async fn owner(&self, stream: &str) -> Result<usize> {
        let about = self.asked(&format!("/admin/streams/{stream}")).await?;
        let node = owner_of(&about)?;
        Ok(names::ordinal_of(&self.name, node).with_context(|| node.to_owned())? as usize)
    }

    /// A stream of bytes that a node owns, and nobody writes to.
    pub(crate) async fn stream_of(&self, ordinal: u32) -> Result<String> {
        let client = Http::new(&self.front_door(), ADMIN).following(true);
        for _ in 0..60 {
            let name = format!("quiet-{}", MADE.fetch_add(1, Ordering::Relaxed));
            let bytes = [("content-type", "application/octet-stream")];
            let made = || async {
                let answer = client.send(Method::PUT, &path(&name), &bytes, Bytes::new()).await;
                Ok(answer.is_ok_and(|a| matches!(a.status, 200 | 201)).then_some(()))
            };
            wait::until(&format!("{name} to be created"), LIMIT, made).await?;
            if self.owner(&name).await? == ordinal as usize {
                return Ok(name);
            }
        }
        bail!("none of sixty streams is node {ordinal}'s")
    }

    /// All that a stream holds.
    pub(crate) async fn read(&self, stream: &str) -> Result<Bytes> {
        let client = Http::new(&self.front_door(), ADMIN).following(true);
        let target = format!("{}?offset=-1", path(stream));
        let said = || async {
            let answer = client.send(Method::GET, &target, &[], Bytes::new()).await;
            Ok(answer.ok().filter(|a| a.status == 200).map(|a| a.body))
        };
        wait::until(&format!("{stream} to be read"), LIMIT, said).await
    }

    // What is done to it.

    /// Load on every node, through every node's name and the Service, following redirects; every request is written down.
    pub(crate) async fn load(&self) -> Result<Writers> {
        let seed = seed();
        println!("WEIR_SEED={seed}");
        let nodes = self.now()?.spec.replicas;
        let mut doors: Vec<_> = (0..nodes).map(|n| self.door(n)).collect();
        doors.push(self.front_door());
        let streams = format!("load-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let plan = Plan { doors, streams, nodes: nodes as usize, follow: true, patience: LIMIT };
        Writers::start(plan, Rng::new(seed), async |stream| self.owner(stream).await).await
    }

    /// Deletes a node's pod; at once with `force`. It is no deed of the operator.
    pub(crate) async fn delete_pod(&self, ordinal: u32, force: bool) -> Result<()> {
        let pod = self.pod(ordinal)?;
        self.log.ours(&pod.uid().unwrap_or_default());
        let params = if force { DeleteParams::default().grace_period(0) } else { DeleteParams::default() };
        let api: Api<Pod> = Api::namespaced(self.bed.client.clone(), &self.namespace);
        api.delete(&pod.name_any(), &params).await?;
        Ok(())
    }

    /// The test itself is about to end this pod, in whatever way.
    pub(crate) fn expect_end_of(&self, pod: &Pod) {
        self.log.ours(&pod.uid().unwrap_or_default());
    }

    /// Waits until a node is registered at a greater epoch than `before`, by the status; gives what it says of it.
    pub(crate) async fn until_replaced(&self, before: &NodeState) -> Result<NodeState> {
        self.until(&format!("a greater epoch of {}", before.name), |c| {
            let now = node_of(c, before.ordinal)?;
            (now.epoch > before.epoch && now.ready).then(|| now.clone())
        })
        .await
    }

    /// Holds everything to what was promised: to clients, and of the operator. Then the namespace goes.
    pub(crate) async fn end(self, load: Option<Writers>) -> Result<()> {
        if let Some(writers) = load {
            let count = writers.verify().await?;
            ensure!(count.acknowledged > 0, "nothing was acknowledged");
        }
        let wrong = self.log.verdict();
        if !wrong.is_empty() {
            bail!("two disruptions at once (I10):\n{}", wrong.join("\n"));
        }
        Ok(())
    }
}

/// Whether the status speaks of the spec of now, and says that all is as that wants it.
pub(crate) fn is_as_wanted(cluster: &StreamCluster) -> bool {
    let Some(status) = &cluster.status else { return false };
    let current = status.observed_generation == cluster.metadata.generation;
    let all = status.ready_replicas == cluster.spec.replicas && status.replicas == cluster.spec.replicas;
    current && all && status.state == Some(ClusterState::Ready)
}

pub(crate) fn node_of(cluster: &StreamCluster, ordinal: u32) -> Option<&NodeState> {
    cluster.status.as_ref()?.nodes.iter().find(|n| n.ordinal == ordinal)
}

/// How often the containers of a pod were started anew.
pub(crate) fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
    statuses.map(|c| c.restart_count).sum()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.owns_namespace {
            return;
        }
        if std::thread::panicking() {
            self.report();
        }
        if std::env::var_os("WEIR_KEEP_NAMESPACES").is_none() {
            kubectl(&["delete", "namespace", &self.namespace, "--wait=false"]);
        }
    }
}

impl Cluster {
    /// For whoever has to find out why a test failed.
    pub(crate) fn report(&self) {
        let n = self.namespace.as_str();
        for args in [
            &["-n", n, "get", "strc,pods,pvc", "-o", "wide"] as &[&str],
            &["-n", n, "get", "strc", "-o", "jsonpath={range .items[*]}{.status}{\"\\n\"}{end}"],
            &["-n", n, "get", "events", "--sort-by=.metadata.creationTimestamp"],
            &["get", "nodes"],
            &["-n", OPERATOR, "get", "pods", "-o", "wide"],
            &["-n", OPERATOR, "logs", "-l", crate::bed::OPERATOR_LABELS, "--tail", "150"],
            &["-n", n, "logs", "-l", names::CLUSTER, "--tail", "40", "--prefix", "--ignore-errors"],
        ] {
            println!("--- kubectl {}", args.join(" "));
            kubectl(args);
        }
    }
}

fn kubectl(args: &[&str]) {
    let output = Command::new("kubectl").arg("--request-timeout=20s").args(args).output();
    match output {
        Ok(o) => println!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr)),
        Err(error) => println!("kubectl {args:?}: {error}"),
    }
}
