//! The bytes of log entries and of the state: versioned, checked, never trusted.
//!
//! Invariants: what was encoded decodes to the same value; anything else is an error, never a panic, and memory follows
//! the input's real length. The bytes are a function of the value alone, so that equal states have equal hashes (I5).
//! The body is postcard: variants and fields go by position and are only added at the end, under a new format version.
//! Golden samples in the tests hold the bytes fast. Called by the log store and by snapshots.
//!
//! An entry is `magic · format · length · checksum · body`; before it may stand `magic · term · checksum`: it counts in that
//! term only. A state is `magic · format` and chunks of
//! `length · checksum · items` (see `snapshot`), so that neither side ever holds more than a chunk besides the state.

mod restore;
mod snapshot;

use std::io;

use super::command::Batch;
use crate::format;

pub use restore::read_state;
pub use snapshot::{state_hash, write_state};

const BATCH_MAGIC: [u8; 8] = *b"WEIRCMD\0";
const TERM_MAGIC: [u8; 8] = *b"WEIRTERM";
const STATE_MAGIC: [u8; 8] = *b"WEIRSNAP";
const HEADER: usize = 20;
const TERM_HEADER: usize = 20;
/// Above what the log ever proposes as one entry, and a bound for what decoding allocates.
const BATCH_BYTES: usize = 4 << 20;

/// Why bytes are not what they should be. None of these passes by itself: stop, and say so.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// Another kind of file, or garbage.
    #[error("these bytes are not a {0}")]
    Foreign(&'static str),
    /// Written by a newer build, or one too old.
    #[error(
        "written in format {found}, and this build reads {}: run one that reads it, as the cluster's other nodes do",
        format::range()
    )]
    Format {
        /// The version in the bytes.
        found: u32,
    },
    /// The end is missing.
    #[error("the bytes end too early")]
    Truncated,
    /// Something was changed on the way.
    #[error("the checksum does not match")]
    Checksum,
    /// Checked bytes that make no sense: a bug in the writer.
    #[error("malformed: {0}")]
    Malformed(String),
    /// The source failed.
    #[error("reading failed")]
    Io(#[from] io::Error),
}

/// One log entry as bytes, in this format version.
pub fn encode_batch(batch: &Batch, format: u32) -> Vec<u8> {
    let mut out = vec![0; HEADER];
    append(&mut out, batch);
    let (header, body) = out.split_at_mut(HEADER);
    header[..8].copy_from_slice(&BATCH_MAGIC);
    header[8..12].copy_from_slice(&format.to_le_bytes());
    header[12..16].copy_from_slice(&u32_len(body).to_le_bytes());
    header[16..].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    out
}

/// One log entry that is void unless it stands in the log as one of this term.
pub fn encode_batch_of_term(batch: &Batch, format: u32, term: u64) -> Vec<u8> {
    let mut out = TERM_MAGIC.to_vec();
    out.extend_from_slice(&term.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    out.extend_from_slice(&encode_batch(batch, format));
    out
}

/// The log entry in these bytes, and the term in which it counts, if it does not in all.
pub fn decode_entry(bytes: &[u8]) -> Result<(Batch, Option<u64>), CodecError> {
    if !bytes.starts_with(&TERM_MAGIC) {
        return Ok((decode_batch(bytes)?, None));
    }
    let (header, rest) = bytes.split_at_checked(TERM_HEADER).ok_or(CodecError::Truncated)?;
    if crc32c::crc32c(&header[..16]) != u32_at(header, 16) {
        return Err(CodecError::Checksum);
    }
    let term = u64::from(u32_at(header, 8)) | u64::from(u32_at(header, 12)) << 32;
    Ok((decode_batch(rest)?, Some(term)))
}

/// The batch in these bytes, all of them.
pub fn decode_batch(bytes: &[u8]) -> Result<Batch, CodecError> {
    let (header, body) = bytes.split_at_checked(HEADER).ok_or(CodecError::Truncated)?;
    check_header(header, &BATCH_MAGIC, "log entry")?;
    if body.len() > BATCH_BYTES {
        return Err(CodecError::Malformed(format!("an entry of {} bytes", body.len())));
    }
    match usize::try_from(u32_at(header, 12)) {
        Ok(length) if length == body.len() => {}
        Ok(length) if length > body.len() => return Err(CodecError::Truncated),
        Ok(_) | Err(_) => return Err(CodecError::Malformed("bytes after the entry".into())),
    }
    if crc32c::crc32c(body) != u32_at(header, 16) {
        return Err(CodecError::Checksum);
    }
    let (batch, rest) = postcard::take_from_bytes(body).map_err(malformed)?;
    if rest.is_empty() { Ok(batch) } else { Err(CodecError::Malformed("bytes after the entry".into())) }
}

/// Magic and format, the first twelve bytes.
fn check_header(header: &[u8], magic: &[u8; 8], what: &'static str) -> Result<(), CodecError> {
    if header[..8] != *magic {
        return Err(CodecError::Foreign(what));
    }
    let found = u32_at(header, 8);
    if format::readable().contains(&found) { Ok(()) } else { Err(CodecError::Format { found }) }
}

fn append(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    let bytes = std::mem::take(out);
    *out = postcard::to_extend(value, bytes)
        .expect("memory takes everything, and no type refuses to be written");
}

fn malformed(e: postcard::Error) -> CodecError {
    CodecError::Malformed(e.to_string())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u32_len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("the log's limits keep entries and chunks far below 4 GiB")
}

#[cfg(test)]
mod tests;
