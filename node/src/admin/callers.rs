//! Who may ask, as far as a request's head shows it.
//!
//! Invariant: no web page of another origin gets anything done or read here, neither by a name of its own that resolves
//! to this listener (DNS rebinding) nor by a request that needs no answer to do harm (cross-site `POST`). Pure. Used by
//! `super` before anything else.

use http::HeaderMap;
use http::header::{HOST, ORIGIN};

use super::problem::Error;

/// A page that resolves its own name to 127.0.0.1 sends that name as Host; an honest local client sends an address.
pub(super) fn local_host(headers: &HeaderMap) -> Result<(), Error> {
    let Some(host) = headers.get(HOST) else { return Ok(()) };
    let text = String::from_utf8_lossy(host.as_bytes());
    let name = match text.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => &text,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>().is_ok();
    if address || name.eq_ignore_ascii_case("localhost") {
        return Ok(());
    }
    Err(Error::ForeignHost(shown(&text)))
}

/// Browsers name the page that sends a request in Origin, unless it only reads from where it came from. A proxy in front
/// that ends TLS leaves Host as it is, but another scheme: only the authority counts.
pub(super) fn same_origin(headers: &HeaderMap) -> Result<(), Error> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let authority = origin.to_str().ok().and_then(|o| o.split_once("://")).map(|(_, authority)| authority);
    let host = headers.get(HOST).and_then(|h| h.to_str().ok());
    match (authority, host) {
        (Some(authority), Some(host)) if authority.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(Error::ForeignOrigin(shown(&String::from_utf8_lossy(origin.as_bytes())))),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(200).collect()
}
