//! What the operator counts.
//!
//! Invariant: labels come from the code and from StreamCluster names, nothing else; names are stable. Served by `health`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::action::Action;

type Labels = Vec<(&'static str, String)>;

/// The operator's metrics. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    reconciles: Family<Labels, Counter<u64, AtomicU64>>,
    seconds: Histogram,
    actions: Family<Labels, Counter<u64, AtomicU64>>,
    failures: Family<Labels, Counter<u64, AtomicU64>>,
    writes: Counter<u64, AtomicU64>,
    nodes: Family<Labels, Gauge<i64, AtomicI64>>,
    leading: Gauge<i64, AtomicI64>,
    unreadable: Family<Labels, Gauge<i64, AtomicI64>>,
    watch_failures: Counter<u64, AtomicU64>,
    registry: Arc<Mutex<Registry>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("weir_operator");
        let this = Self {
            reconciles: Family::default(),
            seconds: Histogram::new(exponential_buckets(0.005, 2.0, 14)),
            actions: Family::default(),
            failures: Family::default(),
            writes: Counter::default(),
            nodes: Family::default(),
            leading: Gauge::default(),
            unreadable: Family::default(),
            watch_failures: Counter::default(),
            registry: Arc::default(),
        };
        registry.register("reconciles", "Passes, by outcome: ok, failed", this.reconciles.clone());
        registry.register_with_unit(
            "reconcile",
            "How long a pass takes",
            Unit::Seconds,
            this.seconds.clone(),
        );
        registry.register("actions", "Actions carried out, by kind", this.actions.clone());
        registry.register(
            "action_failures",
            "Actions that failed, by whether waiting helps",
            this.failures.clone(),
        );
        registry.register(
            "api_writes",
            "Writes to the API server; none while a cluster is as wanted",
            this.writes.clone(),
        );
        registry.register(
            "cluster_nodes",
            "Nodes of a StreamCluster, by state: wanted, ready, updated",
            this.nodes.clone(),
        );
        registry.register("leading", "1 if this process holds the lease", this.leading.clone());
        registry.register(
            "cluster_unreadable",
            "1 for a StreamCluster that was written for another version of the operator",
            this.unreadable.clone(),
        );
        registry.register(
            "watch_failures",
            "Watches that failed and were begun anew",
            this.watch_failures.clone(),
        );
        *this.registry.lock() = registry;
        this
    }
}

impl Metrics {
    /// One pass.
    pub fn reconciled(&self, ok: bool, took: Duration, writes: u64) {
        let outcome = if ok { "ok" } else { "failed" };
        self.reconciles.get_or_create(&vec![("outcome", outcome.to_owned())]).inc();
        self.seconds.observe(took.as_secs_f64());
        self.writes.inc_by(writes);
    }

    /// One action carried out.
    pub(crate) fn acted(&self, action: &Action) {
        self.actions.get_or_create(&vec![("kind", action.step().to_owned())]).inc();
    }

    /// One action that failed.
    pub(crate) fn failed(&self, passing: bool) {
        self.failures.get_or_create(&vec![("passing", passing.to_string())]).inc();
    }

    /// How many nodes a cluster has.
    pub(crate) fn nodes(&self, cluster: (&str, &str), state: &str, count: u32) {
        let (namespace, name) = cluster;
        let labels = vec![
            ("namespace", namespace.to_owned()),
            ("cluster", name.to_owned()),
            ("state", state.to_owned()),
        ];
        self.nodes.get_or_create(&labels).set(i64::from(count));
    }

    /// Whether this operator can read a cluster.
    pub(crate) fn readable(&self, cluster: (&str, &str), readable: bool) {
        let (namespace, name) = cluster;
        let labels = vec![("namespace", namespace.to_owned()), ("cluster", name.to_owned())];
        match readable {
            true => drop(self.unreadable.remove(&labels)),
            false => drop(self.unreadable.get_or_create(&labels).set(1)),
        }
    }

    /// A watch failed.
    pub(crate) fn watch_failed(&self) {
        self.watch_failures.inc();
    }

    /// A cluster is gone.
    pub(crate) fn forget(&self, cluster: (&str, &str)) {
        let (namespace, name) = cluster;
        self.readable(cluster, true);
        for state in ["wanted", "ready", "updated"] {
            let labels = vec![
                ("namespace", namespace.to_owned()),
                ("cluster", name.to_owned()),
                ("state", state.to_owned()),
            ];
            self.nodes.remove(&labels);
        }
    }

    /// Whether this process leads.
    pub fn lead(&self, leading: bool) {
        self.leading.set(i64::from(leading));
    }

    /// In the text format.
    pub fn text(&self) -> String {
        let mut out = String::new();
        if encode(&mut out, &self.registry.lock()).is_err() {
            out.clear();
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_shown_under_its_name() {
        let metrics = Metrics::default();
        metrics.reconciled(true, Duration::from_millis(20), 3);
        metrics.acted(&Action::CreateTokens);
        metrics.failed(true);
        metrics.nodes(("ns", "demo"), "ready", 2);
        metrics.lead(true);
        metrics.readable(("ns", "demo"), false);
        metrics.watch_failed();
        let text = metrics.text();
        for line in [
            "weir_operator_reconciles_total{outcome=\"ok\"} 1",
            "weir_operator_actions_total{kind=\"create-tokens\"} 1",
            "weir_operator_action_failures_total{passing=\"true\"} 1",
            "weir_operator_api_writes_total 3",
            "weir_operator_cluster_nodes{namespace=\"ns\",cluster=\"demo\",state=\"ready\"} 2",
            "weir_operator_leading 1",
            "weir_operator_cluster_unreadable{namespace=\"ns\",cluster=\"demo\"} 1",
            "weir_operator_watch_failures_total 1",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(text.contains("weir_operator_reconcile_seconds_count 1"), "{text}");
        metrics.forget(("ns", "demo"));
        assert!(!metrics.text().contains("demo"));
    }
}
