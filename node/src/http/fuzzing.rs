//! One door for the fuzzer to the parsers of a request. Compiled only under `cfg(fuzzing)`; called by `fuzz/`.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::framing::{Verdict, Watcher};
use super::headers::RequestHeaders;
use super::{json, paths};
use crate::streams::StreamName;

/// Feeds `data` to every parser of the client listener.
pub fn request(data: &[u8]) {
    let (cut, rest) = data.split_first().map_or((0, data), |(first, rest)| (usize::from(*first), rest));
    let mut watcher = Watcher::new(Arc::new(Verdict::default()));
    let (early, late) = rest.split_at(cut.min(rest.len()));
    std::hint::black_box((watcher.feed(early), watcher.feed(late)));
    if let Ok(Some(payload)) = json::flatten(rest) {
        assert_eq!(json::flatten(rest), Ok(Some(payload)));
    }
    if let Ok(text) = std::str::from_utf8(rest) {
        drop(paths::target(text));
        drop(paths::ReadQuery::parse(Some(text)));
        if let Ok(name) = StreamName::from_path(text) {
            assert_eq!(StreamName::from_path(&name.to_path()), Ok(name));
        }
    }
    let mut fields = HeaderMap::new();
    for line in rest.split(|b| *b == b'\n') {
        let mut parts = line.splitn(2, |b| *b == b':');
        let name = parts.next().and_then(|n| HeaderName::from_bytes(n).ok());
        let value = parts.next().and_then(|v| HeaderValue::from_bytes(v).ok());
        if let (Some(name), Some(value)) = (name, value) {
            fields.append(name, value);
        }
    }
    if let Ok(headers) = RequestHeaders::parse(&fields) {
        headers.read_all();
    }
}
