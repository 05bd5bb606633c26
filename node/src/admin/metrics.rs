//! `GET /metrics`, and the families that the metadata state fills.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::Full;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::{View, nodes};
use crate::metadata::Metadata;
use crate::metrics::{Metrics, counter, gauge};
use crate::storage::reader::SegmentReader;
use crate::streams::Streams;

pub(super) fn scrape(metrics: &Metrics) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(metrics.text())));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Registers what is known of the cluster.
pub(super) fn register(metrics: &Metrics, view: View) {
    metrics.collect(OfState { view });
}

struct OfState {
    view: View,
}

impl fmt::Debug for OfState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfState")
    }
}

impl Collector for OfState {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let seen = (self.view)();
        let state = &seen.state;
        let nodes = nodes::list(state).nodes;
        let ended = state.sessions.values().filter(|s| s.ended.is_some()).count();
        let leader_known = u8::from(seen.leader.is_some());
        let families: [(&str, &str, f64); 8] = [
            ("metadata_applied_index", "Last log entry that this node applied", float(seen.applied)),
            ("metadata_term", "Term of the metadata log", float(seen.term)),
            ("metadata_leader_known", "1 if this node knows the log's leader", f64::from(leader_known)),
            ("nodes", "Nodes registered", float(count(nodes.len()))),
            (
                "nodes_alive",
                "Nodes with a live session",
                float(count(nodes.iter().filter(|n| n.alive).count())),
            ),
            ("streams", "Streams by the log", float(count(state.streams.len()))),
            ("segments", "Segments by the log", float(count(state.segments.len()))),
            (
                "sessions_awaiting_recovery",
                "Ended sessions whose records are not recovered",
                float(count(ended)),
            ),
        ];
        for (name, help, value) in families {
            gauge(&mut encoder, name, help, value)?;
        }
        Ok(())
    }
}

/// What the parts of a running node count. One look at each per scrape.
struct OfNode {
    metadata: Metadata,
    streams: Streams,
    reader: SegmentReader,
}

impl fmt::Debug for OfNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfNode")
    }
}

/// Registers what the parts of a running node count.
pub(super) fn register_node(metrics: &Metrics, metadata: Metadata, streams: Streams, reader: SegmentReader) {
    metrics.collect(OfNode { metadata, streams, reader });
}

impl Collector for OfNode {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (wal, log, cache) = (self.streams.wal_status(), self.metadata.stats(), self.reader.stats());
        let zero = Duration::ZERO;
        let oldest = wal.oldest_waiting.unwrap_or(zero).as_secs_f64();
        let failing = wal.error.as_ref().map_or(zero, |(_, since)| *since).as_secs_f64();
        let gauges: [(&str, &str, f64); 13] = [
            ("open_streams", "Streams open at this node", float(count(self.streams.open_count()))),
            ("wal_backlog_bytes", "Bytes not yet in segments", float(wal.backlog_bytes)),
            ("wal_backlog_max_bytes", "Bound of wal_backlog_bytes", float(wal.max_bytes)),
            ("wal_backlog_objects", "WAL objects not yet in segments", float(wal.backlog_objects)),
            ("wal_backlog_max_objects", "Bound of wal_backlog_objects", float(wal.max_objects)),
            ("wal_waiting_appends", "Appends that are not durable yet", float(wal.waiting)),
            ("wal_oldest_waiting_seconds", "Age of the oldest of them", oldest),
            ("wal_failing_seconds", "How long puts have been failing; 0 if they do not", failing),
            ("wal_put_seconds", "Moving average of a put's time", wal.put_time.as_secs_f64()),
            ("metadata_waiting_commands", "Commands without an answer yet", float(count(log.waiting))),
            ("metadata_log_bytes", "Log applied since the newest snapshot", float(log.log_bytes)),
            ("cache_bytes", "Blocks of segments in memory", float(cache.bytes)),
            ("cache_max_bytes", "Bound of cache_bytes", float(cache.capacity)),
        ];
        for (name, help, value) in gauges {
            gauge(&mut encoder, name, help, value)?;
        }
        let counters: [(&str, &str, u64); 5] = [
            ("wal_puts", "Puts of WAL objects, failed ones included", wal.puts),
            ("wal_objects", "WAL objects made durable", wal.objects),
            ("wal_records", "Appends made durable", wal.frames),
            ("cache_hits", "Blocks found in memory", cache.hits),
            ("cache_misses", "Blocks fetched", cache.misses),
        ];
        for (name, help, value) in counters {
            counter(&mut encoder, name, help, value)?;
        }
        Ok(())
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[allow(clippy::cast_precision_loss, reason = "metrics are floating point; 2^53 is far above any of these")]
fn float(n: u64) -> f64 {
    n as f64
}
