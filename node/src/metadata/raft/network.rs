//! Calls to and from the other members of the log, over `peers`.
//!
//! Invariant: openraft's calls end by their deadlines; one for another raft id, or one that does not decode, is refused
//! and changes nothing. A snapshot is streamed from file to file and handed to openraft only if all of it came, by
//! its checksum; one is received at a time. Called by openraft, and by `peers` for the others' calls.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{AnyError, BasicNode, OptionalSend, Raft, RaftNetwork, RaftNetworkFactory, Snapshot};
use tokio::sync::Mutex;

use super::book::Book;
use super::snapshot::SnapshotFile;
use super::wire::{self, SnapshotHead};
use super::{TypeConfig, Vote, membership};
use crate::clock;
use crate::peers::{Call, Incoming, PeerError, Peers, Refusal, RefusalCode};
use crate::tasks::Tasks;

/// An append carries at most `log_store`'s megabyte of entries, or one entry.
const APPEND: Call = Call::new("log/append").bounded(4 << 20, 4 << 10);
const VOTE: Call = Call::new("log/vote").bounded(4 << 10, 4 << 10);
const SNAPSHOT: Call = Call::new("log/snapshot");
/// What this file answers.
pub(super) const CALLS: [Call; 3] = [APPEND, VOTE, SNAPSHOT];

/// A snapshot may take this long, and a second more for each megabyte.
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(60);
/// The head of a snapshot's stream: a log id and the members.
const HEAD_MAX: usize = 16 << 20;
/// Pauses after a member was not reachable, each drawn between half and all of it.
const PAUSES_MS: [u64; 4] = [50, 100, 200, 400];

/// Makes connections to members.
pub(super) struct Network {
    pub(super) peers: Option<Peers>,
    pub(super) book: Arc<Book>,
    pub(super) me: u64,
}

/// A connection to one member.
pub(super) struct Peer {
    target: u64,
    /// As the membership says it.
    address: String,
    peers: Option<Peers>,
    book: Arc<Book>,
}

impl Peer {
    async fn call(&self, call: &Call, body: Vec<u8>, within: Duration) -> Result<Bytes, PeerError> {
        let address = self.book.address(self.target, &self.address);
        let Some(peers) = &self.peers else { return Err(alone(address)) };
        let answer = peers.call(&address, call, body.into(), within).await;
        self.note(&answer);
        answer
    }

    fn note(&self, answer: &Result<Bytes, PeerError>) {
        match answer {
            Ok(_) => self.book.heard(self.target),
            Err(PeerError::Unreachable { .. }) => self.book.failed(self.target),
            // Somebody else has the address now, or the member is not up yet.
            Err(PeerError::Refused { .. }) => self.book.failed(self.target),
            Err(PeerError::Unknown { .. }) => {}
        }
    }
}

fn alone(address: String) -> PeerError {
    PeerError::Unreachable { address, why: "this process was started without a network".to_owned() }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        let address = membership::address(node).to_owned();
        debug_assert_ne!(target, self.me, "nobody calls itself");
        Peer { target, address, peers: self.peers.clone(), book: self.book.clone() }
    }
}

type RpcError<E> = RPCError<u64, BasicNode, E>;

fn rpc_error<E: std::error::Error>(e: PeerError) -> RpcError<E> {
    match e {
        PeerError::Unreachable { .. } | PeerError::Refused { .. } => Unreachable::new(&e).into(),
        PeerError::Unknown { .. } => NetworkError::new(&e).into(),
    }
}

fn nonsense(why: String) -> NetworkError {
    NetworkError::new(&io::Error::new(io::ErrorKind::InvalidData, why))
}

impl RaftNetwork<TypeConfig> for Peer {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RpcError<RaftError<u64>>> {
        let body = wire::encode_append(self.target, &rpc);
        let answer = self.call(&APPEND, body, option.hard_ttl()).await.map_err(rpc_error)?;
        Ok(wire::decode_appended(&answer).map_err(nonsense)?)
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, RpcError<RaftError<u64>>> {
        let body = wire::encode_vote(self.target, &rpc);
        let answer = self.call(&VOTE, body, option.hard_ttl()).await.map_err(rpc_error)?;
        Ok(wire::decode_voted(&answer).map_err(nonsense)?)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<TypeConfig>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<TypeConfig, Fatal<u64>>> {
        let address = self.book.address(self.target, &self.address);
        let Some(peers) = &self.peers else {
            return Err(Unreachable::new(&alone(address)).into());
        };
        let (file, length) = snapshot.snapshot.contents().map_err(|e| {
            let id = snapshot.meta.signature();
            let cannot = openraft::StorageIOError::read_snapshot(Some(id), AnyError::new(&e));
            StreamingError::StorageError(cannot.into())
        })?;
        let head = SnapshotHead { vote, length, meta: snapshot.meta.clone() };
        let head = wire::encode_snapshot(self.target, &head).into();
        let within = SNAPSHOT_WITHIN + Duration::from_secs(length >> 20);
        let sent = tokio::select! {
            closed = cancel => return Err(closed.into()),
            sent = peers.call_streaming(&address, &SNAPSHOT, head, file, length, within) => sent,
        };
        self.note(&sent);
        let answer = sent.map_err(|e| match e {
            PeerError::Unreachable { .. } | PeerError::Refused { .. } => {
                StreamingError::Unreachable(Unreachable::new(&e))
            }
            PeerError::Unknown { .. } => StreamingError::Network(NetworkError::new(&e)),
        })?;
        Ok(SnapshotResponse::new(wire::decode_installed(&answer).map_err(nonsense)?))
    }

    fn backoff(&self) -> Backoff {
        let last = PAUSES_MS[PAUSES_MS.len() - 1];
        let pauses = PAUSES_MS.into_iter().chain(std::iter::repeat(last));
        Backoff::new(pauses.map(|ms| Duration::from_millis(ms / 2 + clock::random_u64() % (ms / 2))))
    }
}

/// Answers the other members' calls with `raft`.
pub(super) fn answer(raft: &Raft<TypeConfig>, peers: &Peers, book: &Arc<Book>, me: u64, tasks: &Tasks) {
    let (appending, voting, installing) = (raft.clone(), raft.clone(), raft.clone());
    let heard = book.clone();
    peers.handle(APPEND, move |_from, body| {
        let (raft, book) = (appending.clone(), heard.clone());
        async move {
            let rpc = wire::decode_append(me, &body).map_err(malformed)?;
            book.heard(rpc.vote.leader_id.node_id);
            let answer = raft.append_entries(rpc).await.map_err(failed)?;
            Ok(wire::encode_appended(&answer).into())
        }
    });
    peers.handle(VOTE, move |_from, body| {
        let raft = voting.clone();
        async move {
            let rpc = wire::decode_vote(me, &body).map_err(malformed)?;
            let answer = raft.vote(rpc).await.map_err(failed)?;
            Ok(wire::encode_voted(&answer).into())
        }
    });
    let (one, tasks) = (Arc::new(Mutex::new(())), tasks.clone());
    peers.handle_streaming(SNAPSHOT, move |_from, body| {
        let (raft, one, tasks) = (installing.clone(), one.clone(), tasks.clone());
        async move {
            let busy = |_e| Refusal::new(RefusalCode::Busy, "another snapshot is being received");
            let _one = one.try_lock().map_err(busy)?;
            install(&raft, body, me, &tasks).await
        }
    });
}

async fn install(raft: &Raft<TypeConfig>, body: Incoming, me: u64, tasks: &Tasks) -> Result<Bytes, Refusal> {
    let mut body = Body { body, have: Bytes::new() };
    let length = body.exactly(4).await?;
    let length = length.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
    if length > HEAD_MAX {
        return Err(malformed(format!("a head of {length} bytes")));
    }
    let SnapshotHead { vote, length, meta } =
        wire::decode_snapshot(me, &body.exactly(length).await?).map_err(malformed)?;
    let known = raft.server_metrics().borrow().vote;
    if known > vote {
        // Of a leader that is none any more: it need not send the rest.
        return Ok(wire::encode_installed(&known).into());
    }
    let file = raft.begin_receiving_snapshot().await.map_err(failed)?;
    let file = receive(&mut body, file, length, tasks).await?;
    let snapshot = Snapshot { meta, snapshot: file };
    let answer = raft.install_full_snapshot(vote, snapshot).await.map_err(failed)?;
    Ok(wire::encode_installed(&answer.vote).into())
}

/// Fills the file, and checks that all of it came as it was sent.
async fn receive(
    body: &mut Body,
    mut file: Box<SnapshotFile>,
    length: u64,
    tasks: &Tasks,
) -> Result<Box<SnapshotFile>, Refusal> {
    let (mut left, mut crc) = (length, 0);
    while left > 0 {
        let piece = body.at_most(usize::try_from(left).unwrap_or(usize::MAX)).await?;
        left -= piece.len() as u64;
        crc = crc32c::crc32c_append(crc, &piece);
        let write = move || file.extend(&piece).map(|()| file);
        file = tasks.blocking(write).await.map_err(failed)?.map_err(failed)?;
    }
    if *body.exactly(4).await? != crc.to_le_bytes() {
        return Err(malformed("its checksum does not match".to_owned()));
    }
    Ok(file)
}

/// A body read by length.
struct Body {
    body: Incoming,
    have: Bytes,
}

impl Body {
    /// At least one byte.
    async fn at_most(&mut self, most: usize) -> Result<Bytes, Refusal> {
        if self.have.is_empty() {
            let next = self.body.next().await?;
            self.have = next.ok_or_else(|| malformed("it ends too early".to_owned()))?;
        }
        Ok(self.have.split_to(most.min(self.have.len())))
    }

    async fn exactly(&mut self, length: usize) -> Result<Vec<u8>, Refusal> {
        let mut all = Vec::new();
        while all.len() < length {
            all.extend(self.at_most(length - all.len()).await?);
        }
        Ok(all)
    }
}

fn malformed(why: String) -> Refusal {
    Refusal::new(RefusalCode::Malformed, why)
}

fn failed(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalCode::Failed, why.to_string())
}
