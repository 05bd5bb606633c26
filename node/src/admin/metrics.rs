//! `GET /metrics`, and the families that the metadata state fills.

use std::fmt;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::Full;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::{View, nodes};
use crate::metrics::{Metrics, gauge};

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

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[allow(clippy::cast_precision_loss, reason = "metrics are floating point; 2^53 is far above any of these")]
fn float(n: u64) -> f64 {
    n as f64
}
