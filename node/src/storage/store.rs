//! The bucket: a handful of calls over object_store, each with a deadline and an outcome that says what to do.
//!
//! Invariant: a put that ended in an error is *unknown*: it may have landed, and may still land later. Puts are never
//! repeated here (the caller knows what it compares with); reads and deletes are, within their deadline. Called by
//! everything under `storage`; `url` beside it says which bucket.

use std::ops::Range;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig};
use tokio::time::Instant;

use crate::clock;
use crate::metrics::{Count, StoreCall, StoreFault, StoreMeters};

mod paced;
mod url;

use paced::Paced;

pub use url::{S3Env, StoreUrl, UrlError};

/// How long one call may take before it counts as failed; large bodies get a second more per MiB.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long listing may take.
const LIST_DEADLINE: Duration = Duration::from_secs(30);
/// How often a read or delete is tried within its deadline.
const TRIES: u32 = 4;

/// What a conditional put found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The object is stored, by this put.
    Stored,
    /// The store says that the key is taken (or, on S3, that another put of it is under way). Read it to know.
    Exists,
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// Its size.
    pub bytes: u64,
}

/// Why a call gave no answer. For a put each of them leaves the outcome unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Try again later.
    #[error("{call} {key}: {why}")]
    Unavailable {
        /// The call.
        call: &'static str,
        /// Its key.
        key: String,
        /// What the store or the network said.
        why: String,
    },
    /// Try again later; perhaps the store hangs.
    #[error("{call} {key}: no answer within {} s", after.as_secs())]
    TimedOut {
        /// The call.
        call: &'static str,
        /// Its key.
        key: String,
        /// The deadline.
        after: Duration,
    },
    /// Somebody has to change credentials, policy or configuration; then it works again.
    #[error("{call} {key}: refused: {why}")]
    Denied {
        /// The call.
        call: &'static str,
        /// Its key.
        key: String,
        /// What the store said.
        why: String,
    },
    /// The bucket cannot be opened with this configuration.
    #[error("object store: {0}")]
    Config(String),
}

impl StoreError {
    /// The same of a key by another name: one that is drawn by chance would make each failure look like another.
    pub(super) fn called(mut self, name: &str) -> Self {
        if let Self::Unavailable { key, .. } | Self::TimedOut { key, .. } | Self::Denied { key, .. } =
            &mut self
        {
            name.clone_into(key);
        }
        self
    }

    /// As what it is counted; `None`: the store was not asked.
    fn fault(&self) -> Option<StoreFault> {
        match self {
            Self::Unavailable { .. } => Some(StoreFault::Unavailable),
            Self::TimedOut { .. } => Some(StoreFault::TimedOut),
            Self::Denied { .. } => Some(StoreFault::Denied),
            Self::Config(_) => None,
        }
    }
}

/// A handle on the bucket. Clones share connections.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    objects: Arc<dyn ObjectStore>,
    prefix: String,
    local: Option<PathBuf>,
    meters: StoreMeters,
}

impl Store {
    /// Opens a bucket; a local folder is created. Says nothing about whether it works: see `probe`.
    pub fn open(url: &StoreUrl, env: S3Env) -> Result<Self, StoreError> {
        let config = |e: object_store::Error| StoreError::Config(text(&e));
        match url {
            StoreUrl::File(folder) => {
                let at = |e| StoreError::Config(format!("{}: {e}", folder.display()));
                std::fs::create_dir_all(folder).map_err(at)?;
                let folder = folder.canonicalize().map_err(at)?;
                let objects = LocalFileSystem::new_with_prefix(&folder).map_err(config)?.with_fsync(true);
                Ok(Self::new(Arc::new(objects), String::new(), Some(folder)))
            }
            StoreUrl::S3 { bucket, prefix } => {
                let objects = s3(bucket, env)?.build().map_err(config)?;
                Ok(Self::over(Arc::new(objects), prefix))
            }
        }
    }

    /// A bucket over any implementation: tests and simulation.
    pub fn over(objects: Arc<dyn ObjectStore>, prefix: &str) -> Self {
        let prefix = prefix.trim_matches('/').to_owned();
        Self::new(objects, prefix, None)
    }

    fn new(objects: Arc<dyn ObjectStore>, prefix: String, local: Option<PathBuf>) -> Self {
        Self { inner: Arc::new(Inner { objects, prefix, local, meters: StoreMeters::default() }) }
    }

    /// What was asked of it, and how that went.
    pub fn meters(&self) -> &StoreMeters {
        &self.inner.meters
    }

    /// What lies below.
    #[cfg(test)]
    pub(crate) fn objects(&self) -> Arc<dyn ObjectStore> {
        self.inner.objects.clone()
    }

    /// The folder, if the bucket is one.
    pub fn local_dir(&self) -> Option<&FsPath> {
        self.inner.local.as_deref()
    }

    /// Stores `body` unless the key is taken.
    pub async fn put_if_absent(&self, key: &str, body: Bytes) -> Result<Put, StoreError> {
        let began = Instant::now();
        let done = self.put(key, body).await;
        self.counted(StoreCall::Put, began, done)
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Put, StoreError> {
        let path = self.path(key)?;
        let limit = DEADLINE + Duration::from_secs((body.len() >> 20) as u64);
        if body.len() >= paced::LARGE
            && let Some(folder) = &self.inner.local
        {
            let put = put_paced(folder.join(path.as_ref()), body.clone());
            match within("put", key, limit, put).await? {
                Ok(Paced::Stored) => return Ok(Put::Stored),
                Ok(Paced::Exists) => return self.really_exists(key, &path).await,
                Ok(Paced::NoFolder) => {}
                Err(e) => {
                    let why = e.to_string();
                    return Err(StoreError::Unavailable { call: "put", key: key.to_owned(), why });
                }
            }
        }
        let options = PutOptions::from(PutMode::Create);
        let put = self.inner.objects.put_opts(&path, body.into(), options);
        match within("put", key, limit, put).await? {
            Ok(_) => Ok(Put::Stored),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                self.really_exists(key, &path).await
            }
            Err(e) => Err(error("put", key, &e)),
        }
    }

    /// "Exists" is also what a conflict of the moment comes as (S3's 409), which says nothing.
    async fn really_exists(&self, key: &str, path: &Path) -> Result<Put, StoreError> {
        // To whoever asks it is a part of the put.
        let retries = self.retries(StoreCall::Put);
        let found = retried("head", key, DEADLINE, retries, || self.inner.objects.head(path));
        match absent_is_none(found.await?, "head", key)? {
            Some(_) => Ok(Put::Exists),
            None => {
                let why = "a conflict, and yet the key is free".to_owned();
                Err(StoreError::Unavailable { call: "put", key: key.to_owned(), why })
            }
        }
    }

    /// The object, or `None` if there is none.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        let path = &self.path(key)?;
        let get = || async { self.inner.objects.get(path).await?.bytes().await };
        let began = Instant::now();
        let got = retried("get", key, DEADLINE * 3, self.retries(StoreCall::Get), get).await;
        self.counted(StoreCall::Get, began, got.and_then(|got| absent_is_none(got, "get", key)))
    }

    /// Several ranges of one object, in order; neighbours are fetched together. `None` if the object is gone.
    pub async fn get_ranges(
        &self,
        key: &str,
        ranges: &[Range<u64>],
    ) -> Result<Option<Vec<Bytes>>, StoreError> {
        let path = &self.path(key)?;
        let get = || self.inner.objects.get_ranges(path, ranges);
        let began = Instant::now();
        let got = retried("get", key, DEADLINE * 3, self.retries(StoreCall::Get), get).await;
        self.counted(StoreCall::Get, began, got.and_then(|got| absent_is_none(got, "get", key)))
    }

    /// Deletes the object; that there is none is success.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = &self.path(key)?;
        let delete = || self.inner.objects.delete(path);
        let began = Instant::now();
        let deleted = retried("delete", key, DEADLINE, self.retries(StoreCall::Delete), delete).await;
        let deleted = deleted.and_then(|done| absent_is_none(done, "delete", key)).map(|_| ());
        self.counted(StoreCall::Delete, began, deleted)
    }

    /// At most `limit` of the objects whose keys begin with the folder `prefix`, in no particular order. A hint: never
    /// the proof that something is not there.
    pub async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Listed>, StoreError> {
        let path = self.path(prefix)?;
        let skip = if self.inner.prefix.is_empty() { 0 } else { self.inner.prefix.len() + 1 };
        let listing = async {
            let mut found = Vec::new();
            let mut objects = self.inner.objects.list(Some(&path));
            while found.len() < limit {
                let Some(o) = objects.try_next().await? else { break };
                let key = o.location.as_ref().get(skip..).unwrap_or_default().to_owned();
                found.push(Listed { key, bytes: o.size });
            }
            Ok(found)
        };
        let began = Instant::now();
        let listed = within("list", prefix, LIST_DEADLINE, listing).await;
        let listed = listed.and_then(|listed| listed.map_err(|e| error("list", prefix, &e)));
        self.counted(StoreCall::List, began, listed)
    }

    /// Counts a call. One that its caller gives up is not counted.
    fn counted<T>(
        &self,
        call: StoreCall,
        began: Instant,
        done: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let meters = &self.inner.meters;
        meters.seconds.at(call).time(began.elapsed());
        if let Some(fault) = done.as_ref().err().and_then(StoreError::fault) {
            meters.errors.at(call).at(fault).inc();
        }
        done
    }

    fn retries(&self, call: StoreCall) -> &Count {
        self.inner.meters.retries.at(call)
    }

    fn path(&self, key: &str) -> Result<Path, StoreError> {
        let whole = if self.inner.prefix.is_empty() {
            Path::parse(key)
        } else {
            Path::parse(format!("{}/{key}", self.inner.prefix))
        };
        whole.map_err(|e| StoreError::Config(format!("the key {key:?} is not usable: {e}")))
    }
}

/// Away from the runtime's threads, as the library does for its own puts; who gives up waiting does not stop it.
#[allow(clippy::disallowed_methods, reason = "the store has no set of tasks; see above")]
async fn put_paced(path: PathBuf, body: Bytes) -> std::io::Result<Paced> {
    let done = tokio::task::spawn_blocking(move || paced::put(&path, &body)).await;
    done.map_err(std::io::Error::other)?
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({}/{})", self.inner.objects, self.inner.prefix)
    }
}

/// The builder, with object_store's own retries off: a put that it repeated behind our back would answer "exists" to
/// its own first try, and its time-outs are longer than ours.
fn s3(bucket: &str, env: S3Env) -> Result<AmazonS3Builder, StoreError> {
    let S3Env { endpoint, region, access_key_id, secret_access_key, session_token, more } = env;
    let client = ClientOptions::new()
        .with_connect_timeout(Duration::from_secs(3))
        .with_timeout(DEADLINE * 12)
        .with_pool_idle_timeout(Duration::from_secs(20));
    // First of all: it replaces what the calls below set in it.
    let mut b = AmazonS3Builder::new().with_client_options(client);
    for (name, value) in more {
        // As the library does for the environment: names that it does not know are for somebody else.
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            b = b.with_config(key, value);
        }
    }
    if let Some(endpoint) = endpoint {
        b = b.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
    }
    if let Some(region) = region {
        b = b.with_region(region);
    }
    match (access_key_id, secret_access_key) {
        (Some(id), Some(secret)) => b = b.with_access_key_id(id).with_secret_access_key(secret),
        (None, None) => {}
        _ => return Err(StoreError::Config("an access key id and its secret go together".to_owned())),
    }
    if let Some(token) = session_token {
        b = b.with_token(token);
    }
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    // Bulk deletes are what S3 look-alikes most often lack.
    Ok(b.with_bucket_name(bucket).with_retry(retry).with_disable_bulk_delete(true))
}

async fn within<T>(
    call: &'static str,
    key: &str,
    after: Duration,
    work: impl Future<Output = T>,
) -> Result<T, StoreError> {
    let late = |_e| StoreError::TimedOut { call, key: key.to_owned(), after };
    tokio::time::timeout(after, work).await.map_err(late)
}

/// Runs an idempotent call up to [`TRIES`] times in all, within `after` in all.
async fn retried<T, F>(
    call: &'static str,
    key: &str,
    after: Duration,
    retries: &Count,
    mut once: impl FnMut() -> F,
) -> Result<object_store::Result<T>, StoreError>
where
    F: Future<Output = object_store::Result<T>>,
{
    let tries = async {
        let mut pause = Duration::from_millis(50);
        for _ in 1..TRIES {
            match once().await {
                Err(e) if transient(&e) => tokio::time::sleep(jittered(pause)).await,
                outcome => return outcome,
            }
            retries.inc();
            pause *= 3;
        }
        once().await
    };
    within(call, key, after, tries).await
}

/// Between half of `pause` and all of it, so that many waiters do not come back at once.
pub(super) fn jittered(pause: Duration) -> Duration {
    let half = pause / 2;
    half + half.mul_f64(clock::random_u64() as f64 / u64::MAX as f64)
}

fn transient(e: &object_store::Error) -> bool {
    use object_store::Error as E;
    // A local read that failed stays failed; only a remote one is worth another try at once.
    match e {
        E::Generic { store, .. } => *store != "LocalFileSystem",
        E::JoinError { .. } => true,
        _ => false,
    }
}

fn absent_is_none<T>(
    got: object_store::Result<T>,
    call: &'static str,
    key: &str,
) -> Result<Option<T>, StoreError> {
    match got {
        Ok(value) => Ok(Some(value)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(e) => Err(error(call, key, &e)),
    }
}

fn error(call: &'static str, key: &str, e: &object_store::Error) -> StoreError {
    use object_store::Error as E;
    let (key, why) = (key.to_owned(), text(e));
    match e {
        E::PermissionDenied { .. } | E::Unauthenticated { .. } | E::NotImplemented { .. } => {
            StoreError::Denied { call, key, why }
        }
        _ => StoreError::Unavailable { call, key, why },
    }
}

/// An error with its causes on one line, bounded: servers answer with whole pages. Of a request to a server which one it
/// was, and what it said, or the network: the key and how long it took would make each failure look like another.
fn text(e: &dyn std::error::Error) -> String {
    let mut causes: Vec<String> =
        std::iter::successors(Some(e), |cause| cause.source()).map(ToString::to_string).collect();
    if let Some(request) = causes.iter().position(|c| c.starts_with("Error performing "))
        && request + 1 < causes.len()
    {
        let server = server(&causes[request]);
        causes.drain(..=request);
        causes.splice(..0, server);
    }
    let mut out = String::new();
    for cause in causes {
        if out.is_empty() {
            out = cause;
        } else if !out.contains(&cause) {
            out = format!("{out}: {cause}");
        }
    }
    without_page(&out).chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect()
}

/// Of "Error performing METHOD URL in …".
fn server(request: &str) -> Option<String> {
    let url: http::Uri = request.split_whitespace().nth(3)?.parse().ok()?;
    Some(format!("{}://{}", url.scheme_str()?, url.authority()?))
}

/// Of an S3 error document its code and message. The rest is the request's number and the like.
fn without_page(text: &str) -> String {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(inner, _)| inner)
    };
    match (text.find("<?xml").or(text.find("<Error")), element("Code")) {
        (Some(page), Some(code)) => {
            let message = element("Message").map(|m| format!(": {m}")).unwrap_or_default();
            format!("{}{code}{message}", &text[..page])
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
