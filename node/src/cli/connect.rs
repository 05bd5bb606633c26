//! Which server a command talks to, and the runtime that it runs in.
//!
//! Invariant: a flag wins over the environment, that over the default; a command ends when its work does, whatever
//! still hangs in a system call.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::stop::Stop;
use super::{ExitCode, values};
use crate::client::admin::AdminClient;
use crate::client::{Client, Origin};
use crate::clock::Clock;
use crate::config;
use crate::tasks::Tasks;

const SERVER: &str = "http://127.0.0.1:4437";
const ADMIN: &str = "http://127.0.0.1:9090";
/// For one request with all its tries.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest token file.
const TOKEN_FILE_MAX: u64 = 4096;

/// Flags of every command that talks to the client listener.
#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// The server [default: http://127.0.0.1:4437] [env: WEIR_SERVER]
    #[arg(long, value_name = "URL", value_parser = values::server, help_heading = "Server")]
    server: Option<Origin>,
    /// How long one request may take, all its tries included (500ms, 10s, 5m); on busy or unreachable servers it is
    /// tried again for as long [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = values::timeout, help_heading = "Server")]
    timeout: Option<Duration>,
}

/// Flags of every command that talks to the admin listener.
#[derive(Debug, Args)]
pub(super) struct AdminArgs {
    /// A node's admin listener [default: http://127.0.0.1:9090] [env: WEIR_ADMIN]
    #[arg(long, value_name = "URL", value_parser = values::server, help_heading = "Server", global = true)]
    admin: Option<Origin>,
    /// File whose first line is the bearer token; the node's own --admin-token-file will do [env: WEIR_ADMIN_TOKEN_FILE]
    #[arg(long, value_name = "FILE", help_heading = "Server", global = true)]
    token_file: Option<PathBuf>,
    /// How long one request may take, all its tries included (500ms, 10s, 5m) [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = values::timeout, help_heading = "Server", global = true)]
    timeout: Option<Duration>,
}

impl ServerArgs {
    pub(super) fn client(&self, tasks: &Tasks) -> Result<Client, Stop> {
        let origin = origin(self.server.as_ref(), "WEIR_SERVER", SERVER)?;
        Ok(Client::new(origin, self.patience(), tasks.clone(), Clock::default()))
    }

    pub(super) fn patience(&self) -> Duration {
        self.timeout.unwrap_or(PATIENCE)
    }

    /// How long a reader that follows puts up with a server that is away; `None`: for ever.
    pub(super) fn longest_outage(&self) -> Option<Duration> {
        self.timeout
    }
}

impl AdminArgs {
    pub(super) fn client(&self, tasks: &Tasks) -> Result<AdminClient, Stop> {
        let origin = origin(self.admin.as_ref(), "WEIR_ADMIN", ADMIN)?;
        let file = match &self.token_file {
            Some(file) => Some(file.clone()),
            None => variable("WEIR_ADMIN_TOKEN_FILE")?.map(PathBuf::from),
        };
        let token = file.map(|f| token(&f)).transpose()?;
        let patience = self.timeout.unwrap_or(PATIENCE);
        let client = Client::new(origin, patience, tasks.clone(), Clock::default());
        AdminClient::new(client, token.as_deref()).map_err(Stop::about_admin)
    }
}

fn origin(flag: Option<&Origin>, name: &str, default: &str) -> Result<Origin, Stop> {
    if let Some(origin) = flag {
        return Ok(origin.clone());
    }
    let said = variable(name)?;
    let wrong = |why| Stop::usage(format!("environment variable {name}: {why}"));
    said.as_deref().unwrap_or(default).parse().map_err(wrong)
}

/// Set but empty counts as not set.
fn variable(name: &str) -> Result<Option<String>, Stop> {
    match config::process_environment(name).map(std::ffi::OsString::into_string) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text).filter(|t| !t.is_empty())),
        Some(Err(_raw)) => Err(Stop::usage(format!("environment variable {name}: not UTF-8"))),
    }
}

fn token(file: &std::path::Path) -> Result<String, Stop> {
    let wrong = |why: String| Stop::usage(format!("--token-file: {}: {why}", file.display()));
    let size = std::fs::metadata(file).map_err(|e| wrong(e.to_string()))?.len();
    if size > TOKEN_FILE_MAX {
        return Err(wrong(format!("{size} bytes are more than the {TOKEN_FILE_MAX} allowed")));
    }
    let text = std::fs::read_to_string(file).map_err(|e| wrong(e.to_string()))?;
    let first = text.lines().map(str::trim).find(|l| !l.is_empty());
    first.map(str::to_owned).ok_or_else(|| wrong("there is no token in it".to_owned()))
}

/// Runs a client command and tells how it ended.
pub(super) fn run(work: impl AsyncFnOnce(&Tasks) -> Result<(), Stop>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = match runtime {
        Ok(r) => r,
        Err(e) => return super::complain(&format!("cannot start threads: {e}"), ExitCode::Failure),
    };
    let tasks = Tasks::default();
    let ended = runtime.block_on(Box::pin(work(&tasks)));
    // A write to a pipe that nobody empties would keep a thread for ever.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::Ok,
        Err(Stop { code: ExitCode::Ok, .. }) => ExitCode::Ok,
        Err(Stop { code, message, hint, last }) => {
            let hint = hint.map_or_else(String::new, |h| format!("\n  {h}"));
            let last = last.map_or_else(String::new, |l| format!("\n{l}"));
            super::complain(&format!("{message}{hint}{last}"), code)
        }
    }
}
