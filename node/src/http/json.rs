//! JSON mode: a request's body into elements, elements into a response's array.
//!
//! Invariant: every element keeps its own text byte for byte (digits of numbers, order and repetition of keys, inner
//! whitespace); only whitespace around elements goes. Exactly one array level is flattened. Pure. Called by create,
//! append and read.

use std::collections::VecDeque;
use std::fmt;

use bytes::{Bytes, BytesMut};
use serde::Deserializer;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::body::Body;
use crate::storage::record::Payload;

/// How deep arrays and objects may nest within one element. Readers' parsers have limits of their own; an element that
/// they cannot take would make the stream unreadable for them.
const MAX_DEPTH: usize = 128;

/// Up to this a response is copied into one piece, which costs less than sending pieces.
const ONE_PIECE: usize = 8 << 10;

/// The elements of `body`; `None` for an empty array. The error is for the client.
pub(crate) fn flatten(body: &[u8]) -> Result<Option<Payload>, String> {
    let text = std::str::from_utf8(body).map_err(|e| format!("the body is not UTF-8: {e}"))?;
    let mut elements = Elements { text: BytesMut::with_capacity(body.len() + 1), ends: Vec::new() };
    let not_json = |e: serde_json::Error| format!("the body is not one JSON value: {e}");
    if body.trim_ascii_start().first() == Some(&b'[') {
        let mut parser = serde_json::Deserializer::from_str(text);
        parser.deserialize_seq(&mut elements).and_then(|()| parser.end()).map_err(not_json)?;
    } else {
        let one: &RawValue = serde_json::from_str(text).map_err(not_json)?;
        elements.push(one.get())?;
    }
    if elements.ends.is_empty() {
        return Ok(None);
    }
    Ok(Some(Payload::Json { text: elements.text.freeze(), ends: elements.ends.into() }))
}

struct Elements {
    text: BytesMut,
    ends: Vec<u32>,
}

impl Elements {
    fn push(&mut self, element: &str) -> Result<(), String> {
        if deeper_than(element.as_bytes(), MAX_DEPTH) {
            return Err(format!("an element nests arrays and objects over {MAX_DEPTH} deep"));
        }
        self.text.extend_from_slice(element.as_bytes());
        self.text.extend_from_slice(b",");
        let end = u32::try_from(self.text.len()).map_err(|_e| "the body is over 4 GiB".to_owned())?;
        self.ends.push(end);
        Ok(())
    }
}

impl<'de> Visitor<'de> for &mut Elements {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element::<&'de RawValue>()? {
            self.push(element.get()).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// Whether valid JSON nests over `max` deep. (serde_json's own limit does not hold for raw values.)
fn deeper_than(json: &[u8], max: usize) -> bool {
    let opens = json.iter().filter(|b| matches!(b, b'[' | b'{')).count();
    if opens <= max {
        return false;
    }
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for b in json {
        if in_string {
            (escaped, in_string) = match b {
                _ if escaped => (false, true),
                b'\\' => (true, true),
                b'"' => (false, false),
                _ => (false, true),
            };
            continue;
        }
        match b {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth > max {
            return true;
        }
    }
    false
}

/// Elements as one JSON array.
pub(crate) fn array(parts: Vec<Payload>) -> Body {
    let mut texts: VecDeque<Bytes> = parts.into_iter().map(text_of).filter(|t| !t.is_empty()).collect();
    let Some(last) = texts.back_mut() else { return Body::from_static(b"[]") };
    // Every element's text ends with a comma, the last one's too.
    last.truncate(last.len() - 1);
    let length = texts.iter().map(Bytes::len).sum::<usize>() + 2;
    if length > ONE_PIECE {
        texts.push_front(Bytes::from_static(b"["));
        texts.push_back(Bytes::from_static(b"]"));
        return Body::parts(texts);
    }
    let mut whole = Vec::with_capacity(length);
    whole.push(b'[');
    texts.iter().for_each(|t| whole.extend_from_slice(t));
    whole.push(b']');
    Body::from(whole)
}

/// Bytes as they are.
pub(crate) fn bytes(parts: Vec<Payload>) -> Body {
    let mut texts: VecDeque<Bytes> = parts.into_iter().map(text_of).collect();
    match texts.len() {
        0 => Body::empty(),
        1 => texts.pop_front().map_or_else(Body::empty, Body::from),
        _ => Body::parts(texts),
    }
}

fn text_of(payload: Payload) -> Bytes {
    match payload {
        Payload::Bytes(bytes) => bytes,
        Payload::Json { text, .. } => text,
    }
}

#[cfg(test)]
mod tests;
