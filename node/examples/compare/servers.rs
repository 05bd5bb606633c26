//! The servers as processes: started on a fresh directory, awaited, looked at, stopped.
//!
//! Invariant: no process and no directory outlives its handle.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// Whose server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Theirs,
    Ours,
    /// Ours, doing nothing.
    Noop,
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Theirs => "theirs",
            Self::Ours => "ours",
            Self::Noop => "no-op",
        }
    }
}

pub(crate) struct Binaries {
    pub(crate) ours: PathBuf,
    pub(crate) theirs: PathBuf,
}

/// A running server.
pub(crate) struct Server {
    process: Child,
    port: u16,
    dir: PathBuf,
}

const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(15);

impl Server {
    /// Starts one in an empty directory under `scratch`.
    pub(crate) async fn fresh(binaries: &Binaries, side: Side, scratch: &Path) -> Result<Self> {
        let dir = scratch.join(side.name());
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        // What was written before is not this server's to wait for.
        rustix::fs::syncfs(File::open(&dir)?)?;
        let mut server = Self::spawn(binaries, side, dir)?;
        server.answers("GET", "/").await?;
        Ok(server)
    }

    fn spawn(binaries: &Binaries, side: Side, dir: PathBuf) -> Result<Self> {
        let ports = free_ports(3)?;
        let at = |n: usize| format!("127.0.0.1:{}", ports[n]);
        let data = dir.join("data").display().to_string();
        let mut command = match side {
            Side::Theirs => {
                let mut command = Command::new(&binaries.theirs);
                command.args(["--durability", "wal", "--data-dir", &data, "--port", &ports[0].to_string()]);
                command
            }
            Side::Ours => {
                let mut command = Command::new(&binaries.ours);
                command.args(["serve", "--data-dir", &data, "--listen", &at(0)]);
                command.args(["--peer-listen", &at(1), "--admin-listen", &at(2)]);
                command
            }
            Side::Noop => {
                let mut command = Command::new(&binaries.ours);
                command.args(["bench", "--serve-noop", &at(0)]);
                command
            }
        };
        let log = File::create(dir.join("log"))?;
        let process = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        let process = process.with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { process, port: ports[0], dir })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Waits until it answers that request, with what status does not matter unless it is a 5xx.
    async fn answers(&mut self, method: &str, path: &str) -> Result<()> {
        let end = Instant::now() + START;
        loop {
            if let Some(status) = self.process.try_wait()? {
                let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                bail!("the server ended with {status}: {}", log.lines().last().unwrap_or_default());
            }
            match self.ask(method, path).await {
                Ok(status) if status < 500 => return Ok(()),
                _ if Instant::now() > end => bail!("the server did not answer in {START:?}"),
                _ => sleep(Duration::from_millis(2)).await,
            }
        }
    }

    #[allow(clippy::disallowed_methods, reason = "outside of the node")]
    async fn ask(&self, method: &str, path: &str) -> Result<u16> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let request = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut head = [0; 12];
        timeout(START, stream.read_exact(&mut head)).await??;
        Ok(std::str::from_utf8(&head[9..])?.parse()?)
    }

    /// Stops it and starts it again on what it has; answers how long until it answers a HEAD of `name` well.
    pub(crate) async fn restart(
        mut self,
        binaries: &Binaries,
        side: Side,
        name: &str,
    ) -> Result<(Self, Duration)> {
        self.stop().await?;
        let dir = std::mem::take(&mut self.dir);
        drop(self);
        let begun = Instant::now();
        let mut server = Self::spawn(binaries, side, dir)?;
        server.answers("HEAD", &format!("/v1/stream/{name}")).await?;
        Ok((server, begun.elapsed()))
    }

    async fn stop(&mut self) -> Result<()> {
        kill_process(self.pid()?, Signal::TERM)?;
        let end = Instant::now() + STOP;
        while self.process.try_wait()?.is_none() {
            if Instant::now() > end {
                self.process.kill()?;
                self.process.wait()?;
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    fn pid(&self) -> Result<Pid> {
        Pid::from_raw(i32::try_from(self.process.id())?).context("a process has a number")
    }

    /// Processor time so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu(self.process.id())
    }

    /// Resident memory, bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).context("VmRSS")?;
        let kib: u64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
        Ok(kib * 1024)
    }
}

/// Processor time of a process so far.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').context("a line of /proc")?.1;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || fields.next().and_then(|t| t.parse::<u64>().ok()).context("ticks");
    // A tick is a hundredth of a second on every Linux that matters here.
    Ok(Duration::from_millis((ticks()? + ticks()?) * 10))
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been stopped already.
        drop(self.process.kill());
        drop(self.process.wait());
        if !self.dir.as_os_str().is_empty() {
            drop(fs::remove_dir_all(&self.dir));
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "outside of the node")]
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let held: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    held.iter().map(|l| Ok(l.local_addr()?.port())).collect()
}
