//! What WAL objects in a bucket tell: which session wrote records of which stream, at which epoch of it.
//!
//! Invariant (I1) that [`one_writer_per_epoch`] holds nodes to: of one stream at one stream epoch the WALs hold records of
//! one session only, as far as these could have been acknowledged: below the first number that is missing or a seal. It
//! knows the bytes by their description in `docs/`, not by the node's code.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;

const MAGIC: &[u8; 8] = b"weir:wal";
const HEADER: usize = 128;

/// A stream's number and its epoch.
pub type Term = (u64, u64);

/// One WAL object, as far as it is looked at.
#[derive(Debug)]
pub struct Object {
    /// The version that it says it is written in.
    pub version: u32,
    /// Of each record.
    pub terms: Vec<Term>,
}

/// Reads an object; `None`: it is no WAL object, but a seal.
pub fn read(object: &[u8]) -> Result<Option<Object>> {
    if !object.starts_with(MAGIC) {
        return Ok(None);
    }
    let number = |at: usize| -> Result<u32> {
        Ok(u32::from_le_bytes(object.get(at..at + 4).context("the object is cut")?.try_into()?))
    };
    let mut terms = Vec::new();
    let mut at = HEADER;
    for _ in 0..number(12)? {
        let length = number(at)? as usize;
        let content = object.get(at + 8..at + 8 + length).context("the object is cut")?;
        let mut rest = content.get(1..).context("an empty frame")?;
        terms.push((varint(&mut rest)?, varint(&mut rest)?));
        at += 8 + length;
    }
    Ok(Some(Object { version: number(8)?, terms }))
}

fn varint(from: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first().context("a number is cut")?;
        *from = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    anyhow::bail!("a number of more than 64 bits")
}

/// Holds all WAL objects ever stored, by key, to I1. Gives how many terms of streams there are.
pub fn one_writer_per_epoch(wal: &BTreeMap<String, Bytes>) -> Result<usize> {
    let mut sessions: BTreeMap<&str, BTreeMap<u64, &Bytes>> = BTreeMap::new();
    for (key, object) in wal {
        let (session, seq) = key.rsplit_once('/').context("a key has a number")?;
        sessions.entry(session).or_default().insert(seq.parse().with_context(|| key.clone())?, object);
    }
    let mut writers: BTreeMap<Term, &str> = BTreeMap::new();
    for (session, objects) in &sessions {
        let first = objects.first_key_value().map_or(0, |(seq, _)| *seq);
        let row = objects.iter().zip(first..).take_while(|((seq, _), expected)| *seq == expected);
        for ((seq, object), _) in row {
            let Some(object) = read(object).with_context(|| format!("{session}/{seq}"))? else { break };
            for term in object.terms {
                let writer = writers.entry(term).or_insert(session);
                ensure!(
                    writer == session,
                    "I1: stream {} was written at epoch {} by both {writer} and {session}",
                    term.0,
                    term.1
                );
            }
        }
    }
    Ok(writers.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(terms: &[(u8, u8)]) -> Bytes {
        let mut out = vec![0; HEADER];
        out[..8].copy_from_slice(MAGIC);
        out[8] = 1;
        out[12] = terms.len() as u8;
        for (stream, epoch) in terms {
            out.extend([4, 0, 0, 0, 9, 9, 9, 9, 0, *stream, *epoch, 0]);
        }
        out.into()
    }

    fn wal(objects: &[(&str, Bytes)]) -> BTreeMap<String, Bytes> {
        objects.iter().map(|(key, object)| ((*key).to_owned(), object.clone())).collect()
    }

    #[test]
    fn two_writers_of_one_epoch_are_found_and_what_nobody_could_acknowledge_is_not() {
        let seal = Bytes::from_static(b"weir:seal and more");
        let fine = [
            ("g0/wal/a/1/1", object(&[(7, 1), (8, 1)])),
            ("g0/wal/a/1/2", seal.clone()),
            // Put beside the one that lost to the seal.
            ("g0/wal/a/1/3", object(&[(9, 1)])),
            ("g0/wal/b/1/1", object(&[(7, 2), (9, 1)])),
        ];
        assert_eq!(one_writer_per_epoch(&wal(&fine)).unwrap(), 4);
        let both = [("g0/wal/a/1/1", object(&[(7, 1)])), ("g0/wal/b/1/1", object(&[(7, 1)]))];
        let why = one_writer_per_epoch(&wal(&both)).unwrap_err().to_string();
        assert!(why.contains("stream 7") && why.contains("epoch 1"), "{why}");
    }
}
