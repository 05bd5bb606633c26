//! The memory that reads of segments share: verified blocks, bounded in bytes, each fetched once at a time.
//!
//! Invariants: what lies in here was checked and never changes (segments are immutable), so it is never stale; the
//! weights of all blocks stay at or under the capacity; a block that is missing has at most one fetch under way, which
//! all who want it share and any of them drives, so that a reader that goes away neither stops nor restarts the others'
//! fetch, and no task is needed. Called by `reader` only.
//!
//! Eviction is least recently used, index blocks (roots and pages) after chunks up to an eighth of the capacity: a long
//! scan does not push out what finds things. Within a shard a block larger than a quarter of it is handed to
//! its readers but not kept.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foyer::{CacheProperties, Hint, LruConfig};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;

use super::index::{Entry, Page, PageRef, Root};
use super::reader::ReadError;
use super::record::Payload;

#[cfg(test)]
mod tests;

/// What a block costs beside its content: map entry, links, counts.
const BLOCK_OVERHEAD: usize = 256;
/// A shard that is smaller holds too few chunks to be fair; one that is larger makes its lock hot.
const SHARD_BYTES: usize = 32 << 20;
const MAX_SHARDS: usize = 16;
/// The part of the capacity in which index blocks outlive chunks.
const INDEX_SHARE: f64 = 0.125;

/// Names a block: an object and a position in it ([`ROOT`] for the root).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct BlockKey {
    pub object: Arc<str>,
    pub at: u64,
}

/// The root's position, which nothing else has.
pub(super) const ROOT: u64 = u64::MAX;

/// A verified piece of a segment. Cloning is cheap.
#[derive(Debug, Clone)]
pub(super) enum Block {
    Root(Arc<Root>),
    Page(Arc<Page>),
    Chunk(Payload),
}

/// The memory that a block takes.
fn weight(key: &BlockKey, block: &Block) -> usize {
    let content = match block {
        Block::Root(root) => root.pages.len() * size_of::<PageRef>(),
        Block::Page(page) => page.entries.len() * size_of::<Entry>(),
        Block::Chunk(Payload::Bytes(bytes)) => bytes.len(),
        // The table stays behind the text in the same allocation.
        Block::Chunk(Payload::Json { text, ends }) => text.len() + 2 * size_of_val(ends.as_ref()),
    };
    BLOCK_OVERHEAD + key.object.len() + content
}

impl Block {
    fn properties(&self) -> CacheProperties {
        let hint = match self {
            Self::Root(_) | Self::Page(_) => Hint::Normal,
            Self::Chunk(_) => Hint::Low,
        };
        CacheProperties::default().with_hint(hint)
    }
}

/// What one fetch brought, in the order of its keys.
pub(super) type Fetched = Arc<[Result<Block, ReadError>]>;
type Flight = Shared<BoxFuture<'static, Fetched>>;

/// How to come by a block that was asked for.
#[derive(Debug)]
pub(super) enum Claim {
    Cached(Block),
    /// Number n of what this fetch brings.
    InFlight(Flight, usize),
}

impl Claim {
    pub(super) async fn block(self) -> Result<Block, ReadError> {
        match self {
            Self::Cached(block) => Ok(block),
            Self::InFlight(flight, n) => flight.await[n].clone(),
        }
    }
}

/// Counts since start, and the memory held now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Blocks found.
    pub hits: u64,
    /// Blocks not found, whether fetched or awaited.
    pub misses: u64,
    /// Bytes of blocks held.
    pub bytes: u64,
    /// The bound on `bytes`.
    pub capacity: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct BlockCache {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    blocks: foyer::Cache<BlockKey, Block>,
    /// Larger blocks are not kept.
    max_block: usize,
    /// Fetches under way, by every key they bring. Weak: readers own them.
    flights: Mutex<HashMap<BlockKey, UnderWay>>,
    next_flight: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug)]
struct UnderWay {
    id: u64,
    flight: WeakShared<BoxFuture<'static, Fetched>>,
    /// Which of its blocks.
    n: usize,
}

impl BlockCache {
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let capacity = usize::try_from(capacity_bytes).unwrap_or(usize::MAX);
        let shards = (capacity / SHARD_BYTES).clamp(1, MAX_SHARDS);
        let blocks = foyer::CacheBuilder::new(capacity)
            .with_name("segments")
            .with_shards(shards)
            .with_eviction_config(LruConfig { high_priority_pool_ratio: INDEX_SHARE })
            .with_weighter(weight)
            .build();
        let inner = Inner {
            blocks,
            max_block: capacity / shards / 4,
            flights: Mutex::default(),
            next_flight: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(super) fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.inner.hits.load(Ordering::Relaxed),
            misses: self.inner.misses.load(Ordering::Relaxed),
            bytes: self.inner.blocks.usage() as u64,
            capacity: self.inner.blocks.capacity() as u64,
        }
    }

    /// How many bytes one fetch may bring ahead of its reader without pushing out what others need.
    pub(super) fn readahead_limit(&self) -> u64 {
        self.inner.blocks.capacity() as u64 / 16
    }

    pub(super) fn get(&self, key: &BlockKey) -> Option<Block> {
        let found = self.inner.blocks.get(key).map(|entry| entry.value().clone());
        let counter = if found.is_some() { &self.inner.hits } else { &self.inner.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Whether it is there, without using it.
    pub(super) fn contains(&self, key: &BlockKey) -> bool {
        self.inner.blocks.contains(key)
    }

    pub(super) fn put(&self, key: BlockKey, block: Block) {
        if weight(&key, &block) <= self.inner.max_block {
            let properties = block.properties();
            drop(self.inner.blocks.insert_with_properties(key, block, properties));
        }
    }

    /// For every key: the block, the fetch that is bringing it, or a new fetch. `fetch` makes one for a run of
    /// neighbouring keys, of which each run holds as many as `sizes` allow within `max_bytes`, and one at least.
    pub(super) fn claim(
        &self,
        keys: &[BlockKey],
        sizes: &[u64],
        max_bytes: u64,
        mut fetch: impl FnMut(Range<usize>) -> BoxFuture<'static, Vec<Result<Block, ReadError>>>,
    ) -> Vec<Claim> {
        let mut claims = Vec::with_capacity(keys.len());
        // Looked up again under this lock: a fetch keeps its blocks before it leaves the map.
        let mut flights = self.inner.flights.lock();
        while let Some(key) = keys.get(claims.len()) {
            if let Some(claim) = self.find(key, &flights) {
                claims.push(claim);
                continue;
            }
            let first = claims.len();
            let mut bytes = sizes[first];
            let mut end = first + 1;
            while end < keys.len() && bytes + sizes[end] <= max_bytes && self.is_free(&keys[end], &flights) {
                bytes += sizes[end];
                end += 1;
            }
            let run = &keys[first..end];
            let id = self.inner.next_flight.fetch_add(1, Ordering::Relaxed);
            let flight = self.take_off(id, run, fetch(first..end));
            let weak = flight.downgrade().expect("a fetch that was not polled has not ended");
            for (n, key) in run.iter().enumerate() {
                flights.insert(key.clone(), UnderWay { id, flight: weak.clone(), n });
                claims.push(Claim::InFlight(flight.clone(), n));
            }
        }
        claims
    }

    /// The answer keeps its fetch alive: it must not be dropped under the lock, which the end of a fetch takes.
    fn find(&self, key: &BlockKey, flights: &HashMap<BlockKey, UnderWay>) -> Option<Claim> {
        if let Some(under_way) = flights.get(key)
            && let Some(flight) = under_way.flight.upgrade()
        {
            return Some(Claim::InFlight(flight, under_way.n));
        }
        self.inner.blocks.get(key).map(|entry| Claim::Cached(entry.value().clone()))
    }

    fn is_free(&self, key: &BlockKey, flights: &HashMap<BlockKey, UnderWay>) -> bool {
        !flights.contains_key(key) && !self.inner.blocks.contains(key)
    }

    /// A fetch that keeps what it brings and then, however it ends, leaves the map.
    fn take_off(
        &self,
        id: u64,
        keys: &[BlockKey],
        fetch: BoxFuture<'static, Vec<Result<Block, ReadError>>>,
    ) -> Flight {
        let landing = Landing { cache: self.clone(), id, keys: keys.to_vec() };
        async move {
            let landing = landing;
            let blocks = fetch.await;
            for (key, block) in landing.keys.iter().zip(&blocks) {
                if let Ok(block) = block {
                    landing.cache.put(key.clone(), block.clone());
                }
            }
            blocks.into()
        }
        .boxed()
        .shared()
    }
}

/// Takes a fetch out of the map when it has ended or nobody wants it any more.
struct Landing {
    cache: BlockCache,
    id: u64,
    keys: Vec<BlockKey>,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut flights = self.cache.inner.flights.lock();
        for key in &self.keys {
            // Another fetch may have taken the place of this one after its last reader left.
            if flights.get(key).is_some_and(|u| u.id == self.id) {
                flights.remove(key);
            }
        }
    }
}
