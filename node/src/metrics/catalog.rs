//! Every metric of the node: what it is called, what it counts, and what question it answers.
//!
//! Invariant: only what stands here can be written to a scrape, and all of it is; `docs/metrics.md` is made from it.
//! Names carry no unit and no `_total`: both are added from the type, so that they cannot be forgotten.

use super::labels::{
    AppendOutcome, Committer, DrainOutcome, FencedBy, Forwarded, LabelValue as _, LiveKind, Operation,
    Placement, PutOutcome, RecoveredOf, STATUS, StoreCall, StoreFault, TransferOutcome, VERSION,
};

/// How a metric moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until the process ends.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts values by size.
    Histogram,
    /// Says something in labels.
    Info,
}

/// What a value is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

/// A label.
#[derive(Debug, Clone, Copy)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// All values it takes; none: as `help` says.
    pub values: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

/// A metric.
#[derive(Debug)]
pub struct Metric {
    /// Its name without prefix, unit and `_total`.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// What it is counted in; `None`: things.
    pub unit: Option<Unit>,
    /// Its labels.
    pub labels: &'static [Label],
    /// What is counted. No full stop at its end.
    pub help: &'static str,
    /// Who looks at it wants to know.
    pub question: &'static str,
}

impl Metric {
    /// What stands after `# TYPE`.
    pub fn family(&self) -> String {
        let unit = match self.unit {
            None => "",
            Some(Unit::Bytes) => "_bytes",
            Some(Unit::Seconds) => "_seconds",
        };
        format!("weir_{}{unit}", self.name)
    }

    /// What a query asks for; histograms have `_bucket`, `_sum` and `_count` behind it.
    pub fn series(&self) -> String {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        self.family() + suffix
    }
}

macro_rules! catalog {
    ($($section:literal { $($id:ident = $kind:ident $name:literal $($unit:ident)? [$($label:expr),*] $help:literal $question:literal;)+ })+) => {
        $($(#[doc = $help] pub static $id: Metric = Metric {
            name: $name,
            kind: Kind::$kind,
            unit: catalog!(@unit $($unit)?),
            labels: &[$($label),*],
            help: $help,
            question: $question,
        };)+)+

        /// All of them, by section.
        pub static SECTIONS: &[(&str, &[&Metric])] = &[$(($section, &[$(&$id),+])),+];
    };
    (@unit) => { None };
    (@unit $unit:ident) => { Some(Unit::$unit) };
}

catalog! {
    "Requests" {
        HTTP_REQUESTS = Counter "http_requests" [Operation::LABEL, STATUS]
            "Requests answered on the client listener"
            "How much is asked for, and how much of it fails?";
        HTTP_REQUEST = Histogram "http_request" Seconds [Operation::LABEL]
            "Time from a request's head to its answer's head: with the arrival of a body and the wait of a long-poll, \
             without the sending of the answer"
            "How long do clients wait? (For appends: until they are durable.)";
        LIVE_READERS = Gauge "live_readers" [LiveKind::LABEL]
            "Readers who wait for more right now"
            "How many follow streams, and how near is that to --max-waiters?";
        REDIRECTS = Counter "redirects" []
            "Requests redirected to the node that serves their stream"
            "How many requests come to the wrong node first?";
        FORWARDS = Counter "forwards" [Forwarded::LABEL]
            "Requests forwarded to the node that serves their stream, by how that went"
            "Do nodes reach each other, and does forwarding fail?";
        HOPS_EXCEEDED = Counter "hops_exceeded" []
            "Requests refused because nodes had sent them on too often"
            "Do nodes disagree for long about who serves a stream?";
    }
    "Appends and the WAL" {
        APPENDS = Counter "appends" [AppendOutcome::LABEL]
            "Appends that reached a stream, by how they ended"
            "Are appends taken, and if not: are clients wrong (refused), is the node behind (unavailable), or does \
             nobody know (unknown)?";
        WAL_DURABILITY = Histogram "wal_durability" Seconds []
            "For each record, time from when the first record of its WAL object was ordered until the object and all \
             before it were stored"
            "Of the time an append takes, how much is waiting for storage?";
        WAL_PUT = Histogram "wal_put" Seconds []
            "Time of one try to put a WAL object, if it stored the object"
            "Is the store, or the disk, slow?";
        WAL_PUTS = Counter "wal_puts" [PutOutcome::LABEL]
            "Tries to put WAL objects, by how they ended"
            "How often do puts have to be repeated, how many requests does the WAL cost, and was this node fenced?";
        WAL_OBJECT_RECORDS = Histogram "wal_object_records" []
            "Records in each WAL object that became durable"
            "How well are appends batched? (Its _count is durable objects, its _sum durable records.)";
        WAL_WRITTEN = Counter "wal_written" Bytes []
            "Bytes of WAL objects that became durable"
            "How many bytes a second are written, headers included?";
        WAL_WAITING_APPENDS = Gauge "wal_waiting_appends" []
            "Appends in the order that are not durable yet"
            "How many clients wait for storage now?";
        WAL_OLDEST_WAITING = Gauge "wal_oldest_waiting" Seconds []
            "How long the oldest of weir_wal_waiting_appends has waited; 0 if none waits"
            "Is the WAL stuck right now?";
        WAL_FAILING = Gauge "wal_failing" Seconds []
            "For how long the oldest failing put has been failing; 0 if none fails"
            "Since when does storage not take what it is given?";
        WAL_STALLED = Gauge "wal_stalled" []
            "1 while appends are refused because puts have failed for too long or there is no room"
            "Does this node refuse appends?";
        WAL_BACKLOG = Gauge "wal_backlog" Bytes []
            "Bytes that are not yet in segments, appends that still wait included: what a recovery would have to read"
            "How much is buffered?";
        WAL_BACKLOG_MAX = Gauge "wal_backlog_max" Bytes []
            "Bound of weir_wal_backlog_bytes; at the bound appends are answered 503"
            "How near is the buffer to its bound?";
        WAL_BACKLOG_OBJECTS = Gauge "wal_backlog_objects" []
            "WAL objects that are not yet in segments"
            "How many objects would a recovery have to read?";
        WAL_BACKLOG_MAX_OBJECTS = Gauge "wal_backlog_max_objects" []
            "Bound of weir_wal_backlog_objects"
            "How near is that to its bound?";
    }
    "Streams and segments" {
        OPEN_STREAMS = Gauge "open_streams" []
            "Streams that are open at this node: it takes their appends and has them in memory"
            "How many streams are in use, and how near is that to --max-open-streams?";
        FORKS = Counter "forks" []
            "Forks that this node made"
            "How often are streams forked?";
        STREAMS_EXPIRED = Counter "streams_expired" []
            "Streams that this node ended because their time was over"
            "Do streams with a TTL really go away?";
        SEGMENTS_COMMITTED = Counter "segments_committed" [Committer::LABEL]
            "Segments that this process stored and the metadata log accepted"
            "Are records moved out of the WAL, and in pieces of a sensible size?";
        SEGMENT_COMMITTED = Counter "segment_committed" Bytes [Committer::LABEL]
            "Bytes of weir_segments_committed_total"
            "Does moving records keep up with weir_wal_written_bytes_total?";
        CACHE_HITS = Counter "cache_hits" []
            "Blocks of segments that a read found in memory"
            "Does the cache help?";
        CACHE_MISSES = Counter "cache_misses" []
            "Blocks of segments that a read had to fetch"
            "How often do catch-up reads go to the store?";
        CACHE = Gauge "cache" Bytes []
            "Blocks of segments in memory"
            "How much memory do catch-up reads take?";
        CACHE_MAX = Gauge "cache_max" Bytes []
            "Bound of weir_cache_bytes"
            "Is the cache full?";
    }
    "Object storage" {
        STORE_REQUEST = Histogram "store_request" Seconds [StoreCall::LABEL]
            "Time of calls to the object store, repetitions and failed calls included. The WAL of a local directory is \
             no object: weir_wal_put_seconds has it"
            "How fast is the bucket, and how many calls does it cost?";
        STORE_ERRORS = Counter "store_errors" [StoreCall::LABEL, StoreFault::LABEL]
            "Calls to the object store that gave no answer; for a put the outcome is unknown"
            "Does the bucket fail, and would waiting help?";
        STORE_RETRIES = Counter "store_retries" [StoreCall::LABEL]
            "Repetitions of failed reads and deletes within a call"
            "Is the bucket unwell although no call fails?";
    }
    "Metadata log" {
        METADATA_LEADER = Gauge "metadata_leader" []
            "1 if this node leads the metadata log"
            "Which node decides? (The sum over a cluster is 1.)";
        METADATA_LEADER_KNOWN = Gauge "metadata_leader_known" []
            "1 if this node knows the log's leader"
            "Can streams be created, opened and deleted through this node?";
        METADATA_TERM = Gauge "metadata_term" []
            "Term of the metadata log"
            "How often does leadership change?";
        METADATA_QUORUM_LOST = Gauge "metadata_quorum_lost" []
            "1 if this node leads the metadata log and has not heard a majority of its voters within an election time-out"
            "Is the cluster about to lose its leader?";
        METADATA_VOTERS = Gauge "metadata_voters" []
            "Voters of the metadata log, by this node's newest membership"
            "How many nodes may fail? (Fewer than half of them.)";
        METADATA_VOTER_TARGET = Gauge "metadata_voter_target" []
            "Voters that there should be"
            "Is a lost voter replaced? (For long below it: too few nodes that are caught up.)";
        METADATA_MEMBER_LAG = Gauge "metadata_member_lag" []
            "Entries that the member that is furthest behind lacks, of those heard in the last minute; 0 at a node that does not lead"
            "Does every node keep up with the log?";
        METADATA_LAST_LOG_INDEX = Gauge "metadata_last_log_index" []
            "Index of the last entry in this node's log"
            "How many commands have there been, and does this node's log keep up with the others'?";
        METADATA_APPLIED_INDEX = Gauge "metadata_applied_index" []
            "Index of the last entry that this node applied"
            "Does this node know what the log says?";
        METADATA_SNAPSHOT_INDEX = Gauge "metadata_snapshot_index" []
            "Index up to which the newest snapshot goes; 0 without one"
            "How much would a start have to replay?";
        METADATA_PURGED_INDEX = Gauge "metadata_purged_index" []
            "Index up to which entries were dropped from the log"
            "Is the log cut behind its snapshots?";
        METADATA_LOG = Gauge "metadata_log" Bytes []
            "Bytes of commands applied since the newest snapshot"
            "How near is the next snapshot (--snapshot-log-bytes)?";
        METADATA_LOG_CACHE = Gauge "metadata_log_cache" Bytes []
            "Bytes of log entries in memory"
            "How much memory does the log take?";
        METADATA_WAITING_COMMANDS = Gauge "metadata_waiting_commands" []
            "Commands of this node that have no answer yet"
            "Is the log the bottleneck of creates, opens and commits?";
    }
    "Cluster" {
        READY = Gauge "ready" []
            "1 if clients should be sent to this node; /readyz says why not"
            "Does this node serve?";
        NODE_EPOCH = Gauge "node_epoch" []
            "This process's node epoch: its wall clock in milliseconds when it started"
            "When did it start, and is it the process that the log means?";
        SESSION_ALIVE = Gauge "session_alive" []
            "1 while this process's session is alive by the log"
            "Was this node fenced or replaced?";
        LEASE_REMAINING = Gauge "lease_remaining" Seconds []
            "For how long this node may still answer for the present; renewed several times within --lease"
            "Does the leader hear this node? (At 0 reads of the newest state are refused.)";
        PLACEMENTS = Counter "placements" [Placement::LABEL]
            "Commands of this node that may place a stream, by what became of them"
            "Where do new streams go, and does some node take them?";
        FENCED_SESSIONS = Counter "fenced_sessions" [FencedBy::LABEL]
            "Sessions of nodes that were fenced at this node's word"
            "Do nodes hang or get cut off?";
        NODES = Gauge "nodes" []
            "Nodes registered, by the log"
            "How large is the cluster?";
        NODES_ALIVE = Gauge "nodes_alive" []
            "Nodes with a live session, by the log"
            "How many of them serve?";
        STREAMS = Gauge "streams" []
            "Streams by the log, names that only forks keep included"
            "How many streams are there, and how near is that to weir_streams_max?";
        STREAMS_MAX = Gauge "streams_max" []
            "Bound of weir_streams (--max-streams); at the bound this node answers creates 429"
            "How near is the cluster to its bound?";
        SEGMENTS = Gauge "segments" []
            "Segments by the log"
            "How many objects hold the records?";
        SESSIONS_AWAITING_RECOVERY = Gauge "sessions_awaiting_recovery" []
            "Ended sessions whose records are not recovered yet, by the log"
            "Are streams waiting for a recovery? (Longer than a minute: look at /readyz.)";
        RECOVERED_SESSIONS = Counter "recovered_sessions" []
            "Sessions that this process recovered"
            "Did a node end without its leave?";
        RECOVERY = Histogram "recovery" Seconds []
            "Time of a successful recovery: sealing, moving the records, waiting for the lease to run out"
            "For how long were streams out of reach?";
        TAKEOVER = Histogram "takeover" Seconds [RecoveredOf::LABEL]
            "Time from when a session ended in the log to when it was recovered here, by the log's time. (A silent node is \
             noticed after --node-timeout, which comes before.)"
            "For how long had open streams nobody, after a node was lost or restarted?";
        RECOVERY_RETRIES = Counter "recovery_retries" []
            "Recoveries that were cut short and have to be tried again"
            "Does something stand in a recovery's way?";
        TRANSFERS_PENDING = Gauge "transfers_pending" []
            "Streams on their way from one node to another, by the log"
            "Is something moving, or stuck?";
        TRANSFERS = Counter "transfers" [TransferOutcome::LABEL]
            "Transfers of this node's streams to others, by how they ended"
            "Do transfers succeed?";
        TRANSFER = Histogram "transfer" Seconds []
            "Time of a transfer at its source, from when it saw the order to when it had let go or resumed"
            "For how long is a stream that moves out of reach?";
        DRAINING = Gauge "draining" []
            "1 while this node is told to give its streams away"
            "Why does it take no new streams?";
        DRAINS = Counter "drains" [DrainOutcome::LABEL]
            "Drains of this node, by how they ended"
            "Do drains come to an end?";
        DRAIN = Histogram "drain" Seconds []
            "Time of a drain of this node"
            "How long does it take to empty a node?";
        DRAINED_STREAMS = Counter "drained_streams" []
            "Streams that this node gave away in drains"
            "How many streams does a drain move in a second?";
        BUILD = Info "build" [VERSION]
            "The program"
            "What runs where, and since which deployment?";
    }
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    SECTIONS.iter().flat_map(|(_, metrics)| metrics.iter().copied())
}
