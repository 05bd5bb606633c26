//! A node as a process: found, started, awaited, killed.
//!
//! Invariant: no process outlives its handle. Its stderr goes to a file, whose end every failure shows.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use crate::client::Client;

/// How long anything may take before a test calls it stuck: long, since it costs a passing run nothing and machines may
/// be loaded.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The binary: `WEIR_BIN`, else the one that cargo built beside the test.
pub fn binary() -> PathBuf {
    if let Ok(path) = std::env::var("WEIR_BIN") {
        return path.into();
    }
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join("weir");
    assert!(
        built.exists(),
        "{} is not built: cargo build -p weir --features fault-points (or set WEIR_BIN)",
        built.display()
    );
    built
}

/// Whether the binary aborts at fault points.
pub fn has_fault_points() -> bool {
    let found = Command::new("grep").args(["-q", "-a", "fault point: aborting"]).arg(binary()).status();
    found.expect("grep is there").success()
}

/// How to start a node.
#[derive(Debug, Clone)]
pub struct Setup {
    pub data: PathBuf,
    /// Where stderr goes: beside the data directory, so that a node finds nothing in it but its own.
    pub log: PathBuf,
    /// Flags besides the data directory and the listeners.
    pub flags: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Another process is at work in the directory: its files are left alone.
    beside: bool,
}

impl Setup {
    /// A node alone, all defaults, in `data`.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        let data = data.into();
        Self { log: data.with_extension("stderr"), data, flags: Vec::new(), env: Vec::new(), beside: false }
    }

    /// One more flag, or another value for it.
    #[must_use]
    pub fn flag(mut self, name: &str, value: impl ToString) -> Self {
        self.flags.retain(|flag| !flag.starts_with(&format!("--{name}=")));
        self.flags.push(format!("--{name}={}", value.to_string()));
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.env.push((name.to_owned(), value.to_string()));
        self
    }

    /// The same beside a running process.
    #[must_use]
    pub fn twin(&self) -> Self {
        Self { beside: true, ..self.clone() }
    }

    /// Starts the process and does not wait for anything.
    pub fn spawn(&self) -> Result<Node> {
        fs::create_dir_all(&self.data)?;
        let addresses = self.data.join("addresses.json");
        if !self.beside && addresses.exists() {
            fs::remove_file(&addresses)?;
        }
        let log = self.log.clone();
        let stderr = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new(binary());
        command.arg("serve").arg("--data-dir").arg(&self.data);
        for listener in ["--listen", "--peer-listen", "--admin-listen"] {
            command.arg(listener).arg("127.0.0.1:0");
        }
        command.args(&self.flags).env_clear().env("PATH", std::env::var("PATH").unwrap_or_default());
        command.env("RUST_BACKTRACE", "1");
        for (name, value) in &self.env {
            command.env(name, value);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let child = command.spawn().with_context(|| format!("cannot start {:?}", binary()))?;
        Ok(Node { child, addresses, log, ended: None })
    }

    /// Starts the process and waits until it is ready.
    pub async fn start(&self) -> Result<Node> {
        let mut node = self.spawn()?;
        node.ready(PATIENCE).await?;
        Ok(node)
    }

    /// Starts a process that is to refuse, and gives its exit status and what it said.
    pub async fn refused(&self) -> Result<(ExitStatus, String)> {
        let before = fs::metadata(&self.log).map_or(0, |m| m.len() as usize);
        let mut node = self.spawn()?;
        let status = node.exit(PATIENCE).await?;
        let said = fs::read(&node.log)?;
        Ok((status, String::from_utf8_lossy(&said[before.min(said.len())..]).into_owned()))
    }
}

/// Where a node listens, as it wrote it down.
#[derive(Debug, Clone, Deserialize)]
pub struct Addresses {
    pub client: String,
    pub peer: String,
    pub admin: String,
}

/// A running process.
#[derive(Debug)]
pub struct Node {
    child: Child,
    addresses: PathBuf,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Node {
    /// Its listeners, once it has bound them.
    pub async fn addresses(&mut self) -> Result<Addresses> {
        let file = self.addresses.clone();
        let end = tokio::time::Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(2);
        loop {
            if let Some(found) = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
                return Ok(found);
            }
            if let Some(status) = self.try_exit()? {
                bail!("the node ended at its start: {status}\n{}", self.log_tail());
            }
            if tokio::time::Instant::now() > end {
                bail!("the node wrote no addresses.json\n{}", self.log_tail());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Waits until `/readyz` says 200.
    pub async fn ready(&mut self, deadline: Duration) -> Result<Addresses> {
        let addresses = self.addresses().await?;
        let end = tokio::time::Instant::now() + deadline;
        let mut pause = Duration::from_millis(2);
        loop {
            let (status, reasons) = readiness(&addresses.admin).await;
            if status == 200 {
                return Ok(addresses);
            }
            if let Some(status) = self.try_exit()? {
                bail!("the node ended before it was ready: {status}\n{}", self.log_tail());
            }
            if tokio::time::Instant::now() > end {
                bail!("not ready after {deadline:?}: {status} {reasons}\n{}", self.log_tail());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Waits until `/readyz` gives a reason with one of these codes, and gives its detail. Which of several reasons
    /// comes first is chance.
    pub async fn unready_for(&mut self, codes: &[&str]) -> Result<String> {
        let addresses = self.addresses().await?;
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let (_, said) = readiness(&addresses.admin).await;
            let parsed: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
            let mut reasons = parsed["reasons"].as_array().into_iter().flatten();
            if let Some(reason) = reasons.find(|r| codes.iter().any(|code| r["code"] == *code)) {
                return Ok(reason["detail"].as_str().unwrap_or_default().to_owned());
            }
            if let Some(status) = self.try_exit()? {
                bail!("the node ended: {status}\n{}", self.log_tail());
            }
            if tokio::time::Instant::now() > end {
                bail!("no reason among {codes:?} after {PATIENCE:?}: {said}\n{}", self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A client for its streams.
    pub async fn client(&mut self) -> Result<Client> {
        Ok(Client::new(&self.addresses().await?.client, PATIENCE))
    }

    /// A client for its admin listener.
    pub async fn admin(&mut self) -> Result<Client> {
        Ok(Client::new(&self.addresses().await?.admin, PATIENCE))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            kill_process(self.pid(), signal).expect("the process is ours and not yet reaped");
        }
    }

    /// Ends it as a power cut would, and waits until it is gone.
    pub fn kill(&mut self) {
        if self.ended.is_none() {
            self.signal(Signal::KILL);
            self.ended = Some(self.child.wait().expect("our child"));
        }
    }

    /// Its exit status, if it has ended.
    pub fn try_exit(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Waits until it ends by itself.
    pub async fn exit(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let end = tokio::time::Instant::now() + deadline;
        loop {
            if let Some(status) = self.try_exit()? {
                return Ok(status);
            }
            if tokio::time::Instant::now() > end {
                return Err(anyhow!("still running after {deadline:?}\n{}", self.log_tail()));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// SIGTERM, and then the exit status.
    pub async fn terminate(&mut self, deadline: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        self.exit(deadline).await
    }

    /// The kernel's number of the process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Everything that it (and those before it in the same directory) wrote to stderr.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The end of its stderr, for a failure's message.
    pub fn log_tail(&self) -> String {
        log_tail(&self.log)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- the node's last words ---\n{}", self.log_tail());
        }
    }
}

fn log_tail(log: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// `/readyz`: its status (0 if there is no answer) and what it says.
pub async fn readiness(admin: &str) -> (u16, String) {
    let client = Client::new(admin, Duration::from_secs(5));
    match client.send(http::Method::GET, "/readyz", &[], bytes::Bytes::new()).await {
        Ok(answer) => (answer.status, String::from_utf8_lossy(&answer.body).into_owned()),
        Err(e) => (0, format!("{e:?}")),
    }
}

/// Whether a process ended by an abort, as a fault point ends it.
pub fn aborted(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::ABORT.as_raw())
}
