//! Values from text: durations, sizes, counts, switches, addresses, URLs.
//!
//! Invariant: pure; an error is the sentence that says what is allowed, so that the caller adds only where the value
//! came from. Used by `super` and by the command line.

use std::net::SocketAddr;
use std::time::Duration;

/// What is allowed instead.
pub(crate) type Allowed = String;

const DURATIONS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZES: &[(&str, u64)] =
    &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("", 1)];

/// The number and the unit's factor multiplied; `None` if either is not understood or the product overflows.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// The largest unit that divides it.
fn written(n: u64, units: &[(&str, u64)]) -> String {
    let fits = units.iter().filter(|(name, f)| !name.is_empty() && n.is_multiple_of(*f));
    let (name, factor) = match n {
        0 => units[0],
        _ => fits.max_by_key(|(_, f)| *f).copied().unwrap_or(units[0]),
    };
    format!("{}{name}", n / factor)
}

pub(crate) fn duration(text: &str, min: &str, max: &str) -> Result<Duration, Allowed> {
    let bound = |t| scaled(t, DURATIONS).expect("bounds are written in this file's own units");
    match scaled(text, DURATIONS) {
        Some(ms) if (bound(min)..=bound(max)).contains(&ms) => Ok(Duration::from_millis(ms)),
        _ => Err(format!("a whole number with a unit (ms, s, m, h, d) from {min} to {max}")),
    }
}

pub(crate) fn size(text: &str, min: &str, max: &str) -> Result<u64, Allowed> {
    let bound = |t| scaled(t, SIZES).expect("bounds are written in this file's own units");
    match scaled(text, SIZES) {
        Some(n) if (bound(min)..=bound(max)).contains(&n) => Ok(n),
        _ => Err(format!("a whole number of bytes or with a unit (KiB, MiB, GiB, TiB) from {min} to {max}")),
    }
}

pub(super) fn show_size(bytes: u64) -> String {
    written(bytes, SIZES)
}

pub(super) fn show_duration(d: Duration) -> String {
    written(u64::try_from(d.as_millis()).unwrap_or(u64::MAX), DURATIONS)
}

pub(super) fn count(text: &str, min: u64, max: u64) -> Result<u64, Allowed> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(n) if digits && (min..=max).contains(&n) => Ok(n),
        _ => Err(format!("a whole number from {min} to {max}")),
    }
}

pub(super) fn switch(text: &str) -> Result<bool, Allowed> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("true or false".to_owned()),
    }
}

pub(super) fn socket_address(text: &str) -> Result<SocketAddr, Allowed> {
    text.parse().map_err(|_e| "an IP address and a port, as 127.0.0.1:4437 or [::1]:4437".to_owned())
}

/// `host:port`, the host an IP address or a DNS name.
pub(super) fn host_port(text: &str) -> Result<String, Allowed> {
    let allowed = || "a host name or IP address and a port, as node-1.weir:4438".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(allowed)?;
    let port: u16 = port.parse().map_err(|_e| allowed())?;
    let host = url::Host::parse(host).map_err(|_e| allowed())?;
    if port == 0 {
        return Err(allowed());
    }
    Ok(format!("{host}:{port}"))
}

/// `http(s)://host[:port]` without anything after it; a trailing slash is dropped.
pub(super) fn base_url(text: &str) -> Result<String, Allowed> {
    let allowed = || "http://HOST[:PORT] or https://HOST[:PORT] without path, query or user".to_owned();
    let url = url::Url::parse(text).map_err(|_e| allowed())?;
    let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let anonymous = url.username().is_empty() && url.password().is_none();
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !bare || !anonymous {
        return Err(allowed());
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// Free text that is stored and logged: printable, bounded.
pub(super) fn label(text: &str, max: usize) -> Result<String, Allowed> {
    let fine = !text.trim().is_empty() && text.len() <= max && !text.chars().any(char::is_control);
    if fine { Ok(text.to_owned()) } else { Err(format!("1 to {max} printable characters")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_keep_their_bounds() {
        let ok = |t: &str| duration(t, "10ms", "10m");
        assert_eq!(ok("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(ok("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(ok("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(ok("10 s"), Ok(Duration::from_secs(10)));
        for bad in
            ["", "10", "s", "1.5s", "-1s", "10sec", "9ms", "11m", "10S", "99999999999999999999d", "+5s"]
        {
            let allowed = ok(bad).expect_err(bad);
            assert!(allowed.contains("10ms to 10m"), "{allowed}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_binary_units() {
        let ok = |t: &str| size(t, "1KiB", "1TiB");
        assert_eq!(ok("4096"), Ok(4096));
        assert_eq!(ok("4096B"), Ok(4096));
        assert_eq!(ok("8MiB"), Ok(8 << 20));
        assert_eq!(ok("1TiB"), Ok(1 << 40));
        for bad in ["", "8MB", "8M", "8mib", "1.5MiB", "2TiB", "17000000TiB", "0", "-1"] {
            assert!(ok(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_and_durations_are_written_as_they_are_read() {
        for t in ["1MiB", "3KiB", "1025B", "0B"] {
            assert_eq!(show_size(size(t, "0", "1TiB").unwrap()), t);
        }
        for t in ["1500ms", "10s", "5m", "1h", "7d", "0ms"] {
            assert_eq!(show_duration(duration(t, "0ms", "7d").unwrap()), t);
        }
    }

    #[test]
    fn base_urls_have_no_path() {
        assert_eq!(base_url("http://a:1/"), Ok("http://a:1".to_owned()));
        assert_eq!(base_url("https://weir.example"), Ok("https://weir.example".to_owned()));
        for bad in ["", "a:1", "ftp://a", "http://a/x", "http://a?x", "http://u@a", "http://u:p@a", "http://"]
        {
            assert!(base_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn host_and_port_are_both_needed() {
        assert_eq!(host_port("demo-0.demo:4438"), Ok("demo-0.demo:4438".to_owned()));
        assert_eq!(host_port("[::1]:4438"), Ok("[::1]:4438".to_owned()));
        for bad in ["", "a", ":1", "a:", "a:0", "a:65536", "a b:1", "::1:2:x", "http://a:1"] {
            assert!(host_port(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn labels_are_printable_and_bounded() {
        assert!(label("2f1c-…", 253).is_ok());
        for bad in ["", " ", "a\nb", &"x".repeat(254)] {
            assert!(label(bad, 253).is_err(), "{bad:?}");
        }
    }
}
