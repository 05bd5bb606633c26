//! Any node takes any request: three processes, streams placed anywhere, asked for everywhere, in both modes.

use anyhow::{Context, Result, anyhow, ensure};
use http::{Method, Uri};
use weir_tests::client::{Answer, Client};
use weir_tests::node::PATIENCE;

use crate::cluster::Three;

const TEXT: [(&str, &str); 1] = [("content-type", "text/plain")];
const STREAMS: usize = 9;

/// The clients' side of each node. The client follows no redirects.
struct Doors {
    addresses: Vec<String>,
    clients: Vec<Client>,
    /// Redirects that were followed by hand.
    followed: usize,
}

impl Doors {
    async fn of(three: &mut Three) -> Result<Self> {
        let (mut addresses, mut clients) = (Vec::new(), Vec::new());
        for node in &mut three.nodes {
            addresses.push(node.addresses().await?.client);
            clients.push(node.client().await?);
        }
        Ok(Self { addresses, clients, followed: 0 })
    }

    /// Asks a node, and whoever it sends the request to.
    async fn ask(&mut self, node: usize, method: &Method, target: &str, body: &str) -> Result<Answer> {
        let (mut node, mut target) = (node, target.to_owned());
        for hops in 0..=3 {
            let sent = self.clients[node].send(method.clone(), &target, &TEXT, body.to_owned().into()).await;
            let answer = sent.map_err(|e| anyhow!("{method} {target} at node {node}: {e:?}"))?;
            if answer.status != 307 {
                return Ok(answer);
            }
            self.followed += 1;
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

/// Creates streams at every node and uses each through all of them, at once.
async fn everything_through_everybody(doors: &mut Doors) -> Result<()> {
    for s in 0..STREAMS {
        let target = format!("/v1/stream/anywhere/{s}");
        let first = if s % 2 == 0 { "" } else { "first " };
        let created = doors.ask(s % 3, &Method::PUT, &target, first).await?;
        ensure!(created.status == 201, "{target}: {created:?}");
        // What was acknowledged at one node exists at every other, at once.
        for node in 0..3 {
            let head = doors.ask((s + node + 1) % 3, &Method::HEAD, &target, "").await?;
            ensure!((head.status, head.next()) == (200, Some(first.len() as u64)), "{target}: {head:?}");
        }
        let mut whole = first.to_owned();
        for node in 0..3 {
            let text = format!("through {node} ");
            let posted = doors.ask(node, &Method::POST, &target, &text).await?;
            ensure!(posted.status == 204, "{target}: {posted:?}");
            whole.push_str(&text);
            let read = doors.ask((node + 1) % 3, &Method::GET, &target, "").await?;
            ensure!(read.status == 200 && read.body == whole && read.flag("stream-up-to-date"), "{read:?}");
        }
        let again = doors.ask((s + 1) % 3, &Method::PUT, &target, first).await?;
        ensure!(again.status == 200, "{target} again: {again:?}");
        if s % 3 == 0 {
            let gone = doors.ask((s / 3 + 2) % 3, &Method::DELETE, &target, "").await?;
            ensure!(gone.status == 204, "{gone:?}");
            for node in 0..3 {
                let missing = doors.ask(node, &Method::GET, &target, "").await?;
                ensure!(missing.status == 404, "{missing:?}");
            }
        }
    }
    Ok(())
}

async fn end(three: Three) {
    for mut node in three.nodes {
        assert!(node.terminate(PATIENCE).await.unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_redirects_any_node_leads_to_every_stream() {
    let mut three = Three::start().await.unwrap();
    let mut doors = Doors::of(&mut three).await.unwrap();
    everything_through_everybody(&mut doors).await.unwrap();
    assert!(doors.followed > 0, "streams are placed at more than one node");
    end(three).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_forwarding_a_client_that_follows_nothing_uses_any_node() {
    let mut three = Three::start_with(|setup| setup.flag("routing", "forward")).await.unwrap();
    let mut doors = Doors::of(&mut three).await.unwrap();
    everything_through_everybody(&mut doors).await.unwrap();
    assert_eq!(doors.followed, 0);

    // Long-polls wait through a node that does not have the stream, and large bodies pass.
    let target = "/v1/stream/waited-for";
    assert_eq!(doors.ask(0, &Method::PUT, target, "").await.unwrap().status, 201);
    let large = "x".repeat(3 << 20);
    let polls = doors.clients.clone().into_iter().map(async |client| {
        let poll = format!("{target}?offset=00000000000000000000&live=long-poll");
        client.send(Method::GET, &poll, &[], "".into()).await.unwrap()
    });
    let (told, posted) =
        tokio::join!(futures::future::join_all(polls), doors.ask(1, &Method::POST, target, &large));
    assert_eq!(posted.unwrap().status, 204);
    for answer in told {
        // A waiter gets it at once, a late one finds it there.
        assert_eq!(answer.status, 200);
        assert!(large.as_bytes().starts_with(&answer.body) && !answer.body.is_empty());
    }
    end(three).await;
}
