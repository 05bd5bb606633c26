//! A cluster of metadata logs in one process, each with a folder, a listener and tasks of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinHandle;
use weir_api::{ClusterUid, NodeEpoch, NodeId, Nonce, RaftId, SessionId, Slots};

use super::super::{create, spawn};
use crate::clock::{self, Clock};
use crate::metadata::command::{Answer, Command, Registration};
use crate::metadata::{Metadata, MetadataConfig, ProposeError, join};
use crate::net;
use crate::peers::{self, Peers};
use crate::tasks::Tasks;

/// For conditions that must come about, on a machine with other things to do.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
const CLUSTER: ClusterUid = ClusterUid(77);

/// A node of the cluster.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) name: NodeId,
    pub(super) raft_id: RaftId,
    pub(super) metadata: Metadata,
    pub(super) peers: Peers,
    pub(super) address: String,
    tasks: Tasks,
}

pub(super) struct Cluster {
    root: TempDir,
    /// By number; `None` while stopped.
    pub(super) nodes: Vec<Option<Node>>,
    raft_ids: Vec<RaftId>,
    epoch: u64,
    pub(super) tune: fn(&mut MetadataConfig),
}

impl Cluster {
    /// A founder and `n - 1` others, registered, with all the voters there should be.
    pub(super) async fn of(n: usize, tune: fn(&mut MetadataConfig)) -> Self {
        let mut this = Self { tune, ..Self::unfounded() };
        this.found(u32::try_from(n).unwrap()).await;
        for _ in 1..n {
            this.add().await;
        }
        this.voters_are_together().await;
        this
    }

    /// Nothing yet.
    pub(super) fn unfounded() -> Self {
        let root = tempfile::tempdir().unwrap();
        Self { root, nodes: Vec::new(), raft_ids: Vec::new(), epoch: 0, tune: |_| {} }
    }

    /// Puts the folder that the stopped node had under this raft id in the place of the one it has.
    pub(super) fn exchange_folder(&mut self, i: usize, raft_id: RaftId) {
        let folder = self.folder(i);
        let aside = |id: RaftId| folder.with_extension(format!("left-{id}"));
        std::fs::rename(&folder, aside(self.raft_ids[i])).unwrap();
        std::fs::rename(aside(raft_id), &folder).unwrap();
        self.raft_ids[i] = raft_id;
    }

    pub(super) async fn found(&mut self, size: u32) {
        self.nodes.push(None);
        self.raft_ids.push(RaftId(1));
        self.start_as(0, true).await;
        let found = Command::Found { uid: CLUSTER, identity: None, size };
        self.node(0).metadata.propose_founding(found).await.unwrap();
        self.register(0).await;
    }

    /// One more node: joins, catches up, registers.
    pub(super) async fn add(&mut self) -> usize {
        let i = self.nodes.len();
        self.nodes.push(None);
        self.raft_ids.push(RaftId(0));
        self.rejoin(i).await;
        i
    }

    /// The node joins with an empty folder.
    pub(super) async fn rejoin(&mut self, i: usize) {
        let folder = self.folder(i);
        if folder.exists() {
            std::fs::rename(&folder, folder.with_extension(format!("left-{}", self.raft_ids[i]))).unwrap();
        }
        let tasks = Tasks::default();
        let peers = Peers::new(name(i), 0, None, &tasks);
        let nonce = clock::random_nonce();
        let seeds = self.addresses();
        let joined = tokio::time::timeout(PATIENCE, async {
            loop {
                match join(&peers, &seeds, nonce).await {
                    Ok(joined) => return joined,
                    Err(_troubles) => tokio::task::yield_now().await,
                }
            }
        });
        let joined = joined.await.unwrap();
        assert_eq!(joined.cluster, CLUSTER);
        assert_eq!(
            join(&peers, &seeds, nonce).await.map(|j| j.raft_id).unwrap_or(joined.raft_id),
            joined.raft_id
        );
        tasks.stop().await;
        self.raft_ids[i] = joined.raft_id;
        self.start(i).await;
        self.register(i).await;
    }

    fn folder(&self, i: usize) -> std::path::PathBuf {
        self.root.path().join(format!("node-{i}"))
    }

    /// Where those that run listen.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.running().map(|node| node.address.clone()).collect()
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().flatten()
    }

    pub(super) fn node(&self, i: usize) -> &Node {
        self.nodes[i].as_ref().unwrap()
    }

    /// Starts a node where it was, at an address that nobody knows yet, and waits until it takes part.
    pub(super) async fn start(&mut self, i: usize) {
        self.start_as(i, false).await;
        let settled = tokio::time::timeout(PATIENCE, self.node(i).metadata.settled());
        settled.await.unwrap_or_else(|_| panic!("node {i} never took part")).unwrap();
    }

    pub(super) async fn start_as(&mut self, i: usize, found: bool) {
        let tasks = Tasks::default();
        let (name, raft_id) = (name(i), self.raft_ids[i]);
        let peers = Peers::new(name.clone(), 0, None, &tasks);
        peers.set_cluster(Some(CLUSTER));
        let listener = net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tasks.spawn_vital("peers", peers::serve(listener, peers.clone()));
        let mut cfg = MetadataConfig {
            peers: Some(peers.clone()),
            peer_address: address.clone(),
            seeds: self.addresses(),
            heartbeat: Duration::from_millis(150),
            election_timeout: (Duration::from_millis(500), Duration::from_millis(900)),
            tend_every: Duration::from_millis(50),
            leader_wait: PATIENCE,
            ..MetadataConfig::new(self.folder(i), raft_id, found)
        };
        (self.tune)(&mut cfg);
        let metadata = Metadata::start(cfg, &tasks, &Clock::default()).await.unwrap();
        self.nodes[i] = Some(Node { name, raft_id, metadata, peers, address, tasks });
    }

    pub(super) async fn register(&mut self, i: usize) {
        self.epoch += 1;
        let session = SessionId { node: name(i), epoch: NodeEpoch(self.epoch) };
        let node = self.node(i);
        let registration = Registration {
            session: session.clone(),
            nonce: Nonce(self.epoch.into()),
            incarnation: format!("i{}", self.epoch).parse().unwrap(),
            raft_id: node.raft_id,
            boot_id: None,
            http_url: "http://127.0.0.1:1".into(),
            peer_address: node.address.clone(),
            slots: Slots::ONE,
            formats: (1, 1),
        };
        let answer = node.metadata.propose_founding(Command::Register(registration)).await.unwrap();
        assert!(matches!(answer, Answer::Registered { .. }), "{answer:?}");
        node.metadata.begin_session(session);
    }

    pub(super) async fn stop(&mut self, i: usize) {
        self.nodes[i].take().unwrap().stop().await;
    }

    /// Cuts the node off first, so that it cannot say good-bye.
    pub(super) async fn kill(&mut self, i: usize) {
        self.node(i).peers.cut(true);
        self.stop(i).await;
    }

    pub(super) async fn stop_all(mut self) {
        for i in 0..self.nodes.len() {
            if self.nodes[i].is_some() {
                self.stop(i).await;
            }
        }
    }

    /// Who leads, once one of those that run and are not cut off says that it does.
    pub(super) async fn leader(&self) -> usize {
        let leader = || self.nodes.iter().position(|node| node.as_ref().is_some_and(Node::leads));
        until("somebody leads", || leader().is_some()).await;
        leader().unwrap_or(0)
    }

    /// Another node than the leader.
    pub(super) async fn follower(&self) -> usize {
        let leader = self.leader().await;
        (0..self.nodes.len()).find(|i| *i != leader && self.nodes[*i].is_some()).unwrap()
    }

    pub(super) async fn voters_are_together(&self) {
        let registered = self.nodes.len();
        let wanted = crate::metadata::raft::membership::voter_target(3, registered);
        until("the voters are together", || self.voters().len() == wanted).await;
        let know = || self.running().all(|node| node.metadata.unformed().is_none());
        until("all know that", || self.running().count() < 3 || know()).await;
    }

    /// The voters by raft id, as the leader sees them.
    pub(super) fn voters(&self) -> BTreeSet<u64> {
        let leader = self.running().find(|node| node.leads());
        let members = leader.map(|node| node.metadata.members()).unwrap_or_default();
        members.into_iter().filter(|m| m.voter).map(|m| m.raft_id.0).collect()
    }

    /// Every running node has the state of all others.
    pub(super) async fn are_alike(&self) {
        let last = || self.running().map(|node| node.metadata.stats().last_log).max();
        let alike = || {
            let last = last();
            self.running().all(|node| Some(node.metadata.stats().applied) == last)
        };
        until("all have applied the same", alike).await;
        let mut hashes = BTreeSet::new();
        for node in self.running() {
            let (state, _) = node.metadata.snapshot();
            hashes.insert(crate::metadata::codec::state_hash(&state));
        }
        assert_eq!(hashes.len(), 1, "nodes differ");
    }
}

impl Node {
    pub(super) fn leads(&self) -> bool {
        self.metadata.leadership().borrow().me
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.metadata.read(|s| s.names.contains_key(name))
    }

    pub(super) fn streams(&self) -> usize {
        self.metadata.read(|s| s.names.len())
    }

    pub(super) async fn create(&self, name: &str) -> Result<Answer, ProposeError> {
        self.metadata.propose(create(name)).await
    }

    pub(super) async fn stop(self) {
        self.metadata.stop().await;
        self.tasks.stop().await;
    }
}

pub(super) fn name(i: usize) -> NodeId {
    format!("n-{i}").parse().unwrap()
}

/// Waits for a condition that others bring about.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Creates streams through one node, one after the other, until told to stop.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Vec<String>>>,
    done: Arc<std::sync::atomic::AtomicUsize>,
}

impl Load {
    /// Load through each of these nodes. Each name is new, so that each answer says whether it was applied once: a
    /// second time it would be there already.
    pub(super) fn through(nodes: impl IntoIterator<Item = Node>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::<std::sync::atomic::AtomicUsize>::default();
        let mut tasks = Vec::new();
        let load = clock::random_u64();
        for node in nodes {
            for lane in 0..3 {
                let (node, stop, done) = (node.clone(), stop.clone(), done.clone());
                tasks.push(spawn(async move {
                    let mut created = Vec::new();
                    while !stop.load(Ordering::SeqCst) {
                        let name = format!("{load:x}-{}-{lane}-{}", node.name, created.len());
                        match node.create(&name).await {
                            Ok(Answer::Created { .. }) => {
                                assert!(node.has(&name), "{name} is answered and not in the view");
                                created.push(name);
                                done.fetch_add(1, Ordering::SeqCst);
                            }
                            other => panic!("{name}: {other:?}"),
                        }
                    }
                    created
                }));
            }
        }
        Self { stop, tasks, done }
    }

    /// Waits until so many more were created.
    pub(super) async fn goes_on(&self, more: usize) {
        let from = self.done.load(Ordering::SeqCst);
        let broken = || self.tasks.iter().any(JoinHandle::is_finished);
        until("the load goes on", || broken() || self.done.load(Ordering::SeqCst) >= from + more).await;
        assert!(!broken(), "a command did not come to its outcome");
    }

    /// What was created.
    pub(super) async fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        let mut created = Vec::new();
        for task in self.tasks {
            created
                .extend(tokio::time::timeout(PATIENCE, task).await.expect("its last command hangs").unwrap());
        }
        created
    }
}
