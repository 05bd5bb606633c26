//! The rules of one stream, one by one.

use super::*;
use weir_api::{StreamEpoch, StreamId};

fn open() -> StreamLog {
    StreamLog { tail: Offset(0), closed: false, born: true, dedupe: Dedupe::default() }
}

fn stamp(id: &str, epoch: u64, seq: u64) -> Option<ProducerStamp> {
    Some(ProducerStamp { id: id.into(), epoch, seq })
}

fn data(text: &'static str) -> Option<Result<Payload, StreamError>> {
    Some(Ok(Payload::Bytes(Bytes::from_static(text.as_bytes()))))
}

fn plain(text: &'static str) -> Append {
    Append { content: data(text), producer: None, seq: None, closes: false }
}

fn frame(log: &StreamLog, a: &Append) -> Frame {
    let payload = match &a.content {
        Some(Ok(p)) => p.clone(),
        _ => Payload::Bytes(Bytes::new()),
    };
    Frame {
        stream: StreamId(1),
        epoch: StreamEpoch(1),
        offset: log.tail,
        payload,
        producer: a.producer.clone(),
        seq: a.seq.clone(),
        closes: a.closes,
        births: false,
        intro: None,
    }
}

fn put(log: &mut StreamLog, a: &Append) -> Result<Appended, StreamError> {
    match log.check(a, 3)? {
        Verdict::Accept => {
            let f = frame(log, a);
            Ok(log.accept(&f))
        }
        Verdict::Already(done) => Ok(done),
    }
}

#[test]
fn appends_move_the_tail_by_their_length() {
    let mut log = open();
    assert_eq!(put(&mut log, &plain("abc")).unwrap().next, Offset(3));
    assert_eq!(put(&mut log, &plain("de")).unwrap().next, Offset(5));
}

#[test]
fn a_producers_retry_is_a_duplicate_and_names_the_highest_accepted() {
    let mut log = open();
    for seq in 0..3 {
        let a = Append { producer: stamp("p", 1, seq), ..plain("x") };
        assert!(!put(&mut log, &a).unwrap().duplicate);
    }
    let again = put(&mut log, &Append { producer: stamp("p", 1, 0), ..plain("x") }).unwrap();
    assert!(again.duplicate);
    assert_eq!(again.producer, Some(ProducerState { epoch: 1, seq: 2 }));
    assert_eq!(log.tail, Offset(3));
}

#[test]
fn producer_refusals() {
    let mut log = open();
    put(&mut log, &Append { producer: stamp("p", 5, 0), ..plain("x") }).unwrap();
    let case = |epoch, seq| log.check(&Append { producer: stamp("p", epoch, seq), ..plain("x") }, 3);
    assert_eq!(case(4, 1), Err(StreamError::ProducerFenced { epoch: 5 }));
    assert_eq!(case(5, 2), Err(StreamError::ProducerGap { expected: 1, received: 2 }));
    assert_eq!(case(6, 1), Err(StreamError::ProducerStart));
    assert_eq!(case(6, 0), Ok(Verdict::Accept));
    let unknown = Append { producer: stamp("new", 9, 5), ..plain("x") };
    assert_eq!(log.check(&unknown, 3), Err(StreamError::ProducerGap { expected: 0, received: 5 }));
}

#[test]
fn producer_ids_are_bounded() {
    let mut log = open();
    for id in ["a", "b", "c"] {
        put(&mut log, &Append { producer: stamp(id, 0, 0), ..plain("x") }).unwrap();
    }
    let fourth = Append { producer: stamp("d", 0, 0), ..plain("x") };
    assert!(matches!(put(&mut log, &fourth), Err(StreamError::Limit(_))));
    let known = Append { producer: stamp("a", 0, 1), ..plain("x") };
    assert!(put(&mut log, &known).is_ok());
}

#[test]
fn stream_seq_is_compared_byte_by_byte() {
    let mut log = open();
    let seq = |s: &'static str| Append { seq: Some(Bytes::from_static(s.as_bytes())), ..plain("x") };
    put(&mut log, &seq("09")).unwrap();
    put(&mut log, &seq("10")).unwrap();
    assert_eq!(put(&mut log, &seq("10")), Err(StreamError::SeqConflict));
    put(&mut log, &seq("2")).unwrap();
    assert_eq!(put(&mut log, &seq("10")), Err(StreamError::SeqConflict));
    assert!(put(&mut log, &plain("no seq")).is_ok());
}

#[test]
fn a_producer_duplicate_is_answered_even_with_a_stale_stream_seq() {
    let mut log = open();
    let a = Append { producer: stamp("p", 0, 0), seq: Some(Bytes::from_static(b"5")), ..plain("x") };
    put(&mut log, &a).unwrap();
    assert!(put(&mut log, &a).unwrap().duplicate);
}

#[test]
fn a_seq_conflict_does_not_advance_the_producer() {
    let mut log = open();
    put(&mut log, &Append { seq: Some(Bytes::from_static(b"5")), ..plain("x") }).unwrap();
    let bad = Append { producer: stamp("p", 0, 0), seq: Some(Bytes::from_static(b"4")), ..plain("x") };
    assert_eq!(put(&mut log, &bad), Err(StreamError::SeqConflict));
    assert!(log.dedupe.producers.is_empty());
}

#[test]
fn a_closed_stream_answers_the_closing_request_again_and_refuses_the_rest() {
    let mut log = open();
    put(&mut log, &Append { producer: stamp("p", 0, 0), ..plain("x") }).unwrap();
    let last = Append { producer: stamp("p", 0, 1), closes: true, ..plain("end") };
    assert!(put(&mut log, &last).unwrap().closed);
    let retry = Append { content: data("another body"), ..last.clone() };
    assert!(put(&mut log, &retry).unwrap().duplicate);
    let refused = Err(StreamError::Closed { next: Offset(4) });
    assert_eq!(put(&mut log, &Append { producer: stamp("p", 0, 0), ..plain("x") }), refused);
    assert_eq!(put(&mut log, &plain("more")), refused);
    let bad_content = Append { content: Some(Err(StreamError::Invalid("bad".into()))), ..plain("") };
    assert_eq!(put(&mut log, &bad_content), refused);
}

#[test]
fn a_plain_close_is_repeatable() {
    let mut log = open();
    let close = Append { content: None, producer: None, seq: None, closes: true };
    assert!(!put(&mut log, &close).unwrap().duplicate);
    assert!(put(&mut log, &close).unwrap().duplicate);
}

#[test]
fn bad_content_changes_nothing() {
    let mut log = open();
    let before = log.clone();
    let bad = Append {
        content: Some(Err(StreamError::Invalid("bad".into()))),
        producer: stamp("p", 0, 0),
        seq: None,
        closes: true,
    };
    assert!(put(&mut log, &bad).is_err());
    assert_eq!(log, before);
}

#[test]
fn an_unborn_stream_is_not_found() {
    let log = StreamLog { born: false, ..open() };
    assert_eq!(log.check(&plain("x"), 3), Err(StreamError::NotFound));
}
