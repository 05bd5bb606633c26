//! The index against a plain list of entries, and against arbitrary bytes.

use proptest::prelude::*;
use weir_api::{ClusterUid, NodeEpoch, Offset, SessionId, StreamEpoch, StreamId};

use super::{Entry, IndexBuilder, Key, Kind, PAGE_ENTRIES, Page, Root};
use crate::storage::segment::SegmentIdentity;

const BODY: u64 = 100;

fn identity() -> SegmentIdentity {
    let session = SessionId { node: "n".parse().unwrap(), epoch: NodeEpoch(1) };
    SegmentIdentity { cluster: ClusterUid(1), session, number: 1 }
}

/// Runs of chunks: (step to the stream, JSON, start, lengths, dedupe).
type Shape = Vec<(u64, bool, u64, Vec<u64>, bool)>;

fn shape() -> impl Strategy<Value = Shape> {
    let lengths = prop_oneof![5 => prop::collection::vec(1u64..50, 0..4), 1 => prop::collection::vec(1u64..9, 100..300)];
    prop::collection::vec((1u64..1 << 20, any::<bool>(), 0u64..1 << 50, lengths, any::<bool>()), 0..60)
}

fn entries(shape: &Shape) -> Vec<Entry> {
    let (mut stream, mut at) = (0, BODY);
    let mut out = Vec::new();
    for (step, json, start, lengths, dedupe) in shape {
        stream += step;
        let mut start = *start;
        let dedupe = dedupe.then_some(0).into_iter();
        for length in lengths.iter().copied().chain(dedupe) {
            let (kind, bytes) = match (length, json) {
                (0, _) => (Kind::Dedupe, 11),
                (n, true) => (Kind::Json, n * 6 + 3),
                (n, false) => (Kind::Bytes, n),
            };
            let end = Offset(start + length);
            let crc = at as u32 ^ 0x5a5a;
            let (stream, epoch) = (StreamId(stream), StreamEpoch(stream % 7));
            out.push(Entry { stream, epoch, kind, start: Offset(start), end, at, bytes, crc });
            (start, at) = (end.0, at + bytes);
        }
    }
    out
}

fn encode(entries: &[Entry]) -> (Vec<u8>, Root, u64) {
    let mut builder = IndexBuilder::default();
    for e in entries {
        builder.push(*e);
    }
    let pages_at = entries.last().map_or(BODY, |e| e.at + e.bytes);
    let (pages, root) = builder.finish(&identity(), pages_at);
    let root = Root::decode(&root, pages_at + pages.len() as u64).unwrap();
    (pages, root, pages_at)
}

proptest! {
    #[test]
    fn every_entry_is_found_through_root_and_one_page(shape in shape(), probe in any::<prop::sample::Index>()) {
        let entries = entries(&shape);
        let (pages, root, pages_at) = encode(&entries);
        let page = |n: usize| {
            let page = root.pages[n];
            let at = (page.at - pages_at) as usize;
            root.decode_page(&page, &pages[at..at + page.bytes as usize]).unwrap()
        };
        let all: Vec<Entry> = (0..root.pages.len()).flat_map(|n| page(n).entries).collect();
        prop_assert_eq!(&all, &entries);
        prop_assert_eq!(root.pages.len(), entries.len().div_ceil(PAGE_ENTRIES));
        if entries.is_empty() {
            prop_assert_eq!(root.page_of(Key::dedupe(StreamId(1))), None);
            return Ok(());
        }
        let e = entries[probe.index(entries.len())];
        let keys = match e.kind {
            Kind::Dedupe => vec![Key::dedupe(e.stream)],
            Kind::Bytes | Kind::Json => vec![Key::chunk(e.stream, e.start), Key::chunk(e.stream, Offset(e.end.0 - 1))],
        };
        for key in keys {
            let page = page(root.page_of(key).unwrap());
            prop_assert_eq!(page.entries[page.find(key).unwrap()], e);
        }
    }

    #[test]
    fn decoders_survive_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), at: u64) {
        drop(Root::decode(&bytes, at));
        drop(Page::decode(&bytes, at));
        let mut with_identity = Vec::new();
        identity().encode(&mut with_identity);
        with_identity.extend_from_slice(&bytes);
        drop(Root::decode(&with_identity, at));
    }

    #[test]
    fn a_changed_page_is_refused_or_keeps_its_order(
        shape in shape(),
        which in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let (mut pages, root, pages_at) = encode(&entries(&shape));
        prop_assume!(!pages.is_empty());
        let n = which.index(pages.len());
        pages[n] ^= 1 << bit;
        for page in &root.pages {
            let at = (page.at - pages_at) as usize;
            let raw = &pages[at..at + page.bytes as usize];
            let hit = (at..at + raw.len()).contains(&n);
            prop_assert_eq!(root.decode_page(page, raw).is_err(), hit);
            // What the checksum would let through is still sane.
            if let Ok(page) = Page::decode(raw, pages_at) {
                prop_assert!(page.entries.is_sorted_by(|a, b| a.key() < b.key()));
                prop_assert!(page.entries.iter().all(|e| e.at >= 50 && e.at + e.bytes <= pages_at));
            }
        }
    }
}

#[test]
fn a_count_that_the_bytes_cannot_hold_is_refused() {
    for count in [u64::MAX, 1 << 40, 100] {
        let mut page = Vec::new();
        crate::storage::segment::format::put_varint(count, &mut page);
        page.extend_from_slice(&[0; 50]);
        assert!(Page::decode(&page, 1000).is_err());
        let mut root = Vec::new();
        identity().encode(&mut root);
        root.push(100);
        root.extend_from_slice(&page);
        assert!(Root::decode(&root, 1000).is_err());
    }
}

#[test]
fn a_tiny_stream_costs_about_thirteen_bytes() {
    let shape = (0..10_000).map(|n| (1, false, n % 1000, vec![20], false)).collect();
    let (pages, _, _) = encode(&entries(&shape));
    assert!(pages.len() < 13 * 10_000, "{}", pages.len());
}
