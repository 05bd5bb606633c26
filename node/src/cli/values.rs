//! Values on the command line: names, offsets, times, sizes.
//!
//! Invariant: pure; what is not accepted is answered with what to type instead. Used by the definitions of commands.

use std::time::Duration;

use crate::client::Origin;
use crate::config::units;
use crate::streams::StreamName;

/// A stream's name.
pub(super) fn name(text: &str) -> Result<StreamName, String> {
    if let Some((_scheme, rest)) = text.split_once("://") {
        let (address, name) = rest.split_once("/v1/stream/").unwrap_or((rest, "NAME"));
        let address = address.split('/').next().unwrap_or_default();
        let name = StreamName::from_path(name.split('?').next().unwrap_or_default());
        let name = name.map_or_else(|_e| "NAME".to_owned(), |n| super::stop::quoted(n.as_str()));
        return Err(format!("this is a URL; type instead: {name} --server http://{address}"));
    }
    if let Some(name) = text.strip_prefix("/v1/stream/") {
        return Err(format!("the path is not part of the name; type instead: {name}"));
    }
    let trimmed = text.trim_matches('/');
    if trimmed != text && trimmed.parse::<StreamName>().is_ok() {
        return Err(format!(
            "a name neither begins nor ends with a slash; type instead: {}",
            super::stop::quoted(trimmed)
        ));
    }
    text.parse().map_err(|e: crate::streams::name::NameError| e.to_string())
}

/// Where a read begins.
pub(super) fn offset(text: &str) -> Result<String, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text {
        "-1" | "now" => Ok(text.to_owned()),
        _ if digits && text.len() == 20 => Ok(text.to_owned()),
        _ if digits && text.len() < 20 => {
            Err(format!("an offset has 20 digits; type instead: {text:0>20}, or -1 for the beginning"))
        }
        "start" | "begin" | "beginning" | "first" | "0x0" => {
            Err("the beginning is written -1; type instead: --offset -1".to_owned())
        }
        "end" | "tail" | "latest" | "last" => {
            Err("the end is written now; type instead: --offset now".to_owned())
        }
        _ => Err("allowed: -1 (the beginning), now (the end), or a next offset as it was printed: 20 digits"
            .to_owned()),
    }
}

/// A position that is known.
pub(super) fn position(text: &str) -> Result<String, String> {
    match offset(text)? {
        at if at == "-1" || at == "now" => {
            Err("give a position of 20 digits, or leave it out for the source's end".to_owned())
        }
        at => Ok(at),
    }
}

/// How long to try.
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    units::duration(text, "100ms", "7d")
}

/// A time to live, as seconds.
pub(super) fn ttl(text: &str) -> Result<u64, String> {
    let whole = |d: Duration| (d.subsec_nanos() == 0).then_some(d.as_secs());
    let plain = || text.parse::<u64>().ok().filter(|_n| !text.starts_with('+'));
    let given = units::duration(text, "0s", "36500d").ok().and_then(whole).or_else(plain);
    given.ok_or_else(|| {
        "allowed: whole seconds, or a number with a unit (s, m, h, d), as 90, 10m, 7d".to_owned()
    })
}

/// A time, as the protocol wants it.
pub(super) fn expires_at(text: &str) -> Result<String, String> {
    chrono::DateTime::parse_from_rfc3339(text)
        .map(|_time| text.to_owned())
        .map_err(|_e| "allowed: an RFC 3339 time with a zone, as 2027-01-31T12:00:00Z".to_owned())
}

/// How much one request carries.
pub(super) fn batch(text: &str) -> Result<usize, String> {
    let bytes = units::size(text, "1", "16MiB")?;
    usize::try_from(bytes).map_err(|e| e.to_string())
}

/// What goes into a header field: a content type, a producer, a sequence.
pub(super) fn field(text: &str) -> Result<String, String> {
    let fine =
        !text.is_empty() && text.len() <= 256 && !text.chars().any(char::is_control) && text.trim() == text;
    fine.then(|| text.to_owned())
        .ok_or_else(|| "allowed: 1 to 256 bytes, no control characters, no space at either end".to_owned())
}

/// A content type.
pub(super) fn content_type(text: &str) -> Result<String, String> {
    let text = field(text)?;
    let essence = text.split(';').next().unwrap_or_default();
    match essence.split_once('/') {
        Some((kind, sub)) if !kind.is_empty() && !sub.trim().is_empty() => Ok(text),
        _ => Err(match text.as_str() {
            "json" => "type instead: application/json".to_owned(),
            "text" => "type instead: text/plain".to_owned(),
            _ => "allowed: TYPE/SUBTYPE, as text/plain or application/json".to_owned(),
        }),
    }
}

/// A server.
pub(super) fn server(text: &str) -> Result<Origin, String> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_says_what_to_type() {
        assert_eq!(name("a/b c").unwrap().as_str(), "a/b c");
        for (text, says) in [
            ("http://h:1/v1/stream/a%20b?offset=-1", "type instead: 'a b' --server http://h:1"),
            ("https://h/v1/stream/a", "type instead: a --server http://h"),
            ("http://h:1", "type instead: NAME --server http://h:1"),
            ("/v1/stream/a/b", "type instead: a/b"),
            ("/a/b/", "type instead: a/b"),
            ("a//b", "empty segment"),
            ("", "empty"),
            ("../x", "'.' or '..'"),
            ("__ds/x", "reserved"),
        ] {
            let why = name(text).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
        }
    }

    #[test]
    fn an_offset_that_is_none_says_what_to_type() {
        for good in ["-1", "now", "00000000000000000013"] {
            assert_eq!(offset(good).as_deref(), Ok(good));
        }
        for (text, says) in [
            ("13", "type instead: 00000000000000000013"),
            ("0", "type instead: 00000000000000000000"),
            ("start", "--offset -1"),
            ("end", "--offset now"),
            ("000000000000000000013", "allowed: -1"),
            ("-2", "allowed: -1"),
            ("", "allowed: -1"),
            ("NOW", "allowed: -1"),
        ] {
            let why = offset(text).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
        }
        assert!(position("now").is_err() && position("-1").is_err());
        assert!(position("00000000000000000013").is_ok());
    }

    #[test]
    fn times_sizes_and_types_have_bounds_and_say_them() {
        assert_eq!((ttl("90"), ttl("10m"), ttl("0")), (Ok(90), Ok(600), Ok(0)));
        for bad in ["", "1500ms", "1.5h", "-1", "+5", "soon"] {
            assert!(ttl(bad).unwrap_err().contains("as 90, 10m, 7d"), "{bad}");
        }
        assert!(expires_at("2027-01-31T12:00:00Z").is_ok() && expires_at("tomorrow").is_err());
        assert_eq!((batch("1"), batch("1MiB")), (Ok(1), Ok(1 << 20)));
        assert!(batch("17MiB").is_err() && batch("0").is_err());
        assert!(content_type("text/plain; charset=utf-8").is_ok());
        assert_eq!(content_type("json").unwrap_err(), "type instead: application/json");
        assert!(content_type("plain").is_err() && content_type("/x").is_err() && field(" a").is_err());
    }
}
