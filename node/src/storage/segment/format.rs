//! The frame of a segment object: header, trailer, who wrote it; and the cursor that all its decoders share.
//!
//! Invariant: decoding looks only at bytes it was given, never panics and never allocates by a number it read without
//! having checked it against what is left. Pure.

use weir_api::{ClusterUid, NodeEpoch, SessionId};

use crate::format;

const HEADER_MAGIC: [u8; 8] = *b"WEIRSEG\n";
const TRAILER_MAGIC: [u8; 8] = *b"WEIREND\n";
/// The trailer's length in bytes.
pub(in crate::storage) const TRAILER: usize = 32;
/// No header is shorter than this (with a node id of one byte).
pub(in crate::storage) const HEADER_MIN: usize = 8 + 4 + (16 + 1 + 1 + 8 + 8) + 4;

/// Why bytes are not what they should be. All of them mean: do not use the object; retrying does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It ends too early.
    #[error("{0} is cut short")]
    Short(&'static str),
    /// It is something else.
    #[error("{0} does not begin as it should")]
    Magic(&'static str),
    /// A later build wrote it.
    #[error("{what} has version {found}, this build reads {}", format::range())]
    Version {
        /// What was read.
        what: &'static str,
        /// The version it says it has.
        found: u32,
    },
    /// Its bytes changed.
    #[error("{0} does not match its checksum")]
    Checksum(&'static str),
    /// Its bytes are as they were written, but they make no sense.
    #[error("{0}")]
    Malformed(&'static str),
}

/// Which segment this is, as the object itself says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentIdentity {
    /// The cluster.
    pub cluster: ClusterUid,
    /// The session that wrote it.
    pub session: SessionId,
    /// Its number within that session.
    pub number: u64,
}

impl SegmentIdentity {
    pub(in crate::storage) fn encode(&self, out: &mut Vec<u8>) {
        let node = self.session.node.as_str().as_bytes();
        out.extend_from_slice(&self.cluster.0.to_le_bytes());
        out.push(u8::try_from(node.len()).expect("a node id has at most 63 bytes"));
        out.extend_from_slice(node);
        out.extend_from_slice(&self.session.epoch.0.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
    }

    pub(in crate::storage) fn decode(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let cluster = ClusterUid(u128::from_le_bytes(from.array()?));
        let [length] = from.array()?;
        let node = from.take(length.into())?;
        let node = std::str::from_utf8(node)
            .ok()
            .and_then(|n| n.parse().ok())
            .ok_or(DecodeError::Malformed("a segment's node id is not one"))?;
        let epoch = NodeEpoch(u64::from_le_bytes(from.array()?));
        let number = u64::from_le_bytes(from.array()?);
        Ok(Self { cluster, session: SessionId { node, epoch }, number })
    }
}

/// Begins an object.
pub(in crate::storage) fn write_header(identity: &SegmentIdentity, version: u32, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&HEADER_MAGIC);
    out.extend_from_slice(&version.to_le_bytes());
    identity.encode(out);
    let crc = crc32c::crc32c(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
}

/// Reads the beginning of an object. Reads of records do not need it; whoever finds an object without a manifest does.
pub fn read_header(object: &[u8]) -> Result<SegmentIdentity, DecodeError> {
    let mut from = Cursor::new("segment header", object);
    if from.array()? != HEADER_MAGIC {
        return Err(DecodeError::Magic("segment header"));
    }
    check_version("segment header", u32::from_le_bytes(from.array()?))?;
    let identity = SegmentIdentity::decode(&mut from)?;
    let covered = &object[..object.len() - from.left().len()];
    check(covered, u32::from_le_bytes(from.array()?), "segment header")?;
    Ok(identity)
}

/// Where the root is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::storage) struct Trailer {
    pub root_at: u64,
    pub root_len: u32,
    pub root_crc: u32,
    pub version: u32,
}

impl Trailer {
    pub(in crate::storage) fn encode(&self, out: &mut Vec<u8>) {
        let mut covered = [0u8; TRAILER - 4];
        covered[..8].copy_from_slice(&self.root_at.to_le_bytes());
        covered[8..12].copy_from_slice(&self.root_len.to_le_bytes());
        covered[12..16].copy_from_slice(&self.root_crc.to_le_bytes());
        covered[16..20].copy_from_slice(&self.version.to_le_bytes());
        covered[20..].copy_from_slice(&TRAILER_MAGIC);
        out.extend_from_slice(&crc32c::crc32c(&covered).to_le_bytes());
        out.extend_from_slice(&covered);
    }

    /// Reads the last [`TRAILER`] bytes of an object of `object_bytes`; the root it names ends where they begin.
    pub(in crate::storage) fn decode(trailer: &[u8], object_bytes: u64) -> Result<Self, DecodeError> {
        const WHAT: &str = "segment trailer";
        let mut from = Cursor::new(WHAT, trailer);
        let crc = u32::from_le_bytes(from.array()?);
        let covered = from.left();
        let this = Self {
            root_at: u64::from_le_bytes(from.array()?),
            root_len: u32::from_le_bytes(from.array()?),
            root_crc: u32::from_le_bytes(from.array()?),
            version: u32::from_le_bytes(from.array()?),
        };
        if from.array()? != TRAILER_MAGIC {
            return Err(DecodeError::Magic(WHAT));
        }
        from.end()?;
        check_version(WHAT, this.version)?;
        check(covered, crc, WHAT)?;
        let ends = this.root_at.checked_add(this.root_len.into()).and_then(|n| n.checked_add(TRAILER as u64));
        if ends != Some(object_bytes) {
            return Err(DecodeError::Malformed("the segment's root does not end at its trailer"));
        }
        Ok(this)
    }
}

fn check_version(what: &'static str, found: u32) -> Result<(), DecodeError> {
    if format::readable().contains(&found) { Ok(()) } else { Err(DecodeError::Version { what, found }) }
}

/// Compares a checksum.
pub(in crate::storage) fn check(bytes: &[u8], crc: u32, what: &'static str) -> Result<(), DecodeError> {
    if crc32c::crc32c(bytes) == crc { Ok(()) } else { Err(DecodeError::Checksum(what)) }
}

/// Appends a LEB128 number.
pub(in crate::storage) fn put_varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push((n as u8) | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Reads forward through bytes; every step may find too few.
pub(in crate::storage) struct Cursor<'a> {
    what: &'static str,
    left: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(in crate::storage) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, left: bytes }
    }

    pub(in crate::storage) fn left(&self) -> &'a [u8] {
        self.left
    }

    pub(in crate::storage) fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, left) = self.left.split_at_checked(n).ok_or(DecodeError::Short(self.what))?;
        self.left = left;
        Ok(taken)
    }

    pub(in crate::storage) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, left) = self.left.split_first_chunk::<N>().ok_or(DecodeError::Short(self.what))?;
        self.left = left;
        Ok(*taken)
    }

    pub(in crate::storage) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            n |= bits << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(DecodeError::Malformed("a number has more than 64 bits"))
    }

    /// How many items follow, each at least `least` bytes long: never more than what is left could hold.
    pub(in crate::storage) fn count(&mut self, least: usize) -> Result<usize, DecodeError> {
        let n = self.varint()?;
        usize::try_from(n)
            .ok()
            .filter(|n| n.checked_mul(least).is_some_and(|bytes| bytes <= self.left.len()))
            .ok_or(DecodeError::Short(self.what))
    }

    /// As many bytes as the number before them says.
    pub(in crate::storage) fn blob(&mut self) -> Result<&'a [u8], DecodeError> {
        let n = self.count(1)?;
        self.take(n)
    }

    pub(in crate::storage) fn end(&self) -> Result<(), DecodeError> {
        if self.left.is_empty() { Ok(()) } else { Err(DecodeError::Malformed("bytes are left over")) }
    }
}
