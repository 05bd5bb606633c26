//! The loop: what happens wakes it, and each pass is observe, plan, apply.
//!
//! Invariant: one pass per StreamCluster at a time, each with a deadline; many at once, in the order in which they were due,
//! for most of one may be waiting for nodes that hang. A StreamCluster that cannot be read stops no other. A pass remembers
//! nothing for the next but when counts and when anything was written last, and how often it has failed; all that is
//! remembered or shown of a StreamCluster goes with it. What fails, and what is waited for, is looked at later and later, with
//! jitter. Called by `run`.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::controller::{Action, Config, Controller, Error as Missed};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Predicate as _, WatchStreamExt as _, predicates, reflector, watcher};
use kube::{Client, Resource, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::apply::{Applied, Failure, Hands};
use crate::crd::StreamCluster;
use crate::names;
use crate::observe::{self, Fresh, ObserveError};
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
/// Passes at once, over all StreamClusters. One whose nodes hang takes some seconds, and two connections to each of them.
const AT_ONCE: usize = 128;
/// Those of them that read from the API server, each with some fifteen calls.
const READING: usize = 16;
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
    /// It was written for another version of the operator.
    #[error("{0}")]
    Unreadable(String),
}

/// As much of a StreamCluster as every version of it can be read by.
type Meta = PartialObjectMeta<StreamCluster>;

/// What passes share.
#[derive(Debug)]
pub struct Context {
    /// What carries out plans.
    pub hands: Hands,
    /// The image of clusters that name none.
    pub default_image: String,
    memory: Mutex<HashMap<ObjectRef<StreamCluster>, Memory>>,
    // Both give turns in the order in which they were asked for; kube's own limit gives them to anybody.
    passing: Semaphore,
    reading: Semaphore,
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
        let (passing, reading) = (Semaphore::new(AT_ONCE), Semaphore::new(READING));
        Self { hands, default_image, memory: Mutex::default(), passing, reading }
    }

    fn remember(&self, cluster: &impl ResourceExt, change: impl FnOnce(&mut Memory)) -> Memory {
        let mut memory = self.memory.lock();
        let of = ObjectRef::new(&cluster.name_any()).within(&cluster.namespace().unwrap_or_default());
        let entry = memory.entry(of).or_default();
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
    cluster: &impl ResourceExt,
    context: &Context,
    now_ms: i64,
) -> Result<(Duration, Applied), PassError> {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let turn = context.reading.acquire().await.ok();
    let pass = Box::pin(pass_over((&namespace, &name), context, now_ms, turn));
    tokio::time::timeout(BUDGET, pass).await.unwrap_or(Err(PassError::Late))
}

async fn pass_over(
    (namespace, name): (&str, &str),
    context: &Context,
    now_ms: i64,
    turn: Option<SemaphorePermit<'_>>,
) -> Result<(Duration, Applied), PassError> {
    let hands = &context.hands;
    let cluster = match observe::fresh(&hands.client, namespace, name).await? {
        Fresh::Read(cluster) => *cluster,
        Fresh::Gone => {
            context.forget(namespace, name);
            return Ok((PAUSE_MAX, Applied::default()));
        }
        Fresh::Unreadable(object, why) => {
            hands.tell_unreadable(&object, &why, now_ms).await;
            return Err(PassError::Unreadable(why));
        }
    };
    let seen = match Box::pin(observe::observe(&hands.client, &hands.admin, &cluster, now_ms, turn)).await {
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
    match &planned.status {
        Some(status) => {
            let count = |state, n| hands.metrics.nodes((namespace, name), state, n);
            count("wanted", cluster.spec.replicas);
            count("ready", status.ready_replicas);
            count("updated", status.updated_replicas);
            only_counts = cluster.status.as_ref().is_some_and(|had| !differs_but_for_counts(had, status));
            if due && cluster.status.as_ref() != Some(status) {
                context.remember(&cluster, |m| m.counts_written = Some(Instant::now()));
            }
        }
        // It is being deleted: nobody waits for its nodes.
        None => hands.metrics.forget((namespace, name)),
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

async fn reconcile(
    cluster: Arc<Meta>,
    context: Arc<Context>,
    stop: CancellationToken,
) -> Result<Action, PassError> {
    let _turn = tokio::select! {
        turn = context.passing.acquire() => turn.ok(),
        // Nothing was begun yet.
        () = stop.cancelled() => return Ok(Action::await_change()),
    };
    let began = Instant::now();
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let (result, writes) = match pass(&*cluster, &context, now_ms).await {
        // The worst one decides when to look again.
        Ok((again, Applied { writes, failures })) => match failures.into_iter().max_by_key(|f| !f.passing) {
            Some(failure) => (Err(PassError::Apply(failure)), writes),
            None => (Ok(again), writes),
        },
        Err(e) => (Err(e), 0),
    };
    context.hands.metrics.reconciled(result.is_ok(), began.elapsed(), writes);
    let again = result?;
    context.remember(&*cluster, |m| m.failures = 0);
    Ok(Action::requeue(jittered(again)))
}

fn after_failure(cluster: Arc<Meta>, error: &PassError, context: Arc<Context>) -> Action {
    let memory = context.remember(&*cluster, |m| m.failures = m.failures.saturating_add(1));
    let pause = PAUSE.saturating_mul(1 << memory.failures.saturating_sub(1).min(10)).min(PAUSE_MAX);
    let failures = memory.failures;
    let pause = match error {
        // Told already; what goes by itself is looked at again soon.
        PassError::Apply(failure) if failure.passing => pause.min(PAUSE_PASSING),
        PassError::Apply(_) | PassError::Observe(_) | PassError::Late | PassError::Unreadable(_) => {
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

/// In one namespace, or in all.
fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Runs until `stop`, then finishes the passes that are under way. `namespace`: only there.
pub async fn run(client: Client, context: Arc<Context>, namespace: Option<String>, stop: CancellationToken) {
    let namespace = namespace.as_deref();
    let pods = api::<PartialObjectMeta<Pod>>(&client, namespace);
    let claims = api::<PartialObjectMeta<PersistentVolumeClaim>>(&client, namespace);
    let (reader, writer) = reflector::store();
    let changed = predicates::generation.combine(predicates::annotations).combine(predicates::finalizers);
    let (going, missing) = (context.clone(), context.clone());
    // Passes read it afresh.
    let trigger = watcher(api::<Meta>(&client, namespace), watcher::Config::default())
        .default_backoff()
        .modify(|c| c.managed_fields_mut().clear())
        .reflect(writer)
        .inspect(move |event| {
            if let Ok(watcher::Event::Delete(gone)) = event {
                going.forget(&gone.namespace().unwrap_or_default(), &gone.name_any());
            }
        })
        .applied_objects()
        .predicate_filter(changed, predicates_config());
    let ours = watcher::Config::default().labels(names::CLUSTER);
    Controller::for_stream(trigger, reader)
        // How many run at once is the passes' own matter.
        .with_config(Config::default().debounce(DEBOUNCE))
        .owns(pods, ours.clone())
        .watches(claims, ours, |claim| {
            let cluster = claim.labels().get(names::CLUSTER).cloned();
            let namespace = claim.namespace();
            cluster.zip(namespace).map(|(name, ns)| ObjectRef::<Meta>::new(&name).within(&ns))
        })
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(move |cluster, context| reconcile(cluster, context, stop.clone()), after_failure, context)
        .for_each(|done| {
            told(&missing, done.err());
            std::future::ready(())
        })
        .await;
}

/// What came of a pass, or instead of one.
fn told(context: &Context, missed: Option<Missed<PassError, watcher::Error>>) {
    match missed {
        // Told where it failed.
        None | Some(Missed::ReconcilerFailed(..)) => {}
        // A pass that was under way when it was deleted may have shown it once more; the next one comes to this.
        Some(Missed::ObjectNotFound(gone)) => {
            context.forget(gone.namespace.as_deref().unwrap_or_default(), &gone.name);
        }
        // Tried again, later and later; meanwhile nothing wakes the loop, and at the start there is no loop.
        Some(Missed::QueueError(error)) => {
            context.hands.metrics.watch_failed();
            tracing::warn!(%error, "a watch failed");
        }
        Some(Missed::RunnerError(error)) => tracing::error!(%error, "no more passes"),
    }
}

fn predicates_config() -> kube::runtime::PredicateConfig {
    kube::runtime::PredicateConfig::default()
}
