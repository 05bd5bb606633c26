//! The log's bytes on disk: entries, votes, log ids, and the header of a snapshot.
//!
//! Invariant: every record is `crc32c of the rest (4 bytes, little endian) · version (1 byte) · body`, and the body is
//! written from types of our own, so that a new openraft never changes what is on disk. What does not verify is an
//! error, never skipped. Pure. Called by `log_store` and `snapshot`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use openraft::{BasicNode, CommittedLeaderId, EntryPayload, Membership, SnapshotMeta, StoredMembership};
use serde::{Deserialize, Serialize};

use super::{Entry, EntryData, LogId, Vote};

/// The version written and the only one read so far.
const VERSION: u8 = 1;

/// A record that does not verify.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum BytesError {
    #[error("the record is only {0} bytes long")]
    Short(usize),
    #[error("the checksum does not match")]
    Checksum,
    #[error("the record has version {0}, this build reads {VERSION}")]
    Version(u8),
    #[error("the record does not decode: {0}")]
    Decode(#[from] postcard::Error),
    #[error("the record says it is entry {found}, it is stored as {stored}")]
    WrongPlace { stored: u64, found: u64 },
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredLogId {
    term: u64,
    node: u64,
    index: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredVote {
    term: u64,
    node: u64,
    committed: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredMembers {
    configs: Vec<BTreeSet<u64>>,
    nodes: BTreeMap<u64, String>,
}

#[derive(Serialize, Deserialize)]
enum StoredKind {
    Blank,
    /// The batch's own bytes follow.
    Normal,
    Members(StoredMembers),
}

#[derive(Serialize, Deserialize)]
struct StoredHeader {
    last: Option<StoredLogId>,
    members_at: Option<StoredLogId>,
    members: StoredMembers,
}

impl From<&LogId> for StoredLogId {
    fn from(id: &LogId) -> Self {
        Self { term: id.leader_id.term, node: id.leader_id.node_id, index: id.index }
    }
}

impl From<StoredLogId> for LogId {
    fn from(id: StoredLogId) -> Self {
        Self::new(CommittedLeaderId::new(id.term, id.node), id.index)
    }
}

impl From<&Vote> for StoredVote {
    fn from(vote: &Vote) -> Self {
        let Vote { leader_id, committed } = *vote;
        Self { term: leader_id.term, node: leader_id.node_id, committed }
    }
}

impl From<StoredVote> for Vote {
    fn from(vote: StoredVote) -> Self {
        let StoredVote { term, node, committed } = vote;
        if committed { Self::new_committed(term, node) } else { Self::new(term, node) }
    }
}

impl From<&Membership<u64, BasicNode>> for StoredMembers {
    fn from(m: &Membership<u64, BasicNode>) -> Self {
        let nodes = m.nodes().map(|(id, node)| (*id, node.addr.clone())).collect();
        Self { configs: m.get_joint_config().clone(), nodes }
    }
}

impl From<StoredMembers> for Membership<u64, BasicNode> {
    fn from(m: StoredMembers) -> Self {
        let nodes = m.nodes.into_iter().map(|(id, addr)| (id, BasicNode { addr }));
        Self::new(m.configs, nodes.collect::<BTreeMap<_, _>>())
    }
}

/// Seals `body` under version and checksum.
fn seal(body: &impl Serialize, tail: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(64 + tail.len());
    record.extend([0, 0, 0, 0, VERSION]);
    let mut record = postcard::to_extend(body, record).expect("plain values in memory always encode");
    record.extend_from_slice(tail);
    let crc = crc32c::crc32c(&record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
    record
}

/// The body of a sealed record.
fn open(record: &[u8]) -> Result<&[u8], BytesError> {
    let Some((crc, rest)) = record.split_first_chunk::<4>() else {
        return Err(BytesError::Short(record.len()));
    };
    if crc32c::crc32c(rest) != u32::from_le_bytes(*crc) {
        return Err(BytesError::Checksum);
    }
    match rest.split_first() {
        Some((&VERSION, body)) => Ok(body),
        Some((version, _)) => Err(BytesError::Version(*version)),
        None => Err(BytesError::Short(record.len())),
    }
}

/// An entry as a record.
pub(super) fn encode_entry(entry: &Entry) -> Vec<u8> {
    let id = StoredLogId::from(&entry.log_id);
    match &entry.payload {
        EntryPayload::Blank => seal(&(id, StoredKind::Blank), &[]),
        EntryPayload::Normal(data) => seal(&(id, StoredKind::Normal), &data.0),
        EntryPayload::Membership(m) => seal(&(id, StoredKind::Members(m.into())), &[]),
    }
}

/// The entry stored at `index`.
pub(super) fn decode_entry(index: u64, record: &[u8]) -> Result<Entry, BytesError> {
    let ((id, kind), tail): ((StoredLogId, StoredKind), _) = postcard::take_from_bytes(open(record)?)?;
    if id.index != index {
        return Err(BytesError::WrongPlace { stored: index, found: id.index });
    }
    let payload = match kind {
        StoredKind::Blank => EntryPayload::Blank,
        StoredKind::Normal => EntryPayload::Normal(EntryData(Arc::from(tail))),
        StoredKind::Members(m) => EntryPayload::Membership(m.into()),
    };
    Ok(Entry { log_id: id.into(), payload })
}

/// A log id as a record.
pub(super) fn encode_log_id(id: &LogId) -> Vec<u8> {
    seal(&StoredLogId::from(id), &[])
}

/// See [`encode_log_id`].
pub(super) fn decode_log_id(record: &[u8]) -> Result<LogId, BytesError> {
    Ok(postcard::from_bytes::<StoredLogId>(open(record)?)?.into())
}

/// A vote as a record.
pub(super) fn encode_vote(vote: &Vote) -> Vec<u8> {
    seal(&StoredVote::from(vote), &[])
}

/// See [`encode_vote`].
pub(super) fn decode_vote(record: &[u8]) -> Result<Vote, BytesError> {
    Ok(postcard::from_bytes::<StoredVote>(open(record)?)?.into())
}

/// A snapshot's header as a record.
pub(super) fn encode_snapshot_meta(meta: &SnapshotMeta<u64, BasicNode>) -> Vec<u8> {
    let members = &meta.last_membership;
    let header = StoredHeader {
        last: meta.last_log_id.as_ref().map(Into::into),
        members_at: members.log_id().as_ref().map(Into::into),
        members: members.membership().into(),
    };
    seal(&header, &[])
}

/// See [`encode_snapshot_meta`].
pub(super) fn decode_snapshot_meta(record: &[u8]) -> Result<SnapshotMeta<u64, BasicNode>, BytesError> {
    let header: StoredHeader = postcard::from_bytes(open(record)?)?;
    let members = StoredMembership::new(header.members_at.map(Into::into), header.members.into());
    Ok(snapshot_meta(header.last.map(Into::into), members))
}

/// The description of the snapshot that ends at `last`. Two snapshots of one log id hold the same state (I5), so
/// the log id names it.
pub(super) fn snapshot_meta(
    last: Option<LogId>,
    members: StoredMembership<u64, BasicNode>,
) -> SnapshotMeta<u64, BasicNode> {
    let id = last.map_or_else(|| "empty".to_owned(), |id| id.to_string());
    SnapshotMeta { last_log_id: last, last_membership: members, snapshot_id: id }
}

/// A number as a record.
pub(super) fn encode_number(n: u64) -> Vec<u8> {
    seal(&n, &[])
}

/// See [`encode_number`].
pub(super) fn decode_number(record: &[u8]) -> Result<u64, BytesError> {
    Ok(postcard::from_bytes(open(record)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(term: u64, node: u64, index: u64) -> LogId {
        LogId::new(CommittedLeaderId::new(term, node), index)
    }

    fn members() -> Membership<u64, BasicNode> {
        let nodes = BTreeMap::from([(1, BasicNode::new("a:1")), (2, BasicNode::new("b:1"))]);
        Membership::new(vec![BTreeSet::from([1])], nodes)
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn entries_come_back_as_they_were() {
        let payloads = [
            EntryPayload::Blank,
            EntryPayload::Normal(EntryData(Arc::from(&b"batch"[..]))),
            EntryPayload::Normal(EntryData(Arc::from(&b""[..]))),
            EntryPayload::Membership(members()),
        ];
        for payload in payloads {
            let entry = Entry { log_id: id(3, 1, 77), payload };
            assert_eq!(decode_entry(77, &encode_entry(&entry)).unwrap(), entry);
        }
    }

    #[test]
    fn the_bytes_are_the_golden_ones() {
        let data = EntryData(Arc::from(&[0xaa, 0xbb][..]));
        let normal = Entry { log_id: id(3, 1, 300), payload: EntryPayload::Normal(data) };
        let changed = Entry { log_id: id(3, 1, 300), payload: EntryPayload::Membership(members()) };
        let stored = StoredMembership::new(Some(id(1, 1, 0)), members());
        let records = [
            encode_entry(&normal),
            encode_entry(&changed),
            encode_vote(&Vote::new_committed(9, 2)),
            encode_log_id(&id(9, 2, 1)),
            encode_snapshot_meta(&snapshot_meta(Some(id(9, 2, 8)), stored)),
        ];
        assert_eq!(records.map(|r| hex(&r)), GOLDEN);
    }

    const GOLDEN: [&str; 5] = [
        "6686aacd010301ac0201aabb",
        "b87eb86a010301ac0202010101020103613a310203623a31",
        "29fe1cdd01090201",
        "29fe1cdd01090201",
        "c5834938010109020801010100010101020103613a310203623a31",
    ];

    #[test]
    fn a_changed_byte_or_a_cut_never_passes() {
        let data = EntryData(Arc::from(&b"some bytes of a batch"[..]));
        let record = encode_entry(&Entry { log_id: id(3, 1, 5), payload: EntryPayload::Normal(data) });
        for at in 0..record.len() {
            let mut bad = record.clone();
            bad[at] ^= 0x40;
            assert!(decode_entry(5, &bad).is_err(), "byte {at}");
            assert!(decode_entry(5, &record[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(decode_entry(6, &record).unwrap_err(), BytesError::WrongPlace { stored: 6, found: 5 });
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut record = encode_number(7);
        record[4] = 2;
        let crc = crc32c::crc32c(&record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode_number(&record).unwrap_err(), BytesError::Version(2));
    }
}
