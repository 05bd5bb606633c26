//! Writes families of the catalogue, and nothing else, as OpenMetrics.
//!
//! Invariant: a name, type, unit, help or label that is not in the catalogue cannot be written. Used by the collectors.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry;

use super::catalog::{Kind, Metric, Unit};
use super::histogram::Histogram;

/// One family while its series are written.
pub struct Series<'a> {
    metric: &'static Metric,
    encoder: MetricEncoder<'a>,
}

/// Writes a family; `series` writes its series.
pub fn family(
    encoder: &mut DescriptorEncoder<'_>,
    metric: &'static Metric,
    series: impl FnOnce(&mut Series<'_>) -> fmt::Result,
) -> fmt::Result {
    let unit = metric.unit.map(|unit| match unit {
        Unit::Bytes => registry::Unit::Bytes,
        Unit::Seconds => registry::Unit::Seconds,
    });
    let kind = match metric.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
        Kind::Info => MetricType::Info,
    };
    let encoder = encoder.encode_descriptor(metric.name, metric.help, unit.as_ref(), kind)?;
    series(&mut Series { metric, encoder })
}

/// Writes a gauge without labels.
pub fn gauge(encoder: &mut DescriptorEncoder<'_>, metric: &'static Metric, value: f64) -> fmt::Result {
    family(encoder, metric, |series| series.gauge(&[], value))
}

/// Writes a counter without labels.
pub fn counter(encoder: &mut DescriptorEncoder<'_>, metric: &'static Metric, value: u64) -> fmt::Result {
    family(encoder, metric, |series| series.counter(&[], value))
}

/// Writes a histogram without labels.
pub fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    metric: &'static Metric,
    value: &Histogram,
) -> fmt::Result {
    family(encoder, metric, |series| series.histogram(&[], value))
}

impl Series<'_> {
    /// One counter; `labels` are the values, in the catalogue's order.
    pub fn counter(&mut self, labels: &[&str], value: u64) -> fmt::Result {
        self.labelled(labels, |encoder| encoder.encode_counter::<NoLabelSet, u64, u64>(&value, None))
    }

    /// One gauge.
    pub fn gauge(&mut self, labels: &[&str], value: f64) -> fmt::Result {
        self.labelled(labels, |encoder| encoder.encode_gauge(&value))
    }

    /// One histogram.
    pub fn histogram(&mut self, labels: &[&str], value: &Histogram) -> fmt::Result {
        let read = value.read();
        self.labelled(labels, |encoder| {
            encoder.encode_histogram::<NoLabelSet>(read.sum, read.count, &read.buckets, None)
        })
    }

    /// What never changes, in labels.
    pub fn info(&mut self, labels: &[&str]) -> fmt::Result {
        let labels = self.labels(labels);
        self.encoder.encode_info(&labels)
    }

    fn labels<'l>(&self, values: &[&'l str]) -> Vec<(&'l str, &'l str)> {
        debug_assert_eq!(self.metric.labels.len(), values.len(), "{}", self.metric.name);
        self.metric.labels.iter().map(|label| label.name).zip(values.iter().copied()).collect()
    }

    fn labelled(
        &mut self,
        values: &[&str],
        write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let labels = self.labels(values);
        if labels.is_empty() {
            return write(&mut self.encoder);
        }
        write(&mut self.encoder.encode_family(&labels)?)
    }
}
