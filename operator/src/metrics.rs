//! What the operator counts.
//!
//! Invariant: labels come from the code and from StreamCluster names, nothing else; names are stable, and each is in
//! `catalog`, whose page users read. What is shown of a StreamCluster goes with it. Served by `health`.

mod catalog;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::action::Action;
use catalog as c;

pub use catalog::page;

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
    conditions: Family<Labels, Gauge<i64, AtomicI64>>,
    leading: Gauge<i64, AtomicI64>,
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
        let mut registry = Registry::with_prefix(c::PREFIX);
        let this = Self {
            reconciles: Family::default(),
            seconds: Histogram::new(exponential_buckets(0.005, 2.0, 14)),
            actions: Family::default(),
            failures: Family::default(),
            writes: Counter::default(),
            nodes: Family::default(),
            conditions: Family::default(),
            leading: Gauge::default(),
            watch_failures: Counter::default(),
            registry: Arc::default(),
        };
        registry.register(c::LEADING.name, c::LEADING.help, this.leading.clone());
        registry.register(c::NODES.name, c::NODES.help, this.nodes.clone());
        registry.register(c::CONDITION_OF.name, c::CONDITION_OF.help, this.conditions.clone());
        registry.register(c::RECONCILES.name, c::RECONCILES.help, this.reconciles.clone());
        let (name, help) = (c::RECONCILE.name, c::RECONCILE.help);
        registry.register_with_unit(name, help, Unit::Seconds, this.seconds.clone());
        registry.register(c::ACTIONS.name, c::ACTIONS.help, this.actions.clone());
        registry.register(c::FAILURES.name, c::FAILURES.help, this.failures.clone());
        registry.register(c::WRITES.name, c::WRITES.help, this.writes.clone());
        registry.register(c::WATCH_FAILURES.name, c::WATCH_FAILURES.help, this.watch_failures.clone());
        *this.registry.lock() = registry;
        this
    }
}

/// Labels of what is about a cluster, with these besides.
fn of(cluster: (&str, &str), more: &[(&'static str, &str)]) -> Labels {
    let (namespace, name) = cluster;
    let both = [("namespace", namespace), ("weir_cluster", name)];
    both.iter().chain(more).map(|(label, value)| (*label, (*value).to_owned())).collect()
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
        self.nodes.get_or_create(&of(cluster, &[("state", state)])).set(i64::from(count));
    }

    /// What a cluster's status says, as kube-state-metrics shows conditions: a series for each status that there can be.
    pub(crate) fn conditions(&self, cluster: (&str, &str), conditions: &[Condition]) {
        for Condition { type_, status, .. } in conditions {
            for possible in c::STATUSES {
                let labels = of(cluster, &[("condition", type_), ("status", possible)]);
                let holds = status.eq_ignore_ascii_case(possible);
                self.conditions.get_or_create(&labels).set(i64::from(holds));
            }
        }
    }

    /// A watch failed.
    pub(crate) fn watch_failed(&self) {
        self.watch_failures.inc();
    }

    /// A cluster is gone.
    pub(crate) fn forget(&self, cluster: (&str, &str)) {
        for state in c::STATES {
            self.nodes.remove(&of(cluster, &[("state", state)]));
        }
        for condition in c::CONDITIONS {
            for status in c::STATUSES {
                self.conditions.remove(&of(cluster, &[("condition", condition), ("status", status)]));
            }
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
    use std::collections::{BTreeMap, BTreeSet};

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn condition(kind: &str, status: &str) -> Condition {
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: String::new(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
        }
    }

    /// With a series of each family.
    fn used() -> Metrics {
        let metrics = Metrics::default();
        metrics.reconciled(true, Duration::from_millis(20), 3);
        metrics.acted(&Action::CreateTokens);
        metrics.failed(true);
        metrics.nodes(("ns", "demo"), "ready", 2);
        metrics.conditions(("ns", "demo"), &[condition("Ready", "False"), condition("Degraded", "Unknown")]);
        metrics.lead(true);
        metrics.watch_failed();
        metrics
    }

    #[test]
    fn every_family_is_shown_under_its_name() {
        let metrics = used();
        let text = metrics.text();
        for line in [
            "weir_operator_reconciles_total{outcome=\"ok\"} 1",
            "weir_operator_actions_total{kind=\"create-tokens\"} 1",
            "weir_operator_action_failures_total{passing=\"true\"} 1",
            "weir_operator_api_writes_total 3",
            "weir_operator_cluster_nodes{namespace=\"ns\",weir_cluster=\"demo\",state=\"ready\"} 2",
            "weir_operator_leading 1",
            "weir_operator_watch_failures_total 1",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(text.contains("weir_operator_reconcile_seconds_count 1"), "{text}");
    }

    #[test]
    fn one_status_of_a_condition_is_1_the_others_0_and_all_go_with_the_cluster() {
        let metrics = used();
        let shown = |metrics: &Metrics, condition: &str| -> Vec<String> {
            let begin = format!(
                "weir_operator_cluster_condition{{namespace=\"ns\",weir_cluster=\"demo\",condition=\"{condition}\",status="
            );
            let text = metrics.text();
            let mut all: Vec<String> =
                text.lines().filter_map(|l| l.strip_prefix(&begin)).map(str::to_owned).collect();
            all.sort();
            all
        };
        assert_eq!(shown(&metrics, "Ready"), ["\"false\"} 1", "\"true\"} 0", "\"unknown\"} 0"]);
        assert_eq!(shown(&metrics, "Degraded"), ["\"false\"} 0", "\"true\"} 0", "\"unknown\"} 1"]);
        metrics.conditions(("ns", "demo"), &[condition("Ready", "True")]);
        assert_eq!(shown(&metrics, "Ready"), ["\"false\"} 0", "\"true\"} 1", "\"unknown\"} 0"]);
        metrics.nodes(("ns", "other"), "wanted", 3);
        metrics.forget(("ns", "demo"));
        let text = metrics.text();
        assert!(!text.contains("demo") && text.contains("weir_cluster=\"other\""), "{text}");
    }

    #[test]
    fn the_catalogue_is_what_is_shown() {
        let text = used().text();
        let kinds: BTreeMap<&str, &str> =
            text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split_once(' ')).collect();
        let families: Vec<String> = c::ALL.iter().map(|m| m.family()).collect();
        assert_eq!(
            kinds.keys().copied().collect::<BTreeSet<_>>(),
            families.iter().map(String::as_str).collect()
        );
        for metric in c::ALL {
            let kind = match metric.kind {
                c::Kind::Counter => "counter",
                c::Kind::Gauge => "gauge",
                c::Kind::Histogram => "histogram",
            };
            let family = metric.family();
            assert_eq!(kinds[family.as_str()], kind, "{family}");
            assert!(text.contains(&format!("# HELP {family} {}.\n", metric.help)), "{family}");
            let names: Vec<&str> = metric.labels.iter().map(|l| l.name).collect();
            let mut series = 0;
            for line in text.lines().filter(|l| !l.starts_with('#') && l.starts_with(&family)) {
                let inner = line.split_once('{').and_then(|(_, rest)| Some(rest.split_once('}')?.0));
                let pairs: Vec<(&str, &str)> =
                    inner.into_iter().flat_map(|i| i.split(',')).filter_map(|p| p.split_once('=')).collect();
                let shown: Vec<&str> = pairs.iter().map(|(k, _)| *k).filter(|k| *k != "le").collect();
                assert_eq!(shown, names, "{line}");
                for (label, (_, value)) in metric.labels.iter().zip(&pairs) {
                    let known = label.values;
                    assert!(known.is_empty() || known.contains(&value.trim_matches('"')), "{line}");
                }
                series += 1;
            }
            assert!(series > 0, "{family}");
        }
    }

    #[test]
    fn the_page_says_what_the_catalogue_says() {
        let written = include_str!("../../node/src/metrics/operator.md");
        assert!(
            written == page(),
            "run: cargo run -p weir-operator --bin crdgen metrics > node/src/metrics/operator.md, \
             then weir reference metrics > docs/metrics.md"
        );
    }
}
