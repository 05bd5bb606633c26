//! A fixed address in front of a process that comes and goes, which can be shut to all or to some.
//!
//! Shut, a gate is a network that loses everything: connections stay, and nothing passes. Opened again, those that lived
//! through it end, and new ones pass. Who is shut out is told by process: who holds the other end of a connection is read
//! from `/proc`, so that a partition has two sides although everything is on one machine.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Who passes.
#[derive(Debug, Clone, Default)]
struct Rule {
    /// Where the gate leads; to nowhere, connections end at once.
    to: Option<String>,
    shut: bool,
    shut_to: BTreeSet<u32>,
}

impl Rule {
    fn stops(&self, who: Option<u32>) -> bool {
        self.shut || who.is_some_and(|pid| self.shut_to.contains(&pid))
    }
}

/// See the file. Ends with its handle.
#[derive(Debug)]
pub struct Gate {
    pub address: String,
    rule: Arc<watch::Sender<Rule>>,
    accepting: JoinHandle<()>,
}

impl Gate {
    /// With nothing behind it yet.
    pub async fn start() -> Self {
        Self::open(false).await
    }

    /// The same, which can be shut to some processes. To find out who connects takes a while each time.
    pub async fn that_knows_who() -> Self {
        Self::open(true).await
    }

    async fn open(knows: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let rule = Arc::new(watch::Sender::default());
        let accepting = tokio::spawn(accept(listener, rule.clone(), knows));
        Self { address, rule, accepting }
    }

    /// From now on connections go there.
    pub fn lead_to(&self, address: Option<&str>) {
        self.rule.send_modify(|r| r.to = address.map(str::to_owned));
    }

    /// Nothing passes, or everything again.
    pub fn shut(&self, shut: bool) {
        self.rule.send_modify(|r| r.shut = shut);
    }

    /// Nothing of these processes passes, and of all others everything; for a gate that knows who.
    pub fn shut_to(&self, processes: impl IntoIterator<Item = u32>) {
        let shut_to: BTreeSet<u32> = processes.into_iter().collect();
        self.rule.send_modify(|r| r.shut_to = shut_to);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, rule: Arc<watch::Sender<Rule>>, knows: bool) {
    // Dropping the set with this task closes every connection.
    let mut connections = JoinSet::new();
    while let Ok((from, _)) = listener.accept().await {
        let rule = rule.subscribe();
        connections.spawn(pass(from, rule, knows));
        while connections.try_join_next().is_some() {}
    }
}

async fn pass(mut from: TcpStream, mut rule: watch::Receiver<Rule>, knows: bool) {
    let port = from.peer_addr().map_or(0, |a| a.port());
    let who = match knows {
        true => tokio::task::spawn_blocking(move || holder(port)).await.ok().flatten(),
        false => None,
    };
    if rule.borrow().stops(who) {
        // It never gets through; when the gate opens it ends.
        drop(rule.wait_for(|r| !r.stops(who)).await);
        return;
    }
    let to = rule.borrow().to.clone();
    let Some(to) = to else { return };
    let Ok(mut server) = TcpStream::connect(&to).await else { return };
    drop((from.set_nodelay(true), server.set_nodelay(true)));
    let mut watched = rule.clone();
    let stopped = async { drop(watched.wait_for(|r| r.stops(who)).await) };
    let ended = tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut from, &mut server) => true,
        () = stopped => false,
    };
    if !ended {
        drop(rule.wait_for(|r| !r.stops(who)).await);
    }
}

/// The process, of those that this one has started, which holds the local TCP port.
fn holder(port: u16) -> Option<u32> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let inode = table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, inode) = (fields.get(1)?, fields.get(9)?);
        let its = u16::from_str_radix(local.rsplit(':').next()?, 16).ok()?;
        (its == port && *inode != "0").then(|| (*inode).to_owned())
    })?;
    let link = format!("socket:[{inode}]");
    children().into_iter().find(|pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|f| fs::read_link(f.path()).ok()).any(|target| target.as_os_str() == &*link)
    })
}

/// Processes whose parent is this one.
fn children() -> Vec<u32> {
    let me = std::process::id().to_string();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name, in brackets, may hold anything.
        let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        after.split_whitespace().nth(1) == Some(&me)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn what_is_shut_passes_nothing_and_opened_passes_again() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gate = Gate::start().await;
        gate.lead_to(Some(&server.local_addr().unwrap().to_string()));
        let echo = tokio::spawn(async move {
            while let Ok((mut s, _)) = server.accept().await {
                tokio::spawn(async move {
                    let (mut r, mut w) = s.split();
                    drop(tokio::io::copy(&mut r, &mut w).await);
                });
            }
        });
        let mut first = TcpStream::connect(&gate.address).await.unwrap();
        first.write_all(b"a").await.unwrap();
        assert_eq!(first.read_u8().await.unwrap(), b'a');
        gate.shut(true);
        let mut second = TcpStream::connect(&gate.address).await.unwrap();
        second.write_all(b"b").await.unwrap();
        // Long enough for the gate, which runs on this thread, to have taken the connection in.
        let nothing = tokio::time::timeout(Duration::from_millis(200), second.read_u8()).await;
        assert!(nothing.is_err(), "{nothing:?}");
        gate.shut(false);
        // Both lived while it was shut: they end, unanswered.
        assert!(first.read_u8().await.is_err());
        assert!(second.read_u8().await.is_err());
        let mut third = TcpStream::connect(&gate.address).await.unwrap();
        third.write_all(b"c").await.unwrap();
        assert_eq!(third.read_u8().await.unwrap(), b'c');
        echo.abort();
    }
}
