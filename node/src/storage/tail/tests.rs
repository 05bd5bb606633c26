//! The tail buffer against a plain list of elements.

use bytes::Bytes;
use proptest::prelude::*;
use weir_api::Offset;

use super::TailBuffer;
use crate::storage::record::Payload;

/// One element as it stands in a payload: a byte, or a JSON text with its comma.
type Element = Vec<u8>;

fn payload(json: bool, elements: &[Element]) -> Payload {
    let text: Bytes = elements.concat().into();
    if !json {
        return Payload::Bytes(text);
    }
    let ends = elements.iter().scan(0u32, |at, e| {
        *at += u32::try_from(e.len()).unwrap();
        Some(*at)
    });
    Payload::Json { ends: ends.collect(), text }
}

fn elements(part: &Payload) -> Vec<Element> {
    match part {
        Payload::Bytes(b) => b.iter().map(|b| vec![*b]).collect(),
        Payload::Json { text, ends } => {
            let mut at = 0;
            let mut out = Vec::new();
            for &end in ends.iter() {
                out.push(text[at..end as usize].to_vec());
                at = end as usize;
            }
            assert_eq!(at, text.len());
            out
        }
    }
}

#[derive(Debug, Clone)]
enum Op {
    Push(Vec<u8>),
    Durable(u64),
    Drop(u64),
    Read(u64, usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => prop::collection::vec(0u8..6, 0..8).prop_map(Op::Push),
        2 => (0u64..60).prop_map(Op::Durable),
        1 => (0u64..60).prop_map(Op::Drop),
        4 => (0u64..70, 0usize..40).prop_map(|(from, max)| Op::Read(from, max)),
    ]
}

proptest! {
    #[test]
    fn it_answers_as_a_plain_list_does(json: bool, at in 0u64..20, ops in prop::collection::vec(op(), 0..60)) {
        let mut tail = TailBuffer::new(Offset(at));
        let (mut all, mut durable): (Vec<Element>, u64) = (Vec::new(), at);
        for op in ops {
            match op {
                Op::Push(seeds) => {
                    let added: Vec<Element> = seeds
                        .iter()
                        .map(|&n| if json { [vec![b'7'; 1 + n as usize], vec![b',']].concat() } else { vec![n] })
                        .collect();
                    let got = tail.push(payload(json, &added));
                    prop_assert_eq!(got.0, at + all.len() as u64);
                    all.extend(added);
                }
                Op::Durable(to) => {
                    tail.mark_durable(Offset(to));
                    durable = durable.max(to.min(at + all.len() as u64));
                }
                Op::Drop(below) => {
                    let before = tail.start();
                    tail.drop_below(Offset(below));
                    prop_assert!(tail.start() >= before && tail.start().0 <= durable);
                    prop_assert!(tail.start() == before || tail.start().0 <= below);
                }
                Op::Read(from, max) => check_read(&tail, &all, at, durable, from, max)?,
            }
            let kept = &all[(tail.start().0 - at) as usize..];
            prop_assert_eq!(tail.bytes(), kept.concat().len());
            prop_assert_eq!((tail.end().0, tail.durable().0), (at + all.len() as u64, durable));
        }
    }
}

fn check_read(
    tail: &TailBuffer,
    all: &[Element],
    at: u64,
    durable: u64,
    from: u64,
    max: usize,
) -> Result<(), TestCaseError> {
    let Some(parts) = tail.read(Offset(from), max) else {
        prop_assert!(from < tail.start().0);
        return Ok(());
    };
    let got: Vec<Element> = parts.iter().flat_map(elements).collect();
    if from >= durable {
        prop_assert!(got.is_empty());
        return Ok(());
    }
    let mut want = Vec::new();
    let mut left = max;
    for e in &all[(from - at) as usize..(durable - at) as usize] {
        if !want.is_empty() && e.len() > left {
            break;
        }
        left = left.saturating_sub(e.len());
        want.push(e.clone());
    }
    prop_assert_eq!(got, want);
    Ok(())
}

#[test]
fn a_read_shares_the_bytes_it_was_given() {
    let bytes = Bytes::from(vec![1u8; 64]);
    let mut tail = TailBuffer::new(Offset(0));
    tail.push(Payload::Bytes(bytes.clone()));
    tail.mark_durable(Offset(64));
    let parts = tail.read(Offset(16), 8).unwrap();
    let Payload::Bytes(part) = &parts[0] else { panic!("bytes") };
    assert_eq!(part.as_ptr(), bytes[16..].as_ptr());
}

#[test]
fn nothing_is_readable_or_dropped_before_it_is_durable() {
    let mut tail = TailBuffer::new(Offset(0));
    tail.push(Payload::Bytes(Bytes::from_static(b"abc")));
    assert_eq!(tail.read(Offset(0), 10), Some(vec![]));
    tail.drop_below(Offset(3));
    assert_eq!(tail.bytes(), 3);
    tail.mark_durable(Offset(2));
    assert_eq!(tail.read(Offset(0), 10), Some(vec![Payload::Bytes(Bytes::from_static(b"ab"))]));
}
