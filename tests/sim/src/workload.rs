//! What clients do: creates, appends, reads, forks, deletes, from a seed, each call written into the trace.
//!
//! Invariant: a client knows what it was answered and nothing else; one producer has one request under way, and goes on
//! only after a definite answer to it. Clients share what they know of the names, as the users of one system do. Run by
//! `world`, each client on a machine of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use parking_lot::Mutex;
use weir_tests::client::{Answer, Failure, path};
use weir_tests::history::{Action, Outcome, Refusal, Stamp};
use weir_tests::meaning::{self, From};
use weir_tests::record::Record;
use weir_tests::rng::Rng;

use crate::http::{Client, Say, SentOn, Went};
use crate::place::CLIENT;
use crate::schedule::Habits;
use crate::trace::{Ask, ForkFrom, Host, Recorder, Told, What};

/// A stream name as clients know it.
#[derive(Debug, Clone, Default)]
struct Name {
    text: Arc<str>,
    json: bool,
    /// Seconds.
    ttl: Option<u64>,
    /// Neither closed nor deleted: it grows old.
    calm: bool,
    /// Was made as a fork, and is not made anew: it would have two beginnings.
    fork: bool,
    there: bool,
    closed: bool,
    /// An offset that some answer named.
    seen: u64,
    producers: [Producer; 2],
    lives: u64,
}

#[derive(Debug, Clone, Default)]
struct Producer {
    busy: bool,
    stamp: Option<Stamp>,
    waiting: Option<Append>,
    accepted: Option<Append>,
}

#[derive(Debug, Clone, Default)]
struct Append {
    record: Option<Record>,
    stamp: Option<Stamp>,
    closes: bool,
}

/// What all clients know.
pub struct Known {
    names: Mutex<Vec<Name>>,
    next_record: Mutex<u64>,
    /// `host:port` of every node, dead ones too unless they never come back.
    nodes: Mutex<Vec<String>>,
    /// No new calls.
    over: Mutex<bool>,
    /// Clients that may have a call under way.
    at_work: Mutex<usize>,
    /// Names to be created once and appended to once, and how many nobody has begun with.
    bulk: (usize, Mutex<usize>),
    recorder: Recorder,
}

impl Known {
    /// Of `count` streams that will be there, and more that come and go.
    pub fn new(count: usize, bulk: usize, recorder: &Recorder) -> Arc<Self> {
        let name = |i: usize| Name {
            text: format!("s{i}").into(),
            json: i % 3 == 2,
            ttl: (i % 5 == 4).then_some(2 + i as u64 % 3),
            calm: i.is_multiple_of(4),
            fork: false,
            there: false,
            closed: false,
            seen: 0,
            producers: Default::default(),
            lives: 0,
        };
        Arc::new(Self {
            names: Mutex::new((0..count).map(name).collect()),
            next_record: Mutex::new(1),
            nodes: Mutex::default(),
            over: Mutex::new(false),
            at_work: Mutex::new(0),
            bulk: (bulk, Mutex::new(bulk)),
            recorder: recorder.clone(),
        })
    }

    /// A node may be asked at this machine.
    pub fn node(&self, machine: &str) {
        let address = format!("{machine}:{CLIENT}");
        let mut nodes = self.nodes.lock();
        if !nodes.contains(&address) {
            nodes.push(address);
        }
    }

    /// The name of a stream that somebody has seen, if one was.
    pub fn some_stream(&self, rng: &mut Rng) -> Option<Arc<str>> {
        let names = self.names.lock();
        let there: Vec<_> = names.iter().filter(|n| n.there).collect();
        (!there.is_empty()).then(|| there[rng.index(there.len())].text.clone())
    }

    /// Nobody is there any more, for good.
    pub fn gone(&self, machine: &str) {
        let address = format!("{machine}:{CLIENT}");
        self.nodes.lock().retain(|node| *node != address);
    }

    /// Clients begin nothing more.
    pub fn end(&self) {
        *self.over.lock() = true;
    }

    /// All that is to be created once has been begun with.
    pub fn has_begun(&self) -> bool {
        *self.bulk.1.lock() == 0
    }

    /// No call is under way any more.
    pub fn is_quiet(&self) -> bool {
        *self.at_work.lock() == 0
    }

    fn is_over(&self) -> bool {
        *self.over.lock()
    }

    fn record(&self, rng: &mut Rng) -> Record {
        let mut next = self.next_record.lock();
        *next += 1;
        let pad = if rng.one_in(20) { rng.below(20_000) } else { rng.below(100) };
        Record {
            id: *next,
            pad: u32::try_from(pad).unwrap_or(0),
            elements: u32::try_from(rng.between(1, 3)).unwrap_or(1),
        }
    }

    fn with<T>(&self, at: usize, f: impl FnOnce(&mut Name) -> T) -> T {
        f(&mut self.names.lock()[at])
    }
}

/// One client.
pub struct Worker {
    /// Its number in the trace.
    pub number: u32,
    /// What all know.
    pub known: Arc<Known>,
    /// Its chances.
    pub rng: Rng,
    /// Its connections.
    pub client: Client,
    /// Its habits. How long it waits for an answer includes redirects.
    pub habits: Habits,
}

impl Worker {
    /// Until the end.
    pub async fn work(&mut self) {
        *self.known.at_work.lock() += 1;
        while self.create_next_of_many().await {}
        // Those who make many do nothing else.
        while self.known.bulk.0 == 0 && !self.known.is_over() {
            self.act().await;
            let pause = self.rng.between(2, 60);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        *self.known.at_work.lock() -= 1;
    }

    /// One of those that are created once. `false`: there is none left.
    async fn create_next_of_many(&mut self) -> bool {
        let at = {
            let mut left = self.known.bulk.1.lock();
            let Some(at) = left.checked_sub(1) else { return false };
            *left = at;
            at
        };
        let name = Name { text: format!("b{at}").into(), ..Name::default() };
        let first = Some(self.known.record(&mut self.rng));
        while !matches!(self.put(&name, first, None).await, Outcome::Created { .. }) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let record = Some(self.known.record(&mut self.rng));
        while !matches!(
            self.append(&name, &Append { record, ..Append::default() }).await,
            Outcome::Appended { .. }
        ) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        while !matches!(self.read_all(&name, 0).await, Outcome::Read(_)) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let mut names = self.known.names.lock();
        names.push(Name { there: true, calm: true, ..name });
        true
    }

    /// Reads everything back: what every name is and holds, until each answer is definite. Names that had none in
    /// `within`.
    pub async fn read_back(&mut self, within: Duration) -> Vec<String> {
        let end = tokio::time::Instant::now() + within;
        let count = self.known.names.lock().len();
        let mut silent = Vec::new();
        // Of very many, some hundreds tell enough.
        for at in (0..count).step_by(1 + count / 400) {
            let name = self.known.with(at, |n| n.clone());
            loop {
                let definite =
                    |o: &Outcome| matches!(o, Outcome::Read(_) | Outcome::Refused(Refusal::Missing));
                let read = self.read_all(&name, 0).await;
                if definite(&read) {
                    self.head(&name).await;
                    break;
                }
                if tokio::time::Instant::now() > end {
                    silent.push(format!("{}: {read:?}", name.text));
                    break;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        silent
    }

    /// Appends one record to some stream, again and again until that works. `false`: not in `within`.
    pub async fn prove_alive(&mut self, within: Duration) -> bool {
        let end = tokio::time::Instant::now() + within;
        loop {
            let at = self.pick(|n| n.there && !n.closed && n.ttl.is_none());
            let done = match at {
                Some(at) => {
                    let name = self.known.with(at, |n| n.clone());
                    let record = Some(self.known.record(&mut self.rng));
                    let appended = self.append(&name, &Append { record, ..Append::default() }).await;
                    self.read_all(&name, 0).await;
                    appended
                }
                None => self.create_new().await,
            };
            if matches!(done, Outcome::Appended { .. } | Outcome::Created { .. }) {
                return true;
            }
            if tokio::time::Instant::now() > end {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn pick(&mut self, wanted: impl Fn(&Name) -> bool) -> Option<usize> {
        let names = self.known.names.lock();
        let fit: Vec<usize> = (0..names.len()).filter(|&i| wanted(&names[i])).collect();
        (!fit.is_empty()).then(|| fit[self.rng.index(fit.len())])
    }

    async fn act(&mut self) {
        let Some(at) = self.pick(|_| true) else { return };
        let name = self.known.with(at, |n| n.clone());
        if !name.there && !self.rng.one_in(8) {
            if name.fork {
                self.head(&name).await;
            } else {
                let created = self.create(at, &name).await;
                if self.habits.nosy {
                    self.look_again(at, &created).await;
                }
            }
            return;
        }
        let outcome = match self.rng.below(100) {
            0..40 => {
                let record = Some(self.known.record(&mut self.rng));
                let closes = !name.calm && self.rng.one_in(60);
                self.append(&name, &Append { record, closes, ..Append::default() }).await
            }
            40..62 => match self.produce(at).await {
                Some(outcome) => outcome,
                None => return,
            },
            62..72 => {
                let from = self.rng.below(name.seen + 1);
                self.read_all(&name, if name.json { from } else { 0 }).await
            }
            72..75 => self.read(&name, From::Now, "").await,
            75..84 => self.head(&name).await,
            84..90 => self.read(&name, From::At(name.seen), "&live=long-poll").await,
            90..92 if !name.fork => self.create(at, &name).await,
            92..95 => self.fork(at, &name).await,
            95..97 => self.create_new().await,
            _ if name.calm => self.head(&name).await,
            _ => self.delete(&name).await,
        };
        self.known.with(at, |n| learn(n, &outcome));
        if self.habits.nosy {
            self.look_again(at, &outcome).await;
        }
    }

    /// Whoever has changed something wants to see it, wherever that is.
    async fn look_again(&mut self, at: usize, outcome: &Outcome) {
        let changed =
            matches!(outcome, Outcome::Created { .. } | Outcome::Appended { .. } | Outcome::Deleted);
        if !changed || self.rng.one_in(3) {
            return;
        }
        let name = self.known.with(at, |n| n.clone());
        let seen = match self.rng.one_in(3) {
            true => self.read_all(&name, 0).await,
            false => self.head(&name).await,
        };
        self.known.with(at, |n| learn(n, &seen));
    }

    async fn call(&mut self, ask: Ask, say: Say, means: impl Fn(&Answer) -> Option<Outcome>) -> Outcome {
        let node = {
            let nodes = self.known.nodes.lock();
            // Very many clients know one node each: connections to all would be what is measured.
            let at = if self.known.bulk.0 > 0 { self.number as usize } else { self.rng.index(nodes.len()) };
            nodes[at % nodes.len()].clone()
        };
        let recorder = self.known.recorder.clone();
        let call = recorder.asked(self.number, host(&recorder, &node), ask);
        let patience = Duration::from_millis(self.habits.patience_ms);
        let Went { answer, by, sent_on } = self.client.send(&node, &say, patience).await;
        let hops = u32::try_from(sent_on.len()).unwrap_or(u32::MAX);
        for SentOn { by, to, index, hops } in sent_on {
            recorder.record(What::Redirected { call, by: host(&recorder, &by), to, index, hops });
        }
        let (outcome, why) = meaning::of(&answer, means);
        let why = why.or_else(|| match &answer {
            Err(Failure::NotSent(why) | Failure::Cut(why)) => Some(why.clone()),
            Ok(a) if a.status >= 400 => Some(String::from_utf8_lossy(&a.body).chars().take(300).collect()),
            _ => None,
        });
        let status = answer.as_ref().map_or(0, |a| a.status);
        let by = answer.is_ok().then(|| host(&recorder, &by));
        recorder.answered(call, Told { outcome: outcome.clone(), status, by, hops, why });
        outcome
    }

    async fn create(&mut self, at: usize, name: &Name) -> Outcome {
        let first = self.rng.one_in(2).then(|| self.known.record(&mut self.rng));
        let outcome = self.put(name, first, None).await;
        if matches!(outcome, Outcome::Created { new: true, .. }) {
            self.known.with(at, |n| {
                n.lives += 1;
                (n.seen, n.closed) = (0, false);
                for (i, producer) in n.producers.iter_mut().enumerate() {
                    let id = format!("{}/{}/{i}", n.text, n.lives).into();
                    let stamp = Some(Stamp { id, epoch: 0, seq: 0 });
                    *producer = Producer { stamp, busy: producer.busy, ..Producer::default() };
                }
            });
        }
        self.known.with(at, |n| learn(n, &outcome));
        outcome
    }

    /// A stream of a name that nobody has used.
    async fn create_new(&mut self) -> Outcome {
        let at = {
            let mut names = self.known.names.lock();
            let i = names.len();
            if i >= 40 {
                return Outcome::Refused(Refusal::NotSent);
            }
            let like = names[i % names.len()].clone();
            let ttl = self.rng.one_in(3).then(|| self.rng.between(1, 4));
            let text = format!("n{i}").into();
            let (there, fork) = (false, false);
            names.push(Name {
                text,
                ttl,
                fork,
                there,
                seen: 0,
                lives: 0,
                closed: false,
                producers: Default::default(),
                ..like
            });
            i
        };
        let name = self.known.with(at, |n| n.clone());
        self.create(at, &name).await
    }

    async fn fork(&mut self, of: usize, source: &Name) -> Outcome {
        let at = {
            let mut names = self.known.names.lock();
            let i = names.len();
            if i >= 40 {
                return Outcome::Refused(Refusal::NotSent);
            }
            let text = format!("f{i}").into();
            let producers = Default::default();
            let fork = true;
            let name = Name {
                text,
                fork,
                there: false,
                closed: false,
                calm: false,
                seen: 0,
                lives: 0,
                producers,
                ..source.clone()
            };
            names.push(name);
            i
        };
        let name = self.known.with(at, |n| n.clone());
        let from = self.known.with(of, |n| n.seen);
        let fork = ForkFrom { source: source.text.clone(), at: self.rng.one_in(2).then_some(from) };
        let outcome = self.put(&name, None, Some(fork)).await;
        self.known.with(at, |n| learn(n, &outcome));
        outcome
    }

    async fn put(&mut self, name: &Name, first: Option<Record>, fork: Option<ForkFrom>) -> Outcome {
        let mut headers = vec![("content-type", content_type(name.json).to_owned())];
        if let Some(ttl) = name.ttl {
            headers.push(("stream-ttl", ttl.to_string()));
        }
        if let Some(fork) = &fork {
            headers.push(("stream-forked-from", path(&fork.source)));
            headers.extend(fork.at.map(|at| ("stream-fork-offset", format!("{at:020}"))));
        }
        let body = first.map_or(Bytes::new(), |r| r.body(name.json));
        let say = Say { method: Method::PUT, target: path(&name.text), headers, body };
        let action = Action::Create { first, closed: false };
        let ttl_ms = name.ttl.map(|s| s * 1000);
        self.call(Ask { fork, ttl_ms, ..ask(name, action) }, say, meaning::created).await
    }

    async fn append(&mut self, name: &Name, append: &Append) -> Outcome {
        let Append { record, stamp, closes } = append.clone();
        let mut headers = vec![("content-type", content_type(name.json).to_owned())];
        if let Some(stamp) = &stamp {
            headers.push(("producer-id", stamp.id.to_string()));
            headers.push(("producer-epoch", stamp.epoch.to_string()));
            headers.push(("producer-seq", stamp.seq.to_string()));
        }
        if closes {
            headers.push(("stream-closed", "true".to_owned()));
        }
        let body = record.map_or(Bytes::new(), |r| r.body(name.json));
        let say = Say { method: Method::POST, target: path(&name.text), headers, body };
        let stamped = stamp.is_some();
        let action = Action::Append { record, producer: stamp, seq: None, closes };
        self.call(ask(name, action), say, |a| meaning::appended(a, stamped)).await
    }

    /// The next record of a producer, or once more what has no definite answer yet, or what was accepted last.
    async fn produce(&mut self, at: usize) -> Option<Outcome> {
        let which = self.rng.index(2);
        let again = self.rng.one_in(10);
        let (known, rng) = (self.known.clone(), &mut self.rng);
        let (name, append, lives) = {
            let record = known.record(rng);
            let mut names = known.names.lock();
            let name = &mut names[at];
            let producer = &mut name.producers[which];
            if producer.busy || name.closed || !name.there {
                return None;
            }
            let stamp = producer.stamp.clone()?;
            let append = match (&producer.waiting, &producer.accepted) {
                (Some(waiting), _) => waiting.clone(),
                (None, Some(accepted)) if again => accepted.clone(),
                (None, _) => Append { record: Some(record), stamp: Some(stamp), closes: false },
            };
            producer.busy = true;
            if producer.accepted.as_ref().is_none_or(|a| a.stamp != append.stamp) {
                producer.waiting = Some(append.clone());
            }
            (name.clone(), append, name.lives)
        };
        let outcome = self.append(&name, &append).await;
        known.with(at, |n| {
            let same = n.lives == lives;
            let producer = &mut n.producers[which];
            producer.busy = false;
            if !same {
                return;
            }
            match &outcome {
                Outcome::Appended { .. } if producer.waiting.is_some() => {
                    producer.accepted = producer.waiting.take();
                    if let Some(stamp) = &mut producer.stamp {
                        stamp.seq += 1;
                    }
                }
                Outcome::Appended { .. } => {}
                Outcome::Unknown | Outcome::Refused(Refusal::NotSent | Refusal::Unavailable) => {}
                // Definite: this producer's sequence ends here.
                _ => {
                    producer.waiting = None;
                    producer.stamp = None;
                }
            }
        });
        Some(outcome)
    }

    async fn delete(&mut self, name: &Name) -> Outcome {
        let say =
            Say { method: Method::DELETE, target: path(&name.text), headers: Vec::new(), body: Bytes::new() };
        self.call(ask(name, Action::Delete), say, meaning::deleted).await
    }

    async fn head(&mut self, name: &Name) -> Outcome {
        let say =
            Say { method: Method::HEAD, target: path(&name.text), headers: Vec::new(), body: Bytes::new() };
        self.call(ask(name, Action::Head), say, meaning::found).await
    }

    async fn read(&mut self, name: &Name, from: From, live: &str) -> Outcome {
        let target = format!("{}?offset={}{live}", path(&name.text), from.text());
        let say = Say { method: Method::GET, target, headers: Vec::new(), body: Bytes::new() };
        let json = name.json;
        self.call(ask(name, Action::Read), say, |a| meaning::read(a, json, from)).await
    }

    async fn read_all(&mut self, name: &Name, from: u64) -> Outcome {
        let mut from = From::At(from);
        loop {
            let outcome = self.read(name, from, "").await;
            match &outcome {
                Outcome::Read(r) if !r.up_to_date && !r.closed && !r.content.is_empty() => {
                    from = From::At(r.next)
                }
                _ => return outcome,
            }
        }
    }
}

fn host(recorder: &Recorder, address: &str) -> Host {
    recorder.host(address.split(':').next().unwrap_or(address))
}

fn ask(name: &Name, action: Action) -> Ask {
    Ask { stream: name.text.clone(), json: name.json, action, fork: None, ttl_ms: None }
}

fn content_type(json: bool) -> &'static str {
    if json { "application/json" } else { "application/octet-stream" }
}

fn learn(name: &mut Name, outcome: &Outcome) {
    match outcome {
        Outcome::Created { next, closed, .. }
        | Outcome::Appended { next, closed, .. }
        | Outcome::Found { next, closed } => {
            name.there = true;
            name.closed |= *closed;
            name.seen = name.seen.max(*next);
        }
        Outcome::Read(r) => {
            name.there = true;
            name.closed |= r.closed;
            name.seen = name.seen.max(r.next);
        }
        Outcome::Deleted | Outcome::Refused(Refusal::Missing) => name.there = false,
        Outcome::Refused(Refusal::Closed { .. }) => name.closed = true,
        Outcome::Unknown | Outcome::Refused(_) => {}
    }
}
