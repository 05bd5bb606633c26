//! Bytes that are not what they should be.

use super::*;

/// A log entry with a correct header around any body.
fn framed(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    let header: [&[u8]; 4] =
        [b"WEIRCMD\0", &1u32.to_le_bytes(), &length.to_le_bytes(), &crc32c::crc32c(body).to_le_bytes()];
    [&header.concat(), body].concat()
}

/// A state with correct checksums around any chunks.
fn chunked(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = [b"WEIRSNAP".as_slice(), &1u32.to_le_bytes()].concat();
    for (place, chunk) in chunks.iter().enumerate() {
        bytes.extend(u32::try_from(chunk.len()).unwrap().to_le_bytes());
        bytes.extend(
            crc32c::crc32c_append(crc32c::crc32c(&(place as u64).to_le_bytes()), chunk).to_le_bytes(),
        );
        bytes.extend(chunk);
    }
    bytes
}

/// A few of everything.
fn sample() -> State {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    let (x, e) = w.opened(&a, "x");
    let dedupe = SegmentRange { dedupe: true, ..range(x, e, 0, 5) };
    w.commit(&a, 1, &[dedupe]).unwrap();
    w.run(&b, fork(x, 3, "f")).unwrap();
    w.create_unborn(&b, "u");
    w.run(&b, create_expiring("t", Expiry::Ttl(9))).unwrap();
    w.run(&b, create_expiring("t", Expiry::Ttl(10))).unwrap_err();
    w.silence(&b, &a);
    w.claim(&b, &a, 0);
    w.state
}

fn sample_entry() -> Batch {
    let (mut w, [a]) = World::with(["a"]);
    let ranges = [range(StreamId(1), weir_api::StreamEpoch(1), 0, 5)];
    let commands = vec![
        w.envelope(&a, create_expiring("x", Expiry::At(3))),
        w.envelope(&a, commit(CommitOrigin::Recovery { ended: a.clone(), claim: 3 }, 1, &ranges, Some(2))),
        Envelope { request: None, command: Command::Register(registration("a", 3)) },
    ];
    Batch { time_ms: 5, commands }
}

/// Changes some bytes and perhaps the length.
fn mangled(bytes: &[u8], changes: &[(prop::sample::Index, u8)], keep: prop::sample::Index) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, to) in changes {
        let at = at.index(bytes.len());
        bytes[at] = *to;
    }
    bytes.truncate(keep.index(bytes.len() * 2));
    bytes
}

fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decode_batch(&bytes).is_err());
        prop_assert!(read_state(&mut bytes.as_slice()).is_err());
        // Even where the checksums are right. An entry may happen to make sense.
        let _maybe = decode_batch(&framed(&bytes));
        let _maybe = read_state(&mut chunked(&[bytes]).as_slice());
    }

    #[test]
    fn changed_bytes_are_an_error(changes in changes(), keep in any::<prop::sample::Index>()) {
        let entry = encode_batch(&sample_entry(), format::FOUNDED);
        let changed = mangled(&entry, &changes, keep);
        prop_assert!(changed == entry || decode_batch(&changed).is_err());
        let state = bytes_of(&sample());
        let changed = mangled(&state, &changes, keep);
        prop_assert!(changed == state || read_state(&mut changed.as_slice()).is_err());
    }

    #[test]
    fn changed_bytes_behind_a_right_checksum_do_no_harm(changes in changes(), keep in any::<prop::sample::Index>()) {
        let entry = encode_batch(&sample_entry(), format::FOUNDED);
        let _maybe = decode_batch(&framed(&mangled(&entry[20..], &changes, keep)));
        let state = bytes_of(&sample());
        let changed = chunked(&[mangled(&state[20..], &changes, keep)]);
        if let Ok(state) = read_state(&mut changed.as_slice()) {
            let _bytes = bytes_of(&state);
        }
    }
}

#[test]
fn every_truncation_is_told_as_one() {
    let entry = encode_batch(&sample_entry(), format::FOUNDED);
    for n in 0..entry.len() {
        assert!(matches!(decode_batch(&entry[..n]), Err(CodecError::Truncated)), "{n}");
    }
    let state = bytes_of(&sample());
    for n in 0..state.len() {
        assert!(matches!(read_state(&mut &state[..n]), Err(CodecError::Truncated)), "{n}");
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let entry = encode_batch(&sample_entry(), format::FOUNDED);
    let state = bytes_of(&sample());
    for bit in 0..entry.len() * 8 {
        let mut changed = entry.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_batch(&changed).is_err(), "bit {bit}");
    }
    for bit in 0..state.len() * 8 {
        let mut changed = state.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(read_state(&mut changed.as_slice()).is_err(), "bit {bit}");
    }
}

#[test]
fn each_kind_of_damage_is_named() {
    let entry = encode_batch(&sample_entry(), format::FOUNDED);
    let with = |at: usize, to: u8| {
        let mut changed = entry.clone();
        changed[at] = to;
        decode_batch(&changed).unwrap_err()
    };
    assert!(matches!(with(0, b'X'), CodecError::Foreign("log entry")));
    assert!(matches!(with(8, 9), CodecError::Format { found: 9 }));
    assert!(matches!(with(16, !entry[16]), CodecError::Checksum));
    assert!(matches!(decode_batch(&[entry.as_slice(), b"x"].concat()), Err(CodecError::Malformed(_))));
    let foreign = read_state(&mut entry.as_slice());
    assert!(matches!(foreign, Err(CodecError::Foreign("metadata snapshot"))));
}

#[test]
fn chunks_that_were_swapped_or_doubled_are_noticed() {
    let (mut w, [a]) = World::with(["a"]);
    for i in 0..3000 {
        let create = w.envelope(&a, create(&format!("{i:0>100}")));
        crate::metadata::apply::apply(&mut w.state, &Batch { time_ms: START_MS, commands: vec![create] });
    }
    let bytes = bytes_of(&w.state);
    let mut chunks = Vec::new();
    let mut at = 12;
    while at < bytes.len() {
        let end = at + 8 + usize::try_from(u32_at(&bytes, at)).unwrap();
        chunks.push(bytes[at..end].to_vec());
        at = end;
    }
    assert!(chunks.len() > 3);
    let join = |chunks: &[Vec<u8>]| [&bytes[..12], &chunks.concat()].concat();
    assert!(read_state(&mut join(&chunks).as_slice()).is_ok());
    let mut swapped = chunks.clone();
    swapped.swap(1, 2);
    let mut doubled = chunks.clone();
    doubled.insert(1, chunks[1].clone());
    let mut lost = chunks.clone();
    lost.remove(1);
    for changed in [swapped, doubled, lost] {
        assert!(matches!(read_state(&mut join(&changed).as_slice()), Err(CodecError::Checksum)));
    }
}

#[test]
fn a_length_that_claims_too_much_allocates_nothing() {
    let mut bytes = bytes_of(&State::default());
    bytes[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(read_state(&mut bytes.as_slice()), Err(CodecError::Malformed(_))));
    bytes[12..16].copy_from_slice(&(8u32 << 20).to_le_bytes());
    assert!(matches!(read_state(&mut bytes.as_slice()), Err(CodecError::Truncated)));
    // A list that claims 2^60 elements in an entry of a few bytes.
    let body = [&[0][..], &[0xff; 8], &[0x0f]].concat();
    assert!(decode_batch(&framed(&body)).is_err());
}
