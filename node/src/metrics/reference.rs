//! `docs/metrics.md`, made from the catalogue, and at its end from the operator's.
//!
//! Invariant: a test compares the page in the repository with what this writes; `weir reference metrics` prints it.

use super::catalog::{Kind, Label, Metric, SECTIONS, Unit};

const HEAD: &str = "\
# Metrics

What `GET /metrics` on the admin listener (`--admin-listen`) shows, as OpenMetrics text. This page is made from the
code: `weir reference metrics > docs/metrics.md` writes it, and tests check that it is true of a running node.

Everything is counted from the start of the process and by one node. For a cluster, add the nodes up. But what a metric
counts \"by the log\", as `weir_streams` does, every node says of the whole cluster: take the maximum. So too for
`weir_streams_max`, and for the term, the indexes and the voters of the metadata log.

Labels take their values from the lists below, never from clients, so the number of series does not depend on what clients
do. A histogram has `_bucket`, `_sum` and `_count` behind its name. The operator's metrics are at the end.

## Questions and how to ask them

";

/// The operator's part, which its own tests compare with its code.
const OPERATOR: &str = include_str!("operator.md");

/// Questions as people have them, the PromQL that answers each, and how to read the answer.
const EXAMPLES: &[(&str, &str, &str)] = &[
    (
        "Are appends waiting for the store?",
        "histogram_quantile(0.99, sum by (le) (rate(weir_wal_durability_seconds_bucket[5m])))\n\
         / histogram_quantile(0.99, sum by (le) (rate(weir_http_request_seconds_bucket{operation=\"append\"}[5m])))",
        "Near 1: an append's time is the store's. Then `weir_wal_put_seconds` says whether single puts are slow. Near 0: \
         look at clients that send slowly, and at the processor.",
    ),
    (
        "How near is a node to refusing appends?",
        "max by (instance) (weir_wal_backlog_bytes / weir_wal_backlog_max_bytes)",
        "At 1 appends are answered 503. It goes down when segments are committed: compare \
         `rate(weir_segment_committed_bytes_total{by=\"flush\"}[5m])` with `rate(weir_wal_written_bytes_total[5m])`.",
    ),
    (
        "What share of requests fails for a reason that is not the client's?",
        "sum(rate(weir_http_requests_total{status=~\"5..\"}[5m])) / sum(rate(weir_http_requests_total[5m]))",
        "By `operation` it says whom it hits; `weir_appends_total` tells appends that were surely not stored \
         (`unavailable`) from those of which nobody knows (`unknown`).",
    ),
    (
        "Is the bucket unwell?",
        "sum by (operation, kind) (rate(weir_store_errors_total[5m])) > 0\n\
         or sum by (operation) (rate(weir_store_retries_total[5m])) > 0",
        "`denied` needs a person: credentials, policy, configuration. The rest passes when the bucket is back.",
    ),
    (
        "How long are streams without an owner when a node is lost?",
        "histogram_quantile(0.99, sum by (le, of) (rate(weir_takeover_seconds_bucket[1h])))",
        "From the session's end to the end of its recovery. A lost node's (`other`) comes on top of `--node-timeout`; a \
         node that comes back recovers itself (`own`). Long ones are mostly long WALs: see \
         `weir_wal_backlog_objects`, or a store that is slow.",
    ),
    (
        "How many records share one put?",
        "sum(rate(weir_wal_object_records_sum[5m])) / sum(rate(weir_wal_object_records_count[5m]))",
        "More under load is good: puts cost time, and in a bucket money. Near 1 under load: the store answers faster than \
         appends come.",
    ),
];

/// The page.
pub fn page() -> String {
    let mut text = HEAD.to_owned();
    for (question, query, reading) in EXAMPLES {
        text += &format!("**{question}**\n\n```promql\n{query}\n```\n\n{reading}\n\n");
    }
    for (section, metrics) in SECTIONS {
        text += &format!(
            "## {section}\n\n| metric | type | unit | labels | what it counts | what it answers |\n"
        );
        text += "| --- | --- | --- | --- | --- | --- |\n";
        for metric in *metrics {
            text += &row(metric);
        }
        text += "\n";
    }
    text += "## Labels\n\n| label | of | values | what it says |\n| --- | --- | --- | --- |\n";
    for (label, of) in labels() {
        let values = if label.values.is_empty() { "–".to_owned() } else { listed(label.values) };
        let of: Vec<String> = of.iter().map(|metric| metric.series()).collect();
        text += &format!("| `{}` | {} | {values} | {} |\n", label.name, listed(&of), label.help);
    }
    text + "\n" + OPERATOR
}

fn row(metric: &Metric) -> String {
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
        Kind::Info => "info",
    };
    let unit = match metric.unit {
        None => "–",
        Some(Unit::Bytes) => "bytes",
        Some(Unit::Seconds) => "seconds",
    };
    let names: Vec<&str> = metric.labels.iter().map(|label| label.name).collect();
    let labels = if names.is_empty() { "–".to_owned() } else { listed(&names) };
    let Metric { help, question, .. } = metric;
    format!("| `{}` | {kind} | {unit} | {labels} | {help} | {question} |\n", metric.series())
}

fn listed<T: std::fmt::Display>(names: &[T]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Each label with its metrics, in the order of the page. The same name may say two things.
fn labels() -> Vec<(Label, Vec<&'static Metric>)> {
    let mut found: Vec<(Label, Vec<&'static Metric>)> = Vec::new();
    for metric in super::catalog::all() {
        for label in metric.labels {
            match found.iter_mut().find(|(known, _)| known.help == label.help) {
                Some((_, of)) => of.push(metric),
                None => found.push((*label, vec![metric])),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::catalog::all;
    use super::*;

    #[test]
    fn the_page_says_what_the_code_says() {
        let written = include_str!("../../../docs/metrics.md");
        assert!(
            written == page(),
            "docs/metrics.md is out of date: weir reference metrics > docs/metrics.md"
        );
    }

    #[test]
    fn names_are_conventional_and_texts_teach() {
        let mut names = BTreeSet::new();
        for metric in all() {
            let name = metric.name;
            assert!(names.insert(metric.family()), "{name} is there twice");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            for suffix in ["_total", "_bytes", "_seconds", "_count", "_sum", "_bucket", "_info"] {
                assert!(!name.ends_with(suffix), "{name}: {suffix} is added, or kept for the encoder");
            }
            assert!(metric.help.len() > 8 && !metric.help.ends_with('.'), "{name}: {}", metric.help);
            assert!(metric.question.contains('?'), "{name}: {}", metric.question);
            // A table's cell, and a HELP line.
            assert!(![metric.help, metric.question].concat().contains(['|', '\n']), "{name}");
        }
        for (label, of) in labels() {
            let values: BTreeSet<_> = label.values.iter().collect();
            assert_eq!(values.len(), label.values.len(), "{}", label.name);
            assert!(!of.is_empty());
        }
    }

    #[test]
    fn queries_and_texts_name_metrics_that_exist() {
        let known: BTreeSet<String> = all()
            .flat_map(|metric| match metric.kind {
                Kind::Histogram => {
                    ["", "_bucket", "_sum", "_count"].map(|suffix| metric.series() + suffix).to_vec()
                }
                Kind::Counter | Kind::Gauge | Kind::Info => vec![metric.series()],
            })
            .collect();
        let mut named = 0;
        let (page, page_of_operator) =
            page().split_once("\n## The operator\n").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert!(page_of_operator.contains("| `weir_operator_leading` |"));
        for text in page.split("weir_").skip(1) {
            let end = text.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(text.len());
            let name = format!("weir_{}", &text[..end]);
            assert!(known.contains(&name), "{name}");
            named += 1;
        }
        assert!(named > known.len() / 2, "{named}");
        assert_eq!(EXAMPLES.len(), 6);
    }
}
