//! Append load whose every request is written down for the checker, and counted.
//!
//! A writer per stream, an idempotent producer, one request at a time. A request that fails is sent again to the next node;
//! one that fails there too counts as failed after one retry, and is sent on until it is acknowledged. Now and then a
//! writer asks some node for the tail, which must never be behind what was acknowledged.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::checker;
use crate::client::Client;
use crate::history::{History, Outcome, Refusal, Stamp};
use crate::record::Record;
use crate::recorded::{Append, Name, Recorded};
use crate::rng::Rng;
use crate::wait;

/// A client's patience with one request.
const DEADLINE: Duration = Duration::from_secs(5);
/// Between two appends of a writer; between two tries of one that does not get through.
const PAUSE: Duration = Duration::from_millis(20);
const STREAMS: usize = 9;

/// What is written to, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Addresses that clients know.
    pub doors: Vec<String>,
    /// Streams are called so, and numbered: another load has other names.
    pub streams: String,
    /// So many nodes must own streams before it begins.
    pub nodes: usize,
    /// Whether a redirect is followed; else it counts as a failure.
    pub follow: bool,
    /// How long anything is waited for.
    pub patience: Duration,
}

/// One stream and what its writer has seen.
struct Stream {
    name: Name,
    /// The node that owned it when that was last looked at.
    owner: AtomicUsize,
    acknowledged: AtomicUsize,
    /// When the try began that was acknowledged last, in microseconds of the load's clock.
    newest: AtomicU64,
    /// The longest time without an acknowledgement since the last look, in microseconds.
    gap: AtomicU64,
    failed: AtomicUsize,
    failed_twice: AtomicUsize,
}

struct Shared {
    history: Arc<History>,
    doors: Vec<Recorded>,
    streams: Vec<Stream>,
    began: Instant,
    stop: AtomicBool,
    /// What was counted up to the last figures.
    told: Mutex<Count>,
    patience: Duration,
    next_record: AtomicU64,
}

/// Which streams are meant.
#[derive(Debug, Clone, Copy)]
pub enum Of {
    All,
    /// Those that this node owned when that was last looked at.
    Node(usize),
    /// The others.
    Others(usize),
}

impl Of {
    fn has(self, stream: &Stream) -> bool {
        match self {
            Self::All => true,
            Self::Node(i) => stream.owner.load(Ordering::SeqCst) == i,
            Self::Others(i) => stream.owner.load(Ordering::SeqCst) != i,
        }
    }
}

/// Requests since the load began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    pub acknowledged: usize,
    /// Tries that failed.
    pub failed: usize,
    /// Requests that failed after one retry.
    pub failed_twice: usize,
}

/// A moment of the load's clock.
#[derive(Debug, Clone, Copy)]
pub struct Moment(u64);

/// The load under way.
pub struct Writers {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Writers {
    /// Creates streams until every node owns one, and begins. `owner` tells the number of the node that owns a stream.
    pub async fn start(
        plan: Plan,
        mut rng: Rng,
        mut owner: impl AsyncFnMut(&str) -> Result<usize>,
    ) -> Result<Self> {
        let Plan { doors, streams: called, nodes, follow, patience } = plan;
        let history = Arc::new(History::default());
        let client = |address: &String| Client::new(address, DEADLINE).following(follow);
        let clients: Vec<_> =
            doors.iter().map(|a| Recorded { client: client(a), history: history.clone() }).collect();
        let mut streams = Vec::new();
        while streams.len() < STREAMS.max(nodes * 3) {
            let name = Name { text: format!("{called}-{}", streams.len()).into(), json: false };
            let created = || async {
                let outcome = clients[0].create(&name, None, false).await;
                Ok(matches!(outcome, Outcome::Created { .. }).then_some(()))
            };
            wait::until("a stream to be created", patience, created).await?;
            let owner = AtomicUsize::new(owner(&name.text).await?);
            streams.push(Stream {
                name,
                owner,
                acknowledged: AtomicUsize::new(0),
                newest: AtomicU64::new(0),
                gap: AtomicU64::new(0),
                failed: AtomicUsize::new(0),
                failed_twice: AtomicUsize::new(0),
            });
        }
        for node in 0..nodes {
            ensure!(streams.iter().any(|s| Of::Node(node).has(s)), "node {node} owns nothing");
        }
        let shared = Arc::new(Shared {
            history,
            doors: clients,
            streams,
            began: Instant::now(),
            stop: AtomicBool::new(false),
            told: Mutex::default(),
            patience,
            next_record: AtomicU64::new((rng.below(1 << 30) << 32) | 1),
        });
        let mut tasks = JoinSet::new();
        for n in 0..shared.streams.len() {
            let (shared, rng) = (shared.clone(), rng.fork());
            tasks.spawn(async move { shared.write(n, rng).await });
        }
        let this = Self { shared, tasks };
        this.all_append(this.now(), Of::All, "before anything happens").await?;
        Ok(this)
    }

    /// Now.
    pub fn now(&self) -> Moment {
        Moment(self.shared.micros())
    }

    /// How long ago that was.
    pub fn since(&self, moment: Moment) -> Duration {
        Duration::from_micros(self.shared.micros() - moment.0)
    }

    /// Waits until every stream meant has taken an append that was sent after `since`; gives how long after it the last
    /// one did.
    pub async fn all_append(&self, since: Moment, of: Of, when: &str) -> Result<Duration> {
        let chosen: Vec<_> = self.shared.streams.iter().filter(|s| of.has(s)).collect();
        ensure!(!chosen.is_empty(), "no such stream");
        let done =
            || async { Ok(chosen.iter().all(|s| s.newest.load(Ordering::SeqCst) > since.0).then_some(())) };
        if let Err(e) = wait::until(&format!("appends {when}"), self.shared.patience, done).await {
            let late = chosen.iter().filter(|s| s.newest.load(Ordering::SeqCst) <= since.0);
            let late: Vec<_> = late.map(|s| s.name.text.to_string()).collect();
            bail!("{e:#}: none to {}", late.join(", "));
        }
        Ok(Duration::from_micros(self.shared.micros() - since.0))
    }

    /// Waits until every stream meant has taken so many more.
    pub async fn progress(&self, of: Of, more: usize) -> Result<()> {
        let chosen: Vec<_> = self.shared.streams.iter().filter(|s| of.has(s)).collect();
        let goals: Vec<_> = chosen.iter().map(|s| s.acknowledged.load(Ordering::SeqCst) + more).collect();
        let done = || async {
            let mut each = chosen.iter().zip(&goals);
            Ok(each.all(|(s, goal)| s.acknowledged.load(Ordering::SeqCst) >= *goal).then_some(()))
        };
        wait::until(&format!("{more} appends to each"), self.shared.patience, done).await
    }

    /// Requests to the streams meant.
    pub fn count(&self, of: Of) -> Count {
        let chosen = self.shared.streams.iter().filter(|s| of.has(s));
        chosen.fold(Count::default(), |sum, s| Count {
            acknowledged: sum.acknowledged + s.acknowledged.load(Ordering::SeqCst),
            failed: sum.failed + s.failed.load(Ordering::SeqCst),
            failed_twice: sum.failed_twice + s.failed_twice.load(Ordering::SeqCst),
        })
    }

    /// Requests since this was last asked.
    pub fn count_on(&self) -> Count {
        let now = self.count(Of::All);
        let before = std::mem::replace(&mut *self.shared.told.lock().unwrap(), now);
        Count {
            acknowledged: now.acknowledged - before.acknowledged,
            failed: now.failed - before.failed,
            failed_twice: now.failed_twice - before.failed_twice,
        }
    }

    /// The longest time that one of the streams meant had no acknowledgement since this was last asked.
    pub fn longest_gap(&self, of: Of) -> Duration {
        let chosen = self.shared.streams.iter().filter(|s| of.has(s));
        Duration::from_micros(chosen.map(|s| s.gap.swap(0, Ordering::SeqCst)).max().unwrap_or(0))
    }

    /// Paths of the streams meant.
    pub fn names(&self, of: Of) -> Vec<String> {
        self.shared.streams.iter().filter(|s| of.has(s)).map(|s| s.name.text.to_string()).collect()
    }

    /// Stops the load, reads every stream back, and gives the verdict on all that clients have seen.
    pub async fn verify(mut self) -> Result<Count> {
        self.shared.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended?;
        }
        let count = self.count(Of::All);
        for stream in &self.shared.streams {
            let mut door = 0;
            let what = format!("{} to be read", stream.name.text);
            let end = Instant::now() + self.shared.patience;
            loop {
                let client = &self.shared.doors[door % self.shared.doors.len()];
                match client.read_all(&stream.name, 0).await {
                    Outcome::Read(r) if r.up_to_date => break,
                    Outcome::Refused(Refusal::Unavailable | Refusal::NotSent) | Outcome::Unknown => {}
                    other => bail!("{what}: {other:?}"),
                }
                ensure!(Instant::now() < end, "waited {:?} for {what}", self.shared.patience);
                door += 1;
                sleep(PAUSE).await;
            }
        }
        let found = checker::check(&self.shared.history.account());
        let shown: Vec<_> = found.iter().take(12).map(ToString::to_string).collect();
        ensure!(found.is_empty(), "{} broken promises:\n{}", found.len(), shown.join("\n"));
        Ok(count)
    }

    /// Looks who owns each stream now.
    pub async fn know_owners(&self, mut owner: impl AsyncFnMut(&str) -> Result<usize>) -> Result<()> {
        for stream in &self.shared.streams {
            stream.owner.store(owner(&stream.name.text).await?, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Which node owned each stream when that was last looked at.
    pub fn owners(&self) -> Vec<(String, usize)> {
        let each = self.shared.streams.iter();
        each.map(|s| (s.name.text.to_string(), s.owner.load(Ordering::SeqCst))).collect()
    }
}

/// The name of the node that owns a stream, by what the admin API says of it.
pub fn owner_of(stream: &Value) -> Result<&str> {
    stream["ownership"]["node"].as_str().with_context(|| format!("an owner: {stream}"))
}

impl Shared {
    fn micros(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    async fn write(&self, n: usize, mut rng: Rng) {
        let stream = &self.streams[n];
        let mut door = n % self.doors.len();
        let id: Arc<str> = format!("writer-{n}").into();
        let mut last = self.micros();
        for seq in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let most = if rng.one_in(20) { 5_000 } else { 150 };
            let record = Record {
                id: self.next_record.fetch_add(1, Ordering::Relaxed),
                pad: rng.below(most) as u32,
                elements: 1,
            };
            let producer = Some(Stamp { id: id.clone(), epoch: 0, seq });
            let append = Append { record: Some(record), producer, ..Append::default() };
            let mut tries = 0;
            loop {
                let sent = self.micros();
                if let Outcome::Appended { .. } = self.doors[door].append(&stream.name, &append).await {
                    stream.newest.store(sent.max(1), Ordering::SeqCst);
                    break;
                }
                tries += 1;
                stream.failed.fetch_add(1, Ordering::SeqCst);
                if tries == 2 {
                    stream.failed_twice.fetch_add(1, Ordering::SeqCst);
                }
                if tries >= 2 {
                    if self.stop.load(Ordering::SeqCst) {
                        return;
                    }
                    sleep(PAUSE).await;
                }
                door = (door + 1) % self.doors.len();
            }
            stream.acknowledged.fetch_add(1, Ordering::SeqCst);
            let now = self.micros();
            stream.gap.fetch_max(now - last, Ordering::SeqCst);
            last = now;
            if rng.one_in(10) {
                // Whatever it is answered is evidence.
                self.doors[rng.index(self.doors.len())].head(&stream.name).await;
            }
            sleep(PAUSE).await;
        }
    }
}
