//! `/metrics` of a real node: what is documented is there, what is there is documented, and numbers are those of the load.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use http::Method;
use weir_tests::client::{Answer, Client};
use weir_tests::files::Scratch;
use weir_tests::node::{Node, PATIENCE, Setup};
use weir_tests::wait;

const PAGE: &str = include_str!("../../docs/metrics.md");

/// A metric as the page has it.
#[derive(Debug, PartialEq, Eq)]
struct Documented {
    kind: String,
    labels: BTreeSet<String>,
    help: String,
}

/// The values of labels, by series and label.
type Values = BTreeMap<(String, String), BTreeSet<String>>;

/// What the page documents, by family, and its labels.
fn documented() -> (BTreeMap<String, Documented>, Values) {
    let (of_nodes, _of_the_operator) = PAGE.split_once("\n## The operator\n").unwrap();
    let (metrics, labels) = of_nodes.split_once("\n## Labels\n").unwrap();
    let rows = |text: &'static str| text.lines().filter(|line| line.starts_with("| `"));
    let cells = |row: &'static str| row.split('|').map(str::trim).collect::<Vec<_>>();
    let quoted = |cell: &str| -> BTreeSet<String> {
        cell.split(", ")
            .filter_map(|name| Some(name.strip_prefix('`')?.strip_suffix('`')?.to_owned()))
            .collect()
    };
    let families = rows(metrics).map(|row| {
        let cells = cells(row);
        let (series, kind) = (cells[1].trim_matches('`'), cells[2]);
        let family = match kind {
            "counter" => series.strip_suffix("_total").unwrap(),
            "info" => series.strip_suffix("_info").unwrap(),
            _ => series,
        };
        let unit = ["bytes", "seconds"].into_iter().find(|unit| family.ends_with(&format!("_{unit}")));
        assert_eq!(cells[3], unit.unwrap_or("–"), "{row}");
        let known = Documented { kind: kind.to_owned(), labels: quoted(cells[4]), help: cells[5].to_owned() };
        (family.to_owned(), known)
    });
    let mut values = BTreeMap::new();
    for row in rows(labels) {
        let cells = cells(row);
        for series in quoted(cells[2]) {
            values.insert((series, cells[1].trim_matches('`').to_owned()), quoted(cells[3]));
        }
    }
    (families.collect(), values)
}

/// One scrape.
struct Scrape(String);

impl Scrape {
    async fn of(admin: &Client) -> Result<Self> {
        Ok(Self(admin.get_text("/metrics").await?))
    }

    /// A series' value; it has to be there.
    fn value(&self, series: &str) -> f64 {
        let mut found = self.0.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = found.next().unwrap_or_else(|| panic!("no {series} in\n{}", self.0));
        assert!(found.next().is_none(), "{series} is there twice");
        value.parse().unwrap()
    }

    /// A number of things.
    fn count(&self, series: &str) -> u64 {
        let value = self.value(series);
        assert!(value >= 0.0 && value.fract() == 0.0, "{series} is {value}");
        value as u64
    }

    fn types(&self) -> BTreeMap<&str, &str> {
        self.0.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect()
    }

    /// Name, labels.
    fn samples(&self) -> impl Iterator<Item = (&str, BTreeMap<&str, &str>)> {
        self.0.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let series = line.rsplit_once(' ').unwrap().0;
            let Some((name, labels)) = series.split_once('{') else { return (series, BTreeMap::new()) };
            let labels = labels.strip_suffix('}').unwrap().split(',');
            (
                name,
                labels.map(|l| l.split_once('=').map(|(k, v)| (k, v.trim_matches('"'))).unwrap()).collect(),
            )
        })
    }
}

/// Waits until a scrape shows what `is` looks for.
async fn shows(node: &mut Node, what: &str, is: impl Fn(&Scrape) -> bool) -> Scrape {
    let admin = node.admin().await.unwrap();
    let look = || async {
        let scrape = Scrape::of(&admin).await?;
        Ok(is(&scrape).then_some(scrape))
    };
    wait::until(what, PATIENCE, look).await.unwrap()
}

/// Asks, and remembers what the node has to have counted.
struct Asker {
    client: Client,
    asked: BTreeMap<(&'static str, u16), u64>,
}

impl Asker {
    async fn ask(
        &mut self,
        operation: &'static str,
        target: &str,
        fields: &[(&str, &str)],
        body: &'static str,
        status: u16,
    ) -> Answer {
        let method = match operation {
            "create" => Method::PUT,
            "append" => Method::POST,
            "head" => Method::HEAD,
            "delete" => Method::DELETE,
            "other" => Method::OPTIONS,
            _ => Method::GET,
        };
        let mut headers = fields.to_vec();
        if matches!(operation, "create" | "append") {
            headers.push(("content-type", "text/plain"));
        }
        let answer = self.client.send(method, target, &headers, body.into()).await.unwrap();
        assert_eq!(answer.status, status, "{operation} {target}");
        *self.asked.entry((operation, status)).or_default() += 1;
        answer
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_documented_metric_is_there_no_other_is_and_they_count_what_happened() {
    let scratch = Scratch::new();
    let setup = Setup::new(scratch.path("data")).flag("segment-age", "100ms");
    let mut node = setup.start().await.unwrap();
    let mut asker = Asker { client: node.client().await.unwrap(), asked: BTreeMap::new() };

    let (a, fork) = ("/v1/stream/a", "/v1/stream/fork");
    asker.ask("create", a, &[], "", 201).await;
    asker.ask("create", a, &[], "", 200).await;
    for _ in 0..5 {
        asker.ask("append", a, &[], "0123456789", 204).await;
    }
    let produced = [("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", "0")];
    asker.ask("append", a, &produced, "once", 200).await;
    asker.ask("append", a, &produced, "once", 204).await;
    asker.ask("append", a, &[("stream-seq", "b")], "b", 204).await;
    asker.ask("append", a, &[("stream-seq", "a")], "a", 409).await;
    asker.ask("append", "/v1/stream/missing", &[], "x", 404).await;
    asker.ask("create", fork, &[("stream-forked-from", a)], "", 201).await;
    asker.ask("read", &format!("{fork}?offset=-1"), &[], "", 200).await;
    asker.ask("read-live", &format!("{a}?offset=-1&live=long-poll"), &[], "", 200).await;
    asker.ask("head", a, &[], "", 200).await;
    asker.ask("list", "/v1/streams", &[], "", 200).await;
    asker.ask("other", a, &[], "", 204).await;
    asker.ask("create", "/v1/stream/brief", &[("stream-ttl", "1")], "", 201).await;
    asker.ask("create", "/v1/stream/gone", &[], "", 201).await;
    asker.ask("delete", "/v1/stream/gone", &[], "", 204).await;
    let payload = 5 * 10 + 4 + 1;

    let told = shows(&mut node, "the load to be in segments and the brief stream to end", |scrape| {
        scrape.value("weir_wal_backlog_bytes") == 0.0 && scrape.count("weir_streams_expired_total") == 1
    })
    .await;
    documented_and_no_other(&told);
    for ((operation, status), n) in &asker.asked {
        let labels = format!("{{operation=\"{operation}\",status=\"{status}\"}}");
        assert_eq!(told.count(&format!("weir_http_requests_total{labels}")), *n, "{labels}");
        let all: u64 = asker.asked.iter().filter(|((o, _), _)| o == operation).map(|(_, n)| n).sum();
        let timed = format!("weir_http_request_seconds_count{{operation=\"{operation}\"}}");
        assert_eq!(told.count(&timed), all, "{operation}");
    }
    let appends = |outcome| told.count(&format!("weir_appends_total{{outcome=\"{outcome}\"}}"));
    let outcomes = ["accepted", "duplicate", "refused", "unavailable", "unknown"].map(appends);
    assert_eq!(outcomes, [7, 1, 1, 0, 0]);

    let records = told.count("weir_wal_object_records_sum");
    assert!(records >= 7, "{records}");
    assert_eq!(told.count("weir_wal_durability_seconds_count"), records);
    assert!(told.value("weir_wal_durability_seconds_sum") > 0.0);
    let objects = told.count("weir_wal_object_records_count");
    assert!((1..=records).contains(&objects), "{objects}");
    assert_eq!(told.count("weir_wal_puts_total{outcome=\"stored\"}"), objects);
    assert_eq!(told.count("weir_wal_put_seconds_count"), objects);
    assert!(told.count("weir_wal_written_bytes_total") > payload);
    let segments = told.count("weir_segments_committed_total{by=\"flush\"}");
    assert!(segments >= 1);
    assert!(told.count("weir_segment_committed_bytes_total{by=\"flush\"}") > payload);
    assert_eq!(told.count("weir_segments"), segments);
    assert!(told.count("weir_store_request_seconds_count{operation=\"put\"}") >= segments);
    assert_eq!(told.count("weir_store_errors_total{operation=\"put\",kind=\"denied\"}"), 0);
    assert_eq!(told.count("weir_forks_total"), 1);
    assert_eq!(told.count("weir_streams"), 2, "a and its fork");
    for yes in ["ready", "metadata_leader", "metadata_leader_known", "nodes", "nodes_alive"] {
        assert_eq!(told.count(&format!("weir_{yes}")), 1, "{yes}");
    }
    let applied = told.count("weir_metadata_applied_index");
    assert!(applied > 0 && applied <= told.count("weir_metadata_last_log_index"));
    assert_eq!(told.count("weir_recovery_seconds_count"), 0);

    // What a fork reads is in a segment.
    asker.ask("read", &format!("{fork}?offset=-1"), &[], "", 200).await;
    let told = Scrape::of(&node.admin().await.unwrap()).await.unwrap();
    assert!(told.count("weir_cache_hits_total") + told.count("weir_cache_misses_total") > 0);

    node.kill();
    let mut node = setup.start().await.unwrap();
    let told = shows(&mut node, "the killed process to be recovered", |scrape| {
        scrape.count("weir_recovered_sessions_total") == 1
    })
    .await;
    assert_eq!(told.count("weir_recovery_seconds_count"), 1);
    assert!(told.value("weir_recovery_seconds_sum") > 0.0);
    documented_and_no_other(&told);
}

fn documented_and_no_other(told: &Scrape) {
    let (documented, values) = documented();
    assert!(documented.len() > 40, "the page was not understood: {documented:?}");
    let kinds: BTreeMap<&str, &str> = documented.iter().map(|(f, d)| (f.as_str(), d.kind.as_str())).collect();
    assert_eq!(told.types(), kinds);
    for (family, known) in &documented {
        let help = format!("# HELP {family} {}", known.help);
        assert!(told.0.lines().any(|line| line.trim_end_matches('.') == help), "{help} not in\n{}", told.0);
    }
    for (name, labels) in told.samples() {
        let suffixes = ["", "_total", "_info", "_bucket", "_sum", "_count"];
        let mut families = suffixes.iter().filter_map(|s| documented.get_key_value(name.strip_suffix(*s)?));
        let (family, known) = families.next().unwrap_or_else(|| panic!("{name}"));
        let names: BTreeSet<String> =
            labels.keys().filter(|l| **l != "le").map(|l| (*l).to_owned()).collect();
        assert_eq!(names, known.labels, "{name}");
        let series = if known.kind == "histogram" { family } else { name };
        for (label, value) in labels.iter().filter(|(label, _)| **label != "le") {
            let of = values.get(&(series.to_owned(), (*label).to_owned()));
            let of = of.unwrap_or_else(|| panic!("{label} of {series} is not documented"));
            assert!(of.is_empty() || of.contains(*value), "{series}: {label} is {value}, not one of {of:?}");
        }
    }
}
