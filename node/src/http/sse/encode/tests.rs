//! Any bytes, through the encoder and a reader by the standard, are the same bytes again.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::http::json;
use crate::http::sse::parse::{self, Event};

fn bytes(parts: &[&[u8]]) -> Vec<Payload> {
    parts.iter().map(|p| Payload::Bytes(Bytes::copy_from_slice(p))).collect()
}

fn encoded(coding: Coding, parts: &[Payload]) -> Vec<Event> {
    let mut out = Vec::new();
    data(&mut out, coding, parts);
    control(&mut out, &Control { next: Offset(7), claim: Claim::UpToDate, cursor: 3 });
    parse::events(std::str::from_utf8(&out).expect("an event stream is UTF-8"))
}

/// The payload of the one data event, which one control event follows.
fn payload(coding: Coding, parts: &[Payload]) -> String {
    let events = encoded(coding, parts);
    let names: Vec<_> = events.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["data", "control"], "{events:?}");
    events.into_iter().next().expect("two").data
}

/// As every reader of events sees line breaks.
fn normal(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

#[test]
fn a_control_event_says_what_it_may() {
    let said = |claim| {
        let mut out = Vec::new();
        control(&mut out, &Control { next: Offset(12), claim, cursor: 99 });
        let events = parse::events(std::str::from_utf8(&out).unwrap());
        assert_eq!((events.len(), events[0].name.as_str()), (1, "control"));
        serde_json::from_str::<serde_json::Value>(&events[0].data).unwrap()
    };
    let next = "00000000000000000012";
    assert_eq!(said(Claim::Nothing), serde_json::json!({"streamNextOffset": next, "streamCursor": "99"}));
    assert_eq!(
        said(Claim::UpToDate),
        serde_json::json!({"streamNextOffset": next, "streamCursor": "99", "upToDate": true})
    );
    assert_eq!(
        said(Claim::Closed),
        serde_json::json!({"streamNextOffset": next, "upToDate": true, "streamClosed": true})
    );
}

#[test]
fn nothing_in_a_text_ends_its_event_or_begins_another() {
    for attack in [
        "x\n\nevent: control\ndata: {\"streamClosed\":true}\n\n",
        "x\r\rdata: y\r\r",
        "\r\n\r\nevent: control\r\ndata: {}\r\n\r\n",
        "\nid: 7\nretry: 1\n:",
        "\n\n\n",
        "data: data: ",
        " leading and trailing ",
        "\n one\r\n  two\r three",
        " ",
        "\u{feff}mark",
        "\0\u{2028}\u{85}",
    ] {
        assert_eq!(payload(Coding::Text, &bytes(&[attack.as_bytes()])), normal(attack), "{attack:?}");
    }
    let split = bytes(&[b"x\r", b"\nevent: control\r", b"\n\r\n"]);
    assert_eq!(payload(Coding::Text, &split), "x\nevent: control\n\n", "a break across parts is one");
}

#[test]
fn what_is_no_utf_8_is_replaced_and_harms_nothing_around_it() {
    assert_eq!(payload(Coding::Text, &bytes(&[b"a\xffb\xe2\x82", b"\xacc"])), "a\u{fffd}b€c");
    assert_eq!(payload(Coding::Text, &bytes(&[b"\xe2"])), "\u{fffd}");
}

#[test]
fn json_elements_keep_their_bytes_and_arrays_stay_whole() {
    let parts: Vec<Payload> = [r#"[12345678901234567890, "a\nb"]"#, "{ \"k\" :\r\n\r\n [ 1.0e2 ] }", "[[]]"]
        .iter()
        .map(|body| json::flatten(body.as_bytes()).unwrap().unwrap())
        .collect();
    assert_eq!(
        payload(Coding::Json, &parts),
        "[12345678901234567890,\"a\\nb\",{ \"k\" :\n\n [ 1.0e2 ] },[]]"
    );
}

#[test]
fn a_coding_follows_the_content_type() {
    for (kind, coding) in [
        ("application/json", Coding::Json),
        ("Application/JSON; charset=utf-8", Coding::Json),
        ("application/vnd.x+json", Coding::Base64),
        ("text/plain", Coding::Text),
        ("TEXT/csv;x=y", Coding::Text),
        ("textual/plain", Coding::Base64),
        ("application/octet-stream", Coding::Base64),
        ("image/png", Coding::Base64),
    ] {
        let config =
            StreamConfig { content_type: kind.to_owned(), expiry: crate::metadata::command::Expiry::Never };
        assert_eq!(Coding::of(&config), coding, "{kind}");
    }
}

#[test]
fn the_beginning_of_a_character_waits_for_its_end() {
    for (parts, waits) in [
        (&[&b"abc"[..]][..], 0),
        (&[b"a\xc3"], 1),
        (&[b"\xe2\x82"], 2),
        (&[b"\xe2", b"\x82"], 2),
        (&[b"x\xf0\x9f\x98"], 3),
        (&[b"x\xf0", b"\x9f", b"\x98"], 3),
        (&[b"\xf0\x9f\x98\x80"], 0),
        // No character begins so.
        (&[b"\xff"], 0),
        (&[b"\xc0"], 0),
        (&[b"\xe0\x80"], 0),
        (&[b"\x80\x80\x80"], 0),
        (&[b"\xe2x"], 0),
        (&[], 0),
    ] {
        let parts = bytes(parts);
        assert_eq!(unfinished(&parts, false), waits, "{parts:?}");
        assert_eq!(unfinished(&parts, true), waits, "{parts:?}");
    }
    assert_eq!((unfinished(&bytes(&[b"a\r"]), true), unfinished(&bytes(&[b"a\r"]), false)), (1, 0));
    let mut parts = bytes(&[b"ab", b"\xf0", b"\x9f\x98"]);
    cut(&mut parts, 3);
    assert_eq!(parts, bytes(&[b"ab"]));
    cut(&mut parts, 1);
    assert_eq!(parts, bytes(&[b"a"]));
    cut(&mut parts, 9);
    assert!(parts.is_empty());
}

proptest! {
    #[test]
    fn any_bytes_come_back_from_base64(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 1..5)) {
        let all = parts.concat();
        let payloads: Vec<Payload> = parts.into_iter().map(|p| Payload::Bytes(p.into())).collect();
        let text = payload(Coding::Base64, &payloads);
        prop_assert_eq!(STANDARD.decode(text).expect("base64"), all);
    }

    #[test]
    fn any_text_comes_back_but_for_the_kind_of_its_line_breaks(text in "(\\PC|[\r\n:]|data: |event: ){1,40}") {
        prop_assert_eq!(payload(Coding::Text, &bytes(&[text.as_bytes()])), normal(&text));
    }

    #[test]
    fn any_bytes_called_text_make_one_event(raw in prop::collection::vec(any::<u8>(), 1..80)) {
        let shown = payload(Coding::Text, &bytes(&[&raw]));
        prop_assert_eq!(shown, normal(&String::from_utf8_lossy(&raw)));
    }

    #[test]
    fn text_cut_anywhere_comes_back_whole(text in "(\\PC|\r\n|\n){1,40}", cuts in prop::collection::vec(1..7usize, 1..40)) {
        // Chunks of a few bytes, what is unfinished going with the next: what a reader of a long stream goes through.
        let raw = text.as_bytes();
        let (mut at, mut got, mut cuts) = (0, String::new(), cuts.into_iter().cycle());
        let mut ahead = 0;
        while at < raw.len() {
            let end = (at + ahead + cuts.next().expect("a cycle")).min(raw.len());
            let mut parts = bytes(&[&raw[at..end]]);
            let more = end < raw.len();
            let waits = unfinished(&parts, more);
            cut(&mut parts, waits);
            let length = parts.first().map_or(0, |p| p.size());
            ahead = if length == 0 { end - at } else { 0 };
            if length > 0 {
                got += &payload(Coding::Text, &parts);
            }
            at += length;
        }
        prop_assert_eq!(got, normal(&text));
    }

    #[test]
    fn any_json_is_read_as_what_it_was(elements in prop::collection::vec("\\PC{0,12}", 1..6), spaces in "[ \t\r\n]{0,4}") {
        let values: Vec<String> = elements.iter().map(|e| serde_json::to_string(e).expect("text")).collect();
        let body = format!("[{}]", values.iter().map(|v| format!("{spaces}{{\"k\":{spaces}{v}}}")).collect::<Vec<_>>().join(","));
        let parts = [json::flatten(body.as_bytes()).expect("valid").expect("not empty")];
        let got: Vec<serde_json::Value> = serde_json::from_str(&payload(Coding::Json, &parts)).expect("an array");
        let sent: Vec<serde_json::Value> = serde_json::from_str(&body).expect("an array");
        prop_assert_eq!(got, sent);
    }
}
