//! The bytes of a WAL object: a fixed header, then frames.
//!
//! ```text
//! header, 128 bytes, little endian:
//!   0 magic 8 · 8 version u32 · 12 frames u32 · 16 cluster u128 · 32 session 72 (epoch u64, node length u8, node 63)
//!   104 seq u64 · 112 body length u32 · 116 body crc32c · 120 zero u32 · 124 crc32c of bytes 0..124
//! frame: length u32 · crc32c of the content · content
//! content: flags u8, then varints (LEB128): stream, epoch, offset, payload, and what the flags announce
//! ```
//!
//! Invariant: decoding never panics, never allocates more than a small multiple of its input, and accepts nothing
//! that a checksum does not cover. Pure. Called by both kinds of WAL; the same bytes are an object in a bucket and a
//! record in a local file.

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use weir_api::{ClusterUid, NodeEpoch, NodeId, Offset, SessionId, StreamEpoch, StreamId};

use super::{Frame, Intro, Payload, ProducerStamp};
use crate::format::{self, Writing};
use crate::metadata::command::{Expiry, StreamConfig};

/// What every WAL object begins with.
pub const MAGIC: [u8; 8] = *b"weir:wal";
/// The header's size.
pub const HEADER: usize = 128;
/// The longest body: far above one batch, so that one large append still fits; bounds what a damaged length costs.
pub const MAX_BODY: usize = 64 << 20;
/// A session as it stands in headers and seals.
pub const SESSION: usize = 72;

const FRAME_HEAD: usize = 8;
/// The shortest frame: head, flags, three numbers, an empty payload's length.
const MIN_FRAME: usize = FRAME_HEAD + 5;

const JSON: u8 = 1;
const PRODUCER: u8 = 2;
const SEQ: u8 = 4;
const CLOSES: u8 = 8;
const BIRTHS: u8 = 16;
const INTRO: u8 = 32;

/// Why bytes are not what they should be. Nothing of them may be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Cut off, or more than announced.
    #[error("{have} bytes where {want} are needed")]
    Length {
        /// What the bytes announce.
        want: usize,
        /// What there is.
        have: usize,
    },
    /// Something else.
    #[error("does not begin with {0:?}")]
    Magic(&'static str),
    /// Written by another build.
    #[error("is of format version {0}, and this build reads {range}", range = format::range())]
    Version(u32),
    /// Damaged.
    #[error("the checksum of its {0} does not match")]
    Checksum(&'static str),
    /// The checksum holds but the content makes no sense: a bug, or not ours.
    #[error("has a malformed {0}")]
    Malformed(&'static str),
}

/// Who wrote a WAL object, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The cluster.
    pub cluster: ClusterUid,
    /// The writing session.
    pub session: SessionId,
    /// Its place in the session's WAL.
    pub seq: u64,
    /// How many frames.
    pub frames: u32,
    /// The body's length.
    pub body: usize,
    /// The body's checksum.
    pub body_crc: u32,
}

/// An upper bound of the encoded size of `frame`, cheap to compute.
pub fn size_bound(frame: &Frame) -> usize {
    let payload = match &frame.payload {
        Payload::Bytes(b) => b.len(),
        // Each element's length is a varint, never longer than the element but for one byte.
        Payload::Json { text, ends } => text.len() + (ends.len() + text.len() / 64).min(ends.len() * 5),
    };
    let producer = frame.producer.as_ref().map_or(0, |p| p.id.len() + 30);
    let seq = frame.seq.as_ref().map_or(0, |s| s.len() + 10);
    let intro = frame.intro.as_ref().map_or(0, |i| i.name.len() + i.config.content_type.len() + 40);
    FRAME_HEAD + 1 + 50 + payload + producer + seq + intro
}

/// What is the same for all objects of a WAL: whose they are, and the format version as it goes up.
#[derive(Debug, Clone)]
pub struct Stamp {
    /// The cluster.
    pub cluster: ClusterUid,
    /// The version to write.
    pub writing: Writing,
}

impl From<ClusterUid> for Stamp {
    /// In the version that every build reads which can be in a cluster.
    fn from(cluster: ClusterUid) -> Self {
        Self { cluster, writing: Writing::default() }
    }
}

/// The object that holds `frames`.
pub fn encode(stamp: &Stamp, session: &SessionId, seq: u64, frames: &[Frame]) -> Bytes {
    let mut out = Vec::new();
    encode_into(&mut out, stamp, session, seq, frames);
    out.into()
}

/// The same, in place of what `out` holds.
pub fn encode_into(out: &mut Vec<u8>, stamp: &Stamp, session: &SessionId, seq: u64, frames: &[Frame]) {
    let bound: usize = frames.iter().map(size_bound).sum();
    out.clear();
    out.reserve(HEADER + bound);
    out.resize(HEADER, 0);
    for frame in frames {
        put_frame(out, frame);
    }
    let body = out.len() - HEADER;
    debug_assert!(body <= bound, "size_bound is an upper bound");
    let mut head = Vec::with_capacity(HEADER);
    head.put_slice(&MAGIC);
    head.put_u32_le(stamp.writing.now());
    head.put_u32_le(
        u32::try_from(frames.len()).expect("a batch holds fewer frames than bytes, at most 64 MiB"),
    );
    head.put_u128_le(stamp.cluster.0);
    put_session(&mut head, session);
    head.put_u64_le(seq);
    head.put_u32_le(u32::try_from(body).expect("a batch is at most 64 MiB"));
    head.put_u32_le(crc32c::crc32c(&out[HEADER..]));
    head.put_u32_le(0);
    let crc = crc32c::crc32c(&head);
    head.put_u32_le(crc);
    out[..HEADER].copy_from_slice(&head);
}

/// Reads a header from the beginning of `bytes`, which may go on.
pub fn decode_header(bytes: &[u8]) -> Result<Header, CodecError> {
    let have = bytes.len();
    let Some(head) = bytes.get(..HEADER) else { return Err(CodecError::Length { want: HEADER, have }) };
    if head[..8] != MAGIC {
        return Err(CodecError::Magic("weir:wal"));
    }
    // The checksum stands first among the checks: a damaged version must not read as a newer one.
    if crc32c::crc32c(&head[..HEADER - 4]) != u32_at(head, HEADER - 4) {
        return Err(CodecError::Checksum("header"));
    }
    let version = u32_at(head, 8);
    if !format::readable().contains(&version) {
        return Err(CodecError::Version(version));
    }
    let body = u32_at(head, 112) as usize;
    if body > MAX_BODY {
        return Err(CodecError::Malformed("body length"));
    }
    Ok(Header {
        cluster: ClusterUid(u128::from_le_bytes(array(&head[16..32]))),
        session: session_at(&head[32..32 + SESSION])?,
        seq: u64::from_le_bytes(array(&head[104..112])),
        frames: u32_at(head, 12),
        body,
        body_crc: u32_at(head, 116),
    })
}

/// Checks and reads a body; the frames share its memory.
pub fn decode_body(header: &Header, body: &Bytes) -> Result<Vec<Frame>, CodecError> {
    if body.len() != header.body {
        return Err(CodecError::Length { want: header.body, have: body.len() });
    }
    if crc32c::crc32c(body) != header.body_crc {
        return Err(CodecError::Checksum("body"));
    }
    let count = header.frames as usize;
    if count > body.len() / MIN_FRAME {
        return Err(CodecError::Malformed("frame count"));
    }
    let mut frames = Vec::with_capacity(count);
    let mut rest = body.clone();
    for _ in 0..count {
        let head = rest.get(..FRAME_HEAD).ok_or(CodecError::Malformed("frame head"))?;
        let (length, crc) = (u32_at(head, 0) as usize, u32_at(head, 4));
        if length > rest.len() - FRAME_HEAD {
            return Err(CodecError::Malformed("frame length"));
        }
        let content = rest.slice(FRAME_HEAD..FRAME_HEAD + length);
        if crc32c::crc32c(&content) != crc {
            return Err(CodecError::Checksum("frame"));
        }
        frames.push(Cursor { bytes: content, at: 0 }.frame()?);
        rest = rest.slice(FRAME_HEAD + length..);
    }
    if rest.is_empty() { Ok(frames) } else { Err(CodecError::Malformed("end of the body")) }
}

/// Checks and reads a whole object.
pub fn decode(object: &Bytes) -> Result<(Header, Vec<Frame>), CodecError> {
    let header = decode_header(object)?;
    let frames = decode_body(&header, &object.slice(HEADER..))?;
    Ok((header, frames))
}

/// Writes a session in its fixed width.
pub fn put_session(out: &mut Vec<u8>, session: &SessionId) {
    let node = session.node.as_str().as_bytes();
    out.put_u64_le(session.epoch.0);
    out.put_u8(u8::try_from(node.len()).expect("a node id is at most 63 bytes"));
    out.put_slice(node);
    out.put_bytes(0, 63 - node.len());
}

/// Reads a session from exactly [`SESSION`] bytes.
pub fn session_at(bytes: &[u8]) -> Result<SessionId, CodecError> {
    let bad = CodecError::Malformed("session");
    let epoch = NodeEpoch(u64::from_le_bytes(array(&bytes[..8])));
    let (node, padding) = bytes[9..SESSION].split_at_checked(bytes[8] as usize).ok_or(bad.clone())?;
    let node: Option<NodeId> = std::str::from_utf8(node).ok().and_then(|n| n.parse().ok());
    match node {
        Some(node) if padding.iter().all(|&b| b == 0) => Ok(SessionId { node, epoch }),
        _ => Err(bad),
    }
}

fn put_frame(out: &mut Vec<u8>, frame: &Frame) {
    let start = out.len();
    out.put_u64_le(0);
    let flag = |on: bool, bit: u8| if on { bit } else { 0 };
    out.put_u8(
        flag(matches!(frame.payload, Payload::Json { .. }), JSON)
            | flag(frame.producer.is_some(), PRODUCER)
            | flag(frame.seq.is_some(), SEQ)
            | flag(frame.closes, CLOSES)
            | flag(frame.births, BIRTHS)
            | flag(frame.intro.is_some(), INTRO),
    );
    put_varint(out, frame.stream.0);
    put_varint(out, frame.epoch.0);
    put_varint(out, frame.offset.0);
    match &frame.payload {
        Payload::Bytes(bytes) => put_bytes(out, bytes),
        Payload::Json { text, ends } => {
            put_varint(out, ends.len() as u64);
            let mut before = 0;
            for &end in ends.iter() {
                put_varint(out, u64::from(end - before));
                before = end;
            }
            out.put_slice(text);
        }
    }
    if let Some(p) = &frame.producer {
        put_bytes(out, p.id.as_bytes());
        put_varint(out, p.epoch);
        put_varint(out, p.seq);
    }
    if let Some(seq) = &frame.seq {
        put_bytes(out, seq);
    }
    if let Some(intro) = &frame.intro {
        put_bytes(out, intro.name.as_bytes());
        put_bytes(out, intro.config.content_type.as_bytes());
        match intro.config.expiry {
            Expiry::Never => out.put_u8(0),
            Expiry::Ttl(seconds) => {
                out.put_u8(1);
                put_varint(out, seconds);
            }
            Expiry::At(ms) => {
                out.put_u8(2);
                put_varint(out, ms);
            }
        }
    }
    let content = start + FRAME_HEAD;
    let length = u32::try_from(out.len() - content).expect("a batch is at most 64 MiB");
    let crc = crc32c::crc32c(&out[content..]);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..content].copy_from_slice(&crc.to_le_bytes());
}

fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push((n as u8) | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.put_slice(bytes);
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(&bytes[at..at + 4]))
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the slice was cut to this length")
}

/// Reads a frame's content.
struct Cursor {
    bytes: Bytes,
    at: usize,
}

impl Cursor {
    fn frame(mut self) -> Result<Frame, CodecError> {
        let flags = self.byte("flags")?;
        if flags >= 64 {
            return Err(CodecError::Malformed("flags"));
        }
        let has = |bit: u8| flags & bit != 0;
        let stream = StreamId(self.varint("stream id")?);
        let epoch = StreamEpoch(self.varint("stream epoch")?);
        let offset = Offset(self.varint("offset")?);
        let payload = if has(JSON) { self.json()? } else { Payload::Bytes(self.run("payload")?) };
        if offset.0.checked_add(payload.length()).is_none() {
            return Err(CodecError::Malformed("offset"));
        }
        let producer = has(PRODUCER).then(|| self.producer()).transpose()?;
        let seq = has(SEQ).then(|| self.run("sequence")).transpose()?;
        let intro = has(INTRO).then(|| self.intro()).transpose()?;
        if self.at != self.bytes.len() {
            return Err(CodecError::Malformed("end of a frame"));
        }
        let (closes, births) = (has(CLOSES), has(BIRTHS));
        Ok(Frame { stream, epoch, offset, payload, producer, seq, closes, births, intro })
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn byte(&mut self, what: &'static str) -> Result<u8, CodecError> {
        let byte = self.bytes.get(self.at).copied().ok_or(CodecError::Malformed(what))?;
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self, what: &'static str) -> Result<u64, CodecError> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            n |= bits << shift;
            if byte & 0x80 == 0 {
                // One number, one spelling.
                return if byte == 0 && shift > 0 { Err(CodecError::Malformed(what)) } else { Ok(n) };
            }
        }
        Err(CodecError::Malformed(what))
    }

    fn take(&mut self, length: usize, what: &'static str) -> Result<Bytes, CodecError> {
        if length > self.left() {
            return Err(CodecError::Malformed(what));
        }
        let run = self.bytes.slice(self.at..self.at + length);
        self.at += length;
        Ok(run)
    }

    fn run(&mut self, what: &'static str) -> Result<Bytes, CodecError> {
        let length = self.varint(what)?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX), what)
    }

    fn text(&mut self, what: &'static str) -> Result<Arc<str>, CodecError> {
        let run = self.run(what)?;
        std::str::from_utf8(&run).map(Arc::from).map_err(|_e| CodecError::Malformed(what))
    }

    fn json(&mut self) -> Result<Payload, CodecError> {
        const WHAT: &str = "JSON payload";
        let count = usize::try_from(self.varint(WHAT)?).unwrap_or(usize::MAX);
        // Every element takes at least one byte for its length and one of text.
        if count > self.left() / 2 {
            return Err(CodecError::Malformed(WHAT));
        }
        let mut ends = Vec::with_capacity(count);
        let mut end = 0u32;
        for _ in 0..count {
            let length = u32::try_from(self.varint(WHAT)?).ok().filter(|&l| l > 0);
            end = length.and_then(|l| end.checked_add(l)).ok_or(CodecError::Malformed(WHAT))?;
            ends.push(end);
        }
        let text = self.take(end as usize, WHAT)?;
        Ok(Payload::Json { text, ends: ends.into() })
    }

    fn producer(&mut self) -> Result<ProducerStamp, CodecError> {
        let id = self.text("producer id")?;
        let (epoch, seq) = (self.varint("producer epoch")?, self.varint("producer sequence")?);
        Ok(ProducerStamp { id, epoch, seq })
    }

    fn intro(&mut self) -> Result<Intro, CodecError> {
        let name = self.text("stream name")?;
        let content_type = self.text("content type")?.as_ref().to_owned();
        let expiry = match self.byte("expiry")? {
            0 => Expiry::Never,
            1 => Expiry::Ttl(self.varint("expiry")?),
            2 => Expiry::At(self.varint("expiry")?),
            _ => return Err(CodecError::Malformed("expiry")),
        };
        Ok(Intro { name, config: Arc::new(StreamConfig { content_type, expiry }) })
    }
}

#[cfg(test)]
mod tests;
