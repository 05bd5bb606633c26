//! How fast segments are built and read, in GB/s of content: `cargo run --release -p weir --example segment_read`.
//! Prints, asserts nothing.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for people")]

use bytes::Bytes;
use weir::clock::Clock;
use weir::metadata::command::SegmentId;
use weir::metadata::state::Extent;
use weir::storage::keys;
use weir::storage::reader::SegmentReader;
use weir::storage::record::{Frame, Payload};
use weir::storage::segment::{BuiltSegment, SegmentBuilder};
use weir::storage::store::{S3Env, Store, StoreUrl};
use weir_api::{ClusterUid, NodeEpoch, Offset, SessionId, StreamEpoch, StreamId};

/// Content of one segment.
const SIZE: usize = 64 << 20;
const STREAMS: u64 = 4;

struct Load {
    name: &'static str,
    json: bool,
    /// Bytes of one frame.
    frame: usize,
    /// Bytes of one JSON element.
    element: usize,
}

fn session() -> SessionId {
    SessionId { node: "bench".parse().unwrap(), epoch: NodeEpoch(1) }
}

fn payload(load: &Load) -> Payload {
    if !load.json {
        return Payload::Bytes(Bytes::from(vec![7u8; load.frame]));
    }
    let count = load.frame / load.element;
    let element = format!("{},", "7".repeat(load.element - 1));
    let ends = (1..=count).map(|n| u32::try_from(n * load.element).unwrap()).collect();
    Payload::Json { text: element.repeat(count).into(), ends }
}

fn frames(load: &Load, stream: u64) -> Vec<Frame> {
    let payload = payload(load);
    let count = (SIZE as u64 / STREAMS) / payload.size() as u64;
    let frame = |n| Frame {
        stream: StreamId(stream),
        epoch: StreamEpoch(1),
        offset: Offset(n * payload.length()),
        payload: payload.clone(),
        producer: None,
        seq: None,
        closes: false,
        births: false,
        intro: None,
    };
    (0..count).map(frame).collect()
}

fn build(all: &[Vec<Frame>]) -> BuiltSegment {
    let mut builder = SegmentBuilder::new(ClusterUid(1), session(), 1);
    for frames in all {
        let by_ref: Vec<&Frame> = frames.iter().collect();
        builder.add(frames[0].stream, StreamEpoch(1), &by_ref, None).unwrap();
    }
    builder.finish()
}

/// Reads everything once; returns how many bytes came.
async fn read_all(reader: &SegmentReader, key: &str, built: &BuiltSegment, max: usize) -> usize {
    let mut bytes = 0;
    for range in &built.ranges {
        let extent =
            Extent { segment: SegmentId(1), written_as: range.stream, start: range.start, end: range.end };
        let mut at = range.start;
        while at < range.end {
            let parts = reader.read(key, built.object.len() as u64, &extent, at, max).await.unwrap();
            bytes += parts.iter().map(Payload::size).sum::<usize>();
            at.0 += parts.iter().map(Payload::length).sum::<u64>();
        }
    }
    bytes
}

#[tokio::main]
async fn main() {
    let clock = Clock::default();
    let folder = tempfile::tempdir().unwrap();
    let loads = [
        Load { name: "bytes, 64 KiB frames", json: false, frame: 64 << 10, element: 0 },
        Load { name: "bytes, 100 B frames", json: false, frame: 100, element: 0 },
        Load { name: "JSON, 100 of 100 B a frame", json: true, frame: 10_000, element: 100 },
    ];
    for load in &loads {
        let all: Vec<Vec<Frame>> = (1..=STREAMS).map(|s| frames(load, s)).collect();
        let rate = |bytes: usize, since: tokio::time::Instant| {
            bytes as f64 / 1e9 / clock.monotonic().duration_since(since).as_secs_f64()
        };
        drop(build(&all));
        let since = clock.monotonic();
        let built = build(&all);
        println!("{:<28} build               {:6.2} GB/s", load.name, rate(built.object.len(), since));

        let url = StoreUrl::File(folder.path().join(load.name));
        let store = Store::open(&url, S3Env::default()).unwrap();
        let key = keys::segment(1, &session(), 1);
        store.put_if_absent(&key, built.object.clone()).await.unwrap();
        for max in [64 << 10, 1 << 20] {
            let reader = SegmentReader::new(store.clone(), 1 << 30);
            let since = clock.monotonic();
            let bytes = read_all(&reader, &key, &built, max).await;
            println!("{:<28} cold, {:>4} KiB reads {:6.2} GB/s", load.name, max >> 10, rate(bytes, since));
            let since = clock.monotonic();
            let bytes: usize =
                futures::future::join_all((0..8).map(|_| read_all(&reader, &key, &built, max)))
                    .await
                    .into_iter()
                    .sum();
            println!("{:<28} hot,  {:>4} KiB reads {:6.2} GB/s", load.name, max >> 10, rate(bytes, since));
        }
    }
}
