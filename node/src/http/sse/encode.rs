//! Server-sent events as bytes.
//!
//! Invariant: whatever a stream holds, it cannot end its event or begin another: text is cut into lines at CR, LF and
//! CRLF, each behind `data:`; all that is no text goes as base64; the event stream is always UTF-8. JSON elements keep
//! their bytes, but that line breaks between their tokens become LF. Pure. Called by `events` and `share`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use weir_api::Offset;

use super::super::headers;
use crate::metadata::command::StreamConfig;
use crate::storage::record::Payload;
use crate::streams::Claim;

/// How a stream's content is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// UTF-8 lines.
    Text,
    /// One array an event, as UTF-8 lines.
    Json,
    /// Everything else.
    Base64,
}

impl Coding {
    pub(super) fn of(config: &StreamConfig) -> Self {
        let kind = config.content_type.trim_start().as_bytes();
        if config.is_json() {
            Self::Json
        } else if kind.len() >= 5 && kind[..5].eq_ignore_ascii_case(b"text/") {
            Self::Text
        } else {
            Self::Base64
        }
    }
}

/// What a control event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Control {
    pub(super) next: Offset,
    pub(super) claim: Claim,
    pub(super) cursor: u64,
}

/// About the most that a control event takes.
pub(super) const CONTROL_BYTES: usize = 160;

/// Writes a control event.
pub(super) fn control(out: &mut Vec<u8>, control: &Control) {
    out.extend_from_slice(b"event: control\ndata:{\"streamNextOffset\":\"");
    out.extend_from_slice(&headers::offset_text(control.next));
    if control.claim == Claim::Closed {
        out.extend_from_slice(b"\",\"upToDate\":true,\"streamClosed\":true}\n\n");
        return;
    }
    out.extend_from_slice(b"\",\"streamCursor\":\"");
    out.extend_from_slice(control.cursor.to_string().as_bytes());
    out.push(b'"');
    if control.claim == Claim::UpToDate {
        out.extend_from_slice(b",\"upToDate\":true");
    }
    out.extend_from_slice(b"}\n\n");
}

/// Writes a data event. `parts` hold something.
pub(super) fn data(out: &mut Vec<u8>, coding: Coding, parts: &[Payload]) {
    let size: usize = parts.iter().map(Payload::size).sum();
    // Base64 adds a third; text with a break every other byte would take more, and then the buffer grows.
    out.reserve(size + size / 2 + CONTROL_BYTES);
    out.extend_from_slice(b"event: data\ndata:");
    match coding {
        Coding::Json => array(out, parts),
        Coding::Text => whole(parts, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            keep_blank(out, text.as_bytes());
            lines(out, text.as_bytes());
        }),
        Coding::Base64 => whole(parts, |bytes| {
            let at = out.len();
            out.resize(at + bytes.len().div_ceil(3) * 4, 0);
            let written = STANDARD.encode_slice(bytes, &mut out[at..]).expect("base64 takes 4 bytes for 3");
            out.truncate(at + written);
        }),
    }
    out.extend_from_slice(b"\n\n");
}

/// A character or a group of three bytes may lie across parts.
fn whole(parts: &[Payload], write: impl FnOnce(&[u8])) {
    match parts {
        [one] => write(content(one)),
        many => write(&many.iter().map(content).collect::<Vec<_>>().concat()),
    }
}

fn content(payload: &Payload) -> &[u8] {
    match payload {
        Payload::Bytes(bytes) => bytes,
        Payload::Json { text, .. } => text,
    }
}

/// Every element's text ends with a comma, so no line break lies across parts.
fn array(out: &mut Vec<u8>, parts: &[Payload]) {
    out.push(b'[');
    parts.iter().for_each(|part| lines(out, content(part)));
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(b']');
}

/// Readers drop one blank behind a `data:`: a line that begins with one gets another.
fn keep_blank(out: &mut Vec<u8>, line: &[u8]) {
    if line.first() == Some(&b' ') {
        out.push(b' ');
    }
}

/// Writes text behind a `data:`, and a new one at every line break.
fn lines(out: &mut Vec<u8>, mut text: &[u8]) {
    while let Some(at) = text.iter().position(|b| matches!(b, b'\n' | b'\r')) {
        out.extend_from_slice(&text[..at]);
        out.extend_from_slice(b"\ndata:");
        let length = if text[at..].starts_with(b"\r\n") { 2 } else { 1 };
        text = &text[at + length..];
        keep_blank(out, text);
    }
    out.extend_from_slice(text);
}

/// How many bytes at the end of `parts` wait for those that follow them: the beginning of a character or, if `more`
/// is known to follow, of a CRLF.
pub(super) fn unfinished(parts: &[Payload], more: bool) -> u64 {
    /// A character's bytes but the last.
    const MOST: usize = 3;
    let mut end = [0u8; MOST];
    let mut filled = 0;
    for byte in parts.iter().rev().flat_map(|p| content(p).iter().rev()).take(MOST) {
        filled += 1;
        end[MOST - filled] = *byte;
    }
    let end = &end[MOST - filled..];
    if more && end.last() == Some(&b'\r') {
        return 1;
    }
    let Some(lead) = end.iter().rposition(|b| *b >= 0xC0) else { return 0 };
    match std::str::from_utf8(&end[lead..]) {
        Err(e) if e.valid_up_to() == 0 && e.error_len().is_none() => (end.len() - lead) as u64,
        Ok(_) | Err(_) => 0,
    }
}

/// Takes the last `bytes` off.
pub(super) fn cut(parts: &mut Vec<Payload>, mut bytes: u64) {
    while bytes > 0
        && let Some(last) = parts.pop()
    {
        let keep = last.length().saturating_sub(bytes);
        bytes -= last.length() - keep;
        if keep > 0 {
            parts.push(last.slice(0, keep));
        }
    }
}

#[cfg(test)]
mod tests;
