//! A chunk: a run of one stream's content, the unit of reading, checking and caching.
//!
//! A byte chunk is the bytes. A JSON chunk is the elements' text, then where each ends in it (u32 each); how many there
//! are says the index entry. The table stands behind the text so that a builder writes text only once. Pure.

use bytes::Bytes;

use super::format::{DecodeError, check};
use crate::storage::index::{Entry, Kind};
use crate::storage::record::Payload;

/// Chunks are not larger than this, unless one JSON element is.
pub(in crate::storage) const MAX_CHUNK: usize = 256 << 10;
/// What an element costs beside its text.
pub(in crate::storage) const END_BYTES: usize = 4;

/// Appends the table of ends to the text that the chunk so far consists of.
pub(in crate::storage) fn write_ends(ends: &[u32], out: &mut Vec<u8>) {
    out.extend(ends.iter().flat_map(|end| end.to_le_bytes()));
}

/// Checks a chunk's bytes against its index entry. The content is not copied.
pub(in crate::storage) fn decode(entry: &Entry, raw: Bytes) -> Result<Payload, DecodeError> {
    if raw.len() as u64 != entry.bytes {
        return Err(DecodeError::Short("chunk"));
    }
    check(&raw, entry.crc, "chunk")?;
    match entry.kind {
        Kind::Bytes if raw.len() as u64 == entry.length() => Ok(Payload::Bytes(raw)),
        Kind::Bytes => Err(DecodeError::Malformed("a byte chunk's length is not its offsets'")),
        Kind::Json => decode_json(entry.length(), raw),
        Kind::Dedupe => Err(DecodeError::Malformed("a dedupe blob is not a chunk")),
    }
}

fn decode_json(count: u64, raw: Bytes) -> Result<Payload, DecodeError> {
    const BAD: DecodeError = DecodeError::Malformed("a JSON chunk's ends do not fit its text");
    let table = usize::try_from(count).ok().and_then(|n| n.checked_mul(END_BYTES)).ok_or(BAD)?;
    let text_len = raw.len().checked_sub(table).ok_or(BAD)?;
    let ends: std::sync::Arc<[u32]> = raw[text_len..]
        .chunks_exact(END_BYTES)
        .map(|end| u32::from_le_bytes([end[0], end[1], end[2], end[3]]))
        .collect();
    let mut before = 0u32;
    for &end in ends.iter() {
        if end as usize > text_len || end < before.saturating_add(2) || raw[end as usize - 1] != b',' {
            return Err(BAD);
        }
        before = end;
    }
    if before as usize != text_len {
        return Err(BAD);
    }
    Ok(Payload::Json { text: raw.slice(..text_len), ends })
}
