//! The seal: the last object of an ended session's WAL.
//!
//! Invariant: put with put-if-absent at the first absent number and never deleted, so that after it nothing of that
//! session can be stored, hence acknowledged, whatever its clock, network or scheduler does. Pure bytes; put and found
//! by `wal`.
//!
//! ```text
//! 192 bytes, little endian: magic 8 · version u32 · cluster u128 · ended session 72 · seq u64 · sealing session 72
//! · claim u64 · crc32c of all before
//! ```

use bytes::{BufMut, Bytes};
use weir_api::{ClusterUid, SessionId};

use super::record::codec::{CodecError, SESSION, put_session, session_at};

/// What every seal begins with.
pub const MAGIC: [u8; 8] = *b"weir:end";
/// The size of every seal.
pub const LENGTH: usize = 192;
const VERSION: u32 = 1;

/// Who seals, and by what right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealNote {
    /// The recovering session.
    pub by: SessionId,
    /// The number of its claim.
    pub claim: u64,
}

/// A seal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// The cluster.
    pub cluster: ClusterUid,
    /// The session that is over.
    pub ended: SessionId,
    /// Where its WAL ends: the number after its last object.
    pub seq: u64,
    /// Who sealed it.
    pub note: SealNote,
}

impl Seal {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(LENGTH);
        out.put_slice(&MAGIC);
        out.put_u32_le(VERSION);
        out.put_u128_le(self.cluster.0);
        put_session(&mut out, &self.ended);
        out.put_u64_le(self.seq);
        put_session(&mut out, &self.note.by);
        out.put_u64_le(self.note.claim);
        let crc = crc32c::crc32c(&out);
        out.put_u32_le(crc);
        out.into()
    }

    /// Whether `bytes` claim to be a seal.
    pub fn looks_like(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Reads a seal.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        if bytes.len() != LENGTH {
            return Err(CodecError::Length { want: LENGTH, have: bytes.len() });
        }
        if !Self::looks_like(bytes) {
            return Err(CodecError::Magic("weir:end"));
        }
        let (body, crc) = bytes.split_at(LENGTH - 4);
        if crc32c::crc32c(body).to_le_bytes() != crc {
            return Err(CodecError::Checksum("seal"));
        }
        let u64_at = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"));
        let version = u32::from_le_bytes(body[8..12].try_into().expect("four bytes"));
        if version != VERSION {
            return Err(CodecError::Version(version));
        }
        Ok(Self {
            cluster: ClusterUid(u128::from_le_bytes(body[12..28].try_into().expect("sixteen bytes"))),
            ended: session_at(&body[28..28 + SESSION])?,
            seq: u64_at(100),
            note: SealNote { by: session_at(&body[108..108 + SESSION])?, claim: u64_at(180) },
        })
    }
}

#[cfg(test)]
mod tests {
    use weir_api::NodeEpoch;

    use super::*;

    fn sample() -> Seal {
        let session = |node: &str, epoch| SessionId { node: node.parse().unwrap(), epoch: NodeEpoch(epoch) };
        Seal {
            cluster: ClusterUid(0x0102_0304),
            ended: session("demo-0", 1_700_000_000_000),
            seq: 42,
            note: SealNote { by: session("demo-1", 1_700_000_000_001), claim: 7 },
        }
    }

    #[test]
    fn a_seal_reads_back() {
        let bytes = sample().encode();
        assert_eq!(bytes.len(), LENGTH);
        assert_eq!(Seal::decode(&bytes), Ok(sample()));
    }

    #[test]
    fn the_bytes_of_a_seal_never_change() {
        let hex: String = sample().encode().iter().map(|b| format!("{b:02x}")).collect();
        let golden = include_str!("golden/seal-1.hex");
        assert_eq!(hex, golden.split_whitespace().collect::<String>());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = sample().encode();
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Seal::decode(&bad).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(Seal::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
