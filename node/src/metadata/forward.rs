//! Proposals and read indexes of nodes that do not lead, at the leader and on the way there.
//!
//! Invariant: what a leader takes for others is bounded by bytes, by commands, and by sender; who cannot be served is told
//! whether the proposal surely did not enter. The leader stamps an entry's time, never below the state's. Called by
//! the proposer and by `reads`; the answering half is registered with `peers` by `metadata`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use weir_api::NodeId;

use super::command::{Batch, Outcome};
use super::proposer::{ENTRY_COMMANDS, ENTRY_MAX};
use super::raft::{Log, SubmitError};
use super::reads::ReadAsk;
use super::{Leadership, codec};
use crate::clock::Clock;
use crate::peers::{Call, PeerError, Peers, Refusal, RefusalCode};

/// An entry's commands with their envelopes. Its answers may say of every item of every command why it was refused: an
/// answer that does not fit would never fit, so the bound is one that no entry reaches.
const PROPOSE: Call = Call::new("log/propose").bounded(ENTRY_MAX + (ENTRY_MAX >> 1), 128 << 20);
const READ_INDEX: Call = Call::new("log/read-index").bounded(16, 4 << 10);
const ELECT: Call = Call::new("log/elect").bounded(16, 4 << 10);
/// What this file answers.
pub(super) const CALLS: [Call; 3] = [PROPOSE, READ_INDEX, ELECT];

/// How long a leader may take for an entry of another node; the node tries again then, under the same numbers.
const PROPOSE_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of others' entries under way at the leader.
const UNDER_WAY: usize = 24 << 20;
/// Entries of one node under way: its own one, and what it gave up waiting for.
const PER_NODE: usize = 4;

const VERSION: u8 = 1;

/// What became of a proposal, as the asked node says.
#[derive(Debug, Serialize, Deserialize)]
enum Proposed {
    /// Applied at this index.
    Done { index: u64, outcomes: Vec<Outcome> },
    /// Not entered: the asked node does not lead.
    NotLeading,
    /// The asked node has lost sight of it.
    Perhaps,
}

/// The leader's word on a read index.
#[derive(Debug, Serialize, Deserialize)]
enum Confirmed {
    Index(u64),
    No(String),
}

/// Why an entry has no outcomes (yet).
#[derive(Debug)]
pub(super) enum Failed {
    /// This attempt surely put nothing into the log.
    NotEntered(String),
    /// It may have.
    Perhaps(String),
}

fn encode(message: &impl Serialize) -> bytes::Bytes {
    postcard::to_extend(message, vec![VERSION]).expect("plain values in memory always encode").into()
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match bytes.split_first() {
        Some((&VERSION, body)) => postcard::from_bytes(body).map_err(|e| e.to_string()),
        Some((version, _)) => Err(format!("version {version} is not {VERSION}, the one this build reads")),
        None => Err("there are no bytes".to_owned()),
    }
}

/// Puts an entry before the node `leader`. Its index and what its commands came to.
pub(super) async fn propose(
    log: &Log,
    peers: &Peers,
    leader: u64,
    batch: &Batch,
) -> Result<(u64, Vec<Outcome>), Failed> {
    let Some(address) = log.address_of(leader) else {
        return Err(Failed::NotEntered(format!("raft id {leader} leads and is no member this node knows")));
    };
    let body = codec::encode_batch(batch, log.format()).into();
    let answer =
        peers.call(&address, &PROPOSE, body, PROPOSE_WITHIN).await.map_err(|e| match e.is_definite() {
            true => Failed::NotEntered(e.to_string()),
            false => Failed::Perhaps(e.to_string()),
        })?;
    match decode(&answer).map_err(Failed::Perhaps)? {
        Proposed::Done { index, outcomes } => Ok((index, outcomes)),
        Proposed::NotLeading => Err(Failed::NotEntered(format!("{address} does not lead"))),
        Proposed::Perhaps => Err(Failed::Perhaps(format!("{address} has lost its leadership"))),
    }
}

/// Asks the node `leader` for a read index.
pub(super) async fn read_index(
    log: &Log,
    peers: &Peers,
    leader: u64,
    within: Duration,
) -> Result<u64, String> {
    let address = log.address_of(leader).ok_or_else(|| format!("raft id {leader} is no member"))?;
    let answer = peers.call(&address, &READ_INDEX, encode(&()), within).await.map_err(|e| e.to_string())?;
    match decode(&answer)? {
        Confirmed::Index(index) => Ok(index),
        Confirmed::No(why) => Err(format!("{address}: {why}")),
    }
}

/// Asks a voter to take the leadership.
pub(super) async fn elect(peers: &Peers, address: &str, within: Duration) -> Result<(), PeerError> {
    peers.call(address, &ELECT, encode(&()), within).await.map(drop)
}

/// What a leader does for others.
#[derive(Clone)]
pub(super) struct Leader {
    pub(super) log: Log,
    pub(super) clock: Clock,
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) reads: mpsc::Sender<ReadAsk>,
}

impl Leader {
    /// Answers the calls of this file.
    pub(super) fn answer(self, peers: &Peers) {
        let bytes = Arc::new(Semaphore::new(UNDER_WAY));
        let senders: Senders = Arc::default();
        let (proposing, reading, log) = (self.clone(), self.clone(), self.log.clone());
        peers.handle(PROPOSE, move |from, body| {
            let (this, bytes, senders) = (proposing.clone(), bytes.clone(), senders.clone());
            async move {
                let busy = |what: &str| Refusal::new(RefusalCode::Busy, what.to_owned());
                let size = u32::try_from(body.len()).unwrap_or(u32::MAX);
                let _room =
                    bytes.try_acquire_many(size).map_err(|_e| busy("too many proposals are under way"))?;
                let _place = Place::take(&senders, &from)
                    .ok_or_else(|| busy("this node has too many proposals under way"))?;
                this.propose(&body).await
            }
        });
        peers.handle(READ_INDEX, move |_from, _body| {
            let this = reading.clone();
            async move { Ok(encode(&this.read_index().await)) }
        });
        peers.handle(ELECT, move |from, _body| {
            let log = log.clone();
            async move {
                tracing::info!(%from, "the leader of the metadata log hands over to this node");
                log.elect().await.map_err(|why| Refusal::new(RefusalCode::Failed, why))?;
                Ok(encode(&()))
            }
        });
    }

    fn leads(&self) -> bool {
        self.leadership.borrow().me && !self.log.is_yielding()
    }

    async fn propose(&self, body: &[u8]) -> Result<bytes::Bytes, Refusal> {
        if !self.leads() {
            return Ok(encode(&Proposed::NotLeading));
        }
        let malformed = |why: String| Refusal::new(RefusalCode::Malformed, why);
        let mut batch = codec::decode_batch(body).map_err(|e| malformed(e.to_string()))?;
        if batch.commands.len() > ENTRY_COMMANDS {
            return Err(malformed(format!("{} commands, at most {ENTRY_COMMANDS}", batch.commands.len())));
        }
        batch.time_ms = stamp(&self.log, &self.clock);
        let submitted = match self.log.submit(codec::encode_batch(&batch, self.log.format())).await {
            Ok(submitted) => submitted.outcomes().await,
            Err(SubmitError::NotLeading | SubmitError::Stopped) => return Ok(encode(&Proposed::Perhaps)),
        };
        Ok(encode(&match submitted {
            Ok((index, outcomes)) => Proposed::Done { index, outcomes },
            Err(SubmitError::NotLeading | SubmitError::Stopped) => Proposed::Perhaps,
        }))
    }

    async fn read_index(&self) -> Confirmed {
        if !self.leads() {
            return Confirmed::No("this node does not lead".to_owned());
        }
        let (reply, index) = oneshot::channel();
        if self.reads.try_send(ReadAsk { reply, of_peer: true }).is_err() {
            return Confirmed::No("too many reads wait".to_owned());
        }
        match index.await {
            Ok(Ok(index)) => Confirmed::Index(index),
            Ok(Err(why)) => Confirmed::No(why),
            Err(_gone) => Confirmed::No("the metadata log has stopped".to_owned()),
        }
    }
}

/// An entry's time: this node's clock, never below what the state has seen.
pub(super) fn stamp(log: &Log, clock: &Clock) -> u64 {
    clock.wall_ms().max(log.read(|state| state.time_ms))
}

type Senders = Arc<Mutex<HashMap<NodeId, usize>>>;

/// One of a node's places at the leader.
struct Place {
    senders: Senders,
    node: NodeId,
}

impl Place {
    fn take(senders: &Senders, node: &NodeId) -> Option<Self> {
        let mut counts = senders.lock();
        let count = counts.entry(node.clone()).or_default();
        if *count >= PER_NODE {
            return None;
        }
        *count += 1;
        Some(Self { senders: senders.clone(), node: node.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.senders.lock();
        if let Some(count) = counts.get_mut(&self.node) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.node);
            }
        }
    }
}
