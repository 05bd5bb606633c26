//! A reader of event streams that goes on by offset, and is small enough to have ten thousand of.
//!
//! Content counts when the control event after it came; what a cut connection left without one is read again.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// So many connect at a time: what a full accept queue drops the kernel tries again after seconds, then minutes.
static CONNECTING: Semaphore = Semaphore::const_new(64);

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The stream is closed and all of it was read.
    Closed,
    /// The response ended as its framing says.
    Polite,
    /// The connection ended in the middle.
    Cut(String),
    /// Another status.
    Status(u16),
}

/// A place in a stream.
#[derive(Debug, Default)]
pub struct Reader {
    /// Path of the stream.
    pub path: String,
    /// Everything below was given to the taker.
    pub at: u64,
    /// Responses that began.
    pub responses: u32,
    /// Control events that claimed to be at the tail.
    pub up_to_date: u64,
}

/// What goes wrong on the wire; the rest is the server's fault.
enum Fault {
    Cut(String),
    Broken(anyhow::Error),
}

struct Wire {
    socket: TcpStream,
    raw: Vec<u8>,
    used: usize,
}

impl Wire {
    /// Everything up to and with `mark`.
    async fn up_to(&mut self, mark: &[u8]) -> Result<Vec<u8>, Fault> {
        loop {
            let rest = &self.raw[self.used..];
            if let Some(at) = rest.windows(mark.len()).position(|w| w == mark) {
                let found = rest[..at + mark.len()].to_vec();
                self.used += found.len();
                return Ok(found);
            }
            self.fill().await?;
        }
    }

    async fn exactly(&mut self, n: usize) -> Result<Vec<u8>, Fault> {
        while self.raw.len() - self.used < n {
            self.fill().await?;
        }
        self.used += n;
        Ok(self.raw[self.used - n..self.used].to_vec())
    }

    async fn fill(&mut self) -> Result<(), Fault> {
        self.raw.drain(..self.used);
        self.used = 0;
        // Small while nothing comes: there are many of these.
        self.raw.reserve(1024);
        match self.socket.read_buf(&mut self.raw).await {
            Ok(0) => Err(Fault::Cut("the end".to_owned())),
            Ok(_) => Ok(()),
            Err(e) => Err(Fault::Cut(e.to_string())),
        }
    }

    /// One chunk of the body; empty at its end.
    async fn chunk(&mut self) -> Result<Vec<u8>, Fault> {
        let line = self.up_to(b"\r\n").await?;
        let text = String::from_utf8_lossy(&line);
        let size = usize::from_str_radix(text.trim(), 16).with_context(|| format!("chunk of size {text:?}"));
        let mut chunk = self.exactly(size.map_err(Fault::Broken)? + 2).await?;
        chunk.truncate(chunk.len() - 2);
        Ok(chunk)
    }
}

impl Reader {
    /// At the beginning of `/v1/stream/<name>`.
    pub fn new(name: &str) -> Self {
        Self { path: crate::client::path(name), ..Self::default() }
    }

    /// Reads over one connection until it ends. `take` gets each event's offset and content (lines joined by LF).
    /// An error means that the server broke the protocol, or that `take` does not like what it got.
    pub async fn read(
        &mut self,
        address: &str,
        mut take: impl FnMut(u64, &str) -> Result<()>,
        mut told: impl FnMut(),
    ) -> Result<End> {
        let turn = CONNECTING.acquire().await.context("the semaphore is never closed")?;
        let socket = match TcpStream::connect(address).await {
            Ok(socket) => socket,
            Err(e) => return Ok(End::Cut(e.to_string())),
        };
        drop(turn);
        let mut wire = Wire { socket, raw: Vec::new(), used: 0 };
        match self.exchange(&mut wire, &mut take, &mut told).await {
            Ok(end) => Ok(end),
            Err(Fault::Cut(why)) => Ok(End::Cut(why)),
            Err(Fault::Broken(e)) => Err(e.context(format!("{} at {}", self.path, self.at))),
        }
    }

    /// The same over as many connections as it takes, until the stream is closed. `address` may change.
    pub async fn read_to_end(
        &mut self,
        address: impl Fn() -> String,
        mut take: impl FnMut(u64, &str) -> Result<()>,
        mut told: impl FnMut(),
    ) -> Result<()> {
        loop {
            match self.read(&address(), &mut take, &mut told).await? {
                End::Closed => return Ok(()),
                End::Polite => {}
                End::Cut(_) | End::Status(503) => tokio::time::sleep(Duration::from_millis(20)).await,
                End::Status(status) => bail!("{}: status {status}", self.path),
            }
        }
    }

    async fn exchange(
        &mut self,
        wire: &mut Wire,
        take: &mut impl FnMut(u64, &str) -> Result<()>,
        told: &mut impl FnMut(),
    ) -> Result<End, Fault> {
        let (path, at) = (&self.path, self.at);
        let request = format!("GET {path}?live=sse&offset={at:020} HTTP/1.1\r\nHost: test\r\n\r\n");
        wire.socket.write_all(request.as_bytes()).await.map_err(|e| Fault::Cut(e.to_string()))?;
        let head = String::from_utf8_lossy(&wire.up_to(b"\r\n\r\n").await?).into_owned();
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        if status != 200 {
            return Ok(End::Status(status));
        }
        self.responses += 1;
        let (mut text, mut waiting) = (Vec::new(), None);
        loop {
            let chunk = wire.chunk().await?;
            if chunk.is_empty() {
                return Ok(End::Polite);
            }
            text.extend_from_slice(&chunk);
            while let Some(end) = text.windows(2).position(|w| w == b"\n\n") {
                let event = String::from_utf8(text.drain(..end + 2).collect())
                    .map_err(|e| Fault::Broken(e.into()))?;
                let closed = self.event(&event, &mut waiting, take, told).map_err(Fault::Broken)?;
                if closed {
                    let rest = wire.chunk().await?;
                    return match rest.is_empty() && text.is_empty() {
                        true => Ok(End::Closed),
                        false => Err(Fault::Broken(anyhow::anyhow!("something follows the end: {rest:?}"))),
                    };
                }
            }
        }
    }

    /// `true`: it says that the stream ends here.
    fn event(
        &mut self,
        event: &str,
        waiting: &mut Option<String>,
        take: &mut impl FnMut(u64, &str) -> Result<()>,
        told: &mut impl FnMut(),
    ) -> Result<bool> {
        let (mut name, mut lines) = ("", Vec::new());
        for line in event.lines() {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => name = value,
                "data" => lines.push(value),
                // A comment, or the event's end.
                "" => {}
                _ => bail!("a line {line:?} in {event:?}"),
            }
        }
        match name {
            "" if lines.is_empty() => Ok(false),
            "data" => {
                ensure!(waiting.is_none(), "two data events without a control event between");
                *waiting = Some(lines.join("\n"));
                Ok(false)
            }
            "control" => {
                let said: Value = serde_json::from_str(&lines.join("\n"))?;
                let next: u64 = said["streamNextOffset"].as_str().context("no streamNextOffset")?.parse()?;
                ensure!(next >= self.at, "back from {} to {next}", self.at);
                match waiting.take() {
                    Some(data) => take(self.at, &data)?,
                    None => ensure!(next == self.at, "from {} to {next} without data", self.at),
                }
                self.at = next;
                self.up_to_date += u64::from(said["upToDate"] == true);
                told();
                Ok(said["streamClosed"] == true)
            }
            other => bail!("event {other:?}"),
        }
    }
}
