//! A stream's producer and sequence state as bytes.
//!
//! ```text
//! version u8 · flags u8 (1: last_seq, 2: closed_by) · producers: count, then (id, epoch, seq) by id
//! · last_seq if flagged · closed_by (id, epoch, seq) if flagged
//! ```
//! Texts carry their length; numbers are LEB128. The checksum stands with whoever points at the blob. Pure.

use std::sync::Arc;

use bytes::Bytes;

use super::format::{Cursor, DecodeError, put_varint};
use crate::storage::record::{Dedupe, ProducerStamp, ProducerState};

const VERSION: u8 = 1;
const HAS_SEQ: u8 = 1;
const HAS_CLOSER: u8 = 2;
/// A producer id is 1 to this many bytes long.
const MAX_ID: usize = 256;
/// No producer's entry is shorter: length, one byte of id, epoch, sequence.
const LEAST_ENTRY: usize = 4;

impl Dedupe {
    /// Appends the state's encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let seq_flag = if self.last_seq.is_some() { HAS_SEQ } else { 0 };
        let closer_flag = if self.closed_by.is_some() { HAS_CLOSER } else { 0 };
        out.extend_from_slice(&[VERSION, seq_flag | closer_flag]);
        put_varint(self.producers.len() as u64, out);
        for (id, state) in &self.producers {
            put_stamp(id, state.epoch, state.seq, out);
        }
        if let Some(seq) = &self.last_seq {
            put_varint(seq.len() as u64, out);
            out.extend_from_slice(seq);
        }
        if let Some(closer) = &self.closed_by {
            put_stamp(&closer.id, closer.epoch, closer.seq, out);
        }
    }

    /// Reads what [`Self::encode`] wrote, to the last byte.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Cursor::new("dedupe blob", bytes);
        let [version, flags] = from.array()?;
        if version != VERSION {
            return Err(DecodeError::Version { what: "dedupe blob", found: version.into() });
        }
        if flags & !(HAS_SEQ | HAS_CLOSER) != 0 {
            return Err(DecodeError::Malformed("a dedupe blob has unknown flags"));
        }
        let mut this = Self::default();
        let mut before: Option<Arc<str>> = None;
        for _ in 0..from.count(LEAST_ENTRY)? {
            let stamp = take_stamp(&mut from)?;
            if before.is_some_and(|b| b >= stamp.id) {
                return Err(DecodeError::Malformed("producers are out of order"));
            }
            before = Some(stamp.id.clone());
            this.producers.insert(stamp.id, ProducerState { epoch: stamp.epoch, seq: stamp.seq });
        }
        if flags & HAS_SEQ != 0 {
            this.last_seq = Some(Bytes::copy_from_slice(from.blob()?));
        }
        if flags & HAS_CLOSER != 0 {
            this.closed_by = Some(take_stamp(&mut from)?);
        }
        from.end()?;
        Ok(this)
    }
}

fn put_stamp(id: &str, epoch: u64, seq: u64, out: &mut Vec<u8>) {
    put_varint(id.len() as u64, out);
    out.extend_from_slice(id.as_bytes());
    put_varint(epoch, out);
    put_varint(seq, out);
}

fn take_stamp(from: &mut Cursor<'_>) -> Result<ProducerStamp, DecodeError> {
    let id = from.blob()?;
    let id = std::str::from_utf8(id)
        .ok()
        .filter(|id| (1..=MAX_ID).contains(&id.len()))
        .ok_or(DecodeError::Malformed("a producer id is not one"))?;
    Ok(ProducerStamp { id: id.into(), epoch: from.varint()?, seq: from.varint()? })
}
