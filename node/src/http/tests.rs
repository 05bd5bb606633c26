//! The whole serving layer over real sockets: what a client sends, byte for byte, and what it gets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::{self, ServeConfig, SettingArgs};
use crate::net::{self, TcpStream};
use crate::run;
use crate::tasks::Tasks;

mod connections;
mod expiry;
mod forks;
mod protocol;
mod routing;
mod sse;

/// A hang is a failure after this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node with a store of its own, and on a free port its clients' side under the limits of the test.
struct Node {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: Tasks,
    node: run::Node,
    /// The node's.
    clock: Clock,
    _dir: tempfile::TempDir,
}

impl Node {
    async fn start(change: impl FnOnce(&mut HttpLimits)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let tasks = Tasks::default();
        let clock = Clock::default();
        let doors = run::Doors { clock: clock.clone(), ..run::Doors::default() };
        let node = run::Node::start(config_in(dir.path()), doors, tasks.clone()).await;
        let node = node.expect("the node starts");
        let mut limits = HttpLimits { long_poll: Duration::from_millis(100), ..HttpLimits::default() };
        change(&mut limits);
        let listener = net::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a free port");
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let app = App::new(node.streams().clone(), limits, None, clock.clone(), stop.clone());
        tasks.spawn(serve(listener, Arc::new(app), tasks.clone()));
        Self { address, stop, tasks, node, clock, _dir: dir }
    }

    async fn client(&self) -> Client {
        Client(net::connect(&self.address.to_string(), PATIENCE).await.expect("the server listens"))
    }

    /// One request on a connection of its own.
    async fn ask(&self, method: &str, path: &str, fields: &[&str], body: &str) -> Reply {
        let mut client = self.client().await;
        client.request(method, path, fields, body).await
    }

    /// Stops the clients' side, then the node.
    async fn stop(self) {
        self.stop.cancel();
        self.node.stop(PATIENCE).await;
        tokio::time::timeout(PATIENCE, self.tasks.stop()).await.expect("every connection ends");
    }
}

/// All defaults, in `dir` and on free ports.
pub(crate) fn config_in(dir: &std::path::Path) -> ServeConfig {
    let environment = |name: &str| match name {
        "WEIR_DATA_DIR" => Some(dir.into()),
        "WEIR_LISTEN" | "WEIR_PEER_LISTEN" | "WEIR_ADMIN_LISTEN" => Some("127.0.0.1:0".into()),
        _ => None,
    };
    config::load(&SettingArgs::default(), &environment).expect("the configuration is valid").config
}

/// A response as it came.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    /// A header's value; it may stand once.
    fn get(&self, name: &str) -> Option<&str> {
        let mut found = self
            .head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v);
        let value = found.next();
        assert_eq!(found.next(), None, "{name} stands twice in {}", self.head);
        value
    }

    /// The field that a problem document names.
    fn field(&self) -> String {
        let problem: serde_json::Value =
            serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"));
        assert_eq!(problem["status"], self.status);
        problem["field"].as_str().unwrap_or_default().to_owned()
    }
}

/// A connection, spoken to in bytes.
struct Client(TcpStream);

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    async fn request(&mut self, method: &str, path: &str, fields: &[&str], body: &str) -> Reply {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: test.example:80\r\n");
        fields.iter().for_each(|f| head.extend([f, "\r\n"]));
        if !body.is_empty() {
            head.extend([format!("Content-Length: {}\r\n", body.len())]);
        }
        self.send(format!("{head}\r\n{body}")).await;
        self.reply(method).await
    }

    async fn reply(&mut self, method: &str) -> Reply {
        self.try_reply(method).await.expect("an answer")
    }

    /// `None`: the connection ended without one.
    async fn try_reply(&mut self, method: &str) -> Option<Reply> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.byte().await?);
        }
        let head = String::from_utf8(head).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, body: String::new() };
        let bare = method == "HEAD" || matches!(status, 204 | 304);
        let length = reply.get("content-length").filter(|_| !bare).map_or(0, |n| n.parse().unwrap());
        let mut body = vec![0; length];
        let read = tokio::time::timeout(PATIENCE, self.0.read_exact(&mut body)).await;
        read.expect("the body comes").expect("and is whole");
        reply.body = String::from_utf8(body).unwrap();
        Some(reply)
    }

    async fn byte(&mut self) -> Option<u8> {
        let read = tokio::time::timeout(PATIENCE, self.0.read_u8()).await;
        read.expect("an answer or the end").ok()
    }

    /// The connection was ended by the server, politely: no reset.
    async fn ended(&mut self) {
        let mut rest = Vec::new();
        let read = tokio::time::timeout(PATIENCE, self.0.read_to_end(&mut rest)).await.expect("the end");
        read.expect("no reset");
        assert_eq!(String::from_utf8_lossy(&rest), "", "nothing more");
    }
}
