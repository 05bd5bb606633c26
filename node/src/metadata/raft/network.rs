//! Where calls to other members of the log will go.
//!
//! There is no peer protocol yet: every call answers that the member cannot be reached. A log of one voter makes none.
//! A snapshot is handed over as a file (`SnapshotFile`), so that sending one streams it. Called by openraft only.

use std::future::Future;
use std::io;

use openraft::error::{Fatal, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend, RaftNetwork, RaftNetworkFactory, Snapshot};

use super::{TypeConfig, Vote};

/// Makes connections to members.
pub(super) struct Network;

/// A connection to one member.
pub(super) struct Peer {
    target: u64,
    address: String,
}

impl Peer {
    fn unreachable(&self) -> Unreachable {
        let Self { target, address } = self;
        let why =
            format!("raft id {target} at {address:?}: this build has no peer protocol for the metadata log");
        Unreachable::new(&io::Error::new(io::ErrorKind::Unsupported, why))
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        Peer { target, address: node.addr.clone() }
    }
}

impl RaftNetwork<TypeConfig> for Peer {
    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        Err(self.unreachable().into())
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<u64>,
        _option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        Err(self.unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: Snapshot<TypeConfig>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<TypeConfig, Fatal<u64>>> {
        Err(self.unreachable().into())
    }
}
