//! How members find each other: joining, and saying where one is.
//!
//! Invariant: a directory has one raft id, given by the log for its nonce, however often it asks; who has left the log for
//! good is told so by every member that knows and is never admitted. An announcement changes nothing but hints: the leader
//! decides about membership. A voter that reaches no majority does not ask for votes: it could not win, and its term would
//! unseat a good leader once it is back. `join` is called by `joining` before there is a log here; the rest is one task of
//! `metadata` and what it answers others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use weir_api::{ClusterUid, NodeId, Nonce, RaftId};

use super::command::{Answer, Command};
use super::raft::membership::{self, Standing};
use super::{Metadata, MetadataConfig};
use crate::clock;
use crate::peers::{Call, PeerError, Peers, Refusal, RefusalCode};

const JOIN: Call = Call::new("log/join").bounded(4 << 10, 4 << 10).for_strangers();
const ANNOUNCE: Call = Call::new("log/announce").bounded(4 << 10, 4 << 10);
/// What this file answers.
pub(super) const CALLS: [Call; 2] = [JOIN, ANNOUNCE];

/// For one request to join: it takes an entry in the log.
const JOIN_WITHIN: Duration = Duration::from_secs(15);
/// For one announcement, and for passing it on.
const ANNOUNCE_WITHIN: Duration = Duration::from_secs(3);
const RELAY_WITHIN: Duration = Duration::from_secs(2);
/// The pause between two rounds, drawn between half and all of it.
const PAUSE_MS: u64 = 500;
/// How often a member that hears its leader looks whether it still does.
const LOOK: Duration = Duration::from_millis(250);
/// Who has heard its leader within this hears it. Several heartbeats long, and shorter than the silence after which a
/// voter asks for votes.
const HEARS: Duration = Duration::from_secs(1);
/// Nodes that may wait to be members.
const ASKING: usize = 1024;

const VERSION: u8 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct JoinAsk {
    nonce: Nonce,
}

/// What joining gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The cluster.
    pub cluster: ClusterUid,
    /// This directory's number in its log.
    pub raft_id: RaftId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Announcement {
    raft_id: RaftId,
    node: NodeId,
    address: String,
    /// Who is told passes it on to the leader.
    relay: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Heard {
    /// Heard. Whether the sender is a member shows in the log.
    Heard,
    /// The raft id has left the log for good.
    Left,
}

/// This directory's raft id has left the log: it must be set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("raft id {0} has left the metadata log for good")]
pub struct LeftLog(pub RaftId);

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

/// Asks the nodes at `seeds`, in turn, for a raft id under `nonce`. One round: the error says, by seed, why there is none.
pub async fn join(peers: &Peers, seeds: &[String], nonce: Nonce) -> Result<Joined, Vec<PeerError>> {
    let mut troubles = Vec::new();
    for seed in seeds {
        match peers.call(seed, &JOIN, encode(&JoinAsk { nonce }), JOIN_WITHIN).await {
            Ok(answer) => match decode(&answer) {
                Ok(joined) => return Ok(joined),
                Err(why) => {
                    let refusal = Refusal::new(RefusalCode::Malformed, format!("its answer: {why}"));
                    troubles.push(PeerError::Refused { address: seed.clone(), refusal });
                }
            },
            Err(e) => troubles.push(e),
        }
    }
    Err(troubles)
}

/// Who asks to be a member, as the leader has heard.
#[derive(Clone, Default)]
pub(super) struct Asking {
    nodes: Arc<Mutex<BTreeMap<u64, (NodeId, String)>>>,
    news: Arc<Notify>,
}

impl Asking {
    fn ask(&self, id: u64, node: NodeId, address: String) {
        let mut nodes = self.nodes.lock();
        if nodes.len() < ASKING || nodes.contains_key(&id) {
            nodes.insert(id, (node, address));
            self.news.notify_one();
        }
    }

    pub(super) fn forget(&self, id: u64) {
        self.nodes.lock().remove(&id);
    }

    /// Raft id, node, address of each.
    pub(super) fn all(&self) -> Vec<(u64, NodeId, String)> {
        let nodes = self.nodes.lock();
        nodes.iter().map(|(id, (node, address))| (*id, node.clone(), address.clone())).collect()
    }

    pub(super) async fn news(&self) {
        self.news.notified().await;
    }
}

/// Answers the calls of this file.
pub(super) fn answer(metadata: &Metadata, peers: &Peers) -> Asking {
    let asking = Asking::default();
    let (joining, cluster) = (metadata.clone(), peers.clone());
    peers.handle(JOIN, move |from, body| {
        let (metadata, peers) = (joining.clone(), cluster.clone());
        async move {
            let malformed = |why| Refusal::new(RefusalCode::Malformed, why);
            let JoinAsk { nonce } = decode(&body).map_err(malformed)?;
            let not_ready = |why: String| Refusal::new(RefusalCode::NotReady, why);
            let cluster = peers.cluster().ok_or_else(|| not_ready("of no cluster yet".to_owned()))?;
            let answer = metadata.propose_founding(Command::AllocateRaftId { nonce }).await;
            match answer.map_err(|e| not_ready(e.to_string()))? {
                Answer::RaftId(raft_id) => {
                    tracing::info!(%from, %raft_id, "a data directory joins the metadata log");
                    Ok(encode(&Joined { cluster, raft_id }))
                }
                other => Err(Refusal::new(RefusalCode::Failed, format!("unexpected answer {other:?}"))),
            }
        }
    });
    let (hearing, asked, onward) = (metadata.clone(), asking.clone(), peers.clone());
    peers.handle(ANNOUNCE, move |_from, body| {
        let (metadata, asking, peers) = (hearing.clone(), asked.clone(), onward.clone());
        async move {
            let malformed = |why| Refusal::new(RefusalCode::Malformed, why);
            let announcement = decode(&body).map_err(malformed)?;
            Ok(encode(&hear(&metadata, &asking, &peers, announcement).await))
        }
    });
    asking
}

async fn hear(metadata: &Metadata, asking: &Asking, peers: &Peers, said: Announcement) -> Heard {
    let Announcement { raft_id, node, address, relay } = &said;
    match metadata.read(|state| membership::standing(state, *raft_id, Some(node))) {
        Standing::Gone => return Heard::Left,
        Standing::New | Standing::Registered(_) | Standing::Unknown => {}
    }
    let log = &metadata.shared.log;
    log.announced(raft_id.0, address);
    let leadership = *metadata.shared.leadership.borrow();
    if leadership.me {
        if !log.members().iter().any(|m| m.raft_id == *raft_id) {
            asking.ask(raft_id.0, node.clone(), address.clone());
        }
        return Heard::Heard;
    }
    let leader = leadership.leader.filter(|l| *relay && l != raft_id).and_then(|l| log.address_of(l.0));
    let Some(leader) = leader else { return Heard::Heard };
    let said = encode(&Announcement { relay: false, ..said.clone() });
    match peers.call(&leader, &ANNOUNCE, said, RELAY_WITHIN).await {
        Ok(heard) => decode(&heard).unwrap_or(Heard::Heard),
        // The sender says it again.
        Err(_) => Heard::Heard,
    }
}

/// Says where this node is until its leader and the membership know.
pub(super) struct Announcer {
    pub(super) metadata: Metadata,
    pub(super) peers: Peers,
    pub(super) cfg: MetadataConfig,
    /// Set once the others say that this raft id has left.
    pub(super) left: watch::Sender<bool>,
}

impl Announcer {
    /// Runs until `closing`, or until this raft id has left.
    pub(super) async fn run(self, closing: CancellationToken) {
        loop {
            let round = async {
                if is_content(&self.metadata) && self.is_recorded() {
                    self.metadata.shared.log.allow_elections(true);
                    tokio::time::sleep(LOOK).await;
                    return false;
                }
                let left = self.announce().await;
                let pause = PAUSE_MS / 2 + clock::random_u64() % (PAUSE_MS / 2);
                tokio::time::sleep(Duration::from_millis(pause)).await;
                left
            };
            tokio::select! {
                () = closing.cancelled() => return,
                left = round => if left {
                    self.left.send_replace(true);
                    return closing.cancelled().await;
                },
            }
        }
    }

    /// The membership has this node where it is.
    fn is_recorded(&self) -> bool {
        let (log, address) = (&self.metadata.shared.log, &self.cfg.peer_address);
        log.members().iter().any(|m| m.raft_id.0 == log.me() && m.address == *address)
    }

    /// Tells all that may listen. `true` if one says that this raft id has left.
    async fn announce(&self) -> bool {
        let log = &self.metadata.shared.log;
        let members: Vec<_> = log.members().into_iter().filter(|m| m.raft_id.0 != log.me()).collect();
        let mut targets: BTreeSet<String> =
            members.iter().filter_map(|m| log.address_of(m.raft_id.0)).collect();
        targets.extend(self.cfg.seeds.iter().cloned());
        targets.remove(&self.cfg.peer_address);
        let (raft_id, address) = (RaftId(log.me()), self.cfg.peer_address.clone());
        let said = encode(&Announcement { raft_id, node: self.peers.node().clone(), address, relay: true });
        let calls =
            targets.iter().map(|target| self.peers.call(target, &ANNOUNCE, said.clone(), ANNOUNCE_WITHIN));
        let answers = futures::future::join_all(calls).await;
        // Whoever answers, even with a refusal, is there; a seed may be a voter that has moved.
        let there = answers.iter().filter(|a| matches!(a, Ok(_) | Err(PeerError::Refused { .. }))).count();
        let voters = members.iter().filter(|m| m.voter).count() + 1;
        log.allow_elections((there + 1) * 2 > voters);
        answers.into_iter().flatten().any(|answer| decode::<Heard>(&answer) == Ok(Heard::Left))
    }
}

/// This node leads, or it is a member and hears its leader.
fn is_content(metadata: &Metadata) -> bool {
    let log = &metadata.shared.log;
    let leadership = *metadata.shared.leadership.borrow();
    let hears =
        || leadership.leader.and_then(|l| log.last_heard(l.0)).is_some_and(|heard| heard.elapsed() < HEARS);
    leadership.me || (log.members().iter().any(|m| m.raft_id.0 == log.me()) && hears())
}

/// Waits until this node takes part in the log and hears its leader, or is told that it must not.
pub(super) async fn settled(metadata: &Metadata) -> Result<(), LeftLog> {
    if metadata.shared.peers.is_none() {
        return Ok(());
    }
    let content = async {
        while !is_content(metadata) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        left = metadata.left() => Err(left),
        () = content => Ok(()),
    }
}
