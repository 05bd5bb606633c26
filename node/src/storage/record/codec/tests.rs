//! WAL objects read back as written; damage is noticed; their bytes never change.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn session() -> SessionId {
    SessionId { node: "demo-0".parse().unwrap(), epoch: NodeEpoch(1_700_000_000_000) }
}

fn json(elements: &[&str]) -> Payload {
    let (mut text, mut ends) = (String::new(), Vec::new());
    for e in elements {
        text += e;
        text += ",";
        ends.push(text.len() as u32);
    }
    Payload::Json { text: text.into(), ends: ends.into() }
}

/// One frame of each kind; their encoding is golden.
fn samples() -> Vec<Frame> {
    let plain = Frame {
        stream: StreamId(1),
        epoch: StreamEpoch(2),
        offset: Offset(300),
        payload: Payload::Bytes(Bytes::from_static(b"hello")),
        producer: None,
        seq: None,
        closes: false,
        births: false,
        intro: None,
    };
    let full = Frame {
        stream: StreamId(u64::MAX),
        epoch: StreamEpoch(128),
        offset: Offset(1 << 53),
        payload: json(&["{\"a\":1}", "2", "\"drei\""]),
        producer: Some(ProducerStamp { id: "writer".into(), epoch: 3, seq: (1 << 53) - 1 }),
        seq: Some(Bytes::from_static(b"00017")),
        closes: true,
        births: true,
        intro: Some(Intro {
            name: "logs/app".into(),
            config: Arc::new(StreamConfig {
                content_type: "application/json".into(),
                expiry: Expiry::Ttl(86_400),
            }),
        }),
    };
    let close = Frame { payload: Payload::Bytes(Bytes::new()), closes: true, ..plain.clone() };
    vec![plain, full, close]
}

#[test]
fn the_bytes_of_an_object_never_change() {
    let object = encode(&ClusterUid(0xfeed).into(), &session(), 42, &samples());
    let hex: String = object.iter().map(|b| format!("{b:02x}")).collect();
    let golden = include_str!("../../golden/wal-1.hex");
    assert_eq!(hex, golden.split_whitespace().collect::<String>());
    let (header, frames) = decode(&object).unwrap();
    assert_eq!((header.cluster, header.seq), (ClusterUid(0xfeed), 42));
    assert_eq!(header.session, session());
    assert_eq!(frames, samples());
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let object = encode(&ClusterUid(1).into(), &session(), 1, &samples());
    for bit in 0..object.len() * 8 {
        let mut bad = object.to_vec();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&bad.into()).is_err(), "bit {bit}");
    }
    for cut in 0..object.len() {
        assert!(decode(&object.slice(..cut)).is_err(), "cut at {cut}");
    }
    let longer: Bytes = [&object[..], b"x"].concat().into();
    assert!(decode(&longer).is_err());
}

#[test]
fn objects_are_written_in_the_version_that_the_state_names() {
    let stamp = Stamp::from(ClusterUid(1));
    let first = encode(&stamp, &session(), 1, &samples());
    stamp.writing.set(2);
    let second = encode(&stamp, &session(), 1, &samples());
    assert_eq!((first[8], second[8]), (1, 2));
    assert_eq!(decode(&first).unwrap(), decode(&second).unwrap());
}

#[test]
fn a_newer_version_is_named() {
    let mut object = encode(&ClusterUid(1).into(), &session(), 1, &samples()).to_vec();
    object[8] = 9;
    let crc = crc32c::crc32c(&object[..HEADER - 4]);
    object[HEADER - 4..HEADER].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(decode(&object.into()), Err(CodecError::Version(9)));
}

/// Content that passes every checksum but lies about counts and lengths.
#[test]
fn announced_lengths_are_believed_only_as_far_as_there_are_bytes() {
    let huge = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    let over = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
    let overlong = [0x80, 0x00];
    let head = [0u8, 1, 1, 1];
    let json_head = [JSON, 1, 1, 1];
    for tail in [&huge[..], &over[..], &overlong[..], &[5, 1, 2][..], &[0, 9][..]] {
        for head in [head, json_head] {
            let bytes: Bytes = [&head[..], tail].concat().into();
            let frame = Cursor { bytes: bytes.clone(), at: 0 }.frame();
            assert!(frame.is_err(), "{bytes:?} gave {frame:?}");
        }
    }
    // A JSON element without text, and an offset that overflows.
    assert!(Cursor { bytes: Bytes::from_static(&[JSON, 1, 1, 1, 1, 0, 0]), at: 0 }.frame().is_err());
    let last = [&[0u8, 1, 1][..], &[0xff; 9], &[1, 1, b'x']].concat();
    assert_eq!(Cursor { bytes: last.into(), at: 0 }.frame(), Err(CodecError::Malformed("offset")));
}

fn payload() -> impl Strategy<Value = Payload> {
    let elements =
        vec("[0-9]{1,200}", 0..20).prop_map(|e| json(&e.iter().map(String::as_str).collect::<Vec<_>>()));
    prop_oneof![vec(any::<u8>(), 0..300).prop_map(|b| Payload::Bytes(b.into())), elements]
}

fn frame() -> impl Strategy<Value = Frame> {
    let producer = ("[a-z]{1,20}", any::<u64>(), any::<u64>()).prop_map(|(id, epoch, seq)| ProducerStamp {
        id: id.into(),
        epoch,
        seq,
    });
    let expiry = prop_oneof![
        Just(Expiry::Never),
        any::<u64>().prop_map(Expiry::Ttl),
        any::<u64>().prop_map(Expiry::At)
    ];
    let intro = ("\\PC{0,30}", "[a-z/]{0,30}", expiry).prop_map(|(name, content_type, expiry)| Intro {
        name: name.into(),
        config: Arc::new(StreamConfig { content_type, expiry }),
    });
    let seq = vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    let numbers = (any::<u64>(), any::<u64>(), 0..u64::MAX - 1000);
    (
        numbers,
        payload(),
        proptest::option::of(producer),
        proptest::option::of(seq),
        any::<(bool, bool)>(),
        proptest::option::of(intro),
    )
        .prop_map(|((stream, epoch, offset), payload, producer, seq, (closes, births), intro)| Frame {
            stream: StreamId(stream),
            epoch: StreamEpoch(epoch),
            offset: Offset(offset),
            payload,
            producer,
            seq,
            closes,
            births,
            intro,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_read_back_as_written(frames in vec(frame(), 0..8), seq in any::<u64>(), uid in any::<u128>()) {
        let object = encode(&ClusterUid(uid).into(), &session(), seq, &frames);
        prop_assert!(object.len() <= HEADER + frames.iter().map(size_bound).sum::<usize>());
        let (header, read) = decode(&object).unwrap();
        prop_assert_eq!(read, frames);
        prop_assert_eq!((header.seq, header.cluster), (seq, ClusterUid(uid)));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..400)) {
        let bytes = Bytes::from(bytes);
        drop(decode(&bytes));
        drop(Cursor { bytes: bytes.clone(), at: 0 }.frame());
        let header = Header {
            cluster: ClusterUid(0), session: session(), seq: 0, frames: u32::MAX,
            body: bytes.len(), body_crc: crc32c::crc32c(&bytes),
        };
        drop(decode_body(&header, &bytes));
        for frames in 0..4 {
            drop(decode_body(&Header { frames, ..header.clone() }, &bytes));
        }
    }

    #[test]
    fn damaged_content_under_good_checksums_never_panics(frame in frame(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut out = Vec::new();
        put_frame(&mut out, &frame);
        let at = FRAME_HEAD + at.index(out.len() - FRAME_HEAD);
        out[at] = to;
        let content = Bytes::from(out).slice(FRAME_HEAD..);
        if let Ok(read) = (Cursor { bytes: content.clone(), at: 0 }).frame() {
            let mut again = Vec::new();
            put_frame(&mut again, &read);
            prop_assert_eq!(&again[FRAME_HEAD..], &content[..], "one content, one spelling");
        }
    }
}
