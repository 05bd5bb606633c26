//! The table of every setting of `weir serve`.
//!
//! Invariant: a setting has one name. The flag is `--name`, the environment variable `WEIR_NAME` (upper case, `_` for
//! `-`), the key in the file `name`; help, precedence, unknown-key hints and `weir config` all come from this table.
//! Read by `sources` and `show`; `super::ServeConfig` gives each its type. There is no setting called `port`:
//! Kubernetes sets `WEIR_PORT` in pods beside a service named `weir`.

/// How a value is written in TOML and JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Switch,
    List,
}

/// What holds when nobody says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    /// This value.
    Is(&'static str),
    /// A value that follows from other settings, described so.
    Follows(&'static str),
    /// No value, which means this.
    Unset(&'static str),
}

#[derive(Debug)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    /// Stands for the value in the help.
    pub(super) value: &'static str,
    pub(super) kind: Kind,
    pub(super) fallback: Fallback,
    /// Heading in the help.
    pub(super) group: &'static str,
    pub(super) help: &'static str,
}

impl Setting {
    pub(super) fn flag(&self) -> String {
        format!("--{}", self.name)
    }

    pub(super) fn variable(&self) -> String {
        format!("WEIR_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    /// Not for users: shown neither in the help nor, unless set, by `weir config`.
    pub(super) fn hidden(&self) -> bool {
        self.group == TEST
    }
}

pub(super) fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|s| s.name == name)
}

const NODE: &str = "Node";
const ADDRESSES: &str = "Addresses";
const CLUSTER: &str = "Cluster";
const STORAGE: &str = "Storage";
const LIMITS: &str = "Limits";
const TIMES: &str = "Times";
const ADMIN: &str = "Admin and logs";
const TEST: &str = "Test switches";

use Fallback::{Follows, Is, Unset};
use Kind::{List, Number, Switch, Text};

const fn row(
    group: &'static str,
    name: &'static str,
    value: &'static str,
    kind: Kind,
    fallback: Fallback,
    help: &'static str,
) -> Setting {
    Setting { name, value, kind, fallback, group, help }
}

#[rustfmt::skip]
pub(super) const SETTINGS: &[Setting] = &[
    row(NODE, "node-id", "ID", Text, Is("node-0"),
        "This node's stable name: 1 to 63 of a-z, 0-9 and '-'. Two processes never share one"),
    row(NODE, "data-dir", "DIR", Text, Is("./data"),
        "Directory of this node's metadata log (and of the store, unless --store says otherwise). One process at a \
         time; made if absent"),
    row(NODE, "slots", "N", Number, Is("1"),
        "Capacity weight for new streams, 0 to 1000000; 0 takes none. Counts at the first registration; after that \
         the cluster's record holds and the admin API changes it"),
    row(NODE, "incarnation", "TEXT", Text, Unset("drawn at random"),
        "Tells this holder of the node id from the one before it; on Kubernetes the pod's UID"),

    row(ADDRESSES, "listen", "IP:PORT", Text, Is("127.0.0.1:4437"), "Where clients connect. Port 0 picks a free one"),
    row(ADDRESSES, "peer-listen", "IP:PORT", Text, Is("127.0.0.1:4438"), "Where other nodes connect. Beyond loopback only with --admin-token-file: nodes show each other its first token"),
    row(ADDRESSES, "admin-listen", "IP:PORT", Text, Is("127.0.0.1:9090"),
        "Where health, metrics and the admin API are. Beyond loopback only with --admin-token-file"),
    row(ADDRESSES, "advertise-url", "URL", Text, Follows("http://<listen>"),
        "Where clients and other nodes reach this node's client listener: http(s)://HOST[:PORT], no path. Redirects \
         lead here; requests are forwarded here over plain HTTP/2, so only to http://"),
    row(ADDRESSES, "peer-advertise", "HOST:PORT", Text, Follows("<peer-listen>"),
        "Where other nodes reach this node's peer listener"),
    row(ADDRESSES, "public-url", "URL", Text, Unset("the request's Host"),
        "Base of the Location of a created stream: http(s)://HOST[:PORT], no path. For a load balancer in front"),

    row(CLUSTER, "join", "HOST:PORT,…", List, Unset("none"),
        "Peer addresses of nodes to join; a name is resolved at each try. Repeat the flag or separate by commas"),
    row(CLUSTER, "bootstrap", "BOOL", Switch, Follows("true for a cluster of one without --join"),
        "Found a cluster if the data directory is empty; has no effect on a used one. Exactly one node may say so, once"),
    row(CLUSTER, "cluster-size", "N", Number, Is("1"),
        "Nodes the cluster is meant to have, 1 to 1000: a new cluster takes no writes before its voters are together"),
    row(CLUSTER, "metadata-voters", "N", Number, Is("3"),
        "Nodes that vote in the metadata log, at most: 1, 3 or 5. The same at every node"),
    row(CLUSTER, "cluster-identity", "TEXT", Text, Unset("not checked"),
        "Whose cluster this is, up to 253 printable characters; recorded in the bucket when the cluster is founded. \
         A node of another identity refuses to start"),
    row(CLUSTER, "adopt-cluster-uid", "UID", Text, Unset("none"),
        "Take over a bucket that carries another identity: the uid it holds, 32 hexadecimal digits"),
    row(CLUSTER, "routing", "MODE", Text, Is("redirect"),
        "What a node does with a request for another's stream: 'redirect' (307) or 'forward' (pass it on). Many \
         clients cannot repeat a body, or lose their credentials, on a redirect"),

    row(STORAGE, "store", "URL", Text, Follows("file://<data-dir>/store"),
        "Where records live: file:///absolute/dir or s3://bucket[/prefix]. For S3, endpoint, region and credentials \
         come from AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; plain \
         http only with AWS_ALLOW_HTTP=true"),
    row(STORAGE, "wal-interval", "TIME", Text, Unset("twice the measured time of a put"),
        "How long the oldest append may wait before a second put starts beside the one in flight, 0ms to 10s. \
         Shorter costs more puts"),
    row(STORAGE, "wal-object-bytes", "SIZE", Text, Is("8MiB"),
        "Largest WAL object, 64KiB to 64MiB; one record above it gets an object of its own"),
    row(STORAGE, "wal-backlog-bytes", "SIZE", Text, Is("256MiB"),
        "Bytes acknowledged but not yet in segments, 1MiB to 16GiB. At the bound appends answer 503; it also bounds \
         what a recovery reads"),
    row(STORAGE, "wal-backlog-objects", "N", Number, Is("4096"),
        "The same bound in WAL objects, 16 to 1000000"),
    row(STORAGE, "segment-bytes", "SIZE", Text, Is("64MiB"),
        "A segment is built when this much waits, 64KiB to 1GiB"),
    row(STORAGE, "segment-objects", "N", Number, Is("1024"),
        "… or this many WAL objects, 1 to 1000000"),
    row(STORAGE, "segment-age", "TIME", Text, Is("5m"), "… or when the oldest waits this long, 100ms to 1d"),
    row(STORAGE, "cache-bytes", "SIZE", Text, Is("256MiB"), "Memory for blocks read from segments, 1MiB to 1TiB"),

    row(LIMITS, "max-body", "SIZE", Text, Is("16MiB"), "Largest request body, 1KiB to 64MiB; above it 413"),
    row(LIMITS, "max-read-chunk", "SIZE", Text, Is("4MiB"),
        "Most bytes in one catch-up answer, 1KiB to 64MiB; the reader asks on from where it ends"),
    row(LIMITS, "max-streams", "N", Number, Is("1000000"), "Streams in the cluster, 1 to 100000000; above it 429"),
    row(LIMITS, "max-open-streams", "N", Number, Is("200000"),
        "Streams open at this node at once, 1 to 10000000; above it 503"),
    row(LIMITS, "max-connections", "N", Number, Is("20000"),
        "Client connections at once, 1 to 1000000, and never more than the system's limit on open files leaves room \
         for; more wait to be accepted"),
    row(LIMITS, "max-waiters", "N", Number, Is("15000"),
        "Live readers at this node at once, long-polls that wait and event streams, 1 to 1000000; above it 503"),
    row(LIMITS, "max-producers", "N", Number, Is("4096"),
        "Idempotent producers remembered per stream, 1 to 1000000; above it 429"),

    row(TIMES, "node-timeout", "TIME", Text, Is("10s"),
        "Silence after which a node's streams go to others, 1s to 10m"),
    row(TIMES, "lease", "TIME", Text, Is("5s"),
        "How long after its last answered heartbeat a node may claim to be current, 500ms to 5m; with 10 % added it \
         must stay below --node-timeout"),
    row(TIMES, "long-poll-timeout", "TIME", Text, Is("30s"), "How long a long-poll waits, 10ms to 10m"),
    row(TIMES, "sse-lifetime", "TIME", Text, Is("60s"),
        "About how long an event stream lasts before its client is to come again, 100ms to 1d; each lasts up to a \
         fifth more or less, so that clients do not come back together"),
    row(TIMES, "request-timeout", "TIME", Text, Is("30s"),
        "How long a request may take besides the wait of a long-poll, 100ms to 1h"),
    row(TIMES, "shutdown-grace", "TIME", Text, Is("25s"),
        "How long SIGTERM gives to requests, releases and hand-over, 100ms to 1h; the process then exits all the same"),
    row(TIMES, "idle-release", "TIME", Text, Is("1m"),
        "Idle time after which a stream may leave memory, 100ms to 7d"),

    row(ADMIN, "admin-token-file", "FILE", Text, Unset("no token, loopback only"),
        "File with one or two bearer tokens, a line each, 16 to 512 characters; either is valid. Read again when it \
         changes"),
    row(ADMIN, "metrics-open", "BOOL", Switch, Is("false"), "Serve /metrics without a token"),
    row(ADMIN, "log-level", "FILTER", Text, Is("info,openraft=warn"),
        "error, warn, info, debug or trace; by module with commas, as in info,weir::storage=debug"),
    row(ADMIN, "log-format", "FORMAT", Text, Is("text"), "Log lines on stderr as 'text' or 'json'"),

    row(TEST, "test-snapshot-log-bytes", "SIZE", Text, Is("16MiB"),
        "Metadata log after which a snapshot is cut, 1KiB to 1GiB"),
    row(TEST, "test-clock-offset-ms", "MS", Number, Is("0"), "Added to the wall clock"),
    row(TEST, super::PARENT, "PID", Number, Unset("it runs on"),
        "Be killed when this process, which must be the one that started this, is gone"),
];
