//! Random streams and the naive model that segments and their reader are checked against.

use bytes::Bytes;
use proptest::prelude::*;
use weir_api::{ClusterUid, NodeEpoch, Offset, SessionId, StreamEpoch, StreamId};

use super::{BuiltSegment, SegmentBuilder};
use crate::metadata::command::SegmentId;
use crate::metadata::state::Extent;
use crate::storage::record::{Dedupe, Frame, Payload, ProducerStamp};

/// One stream's part of a segment.
#[derive(Debug, Clone)]
pub(in crate::storage) struct ModelStream {
    pub id: StreamId,
    pub json: bool,
    pub frames: Vec<Frame>,
    pub dedupe: Option<Dedupe>,
    /// All content.
    pub content: Vec<u8>,
    /// Where each offset's element ends in it.
    pub ends: Vec<usize>,
}

impl ModelStream {
    pub(in crate::storage) fn start(&self) -> u64 {
        self.frames[0].offset.0
    }

    pub(in crate::storage) fn end(&self) -> u64 {
        self.start() + self.ends.len() as u64
    }

    pub(in crate::storage) fn extent(&self) -> Extent {
        Extent {
            segment: SegmentId(1),
            written_as: self.id,
            start: Offset(self.start()),
            end: Offset(self.end()),
        }
    }

    /// Where offset `at` begins in the content.
    fn position(&self, at: u64) -> usize {
        match at - self.start() {
            0 => 0,
            n => self.ends[n as usize - 1],
        }
    }

    /// Checks an answer to a read from `from` with `max` bytes inside an extent that ends at `end`.
    pub(in crate::storage) fn check(&self, parts: &[Payload], from: u64, end: u64, max: usize) {
        let offsets: u64 = parts.iter().map(Payload::length).sum();
        let got = content(parts);
        assert!(offsets >= 1 && from + offsets <= end, "stream {} from {from}: {offsets} offsets", self.id);
        assert!(
            got.len() <= max || offsets == 1,
            "{} bytes in {offsets} offsets, asked for {max}",
            got.len()
        );
        let want = &self.content[self.position(from)..self.position(from + offsets)];
        assert!(got == want, "stream {} from {from}: other content", self.id);
        let mut at = from;
        for part in parts {
            if let Payload::Json { ends, .. } = part {
                let base = self.position(at);
                let want = (0..part.length()).map(|n| self.position(at + n + 1) - base);
                assert!(want.eq(ends.iter().map(|&e| e as usize)), "stream {} at {at}: other ends", self.id);
            }
            assert_eq!(matches!(part, Payload::Json { .. }), self.json);
            at += part.length();
        }
    }
}

pub(in crate::storage) fn content(parts: &[Payload]) -> Vec<u8> {
    let bytes = |p: &Payload| match p {
        Payload::Bytes(b) => b.clone(),
        Payload::Json { text, .. } => text.clone(),
    };
    parts.iter().flat_map(|p| bytes(p).to_vec()).collect()
}

pub(in crate::storage) fn session() -> SessionId {
    SessionId { node: "demo-0".parse().unwrap(), epoch: NodeEpoch(1_700_000_000_000) }
}

pub(in crate::storage) fn build(streams: &[ModelStream]) -> BuiltSegment {
    let mut builder = SegmentBuilder::new(ClusterUid(7), session(), 3);
    for s in streams {
        let frames: Vec<&Frame> = s.frames.iter().collect();
        builder.add(s.id, s.frames[0].epoch, &frames, s.dedupe.as_ref()).unwrap();
    }
    let guess = builder.len_bytes();
    let built = builder.finish();
    assert!(guess.abs_diff(built.object.len()) < 1024 + built.object.len() / 50, "{guess}");
    built
}

/// A payload out of element lengths (for bytes: one element is one run of bytes).
pub(in crate::storage) fn payload(json: bool, lengths: &[usize], seed: u8) -> Payload {
    let mut text = Vec::new();
    let mut ends = Vec::new();
    for (n, &length) in lengths.iter().enumerate() {
        let salt = seed.wrapping_add(n as u8);
        if json {
            text.extend((0..length.max(1)).map(|i| b'0' + (i as u8).wrapping_mul(7).wrapping_add(salt) % 10));
            text.push(b',');
            ends.push(u32::try_from(text.len()).unwrap());
        } else {
            text.extend((0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add(salt)));
        }
    }
    let text = Bytes::from(text);
    if json { Payload::Json { text, ends: ends.into() } } else { Payload::Bytes(text) }
}

pub(in crate::storage) fn stream(
    id: u64,
    json: bool,
    start: u64,
    payloads: Vec<Payload>,
    dedupe: Option<Dedupe>,
) -> ModelStream {
    let (mut content, mut ends, mut frames) = (Vec::new(), Vec::new(), Vec::new());
    for payload in payloads {
        let offset = Offset(start + ends.len() as u64);
        let base = content.len();
        match &payload {
            Payload::Bytes(b) => {
                content.extend_from_slice(b);
                ends.extend(base + 1..=content.len());
            }
            Payload::Json { text, ends: e } => {
                content.extend_from_slice(text);
                ends.extend(e.iter().map(|&e| base + e as usize));
            }
        }
        frames.push(Frame {
            stream: StreamId(id),
            epoch: StreamEpoch(id % 5 + 1),
            offset,
            payload,
            producer: None,
            seq: None,
            closes: false,
            births: false,
            intro: None,
        });
    }
    ModelStream { id: StreamId(id), json, frames, dedupe, content, ends }
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        3 => Just(vec![]),
        12 => prop::collection::vec(0usize..40, 1..12),
        2 => prop::collection::vec(1usize..3, 2000..4000),
        2 => prop::collection::vec(40_000usize..90_000, 1..6),
        1 => prop::collection::vec(250_000usize..300_000, 1..3),
    ]
}

pub(in crate::storage) fn dedupe() -> impl Strategy<Value = Dedupe> {
    let stamp = ("[a-zé]{1,12}", any::<u64>(), any::<u64>());
    let stamp = stamp.prop_map(|(id, epoch, seq)| ProducerStamp { id: id.as_str().into(), epoch, seq });
    let stamp = stamp.boxed();
    let seq = prop::option::of(prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from));
    (prop::collection::vec(stamp.clone(), 0..6), seq, prop::option::of(stamp)).prop_map(
        |(producers, seq, closer)| {
            let state = |p: ProducerStamp| {
                (p.id, crate::storage::record::ProducerState { epoch: p.epoch, seq: p.seq })
            };
            Dedupe { producers: producers.into_iter().map(state).collect(), last_seq: seq, closed_by: closer }
        },
    )
}

/// Up to a dozen streams with gaps between their ids; some without content, some large.
pub(in crate::storage) fn streams() -> impl Strategy<Value = Vec<ModelStream>> {
    let payloads = prop::collection::vec((lengths(), any::<u8>()), 1..5);
    let one =
        (1u64..4, any::<bool>(), 0u64..1 << 40, payloads, prop::option::of(dedupe()), any::<[bool; 2]>());
    prop::collection::vec(one, 0..10).prop_map(|all| {
        let mut id = 0;
        let made = all.into_iter().map(|(step, json, start, payloads, dedupe, [closes, births])| {
            id += step;
            let payloads = payloads.iter().map(|(l, seed)| payload(json, l, *seed)).collect();
            let mut made = stream(id, json, start, payloads, dedupe);
            made.frames.first_mut().unwrap().births = births;
            made.frames.last_mut().unwrap().closes = closes;
            made
        });
        made.collect()
    })
}
