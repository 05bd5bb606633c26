//! Every header field in its right and wrong forms.

use proptest::prelude::*;

use super::*;

fn map(fields: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name: http::HeaderName = name.parse().expect("a test's header name");
        map.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a test's header value"));
    }
    map
}

/// The field that a refusal names.
fn named<T: std::fmt::Debug>(result: Result<T, Reject>) -> &'static str {
    match result {
        Err(Reject::Bad { field, why }) => {
            assert!(why.contains(field) || why.contains("Stream-"), "{why:?} does not name {field}");
            field
        }
        other => panic!("{other:?} is no refusal"),
    }
}

#[test]
fn every_field_that_may_stand_once_is_refused_twice() {
    for field in [
        "Content-Type",
        "Content-Encoding",
        "Stream-Closed",
        "Stream-Seq",
        "Stream-TTL",
        "Stream-Expires-At",
        "Stream-Forked-From",
        "Stream-Fork-Offset",
        "Stream-Fork-Sub-Offset",
        "Producer-Id",
        "Producer-Epoch",
        "Producer-Seq",
        "Host",
    ] {
        let twice = map(&[(field, "1"), ("other", "x"), (field, "1")]);
        assert_eq!(named(RequestHeaders::parse(&twice).map(|_| ())), field);
    }
    assert!(RequestHeaders::parse(&map(&[("accept", "a"), ("accept", "b")])).is_ok());
}

#[test]
fn stream_closed_is_true_in_any_case_or_absent() {
    let closes = |v| RequestHeaders::parse(&map(&[("stream-closed", v)])).unwrap().closes();
    for yes in ["true", "TRUE", "True", "tRuE"] {
        assert!(closes(yes), "{yes}");
    }
    for no in ["", "false", "yes", "1", "true;", "truee", "true, true"] {
        assert!(!closes(no), "{no}");
    }
}

#[test]
fn a_content_type_is_a_media_type_of_at_most_256_bytes() {
    let parse = |v: &str| {
        RequestHeaders::parse(&map(&[("content-type", v)]))
            .unwrap()
            .content_type()
            .map(|t| t.map(str::to_owned))
    };
    let longest = format!("text/plain;x={}", "y".repeat(MAX_CONTENT_TYPE - 13));
    for good in [
        "text/plain",
        "Application/JSON; charset=utf-8",
        "application/vnd.x+json",
        "text/plain;charset=\"a b\"",
        longest.as_str(),
    ] {
        assert_eq!(parse(good).unwrap().as_deref(), Some(good));
    }
    let too_long = format!("{longest}z");
    for bad in [
        "",
        " ",
        "json",
        "/",
        "a/",
        "/b",
        "a/b/c",
        "a b/c",
        "text/pl ain",
        ";",
        ";a=b",
        "tëxt/plain",
        too_long.as_str(),
    ] {
        assert_eq!(named(parse(bad)), "Content-Type", "{bad}");
    }
    let absent = HeaderMap::new();
    let headers = RequestHeaders::parse(&absent).unwrap();
    assert_eq!(headers.content_type().unwrap(), None);
    assert_eq!(headers.config().unwrap().content_type, "application/octet-stream");
}

#[test]
fn types_compare_without_case_and_parameters() {
    assert!(same_type("application/json", "Application/JSON; charset=utf-8"));
    assert!(same_type("text/plain;a=b", " text/plain ;c=d"));
    assert!(!same_type("text/plain", "text/html"));
    assert!(!same_type("application/json", "application/vnd.x+json"));
}

#[test]
fn a_body_is_taken_as_it_is() {
    let parse = |v| RequestHeaders::parse(&map(&[("content-encoding", v)])).unwrap().identity_encoding();
    assert!(parse("identity").is_ok() && parse("Identity").is_ok());
    for bad in ["gzip", "", "identity, gzip", "br"] {
        assert!(matches!(parse(bad), Err(Reject::Encoding)), "{bad}");
    }
}

#[test]
fn a_ttl_is_plain_decimal_seconds() {
    let parse =
        |v: &str| RequestHeaders::parse(&map(&[("stream-ttl", v)])).unwrap().config().map(|c| c.expiry);
    for (text, seconds) in [("0", 0), ("1", 1), ("3600", 3600), ("100000000000", MAX_TTL_S)] {
        assert_eq!(parse(text).unwrap(), Expiry::Ttl(seconds));
    }
    for bad in [
        "",
        "00",
        "01",
        "03600",
        "+1",
        "-1",
        "-0",
        "1.0",
        "60.5",
        "1e3",
        "0x10",
        " 1 2",
        "1s",
        "١",
        "100000000001",
        "18446744073709551616",
        "99999999999999999999999",
        "Infinity",
        "NaN",
    ] {
        assert_eq!(named(parse(bad)), "Stream-TTL", "{bad}");
    }
}

#[test]
fn an_expiry_is_an_rfc_3339_time_with_a_zone() {
    let parse = |v: &str| {
        RequestHeaders::parse(&map(&[("stream-expires-at", v)])).unwrap().config().map(|c| c.expiry)
    };
    for (text, ms) in [
        ("1970-01-01T00:00:00Z", 0),
        ("2027-01-31T12:00:00Z", 1_801_396_800_000),
        ("2027-01-31T12:00:00.123Z", 1_801_396_800_123),
        ("2027-01-31T12:00:00.123456789Z", 1_801_396_800_123),
        ("2027-01-31T13:30:00+01:30", 1_801_396_800_000),
        ("2027-01-31T04:00:00-08:00", 1_801_396_800_000),
        ("2027-01-31t12:00:00z", 1_801_396_800_000),
        ("1969-12-31T23:59:59Z", 0),
        ("0001-01-01T00:00:00Z", 0),
    ] {
        assert_eq!(parse(text).unwrap(), Expiry::At(ms), "{text}");
    }
    for bad in [
        "",
        "not-a-timestamp",
        "2027-01-31",
        "2027-01-31T12:00:00",
        "2027-13-01T00:00:00Z",
        "2027-02-30T00:00:00Z",
        "2027-01-31T25:00:00Z",
        "2027-01-31T12:00Z",
        "1801396800",
        "Sun, 31 Jan 2027 12:00:00 GMT",
        "2027-01-31T12:00:00+99:99",
        "2027-01-31T12:00:00Z ",
        "+12027-01-31T12:00:00Z",
        "2027-01-31T12:00:00 Z x",
    ] {
        assert_eq!(named(parse(bad)), "Stream-Expires-At", "{bad}");
    }
    let both = map(&[("stream-ttl", "1"), ("stream-expires-at", "2027-01-31T12:00:00Z")]);
    assert_eq!(named(RequestHeaders::parse(&both).unwrap().config()), "Stream-TTL");
    let answered = rfc3339(1_801_396_800_123).unwrap();
    assert_eq!(answered, "2027-01-31T12:00:00.123Z");
    assert_eq!(rfc3339(u64::MAX), None);
}

#[test]
fn a_fork_names_its_source_by_path_and_where_it_leaves_it() {
    type Got = (String, Option<u64>, u64);
    let parse = |fields: &[(&str, &str)]| -> Result<Option<Got>, Reject> {
        let map = map(fields);
        let fork = RequestHeaders::parse(&map).unwrap().fork()?;
        Ok(fork.map(|f| (f.source.as_str().to_owned(), f.offset.map(|o| o.0), f.sub_offset)))
    };
    assert_eq!(parse(&[]).unwrap(), None);
    let from = ("stream-forked-from", "/v1/stream/a/b%20c");
    let seven = ("stream-fork-offset", "00000000000000000007");
    assert_eq!(parse(&[from]).unwrap(), Some(("a/b c".into(), None, 0)));
    assert_eq!(parse(&[from, seven]).unwrap(), Some(("a/b c".into(), Some(7), 0)));
    let sub = |v| ("stream-fork-sub-offset", v);
    assert_eq!(parse(&[from, seven, sub("12")]).unwrap(), Some(("a/b c".into(), Some(7), 12)));
    assert_eq!(parse(&[from, sub("0")]).unwrap(), Some(("a/b c".into(), None, 0)));
    // The one position that other servers' clients write themselves.
    let beginning = ("stream-fork-offset", "0000000000000000_0000000000000000");
    assert_eq!(parse(&[from, beginning]).unwrap(), Some(("a/b c".into(), Some(0), 0)));

    for bad in [
        "",
        "a",
        "v1/stream/a",
        "/v1/streams/a",
        "/v1/stream/",
        "/v1/stream",
        "/v1/stream/a//b",
        "/v1/stream/a/../b",
        "/v1/stream/__ds/x",
        "http://h/v1/stream/a",
        "/v1/stream/a?x=1",
        "/v1/stream/a#b",
        "/v1/stream/%zz",
        "/v1/stream/%00",
        "/v1/stream/é",
    ] {
        assert_eq!(named(parse(&[("stream-forked-from", bad)])), "Stream-Forked-From", "{bad}");
    }
    for bad in ["", "7", "-1", "now", "0000000000000000_0000000000000001", "99999999999999999999", "1,2", " "]
    {
        assert_eq!(named(parse(&[from, ("stream-fork-offset", bad)])), "Stream-Fork-Offset", "{bad}");
    }
    for bad in ["", "-1", "+1", "05", "00", "1.5", "1e3", "abc", "18446744073709551616"] {
        assert_eq!(named(parse(&[from, seven, sub(bad)])), "Stream-Fork-Sub-Offset", "{bad}");
    }
    assert_eq!(named(parse(&[from, sub("1")])), "Stream-Fork-Sub-Offset");
    assert_eq!(named(parse(&[seven])), "Stream-Fork-Offset");
    assert_eq!(named(parse(&[sub("0")])), "Stream-Fork-Sub-Offset");
    assert_eq!(named(parse(&[from, ("content-type", "x")])), "Content-Type");
    assert_eq!(named(parse(&[from, ("stream-ttl", "01")])), "Stream-TTL");
}

#[test]
fn a_stream_seq_is_1_to_256_bytes() {
    let parse = |v: &str| RequestHeaders::parse(&map(&[("stream-seq", v)])).unwrap().seq();
    for good in ["1", "09", "a b", "é", "x".repeat(MAX_SEQ).as_str()] {
        assert_eq!(parse(good).unwrap().unwrap(), good.as_bytes());
    }
    for bad in ["", "x".repeat(MAX_SEQ + 1).as_str()] {
        assert_eq!(named(parse(bad)), "Stream-Seq");
    }
}

#[test]
fn a_producer_is_three_fields_or_none() {
    let all = [("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", "0")];
    for present in 0..8u32 {
        let fields: Vec<_> =
            all.iter().enumerate().filter(|(i, _)| present & (1 << i) != 0).map(|(_, f)| *f).collect();
        let parsed = RequestHeaders::parse(&map(&fields)).unwrap().producer();
        match present {
            0 => assert!(parsed.unwrap().is_none()),
            7 => assert!(parsed.unwrap().is_some()),
            _ => {
                let missing = named(parsed).to_ascii_lowercase();
                assert!(fields.iter().all(|(name, _)| *name != missing), "{missing} was there");
            }
        }
    }
}

#[test]
fn producer_numbers_are_digits_up_to_what_javascript_holds() {
    let parse = |id: &str, epoch: &str, seq: &str| {
        let fields = [("producer-id", id), ("producer-epoch", epoch), ("producer-seq", seq)];
        RequestHeaders::parse(&map(&fields)).unwrap().producer().map(Option::unwrap)
    };
    let stamp = parse("é", "9007199254740991", "007").unwrap();
    assert_eq!((stamp.id.as_ref(), stamp.epoch, stamp.seq), ("é", MAX_SAFE, 7));
    for bad in [
        "",
        "-1",
        "+1",
        "1.0",
        "1e3",
        "1abc",
        "abc",
        " ",
        "0x1",
        "9007199254740992",
        "18446744073709551616",
        "１",
    ] {
        assert_eq!(named(parse("p", bad, "0")), "Producer-Epoch", "{bad}");
        assert_eq!(named(parse("p", "0", bad)), "Producer-Seq", "{bad}");
    }
    assert_eq!(named(parse("", "0", "0")), "Producer-Id");
    assert_eq!(named(parse(&"x".repeat(MAX_PRODUCER_ID + 1), "0", "0")), "Producer-Id");
    assert!(parse(&"x".repeat(MAX_PRODUCER_ID), "0", "0").is_ok());
    let raw = HeaderValue::from_bytes(b"\xff").unwrap();
    let mut not_utf8 = map(&[("producer-epoch", "0"), ("producer-seq", "0")]);
    not_utf8.insert("producer-id", raw);
    assert_eq!(named(RequestHeaders::parse(&not_utf8).unwrap().producer()), "Producer-Id");
}

#[test]
fn offsets_are_20_digits() {
    assert_eq!(&offset_text(Offset(0)), b"00000000000000000000");
    assert_eq!(&offset_text(Offset(u64::MAX)), b"18446744073709551615");
    assert_eq!(offset_value(Offset(42)), "00000000000000000042");
}

proptest! {
    #[test]
    fn digits_agree_with_the_standard_library(text in "[0-9]{0,22}|\\PC{0,6}") {
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        prop_assert_eq!(digits(text.as_bytes()), text.parse::<u64>().ok().filter(|_| plain));
    }

    #[test]
    fn no_value_panics(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let Ok(value) = HeaderValue::from_bytes(&bytes) else { return Ok(()) };
        for field in ["content-type", "stream-seq", "stream-ttl", "stream-expires-at", "producer-id", "producer-seq"] {
            let mut map = HeaderMap::new();
            map.insert(field, value.clone());
            let headers = RequestHeaders::parse(&map).unwrap();
            drop((headers.config(), headers.seq(), headers.producer(), headers.closes()));
        }
    }

    #[test]
    fn expiry_times_come_back(ms in 0u64..253_402_300_800_000) {
        let written = rfc3339(ms).unwrap();
        prop_assert_eq!(expires_at_ms(&written).unwrap(), ms);
    }
}
