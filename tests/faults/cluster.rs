//! Nodes as processes over one bucket, each behind gates of its own: for clients, for its peers, and to the bucket.
//!
//! Addresses stay the same across restarts, so that clients, seeds and other nodes find a node again.

use std::fs;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::client::Client;
use weir_tests::files::Scratch;
use weir_tests::gate::Gate;
use weir_tests::node::{Node, PATIENCE, Setup};
use weir_tests::rng::{Rng, seed};
use weir_tests::s3::FakeS3;
use weir_tests::{wait, wal};

/// Whether this is the long run, with the time-outs that users have.
pub(crate) fn soaking() -> bool {
    std::env::var_os("WEIR_SOAK").is_some()
}

/// `--node-timeout` here.
pub(crate) fn node_timeout() -> Duration {
    Duration::from_secs(if soaking() { 10 } else { 5 })
}

/// One node's place in the cluster.
struct Place {
    node: Option<Node>,
    clients: Gate,
    peers: Gate,
    bucket: Gate,
    flags: Vec<(String, String)>,
    env: Vec<(String, String)>,
}

pub(crate) struct Cluster {
    pub(crate) scratch: Scratch,
    pub(crate) bucket: FakeS3,
    pub(crate) rng: Rng,
    places: Vec<Place>,
}

impl Cluster {
    /// So many nodes; the first founds, the others join. All are ready.
    pub(crate) async fn start(nodes: usize) -> Result<Self> {
        Self::start_with(nodes, &[]).await
    }

    /// The same with more flags for every node.
    pub(crate) async fn start_with(nodes: usize, flags: &[(&str, &str)]) -> Result<Self> {
        let seed = seed();
        println!("WEIR_SEED={seed}");
        let mut rng = Rng::new(seed);
        let bucket = FakeS3::start(rng.bits()).await;
        bucket.keep_wal();
        let flags: Vec<_> = flags.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let mut places = Vec::new();
        for _ in 0..nodes {
            let way = Gate::start().await;
            way.lead_to(Some(&bucket.address()));
            places.push(Place {
                node: None,
                clients: Gate::start().await,
                peers: Gate::that_knows_who().await,
                bucket: way,
                flags: flags.clone(),
                env: Vec::new(),
            });
        }
        let mut this = Self { scratch: Scratch::new(), bucket, rng, places };
        for i in 0..nodes {
            this.spawn(i).await?;
        }
        for i in 0..nodes {
            this.ready(i).await?;
        }
        Ok(this)
    }

    pub(crate) fn size(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn name(i: usize) -> String {
        format!("node-{i}")
    }

    /// Clients' addresses, by node.
    pub(crate) fn doors(&self) -> Vec<String> {
        self.places.iter().map(|p| p.clients.address.clone()).collect()
    }

    /// How node `i` is started.
    pub(crate) fn setup(&self, i: usize) -> Setup {
        let place = &self.places[i];
        let others = self.places.iter().enumerate().filter(|(k, _)| *k != i);
        let seeds: Vec<_> = others.map(|(_, p)| p.peers.address.clone()).collect();
        let mut setup = self
            .bucket
            .setup(self.scratch.path(&Self::name(i)))
            .env("AWS_ENDPOINT_URL", format!("http://{}", place.bucket.address))
            .flag("node-id", Self::name(i))
            .flag("cluster-size", self.size())
            .flag("peer-advertise", &place.peers.address)
            .flag("routing", "forward")
            .flag("node-timeout", format!("{}s", node_timeout().as_secs()))
            .flag("lease", if soaking() { "5s" } else { "2s" });
        setup = if i == 0 { setup.flag("bootstrap", true) } else { setup.flag("bootstrap", false) };
        setup = setup.flag("join", seeds.join(","));
        for (name, value) in &place.flags {
            setup = setup.flag(name, value);
        }
        for (name, value) in &place.env {
            setup = setup.env(name, value);
        }
        setup
    }

    /// From its next start on node `i` has this flag.
    pub(crate) fn flag(&mut self, i: usize, name: &str, value: impl ToString) {
        self.places[i].flags.retain(|(n, _)| n != name);
        self.places[i].flags.push((name.to_owned(), value.to_string()));
    }

    /// From its next start on node `i` has this environment variable, or none.
    pub(crate) fn env(&mut self, i: usize, name: &str, value: Option<&str>) {
        self.places[i].env.retain(|(n, _)| n != name);
        self.places[i].env.extend(value.map(|v| (name.to_owned(), v.to_owned())));
    }

    /// Starts the process of node `i`; gates lead to it once it listens.
    pub(crate) async fn spawn(&mut self, i: usize) -> Result<()> {
        let node = self.setup(i).spawn()?;
        self.adopt(i, node).await
    }

    /// Starts a process at the place of node `i` that is to refuse to serve, and gives its exit status and what it said.
    pub(crate) async fn refused(&mut self, i: usize, setup: &Setup) -> Result<(ExitStatus, String)> {
        let before = fs::metadata(&setup.log).map_or(0, |m| m.len() as usize);
        // It may well refuse before it listens.
        let mut node = setup.spawn()?;
        if let Ok(addresses) = node.addresses().await {
            self.places[i].peers.lead_to(Some(&addresses.peer));
        }
        let status = node.exit(PATIENCE).await?;
        let said = fs::read(&setup.log)?;
        Ok((status, String::from_utf8_lossy(&said[before.min(said.len())..]).into_owned()))
    }

    /// From now on `node` is the process at the place of node `i`.
    pub(crate) async fn adopt(&mut self, i: usize, mut node: Node) -> Result<()> {
        let addresses = node.addresses().await?;
        let place = &mut self.places[i];
        place.clients.lead_to(Some(&addresses.client));
        place.peers.lead_to(Some(&addresses.peer));
        place.node = Some(node);
        Ok(())
    }

    pub(crate) async fn ready(&mut self, i: usize) -> Result<()> {
        self.node(i).ready(PATIENCE).await.map(drop).with_context(|| Self::name(i))
    }

    /// Starts node `i` again and waits until it is ready.
    pub(crate) async fn restart(&mut self, i: usize) -> Result<()> {
        self.spawn(i).await?;
        self.ready(i).await
    }

    /// The process of node `i`.
    pub(crate) fn node(&mut self, i: usize) -> &mut Node {
        self.places[i].node.as_mut().expect("the scenario has started it")
    }

    /// The process of node `i`, which is somebody else's affair from now on.
    pub(crate) fn take(&mut self, i: usize) -> Node {
        self.places[i].node.take().expect("the scenario has started it")
    }

    /// SIGKILL, and whoever knocks is turned away, as on a machine that is up.
    pub(crate) fn kill(&mut self, i: usize) {
        self.node(i).kill();
        self.places[i].clients.lead_to(None);
        self.places[i].peers.lead_to(None);
    }

    /// The process number of node `i`.
    pub(crate) fn pid(&mut self, i: usize) -> u32 {
        self.node(i).pid().as_raw_nonzero().get().unsigned_abs()
    }

    /// Node `i` does not reach the bucket, or does again.
    pub(crate) fn cut_from_bucket(&self, i: usize, cut: bool) {
        self.places[i].bucket.shut(cut);
    }

    /// Nothing passes between node `i` and the others.
    pub(crate) fn cut_from_peers(&mut self, i: usize) {
        let pid = self.pid(i);
        for (k, place) in self.places.iter().enumerate() {
            if k == i {
                place.peers.shut(true);
            } else {
                place.peers.shut_to([pid]);
            }
        }
    }

    /// Every gate between nodes is open.
    pub(crate) fn heal(&self) {
        for place in &self.places {
            place.peers.shut(false);
            place.peers.shut_to([]);
        }
    }

    /// What a node says on its admin listener.
    pub(crate) async fn asked(&mut self, i: usize, target: &str) -> Result<Value> {
        let admin = self.node(i).admin().await?;
        Ok(serde_json::from_str(&admin.get_text(target).await?)?)
    }

    /// A client of a node's admin listener that does not wait for one that hangs.
    pub(crate) async fn hasty_admin(&mut self, i: usize) -> Result<Client> {
        Ok(Client::new(&self.node(i).addresses().await?.admin, Duration::from_secs(5)))
    }

    /// Which node leads the metadata log, by the word of node `i`.
    pub(crate) async fn leader(&mut self, i: usize) -> Result<usize> {
        let admin = self.node(i).admin().await?;
        let known = || async {
            let text = admin.get_text("/admin/cluster").await?;
            let cluster: Value = serde_json::from_str(&text)?;
            Ok(cluster["log"]["leaderNode"].as_str().map(str::to_owned))
        };
        let name = wait::until("a leader", PATIENCE, known).await?;
        Ok(name.trim_start_matches("node-").parse()?)
    }

    /// Waits until node `i` says that another leads than `old`; gives which.
    pub(crate) async fn leader_but(&mut self, i: usize, old: usize) -> Result<usize> {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let now = self.leader(i).await?;
            if now != old {
                return Ok(now);
            }
            ensure!(tokio::time::Instant::now() < end, "node {old} leads still");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Of the node of this name, by the word of node `i`.
    pub(crate) async fn about(&mut self, i: usize, name: &str) -> Result<Value> {
        let nodes = self.asked(i, "/admin/nodes").await?;
        let all = nodes.as_array().or(nodes["nodes"].as_array()).context("a list of nodes")?;
        all.iter().find(|n| n["id"] == name).cloned().with_context(|| format!("{name} in {nodes}"))
    }

    /// Waits until no session awaits recovery any more.
    pub(crate) async fn settled(&mut self, i: usize) -> Result<()> {
        let admin = self.node(i).admin().await?;
        let none = || async {
            let text = admin.get_text("/admin/cluster").await?;
            let cluster: Value = serde_json::from_str(&text)?;
            Ok((cluster["awaitingRecovery"] == 0).then_some(()))
        };
        wait::until("recoveries to end", PATIENCE, none).await
    }

    /// Holds everything that was ever written to the bucket to I1, and stops a node in order; the others are killed, for the
    /// last of them would wait in vain for a quorum to end its session.
    pub(crate) async fn end(mut self) -> Result<()> {
        let terms = wal::one_writer_per_epoch(&self.bucket.kept_wal())?;
        ensure!(terms > 0, "nothing was written");
        let nodes = self.places.iter_mut().filter_map(|p| p.node.as_mut());
        let mut running = Vec::new();
        for node in nodes {
            if node.try_exit()?.is_none() {
                running.push(node);
            }
        }
        ensure!(!running.is_empty(), "no node is left");
        let one = self.rng.index(running.len());
        let status = running[one].terminate(PATIENCE).await?;
        ensure!(status.success(), "{status}\n{}", running[one].log_tail());
        Ok(())
    }
}
