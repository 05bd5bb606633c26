//! Bounds and single flight, without a store.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;

use super::{Block, BlockCache, BlockKey, Claim};
use crate::storage::index::Page;
use crate::storage::reader::ReadError;
use crate::storage::record::Payload;

fn key(at: u64) -> BlockKey {
    BlockKey { object: "o".into(), at }
}

fn chunk(size: usize) -> Block {
    Block::Chunk(Payload::Bytes(vec![0u8; size].into()))
}

#[test]
fn it_never_holds_more_than_its_capacity() {
    for capacity in [0, 1000, 1 << 20, 100_000_001] {
        let cache = BlockCache::new(capacity);
        for n in 0..600 {
            cache.put(key(n), chunk((n as usize * 7919) % (300 << 10)));
            assert!(cache.stats().bytes <= capacity);
        }
        assert_eq!(cache.stats().bytes > capacity / 2, capacity > 1000);
    }
}

#[test]
fn a_block_too_large_for_its_shard_pushes_nothing_out() {
    let cache = BlockCache::new(1 << 20);
    cache.put(key(1), chunk(1000));
    cache.put(key(2), chunk(600 << 10));
    assert!(cache.contains(&key(1)) && !cache.contains(&key(2)));
}

#[test]
fn a_scan_of_chunks_leaves_the_index() {
    let cache = BlockCache::new(1 << 20);
    cache.put(key(1), Block::Page(Arc::new(Page { entries: Vec::new() })));
    for n in 2..1000 {
        cache.put(key(n), chunk(10 << 10));
    }
    assert!(cache.contains(&key(1)));
    assert!(!cache.contains(&key(2)));
}

#[tokio::test]
async fn runs_of_missing_blocks_are_fetched_together_within_the_limit() {
    let cache = BlockCache::new(1 << 20);
    cache.put(key(3), chunk(1));
    let keys: Vec<_> = (0..8).map(key).collect();
    let runs = Cell::new(Vec::new());
    let fetch = |run: std::ops::Range<usize>| {
        let mut seen = runs.take();
        seen.push(run.clone());
        runs.set(seen);
        async move { run.map(|n| Ok(chunk(n))).collect() }.boxed()
    };
    // 3 is cached, 6 is larger than the limit.
    let claims = cache.claim(&keys, &[4, 4, 4, 4, 4, 4, 99, 4], 8, fetch);
    assert_eq!(runs.take(), [0..2, 2..3, 4..6, 6..7, 7..8]);
    for (n, claim) in claims.into_iter().enumerate() {
        let Block::Chunk(payload) = claim.block().await.unwrap() else { panic!("chunk") };
        assert_eq!(payload.size(), if n == 3 { 1 } else { n });
    }
    assert!(cache.inner.flights.lock().is_empty());
    assert!(keys.iter().all(|key| cache.contains(key)));
}

#[tokio::test]
async fn a_failed_fetch_is_told_to_all_and_tried_again_by_the_next() {
    let cache = BlockCache::new(1 << 20);
    let fail = |_| async { vec![Err(ReadError::NotFound("o".into()))] }.boxed();
    let first = cache.claim(&[key(1)], &[1], 1, fail);
    let second = cache.claim(&[key(1)], &[1], 1, |_| panic!("one fetch is enough"));
    for claim in first.into_iter().chain(second) {
        assert!(matches!(claim.block().await, Err(ReadError::NotFound(_))));
    }
    let again = cache.claim(&[key(1)], &[1], 1, |_| async { vec![Ok(chunk(9))] }.boxed());
    assert!(again.into_iter().next().unwrap().block().await.is_ok());
}

#[tokio::test]
async fn an_abandoned_fetch_leaves_nothing_behind() {
    let cache = BlockCache::new(1 << 20);
    let bytes = Bytes::from(vec![1u8; 10]);
    let held = bytes.clone();
    let claims = cache.claim(&[key(1)], &[1], 1, move |_| {
        let held = held.clone();
        async move {
            drop(held);
            futures::future::pending().await
        }
        .boxed()
    });
    assert!(matches!(claims[0], Claim::InFlight(..)));
    drop(claims);
    assert!(cache.inner.flights.lock().is_empty());
    assert!(bytes.is_unique());
}
