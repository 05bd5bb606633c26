//! The clients' side of several nodes: asks one, and follows it to another by hand.
//!
//! Invariant: what a node answers is seen, redirects counted; more than three of them are a failure (I8).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use http::{Method, Uri};
use tokio::time::Instant;

use crate::client::{Answer, Client};
use crate::node::{Node, PATIENCE};

/// Clients of all nodes. Clones share connections and counts.
#[derive(Debug, Clone)]
pub struct Doors {
    addresses: Vec<String>,
    clients: Vec<Client>,
    followed: Arc<AtomicUsize>,
    put_off: Arc<AtomicUsize>,
}

impl Doors {
    pub async fn of(nodes: &mut [Node]) -> Result<Self> {
        let (mut addresses, mut clients) = (Vec::new(), Vec::new());
        for node in nodes {
            addresses.push(node.addresses().await?.client);
            clients.push(node.client().await?);
        }
        Ok(Self { addresses, clients, followed: Arc::default(), put_off: Arc::default() })
    }

    /// Redirects followed so far.
    pub fn followed(&self) -> usize {
        self.followed.load(Ordering::Relaxed)
    }

    /// Answers of 503 so far.
    pub fn put_off(&self) -> usize {
        self.put_off.load(Ordering::Relaxed)
    }

    /// Asks a node, and whoever it sends the request to; gives the first answer that is neither 307 nor 503.
    pub async fn ask(
        &self,
        node: usize,
        method: &Method,
        target: &str,
        headers: &[(&str, &str)],
        body: &Bytes,
    ) -> Result<Answer> {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.follow(node, method, target, headers, body).await?;
            if answer.status != 503 {
                return Ok(answer);
            }
            self.put_off.fetch_add(1, Ordering::Relaxed);
            ensure!(answer.header("retry-after").is_some(), "503 without Retry-After: {answer:?}");
            ensure!(Instant::now() < end, "{method} {target}: put off for {PATIENCE:?}: {answer:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn follow(
        &self,
        node: usize,
        method: &Method,
        target: &str,
        headers: &[(&str, &str)],
        body: &Bytes,
    ) -> Result<Answer> {
        let (mut node, mut target) = (node, target.to_owned());
        for hops in 0..=3 {
            let sent = self.clients[node].send(method.clone(), &target, headers, body.clone()).await;
            let answer = sent.map_err(|e| anyhow!("{method} {target} at node {node}: {e:?}"))?;
            if answer.status != 307 {
                return Ok(answer);
            }
            self.followed.fetch_add(1, Ordering::Relaxed);
            let location = answer.header("location").context("a Location")?;
            let uri: Uri = location.parse()?;
            let authority = uri.authority().context("an authority")?.as_str();
            node = self.addresses.iter().position(|a| a == authority).context("an address of the cluster")?;
            target = uri.path_and_query().context("a path")?.to_string();
            ensure!(target.contains(&format!(".{}", hops + 1)), "{location} after {hops} hops");
        }
        Err(anyhow!("{method} {target}: more than three hops"))
    }
}
