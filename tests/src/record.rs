//! Records that explain themselves: from an id and two sizes follows every byte, so that a reader finds each record,
//! its borders and any foreign byte in a stream's content.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;

/// What one append adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Unique in a run.
    pub id: u64,
    /// Filler bytes (per element in a JSON stream).
    pub pad: u32,
    /// How many elements it is in a JSON stream.
    pub elements: u32,
}

/// A run of a stream's content, in the stream's unit of offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// One offset per byte.
    Bytes(Bytes),
    /// One offset per element; each element's own text.
    Json(Vec<Arc<str>>),
}

impl Content {
    /// No content.
    pub fn empty(json: bool) -> Self {
        if json { Self::Json(Vec::new()) } else { Self::Bytes(Bytes::new()) }
    }

    /// How many offsets it spans.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(b) => b.len() as u64,
            Self::Json(e) => e.len() as u64,
        }
    }

    /// Whether it spans none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Digits of the id, dot, digits of the filler's length, colon.
const HEADER: usize = 16 + 1 + 8 + 1;

impl Record {
    /// The request body that appends it.
    pub fn body(&self, json: bool) -> Bytes {
        if !json {
            return self.bytes().into();
        }
        let elements: Vec<String> = (0..self.elements).map(|i| self.element(i)).collect();
        // One element is sent bare, which means the same.
        if elements.len() == 1 {
            elements.concat().into()
        } else {
            format!("[{}]", elements.join(",")).into()
        }
    }

    /// How many offsets it spans.
    pub fn span(&self, json: bool) -> u64 {
        if json { u64::from(self.elements) } else { (HEADER + self.pad as usize + 1) as u64 }
    }

    /// Its content.
    pub fn content(&self, json: bool) -> Content {
        if json {
            Content::Json((0..self.elements).map(|i| self.element(i).into()).collect())
        } else {
            Content::Bytes(self.bytes().into())
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{:016x}.{:08x}:", self.id, self.pad).into_bytes();
        text.extend(self.filler());
        text.push(b'\n');
        text
    }

    fn element(&self, i: u32) -> String {
        let pad = String::from_utf8(self.filler().collect()).unwrap();
        format!(r#"{{"id":"{:016x}","i":{i},"n":{},"pad":"{pad}"}}"#, self.id, self.elements)
    }

    fn filler(&self) -> impl Iterator<Item = u8> {
        let id = self.id;
        (0..u64::from(self.pad)).map(move |k| b'a' + (id.wrapping_add(k * k) % 26) as u8)
    }
}

/// A record found in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Which.
    pub id: u64,
    /// Its first offset.
    pub start: u64,
    /// The offset after it.
    pub end: u64,
}

/// Finds the records that make up `content`, which begins at offset 0. The error says at which offset it is none.
pub fn parse(content: &Content) -> Result<Vec<Placed>, (u64, String)> {
    match content {
        Content::Bytes(bytes) => parse_bytes(bytes),
        Content::Json(elements) => parse_json(elements),
    }
}

fn parse_bytes(all: &[u8]) -> Result<Vec<Placed>, (u64, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < all.len() {
        let rest = &all[at..];
        let bad = |why: &str| (at as u64, format!("{why}: {:?}", String::from_utf8_lossy(head(rest))));
        let record = header(rest).ok_or_else(|| bad("no record begins here"))?;
        let expected = record.bytes();
        if !rest.starts_with(&expected) {
            return Err(bad("a torn or damaged record"));
        }
        let end = at + expected.len();
        found.push(Placed { id: record.id, start: at as u64, end: end as u64 });
        at = end;
    }
    Ok(found)
}

fn header(rest: &[u8]) -> Option<Record> {
    let text = std::str::from_utf8(rest.get(..HEADER)?).ok()?;
    let (id, pad) = text.strip_suffix(':')?.split_once('.')?;
    let (id, pad) = (u64::from_str_radix(id, 16).ok()?, u32::from_str_radix(pad, 16).ok()?);
    Some(Record { id, pad, elements: 1 })
}

#[derive(Deserialize)]
struct Element {
    id: String,
    i: u32,
    n: u32,
    pad: String,
}

fn parse_json(all: &[Arc<str>]) -> Result<Vec<Placed>, (u64, String)> {
    let mut found: Vec<Placed> = Vec::new();
    let mut at = 0;
    while at < all.len() {
        let bad = |k: usize, why: &str| {
            let text = all.get(k).map_or("the end", |t| &t[..]);
            (k as u64, format!("{why}: {}", String::from_utf8_lossy(head(text.as_bytes()))))
        };
        let first: Element =
            serde_json::from_str(&all[at]).map_err(|_e| bad(at, "not an element of ours"))?;
        let id = u64::from_str_radix(&first.id, 16).map_err(|_e| bad(at, "not an element of ours"))?;
        if first.i != 0 {
            return Err(bad(at, "a record's beginning is missing"));
        }
        let record = Record { id, pad: first.pad.len() as u32, elements: first.n };
        for i in 0..first.n {
            let k = at + i as usize;
            if all.get(k).is_none_or(|text| **text != *record.element(i)) {
                return Err(bad(k, "a torn or damaged record"));
            }
        }
        let end = at + first.n as usize;
        found.push(Placed { id, start: at as u64, end: end as u64 });
        at = end;
    }
    Ok(found)
}

fn head(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(60)]
}
