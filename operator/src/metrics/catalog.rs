//! Every metric of the operator: what it is called, what it counts, and what question it answers; and the part of
//! `docs/metrics.md` that says so.
//!
//! Invariant: what stands here is registered, and nothing else is (see `super`). The page's part is
//! `node/src/metrics/operator.md`, which `crdgen metrics` prints and a test compares, because the page is the node's.

/// How a metric moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    /// Of seconds.
    Histogram,
}

/// A label.
#[derive(Debug)]
pub(super) struct Label {
    pub(super) name: &'static str,
    /// All values it takes; none: as `help` says.
    pub(super) values: &'static [&'static str],
    help: &'static str,
}

/// A metric.
#[derive(Debug)]
pub(super) struct Metric {
    /// Without prefix, unit and `_total`.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: &'static [&'static Label],
    /// No full stop at its end.
    pub(super) help: &'static str,
    question: &'static str,
}

impl Metric {
    /// What stands after `# TYPE`.
    pub(super) fn family(&self) -> String {
        let unit = if self.kind == Kind::Histogram { "_seconds" } else { "" };
        format!("{PREFIX}_{}{unit}", self.name)
    }

    /// What a query asks for.
    fn series(&self) -> String {
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        self.family() + suffix
    }
}

pub(super) const PREFIX: &str = "weir_operator";

/// States of a cluster's nodes.
pub(super) const STATES: &[&str] = &["wanted", "ready", "updated"];
/// Conditions of a StreamCluster.
pub(super) const CONDITIONS: &[&str] = &[
    "Ready",
    "Progressing",
    "Degraded",
    "QuorumHealthy",
    "SlotsSynced",
    "StorageReady",
    "Reconciling",
    "Stalled",
];
/// What a condition can be.
pub(super) const STATUSES: &[&str] = &["true", "false", "unknown"];

static NAMESPACE: Label = Label { name: "namespace", values: &[], help: "The StreamCluster's namespace" };
static CLUSTER: Label = Label {
    name: "weir_cluster",
    values: &[],
    help: "The StreamCluster's name; what nodes show has it from the chart's PodMonitor",
};
static STATE: Label = Label {
    name: "state",
    values: STATES,
    help: "`wanted` by the spec; `ready` of these; `updated`: with a pod of the newest template",
};
static CONDITION: Label =
    Label { name: "condition", values: CONDITIONS, help: "The condition's type; see docs/operator.md" };
static STATUS: Label = Label { name: "status", values: STATUSES, help: "What it is, or is not" };
static OUTCOME: Label =
    Label { name: "outcome", values: &["ok", "failed"], help: "Whether all was done that was to be done" };
static KIND: Label = Label { name: "kind", values: &[], help: "What was done, as `create-pod`" };
static PASSING: Label = Label {
    name: "passing",
    values: &["true", "false"],
    help: "`true`: it goes by itself; `false`: it needs somebody",
};

pub(super) static LEADING: Metric = Metric {
    name: "leading",
    kind: Kind::Gauge,
    labels: &[],
    help: "1 if this process holds the lease",
    question: "Is an operator at work? (The sum over its replicas is 1.)",
};
pub(super) static NODES: Metric = Metric {
    name: "cluster_nodes",
    kind: Kind::Gauge,
    labels: &[&NAMESPACE, &CLUSTER, &STATE],
    help: "Nodes of a StreamCluster, by state",
    question: "Does a cluster have the nodes that it should have?",
};
pub(super) static CONDITION_OF: Metric = Metric {
    name: "cluster_condition",
    kind: Kind::Gauge,
    labels: &[&NAMESPACE, &CLUSTER, &CONDITION, &STATUS],
    help: "1 for the status that a condition of a StreamCluster has, 0 for the others",
    question: "Is a cluster well, and if not: since when, and what is wrong?",
};
pub(super) static RECONCILES: Metric = Metric {
    name: "reconciles",
    kind: Kind::Counter,
    labels: &[&OUTCOME],
    help: "Passes over a StreamCluster, by outcome",
    question: "Does the operator come through?",
};
pub(super) static RECONCILE: Metric = Metric {
    name: "reconcile",
    kind: Kind::Histogram,
    labels: &[],
    help: "How long a pass takes",
    question: "Are the API server or nodes slow to answer?",
};
pub(super) static ACTIONS: Metric = Metric {
    name: "actions",
    kind: Kind::Counter,
    labels: &[&KIND],
    help: "Actions carried out, by kind",
    question: "What does the operator do?",
};
pub(super) static FAILURES: Metric = Metric {
    name: "action_failures",
    kind: Kind::Counter,
    labels: &[&PASSING],
    help: "Actions that failed, by whether waiting helps",
    question: "Is something in its way?",
};
pub(super) static WRITES: Metric = Metric {
    name: "api_writes",
    kind: Kind::Counter,
    labels: &[],
    help: "Writes to the API server; none while a cluster is as wanted",
    question: "Is the operator at rest where it should be?",
};

pub(super) static WATCH_FAILURES: Metric = Metric {
    name: "watch_failures",
    kind: Kind::Counter,
    labels: &[],
    help: "Watches that failed; each is begun anew, later and later",
    question: "Does the operator hear of changes?",
};

/// All of them, as the page has them.
pub(super) static ALL: &[&Metric] = &[
    &LEADING,
    &NODES,
    &CONDITION_OF,
    &RECONCILES,
    &RECONCILE,
    &ACTIONS,
    &FAILURES,
    &WRITES,
    &WATCH_FAILURES,
];

/// The operator's part of `docs/metrics.md`.
pub fn page() -> String {
    let mut text = "\
## The operator

What `weir-operator` shows at `/metrics` on its own listener (port 8080, no token). A process that stands by shows no
cluster. Series of a StreamCluster go with it.

| metric | type | labels | what it counts | what it answers |
| --- | --- | --- | --- | --- |
"
    .to_owned();
    for metric in ALL {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram of seconds",
        };
        let labels: Vec<&str> = metric.labels.iter().map(|l| l.name).collect();
        let Metric { help, question, .. } = metric;
        text += &format!("| `{}` | {kind} | {} | {help} | {question} |\n", metric.series(), listed(&labels));
    }
    text += "\n| label | values | what it says |\n| --- | --- | --- |\n";
    let mut said: Vec<&str> = Vec::new();
    for label in ALL.iter().flat_map(|m| m.labels) {
        if !said.contains(&label.name) {
            said.push(label.name);
            text += &format!("| `{}` | {} | {} |\n", label.name, listed(label.values), label.help);
        }
    }
    text
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => "–".to_owned(),
        names => names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", "),
    }
}
