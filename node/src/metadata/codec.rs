//! Temporary stand-in: replaced by the state machine's own branch.

use std::io::{self, Read as _};
use std::sync::Arc;

use super::command::{Batch, Outcome};
use super::state::*;
use weir_api::{SessionId, StreamId};

pub type CodecError = io::Error;
type Stub = (
    u64,
    Counters,
    Option<Cluster>,
    Vec<(u64, SessionId, u64, Vec<(u64, Outcome)>)>,
    Vec<(String, StreamId)>,
);

pub fn encode_batch(b: &Batch) -> Vec<u8> {
    postcard::to_stdvec(b).expect("encodes")
}
pub fn decode_batch(b: &[u8]) -> Result<Batch, CodecError> {
    postcard::from_bytes(b).map_err(io::Error::other)
}
fn bytes(s: &State) -> Vec<u8> {
    let sessions = s.sessions.iter().map(|(no, s)| {
        let answers = s.answers.iter().map(|(k, v)| (*k, v.as_ref().clone())).collect();
        (no.0, s.id.clone(), s.lowest_unanswered, answers)
    });
    let stub: Stub = (
        s.time_ms,
        s.next.clone(),
        s.cluster.clone(),
        sessions.collect(),
        s.names.iter().map(|(n, id)| (n.to_string(), *id)).collect(),
    );
    postcard::to_stdvec(&stub).expect("encodes")
}
pub fn write_state(s: &State, out: &mut dyn io::Write) -> io::Result<()> {
    let b = bytes(s);
    out.write_all(&crc32c::crc32c(&b).to_le_bytes())?;
    out.write_all(&(b.len() as u64).to_le_bytes())?;
    out.write_all(&b)
}
pub fn read_state(from: &mut dyn io::Read) -> Result<State, CodecError> {
    let mut crc = [0; 4];
    from.read_exact(&mut crc)?;
    let mut len = [0; 8];
    from.read_exact(&mut len)?;
    let mut b = Vec::new();
    io::Read::take(from, u64::from_le_bytes(len)).read_to_end(&mut b)?;
    if b.len() as u64 != u64::from_le_bytes(len) || crc32c::crc32c(&b) != u32::from_le_bytes(crc) {
        return Err(io::Error::other("checksum"));
    }
    let stub: Stub = postcard::from_bytes(&b).map_err(io::Error::other)?;
    let mut s = State { time_ms: stub.0, next: stub.1, cluster: stub.2, ..State::default() };
    for (no, id, lowest_unanswered, answers) in stub.3 {
        let answers = answers.into_iter().map(|(k, v)| (k, Arc::new(v))).collect();
        s.sessions.insert(
            SessionNo(no),
            Session {
                id,
                assigned: 0,
                open: 0,
                wal_start: 0,
                boot_id: None,
                raft_id: weir_api::RaftId(1),
                ended: None,
                claim: None,
                answers,
                lowest_unanswered,
            },
        );
    }
    s.names = stub.4.into_iter().map(|(n, id)| (Arc::from(n.as_str()), id)).collect();
    Ok(s)
}
pub fn state_hash(s: &State) -> u64 {
    u64::from(crc32c::crc32c(&bytes(s)))
}
