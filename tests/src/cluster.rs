//! Several nodes as processes that are one cluster.
//!
//! Invariant: all are ready when it is handed out; the store is a folder of the test's unless the set-up says otherwise.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::client::Client;
use crate::files::Scratch;
use crate::node::{Node, PATIENCE, Setup};
use crate::wait;

type Change = Box<dyn Fn(usize, Setup) -> Setup + Send + Sync>;

/// Nodes with a directory each and a store that all share.
pub struct Cluster {
    pub scratch: Scratch,
    pub nodes: Vec<Node>,
    size: usize,
    change: Change,
}

impl Cluster {
    /// Node 0 founds, the others join through it; `change` sets each up a little differently.
    pub async fn start(
        size: usize,
        change: impl Fn(usize, Setup) -> Setup + Send + Sync + 'static,
    ) -> Result<Self> {
        let mut this = Self { scratch: Scratch::new(), nodes: Vec::new(), size, change: Box::new(change) };
        let mut founder = this.setup(0).flag("bootstrap", true).spawn()?;
        let seed = founder.addresses().await?.peer;
        this.nodes.push(founder);
        for node in 1..size {
            this.nodes.push(this.setup(node).flag("join", &seed).spawn()?);
        }
        for node in &mut this.nodes {
            node.ready(PATIENCE).await?;
        }
        Ok(this)
    }

    /// How a node is started, but for whom it joins through.
    pub fn setup(&self, node: usize) -> Setup {
        let store = format!("file://{}", self.scratch.path("store").display());
        let setup = Setup::new(self.scratch.path(&format!("node-{node}")));
        let setup = setup.flag("node-id", format!("node-{node}")).flag("cluster-size", self.size);
        (self.change)(node, setup.flag("store", store))
    }

    /// SIGTERM to all; each must say that it ended as asked.
    pub async fn end(self) -> Result<()> {
        for mut node in self.nodes {
            let status = node.terminate(PATIENCE).await?;
            ensure!(status.success(), "{status}\n{}", node.log_tail());
        }
        Ok(())
    }
}

/// `/admin/nodes`, by a node's admin client.
pub async fn nodes(admin: &Client) -> Result<Vec<Value>> {
    let list: Value = serde_json::from_str(&admin.get_text("/admin/nodes").await?)?;
    Ok(list["nodes"].as_array().context("a list of nodes")?.clone())
}

/// How many streams each node has, by the answering one's view, in the order of their ids.
pub async fn assigned(admin: &Client) -> Result<Vec<u64>> {
    let mut nodes = nodes(admin).await?;
    nodes.sort_by_key(|n| n["id"].as_str().unwrap_or_default().to_owned());
    nodes.iter().map(|n| n["assignedStreams"].as_u64().context("a number of streams")).collect()
}

/// The same once the view of the answering node counts so many in all.
pub async fn assigned_of(admin: &Client, total: u64) -> Result<Vec<u64>> {
    let all = async || {
        let counts = assigned(admin).await?;
        Ok((counts.iter().sum::<u64>() == total).then_some(counts))
    };
    wait::until(&format!("{total} streams to be counted"), PATIENCE, all).await
}
