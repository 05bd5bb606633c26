//! An object store that fails as told: for tests and fault builds only.
//!
//! Invariant: without a programmed fault every call goes through unchanged. Faults on puts are queued per key fragment
//! and used up one per put, in order.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::real::Bucket;

/// What happens to one put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An error, and nothing was stored.
    FailBefore,
    /// An error, although it was stored.
    FailAfter,
    /// No answer before [`FaultStore::release`]; stored then.
    HangBefore,
    /// Stored at once, no answer before [`FaultStore::release`].
    HangAfter,
    /// An error now; stored (if the key is still free) at [`FaultStore::land_late_puts`].
    Late,
    /// 409, nothing stored: object_store says "exists".
    Conflict,
    /// Claims to have stored, and has not.
    SayStored,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct FaultStore {
    inner: Arc<dyn ObjectStore>,
    bucket: Bucket,
    state: Arc<Mutex<State>>,
    released: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct State {
    down: bool,
    hang_all: bool,
    ignore_condition: bool,
    lie: bool,
    puts: Vec<(String, VecDeque<Fault>)>,
    gets: Vec<(String, u32)>,
    overtaking: Vec<(String, Bytes)>,
    late: Vec<(Path, PutPayload, PutOptions)>,
    counts: Counts,
}

/// How many calls of each kind came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Puts.
    pub(crate) puts: u64,
    /// Gets, ranged ones included.
    pub(crate) gets: u64,
    /// Listings.
    pub(crate) lists: u64,
    /// Puts that wait for an answer now.
    pub(crate) hanging: u64,
}

impl FaultStore {
    /// Over an empty bucket of the kind that this run is about.
    pub(crate) fn new() -> Arc<Self> {
        Self::over(Bucket::new())
    }

    /// Over an empty bucket in memory, whatever this run is about.
    pub(crate) fn in_memory() -> Arc<Self> {
        Self::over(Bucket::in_memory())
    }

    fn over(bucket: Bucket) -> Arc<Self> {
        let (released, _) = watch::channel(0);
        let (inner, released) = (bucket.objects.clone(), Arc::new(released));
        Arc::new(Self { inner, bucket, state: Arc::default(), released })
    }

    /// Whether a server is below: each call costs a request.
    pub(crate) fn is_real(&self) -> bool {
        self.bucket.real.is_some()
    }

    /// The next put whose key contains `fragment` meets `fault`; calls queue up.
    pub(crate) fn on_put(&self, fragment: &str, fault: Fault) {
        let mut state = self.state.lock();
        match state.puts.iter_mut().find(|(f, _)| f == fragment) {
            Some((_, queue)) => queue.push_back(fault),
            None => state.puts.push((fragment.to_owned(), VecDeque::from([fault]))),
        }
    }

    /// Just before the next put of a key that contains `fragment`, somebody else stores `object` under that key.
    pub(crate) fn overtake(&self, fragment: &str, object: Bytes) {
        self.state.lock().overtaking.push((fragment.to_owned(), object));
    }

    /// Forgets the faults that no put has met yet.
    pub(crate) fn clear_puts(&self) {
        self.state.lock().puts.clear();
    }

    /// The next `times` gets of keys that contain `fragment` fail.
    pub(crate) fn fail_gets(&self, fragment: &str, times: u32) {
        self.state.lock().gets.push((fragment.to_owned(), times));
    }

    /// Every call fails while the store is down.
    pub(crate) fn down(&self, down: bool) {
        self.state.lock().down = down;
    }

    /// Every put hangs (before it is stored) until released.
    pub(crate) fn hang_all(&self, hang: bool) {
        self.state.lock().hang_all = hang;
    }

    /// Puts overwrite, whatever their condition.
    pub(crate) fn ignore_put_if_absent(&self, ignore: bool) {
        self.state.lock().ignore_condition = ignore;
    }

    /// Conditional puts of taken keys say "exists" and overwrite all the same.
    pub(crate) fn lie_about_put_if_absent(&self, lie: bool) {
        self.state.lock().lie = lie;
    }

    /// Lets all puts that hang now go on.
    pub(crate) fn release(&self) {
        self.released.send_modify(|n| *n += 1);
    }

    /// Carries out the late puts; returns how many of them found their key free.
    pub(crate) async fn land_late_puts(&self) -> usize {
        let late = std::mem::take(&mut self.state.lock().late);
        let mut landed = 0;
        for (path, payload, options) in late {
            landed += usize::from(self.inner.put_opts(&path, payload, options).await.is_ok());
        }
        landed
    }

    /// What was called so far.
    pub(crate) fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    fn fault_for(&self, path: &Path) -> Option<Fault> {
        let mut state = self.state.lock();
        if state.hang_all {
            return Some(Fault::HangBefore);
        }
        let queue = state.puts.iter_mut().find(|(f, q)| !q.is_empty() && path.as_ref().contains(f.as_str()));
        queue.and_then(|(_, q)| q.pop_front())
    }

    fn overtaker(&self, path: &Path) -> Option<Bytes> {
        let overtaking = &mut self.state.lock().overtaking;
        let found = overtaking.iter().position(|(f, _)| path.as_ref().contains(f.as_str()))?;
        Some(overtaking.swap_remove(found).1)
    }

    fn check_up(&self) -> Result<()> {
        if self.state.lock().down { Err(injected("the store is down")) } else { Ok(()) }
    }

    fn check_get(&self, path: &Path) -> Result<()> {
        self.check_up()?;
        let mut state = self.state.lock();
        state.counts.gets += 1;
        match state.gets.iter_mut().find(|(f, n)| *n > 0 && path.as_ref().contains(f.as_str())) {
            Some((_, n)) => {
                *n -= 1;
                Err(injected("read failed"))
            }
            None => Ok(()),
        }
    }

    async fn hang(&self) {
        self.state.lock().counts.hanging += 1;
        let _guard = Hanging(self.state.clone());
        let mut released = self.released.subscribe();
        released.mark_unchanged();
        // The sender lives in `self`; an error cannot come.
        drop(released.changed().await);
    }

    async fn put_with_faults(
        &self,
        path: Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        self.check_up()?;
        let (ignore, lie) = {
            let state = self.state.lock();
            (state.ignore_condition, state.lie)
        };
        if let Some(object) = self.overtaker(&path) {
            self.inner.put_opts(&path, object.into(), PutMode::Create.into()).await?;
        }
        if ignore {
            options.mode = PutMode::Overwrite;
        }
        let done = PutResult { e_tag: None, version: None, extensions: Default::default() };
        let through = || self.inner.put_opts(&path, payload.clone(), options.clone());
        match self.fault_for(&path) {
            None => {
                let outcome = through().await;
                if lie && matches!(outcome, Err(Error::AlreadyExists { .. })) {
                    self.inner.put_opts(&path, payload, PutMode::Overwrite.into()).await?;
                }
                outcome
            }
            Some(Fault::FailBefore) => Err(injected("503")),
            Some(Fault::FailAfter) => {
                through().await?;
                Err(injected("connection reset"))
            }
            Some(Fault::HangBefore) => {
                self.hang().await;
                through().await
            }
            Some(Fault::HangAfter) => {
                let outcome = through().await;
                self.hang().await;
                outcome
            }
            Some(Fault::Late) => {
                self.state.lock().late.push((path.clone(), payload.clone(), options.clone()));
                Err(injected("time-out"))
            }
            Some(Fault::Conflict) => {
                Err(Error::AlreadyExists { path: path.to_string(), source: "409 Conflict".into() })
            }
            Some(Fault::SayStored) => Ok(done),
        }
    }
}

struct Hanging(Arc<Mutex<State>>);

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.lock().counts.hanging -= 1;
    }
}

fn injected(why: &'static str) -> Error {
    Error::Generic { store: "faults", source: format!("injected: {why}").into() }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({})", self.inner)
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({})", self.inner)
    }
}

// The trait is written with async_trait; spelled out here, that is a boxed future over two borrows.
impl ObjectStore for FaultStore {
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
        self.state.lock().counts.puts += 1;
        self.put_with_faults(location.clone(), payload, options).boxed()
    }

    fn put_multipart_opts<'s, 'p, 'f>(
        &'s self,
        location: &'p Path,
        options: PutMultipartOptions,
    ) -> BoxFuture<'f, Result<Box<dyn MultipartUpload>>>
    where
        's: 'f,
        'p: 'f,
        Self: 'f,
    {
        self.inner.put_multipart_opts(location, options)
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
            self.check_get(location)?;
            self.inner.get_opts(location, options).await
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
            self.check_get(location)?;
            self.inner.get_ranges(location, ranges).await
        }
        .boxed()
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.check_up() {
            Ok(()) => self.inner.delete_stream(locations),
            Err(e) => futures::stream::once(async move { Err(e) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.state.lock().counts.lists += 1;
        match self.check_up() {
            Ok(()) => self.inner.list(prefix),
            Err(e) => futures::stream::once(async move { Err(e) }).boxed(),
        }
    }

    fn list_with_delimiter<'s, 'p, 'f>(
        &'s self,
        prefix: Option<&'p Path>,
    ) -> BoxFuture<'f, Result<ListResult>>
    where
        's: 'f,
        'p: 'f,
        Self: 'f,
    {
        self.inner.list_with_delimiter(prefix)
    }

    fn copy_opts<'s, 'p, 'q, 'f>(
        &'s self,
        from: &'p Path,
        to: &'q Path,
        options: CopyOptions,
    ) -> BoxFuture<'f, Result<()>>
    where
        's: 'f,
        'p: 'f,
        'q: 'f,
        Self: 'f,
    {
        self.inner.copy_opts(from, to, options)
    }
}
