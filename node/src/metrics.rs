//! Every metric family of the node, in one place.
//!
//! Invariant: labels take values from the code, never from a client, so that the number of series is bounded; what is
//! not in the catalogue is not shown, and counting takes no lock. Parts count in the meters they own (`meters`); they
//! and what a part keeps anyway are read at each scrape, by the collectors of `admin::metrics` and the one here.
//! A new metric is an entry in `catalog`, a cell in `meters` and a line in a collector.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;

pub mod catalog;
mod histogram;
mod labels;
mod meters;
mod reference;
mod write;

pub use catalog::Metric;
pub use histogram::Histogram;
pub use labels::{
    AppendOutcome, Committer, DrainOutcome, FencedBy, Forwarded, LabelValue, LiveKind, Operation, Placement,
    PutOutcome, RecoveredOf, StoreCall, StoreFault, TransferOutcome,
};
pub use meters::{
    AppendMeter, By, Count, LogMeters, MoveMeters, RecoveryMeters, SegmentMeters, StoreMeters, StreamMeters,
    WalMeters,
};
pub use reference::page as reference;
pub use write::{Series, counter, family, gauge, histogram};

use meters::HttpMeters;

/// Counts one live reader for as long as it is held.
#[derive(Debug)]
pub struct LiveReader {
    meters: Arc<HttpMeters>,
    kind: LiveKind,
}

impl Drop for LiveReader {
    fn drop(&mut self) {
        self.meters.live.at(self.kind).dec();
    }
}

/// The node's families. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    http: Arc<HttpMeters>,
    recovery: Arc<RecoveryMeters>,
    registry: Arc<Mutex<Registry>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let (http, recovery) = (Arc::<HttpMeters>::default(), Arc::<RecoveryMeters>::default());
        let mut registry = Registry::with_prefix("weir");
        registry.register_collector(Box::new(Own { http: http.clone(), recovery: recovery.clone() }));
        Self { http, recovery, registry: Arc::new(Mutex::new(registry)) }
    }
}

impl Metrics {
    /// Counts one answered request of the client listener.
    pub fn request(&self, operation: Operation, status: u16, took: Duration) {
        self.http.answered(operation, status);
        self.http.seconds.at(operation).time(took);
    }

    /// Counts a live reader.
    pub fn live_reader(&self, kind: LiveKind) -> LiveReader {
        self.http.live.at(kind).inc();
        LiveReader { meters: self.http.clone(), kind }
    }

    /// Counts one redirected request.
    pub fn redirected(&self) {
        self.http.redirects.inc();
    }

    /// Counts one forwarded request, or one answer that broke off.
    pub fn forwarded(&self, outcome: Forwarded) {
        self.http.forwards.at(outcome).inc();
    }

    /// Counts one request that was sent on too often.
    pub fn hops_exceeded(&self) {
        self.http.hops_exceeded.inc();
    }

    /// Where recovery counts.
    pub fn recovery(&self) -> Arc<RecoveryMeters> {
        self.recovery.clone()
    }

    /// Registers a value that goes up and down, asked for at each scrape.
    pub fn gauge(&self, metric: &'static Metric, sample: impl Fn() -> f64 + Send + Sync + 'static) {
        self.collect(Sampled { metric, sample });
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

struct Sampled<F> {
    metric: &'static Metric,
    sample: F,
}

impl<F> fmt::Debug for Sampled<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.metric.name)
    }
}

impl<F: Fn() -> f64 + Send + Sync + 'static> Collector for Sampled<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        gauge(&mut encoder, self.metric, (self.sample)())
    }
}

/// What is there from the start.
#[derive(Debug)]
struct Own {
    http: Arc<HttpMeters>,
    recovery: Arc<RecoveryMeters>,
}

impl Collector for Own {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        family(encoder, &catalog::HTTP_REQUESTS, |series| {
            for (operation, status, n) in self.http.answers() {
                series.counter(&[operation, &status.to_string()], n)?;
            }
            Ok(())
        })?;
        family(encoder, &catalog::HTTP_REQUEST, |series| {
            self.http.seconds.each().try_for_each(|(operation, h)| series.histogram(&[operation], h))
        })?;
        family(encoder, &catalog::LIVE_READERS, |series| {
            self.http.live.each().try_for_each(|(kind, n)| series.gauge(&[kind], float(n.get())))
        })?;
        counter(encoder, &catalog::REDIRECTS, self.http.redirects.get())?;
        family(encoder, &catalog::FORWARDS, |series| {
            self.http.forwards.each().try_for_each(|(outcome, n)| series.counter(&[outcome], n.get()))
        })?;
        counter(encoder, &catalog::HOPS_EXCEEDED, self.http.hops_exceeded.get())?;
        let recovered = &self.recovery.seconds;
        counter(encoder, &catalog::RECOVERED_SESSIONS, recovered.count())?;
        histogram(encoder, &catalog::RECOVERY, recovered)?;
        family(encoder, &catalog::TAKEOVER, |series| {
            self.recovery.takeover_seconds.each().try_for_each(|(of, h)| series.histogram(&[of], h))
        })?;
        counter(encoder, &catalog::RECOVERY_RETRIES, self.recovery.retries.get())?;
        family(encoder, &catalog::BUILD, |series| series.info(&[env!("CARGO_PKG_VERSION")]))
    }
}

/// A whole number as metrics have them.
#[allow(clippy::cast_precision_loss, reason = "metrics are floating point; 2^53 is far above any of these")]
pub fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_prefixed_and_counted() {
        let m = Metrics::default();
        m.request(Operation::Append, 204, Duration::from_millis(3));
        m.request(Operation::Append, 204, Duration::from_millis(3));
        drop(m.live_reader(LiveKind::Sse));
        let _kept = m.live_reader(LiveKind::LongPoll);
        m.gauge(&catalog::WAL_BACKLOG, || 1.5);
        let text = m.text();
        for line in [
            "# TYPE weir_http_requests counter",
            "weir_http_requests_total{operation=\"append\",status=\"204\"} 2",
            "# UNIT weir_http_request_seconds seconds",
            "weir_http_request_seconds_count{operation=\"append\"} 2",
            "weir_http_request_seconds_bucket{le=\"0.0025\",operation=\"append\"} 0",
            "weir_http_request_seconds_bucket{le=\"0.005\",operation=\"append\"} 2",
            "weir_http_request_seconds_bucket{le=\"+Inf\",operation=\"append\"} 2",
            "weir_live_readers{kind=\"sse\"} 0.0",
            "weir_live_readers{kind=\"long-poll\"} 1.0",
            "weir_wal_backlog_bytes 1.5",
            "weir_recovered_sessions_total 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
        }
        assert_eq!(text.matches("weir_http_requests_total{").count(), 1, "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_status_beyond_http_is_counted_and_no_more() {
        let m = Metrics::default();
        for status in [0, 99, 600, u16::MAX] {
            m.request(Operation::Other, status, Duration::ZERO);
        }
        let text = m.text();
        assert_eq!(text.matches("weir_http_requests_total{operation=\"other\"").count(), 2, "{text}");
    }

    #[test]
    fn an_append_that_is_dropped_half_way_has_an_unknown_outcome() {
        let meters = StreamMeters::default();
        drop(meters.append());
        meters.append().outcome = AppendOutcome::Accepted;
        let counted = |outcome| meters.appends.at(outcome).get();
        assert_eq!((counted(AppendOutcome::Unknown), counted(AppendOutcome::Accepted)), (1, 1));
    }
}
