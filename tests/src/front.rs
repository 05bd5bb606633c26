//! A fixed address in front of a node that comes and goes, or hears only so much.
//!
//! A node that is started again listens elsewhere; clients that are to survive that need one address. While nothing is
//! behind it, connections are closed at once.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What passes.
#[derive(Debug, Clone)]
struct Passing {
    node: Option<String>,
    /// Bytes from clients that still pass, over all connections; the rest waits.
    budget: u64,
}

/// See the file. Ends with its handle.
#[derive(Debug)]
pub struct Front {
    pub address: String,
    passing: Arc<watch::Sender<Passing>>,
    accepting: JoinHandle<()>,
}

impl Front {
    /// With nothing behind it yet.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let passing = Arc::new(watch::Sender::new(Passing { node: None, budget: u64::MAX }));
        let accepting = tokio::spawn(accept(listener, passing.clone()));
        Self { address, passing, accepting }
    }

    /// From now on connections go there.
    pub fn lead_to(&self, node: Option<&str>) {
        self.passing.send_modify(|p| p.node = node.map(str::to_owned));
    }

    /// From now on only so many bytes from clients pass.
    pub fn pass(&self, bytes: u64) {
        self.passing.send_modify(|p| p.budget = bytes);
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, passing: Arc<watch::Sender<Passing>>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let node = passing.borrow().node.clone();
        let Some(node) = node else { continue };
        let passing = passing.clone();
        connections.spawn(async move {
            let Ok(server) = TcpStream::connect(&node).await else { return };
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, to_server) = server.into_split();
            let up = up(&mut from_client, to_server, &passing);
            let down = tokio::io::copy(&mut from_server, &mut to_client);
            // Either end's end is the connection's.
            tokio::select! {
                () = up => {}
                _ = down => {}
            }
        });
    }
}

async fn up(
    client: &mut tokio::net::tcp::OwnedReadHalf,
    mut server: tokio::net::tcp::OwnedWriteHalf,
    passing: &watch::Sender<Passing>,
) {
    let mut room = passing.subscribe();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(read) = client.read(&mut buffer).await else { return };
        if read == 0 {
            return;
        }
        if room.wait_for(|p| p.budget >= read as u64).await.is_err() {
            return;
        }
        passing.send_modify(|p| p.budget = p.budget.saturating_sub(read as u64));
        if server.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
