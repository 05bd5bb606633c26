//! Reads records and dedupe states out of segments.
//!
//! Invariants: an answer is verified content, contiguous from the offset asked for, whole JSON elements, at least one;
//! of a byte stream it is a slice of what the cache holds. Everything is bounded by the object's recorded size and by
//! [`MAX_READ`]. Called by `streams` with extents from the newest view; [`ReadError::NotFound`] means that the view was
//! not new enough.
//!
//! Cost of a read that finds nothing cached: the segment's end (root, and all pages if they are small), one page, the
//! chunks. Missing chunks that neighbour each other come in one ranged get of up to [`MAX_FETCH`]. A reader that comes
//! from the chunk before gets twice as much as it has read so far along with what it asked for, so a long catch-up
//! settles at [`MAX_FETCH`] per get and a lone read fetches nothing that it does not return.
//!
//! A chunk that came alone and is large is kept as it came. All others are copied to memory of their own: a slice would
//! keep the whole fetch alive for as long as the last of its chunks is cached, which the cache's bound could not see.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use weir_api::{Offset, StreamId};

use super::cache::{Block, BlockCache, BlockKey, CacheStats, ROOT};
use super::index::{Entry, Key, Kind, Page, Root};
use super::keys;
use super::record::{Dedupe, Payload};
use super::segment::format::{TRAILER, Trailer, check};
use super::segment::{DecodeError, SegmentIdentity, chunk};
use super::store::{Store, StoreError};
use crate::metadata::state::Extent;

#[cfg(test)]
mod tests;

/// No read returns more, unless one element is larger.
pub const MAX_READ: usize = 16 << 20;
/// No ranged get brings more, unless one chunk is larger.
pub const MAX_FETCH: u64 = 4 << 20;
/// Opening a segment reads this much of its end: the root of a large segment, all of the index of a small one.
const OPEN_BYTES: u64 = 64 << 10;
/// Chunks of this size and more may stay in the buffer they came in, if they came alone.
const OWN_BUFFER: usize = 64 << 10;
/// How far back a read looks for signs that it continues another.
const LOOK_BACK: usize = 16;

/// Why a read failed, by what to do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// The object is gone: take the extent from a newer view and read there.
    #[error("segment {0} is gone")]
    NotFound(Arc<str>),
    /// The object is not what the metadata say, and will not become so: tell, do not retry.
    #[error("segment {key}: {what}")]
    Corrupt {
        /// The object.
        key: Arc<str>,
        /// What is wrong.
        what: DecodeError,
    },
    /// The store did not answer as it should: try again later.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// See the module. Clones share one cache.
#[derive(Clone)]
pub struct SegmentReader {
    store: Store,
    cache: BlockCache,
}

/// An opened segment.
struct Opened {
    object: Arc<str>,
    root: Arc<Root>,
}

/// Neighbouring chunks of one stream: those a read wants, with some before and after them.
struct Plan {
    entries: Vec<Entry>,
    wanted: Range<usize>,
}

impl SegmentReader {
    /// A reader whose cache holds at most `cache_bytes`.
    pub fn new(store: Store, cache_bytes: u64) -> Self {
        Self { store, cache: BlockCache::new(cache_bytes) }
    }

    /// What the cache did so far.
    pub fn stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// The records of `extent` from `from` on: at most `max_bytes`, but one element at least. `bytes` is the object's
    /// size as recorded. Empty only if `from` lies outside the extent.
    pub async fn read(
        &self,
        key: &str,
        bytes: u64,
        extent: &Extent,
        from: Offset,
        max_bytes: usize,
    ) -> Result<Vec<Payload>, ReadError> {
        if from < extent.start || from >= extent.end {
            return Ok(Vec::new());
        }
        let max_bytes = max_bytes.clamp(1, MAX_READ);
        let segment = self.open(key, bytes).await?;
        let plan = self.plan(&segment, extent, from, max_bytes).await?;
        let chunks = self.chunks(&segment, &plan).await?;
        Ok(cut(&plan.entries[plan.wanted], &chunks, from, extent.end, max_bytes))
    }

    /// The producer and sequence state that the segment holds for `stream`. Not cached: a stream is opened once.
    pub async fn dedupe(&self, key: &str, bytes: u64, stream: StreamId) -> Result<Dedupe, ReadError> {
        let segment = self.open(key, bytes).await?;
        let sought = Key::dedupe(stream);
        let found = match segment.root.page_of(sought) {
            Some(number) => {
                let page = self.page(&segment, number).await?;
                page.find(sought).map(|n| page.entries[n])
            }
            None => None,
        };
        let entry = found
            .filter(|e| e.stream == stream && e.kind == Kind::Dedupe)
            .ok_or(DecodeError::Malformed("no dedupe state of the stream recorded as having one"))
            .map_err(|what| segment.corrupt(what))?;
        let blob = fetch(&self.store, &segment.object, entry.at..entry.at + entry.bytes).await?;
        check(&blob, entry.crc, "dedupe blob")
            .and_then(|()| Dedupe::decode(&blob))
            .map_err(|what| segment.corrupt(what))
    }

    async fn open(&self, key: &str, bytes: u64) -> Result<Opened, ReadError> {
        let object: Arc<str> = key.into();
        let root = BlockKey { object: object.clone(), at: ROOT };
        let block = self
            .block(root, || {
                let (this, object) = (self.clone(), object.clone());
                async move { this.fetch_root(&object, bytes).await.map(|root| Block::Root(Arc::new(root))) }
                    .boxed()
            })
            .await?;
        match block {
            Block::Root(root) => Ok(Opened { object, root }),
            Block::Page(_) | Block::Chunk(_) => Err(misfiled(&object)),
        }
    }

    async fn page(&self, segment: &Opened, number: usize) -> Result<Arc<Page>, ReadError> {
        let at = segment.root.pages[number].at;
        let block = self
            .block(BlockKey { object: segment.object.clone(), at }, || {
                let (store, object, root) =
                    (self.store.clone(), segment.object.clone(), segment.root.clone());
                async move {
                    let page = root.pages[number];
                    let raw = fetch(&store, &object, page.at..page.at + u64::from(page.bytes)).await?;
                    let page = root.decode_page(&page, &raw).map_err(|what| corrupt(&object, what))?;
                    Ok(Block::Page(Arc::new(page)))
                }
                .boxed()
            })
            .await?;
        match block {
            Block::Page(page) => Ok(page),
            Block::Root(_) | Block::Chunk(_) => Err(misfiled(&segment.object)),
        }
    }

    /// One block from the cache, or by the fetch that brings it.
    async fn block(
        &self,
        key: BlockKey,
        fetch: impl Fn() -> futures::future::BoxFuture<'static, Result<Block, ReadError>>,
    ) -> Result<Block, ReadError> {
        if let Some(block) = self.cache.get(&key) {
            return Ok(block);
        }
        let claims = self.cache.claim(&[key], &[0], 0, |_| {
            let one = fetch();
            async move { vec![one.await] }.boxed()
        });
        let claim = claims.into_iter().next().expect("one claim per key");
        claim.block().await
    }

    /// Reads the root; keeps the pages that came along if all did.
    async fn fetch_root(&self, object: &Arc<str>, bytes: u64) -> Result<Root, ReadError> {
        let bad = |what| corrupt(object, what);
        let trailer_at = bytes.checked_sub(TRAILER as u64).ok_or(bad(DecodeError::Short("segment")))?;
        let tail_at = bytes.saturating_sub(OPEN_BYTES);
        let tail = fetch(&self.store, object, tail_at..bytes).await?;
        let trailer = Trailer::decode(&tail[within(tail_at, trailer_at..bytes)], bytes).map_err(bad)?;
        let root_range = trailer.root_at..trailer_at;
        let raw = match trailer.root_at >= tail_at {
            true => tail.slice(within(tail_at, root_range)),
            false => fetch(&self.store, object, root_range).await?,
        };
        check(&raw, trailer.root_crc, "segment root").map_err(bad)?;
        let root = Root::decode(&raw, trailer.root_at).map_err(bad)?;
        if !is_named(object, &root.identity) {
            return Err(bad(DecodeError::Malformed("it is another segment than its key names")));
        }
        if root.pages.first().is_some_and(|page| page.at >= tail_at) {
            for page in &root.pages {
                let raw = &tail[within(tail_at, page.at..page.at + u64::from(page.bytes))];
                let decoded = root.decode_page(page, raw).map_err(bad)?;
                let key = BlockKey { object: object.clone(), at: page.at };
                self.cache.put(key, Block::Page(Arc::new(decoded)));
            }
        }
        Ok(root)
    }

    /// Finds the chunks that hold `max_bytes` from `from` on. A JSON element's size is not known before its chunk is
    /// read; the plan takes the elements of a chunk for equally long, and the answer may be smaller for it.
    async fn plan(
        &self,
        segment: &Opened,
        extent: &Extent,
        from: Offset,
        max_bytes: usize,
    ) -> Result<Plan, ReadError> {
        const ABSENT: DecodeError = DecodeError::Malformed("no chunk holds an offset recorded as here");
        let sought = Key::chunk(extent.written_as, from);
        let absent = || segment.corrupt(ABSENT);
        let mut number = segment.root.page_of(sought).ok_or_else(absent)?;
        let mut page = self.page(segment, number).await?;
        let first = page.find(sought).ok_or_else(absent)?;
        let belongs = |e: &Entry| e.stream == extent.written_as && e.kind != Kind::Dedupe;
        if !belongs(&page.entries[first]) || page.entries[first].end <= from {
            return Err(absent());
        }
        let back = first.saturating_sub(LOOK_BACK);
        let mut entries: Vec<Entry> = page.entries[back..first].iter().copied().filter(belongs).collect();
        let mut wanted = entries.len()..entries.len();
        let (mut bytes, mut rest) = (0u64, &page.entries[first..]);
        loop {
            let chunks = rest.iter().take_while(|e| belongs(e) && e.start < extent.end);
            let before = entries.len();
            for entry in chunks {
                if bytes < max_bytes as u64 {
                    wanted.end += 1;
                } else if bytes >= max_bytes as u64 + MAX_FETCH {
                    break;
                }
                bytes += content_from(entry, from);
                entries.push(*entry);
            }
            let page_used_up = entries.len() - before == rest.len();
            let end = entries.last().map_or(from, |e| e.end);
            number += 1;
            if !page_used_up || bytes >= max_bytes as u64 || end >= extent.end {
                return Ok(Plan { entries, wanted });
            }
            if number == segment.root.pages.len() {
                return Err(absent());
            }
            page = self.page(segment, number).await?;
            // The pages' first keys are sorted, but only the chunks themselves say that none is missing between.
            if !page.entries.first().is_some_and(|e| belongs(e) && e.start == end) {
                return Err(absent());
            }
            rest = &page.entries;
        }
    }

    /// The wanted chunks, from the cache or from few and large gets.
    async fn chunks(&self, segment: &Opened, plan: &Plan) -> Result<Vec<Payload>, ReadError> {
        let keys: Vec<BlockKey> =
            plan.entries.iter().map(|e| BlockKey { object: segment.object.clone(), at: e.at }).collect();
        let mut blocks = Vec::with_capacity(plan.wanted.len());
        for key in &keys[plan.wanted.clone()] {
            match self.cache.get(key) {
                Some(block) => blocks.push(block),
                None => break,
            }
        }
        let first_missing = plan.wanted.start + blocks.len();
        if first_missing < plan.wanted.end {
            let fetched = first_missing..self.fetch_end(plan, &keys, first_missing);
            let entries = &plan.entries[fetched.clone()];
            let sizes: Vec<u64> = entries.iter().map(|e| e.bytes).collect();
            let mut claims = self.cache.claim(&keys[fetched], &sizes, MAX_FETCH, |run| {
                fetch_chunks(self.store.clone(), segment.object.clone(), entries[run].to_vec()).boxed()
            });
            claims.truncate(plan.wanted.end - first_missing);
            // Together: what is in flight elsewhere does not delay what is fetched here.
            for block in futures::future::join_all(claims.into_iter().map(|claim| claim.block())).await {
                blocks.push(block?);
            }
        }
        let payload = |block| match block {
            Block::Chunk(payload) => Ok(payload),
            Block::Root(_) | Block::Page(_) => Err(misfiled(&segment.object)),
        };
        blocks.into_iter().map(payload).collect()
    }

    /// Where a fetch that begins at chunk `first` ends: after what is wanted, and then after twice what this reader or
    /// others have read just before it.
    fn fetch_end(&self, plan: &Plan, keys: &[BlockKey], first: usize) -> usize {
        let earlier = (0..first).rev().take_while(|&n| self.cache.contains(&keys[n]));
        let run: u64 = earlier.map(|n| plan.entries[n].bytes).sum();
        let ahead = (2 * run).min(MAX_FETCH).min(self.cache.readahead_limit());
        let mut bytes = 0;
        let more = plan.entries[first..].iter().take_while(|e| {
            bytes += e.bytes;
            bytes <= ahead
        });
        plan.wanted.end.max(first + more.count())
    }
}

impl Opened {
    fn corrupt(&self, what: DecodeError) -> ReadError {
        corrupt(&self.object, what)
    }
}

fn corrupt(object: &Arc<str>, what: DecodeError) -> ReadError {
    ReadError::Corrupt { key: object.clone(), what }
}

/// Whether the key is that of this segment, in whatever generation.
fn is_named(object: &str, identity: &SegmentIdentity) -> bool {
    let own = keys::segment(0, &identity.session, identity.number);
    let after_generation = |key: &'_ str| key.split_once('/').map(|(_, rest)| rest.to_owned());
    after_generation(object) == after_generation(&own)
}

/// Root, pages and chunks lie at different positions, so a cache key names one kind; a wrong root might not.
fn misfiled(object: &Arc<str>) -> ReadError {
    corrupt(object, DecodeError::Malformed("two kinds of block lie at one position"))
}

/// One ranged get, exactly as long as asked for.
async fn fetch(store: &Store, object: &Arc<str>, range: Range<u64>) -> Result<Bytes, ReadError> {
    let length = range.end - range.start;
    let got = store.get_ranges(object, &[range]).await?;
    let got = got.ok_or_else(|| ReadError::NotFound(object.clone()))?;
    got.into_iter()
        .next()
        .filter(|bytes| bytes.len() as u64 == length)
        .ok_or_else(|| corrupt(object, DecodeError::Short("segment")))
}

/// Neighbouring chunks in one get. A bad chunk spoils only itself.
async fn fetch_chunks(store: Store, object: Arc<str>, entries: Vec<Entry>) -> Vec<Result<Block, ReadError>> {
    let start = entries.first().map_or(0, |e| e.at);
    let end = entries.last().map_or(0, |e| e.at + e.bytes);
    let raw = match fetch(&store, &object, start..end).await {
        Ok(raw) => raw,
        Err(e) => return vec![Err(e); entries.len()],
    };
    let alone = entries.len() == 1 && raw.len() >= OWN_BUFFER;
    let decode = |entry: &Entry| {
        let part = &raw[within(start, entry.at..entry.at + entry.bytes)];
        let own = if alone { raw.clone() } else { Bytes::copy_from_slice(part) };
        chunk::decode(entry, own).map(Block::Chunk).map_err(|what| corrupt(&object, what))
    };
    entries.iter().map(decode).collect()
}

/// A range of the object as one of the bytes in memory that begin at `start` of it.
fn within(start: u64, range: Range<u64>) -> Range<usize> {
    let index = |at: u64| usize::try_from(at - start).unwrap_or(usize::MAX);
    index(range.start)..index(range.end)
}

/// About how many bytes of content the chunk holds from `from` on.
fn content_from(entry: &Entry, from: Offset) -> u64 {
    let left = entry.end.0 - from.0.clamp(entry.start.0, entry.end.0);
    match entry.kind {
        Kind::Bytes => left,
        Kind::Json | Kind::Dedupe => {
            let text = entry.bytes.saturating_sub(entry.length() * chunk::END_BYTES as u64);
            u64::try_from(u128::from(text) * u128::from(left) / u128::from(entry.length().max(1)))
                .unwrap_or(text)
        }
    }
}

/// Cuts the answer out of whole chunks.
fn cut(entries: &[Entry], chunks: &[Payload], from: Offset, end: Offset, max_bytes: usize) -> Vec<Payload> {
    let mut parts: Vec<Payload> = Vec::with_capacity(chunks.len());
    let mut left = max_bytes;
    for (entry, chunk) in entries.iter().zip(chunks) {
        let lo = from.max(entry.start).0 - entry.start.0;
        let hi = end.min(entry.end).0 - entry.start.0;
        let least = u64::from(parts.is_empty());
        let fits = chunk.fitting(lo, hi, left).max(least);
        if fits > 0 {
            let part = chunk.slice(lo, lo + fits);
            left = left.saturating_sub(part.size());
            parts.push(part);
        }
        if lo + fits < hi {
            break;
        }
    }
    parts
}
