//! One node of a local cluster as a child process.
//!
//! Invariant: it does not outlive this process: it asks the kernel to be killed with it, and is killed when its handle
//! goes. In a process group of its own, so that Ctrl-C in the terminal is ours to pass on. Used by `up`.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::super::stop::{Stop, quoted};
use super::super::{ExitCode, note};
use super::folder::{Folder, failed};
use super::plan::{self, Ports};
use crate::client::{Client, Failure, Repeat};
use crate::clock::Clock;
use crate::config::PARENT;
use crate::tasks::Tasks;

/// For a process to bind its listeners.
const BIND: Duration = Duration::from_secs(60);
/// For one question about readiness.
const ASK: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(25);
/// While it waits, it says for what.
const PATIENT: Duration = Duration::from_secs(5);
/// Lines of a log that are shown of a node that failed.
const LAST_WORDS: usize = 8;
/// Bytes of a log that are looked through for them.
const LAST_BYTES: usize = 16 << 10;

/// A child, and what belongs to it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) ports: Ports,
    pub(super) pid: u32,
    /// Its configuration file.
    pub(super) file: PathBuf,
    pub(super) log: PathBuf,
    /// What a person types to start it.
    pub(super) by_hand: String,
    child: Child,
    ended: Option<ExitStatus>,
}

#[derive(Deserialize)]
struct Bound {
    client: std::net::SocketAddr,
    peer: std::net::SocketAddr,
    admin: std::net::SocketAddr,
}

/// How nodes are started.
#[derive(Debug)]
pub(super) struct Starter {
    program: PathBuf,
    /// The same as a person types it.
    typed: String,
    more: Vec<String>,
}

impl Starter {
    pub(super) fn new(more: Vec<String>) -> Result<Self, Stop> {
        let program = std::env::current_exe()
            .map_err(|e| Stop::new(ExitCode::Failure, format!("cannot find this program's own file: {e}")))?;
        let paths = crate::config::process_environment("PATH").unwrap_or_default();
        let real = |path: &Path| fs::canonicalize(path).ok();
        let first = std::env::split_paths(&paths).map(|dir| dir.join("weir")).find(|path| path.is_file());
        let in_path = first.is_some_and(|found| real(&found).is_some() && real(&found) == real(&program));
        let typed = if in_path { "weir".to_owned() } else { quoted(&program.display().to_string()) };
        Ok(Self { program, typed, more })
    }

    pub(super) fn typed(&self) -> &str {
        &self.typed
    }

    /// Starts the node with its settings, and waits until it has bound its listeners.
    pub(super) async fn start(
        &self,
        folder: &Folder,
        node: usize,
        settings: &toml::Table,
    ) -> Result<Node, Stop> {
        let id = plan::id(node);
        let (file, log) = (folder.path().join(format!("{id}.toml")), folder.path().join(format!("{id}.log")));
        folder.replace(&format!("{id}.toml"), plan::file(settings).as_bytes())?;
        let addresses = folder.path().join(&id).join("addresses.json");
        match fs::remove_file(&addresses) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(&addresses, &e)),
            _ => {}
        }
        // Emptied, and then only added to, so that whoever follows it may empty it again.
        File::create(&log).map_err(|e| failed(&log, &e))?;
        let stderr = File::options().append(true).open(&log).map_err(|e| failed(&log, &e))?;
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--config").arg(&file).args(&self.more);
        command.arg(format!("--{PARENT}={}", std::process::id()));
        for name in plan::variables(settings) {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).kill_on_drop(true).process_group(0);
        // On this thread, the process's first: the kernel counts the end of the thread that started a child as its parent's.
        let child = command.spawn();
        let child = child.map_err(|e| Stop::new(ExitCode::Failure, format!("cannot start {id}: {e}")))?;
        let pid = child.id().unwrap_or_default();
        let words = [self.typed.clone(), "serve --config".to_owned(), quoted(&file.display().to_string())];
        let by_hand = words.into_iter().chain(self.more.iter().map(|flag| quoted_flag(flag)));
        let by_hand = by_hand.collect::<Vec<_>>().join(" ");
        let mut this = Node { id, ports: Ports::ANY, pid, file, log, by_hand, child, ended: None };
        let end = Clock::default().monotonic() + BIND;
        loop {
            if let Some(bound) =
                fs::read(&addresses).ok().and_then(|text| serde_json::from_slice::<Bound>(&text).ok())
            {
                this.ports =
                    Ports { client: bound.client.port(), peer: bound.peer.port(), admin: bound.admin.port() };
                return Ok(this);
            }
            this.must_live().await?;
            if Clock::default().monotonic() > end {
                return Err(this.failed(&format!("has bound no listener in {}s", BIND.as_secs())));
            }
            sleep(LOOK).await;
        }
    }
}

/// As [`quoted`], which takes a dash at the beginning for trouble.
fn quoted_flag(flag: &str) -> String {
    flag.strip_prefix("--").map_or_else(|| quoted(flag), |rest| format!("--{}", quoted(rest)))
}

impl Node {
    /// Waits until `/readyz` says so; after a while it tells what is missing.
    pub(super) async fn ready(&mut self, tasks: &Tasks, end: Instant) -> Result<(), Stop> {
        let clock = Clock::default();
        let origin = format!("http://{}", plan::at(self.ports.admin)).parse();
        let origin = origin.map_err(|e: String| Stop::new(ExitCode::Failure, e))?;
        let client = Client::new(origin, ASK, tasks.clone(), clock.clone());
        let mut tell = clock.monotonic() + PATIENT;
        loop {
            let mut ask = client.ask(Method::GET, "/readyz", Repeat::Safe);
            // One try: what it says is news.
            ask.patience = Duration::ZERO;
            ask.head_wait = ASK;
            let why = match client.send(ask).await {
                Ok(_ready) => return Ok(()),
                Err(Failure::Refused(refused)) => refused.to_string(),
                Err(Failure::Unavailable(why) | Failure::Unknown(why) | Failure::Nonsense(why)) => why,
            };
            self.must_live().await?;
            let now = clock.monotonic();
            if now > end {
                return Err(self.failed(&format!("is not ready: {why}")));
            }
            if now > tell {
                note(&format!("waiting for {}: {why}", self.id));
                tell = now + PATIENT;
            }
            sleep(LOOK * 2).await;
        }
    }

    /// An error if it has ended.
    async fn must_live(&mut self) -> Result<(), Stop> {
        let ended = self.child.try_wait();
        match ended.map_err(|e| Stop::new(ExitCode::Failure, format!("{}: {e}", self.id)))? {
            None => Ok(()),
            Some(status) => {
                self.ended = Some(status);
                let code = status.code().map_or(ExitCode::Failure, code);
                let mut stop = self.failed(&format!("ended at its start ({})", how(status)));
                stop.code = code;
                Err(stop)
            }
        }
    }

    fn failed(&self, what: &str) -> Stop {
        let mut stop = Stop::new(ExitCode::Failure, format!("{} {what}", self.id));
        stop.last = Some(format!("The end of {}:\n{}", self.log.display(), last_words(&self.log)));
        stop
    }

    pub(super) fn is_running(&self) -> bool {
        self.ended.is_none()
    }

    /// Resolves when it ends; never for one that has been told of. Can be dropped and asked again.
    pub(super) async fn end(&mut self) -> ExitStatus {
        if self.ended.is_some() {
            std::future::pending::<()>().await;
        }
        let status = match self.child.wait().await {
            Ok(status) => status,
            // It cannot be waited for: it is not ours any more.
            Err(_e) => ExitStatus::from_raw(0),
        };
        self.ended = Some(status);
        status
    }

    /// Sends a signal, if it runs.
    pub(super) fn signal(&self, signal: Signal) {
        // Not yet waited for, so the number is still its own.
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.ended.is_none()) {
            // An error means that it has ended this moment, which is what is wanted.
            kill_process(pid, signal).unwrap_or(());
        }
    }
}

/// An exit status in words.
pub(super) fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => match Signal::from_named_raw(signal) {
            Some(Signal::KILL) => "killed by SIGKILL".to_owned(),
            Some(Signal::TERM) => "killed by SIGTERM".to_owned(),
            Some(Signal::ABORT) => "killed by SIGABRT".to_owned(),
            Some(Signal::SEGV) => "killed by SIGSEGV".to_owned(),
            _ => format!("killed by signal {signal}"),
        },
        (None, None) => status.to_string(),
    }
}

/// A node's exit code is this program's, if its start failed by it.
fn code(code: i32) -> ExitCode {
    [ExitCode::Usage, ExitCode::Foreign, ExitCode::Superseded, ExitCode::StoreUnfit, ExitCode::InUse]
        .into_iter()
        .find(|known| *known as i32 == code)
        .unwrap_or(ExitCode::Failure)
}

/// The end of a log, each line indented.
fn last_words(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(LAST_BYTES)..]).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LAST_WORDS)..];
    last.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
