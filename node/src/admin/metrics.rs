//! `GET /metrics`, and the families that the metadata state fills.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::Full;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::{Know, Local, View, nodes};
use crate::metadata::{MemberStatus, Metadata};
use crate::metrics::{
    Committer, LabelValue as _, Metric, Metrics, RecoveryMeters, catalog as c, counter, family, float, gauge,
    histogram,
};
use crate::storage::reader::SegmentReader;
use crate::streams::Streams;

pub(super) fn scrape(metrics: &Metrics) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(metrics.text())));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A member that was not heard for longer is gone rather than behind.
const HEARD: Duration = Duration::from_secs(60);

/// Registers what is known of the cluster.
pub(super) fn register(metrics: &Metrics, view: View, local: Know) {
    metrics.collect(OfState { view, local });
}

struct OfState {
    view: View,
    local: Know,
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
        let local = (self.local)(state);
        let nodes = nodes::list(state, &local).nodes;
        let ended = state.sessions.values().filter(|s| s.ended.is_some()).count();
        let alive = nodes.iter().filter(|node| node.alive).count();
        let voters = local.members.iter().filter(|m| m.voter).count();
        let gauges: [(&'static Metric, u64); 16] = [
            (&c::METADATA_APPLIED_INDEX, seen.applied),
            (&c::METADATA_TERM, seen.term),
            (&c::METADATA_LEADER_KNOWN, seen.leader.is_some().into()),
            (&c::METADATA_QUORUM_LOST, (local.quorum_healthy == Some(false)).into()),
            (&c::METADATA_VOTERS, count(voters)),
            (&c::METADATA_VOTER_TARGET, local.voter_target.into()),
            (&c::METADATA_MEMBER_LAG, member_lag(&local)),
            (&c::NODE_EPOCH, local.epoch.0),
            (&c::SESSION_ALIVE, local.alive.into()),
            (&c::DRAINING, local.draining.into()),
            (&c::TRANSFERS_PENDING, count(state.transfers.len())),
            (&c::NODES, count(nodes.len())),
            (&c::NODES_ALIVE, count(alive)),
            (&c::STREAMS, count(state.streams.len())),
            (&c::SEGMENTS, count(state.segments.len())),
            (&c::SESSIONS_AWAITING_RECOVERY, count(ended)),
        ];
        gauges.into_iter().try_for_each(|(metric, value)| gauge(&mut encoder, metric, float(value)))?;
        gauge(&mut encoder, &c::LEASE_REMAINING, local.lease.as_secs_f64())
    }
}

/// By how much the slowest member that is there is behind, if this node leads.
fn member_lag(local: &Local) -> u64 {
    let there = |m: &&MemberStatus| m.heard.is_some_and(|at| at.elapsed() < HEARD);
    let lags = local.members.iter().filter(there).filter_map(|m| local.last_index.checked_sub(m.matched?));
    if local.quorum_healthy.is_some() { lags.max().unwrap_or(0) } else { 0 }
}

/// What the parts of a running node count. One look at each per scrape.
struct OfNode {
    metadata: Metadata,
    streams: Streams,
    reader: SegmentReader,
    recovery: Arc<RecoveryMeters>,
}

impl fmt::Debug for OfNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfNode")
    }
}

/// Registers what the parts of a running node count.
pub(super) fn register_node(metrics: &Metrics, metadata: Metadata, streams: Streams, reader: SegmentReader) {
    let recovery = metrics.recovery();
    metrics.collect(OfNode { metadata, streams, reader, recovery });
}

impl Collector for OfNode {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        self.wal(encoder)?;
        self.streams(encoder)?;
        self.store(encoder)?;
        self.log(encoder)
    }
}

impl OfNode {
    fn wal(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (wal, meters) = (self.streams.wal_status(), self.streams.wal_meters());
        let oldest = wal.oldest_waiting.unwrap_or_default().as_secs_f64();
        let failing = wal.error.map(|(_, since)| since).unwrap_or_default().as_secs_f64();
        let gauges: [(&'static Metric, f64); 8] = [
            (&c::WAL_BACKLOG, float(wal.backlog_bytes)),
            (&c::WAL_BACKLOG_MAX, float(wal.max_bytes)),
            (&c::WAL_BACKLOG_OBJECTS, float(wal.backlog_objects)),
            (&c::WAL_BACKLOG_MAX_OBJECTS, float(wal.max_objects)),
            (&c::WAL_WAITING_APPENDS, float(wal.waiting)),
            (&c::WAL_OLDEST_WAITING, oldest),
            (&c::WAL_FAILING, failing),
            (&c::WAL_STALLED, float(wal.stalled.into())),
        ];
        gauges.into_iter().try_for_each(|(metric, value)| gauge(encoder, metric, value))?;
        histogram(encoder, &c::WAL_DURABILITY, &meters.durability_seconds)?;
        histogram(encoder, &c::WAL_PUT, &meters.put_seconds)?;
        histogram(encoder, &c::WAL_OBJECT_RECORDS, &meters.object_records)?;
        family(encoder, &c::WAL_PUTS, |series| {
            meters.puts.each().try_for_each(|(outcome, n)| series.counter(&[outcome], n.get()))
        })?;
        counter(encoder, &c::WAL_WRITTEN, meters.bytes.get())
    }

    fn streams(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (meters, cache) = (self.streams.meters(), self.reader.stats());
        family(encoder, &c::APPENDS, |series| {
            meters.appends.each().try_for_each(|(outcome, n)| series.counter(&[outcome], n.get()))
        })?;
        let made = [(Committer::Flush, &meters.segments), (Committer::Recovery, &self.recovery.segments)];
        family(encoder, &c::SEGMENTS_COMMITTED, |series| {
            made.iter().try_for_each(|(by, m)| series.counter(&[by.as_str()], m.count.get()))
        })?;
        family(encoder, &c::SEGMENT_COMMITTED, |series| {
            made.iter().try_for_each(|(by, m)| series.counter(&[by.as_str()], m.bytes.get()))
        })?;
        counter(encoder, &c::FORKS, meters.forks.get())?;
        counter(encoder, &c::STREAMS_EXPIRED, meters.expired.get())?;
        self.moves(encoder)?;
        counter(encoder, &c::CACHE_HITS, cache.hits)?;
        counter(encoder, &c::CACHE_MISSES, cache.misses)?;
        gauge(encoder, &c::OPEN_STREAMS, float(count(self.streams.open_count())))?;
        gauge(encoder, &c::STREAMS_MAX, float(count(self.streams.max_streams())))?;
        gauge(encoder, &c::CACHE, float(cache.bytes))?;
        gauge(encoder, &c::CACHE_MAX, float(cache.capacity))
    }

    fn moves(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let moves = &self.streams.meters().moves;
        family(encoder, &c::TRANSFERS, |series| {
            moves.transfers.each().try_for_each(|(outcome, n)| series.counter(&[outcome], n.get()))
        })?;
        histogram(encoder, &c::TRANSFER, &moves.transfer_seconds)?;
        family(encoder, &c::DRAINS, |series| {
            moves.drains.each().try_for_each(|(outcome, n)| series.counter(&[outcome], n.get()))
        })?;
        histogram(encoder, &c::DRAIN, &moves.drain_seconds)?;
        counter(encoder, &c::DRAINED_STREAMS, moves.drained_streams.get())
    }

    fn store(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let meters = self.streams.store_meters();
        family(encoder, &c::STORE_REQUEST, |series| {
            meters.seconds.each().try_for_each(|(call, took)| series.histogram(&[call], took))
        })?;
        family(encoder, &c::STORE_ERRORS, |series| {
            for (call, kinds) in meters.errors.each() {
                kinds.each().try_for_each(|(kind, n)| series.counter(&[call, kind], n.get()))?;
            }
            Ok(())
        })?;
        family(encoder, &c::STORE_RETRIES, |series| {
            meters.retries.each().try_for_each(|(call, n)| series.counter(&[call], n.get()))
        })
    }

    fn log(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let log = self.metadata.stats();
        let gauges: [(&'static Metric, u64); 7] = [
            (&c::METADATA_LEADER, log.leadership.me.into()),
            (&c::METADATA_LAST_LOG_INDEX, log.last_log),
            (&c::METADATA_SNAPSHOT_INDEX, log.snapshot),
            (&c::METADATA_PURGED_INDEX, log.purged),
            (&c::METADATA_LOG, log.log_bytes),
            (&c::METADATA_LOG_CACHE, log.cached_bytes),
            (&c::METADATA_WAITING_COMMANDS, count(log.waiting)),
        ];
        gauges.into_iter().try_for_each(|(metric, value)| gauge(encoder, metric, float(value)))?;
        let meters = self.metadata.meters();
        family(encoder, &c::PLACEMENTS, |series| {
            meters.placements.each().try_for_each(|(outcome, n)| series.counter(&[outcome], n.get()))
        })?;
        family(encoder, &c::FENCED_SESSIONS, |series| {
            meters.fences.each().try_for_each(|(by, n)| series.counter(&[by], n.get()))
        })
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
