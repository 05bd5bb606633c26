//! What a segment's bytes are, and that nothing but them is accepted.

use bytes::Bytes;
use proptest::prelude::*;
use weir_api::{ClusterUid, Offset, StreamEpoch, StreamId};

use super::chunk::{self, MAX_CHUNK};
use super::format::{Cursor, TRAILER, Trailer, check, put_varint};
use super::model::{self, ModelStream};
use super::{BuildError, DecodeError, SegmentBuilder, SegmentIdentity, format};
use crate::storage::index::{Entry, Kind, Root};
use crate::storage::record::{Dedupe, Payload, ProducerState};

/// Everything in an object, read without a reader.
fn take_apart(object: &Bytes) -> Result<(SegmentIdentity, Vec<Entry>), DecodeError> {
    let header = format::read_header(object)?;
    let trailer_at = object.len().checked_sub(TRAILER).ok_or(DecodeError::Short("segment"))?;
    let trailer = Trailer::decode(&object[trailer_at..], object.len() as u64)?;
    let root = &object[trailer.root_at as usize..trailer_at];
    check(root, trailer.root_crc, "root")?;
    let root = Root::decode(root, trailer.root_at)?;
    assert_eq!(root.identity, header);
    let mut entries = Vec::new();
    for page in &root.pages {
        let raw = &object[page.at as usize..][..page.bytes as usize];
        entries.extend(root.decode_page(page, raw)?.entries);
    }
    Ok((header, entries))
}

fn part(object: &Bytes, e: &Entry) -> Bytes {
    object.slice(e.at as usize..(e.at + e.bytes) as usize)
}

fn check_chunks(streams: &[ModelStream], object: &Bytes, entries: &[Entry]) {
    for s in streams {
        let mine = entries.iter().filter(|e| e.stream == s.id);
        let mut at = s.start();
        for e in mine.clone().filter(|e| e.kind != Kind::Dedupe) {
            assert_eq!((e.start.0, e.epoch), (at, s.frames[0].epoch));
            assert!(e.bytes as usize <= MAX_CHUNK || e.length() == 1);
            let payload = chunk::decode(e, part(object, e)).unwrap();
            s.check(&[payload], e.start.0, e.end.0, usize::MAX);
            at = e.end.0;
        }
        assert_eq!(at, s.end());
        let blob = mine.filter(|e| e.kind == Kind::Dedupe).map(|e| Dedupe::decode(&part(object, e)).unwrap());
        assert_eq!(blob.collect::<Vec<_>>(), s.dedupe.clone().into_iter().collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn what_was_added_is_what_it_holds(streams in model::streams()) {
        let built = model::build(&streams);
        let (identity, entries) = take_apart(&built.object).unwrap();
        prop_assert_eq!(identity, SegmentIdentity { cluster: ClusterUid(7), session: model::session(), number: 3 });
        check_chunks(&streams, &built.object, &entries);
        prop_assert_eq!(built.ranges.len(), streams.len());
        for (range, s) in built.ranges.iter().zip(&streams) {
            prop_assert_eq!((range.stream, range.epoch), (s.id, s.frames[0].epoch));
            prop_assert_eq!((range.start.0, range.end.0), (s.start(), s.end()));
            prop_assert_eq!(range.closed, s.frames.iter().any(|f| f.closes));
            prop_assert_eq!(range.born, s.frames.iter().any(|f| f.births));
            prop_assert_eq!(range.dedupe, s.dedupe.is_some());
        }
    }
}

proptest! {
    #[test]
    fn dedupe_states_round_trip(dedupe in model::dedupe()) {
        let mut out = Vec::new();
        dedupe.encode(&mut out);
        prop_assert_eq!(Dedupe::decode(&out).unwrap(), dedupe);
        for cut in 0..out.len() {
            prop_assert!(Dedupe::decode(&out[..cut]).is_err());
        }
    }

    #[test]
    fn decoders_survive_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300), count in any::<u64>()) {
        let whole = Bytes::from(bytes.clone());
        drop(take_apart(&whole));
        drop(Dedupe::decode(&bytes));
        drop(Dedupe::decode(&[&[1, 3][..], &bytes].concat()));
        assert!(Trailer::decode(&bytes, count).is_err());
        drop(SegmentIdentity::decode(&mut Cursor::new("x", &bytes)));
        for kind in [Kind::Bytes, Kind::Json, Kind::Dedupe] {
            for length in [count, count % 80] {
                let entry = Entry {
                    stream: StreamId(1),
                    epoch: StreamEpoch(1),
                    kind,
                    start: Offset(0),
                    end: Offset(length),
                    at: 0,
                    bytes: bytes.len() as u64,
                    crc: crc32c::crc32c(&bytes),
                };
                drop(chunk::decode(&entry, whole.clone()));
            }
        }
    }

    #[test]
    fn varints_round_trip(n: u64) {
        let mut out = Vec::new();
        put_varint(n, &mut out);
        let mut from = Cursor::new("n", &out);
        prop_assert_eq!(from.varint().unwrap(), n);
        prop_assert!(from.end().is_ok());
    }
}

#[test]
fn a_number_with_too_many_bits_is_refused() {
    let mut long = vec![0xff; 9];
    long.push(2);
    assert!(Cursor::new("n", &long).varint().is_err());
    assert!(Cursor::new("n", &[0x80; 11]).varint().is_err());
}

#[test]
fn small_byte_payloads_share_a_chunk_and_large_ones_are_cut() {
    let small = (0..1000).map(|n| model::payload(false, &[100], n as u8)).collect();
    let large = vec![model::payload(false, &[MAX_CHUNK * 2 + 5], 1)];
    let streams = [model::stream(1, false, 0, small, None), model::stream(2, false, 9, large, None)];
    let (_, entries) = take_apart(&model::build(&streams).object).unwrap();
    let sizes: Vec<_> = entries.iter().map(|e| (e.stream.0, e.bytes as usize)).collect();
    assert_eq!(sizes, [(1, 100_000), (2, MAX_CHUNK), (2, MAX_CHUNK), (2, 5)]);
}

#[test]
fn a_large_json_element_gets_a_chunk_of_its_own() {
    let lengths = [10, 3 * MAX_CHUNK, 10, 10];
    let streams = [model::stream(1, true, 0, vec![model::payload(true, &lengths, 1)], None)];
    let (_, entries) = take_apart(&model::build(&streams).object).unwrap();
    assert_eq!(entries.iter().map(Entry::length).collect::<Vec<_>>(), [1, 1, 2]);
}

#[test]
fn frames_that_make_no_run_are_refused_and_leave_no_trace() {
    let good = model::stream(5, false, 10, vec![model::payload(false, &[4], 1)], None);
    let frame = good.frames[0].clone();
    let epoch = frame.epoch;
    let changed = |change: &dyn Fn(&mut crate::storage::record::Frame)| {
        let mut f = frame.clone();
        f.offset = Offset(14);
        change(&mut f);
        f
    };
    let mut builder = SegmentBuilder::new(ClusterUid(1), model::session(), 1);
    let before = builder.len_bytes();
    let bad = [
        changed(&|f| f.offset = Offset(15)),
        changed(&|f| f.offset = Offset(13)),
        changed(&|f| f.stream = StreamId(6)),
        changed(&|f| f.epoch = StreamEpoch(99)),
        changed(&|f| f.payload = model::payload(true, &[3], 1)),
        changed(&|f| f.payload = Payload::Json { text: Bytes::from_static(b"1,"), ends: [1u32].into() }),
        changed(&|f| f.payload = Payload::Json { text: Bytes::from_static(b"1,2,"), ends: [4u32, 2].into() }),
        changed(&|f| f.payload = Payload::Json { text: Bytes::from_static(b"1,2"), ends: [2u32].into() }),
        changed(&|f| f.payload = Payload::Json { text: Bytes::from_static(b"1,"), ends: [7u32].into() }),
    ];
    for f in &bad {
        assert!(builder.add(StreamId(5), epoch, &[&frame, f], None).is_err(), "{f:?}");
        assert_eq!(builder.len_bytes(), before);
    }
    assert_eq!(builder.add(StreamId(5), epoch, &[], None), Err(BuildError::Empty(StreamId(5))));
    builder.add(StreamId(5), epoch, &[&frame], None).unwrap();
    assert!(matches!(builder.add(StreamId(5), epoch, &[&frame], None), Err(BuildError::Order { .. })));
    assert_eq!(builder.finish().ranges.len(), 1);
}

/// Two streams of bytes and JSON, one with only a close, and every kind of index entry.
fn golden_streams() -> Vec<ModelStream> {
    let mut dedupe = Dedupe::default();
    dedupe.producers.insert("p".into(), ProducerState { epoch: 2, seq: 300 });
    dedupe.last_seq = Some(Bytes::from_static(b"s9"));
    let json = Payload::Json {
        text: Bytes::from_static(b"12345678901234567890,{\"a\": 1},"),
        ends: [21u32, 30].into(),
    };
    let mut closed = model::stream(9, false, 77, vec![Payload::Bytes(Bytes::new())], None);
    closed.frames[0].closes = true;
    let bytes = Payload::Bytes(Bytes::from_static(b"hello"));
    vec![
        model::stream(4, false, 1000, vec![bytes], Some(dedupe)),
        model::stream(6, true, 0, vec![json], None),
        closed,
    ]
}

const GOLDEN: &str = include_str!("../golden/segment-1.hex");

#[test]
fn the_bytes_of_version_1_stay_as_they_are() {
    let built = model::build(&golden_streams());
    let hex: String = built.object.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, GOLDEN.replace(char::is_whitespace, ""));
    let (_, entries) = take_apart(&built.object).unwrap();
    check_chunks(&golden_streams(), &built.object, &entries);
}

#[test]
fn a_later_version_is_named_as_such() {
    let object = model::build(&golden_streams()).object;
    let mut trailer = object[object.len() - TRAILER..].to_vec();
    trailer[20..24].copy_from_slice(&9u32.to_le_bytes());
    let crc = crc32c::crc32c(&trailer[4..]);
    trailer[..4].copy_from_slice(&crc.to_le_bytes());
    let found = Trailer::decode(&trailer, object.len() as u64);
    assert_eq!(found, Err(DecodeError::Version { what: "segment trailer", found: 9 }));
}

#[test]
fn every_changed_byte_of_the_frame_is_noticed() {
    let object = model::build(&golden_streams()).object;
    let (_, want) = take_apart(&object).unwrap();
    for n in 0..object.len() {
        let mut changed = object.to_vec();
        changed[n] ^= 0x10;
        let changed = Bytes::from(changed);
        let Ok((_, entries)) = take_apart(&changed) else { continue };
        assert_eq!(entries, want, "byte {n}");
        let spoilt = |e: &Entry| check(&part(&changed, e), e.crc, "part").is_err();
        assert!(entries.iter().any(spoilt), "byte {n}");
    }
}
