//! A simulated bucket, shared by all machines, on which requests are slow, lost, late, doubled and of unknown outcome.
//!
//! Invariant: the bucket itself is what S3 is: an object is stored whole, once, under a condition, and is seen by whoever
//! asks from then on. What goes wrong is on the way: a request that takes effect may be answered with an error or not at
//! all, one that was answered with an error may take effect later, whether or not its sender lives. All of it
//! follows from the seed and simulated time. The world lets it [`advance`](Bucket::advance); nodes reach it by [`Door`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use weir::storage::seal::Seal;
use weir_tests::rng::Rng;

use crate::machine::Time;
use crate::trace::{Digest, Host, Recorder, StoreEffect, StoreOp, What};

/// How often things go wrong, in a thousand requests each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weather {
    /// Takes up to 3 s.
    pub slow: u64,
    /// No effect, an error.
    pub lost: u64,
    /// No answer; with effect or without.
    pub silent: u64,
    /// An error; the effect comes up to 8 s later.
    pub late: u64,
    /// With effect, and an error.
    pub ambiguous: u64,
    /// Arrives twice; the second's answer counts.
    pub doubled: u64,
    /// 409: no effect, and the answer sounds like "exists".
    pub conflict: u64,
}

impl Weather {
    /// Nothing goes wrong.
    pub const CALM: Self =
        Self { slow: 0, lost: 0, silent: 0, late: 0, ambiguous: 0, doubled: 0, conflict: 0 };
}

/// See the module.
pub struct Bucket {
    inner: Mutex<Inner>,
    time: Time,
    recorder: Recorder,
}

struct Inner {
    objects: BTreeMap<String, Bytes>,
    rng: Rng,
    weather: Weather,
    /// From these machines nothing arrives.
    unreachable: BTreeSet<u16>,
    /// By when, and then in the order in which they were made.
    due: BTreeMap<(u64, u64), Step>,
    next: u64,
}

enum Step {
    Effect(Request, Option<Answering>),
    Answer(oneshot::Sender<Result<Found>>, Result<Found>),
}

/// To whom the effect's result goes, and how long that takes. With an error instead, if there is one.
struct Answering {
    to: oneshot::Sender<Result<Found>>,
    after: u64,
    instead: Option<Error>,
}

#[derive(Clone)]
struct Request {
    host: Host,
    op: StoreOp,
    key: String,
    body: Bytes,
}

/// What a request came to.
enum Found {
    Done,
    Object(Bytes),
    Listed(Vec<(String, u64)>),
}

fn failed(why: &str) -> Error {
    Error::Generic { store: "simulated", source: why.to_owned().into() }
}

fn exists(key: &str) -> Error {
    Error::AlreadyExists { path: key.to_owned(), source: "taken".into() }
}

impl Bucket {
    /// An empty bucket.
    pub fn new(time: &Time, rng: Rng, recorder: &Recorder) -> Arc<Self> {
        let inner = Inner {
            objects: BTreeMap::new(),
            rng,
            weather: Weather::CALM,
            unreachable: BTreeSet::new(),
            due: BTreeMap::new(),
            next: 0,
        };
        Arc::new(Self { inner: Mutex::new(inner), time: time.clone(), recorder: recorder.clone() })
    }

    /// What goes wrong from now on.
    pub fn weather(&self, weather: Weather) {
        self.inner.lock().weather = weather;
    }

    /// Whether this machine's requests arrive.
    pub fn reachable(&self, from: Host, reachable: bool) {
        let mut inner = self.inner.lock();
        if reachable {
            inner.unreachable.remove(&from.0)
        } else {
            inner.unreachable.insert(from.0)
        };
    }

    /// Keys and digests of what is stored.
    pub fn content(&self) -> Vec<(String, u64)> {
        let inner = self.inner.lock();
        inner.objects.iter().map(|(key, object)| (key.clone(), Digest::of(object))).collect()
    }

    /// What is due by now happens.
    pub fn advance(&self) {
        let now = self.time.us();
        loop {
            let step = {
                let mut inner = self.inner.lock();
                let Some(entry) = inner.due.first_entry().filter(|e| e.key().0 <= now) else { return };
                entry.remove()
            };
            match step {
                // Whoever asked may be gone.
                Step::Answer(to, result) => drop(to.send(result)),
                Step::Effect(request, answering) => {
                    let result = self.effect(&request);
                    let Some(Answering { to, after, instead }) = answering else { continue };
                    let result = instead.map_or(result, Err);
                    self.inner.lock().add(now + after, Step::Answer(to, result));
                }
            }
        }
    }

    fn effect(&self, request: &Request) -> Result<Found> {
        let Request { host, op, key, body } = request;
        let absent = || Error::NotFound { path: key.clone(), source: "no such object".into() };
        let (result, effect, touched) = {
            let objects = &mut self.inner.lock().objects;
            let there = objects.get(key).cloned();
            match (op, there) {
                (StoreOp::Create, Some(_)) => (Err(exists(key)), StoreEffect::Exists, None),
                (StoreOp::Create | StoreOp::Put, _) => {
                    objects.insert(key.clone(), body.clone());
                    (Ok(Found::Done), StoreEffect::Done, Some(body.clone()))
                }
                (StoreOp::Get | StoreOp::Head, None) => (Err(absent()), StoreEffect::Absent, None),
                (StoreOp::Get | StoreOp::Head, Some(object)) => {
                    (Ok(Found::Object(object.clone())), StoreEffect::Done, Some(object))
                }
                (StoreOp::List, _) => {
                    let under = objects.range(key.clone()..).take_while(|(k, _)| k.starts_with(key.as_str()));
                    let listed = under.map(|(k, o)| (k.clone(), o.len() as u64)).collect();
                    (Ok(Found::Listed(listed)), StoreEffect::Done, None)
                }
                (StoreOp::Delete, there) => {
                    objects.remove(key);
                    let effect = if there.is_some() { StoreEffect::Done } else { StoreEffect::Absent };
                    (Ok(Found::Done), effect, there)
                }
            }
        };
        self.record(*host, *op, key, effect, touched.as_ref());
        result
    }

    fn record(&self, host: Host, op: StoreOp, key: &str, effect: StoreEffect, object: Option<&Bytes>) {
        let empty = Bytes::new();
        let object = object.unwrap_or(&empty);
        self.recorder.record(What::Store {
            host,
            op,
            key: key.to_owned(),
            effect,
            bytes: object.len() as u64,
            digest: Digest::of(object),
            seal: Seal::looks_like(object),
        });
    }

    fn ask(&self, host: Host, op: StoreOp, key: String, body: Bytes) -> oneshot::Receiver<Result<Found>> {
        let now = self.time.us();
        let (to, answer) = oneshot::channel();
        let request = Request { host, op, key, body };
        let lost = {
            let mut inner = self.inner.lock();
            let fate = inner.fate(&request);
            inner.send(now, request.clone(), fate, to)
        };
        if lost {
            self.record(host, op, &request.key, StoreEffect::Lost, None);
        }
        answer
    }
}

/// What becomes of a request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Through,
    Slow,
    Lost,
    Silent { effect: bool },
    Late,
    Ambiguous,
    Doubled,
    Conflict,
}

impl Inner {
    fn add(&mut self, at: u64, step: Step) {
        self.next += 1;
        self.due.insert((at, self.next), step);
    }

    fn fate(&mut self, request: &Request) -> Fate {
        if self.unreachable.contains(&request.host.0) {
            return if self.rng.one_in(2) { Fate::Lost } else { Fate::Silent { effect: false } };
        }
        let Weather { slow, lost, silent, late, ambiguous, doubled, conflict } = self.weather;
        let writes = matches!(request.op, StoreOp::Create | StoreOp::Put | StoreOp::Delete);
        let effect = self.rng.one_in(2);
        let fates = [
            (slow, Fate::Slow),
            (lost, Fate::Lost),
            (silent, Fate::Silent { effect }),
            (if writes { late } else { 0 }, Fate::Late),
            (if writes { ambiguous } else { 0 }, Fate::Ambiguous),
            (if writes { doubled } else { 0 }, Fate::Doubled),
            (if request.op == StoreOp::Create { conflict } else { 0 }, Fate::Conflict),
        ];
        let mut drawn = self.rng.below(1000);
        for (share, fate) in fates {
            if drawn < share {
                return fate;
            }
            drawn -= share;
        }
        Fate::Through
    }

    /// Whether it never takes effect.
    fn send(&mut self, now: u64, request: Request, fate: Fate, to: oneshot::Sender<Result<Found>>) -> bool {
        let there = self.rng.between(1_000, 8_000);
        let back = self.rng.between(500, 4_000);
        let error = || failed("503 by chance");
        let answering = |to, after, instead| Some(Answering { to, after, instead });
        match fate {
            Fate::Through => self.add(now + there, Step::Effect(request, answering(to, back, None))),
            Fate::Slow => {
                let (there, back) = (self.rng.between(there, 3_000_000), self.rng.between(back, 1_000_000));
                self.add(now + there, Step::Effect(request, answering(to, back, None)));
            }
            Fate::Lost => {
                self.add(now + there + back, Step::Answer(to, Err(error())));
                return true;
            }
            Fate::Silent { effect } => {
                // Longer than anybody waits.
                let never = 3_600_000_000;
                match effect {
                    true => self.add(now + there, Step::Effect(request, answering(to, never, None))),
                    false => {
                        self.add(now + never, Step::Answer(to, Err(error())));
                        return true;
                    }
                }
            }
            Fate::Late => {
                let late = self.rng.between(there + back, 8_000_000);
                self.add(now + there + back, Step::Answer(to, Err(error())));
                self.add(now + late, Step::Effect(request, None));
            }
            Fate::Ambiguous => {
                self.add(now + there, Step::Effect(request, answering(to, back, Some(error()))));
            }
            Fate::Doubled => {
                let again = self.rng.between(there, 400_000);
                self.add(now + there, Step::Effect(request.clone(), None));
                self.add(now + again, Step::Effect(request, answering(to, back, None)));
            }
            Fate::Conflict => {
                self.add(now + there + back, Step::Answer(to, Err(exists(&request.key))));
                return true;
            }
        }
        false
    }
}

/// The bucket as one machine reaches it.
#[derive(Clone)]
pub struct Door {
    bucket: Arc<Bucket>,
    host: Host,
}

impl Door {
    /// For one machine.
    pub fn new(bucket: &Arc<Bucket>, host: Host) -> Self {
        Self { bucket: bucket.clone(), host }
    }

    async fn ask(&self, op: StoreOp, key: &str, body: Bytes) -> Result<Found> {
        let answer = self.bucket.ask(self.host, op, key.to_owned(), body);
        answer.await.unwrap_or_else(|_gone| Err(failed("the run is over")))
    }

    async fn object(&self, op: StoreOp, location: &Path) -> Result<Bytes> {
        match self.ask(op, location.as_ref(), Bytes::new()).await? {
            Found::Object(object) => Ok(object),
            Found::Done | Found::Listed(_) => Err(failed("not an object")),
        }
    }

    async fn listed(&self, prefix: Option<&Path>) -> Result<Vec<ObjectMeta>> {
        // A prefix is a folder.
        let prefix = prefix.map_or(String::new(), |p| format!("{p}/"));
        match self.ask(StoreOp::List, &prefix, Bytes::new()).await? {
            Found::Listed(all) => {
                all.into_iter().map(|(key, size)| Ok(meta(Path::parse(key)?, size))).collect()
            }
            Found::Done | Found::Object(_) => Err(failed("not a listing")),
        }
    }
}

fn meta(location: Path, size: u64) -> ObjectMeta {
    ObjectMeta { location, last_modified: Default::default(), size, e_tag: None, version: None }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated")
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated")
    }
}

fn unused(what: &str) -> Error {
    Error::NotSupported { source: format!("no node asks for {what}").into() }
}

// The trait is written with async_trait; spelled out here, that is a boxed future over two borrows.
impl ObjectStore for Door {
    fn put_opts<'s, 'p, 'f>(
        &'s self,
        location: &'p Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> BoxFuture<'f, Result<PutResult>>
    where
        's: 'f,
        'p: 'f,
        Self: 'f,
    {
        async move {
            let op = match options.mode {
                PutMode::Create => StoreOp::Create,
                PutMode::Overwrite => StoreOp::Put,
                PutMode::Update(_) => return Err(unused("updates")),
            };
            self.ask(op, location.as_ref(), payload.into()).await?;
            Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
        }
        .boxed()
    }

    fn put_multipart_opts<'s, 'p, 'f>(
        &'s self,
        _location: &'p Path,
        _options: PutMultipartOptions,
    ) -> BoxFuture<'f, Result<Box<dyn MultipartUpload>>>
    where
        's: 'f,
        'p: 'f,
        Self: 'f,
    {
        async { Err(unused("uploads in parts")) }.boxed()
    }

    fn get_opts<'s, 'p, 'f>(
        &'s self,
        location: &'p Path,
        options: GetOptions,
    ) -> BoxFuture<'f, Result<GetResult>>
    where
        's: 'f,
        'p: 'f,
        Self: 'f,
    {
        async move {
            let op = if options.head { StoreOp::Head } else { StoreOp::Get };
            let object = self.object(op, location).await?;
            let size = object.len() as u64;
            let range = match &options.range {
                None => 0..size,
                Some(GetRange::Bounded(range)) => range.start.min(size)..range.end.min(size),
                Some(GetRange::Offset(from)) => *from.min(&size)..size,
                Some(GetRange::Suffix(n)) => size.saturating_sub(*n)..size,
            };
            let whole = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            let part = object.slice(whole(range.start)..whole(range.end));
            let payload = futures::stream::once(async move { Ok(part) }).boxed();
            Ok(GetResult {
                payload: GetResultPayload::Stream(payload),
                attributes: Default::default(),
                meta: meta(location.clone(), size),
                range,
                extensions: Default::default(),
            })
        }
        .boxed()
    }

    fn get_ranges<'s, 'p, 'r, 'f>(
        &'s self,
        location: &'p Path,
        ranges: &'r [Range<u64>],
    ) -> BoxFuture<'f, Result<Vec<Bytes>>>
    where
        's: 'f,
        'p: 'f,
        'r: 'f,
        Self: 'f,
    {
        async move {
            let object = self.object(StoreOp::Get, location).await?;
            let part = |range: &Range<u64>| {
                let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
                (range.end <= object.len()).then(|| object.slice(range))
            };
            ranges.iter().map(|r| part(r).ok_or_else(|| failed("416: no such range"))).collect()
        }
        .boxed()
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        locations
            .then(move |location| {
                let this = this.clone();
                async move {
                    let location = location?;
                    this.ask(StoreOp::Delete, location.as_ref(), Bytes::new()).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, prefix) = (self.clone(), prefix.cloned());
        let all = async move { this.listed(prefix.as_ref()).await };
        let each = |all: Result<Vec<_>>| match all {
            Ok(all) => futures::stream::iter(all).map(Ok).boxed(),
            Err(e) => futures::stream::once(async move { Err(e) }).boxed(),
        };
        futures::stream::once(all).flat_map(each).boxed()
    }

    fn list_with_delimiter<'s, 'p, 'f>(
        &'s self,
        _prefix: Option<&'p Path>,
    ) -> BoxFuture<'f, Result<ListResult>>
    where
        's: 'f,
        'p: 'f,
        Self: 'f,
    {
        async { Err(unused("folders")) }.boxed()
    }

    fn copy_opts<'s, 'p, 'q, 'f>(
        &'s self,
        _from: &'p Path,
        _to: &'q Path,
        _options: CopyOptions,
    ) -> BoxFuture<'f, Result<()>>
    where
        's: 'f,
        'p: 'f,
        'q: 'f,
        Self: 'f,
    {
        async { Err(unused("copies")) }.boxed()
    }
}

/// How long a request takes when nothing goes wrong, at most.
pub const USUAL: Duration = Duration::from_millis(12);
