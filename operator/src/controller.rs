//! The loop: what happens wakes it, and each pass is observe, plan, apply.
//!
//! Invariant: one pass per StreamCluster at a time, four at once, each with a deadline; a pass remembers nothing for the next
//! but when counts and when anything was written last, and how often it has failed; what fails, and what is waited for, is
//! looked at later and later, with jitter. Called by `run`.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::controller::{Action, Config, Controller, Error as Missed};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Predicate as _, WatchStreamExt as _, predicates, reflector, watcher};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::apply::{Applied, Failure, Hands};
use crate::crd::StreamCluster;
use crate::names;
use crate::observe::{self, ObserveError};
use crate::plan::{Settings, plan};
use crate::status::differs_but_for_counts;

/// A burst of events makes one pass; an edit is still on its way within a second.
const DEBOUNCE: Duration = Duration::from_millis(150);
/// What a pass may take, whatever hangs. One that is cut off is as one whose operator died: the next goes on.
const BUDGET: Duration = Duration::from_secs(60);
/// So many passes in a row may fail to read before the status says that nothing is known.
const BLIND: u32 = 3;
/// Where something is waited for, the pause is this part of the time for which nothing has changed.
const PART_WAITED: u32 = 10;
/// The longest such pause: what is waited for may be nothing that is watched.
const PAUSE_WAITING: Duration = Duration::from_secs(30);
/// Passes at once, over all StreamClusters.
const AT_ONCE: u16 = 4;
/// Counts are written about this often.
const COUNTS: Duration = Duration::from_secs(60);
/// The pause after a first failure; it doubles.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after what goes by itself.
const PAUSE_PASSING: Duration = Duration::from_secs(10);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(120);

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// Nothing could be read.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// Something could not be done.
    #[error("{0}")]
    Apply(Failure),
    /// It took too long.
    #[error("not done in {} s", BUDGET.as_secs())]
    Late,
}

/// What passes share.
#[derive(Debug)]
pub struct Context {
    /// What carries out plans.
    pub hands: Hands,
    /// The image of clusters that name none.
    pub default_image: String,
    memory: Mutex<HashMap<ObjectRef<StreamCluster>, Memory>>,
}

/// What one pass leaves to the next. Losing it costs a status write.
#[derive(Debug, Clone, Default)]
struct Memory {
    failures: u32,
    counts_written: Option<Instant>,
    changed: Option<Instant>,
}

impl Context {
    /// Nothing remembered yet.
    pub fn new(hands: Hands, default_image: String) -> Self {
        Self { hands, default_image, memory: Mutex::default() }
    }

    fn remember(&self, cluster: &StreamCluster, change: impl FnOnce(&mut Memory)) -> Memory {
        let mut memory = self.memory.lock();
        let entry = memory.entry(ObjectRef::from_obj(cluster)).or_default();
        change(entry);
        entry.clone()
    }

    /// A cluster is gone, and what was said of it.
    fn forget(&self, namespace: &str, name: &str) {
        self.memory.lock().remove(&ObjectRef::<StreamCluster>::new(name).within(namespace));
        self.hands.metrics.forget((namespace, name));
    }
}

/// One pass, at this time.
pub async fn pass(
    cluster: &StreamCluster,
    context: &Context,
    now_ms: i64,
) -> Result<(Duration, Applied), PassError> {
    let hands = &context.hands;
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let Some(cluster) = observe::fresh(&hands.client, &namespace, &name).await? else {
        context.forget(&namespace, &name);
        return Ok((PAUSE_MAX, Applied::default()));
    };
    let seen = match Box::pin(observe::observe(&hands.client, &hands.admin, &cluster, now_ms)).await {
        Ok(seen) => seen,
        Err(error) => {
            if context.remember(&cluster, |_| ()).failures + 1 >= BLIND {
                hands.tell_unknown(&cluster, &error.to_string(), now_ms).await;
            }
            return Err(error.into());
        }
    };
    let due = context.remember(&cluster, |_| ()).counts_written.is_none_or(|at| at.elapsed() >= COUNTS);
    let settings = Settings { default_image: context.default_image.clone(), refresh_counts: due };
    let planned = plan(&cluster, &seen.observed, &settings);
    let mut only_counts = true;
    if let Some(status) = &planned.status {
        let count = |state, n| hands.metrics.nodes((&namespace, &name), state, n);
        count("wanted", cluster.spec.replicas);
        count("ready", status.ready_replicas);
        count("updated", status.updated_replicas);
        only_counts = cluster.status.as_ref().is_some_and(|had| !differs_but_for_counts(had, status));
        if due && (!only_counts || cluster.status.as_ref() != Some(status)) {
            context.remember(&cluster, |m| m.counts_written = Some(Instant::now()));
        }
    }
    let again = planned.again;
    let acts = !planned.actions.is_empty();
    let applied = hands.apply(&cluster, &seen.targets, seen.at, planned).await;
    let memory = context.remember(&cluster, |m| {
        if acts || !only_counts || m.changed.is_none() {
            m.changed = Some(Instant::now());
        }
    });
    let waited = memory.changed.map_or(Duration::ZERO, |at| at.elapsed());
    let again = again.max((waited / PART_WAITED).min(PAUSE_WAITING));
    Ok((again, applied))
}

async fn reconcile(cluster: Arc<StreamCluster>, context: Arc<Context>) -> Result<Action, PassError> {
    let began = Instant::now();
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let outcome = match tokio::time::timeout(BUDGET, pass(&cluster, &context, now_ms)).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => Err(PassError::Late),
    };
    let (result, writes) = match outcome {
        // The worst one decides when to look again.
        Ok((again, Applied { writes, failures })) => match failures.into_iter().max_by_key(|f| !f.passing) {
            Some(failure) => (Err(PassError::Apply(failure)), writes),
            None => (Ok(again), writes),
        },
        Err(e) => (Err(e), 0),
    };
    context.hands.metrics.reconciled(result.is_ok(), began.elapsed(), writes);
    let again = result?;
    context.remember(&cluster, |m| m.failures = 0);
    Ok(Action::requeue(jittered(again)))
}

fn after_failure(cluster: Arc<StreamCluster>, error: &PassError, context: Arc<Context>) -> Action {
    let memory = context.remember(&cluster, |m| m.failures = m.failures.saturating_add(1));
    let pause = PAUSE.saturating_mul(1 << memory.failures.saturating_sub(1).min(10)).min(PAUSE_MAX);
    let failures = memory.failures;
    let pause = match error {
        // Told already; what goes by itself is looked at again soon.
        PassError::Apply(failure) if failure.passing => pause.min(PAUSE_PASSING),
        PassError::Apply(_) | PassError::Observe(_) | PassError::Late => {
            tracing::warn!(cluster = %cluster.name_any(), %error, failures, "pass failed");
            pause
        }
    };
    Action::requeue(jittered(pause))
}

/// Up to a fifth longer, so that clusters do not come in step.
fn jittered(pause: Duration) -> Duration {
    let drawn = RandomState::new().hash_one(0u8) % 200;
    pause + pause * u32::try_from(drawn).unwrap_or(0) / 1000
}

/// Runs until `stop`, then finishes the passes that are under way. `namespace`: only there.
pub async fn run(client: Client, context: Arc<Context>, namespace: Option<String>, stop: CancellationToken) {
    let clusters: Api<StreamCluster> = match &namespace {
        Some(ns) => Api::namespaced(client.clone(), ns),
        None => Api::all(client.clone()),
    };
    let pods: Api<PartialObjectMeta<Pod>> = match &namespace {
        Some(ns) => Api::namespaced(client.clone(), ns),
        None => Api::all(client.clone()),
    };
    let claims: Api<PartialObjectMeta<PersistentVolumeClaim>> = match &namespace {
        Some(ns) => Api::namespaced(client.clone(), ns),
        None => Api::all(client.clone()),
    };
    let (reader, writer) = reflector::store();
    let changed = predicates::generation.combine(predicates::annotations).combine(predicates::finalizers);
    let trigger = watcher(clusters, watcher::Config::default())
        .default_backoff()
        .modify(|c| {
            c.managed_fields_mut().clear();
            // Passes read it afresh.
            c.status = None;
        })
        .reflect(writer)
        .applied_objects()
        .predicate_filter(changed, predicates_config());
    let ours = watcher::Config::default().labels(names::CLUSTER);
    let forgetting = context.clone();
    Controller::for_stream(trigger, reader)
        .with_config(Config::default().debounce(DEBOUNCE).concurrency(AT_ONCE))
        .owns(pods, ours.clone())
        .watches(claims, ours, |claim| {
            let cluster = claim.labels().get(names::CLUSTER).cloned();
            let namespace = claim.namespace();
            cluster.zip(namespace).map(|(name, ns)| ObjectRef::<StreamCluster>::new(&name).within(&ns))
        })
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(reconcile, after_failure, context)
        .for_each(|done| {
            // Of one that the watch has seen going there is no pass any more.
            if let Err(Missed::ObjectNotFound(gone)) = done {
                forgetting.forget(gone.namespace.as_deref().unwrap_or_default(), &gone.name);
            }
            std::future::ready(())
        })
        .await;
}

fn predicates_config() -> kube::runtime::PredicateConfig {
    kube::runtime::PredicateConfig::default()
}
