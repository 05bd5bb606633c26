//! Three processes are one cluster: they find each other, survive their leader, and take back who lost its log.

use anyhow::{Context, Result, bail, ensure};
use http::Method;
use serde_json::Value;
use weir_tests::client::Client;
use weir_tests::files::Scratch;
use weir_tests::node::{Node, PATIENCE, Setup};
use weir_tests::wait;

/// Nodes with a directory each and a store that all share.
pub(crate) struct Three {
    pub(crate) scratch: Scratch,
    pub(crate) nodes: Vec<Node>,
    change: Box<dyn Fn(Setup) -> Setup + Send + Sync>,
}

impl Three {
    pub(crate) fn setup(&self, i: usize) -> Setup {
        let store = format!("file://{}", self.scratch.path("store").display());
        let setup = Setup::new(self.scratch.path(&format!("node-{i}")));
        let setup = setup.flag("node-id", format!("node-{i}")).flag("cluster-size", 3).flag("store", store);
        (self.change)(setup)
    }

    /// Node 0 founds, the others join through it; all are ready.
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(|setup| setup).await
    }

    /// The same, each set up a little differently.
    pub(crate) async fn start_with(change: impl Fn(Setup) -> Setup + Send + Sync + 'static) -> Result<Self> {
        let mut this = Self { scratch: Scratch::new(), nodes: Vec::new(), change: Box::new(change) };
        let mut founder = this.setup(0).flag("bootstrap", true).spawn()?;
        let seed = founder.addresses().await?.peer;
        this.nodes.push(founder);
        // Alone it is no cluster of three.
        let why = this.nodes[0].unready_for(&["forming"]).await?;
        ensure!(why.contains("1 of the 3 voters"), "{why}");
        for i in 1..3 {
            this.nodes.push(this.setup(i).flag("join", &seed).spawn()?);
        }
        for node in &mut this.nodes {
            node.ready(PATIENCE).await?;
        }
        Ok(this)
    }

    /// The node, started anew beside one that runs.
    pub(crate) async fn restart(&mut self, i: usize) -> Result<()> {
        let other = (i + 1) % 3;
        let seed = self.nodes[other].addresses().await?.peer;
        self.nodes[i] = self.setup(i).flag("join", seed).spawn()?;
        self.nodes[i].ready(PATIENCE).await?;
        Ok(())
    }
}

pub(crate) async fn asked(admin: &Client, target: &str) -> Result<Value> {
    Ok(serde_json::from_str(&admin.get_text(target).await?)?)
}

/// Which node leads, by the word of the asked one.
pub(crate) async fn leader(admin: &Client) -> Result<usize> {
    let known = async || {
        let cluster = asked(admin, "/admin/cluster").await?;
        Ok(cluster["log"]["leaderNode"].as_str().map(str::to_owned))
    };
    Ok(wait::until("a leader", PATIENCE, known).await?.trim_start_matches("node-").parse()?)
}

async fn raft_id(admin: &Client, name: &str) -> Result<u64> {
    let nodes = asked(admin, "/admin/nodes").await?;
    let all = nodes.as_array().or(nodes["nodes"].as_array()).context("a list of nodes")?.clone();
    let it = all.iter().find(|n| n["id"] == name).with_context(|| format!("{name} in {nodes}"))?;
    it["raftId"].as_u64().context("a raft id")
}

pub(crate) const BYTES: [(&str, &str); 1] = [("content-type", "application/octet-stream")];

/// A stream that this node owns.
async fn own_stream(client: &Client, node: usize) -> Result<String> {
    for i in 0..20 {
        let name = format!("/v1/stream/of-{node}-{i}");
        let put =
            client.send(Method::PUT, &name, &BYTES, "".into()).await.map_err(|e| anyhow::anyhow!("{e:?}"))?;
        if put.status == 201 && append(client, &name).await? == 204 {
            return Ok(name);
        }
    }
    bail!("node {node} is given no stream");
}

async fn append(client: &Client, name: &str) -> Result<u16> {
    let post = client.send(Method::POST, name, &BYTES, "x".into()).await;
    Ok(post.map_err(|e| anyhow::anyhow!("{e:?}"))?.status)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_go_on_without_their_leader_and_take_it_back() {
    let mut three = Three::start().await.unwrap();
    let mut clients = Vec::new();
    let mut streams = Vec::new();
    for i in 0..3 {
        let client = three.nodes[i].client().await.unwrap();
        streams.push(own_stream(&client, i).await.unwrap());
        clients.push(client);
    }
    let dead = leader(&three.nodes[0].admin().await.unwrap()).await.unwrap();
    three.nodes[dead].kill();
    let survivors: Vec<usize> = (0..3).filter(|i| *i != dead).collect();
    // Appends to open streams need no leader.
    for _ in 0..30 {
        for &i in &survivors {
            assert_eq!(append(&clients[i], &streams[i]).await.unwrap(), 204, "node {i}");
        }
    }
    let witness = three.nodes[survivors[0]].admin().await.unwrap();
    let another = async || Ok((leader(&witness).await? != dead).then_some(()));
    wait::until("another leader", PATIENCE, another).await.unwrap();
    // The log takes commands again, through any of them.
    for &i in &survivors {
        let admin = three.nodes[i].admin().await.unwrap();
        let target = format!("/admin/nodes/node-{}", survivors[1]);
        let slots = [("content-type", "application/json")];
        let set =
            admin.send(Method::POST, &target, &slots, format!(r#"{{"slots": {}}}"#, i + 2).into()).await;
        assert_eq!(set.unwrap().status, 200);
    }
    three.restart(dead).await.unwrap();
    let client = three.nodes[dead].client().await.unwrap();
    // What it had is there again, once it has recovered itself.
    let takes = async || Ok((append(&client, &streams[dead]).await? == 204).then_some(()));
    wait::until("its stream takes appends", PATIENCE, takes).await.unwrap();
    for (i, stream) in streams.iter().enumerate() {
        let client = three.nodes[i].client().await.unwrap();
        let head = client.send(Method::HEAD, stream, &[], "".into()).await.unwrap();
        let appended = if i == dead { 2 } else { 31 };
        assert_eq!(head.next(), Some(appended), "{stream}");
    }
    for mut node in three.nodes {
        assert!(node.terminate(PATIENCE).await.unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_log_joins_anew_and_one_of_another_cluster_does_not() {
    let mut three = Three::start().await.unwrap();
    let lost = (leader(&three.nodes[0].admin().await.unwrap()).await.unwrap() + 1) % 3;
    let name = format!("node-{lost}");
    let seed = three.nodes[(lost + 1) % 3].addresses().await.unwrap().peer;
    let witness = three.nodes[(lost + 1) % 3].admin().await.unwrap();
    let old = raft_id(&witness, &name).await.unwrap();
    three.nodes[lost].kill();
    let metadata = three.scratch.path(&name).join("metadata");
    std::fs::remove_dir_all(&metadata).unwrap();
    // Nobody to join through: it says so and founds nothing.
    let (status, said) = three.setup(lost).flag("bootstrap", true).refused().await.unwrap();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("--join"), "{said}");
    three.restart(lost).await.unwrap();
    let new = raft_id(&witness, &name).await.unwrap();
    assert!(new > old, "{new} after {old}");

    let other = format!("file://{}", three.scratch.path("other-store").display());
    let mut founder = Setup::new(three.scratch.path("other")).flag("store", &other).start().await.unwrap();
    let stranger = Setup::new(three.scratch.path("stranger")).flag("node-id", "node-7").flag("store", &other);
    let (status, said) = stranger.flag("join", seed).refused().await.unwrap();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("cluster"), "{said}");
    assert!(founder.terminate(PATIENCE).await.unwrap().success());
}
