//! A real S3 server in front of a temporary folder: versitygw as a process, one for all tests of this process.
//!
//! Invariant: it is the one that we started (its port is read from the kernel, its credentials are fresh), and it does
//! not outlive us. `WEIR_VERSITYGW` names the program; `make s3` sets it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tempfile::TempDir;

use super::Access;

/// Names the program.
const VARIABLE: &str = "WEIR_VERSITYGW";
/// It listens within a second where nothing else runs.
const PATIENCE: Duration = Duration::from_secs(60);

static SERVER: OnceLock<Server> = OnceLock::new();
static BUCKETS: AtomicU64 = AtomicU64::new(0);

/// The process.
#[derive(Debug)]
struct Server {
    folder: TempDir,
    address: SocketAddr,
    secret: String,
}

/// An empty bucket of its own in the server; it goes away with this handle.
#[derive(Debug)]
pub struct RealBucket {
    server: &'static Server,
    name: String,
}

/// Whether tests are to use the real server.
pub fn wanted() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

impl RealBucket {
    /// Makes it, and starts the server if it is the first. Fails loudly where there is no server.
    pub fn new() -> Result<Self> {
        let server = SERVER.get_or_init(|| match Server::start() {
            Ok(server) => server,
            Err(e) => panic!("no S3 server: {e:#}"),
        });
        let name = format!("bucket-{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
        // A folder in its data directory is a bucket to it.
        fs::create_dir(server.folder.path().join("data").join(&name))?;
        Ok(Self { server, name })
    }

    /// How to reach it at its own door.
    pub fn access(&self) -> Access {
        self.access_at(self.server.address)
    }

    /// How to reach it through somebody who passes requests on from `door`.
    pub fn access_at(&self, door: SocketAddr) -> Access {
        let secret = self.server.secret.clone();
        Access {
            endpoint: format!("http://{door}"),
            bucket: self.name.clone(),
            key: "weir".to_owned(),
            secret,
        }
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }
}

impl Drop for RealBucket {
    fn drop(&mut self) {
        // Whatever stays goes with the machine's temporary files.
        drop(fs::remove_dir_all(self.server.folder.path().join("data").join(&self.name)));
    }
}

impl Server {
    fn start() -> Result<Self> {
        let program: PathBuf = std::env::var_os(VARIABLE)
            .with_context(|| format!("{VARIABLE} is not set: `make s3` sets it"))?
            .into();
        let folder = tempfile::Builder::new().prefix("weir-s3-").tempdir()?;
        for part in ["data", "meta"] {
            fs::create_dir(folder.path().join(part))?;
        }
        let secret = format!("{:x}-{:x}", crate::rng::seed(), std::process::id());
        let log = File::create(folder.path().join("log"))?;
        // The kernel ends it with the thread that started it, so that thread lives as long as this process.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL"])
            .arg(&program)
            .args(["--port", "127.0.0.1:0", "--keep-alive", "--quiet", "posix", "--sidecar"])
            .arg(folder.path().join("meta"))
            .arg(folder.path().join("data"))
            .env("ROOT_ACCESS_KEY", "weir")
            .env("ROOT_SECRET_KEY", &secret)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            if tell.send(command.spawn()).is_ok() {
                loop {
                    thread::park();
                }
            }
        });
        let mut child = told.recv()?.with_context(|| format!("cannot start {}", program.display()))?;
        let address = listener(&mut child).with_context(|| {
            let said = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            format!("{} said: {said}", program.display())
        })?;
        Ok(Self { folder, address, secret })
    }
}

/// Where a process listens, once it does.
fn listener(child: &mut Child) -> Result<SocketAddr> {
    let proc = PathBuf::from(format!("/proc/{}", child.id()));
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            bail!("it ended at its start: {status}");
        }
        if let Some(port) = listening_port(&proc) {
            return Ok((Ipv4Addr::LOCALHOST, port).into());
        }
        if Instant::now() > end {
            return Err(anyhow!("it does not listen after {PATIENCE:?}"));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The TCP port of a listening socket among the process's files.
fn listening_port(proc: &Path) -> Option<u16> {
    const LISTEN: &str = "0A";
    let sockets: Vec<String> = fs::read_dir(proc.join("fd"))
        .ok()?
        .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .collect();
    let table = fs::read_to_string(proc.join("net/tcp")).ok()?;
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let ours = *state == LISTEN && sockets.contains(&format!("socket:[{inode}]"));
        ours.then(|| u16::from_str_radix(local.rsplit(':').next()?, 16).ok()).flatten()
    })
}
