//! The command line as a process: run to its end, or at work while a test does something else.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::node::binary;

/// A command that takes longer is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// Standard output of a success that had nothing else to say.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{self:?}");
        self.out
    }
}

/// `weir` with its servers.
#[derive(Debug, Clone)]
pub struct Weir {
    pub server: String,
    pub admin: String,
}

impl Weir {
    /// Talks to the client listener at `address`.
    pub fn new(address: &str) -> Self {
        Self { server: format!("http://{address}"), admin: "http://127.0.0.1:1".to_owned() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(args).env_clear().env("WEIR_SERVER", &self.server).env("WEIR_ADMIN", &self.admin);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Runs it to its end with nothing on stdin.
    pub async fn run(&self, args: &[&str]) -> Ended {
        self.run_with(args, b"").await
    }

    /// Runs it to its end.
    pub async fn run_with(&self, args: &[&str], stdin: &[u8]) -> Ended {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let write = async {
            // A command that found its arguments wrong reads nothing.
            drop(input.write_all(stdin).await);
            drop(input);
        };
        let wait = async {
            let ((), out) = tokio::join!(write, child.wait_with_output());
            out.unwrap()
        };
        let out = tokio::time::timeout(PATIENCE, wait).await;
        let out = out.unwrap_or_else(|_late| panic!("weir {args:?} is stuck"));
        let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
        Ended { code: out.status.code(), out: text(out.stdout), err: text(out.stderr) }
    }

    /// Starts it and lets it work.
    pub fn start(&self, args: &[&str]) -> Working {
        Working { child: self.command(args).stdin(Stdio::piped()).spawn().unwrap() }
    }
}

/// A command at work. Killed with its handle.
#[derive(Debug)]
pub struct Working {
    child: Child,
}

impl Working {
    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = self.child.id().expect("it has not been waited for");
        kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
    }

    /// Gives it more on its standard input, which stays open.
    pub async fn write(&mut self, text: &str) {
        self.child.stdin.as_mut().expect("piped").write_all(text.as_bytes()).await.expect("it reads");
    }

    /// So many bytes of its standard output.
    pub async fn read(&mut self, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        let stdout = self.child.stdout.as_mut().expect("piped");
        let read = tokio::time::timeout(PATIENCE, stdout.read_exact(&mut out)).await;
        read.expect("output comes").expect("and is long enough");
        out
    }

    /// Nobody reads its standard output any more.
    pub fn hang_up(&mut self) {
        drop(self.child.stdout.take());
    }

    /// Ends it as a power cut would.
    pub async fn kill(mut self) -> ExitStatus {
        self.child.kill().await.unwrap();
        self.child.wait().await.unwrap()
    }

    /// Waits until it ends by itself.
    pub async fn end(self) -> Ended {
        let out = tokio::time::timeout(PATIENCE, self.child.wait_with_output()).await;
        let out = out.expect("it ends").unwrap();
        let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
        Ended { code: out.status.code(), out: text(out.stdout), err: text(out.stderr) }
    }
}
