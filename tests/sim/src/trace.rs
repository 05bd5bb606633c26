//! What a run was: everything that clients did and saw, that nodes applied and acknowledged, that the bucket was asked,
//! and what was broken on purpose. The only evidence that `linear` and `invariants` take, and what a replay is compared by.
//!
//! Invariant: plain data, recorded in the order in which it happened (a run has one thread), so that a place in the
//! trace is a moment: "A ended before B began" is what it says. Recording draws nothing and waits for nothing.
//!
//! Written by the world (hosts, faults, bucket), the workload (calls) and [`Recorder::see`] (nodes' insides).

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use weir::metadata::command::{Batch, Outcome as Applied};
use weir::metadata::state::State;
use weir::storage::record::{Frame, Payload};
use weir::witness::Seen;
use weir_api::{Offset, SessionId, StreamEpoch, StreamId};
use weir_tests::history::{Action, Outcome};

/// A simulated machine, by its place in [`Trace::hosts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(pub u16);

/// A client's call: the place of its [`What::Asked`] in the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call(pub usize);

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The stream's name.
    pub stream: Arc<str>,
    /// It counts elements, not bytes.
    pub json: bool,
    /// The operation. A fork is a `Create` with [`Ask::fork`].
    pub action: Action,
    /// Where a fork leaves its source.
    pub fork: Option<ForkFrom>,
    /// The TTL that a create gives the stream, in milliseconds (0 with an `Expires-At` that has passed).
    pub ttl_ms: Option<u64>,
}

/// Where a fork leaves its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkFrom {
    /// The source's name.
    pub source: Arc<str>,
    /// The offset; `None`: the source's tail.
    pub at: Option<u64>,
}

/// What a client is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What it means. `Unknown` for whatever leaves open whether it had effect.
    pub outcome: Outcome,
    /// The last status, 0 if there was none.
    pub status: u16,
    /// The host that gave it, if one did.
    pub by: Option<Host>,
    /// How many redirects were followed.
    pub hops: u32,
    /// Why an outcome is unknown, or other words for people.
    pub why: Option<String>,
}

/// What was asked of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreOp {
    /// With put-if-absent.
    Create,
    /// Without a condition.
    Put,
    Get,
    Head,
    List,
    Delete,
}

/// What became of it in the bucket, whatever the node was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreEffect {
    /// It took effect, or gave what it was asked for.
    Done,
    /// The key was taken.
    Exists,
    /// There is no such object.
    Absent,
    /// It did not reach the bucket.
    Lost,
}

/// Something broken on purpose, or mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The host's process is gone at once.
    Crash(Host),
    /// A process starts there; whether on the disk that was there before.
    Start { host: Host, disk: Disk },
    /// The host stands still for so many milliseconds.
    Pause(Host, u64),
    /// Messages from the first to the second are lost.
    Cut(Host, Host),
    /// They come through again.
    Mend(Host, Host),
    /// The host's bucket fails (or works again).
    Bucket(Host, bool),
    /// The host's wall clock jumps by so many milliseconds.
    Clock(Host, i64),
    /// Another process with this host's node id starts.
    Double { host: Host, of: Host },
    /// Anything else.
    Other(String),
}

/// What a starting process finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// What was synced.
    Kept,
    /// Nothing.
    Empty,
}

/// How a process ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code.
    pub code: i32,
    /// What it said.
    pub why: String,
}

/// One acknowledged append, as its owner knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acked {
    pub stream: StreamId,
    pub epoch: StreamEpoch,
    pub start: Offset,
    pub end: Offset,
    /// Its producer with epoch and sequence.
    pub producer: Option<(Arc<str>, u64, u64)>,
    /// Of its bytes.
    pub digest: u64,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A client's request left for a host.
    Asked { client: u32, to: Host, ask: Ask },
    /// The client was sent elsewhere and goes there: by whom, to which origin (`http://a:1`), and the hop's words.
    Redirected { call: Call, by: Host, to: String, index: u64, hops: u32 },
    /// The client has its answer, or gave up.
    Answered { call: Call, told: Told },
    /// A node's view holds one more entry. The state's hash only where the run computes it.
    Applied { host: Host, index: u64, batch: Option<Arc<Batch>>, outcomes: Vec<Applied>, hash: Option<u64> },
    /// A node's view was replaced by a snapshot.
    Installed { host: Host, index: u64, hash: Option<u64> },
    /// Appends are acknowledged from here on.
    Acknowledged { host: Host, session: SessionId, seq: u64, appends: Vec<Acked> },
    /// Something was asked of the bucket. `digest` is of the bytes stored or read; `seal`: they are one.
    Store { host: Host, op: StoreOp, key: String, effect: StoreEffect, bytes: u64, digest: u64, seal: bool },
    /// Something was broken or mended.
    Fault(Fault),
    /// A process ended by itself.
    Exited { host: Host, exit: Exit },
    /// From here on nothing is broken, and all is given time to settle.
    Calm,
    /// From here on everything is read back.
    ReadBack,
}

/// One thing that happened, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Simulated time since the run's start.
    pub at_us: u64,
    pub what: What,
}

/// A whole run.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// What it follows from.
    pub seed: u64,
    /// Names of the machines.
    pub hosts: Vec<String>,
    /// In order.
    pub events: Vec<Event>,
    /// Each live node's state at the end.
    pub states: Vec<(Host, u64, State)>,
    /// Keys in the bucket at the end, with the digests of what they hold.
    pub bucket: Vec<(String, u64)>,
}

impl Trace {
    /// The machine's number; given at first use.
    pub fn host(&mut self, name: &str) -> Host {
        let at = self.hosts.iter().position(|h| h == name).unwrap_or_else(|| {
            self.hosts.push(name.to_owned());
            self.hosts.len() - 1
        });
        Host(u16::try_from(at).expect("a run has few hosts"))
    }

    /// The same run gives the same hash.
    pub fn hash(&self) -> u64 {
        let mut hash = Digest::default();
        for event in &self.events {
            // What a run prints is what it is compared by.
            writeln!(hash, "{event:?}").expect("a digest takes everything");
        }
        hash.0
    }

    /// The run as text, a line for an event, from the first place on.
    pub fn print(&self, from: usize) -> String {
        let mut out = format!("seed {} hash {:016x}\n", self.seed, self.hash());
        for (place, event) in self.events.iter().enumerate().skip(from) {
            writeln!(out, "{place:>7} {:>10.3}ms {}", event.at_us as f64 / 1000.0, Line(self, &event.what))
                .expect("a string takes everything");
        }
        out
    }

    /// A host's name.
    pub fn name(&self, host: Host) -> &str {
        self.hosts.get(usize::from(host.0)).map_or("?", String::as_str)
    }
}

/// FNV-1a: the same on every machine and in every build.
#[derive(Debug, Clone, Copy)]
pub struct Digest(pub u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Of some bytes.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut digest = Self::default();
        digest.take(bytes);
        digest.0
    }

    /// Takes more.
    pub fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.take(s.as_bytes());
        Ok(())
    }
}

/// An event with hosts by name and without what is too long to read.
struct Line<'a>(&'a Trace, &'a What);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(trace, what) = self;
        match what {
            What::Asked { client, to, ask } => {
                write!(f, "client {client} → {}: {} {:?}", trace.name(*to), ask.stream, ask.action)?;
                if let Some(fork) = &ask.fork {
                    write!(f, " fork of {} at {:?}", fork.source, fork.at)?;
                }
                Ok(())
            }
            What::Redirected { call, by, to, index, hops } => {
                write!(f, "  call {}: {} redirects to {to}, hop {index}.{hops}", call.0, trace.name(*by))
            }
            What::Answered { call, told } => {
                write!(f, "  call {}: {} {}", call.0, told.status, brief(&told.outcome))?;
                if let Some(by) = told.by {
                    write!(f, " by {}", trace.name(by))?;
                }
                told.why.as_ref().map_or(Ok(()), |why| write!(f, " ({why})"))
            }
            What::Applied { host, index, batch, outcomes, .. } => {
                write!(f, "{} applied {index}", trace.name(*host))?;
                let commands = batch.iter().flat_map(|b| &b.commands);
                for (envelope, outcome) in commands.zip(outcomes) {
                    write!(f, "\n          {:?} → {outcome:?}", envelope.command)?;
                }
                Ok(())
            }
            What::Installed { host, index, .. } => write!(f, "{} installed {index}", trace.name(*host)),
            What::Acknowledged { host, session, seq, appends } => {
                write!(f, "{} {session} acknowledged object {seq}:", trace.name(*host))?;
                appends.iter().try_for_each(|a| write!(f, " {}@{} {}..{}", a.stream, a.epoch, a.start, a.end))
            }
            What::Store { host, op, key, effect, bytes, seal, .. } => {
                let kind = if *seal { "seal" } else { "bytes" };
                write!(f, "{} {op:?} {key}: {effect:?} ({bytes} {kind})", trace.name(*host))
            }
            What::Fault(fault) => write!(f, "FAULT {fault:?}"),
            What::Exited { host, exit } => {
                write!(f, "{} exited {}: {}", trace.name(*host), exit.code, exit.why)
            }
            What::Calm => f.write_str("CALM"),
            What::ReadBack => f.write_str("READ BACK"),
        }
    }
}

fn brief(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Read(r) => format!(
            "read {}..{}{}{}",
            r.from,
            r.next,
            if r.up_to_date { " up to date" } else { "" },
            if r.closed { " closed" } else { "" }
        ),
        other => format!("{other:?}"),
    }
}

/// Writes a run down. Clones write into one.
#[derive(Clone)]
pub struct Recorder {
    trace: Arc<Mutex<Trace>>,
    now_us: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Recorder {
    /// A new run; `now_us` tells simulated time since its start.
    pub fn new(seed: u64, now_us: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let trace = Trace { seed, ..Trace::default() };
        Self { trace: Arc::new(Mutex::new(trace)), now_us: Arc::new(now_us) }
    }

    /// The machine's number; given at first use.
    pub fn host(&self, name: &str) -> Host {
        self.trace.lock().host(name)
    }

    /// It happened now. Answers its place.
    pub fn record(&self, what: What) -> usize {
        let at_us = (self.now_us)();
        let mut trace = self.trace.lock();
        trace.events.push(Event { at_us, what });
        trace.events.len() - 1
    }

    /// To be called before the request leaves.
    pub fn asked(&self, client: u32, to: Host, ask: Ask) -> Call {
        Call(self.record(What::Asked { client, to, ask }))
    }

    /// To be called after the answer came, or when the client gives up.
    pub fn answered(&self, call: Call, told: Told) {
        self.record(What::Answered { call, told });
    }

    /// What a node's inside shows, written down for `host`. `hash` tells whether a state is to be hashed: that costs
    /// as much as the state is large.
    pub fn see(&self, host: Host, seen: Seen<'_>, hash: impl FnOnce(&State) -> Option<u64>) {
        self.record(match seen {
            Seen::Applied { index, batch, outcomes, state } => What::Applied {
                host,
                index,
                batch: batch.map(|b| Arc::new(b.clone())),
                outcomes: outcomes.to_vec(),
                hash: hash(state),
            },
            Seen::Installed { index, state } => What::Installed { host, index, hash: hash(state) },
            Seen::Acknowledged { session, seq, frames } => What::Acknowledged {
                host,
                session: session.clone(),
                seq,
                appends: frames.iter().map(acked).collect(),
            },
        });
    }

    /// Looks at what is written so far.
    pub fn read<T>(&self, f: impl FnOnce(&Trace) -> T) -> T {
        f(&self.trace.lock())
    }

    /// The end: states and bucket as they are now.
    pub fn finish(&self, states: Vec<(Host, u64, State)>, bucket: Vec<(String, u64)>) -> Trace {
        let mut trace = std::mem::take(&mut *self.trace.lock());
        trace.states = states;
        trace.bucket = bucket;
        trace
    }
}

fn acked(frame: &Frame) -> Acked {
    let digest = match &frame.payload {
        Payload::Bytes(bytes) => Digest::of(bytes),
        Payload::Json { text, .. } => Digest::of(text),
    };
    Acked {
        stream: frame.stream,
        epoch: frame.epoch,
        start: frame.offset,
        end: frame.end(),
        producer: frame.producer.as_ref().map(|p| (p.id.clone(), p.epoch, p.seq)),
        digest,
    }
}
