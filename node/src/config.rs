//! Configuration: the only reader of flags, environment and file.
//!
//! Invariant: validated once, here; whoever holds a [`ServeConfig`] never checks a field again. One precedence: flag,
//! environment, file, default. Every error names where the value came from, the value, and what is allowed. Called by
//! `cli`; destructured by `run`.

mod check;
mod settings;
mod show;
mod sources;
#[cfg(test)]
mod tests;
pub(crate) mod units;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use weir_api::{ClusterUid, Incarnation, NodeId, Slots};

pub use crate::storage::store::{S3Env, StoreUrl};
pub use show::Shown;
pub use sources::{Origin, SettingArgs};

use sources::Sources;

/// The setting by which `weir dev up` tells its children whose they are.
pub(crate) const PARENT: &str = "parent-pid";

/// Why there is no configuration. Each says what to change; none is worth a retry.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// One value is wrong.
    #[error("{origin}: {value:?} is not allowed; allowed: {allowed}")]
    Value {
        /// Who said it.
        origin: Origin,
        /// What was said, cut at 120 characters.
        value: String,
        /// What may be said.
        allowed: String,
    },
    /// The file has a key that does not exist.
    #[error("{}: unknown key {key:?}; the nearest is {nearest:?}", path.display())]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The setting whose name is most like it.
        nearest: &'static str,
    },
    /// The file cannot be read or is no TOML.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system or the parser said.
        why: String,
    },
    /// Values that are fine alone do not go together.
    #[error("{0}")]
    Together(String),
}

/// What `weir serve` runs with.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// This node.
    pub node_id: NodeId,
    /// Absolute.
    pub data_dir: PathBuf,
    /// Client listener.
    pub listen: SocketAddr,
    /// Peer listener.
    pub peer_listen: SocketAddr,
    /// Admin listener.
    pub admin_listen: SocketAddr,
    /// Base URL of the client listener as others reach it, no trailing slash. `None`: the bound address, which a
    /// port of 0 makes known only after binding.
    pub advertise_url: Option<String>,
    /// `host:port` of the peer listener as others reach it. `None`: the bound address.
    pub peer_advertise: Option<String>,
    /// Base URL for the Location of created streams, no trailing slash.
    pub public_url: Option<String>,
    /// Where records live.
    pub store: StoreUrl,
    /// For a store on S3.
    pub s3: S3Env,
    /// Weight at the first registration.
    pub slots: Slots,
    /// What to do with a request for another's stream.
    pub routing: RoutingMode,
    /// Seeds, `host:port`.
    pub join: Vec<String>,
    /// May found a cluster in an empty directory.
    pub bootstrap: bool,
    /// Nodes the cluster is meant to have.
    pub cluster_size: u32,
    /// Nodes that vote in the metadata log, at most: 1, 3 or 5.
    pub metadata_voters: u32,
    /// Whose cluster this is.
    pub cluster_identity: Option<String>,
    /// Take over the bucket of this cluster.
    pub adopt_cluster_uid: Option<ClusterUid>,
    /// `None`: the process's nonce.
    pub incarnation: Option<Incarnation>,
    /// Silence after which a session is fenced.
    pub node_timeout: Duration,
    /// Below `node_timeout` by a tenth of itself at least.
    pub lease: Duration,
    /// Wait of a long-poll.
    pub long_poll_timeout: Duration,
    /// About how long an event stream lasts.
    pub sse_lifetime: Duration,
    /// Bound of everything else in a request.
    pub request_timeout: Duration,
    /// From SIGTERM to exit.
    pub shutdown_grace: Duration,
    /// Idle time of a stream that may be released.
    pub idle_release: Duration,
    /// Bytes.
    pub max_body: u64,
    /// Bytes.
    pub max_read_chunk: u64,
    /// In the cluster.
    pub max_streams: u64,
    /// At this node.
    pub max_open_streams: u64,
    /// At this node.
    pub max_connections: u64,
    /// At this node.
    pub max_waiters: u64,
    /// Per stream.
    pub max_producers: u32,
    /// `None`: twice the measured put.
    pub wal_interval: Option<Duration>,
    /// Bytes.
    pub wal_object_bytes: u64,
    /// Bytes; above `segment_bytes` and `max_body`.
    pub wal_backlog_bytes: u64,
    /// Above `segment_objects`.
    pub wal_backlog_objects: u64,
    /// Bytes.
    pub segment_bytes: u64,
    /// WAL objects.
    pub segment_objects: u64,
    /// Of the oldest record not yet in a segment.
    pub segment_age: Duration,
    /// Bytes.
    pub cache_bytes: u64,
    /// Bearer tokens of the admin API. `None` only if the admin listener is on loopback.
    pub admin_token_file: Option<PathBuf>,
    /// `/metrics` needs no token.
    pub metrics_open: bool,
    /// Logging.
    pub log: LogConfig,
    /// Test switch: shifts the wall clock.
    pub clock_offset_ms: i64,
    /// Test switch: metadata log after which a snapshot is cut. Bytes.
    pub snapshot_log_bytes: u64,
    /// Be killed with this process.
    pub parent: Option<u32>,
}

impl ServeConfig {
    /// The base URL to advertise when the client listener is bound at `bound`.
    pub fn advertised_url(&self, bound: SocketAddr) -> String {
        self.advertise_url.clone().unwrap_or_else(|| format!("http://{}", reachable(bound)))
    }

    /// The `host:port` to advertise when the peer listener is bound at `bound`.
    pub fn advertised_peer(&self, bound: SocketAddr) -> String {
        self.peer_advertise.clone().unwrap_or_else(|| reachable(bound))
    }
}

/// A listener on every address is reachable from its own host at least; `check` asks for more in larger clusters.
fn reachable(bound: SocketAddr) -> String {
    if bound.ip().is_unspecified() { format!("localhost:{}", bound.port()) } else { bound.to_string() }
}

/// What a node does with a request for a stream that another owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoutingMode {
    /// 307 to the owner.
    Redirect,
    /// Pass request and response through.
    Forward,
}

/// How to log. Always to stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// `tracing` filter directives; they parse.
    pub filter: String,
    /// Shape of a line.
    pub format: LogFormat,
}

/// Shape of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people; coloured on a terminal.
    Text,
    /// One JSON object per line.
    Json,
}

/// A valid configuration and where each value came from.
#[derive(Debug)]
pub struct Loaded {
    /// The values.
    pub config: ServeConfig,
    /// What `weir config` prints.
    pub shown: Shown,
}

/// The process's environment, for [`load`].
#[allow(clippy::disallowed_methods, reason = "config is the only reader of the environment")]
pub fn process_environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Reads flags, environment and file, and checks all of it.
pub fn load(
    args: &SettingArgs,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Loaded, ConfigError> {
    let sources = Sources::gather(args, environment)?;
    let config = typed(&sources, s3_environment(environment)?)?;
    check::together(&config, &sources)?;
    let shown = Shown::of(&config, &sources);
    Ok(Loaded { config, shown })
}

fn typed(s: &Sources, s3: S3Env) -> Result<ServeConfig, ConfigError> {
    let data_dir = s.value("data-dir", absolute)?;
    let store = match s.optional("store", |t| t.parse().map_err(say))? {
        Some(url) => url,
        None => StoreUrl::File(data_dir.join("store")),
    };
    let join = s.optional("join", seeds)?.unwrap_or_default();
    let cluster_size = s.value("cluster-size", |t| units::count(t, 1, 1000))?;
    let alone = join.is_empty() && cluster_size == 1;
    Ok(ServeConfig {
        node_id: s.value("node-id", id)?,
        data_dir,
        listen: s.value("listen", units::socket_address)?,
        peer_listen: s.value("peer-listen", units::socket_address)?,
        admin_listen: s.value("admin-listen", units::socket_address)?,
        advertise_url: s.optional("advertise-url", units::base_url)?,
        peer_advertise: s.optional("peer-advertise", units::host_port)?,
        public_url: s.optional("public-url", units::base_url)?,
        store,
        s3,
        slots: s.value("slots", id)?,
        routing: s.value("routing", routing)?,
        join,
        bootstrap: s.optional("bootstrap", units::switch)?.unwrap_or(alone),
        cluster_size: narrow(cluster_size),
        metadata_voters: s.value("metadata-voters", voters)?,
        cluster_identity: s.optional("cluster-identity", |t| units::label(t, 253))?,
        adopt_cluster_uid: s.optional("adopt-cluster-uid", id)?,
        incarnation: s.optional("incarnation", id)?,
        node_timeout: s.value("node-timeout", |t| units::duration(t, "1s", "10m"))?,
        lease: s.value("lease", |t| units::duration(t, "500ms", "5m"))?,
        long_poll_timeout: s.value("long-poll-timeout", |t| units::duration(t, "10ms", "10m"))?,
        sse_lifetime: s.value("sse-lifetime", |t| units::duration(t, "100ms", "1d"))?,
        request_timeout: s.value("request-timeout", |t| units::duration(t, "100ms", "1h"))?,
        shutdown_grace: s.value("shutdown-grace", |t| units::duration(t, "100ms", "1h"))?,
        idle_release: s.value("idle-release", |t| units::duration(t, "100ms", "7d"))?,
        max_body: s.value("max-body", |t| units::size(t, "1KiB", "64MiB"))?,
        max_read_chunk: s.value("max-read-chunk", |t| units::size(t, "1KiB", "64MiB"))?,
        max_streams: s.value("max-streams", |t| units::count(t, 1, 100_000_000))?,
        max_open_streams: s.value("max-open-streams", |t| units::count(t, 1, 10_000_000))?,
        max_connections: s.value("max-connections", |t| units::count(t, 1, 1_000_000))?,
        max_waiters: s.value("max-waiters", |t| units::count(t, 1, 1_000_000))?,
        max_producers: narrow(s.value("max-producers", |t| units::count(t, 1, 1_000_000))?),
        wal_interval: s.optional("wal-interval", |t| units::duration(t, "0ms", "10s"))?,
        wal_object_bytes: s.value("wal-object-bytes", |t| units::size(t, "64KiB", "64MiB"))?,
        wal_backlog_bytes: s.value("wal-backlog-bytes", |t| units::size(t, "1MiB", "16GiB"))?,
        wal_backlog_objects: s.value("wal-backlog-objects", |t| units::count(t, 16, 1_000_000))?,
        segment_bytes: s.value("segment-bytes", |t| units::size(t, "64KiB", "1GiB"))?,
        segment_objects: s.value("segment-objects", |t| units::count(t, 1, 1_000_000))?,
        segment_age: s.value("segment-age", |t| units::duration(t, "100ms", "1d"))?,
        cache_bytes: s.value("cache-bytes", |t| units::size(t, "1MiB", "1TiB"))?,
        admin_token_file: s.optional("admin-token-file", absolute)?,
        metrics_open: s.value("metrics-open", units::switch)?,
        log: LogConfig { filter: s.value("log-level", filter)?, format: s.value("log-format", log_format)? },
        clock_offset_ms: s
            .value("test-clock-offset-ms", |t| t.parse().map_err(|_e| "a whole number".into()))?,
        snapshot_log_bytes: s.value("test-snapshot-log-bytes", |t| units::size(t, "1KiB", "1GiB"))?,
        parent: s.optional(PARENT, |t| units::count(t, 1, u64::from(u32::MAX)).map(narrow))?,
    })
}

/// Passed on to the S3 client by name.
const AWS_MORE: [&str; 8] = [
    "AWS_ALLOW_HTTP",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
];

/// The usual AWS variables; the only settings that are not in the table, because every S3 tool shares them.
fn s3_environment(environment: &dyn Fn(&str) -> Option<OsString>) -> Result<S3Env, ConfigError> {
    let get = |name: &str| sources::variable(environment, name);
    let wrong = |name: &str, value: String, allowed: String| ConfigError::Value {
        origin: Origin::Environment(name.to_owned()),
        value,
        allowed,
    };
    let endpoint = match get("AWS_ENDPOINT_URL")? {
        Some(text) => {
            Some(units::base_url(&text).map_err(|allowed| wrong("AWS_ENDPOINT_URL", text, allowed))?)
        }
        None => None,
    };
    let mut more = Vec::new();
    for name in AWS_MORE {
        if let Some(value) = get(name)? {
            more.push((name.to_owned(), value));
        }
    }
    Ok(S3Env {
        endpoint,
        region: get("AWS_REGION")?.or(get("AWS_DEFAULT_REGION")?),
        access_key_id: get("AWS_ACCESS_KEY_ID")?,
        secret_access_key: get("AWS_SECRET_ACCESS_KEY")?,
        session_token: get("AWS_SESSION_TOKEN")?,
        more,
    })
}

/// The part of an error that says what is allowed: the origin names the setting already.
fn say(e: impl std::fmt::Display) -> String {
    let text = e.to_string();
    text.rsplit_once(": ").map_or(text.clone(), |(_, allowed)| allowed.to_owned())
}

fn id<T: std::str::FromStr<Err = weir_api::IdError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(say)
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|_e| "a path".to_owned())
}

fn seeds(text: &str) -> Result<Vec<String>, String> {
    text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(units::host_port).collect()
}

fn voters(text: &str) -> Result<u32, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        "5" => Ok(5),
        _ => Err("1, 3 or 5".to_owned()),
    }
}

fn routing(text: &str) -> Result<RoutingMode, String> {
    match text {
        "redirect" => Ok(RoutingMode::Redirect),
        "forward" => Ok(RoutingMode::Forward),
        _ => Err("redirect or forward".to_owned()),
    }
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("text or json".to_owned()),
    }
}

fn filter(text: &str) -> Result<String, String> {
    // A bare word would be taken as a module's name, so a misspelt level would silence everything.
    let plain = |d: &str| d.contains('=') || d.trim().parse::<tracing::level_filters::LevelFilter>().is_ok();
    let parsed = tracing_subscriber::EnvFilter::try_new(text);
    if !text.split(',').all(plain) || parsed.is_err() {
        return Err(
            "error, warn, info, debug, trace or off, or directives as info,weir::storage=debug".to_owned()
        );
    }
    Ok(text.to_owned())
}

/// For counts whose upper bound was checked to fit.
fn narrow(n: u64) -> u32 {
    u32::try_from(n).expect("the setting's upper bound fits")
}
