//! Reads through a store that counts: right content, few gets, whatever lies in the object.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use proptest::prelude::*;
use weir_api::{Offset, StreamId};

use super::{MAX_FETCH, ReadError, SegmentReader};
use crate::metadata::state::Extent;
use crate::storage::real::Bucket;
use crate::storage::record::{Dedupe, Payload};
use crate::storage::segment::chunk::MAX_CHUNK;
use crate::storage::segment::model::{self, ModelStream};
use crate::storage::store::Store;

/// Counts gets; can be told to fail them.
struct Counting {
    inner: Arc<dyn ObjectStore>,
    bucket: Bucket,
    gets: AtomicU64,
    bytes: AtomicU64,
    down: AtomicBool,
}

impl Counting {
    fn new() -> Self {
        let bucket = Bucket::new();
        let (gets, bytes, down) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self { inner: bucket.objects.clone(), bucket, gets, bytes, down }
    }
}

impl std::fmt::Debug for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Counting({}, {:?})", self.inner, self.bucket.real)
    }
}

impl std::fmt::Display for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("counting")
    }
}

type Answer<'a, T> = BoxFuture<'a, object_store::Result<T>>;

impl ObjectStore for Counting {
    fn put_opts<'a, 'b, 'c>(
        &'a self,
        at: &'b Path,
        what: PutPayload,
        how: PutOptions,
    ) -> Answer<'c, PutResult>
    where
        'a: 'c,
        'b: 'c,
    {
        self.inner.put_opts(at, what, how)
    }

    fn put_multipart_opts<'a, 'b, 'c>(
        &'a self,
        at: &'b Path,
        how: PutMultipartOptions,
    ) -> Answer<'c, Box<dyn MultipartUpload>>
    where
        'a: 'c,
        'b: 'c,
    {
        self.inner.put_multipart_opts(at, how)
    }

    fn get_opts<'a, 'b, 'c>(&'a self, at: &'b Path, how: GetOptions) -> Answer<'c, GetResult>
    where
        'a: 'c,
        'b: 'c,
    {
        self.gets.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            // Answers come later, so that concurrent readers meet.
            tokio::task::yield_now().await;
            if self.down.load(Ordering::Relaxed) {
                return Err(object_store::Error::NotImplemented {
                    operation: "get".into(),
                    implementer: "down".into(),
                });
            }
            // A range that the object does not have: as a store that is not worth another try says it.
            let got = self.inner.get_opts(at, how).await.map_err(|e| match e {
                e @ object_store::Error::NotFound { .. } => e,
                e => object_store::Error::Generic { store: "LocalFileSystem", source: Box::new(e) },
            })?;
            self.bytes.fetch_add(got.range.end - got.range.start, Ordering::Relaxed);
            Ok(got)
        })
    }

    fn delete_stream(
        &self,
        at: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(at)
    }

    fn list(&self, at: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(at)
    }

    fn list_with_delimiter<'a, 'b, 'c>(&'a self, at: Option<&'b Path>) -> Answer<'c, ListResult>
    where
        'a: 'c,
        'b: 'c,
    {
        self.inner.list_with_delimiter(at)
    }

    fn copy_opts<'a, 'b, 'c, 'd>(&'a self, from: &'b Path, to: &'c Path, how: CopyOptions) -> Answer<'d, ()>
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
    {
        self.inner.copy_opts(from, to, how)
    }
}

const KEY: &str = "g1/segments/demo-0/1700000000000/00000000000000000003";
const MIB: u64 = 1 << 20;

/// One stored segment and a reader of it.
struct Bench {
    counting: Arc<Counting>,
    reader: SegmentReader,
    streams: Vec<ModelStream>,
    size: u64,
}

impl Bench {
    async fn new(streams: Vec<ModelStream>, cache_bytes: u64) -> Self {
        let object = model::build(&streams).object;
        Self::over(object, streams, cache_bytes).await
    }

    async fn over(object: Bytes, streams: Vec<ModelStream>, cache_bytes: u64) -> Self {
        let counting = Arc::new(Counting::new());
        let store = Store::over(counting.clone(), "bucket");
        let size = object.len() as u64;
        store.put_if_absent(KEY, object).await.unwrap();
        Self { reader: SegmentReader::new(store, cache_bytes), counting, streams, size }
    }

    async fn read(&self, n: usize, from: u64, max: usize) -> Result<Vec<Payload>, ReadError> {
        self.reader.read(KEY, self.size, &self.streams[n].extent(), Offset(from), max).await
    }

    /// A read whose answer is checked; the offset after it.
    async fn good(&self, n: usize, from: u64, max: usize) -> u64 {
        let parts = self.read(n, from, max).await.unwrap();
        self.streams[n].check(&parts, from, self.streams[n].end(), max);
        from + parts.iter().map(Payload::length).sum::<u64>()
    }

    /// Gets and bytes got since the last call.
    fn cost(&self) -> (u64, u64) {
        (self.counting.gets.swap(0, Ordering::Relaxed), self.counting.bytes.swap(0, Ordering::Relaxed))
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn long_stream(mib: u64) -> ModelStream {
    let payloads = (0..mib * 16).map(|n| model::payload(false, &[64 << 10], n as u8)).collect();
    model::stream(7, false, 1000, payloads, None)
}

/// A read: which stream, where in it, how much, where the extent is cut at both sides.
type Probe = (prop::sample::Index, prop::sample::Index, usize, bool);

fn probes() -> impl Strategy<Value = Vec<Probe>> {
    let max = prop_oneof![Just(0), 1usize..100, 1usize..700_000, Just(usize::MAX)];
    prop::collection::vec(
        (any::<prop::sample::Index>(), any::<prop::sample::Index>(), max, any::<bool>()),
        1..30,
    )
}

async fn probe(bench: &Bench, (which, at, max, cut): &Probe) -> Option<Result<(), ReadError>> {
    let s = &bench.streams[which.index(bench.streams.len())];
    let length = s.end() - s.start();
    if length == 0 {
        return None;
    }
    let from = s.start() + at.index(length as usize) as u64;
    let mut extent = s.extent();
    if *cut {
        extent.start = Offset(from);
        extent.end = Offset(from + 1 + (s.end() - from - 1) / 2);
    }
    let answer = bench.reader.read(KEY, bench.size, &extent, Offset(from), *max).await;
    Some(answer.map(|parts| s.check(&parts, from, extent.end.0, *max)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_read_answers_what_was_written(
        streams in model::streams(),
        probes in probes(),
        cache in prop_oneof![Just(0), 1u64..2 * MIB, Just(64 * MIB)],
    ) {
        prop_assume!(!streams.is_empty());
        block_on(async {
            let bench = Bench::new(streams, cache).await;
            for p in &probes {
                if let Some(answer) = probe(&bench, p).await {
                    answer.unwrap();
                }
                assert!(bench.reader.stats().bytes <= cache);
            }
            for s in &bench.streams {
                let found = bench.reader.dedupe(KEY, bench.size, s.id).await;
                match &s.dedupe {
                    Some(want) => assert_eq!(&found.unwrap(), want),
                    None => assert!(matches!(found, Err(ReadError::Corrupt { .. }))),
                }
            }
        });
    }

    #[test]
    fn a_damaged_object_gives_the_right_answer_or_an_error(
        streams in model::streams(),
        probes in probes(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
        near_end: bool,
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        prop_assume!(!streams.is_empty());
        block_on(async {
            let mut object = model::build(&streams).object.to_vec();
            let size = object.len();
            for (at, bits) in &damage {
                let n = if near_end { size - 1 - at.index(size.min(400)) } else { at.index(size) };
                object[n] ^= bits;
            }
            object.truncate(cut.map_or(size, |at| at.index(size)));
            let mut bench = Bench::over(object.into(), streams, MIB).await;
            bench.size = size as u64;
            for p in &probes {
                match probe(&bench, p).await {
                    None | Some(Ok(())) => {}
                    Some(Err(e)) => assert!(!matches!(e, ReadError::NotFound(_)), "{e}"),
                }
            }
            for s in &bench.streams {
                if let Ok(found) = bench.reader.dedupe(KEY, bench.size, s.id).await {
                    assert_eq!(Some(found), s.dedupe);
                }
            }
        });
    }
}

#[tokio::test]
async fn a_lone_read_costs_the_end_a_page_and_its_chunk() {
    let bench = Bench::new(vec![long_stream(16)], 64 * MIB).await;
    bench.good(0, 1000 + 5 * MIB + 17, 1000).await;
    // The index is so small that it comes with the end.
    assert_eq!(bench.cost(), (2, (64 << 10) + MAX_CHUNK as u64));
    bench.good(0, 1000 + 5 * MIB + 99, 1000).await;
    assert_eq!(bench.cost(), (0, 0));
}

#[tokio::test]
async fn missing_neighbours_come_in_one_get() {
    let bench = Bench::new(vec![long_stream(16)], 64 * MIB).await;
    bench.good(0, 1000, 2 << 20).await;
    assert_eq!(bench.cost(), (2, (64 << 10) + 2 * MIB));
    // What is cached is not fetched again; what follows comes with twice the run before it.
    bench.good(0, 1000 + MIB, 2 << 20).await;
    assert_eq!(bench.cost(), (1, MAX_FETCH));
    // More than a fetch brings: several, each as large as allowed.
    let cold = Bench::new(vec![long_stream(16)], 64 * MIB).await;
    cold.good(0, 1000, 10 << 20).await;
    assert_eq!(cold.cost(), (1 + 3, (64 << 10) + 10 * MIB));
}

#[tokio::test]
async fn a_catch_up_in_small_steps_settles_at_large_gets() {
    let bench = Bench::new(vec![long_stream(32)], 64 * MIB).await;
    let mut at = 1000;
    while at < bench.streams[0].end() {
        at = bench.good(0, at, 100_000).await;
    }
    let (gets, bytes) = bench.cost();
    // The end; 256 KiB, then 512 KiB, 1.5 MiB, and from there on 4 MiB each.
    assert_eq!((gets, bytes), (1 + 3 + 8, (64 << 10) + 32 * MIB));
}

#[tokio::test]
async fn a_hundred_readers_of_one_cold_chunk_make_one_get() {
    let bench = Bench::new(vec![long_stream(4)], 64 * MIB).await;
    let readers = (0..100).map(|n| bench.good(0, 1000 + n, 1000));
    futures::future::join_all(readers).await;
    assert_eq!(bench.cost().0, 2);
}

#[tokio::test]
async fn a_reader_that_goes_away_leaves_the_fetch_to_the_others() {
    let bench = Bench::new(vec![long_stream(4)], 64 * MIB).await;
    let mut leaver = Box::pin(bench.read(0, 1000, 1000));
    assert!(futures::poll!(&mut leaver).is_pending());
    let mut stayer = Box::pin(bench.read(0, 1001, 1000));
    assert!(futures::poll!(&mut stayer).is_pending());
    drop(leaver);
    stayer.await.unwrap();
    assert_eq!(bench.cost().0, 2);
    // And if nobody stays, the next one begins anew.
    let cold = Bench::new(vec![long_stream(4)], 64 * MIB).await;
    let mut leaver = Box::pin(cold.read(0, 1000, 1000));
    assert!(futures::poll!(&mut leaver).is_pending());
    drop(leaver);
    cold.good(0, 1000, 1000).await;
    assert_eq!(cold.cost().0, 3);
}

#[tokio::test]
async fn one_of_a_hundred_thousand_streams_is_found_in_four_gets() {
    let streams: Vec<ModelStream> = (1..=100_000)
        .map(|id| model::stream(id, false, id, vec![model::payload(false, &[20], id as u8)], None))
        .collect();
    let bench = Bench::new(streams, 64 * MIB).await;
    bench.good(49_999, 50_000, 1000).await;
    let (gets, bytes) = bench.cost();
    assert!(gets <= 4 && bytes < 100 << 10, "{gets} gets, {bytes} bytes");
    bench.good(50_000, 50_001, 1000).await;
    assert!(bench.cost().0 <= 2);
}

#[tokio::test]
async fn a_read_goes_on_over_the_end_of_an_index_page() {
    let tiny = |id| model::stream(id, true, 0, vec![model::payload(true, &[5], 1)], None);
    let payloads = (0..20).map(|n| model::payload(false, &[MAX_CHUNK / 4], n)).collect();
    let mut streams: Vec<ModelStream> = (1..=127).map(tiny).collect();
    streams.push(model::stream(1000, false, 9, payloads, Some(Dedupe::default())));
    let bench = Bench::new(streams, 64 * MIB).await;
    let size = 5 * MAX_CHUNK;
    assert_eq!(bench.good(127, 9, size).await, 9 + size as u64);
    assert_eq!(bench.cost().0, 2);
    assert_eq!(bench.good(127, 9, usize::MAX).await, 9 + size as u64);
    assert_eq!(bench.cost().0, 0);
}

#[tokio::test]
async fn an_answer_shares_the_memory_of_the_cache() {
    let bench = Bench::new(vec![long_stream(4)], 64 * MIB).await;
    let at = |parts: &[Payload]| match &parts[0] {
        Payload::Bytes(b) => b.as_ptr(),
        Payload::Json { .. } => panic!("bytes"),
    };
    let (one, two) = (bench.read(0, 1010, 50).await.unwrap(), bench.read(0, 1010, 50).await.unwrap());
    assert_eq!(at(&one), at(&two));
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let dedupe = Some(Dedupe::default());
    let streams =
        vec![model::stream(1, false, 0, vec![model::payload(false, &[100], 1)], dedupe), long_stream(1)];
    let bench = Bench::new(streams, MIB).await;
    let extent = bench.streams[0].extent();
    let gone = bench.reader.read("g1/segments/gone", bench.size, &extent, Offset(0), 10).await;
    assert!(matches!(gone, Err(ReadError::NotFound(key)) if &*key == "g1/segments/gone"));

    // The object under a name that is not its own.
    let other = KEY.replace("3", "4");
    let path = |key: &str| Path::from(format!("bucket/{key}"));
    bench.counting.copy(&path(KEY), &path(&other)).await.unwrap();
    let misnamed = bench.reader.read(&other, bench.size, &extent, Offset(0), 10).await;
    assert!(matches!(misnamed, Err(ReadError::Corrupt { .. })));

    bench.counting.down.store(true, Ordering::Relaxed);
    assert!(matches!(bench.read(0, 0, 10).await, Err(ReadError::Store(_))));
    assert!(matches!(bench.reader.dedupe(KEY, bench.size, StreamId(1)).await, Err(ReadError::Store(_))));
    bench.counting.down.store(false, Ordering::Relaxed);
    bench.good(0, 0, 10).await;
    assert_eq!(bench.reader.dedupe(KEY, bench.size, StreamId(1)).await.unwrap(), Dedupe::default());

    // The metadata name offsets or streams that the segment does not hold.
    let read = |written_as: u64, range: Range<u64>| {
        let extent = Extent {
            written_as: StreamId(written_as),
            start: Offset(range.start),
            end: Offset(range.end),
            ..extent
        };
        let bench = &bench;
        async move { bench.reader.read(KEY, bench.size, &extent, Offset(range.start), 10).await }
    };
    for (stream, range) in [(0, 0..5), (2, 0..5), (99, 0..5), (1, 100..105), (7, 0..10)] {
        assert!(
            matches!(read(stream, range.clone()).await, Err(ReadError::Corrupt { .. })),
            "{stream} {range:?}"
        );
    }
    // Outside the extent there is nothing.
    for from in [100, 1 << 40] {
        assert_eq!(bench.read(0, from, 10).await.unwrap(), []);
    }
}
