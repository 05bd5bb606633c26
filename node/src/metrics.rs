//! Every metric family of the node, in one place.
//!
//! Invariant: labels take values from the code, never from a client, so that the number of series is bounded. Parts
//! count through the fields of [`Metrics`]; what a part keeps anyway is sampled at each scrape. Read by
//! `admin::metrics`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

/// Of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    /// What was asked, one of `create`, `append`, `read`, `read-live`, `head`, `delete`, `other`.
    pub operation: &'static str,
    /// The status of the answer.
    pub status: u16,
}

/// How forwarding a request to the node that serves its stream went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded {
    /// The owner answered, whatever it said.
    Answered,
    /// No connection: nothing was sent.
    Unreachable,
    /// Too many at a time: nothing was sent.
    Busy,
    /// Sent, and no answer came.
    Unknown,
    /// The client, or this node's stop, ended it first.
    Abandoned,
    /// The client's body was too large, too slow or broke off.
    BadBody,
    /// Counted besides `Answered`: the owner's answer broke off.
    Cut,
}

impl Forwarded {
    fn label(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Unreachable => "unreachable",
            Self::Busy => "busy",
            Self::Unknown => "unknown",
            Self::Abandoned => "abandoned",
            Self::BadBody => "bad-body",
            Self::Cut => "cut",
        }
    }
}

/// See [`Forwarded`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ForwardLabels {
    outcome: &'static str,
}

/// Of a request's duration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OperationLabels {
    /// See [`RequestLabels::operation`].
    pub operation: &'static str,
}

/// Of readers who wait for more.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LiveLabels {
    /// `long-poll` or `sse`.
    pub kind: &'static str,
}

/// How a live reader reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveKind {
    /// One answer.
    LongPoll,
    /// An event stream.
    Sse,
}

/// Counts one live reader for as long as it is held.
#[derive(Debug)]
pub struct LiveReader(Gauge);

impl Drop for LiveReader {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[derive(Debug, Clone)]
struct Latency;

impl MetricConstructor<Histogram> for Latency {
    fn new_metric(&self) -> Histogram {
        // From a local append to a long-poll.
        Histogram::new([
            0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0,
        ])
    }
}

/// The node's families. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<OperationLabels, Histogram, Latency>,
    live_readers: Family<LiveLabels, Gauge>,
    redirects: Counter,
    forwards: Family<ForwardLabels, Counter>,
    hops_exceeded: Counter,
    registry: Arc<Mutex<Registry>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("weir");
        let requests = Family::default();
        let request_seconds = Family::new_with_constructor(Latency);
        registry.register("http_requests", "Requests answered on the client listener", requests.clone());
        registry.register_with_unit(
            "http_request",
            "Time from a request's head to its answer's head, the wait of long-polls included",
            Unit::Seconds,
            request_seconds.clone(),
        );
        let (redirects, forwards, hops_exceeded) =
            (Counter::default(), Family::default(), Counter::default());
        let help = "Requests redirected to the node that serves their stream";
        registry.register("redirects", help, redirects.clone());
        let help = "Requests forwarded to the node that serves their stream, and answers that broke off";
        registry.register("forwards", help, forwards.clone());
        let help = "Requests refused because nodes had sent them on too often";
        registry.register("hops_exceeded", help, hops_exceeded.clone());
        let live_readers = Family::default();
        registry.register(
            "live_readers",
            "Readers who wait for more, by how they read",
            live_readers.clone(),
        );
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The program", version);
        let registry = Arc::new(Mutex::new(registry));
        Self { requests, request_seconds, live_readers, redirects, forwards, hops_exceeded, registry }
    }
}

impl Metrics {
    /// Counts one answered request of the client listener.
    pub fn request(&self, operation: &'static str, status: u16, took: Duration) {
        self.requests.get_or_create(&RequestLabels { operation, status }).inc();
        self.request_seconds.get_or_create(&OperationLabels { operation }).observe(took.as_secs_f64());
    }

    /// Counts a live reader.
    pub fn live_reader(&self, kind: LiveKind) -> LiveReader {
        let kind = match kind {
            LiveKind::LongPoll => "long-poll",
            LiveKind::Sse => "sse",
        };
        let gauge = self.live_readers.get_or_create(&LiveLabels { kind }).clone();
        gauge.inc();
        LiveReader(gauge)
    }

    /// Counts one redirect.
    pub fn redirected(&self) {
        self.redirects.inc();
    }

    /// Counts one forwarded request, or one answer that broke off.
    pub fn forwarded(&self, outcome: Forwarded) {
        self.forwards.get_or_create(&ForwardLabels { outcome: outcome.label() }).inc();
    }

    /// Counts one request that was sent on too often.
    pub fn hops_exceeded(&self) {
        self.hops_exceeded.inc();
    }

    /// Registers a value that goes up and down, asked for at each scrape. `name` carries its unit, as `_bytes`.
    pub fn gauge(
        &self,
        name: &'static str,
        help: &'static str,
        sample: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        self.sampled(name, help, Sample::Gauge(Box::new(sample)));
    }

    /// Registers a value that only grows, asked for at each scrape. `name` is without `_total`.
    pub fn counter(
        &self,
        name: &'static str,
        help: &'static str,
        sample: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        self.sampled(name, help, Sample::Counter(Box::new(sample)));
    }

    fn sampled(&self, name: &'static str, help: &'static str, sample: Sample) {
        self.registry.lock().register_collector(Box::new(Sampled { name, help, sample }));
    }

    /// Registers several families of one source at once.
    pub fn collect(&self, collector: impl Collector) {
        self.registry.lock().register_collector(Box::new(collector));
    }

    /// All families as OpenMetrics text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        text::encode(&mut out, &self.registry.lock()).expect("writing to a String cannot fail");
        out
    }
}

enum Sample {
    Gauge(Box<dyn Fn() -> f64 + Send + Sync>),
    Counter(Box<dyn Fn() -> u64 + Send + Sync>),
}

struct Sampled {
    name: &'static str,
    help: &'static str,
    sample: Sample,
}

impl fmt::Debug for Sampled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Collector for Sampled {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        match &self.sample {
            Sample::Gauge(f) => gauge(&mut encoder, self.name, self.help, f()),
            Sample::Counter(f) => counter(&mut encoder, self.name, self.help, f()),
        }
    }
}

/// Writes one gauge.
pub fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    let metric = ConstGauge::new(value);
    let encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
    metric.encode(encoder)
}

/// Writes one counter; `name` is without `_total`.
pub fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let metric = ConstCounter::new(value);
    let encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
    metric.encode(encoder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_prefixed_and_counted() {
        let m = Metrics::default();
        m.request("append", 204, Duration::from_millis(3));
        m.request("append", 204, Duration::from_millis(3));
        drop(m.live_reader(LiveKind::Sse));
        let _kept = m.live_reader(LiveKind::LongPoll);
        m.gauge("wal_backlog_bytes", "Not yet in segments", || 1.5);
        m.counter("wal_puts", "Objects put", || 7);
        let text = m.text();
        for line in [
            "weir_http_requests_total{operation=\"append\",status=\"204\"} 2",
            "weir_http_request_seconds_count{operation=\"append\"} 2",
            "weir_live_readers{kind=\"sse\"} 0",
            "weir_live_readers{kind=\"long-poll\"} 1",
            "weir_wal_backlog_bytes 1.5",
            "weir_wal_puts_total 7",
        ] {
            assert!(text.contains(line), "{line} not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
