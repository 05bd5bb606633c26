//! The bytes of calls between members: append, vote, snapshot.
//!
//! Invariant: `version (1 byte) · postcard of types of our own`; entries follow as the records that also stand on disk,
//! each with its checksum. A message names the raft id it is for, because an address may have passed to another. What
//! does not decode is refused. Pure. Used by `network`.

use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::bytes::{self, StoredLogId, StoredVote};
use super::snapshot::Meta;
use super::{Entry, TypeConfig, Vote};

const VERSION: u8 = 1;

#[derive(Serialize, Deserialize)]
struct Append {
    to: u64,
    vote: StoredVote,
    prev: Option<StoredLogId>,
    commit: Option<StoredLogId>,
    entries: u32,
}

#[derive(Serialize, Deserialize)]
enum Appended {
    Success,
    Partial(Option<StoredLogId>),
    Conflict,
    Higher(StoredVote),
}

#[derive(Serialize, Deserialize)]
struct Ask {
    to: u64,
    vote: StoredVote,
    last: Option<StoredLogId>,
}

#[derive(Serialize, Deserialize)]
struct Voted {
    vote: StoredVote,
    granted: bool,
    last: Option<StoredLogId>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    to: u64,
    vote: StoredVote,
    length: u64,
    meta: Vec<u8>,
}

/// What a snapshot's stream begins with.
pub(super) struct SnapshotHead {
    pub(super) vote: Vote,
    /// Bytes of the file that follows.
    pub(super) length: u64,
    pub(super) meta: Meta,
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(message, vec![VERSION]).expect("plain values in memory always encode")
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), String> {
    match bytes.split_first() {
        Some((&VERSION, body)) => postcard::take_from_bytes(body).map_err(|e| e.to_string()),
        Some((version, _)) => Err(format!("version {version} is not {VERSION}, the one this build reads")),
        None => Err("there are no bytes".to_owned()),
    }
}

fn whole<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match decode(bytes)? {
        (message, []) => Ok(message),
        (_, rest) => Err(format!("{} bytes follow the message", rest.len())),
    }
}

fn check_target(to: u64, me: u64) -> Result<(), String> {
    if to == me { Ok(()) } else { Err(format!("the message is for raft id {to}, this is raft id {me}")) }
}

pub(super) fn encode_append(to: u64, rpc: &AppendEntriesRequest<TypeConfig>) -> Vec<u8> {
    let mut out = encode(&Append {
        to,
        vote: (&rpc.vote).into(),
        prev: rpc.prev_log_id.as_ref().map(Into::into),
        commit: rpc.leader_commit.as_ref().map(Into::into),
        entries: u32::try_from(rpc.entries.len()).expect("openraft bounds the entries of one append"),
    });
    for entry in &rpc.entries {
        let record = bytes::encode_entry(entry);
        let length = u32::try_from(record.len()).expect("entries are bounded far below 4 GiB");
        out.extend(entry.log_id.index.to_le_bytes());
        out.extend(length.to_le_bytes());
        out.extend(record);
    }
    out
}

pub(super) fn decode_append(me: u64, bytes: &[u8]) -> Result<AppendEntriesRequest<TypeConfig>, String> {
    let (head, mut rest): (Append, _) = decode(bytes)?;
    check_target(head.to, me)?;
    let mut entries: Vec<Entry> = Vec::new();
    for _ in 0..head.entries {
        let cut = || "it ends within an entry".to_owned();
        let (index, after) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
        let (length, after) = after.split_first_chunk::<4>().ok_or_else(cut)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (record, after) = after.split_at_checked(length).ok_or_else(cut)?;
        let entry = bytes::decode_entry(u64::from_le_bytes(*index), record).map_err(|e| e.to_string())?;
        if entries.last().is_some_and(|last| last.log_id.index + 1 != entry.log_id.index) {
            return Err(format!("entry {} does not follow the one before", entry.log_id.index));
        }
        entries.push(entry);
        rest = after;
    }
    if !rest.is_empty() {
        return Err(format!("{} bytes follow the entries", rest.len()));
    }
    Ok(AppendEntriesRequest {
        vote: head.vote.into(),
        prev_log_id: head.prev.map(Into::into),
        entries,
        leader_commit: head.commit.map(Into::into),
    })
}

pub(super) fn encode_appended(answer: &AppendEntriesResponse<u64>) -> Vec<u8> {
    encode(&match answer {
        AppendEntriesResponse::Success => Appended::Success,
        AppendEntriesResponse::PartialSuccess(id) => Appended::Partial(id.as_ref().map(Into::into)),
        AppendEntriesResponse::Conflict => Appended::Conflict,
        AppendEntriesResponse::HigherVote(vote) => Appended::Higher(vote.into()),
    })
}

pub(super) fn decode_appended(bytes: &[u8]) -> Result<AppendEntriesResponse<u64>, String> {
    Ok(match whole(bytes)? {
        Appended::Success => AppendEntriesResponse::Success,
        Appended::Partial(id) => AppendEntriesResponse::PartialSuccess(id.map(Into::into)),
        Appended::Conflict => AppendEntriesResponse::Conflict,
        Appended::Higher(vote) => AppendEntriesResponse::HigherVote(vote.into()),
    })
}

pub(super) fn encode_vote(to: u64, rpc: &VoteRequest<u64>) -> Vec<u8> {
    encode(&Ask { to, vote: (&rpc.vote).into(), last: rpc.last_log_id.as_ref().map(Into::into) })
}

pub(super) fn decode_vote(me: u64, bytes: &[u8]) -> Result<VoteRequest<u64>, String> {
    let ask: Ask = whole(bytes)?;
    check_target(ask.to, me)?;
    Ok(VoteRequest { vote: ask.vote.into(), last_log_id: ask.last.map(Into::into) })
}

pub(super) fn encode_voted(answer: &VoteResponse<u64>) -> Vec<u8> {
    let last = answer.last_log_id.as_ref().map(Into::into);
    encode(&Voted { vote: (&answer.vote).into(), granted: answer.vote_granted, last })
}

pub(super) fn decode_voted(bytes: &[u8]) -> Result<VoteResponse<u64>, String> {
    let Voted { vote, granted, last } = whole(bytes)?;
    Ok(VoteResponse { vote: vote.into(), vote_granted: granted, last_log_id: last.map(Into::into) })
}

/// The head of a snapshot's stream, with its own length before it.
pub(super) fn encode_snapshot(to: u64, head: &SnapshotHead) -> Vec<u8> {
    let SnapshotHead { vote, length, meta } = head;
    let meta = bytes::encode_snapshot_meta(meta);
    let head = encode(&Head { to, vote: vote.into(), length: *length, meta });
    let length = u32::try_from(head.len()).expect("a log id and the members are far below 4 GiB");
    [length.to_le_bytes().as_slice(), &head].concat()
}

/// See [`encode_snapshot`]; without the length.
pub(super) fn decode_snapshot(me: u64, bytes: &[u8]) -> Result<SnapshotHead, String> {
    let Head { to, vote, length, meta } = whole(bytes)?;
    check_target(to, me)?;
    let meta = bytes::decode_snapshot_meta(&meta).map_err(|e| e.to_string())?;
    Ok(SnapshotHead { vote: vote.into(), length, meta })
}

pub(super) fn encode_installed(vote: &Vote) -> Vec<u8> {
    encode(&StoredVote::from(vote))
}

pub(super) fn decode_installed(bytes: &[u8]) -> Result<Vote, String> {
    Ok(whole::<StoredVote>(bytes)?.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use openraft::{CommittedLeaderId, EntryPayload, LogId};

    use super::super::EntryData;
    use super::*;

    fn id(index: u64) -> LogId<u64> {
        LogId::new(CommittedLeaderId::new(3, 2), index)
    }

    fn append() -> AppendEntriesRequest<TypeConfig> {
        let data = |n: u8| EntryPayload::Normal(EntryData(Arc::from(vec![n; 50])));
        AppendEntriesRequest {
            vote: Vote::new_committed(3, 2),
            prev_log_id: Some(id(6)),
            entries: vec![
                Entry { log_id: id(7), payload: data(1) },
                Entry { log_id: id(8), payload: EntryPayload::Blank },
            ],
            leader_commit: Some(id(5)),
        }
    }

    #[test]
    fn messages_come_back_as_they_were() {
        let back = decode_append(9, &encode_append(9, &append())).unwrap();
        assert_eq!((back.vote, back.prev_log_id), (append().vote, append().prev_log_id));
        assert_eq!((back.entries, back.leader_commit), (append().entries, append().leader_commit));
        for answer in [
            AppendEntriesResponse::Success,
            AppendEntriesResponse::PartialSuccess(Some(id(1))),
            AppendEntriesResponse::Conflict,
            AppendEntriesResponse::HigherVote(Vote::new(9, 1)),
        ] {
            assert_eq!(decode_appended(&encode_appended(&answer)).unwrap(), answer);
        }
        let ask = VoteRequest::new(Vote::new(4, 1), Some(id(3)));
        assert_eq!(decode_vote(2, &encode_vote(2, &ask)).unwrap(), ask);
        let voted = VoteResponse::new(Vote::new(4, 1), None, true);
        assert_eq!(decode_voted(&encode_voted(&voted)).unwrap(), voted);
        assert_eq!(decode_installed(&encode_installed(&Vote::new(7, 7))).unwrap(), Vote::new(7, 7));
        let meta = bytes::snapshot_meta(Some(id(4)), Default::default());
        let head = SnapshotHead { vote: Vote::new(4, 1), length: 77, meta: meta.clone() };
        let back = decode_snapshot(5, &encode_snapshot(5, &head)[4..]).unwrap();
        assert_eq!((back.vote, back.length, back.meta), (head.vote, 77, meta));
    }

    #[test]
    fn cut_changed_or_misdirected_messages_are_refused() {
        let good = encode_append(9, &append());
        for cut in 0..good.len() {
            assert!(decode_append(9, &good[..cut]).is_err(), "cut at {cut}");
        }
        assert!(decode_append(9, &[good.as_slice(), b"x"].concat()).is_err());
        assert!(decode_append(8, &good).unwrap_err().contains("raft id"));
        let mut entry = good.clone();
        *entry.last_mut().unwrap() ^= 1;
        assert!(decode_append(9, &entry).is_err(), "an entry has a checksum");
        let mut newer = good;
        newer[0] = 2;
        assert!(decode_append(9, &newer).unwrap_err().contains("version"));
    }
}
