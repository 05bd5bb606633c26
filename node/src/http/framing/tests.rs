//! Ambiguous framing is found however the bytes are cut.

use proptest::prelude::*;

use super::*;

/// Feeds `bytes` in reads of `step`; how many heads were accepted, and what stopped it.
fn watch(bytes: &[u8], step: usize) -> (u64, Option<Framing>, Option<usize>) {
    let verdict = Arc::new(Verdict::default());
    let mut watcher = Watcher::new(verdict.clone());
    for (n, part) in bytes.chunks(step).enumerate() {
        match watcher.feed(part) {
            Fed::All => {}
            Fed::Refused(good) => {
                let at = watcher.heads;
                assert_eq!(verdict.on(at.wrapping_sub(1)).filter(|_| at > 0), None, "earlier requests stand");
                return (at, verdict.on(at), Some(n * step + good));
            }
            Fed::Malformed(good) => return (watcher.heads, None, Some(n * step + good)),
        }
    }
    (watcher.heads, None, None)
}

const GOOD: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET / HTTP/1.1\nHost: x\n\n",
    "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    "POST / HTTP/1.1\r\ncontent-length:5\r\n\r\nGET /",
    "POST / HTTP/1.1\r\nContent-Length: \t 4 \r\n\r\n\r\n\r\n",
    "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nTransfer-Encoding: CHUNKED\r\n\r\n5\r\nGET /\r\nA ; x=\"y\"\r\n0123456789\r\n000\r\nx: y\r\n\r\n",
    "POST / HTTP/1.1\r\nX: Content-Length: 7\r\nX-Content-Length: 3\r\n\r\n",
];

#[test]
fn well_framed_requests_pass_however_they_are_cut() {
    let pipeline: String = GOOD.concat();
    for step in [1, 2, 3, 7, 64, 100_000] {
        assert_eq!(watch(pipeline.as_bytes(), step), (GOOD.len() as u64, None, None), "step {step}");
    }
}

#[test]
fn a_head_with_two_framings_is_refused_and_nothing_after_it_passes() {
    for (fields, why) in [
        ("Content-Length: 5\r\nContent-Length: 6", Framing::TwoLengths),
        ("Content-Length: 5\r\nContent-Length: 5", Framing::TwoLengths),
        ("Content-Length: 0\r\nX: y\r\ncontent-length: 0", Framing::TwoLengths),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", Framing::LengthAndChunked),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", Framing::LengthAndChunked),
        ("Transfer-Encoding: identity\r\nContent-Length: 5", Framing::LengthAndChunked),
        ("Content-Length: 5, 5", Framing::BadLength),
        ("Content-Length: +5", Framing::BadLength),
        ("Content-Length: -1", Framing::BadLength),
        ("Content-Length: 0x5", Framing::BadLength),
        ("Content-Length: 5 5", Framing::BadLength),
        ("Content-Length:", Framing::BadLength),
        ("Content-Length: 18446744073709551616", Framing::BadLength),
        ("Transfer-Encoding: gzip, chunked", Framing::BadCoding),
        ("Transfer-Encoding: chunked, chunked", Framing::BadCoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Framing::BadCoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", Framing::BadCoding),
        ("Transfer-Encoding: xchunked", Framing::BadCoding),
        ("Transfer-Encoding:", Framing::BadCoding),
    ] {
        let before = "GET / HTTP/1.1\r\n\r\n";
        let head = format!("{before}POST / HTTP/1.1\r\n{fields}\r\n\r\n");
        let bytes = format!("{head}5\r\nhello\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n");
        for step in [1, 2, 5, 100_000] {
            assert_eq!(
                watch(bytes.as_bytes(), step),
                (1, Some(why), Some(head.len())),
                "{fields}, step {step}"
            );
        }
    }
}

#[test]
fn malformed_chunking_stops_the_connection_where_it_begins() {
    let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "\r\n",
        "x\r\n",
        "5\n",
        "5 5\r\n",
        "-5\r\n",
        "+5\r\n",
        "0x5\r\n",
        ";x\r\n",
        " 5\r\n",
        "5\r\r\n",
        "10000000000000000\r\n",
        "5;x\ry\r\n",
    ] {
        let bytes = format!("{head}{body}GET / HTTP/1.1\r\n\r\n");
        assert_eq!(watch(bytes.as_bytes(), 100_000), (1, None, Some(head.len())), "{body:?}");
        let cut_up = watch(bytes.as_bytes(), 1);
        assert!(cut_up.2.is_some_and(|at| at < head.len() + body.len()), "{body:?}: {cut_up:?}");
    }
    for body in ["5\r\nhelloX\r\n", "5\r\nhello\n", "5\r\nhello world\r\n"] {
        let bytes = format!("{head}{body}");
        assert_eq!(
            watch(bytes.as_bytes(), 100_000),
            (1, None, Some(head.len() + "5\r\nhello".len())),
            "{body:?}"
        );
    }
    let trailer = format!("{head}0\r\nx: y\n\r\n\r\n");
    assert!(watch(trailer.as_bytes(), 100_000).2.is_some());
}

#[test]
fn memory_is_bounded_however_long_a_line_is() {
    let mut watcher = Watcher::new(Arc::default());
    assert_eq!(watcher.feed(b"GET / HTTP/1.1\r\nX: "), Fed::All);
    for _ in 0..1000 {
        assert_eq!(watcher.feed(&[b'x'; 1000]), Fed::All);
    }
    assert!(watcher.carry.capacity() <= 4 * MAX_LINE);
    assert_eq!(watcher.feed(b"\r\n\r\nGET / HTTP/1.1\r\n\r\n"), Fed::All);
    assert_eq!(watcher.heads, 2);
}

proptest! {
    #[test]
    fn cutting_changes_nothing(
        picks in prop::collection::vec(0..GOOD.len(), 1..6),
        cuts in prop::collection::vec(1usize..50, 1..40),
    ) {
        let bytes = picks.iter().map(|p| GOOD[*p]).collect::<String>().into_bytes();
        let mut watcher = Watcher::new(Arc::default());
        let (mut at, mut cut) = (0, cuts.iter().cycle());
        while at < bytes.len() {
            let end = bytes.len().min(at + cut.next().copied().unwrap_or(1));
            prop_assert_eq!(watcher.feed(&bytes[at..end]), Fed::All);
            at = end;
        }
        prop_assert_eq!(watcher.heads, picks.len() as u64);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), step in 1usize..20) {
        watch(&bytes, step);
    }

    #[test]
    fn no_text_like_http_panics(text in "(POST|GET| / |HTTP/1\\.1|\r\n|\n|Content-Length:|[0-9]{1,20}|Transfer-Encoding: chunked|x){0,30}", step in 1usize..9) {
        watch(text.as_bytes(), step);
    }
}
