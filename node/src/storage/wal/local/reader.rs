//! Reads a session's local WAL back, record by record.
//!
//! Invariant: the row ends where the last record is missing or torn, and only there. What does not verify but is followed
//! by a later record of the session (in this file or by the name of the next) was once synced and is damage: an error
//! that names file and position. Bytes of lower numbers are what an earlier use of the file left. Memory: one record.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use bytes::Bytes;

use super::spare::{FENCE, usable};
use super::{BEGUN, Folder, at};
use crate::storage::record::codec::{self, CodecError, Header};
use crate::storage::wal::{FIRST_SEQ, WalError, WalObject, check_header, corrupt, corrupt_at};

/// How much is searched at a time.
const CHUNK: usize = 1 << 20;

/// A place in the row of files.
pub(super) struct Reader<'a> {
    folder: &'a Folder,
    /// Records to go on without, if they are damaged.
    skip: &'a BTreeSet<u64>,
    /// The files from the current one on, by the number each begins with.
    logs: Vec<u64>,
    path: PathBuf,
    file: File,
    size: u64,
    position: u64,
    next: u64,
}

/// What stands at a position.
enum Here {
    Record(Header, Bytes),
    /// Nothing of the row: zeros, a torn record, an earlier use's bytes.
    Nothing(String),
}

impl<'a> Reader<'a> {
    /// Stands before record `from`; `None` if the session has written nothing.
    pub(super) fn open(
        folder: &'a Folder,
        from: u64,
        skip: &'a BTreeSet<u64>,
    ) -> Result<Option<Self>, WalError> {
        // In this order: a live writer's first log may come between the two looks.
        let begun = begun(folder)?;
        let mut logs = folder.logs().map_err(at(&folder.path))?;
        let Some(holder) = logs.iter().rposition(|&first| first <= from) else {
            return if logs.is_empty() && from <= FIRST_SEQ && !begun {
                Ok(None)
            } else {
                Err(corrupt(folder.path.display().to_string(), 0, format!("no file holds record {from}")))
            };
        };
        logs.drain(..holder);
        let (path, file, size) = Self::file(folder, logs[0])?;
        let mut reader = Self { folder, skip, next: logs[0], logs, path, file, size, position: 0 };
        // Everything below `from` was synced once, so that it is there or damaged.
        while reader.next < from {
            match reader.header(reader.position)? {
                Ok(header) if header.seq == reader.next => reader.step(&header),
                _ if skip.contains(&reader.next) => reader.pass_over()?,
                Ok(_) => return Err(reader.damage("another record stands here".to_owned())),
                Err(why) => return Err(reader.damage(why)),
            }
        }
        Ok(Some(reader))
    }

    fn file(folder: &Folder, first: u64) -> Result<(PathBuf, File, u64), WalError> {
        let path = folder.log(first);
        let opened = File::open(&path).and_then(|file| file.metadata().map(|m| (file, m.len())));
        let (file, size) = opened.map_err(at(&path))?;
        // It was filled before it got its name.
        let mut fence = [0; FENCE.len()];
        if size > usable(size) && size >= fence.len() as u64 {
            file.read_exact_at(&mut fence, usable(size)).map_err(at(&path))?;
        }
        if fence != *FENCE {
            let why = format!("it is {size} bytes long and lacks the mark of its end: it was cut");
            return Err(corrupt(path.display().to_string(), size, why));
        }
        Ok((path, file, usable(size)))
    }

    /// The next record; `None` at the end of the row. One that is skipped comes without frames.
    pub(super) fn next(&mut self) -> Result<Option<WalObject>, WalError> {
        match self.verified() {
            Err(WalError::Corrupt { seq: Some(seq), .. }) if self.skip.contains(&seq) => {
                self.pass_over()?;
                Ok(Some(WalObject { seq, bytes: 0, frames: Vec::new() }))
            }
            other => other,
        }
    }

    /// Goes to where the record after the damaged one stands, if it can be told.
    fn pass_over(&mut self) -> Result<(), WalError> {
        match self.later()? {
            Some(place) => {
                let follows = self.header(place)?.is_ok_and(|header| header.seq == self.next + 1);
                // Else the next is damaged too, somewhere behind this position.
                self.position = if follows { place } else { self.position };
            }
            None => self.position = self.size,
        }
        self.next += 1;
        Ok(())
    }

    fn verified(&mut self) -> Result<Option<WalObject>, WalError> {
        loop {
            let why = match self.here()? {
                Here::Record(header, body) => {
                    // The checksum held, so that this is not torn; what does not decode is not for this build.
                    let frames =
                        codec::decode_body(&header, &body).map_err(|e| self.damage(e.to_string()))?;
                    let object = WalObject { seq: header.seq, bytes: length(&header), frames };
                    self.step(&header);
                    return Ok(Some(object));
                }
                Here::Nothing(why) => why,
            };
            match self.logs.get(1).copied() {
                // The writer had no room left here.
                Some(first) if first == self.next => {
                    (self.path, self.file, self.size) = Self::file(self.folder, first)?;
                    self.position = 0;
                    self.logs.remove(0);
                }
                Some(first) => {
                    return Err(self.damage(format!("{why}, and the next file begins with record {first}")));
                }
                None => {
                    return match self.later()? {
                        None => Ok(None),
                        Some(place) => {
                            Err(self.damage(format!("{why}, and a later record stands at {place}")))
                        }
                    };
                }
            }
        }
    }

    /// Makes sure that what was read last stays.
    pub(super) fn sync(&self) -> Result<(), WalError> {
        self.folder.disk.sync(&self.file).map_err(at(&self.path))
    }

    fn step(&mut self, header: &Header) {
        self.position += length(header);
        self.next += 1;
    }

    fn damage(&self, why: String) -> WalError {
        let object = self.path.display().to_string();
        corrupt_at(self.next, object, self.position, format!("record {}: {why}", self.next))
    }

    fn here(&self) -> Result<Here, WalError> {
        let header = match self.header(self.position)? {
            Ok(header) if header.seq < self.next => return Ok(Here::Nothing("it is missing".to_owned())),
            Ok(header) => header,
            Err(why) => return Ok(Here::Nothing(why)),
        };
        check_header(&header, self.folder.cluster, &self.folder.session, self.next)
            .map_err(|why| self.damage(why))?;
        if self.position + length(&header) > self.size {
            return Ok(Here::Nothing("it is cut off by the end of the file".to_owned()));
        }
        let mut body = vec![0; header.body];
        let from = self.position + codec::HEADER as u64;
        self.file.read_exact_at(&mut body, from).map_err(at(&self.path))?;
        if crc32c::crc32c(&body) != header.body_crc {
            return Ok(Here::Nothing(CodecError::Checksum("body").to_string()));
        }
        Ok(Here::Record(header, body.into()))
    }

    /// The header at `position`, or why there is none.
    fn header(&self, position: u64) -> Result<Result<Header, String>, WalError> {
        if position + codec::HEADER as u64 > self.size {
            return Ok(Err("the file ends".to_owned()));
        }
        let mut head = [0; codec::HEADER];
        self.file.read_exact_at(&mut head, position).map_err(at(&self.path))?;
        match codec::decode_header(&head) {
            // Its checksum holds: whole, and not for this build. Never the end of the row.
            Err(e @ (CodecError::Version(_) | CodecError::Malformed(_))) => Err(self.damage(e.to_string())),
            other => Ok(other.map_err(|e| e.to_string())),
        }
    }

    /// Where a record of this session with a higher number than the one due stands in the rest of this file.
    fn later(&self) -> Result<Option<u64>, WalError> {
        let mut chunk = vec![0; CHUNK + codec::HEADER - 1];
        let mut from = self.position;
        while from < self.size {
            let have = usize::try_from(self.size - from).unwrap_or(usize::MAX).min(chunk.len());
            let bytes = &mut chunk[..have];
            self.file.read_exact_at(bytes, from).map_err(at(&self.path))?;
            if let Some(place) = self.later_in(bytes) {
                return Ok(Some(from + place as u64));
            }
            from += CHUNK as u64;
        }
        Ok(None)
    }

    fn later_in(&self, bytes: &[u8]) -> Option<usize> {
        let mut from = 0;
        while let Some(found) = bytes[from..].iter().position(|&b| b == codec::MAGIC[0]) {
            from += found;
            let mine = |h: &Header| h.cluster == self.folder.cluster && h.session == self.folder.session;
            let header = bytes.get(from..).filter(|b| b.starts_with(&codec::MAGIC)).map(codec::decode_header);
            // The record itself, damaged behind its header, is no proof; a higher number is.
            if let Some(Ok(header)) = header
                && mine(&header)
                && header.seq > self.next
            {
                return Some(from);
            }
            from += 1;
        }
        None
    }
}

/// The writer has had a log.
fn begun(folder: &Folder) -> Result<bool, WalError> {
    let owner = folder.owner();
    match std::fs::read(&owner) {
        Ok(text) => Ok(text == BEGUN),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(at(&owner)(e)),
    }
}

fn length(header: &Header) -> u64 {
    (codec::HEADER + header.body) as u64
}
