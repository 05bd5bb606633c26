//! Alerts and the dashboard ask for what nodes and operator show: metrics, labels and their values, as `docs/metrics.md` has
//! them, which other tests compare with both programs.

use std::collections::{BTreeMap, BTreeSet};

/// Labels that Prometheus sets itself, or the chart's PodMonitor.
const OF_TARGETS: [&str; 4] = ["namespace", "weir_cluster", "pod", "service"];

/// What the page documents.
#[derive(Default)]
struct Page {
    /// Labels by series, as a query spells it.
    series: BTreeMap<String, BTreeSet<String>>,
    /// All values of a label, by name and series; none: free.
    values: BTreeMap<(String, String), BTreeSet<String>>,
}

fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter(|l| l.starts_with("| `")).map(|l| l.split('|').map(str::trim).skip(1).collect())
}

fn quoted(cell: &str) -> BTreeSet<String> {
    let one = |name: &str| Some(name.trim().strip_prefix('`')?.strip_suffix('`')?.to_owned());
    cell.split(',').filter_map(one).collect()
}

impl Page {
    fn of(text: &str) -> Self {
        let (nodes, operator) = text.split_once("\n## The operator\n").unwrap();
        let (of_nodes, labels) = nodes.split_once("\n## Labels\n").unwrap();
        let (of_operator, labels_of_operator) = operator.split_once("\n| label |").unwrap();
        let mut page = Self::default();
        for row in rows(of_nodes) {
            page.add(row[0], row[1], row[3]);
        }
        let own: BTreeSet<String> =
            rows(of_operator).flat_map(|row| page.add(row[0], row[1], row[2])).collect();
        for row in rows(labels) {
            for series in quoted(row[1]) {
                page.values.insert((row[0].trim_matches('`').to_owned(), series), quoted(row[2]));
            }
        }
        for row in rows(labels_of_operator) {
            for series in &own {
                page.values.insert((row[0].trim_matches('`').to_owned(), series.clone()), quoted(row[1]));
            }
        }
        page
    }

    fn add(&mut self, name: &str, kind: &str, labels: &str) -> Vec<String> {
        let suffixes: &[&str] =
            if kind.starts_with("histogram") { &["", "_bucket", "_sum", "_count"] } else { &[""] };
        let name = name.trim_matches('`');
        for suffix in suffixes {
            self.series.insert(format!("{name}{suffix}"), quoted(labels));
        }
        vec![name.to_owned()]
    }

    /// One `label="value"`, `label=~"a|b"` of a query.
    fn check(&self, series: &str, matcher: &str) {
        let end = matcher.find(['=', '!']).unwrap_or_else(|| panic!("{series}: {matcher}"));
        let (label, rest) = (matcher[..end].trim(), &matcher[end..]);
        let value = rest.trim_start_matches(['=', '!', '~']).trim_matches('"');
        let base =
            ["_bucket", "_sum", "_count"].iter().find_map(|s| series.strip_suffix(s)).unwrap_or(series);
        let known = &self.series[series];
        assert!(known.contains(label) || OF_TARGETS.contains(&label), "{series} has no label {label}");
        let Some(all) = self.values.get(&(label.to_owned(), base.to_owned())).filter(|v| !v.is_empty())
        else {
            return;
        };
        // `$variable` and `5..` are for Prometheus to fill in.
        for one in value.split('|').filter(|v| !v.contains(['$', '.'])) {
            assert!(all.contains(one), "{series}: {label} is never {one:?}, but one of {all:?}");
        }
    }

    /// Every metric that is named, with what is asked of its labels. How many there were.
    fn check_all(&self, text: &str) -> usize {
        let ident = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let mut named = 0;
        for (at, _) in text.match_indices("weir_") {
            if text[..at].ends_with(ident) {
                continue;
            }
            let rest = &text[at..];
            let (name, rest) = rest.split_at(rest.find(|c: char| !ident(c)).unwrap_or(rest.len()));
            if OF_TARGETS.contains(&name) {
                continue;
            }
            assert!(self.series.contains_key(name), "nobody shows {name}");
            named += 1;
            // Of a metric that is spoken of, not asked for, nothing follows.
            if let Some(matchers) = rest.strip_prefix('{').and_then(|r| Some(r.split_once('}')?.0)) {
                for matcher in matchers.split(',') {
                    self.check(name, matcher.trim());
                }
            }
        }
        let mut labels: BTreeSet<&str> = self.series.values().flatten().map(String::as_str).collect();
        labels.extend(OF_TARGETS);
        labels.insert("le");
        for clause in ["by (", "on (", "ignoring ("] {
            for after in text.split(clause).skip(1) {
                for label in after.split(')').next().unwrap().split(',').map(str::trim) {
                    assert!(labels.contains(label), "nothing has the label {label:?}");
                }
            }
        }
        named
    }
}

#[test]
fn alerts_and_the_dashboard_ask_for_what_is_shown() {
    let page = Page::of(&read("docs/metrics.md"));
    assert!(page.series.len() > 80 && page.values.len() > 20, "the page was not understood");
    let rules = read("charts/weir-operator/files/rules.yaml");
    assert!(page.check_all(&rules) > 30);
    // Helm's own braces are none of a query's.
    let more = read("charts/weir-operator/templates/rules.yaml").replace("{{", "").replace("}}", "");
    assert!(page.check_all(&more) >= 2);
    let dashboard = read("charts/weir-operator/files/dashboard.json").replace("\\\"", "\"");
    assert!(page.check_all(&dashboard) > 40);
}

#[test]
fn a_query_that_nothing_answers_is_found() {
    let page = Page::of(&read("docs/metrics.md"));
    for wrong in [
        "weir_no_such_metric > 0",
        "weir_appends_total{state=\"ready\"}",
        "rate(weir_appends_total{outcome=~\"unavailable|lost\"}[5m])",
        "weir_operator_cluster_condition{condition=\"Redy\"} == 1",
        "sum by (clutser) (weir_ready)",
    ] {
        let outcome = std::panic::catch_unwind(|| page.check_all(wrong));
        assert!(outcome.is_err(), "{wrong}");
    }
    assert_eq!(page.check_all("sum by (le) (weir_wal_put_seconds_bucket{pod=~\"$pod\"})"), 1);
}

#[test]
fn alerts_have_names_of_their_own_and_say_how_urgent_they_are() {
    let text =
        read("charts/weir-operator/files/rules.yaml") + &read("charts/weir-operator/templates/rules.yaml");
    let mut names = BTreeSet::new();
    for alert in text.split("- alert: ").skip(1) {
        let name = alert.lines().next().unwrap();
        assert!(names.insert(name), "{name} is there twice");
        for needed in ["expr: ", "for: ", "summary: ", "description: "] {
            assert!(alert.contains(needed), "{name} lacks {needed}");
        }
        assert!(alert.contains("{severity: critical}") || alert.contains("{severity: warning}"), "{name}");
    }
    assert!(names.len() > 20, "{names:?}");
}
