//! The cluster itself: founding, data directories' numbers, the format version.
//!
//! Invariant: each is idempotent by what it carries – the uid, the directory's nonce, the version – because it may be
//! proposed before there is any session.

use weir_api::{ClusterUid, Nonce, RaftId};

use super::super::command::{Answer, Outcome, Refusal};
use super::super::limits;
use super::super::state::{Cluster, State};
use super::at_most;
use crate::format;

pub(super) fn found(state: &mut State, uid: ClusterUid, identity: Option<&str>, size: u32) -> Outcome {
    if let Some(cluster) = &state.cluster {
        return Ok(Answer::Founded { uid: cluster.uid });
    }
    at_most("bytes of cluster identity", identity.map_or(0, str::len), limits::TEXT_BYTES)?;
    let identity = identity.map(str::to_owned);
    state.cluster = Some(Cluster { uid, identity, size, format: format::FOUNDED });
    Ok(Answer::Founded { uid })
}

pub(super) fn allocate_raft_id(state: &mut State, nonce: Nonce) -> Outcome {
    founded(state)?;
    if let Some(id) = state.raft_ids.get(&nonce) {
        return Ok(Answer::RaftId(*id));
    }
    let id = RaftId(state.next.raft_id);
    state.next.raft_id += 1;
    state.raft_ids.insert(nonce, id);
    Ok(Answer::RaftId(id))
}

pub(super) fn raise_format(state: &mut State, version: u32) -> Outcome {
    let cluster = founded(state)?;
    let read_by_all =
        state.nodes.values().filter(|n| !n.removed).all(|n| (n.formats.0..=n.formats.1).contains(&version));
    if version <= cluster.format || !read_by_all {
        return Err(Refusal::FormatNotRaised { wanted: version, cluster: cluster.format });
    }
    state.cluster.as_mut().expect("checked above").format = version;
    Ok(Answer::Done)
}

pub(super) fn founded(state: &State) -> Result<&Cluster, Refusal> {
    state.cluster.as_ref().ok_or(Refusal::WrongCluster(None))
}
