//! Buckets that fail on demand: one in this process that speaks enough of S3 for object_store ([`FakeS3`]), and a real
//! server ([`RealBucket`]) behind a proxy ([`FaultProxy`]).
//!
//! They outlive the nodes that a test kills, as a bucket would. In the fake one puts are atomic and put-if-absent is
//! honoured, unless [`Faults`] say otherwise; the real one is on its own.

mod faults;
mod proxy;
mod requests;
#[cfg(test)]
mod tests;
mod versity;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

pub use faults::{Faults, Outage};
pub use proxy::{FaultProxy, Met};
pub use versity::{RealBucket, wanted};

use crate::node::Setup;
use crate::rng::Rng;

/// The bucket's name in URLs.
pub const BUCKET: &str = "weir";

/// How a client reaches a bucket.
#[derive(Debug, Clone)]
pub struct Access {
    pub endpoint: String,
    pub bucket: String,
    pub key: String,
    pub secret: String,
}

impl Access {
    /// A node that keeps its records there.
    pub fn setup(&self, data: impl Into<std::path::PathBuf>) -> Setup {
        self.of(Setup::new(data))
    }

    /// The same node, with its records there.
    pub fn of(&self, setup: Setup) -> Setup {
        setup
            .flag("store", format!("s3://{}/test", self.bucket))
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", &self.key)
            .env("AWS_SECRET_ACCESS_KEY", &self.secret)
    }
}

/// A running bucket; it goes away with this handle.
#[derive(Debug)]
pub struct FakeS3 {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    objects: Mutex<BTreeMap<String, Bytes>>,
    faults: Mutex<Faults>,
    rng: Mutex<Rng>,
    /// Puts that take effect after their answer.
    late: Mutex<JoinSet<()>>,
    puts: Mutex<u64>,
    /// Requests left without an answer: in an outage that hangs, or held.
    unanswered: AtomicU64,
    /// Every WAL object that was ever stored, once that is asked for.
    wal: Mutex<Option<BTreeMap<String, Bytes>>>,
    /// What was done to which key, for a failure's message.
    journal: Mutex<Vec<String>>,
    since: Instant,
}

impl FakeS3 {
    /// A bucket without objects and faults; `seed` decides which requests a fault hits.
    pub async fn start(seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            objects: Mutex::default(),
            faults: Mutex::new(Faults::default()),
            rng: Mutex::new(Rng::new(seed)),
            late: Mutex::default(),
            puts: Mutex::new(0),
            unanswered: AtomicU64::new(0),
            wal: Mutex::default(),
            journal: Mutex::default(),
            since: Instant::now(),
        });
        let server = tokio::spawn(serve(listener, shared.clone()));
        Self { address, shared, server }
    }

    /// A node that keeps its records here.
    pub fn setup(&self, data: impl Into<std::path::PathBuf>) -> Setup {
        let (endpoint, test) = (format!("http://{}", self.address), "test".to_owned());
        Access { endpoint, bucket: BUCKET.to_owned(), key: test.clone(), secret: test }.setup(data)
    }

    /// `host:port` of its endpoint.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// From now on these faults.
    pub fn set(&self, faults: Faults) {
        *self.shared.faults.lock().unwrap() = faults;
    }

    /// Keeps a copy of every WAL object that is stored from now on, also past its deletion.
    pub fn keep_wal(&self) {
        self.shared.wal.lock().unwrap().get_or_insert_default();
    }

    /// What [`Self::keep_wal`] has kept.
    pub fn kept_wal(&self) -> BTreeMap<String, Bytes> {
        self.shared.wal.lock().unwrap().clone().unwrap_or_default()
    }

    /// All keys.
    pub fn keys(&self) -> Vec<String> {
        self.shared.objects.lock().unwrap().keys().cloned().collect()
    }

    /// All objects as they are now.
    pub fn objects(&self) -> BTreeMap<String, Bytes> {
        self.shared.objects.lock().unwrap().clone()
    }

    /// Makes it hold exactly these, behind the node's back.
    pub fn hold(&self, objects: BTreeMap<String, Bytes>) {
        *self.shared.objects.lock().unwrap() = objects;
    }

    /// One object.
    pub fn get(&self, key: &str) -> Option<Bytes> {
        self.shared.objects.lock().unwrap().get(key).cloned()
    }

    /// Puts or replaces an object, behind the node's back.
    pub fn put(&self, key: &str, value: Bytes) {
        self.shared.objects.lock().unwrap().insert(key.to_owned(), value);
    }

    /// Removes an object, behind the node's back.
    pub fn remove(&self, key: &str) {
        self.shared.objects.lock().unwrap().remove(key);
    }

    /// Every change so far, a line each.
    pub fn journal(&self) -> String {
        self.shared.journal.lock().unwrap().join("\n")
    }

    /// How many requests were left without an answer.
    pub fn unanswered(&self) -> u64 {
        self.shared.unanswered.load(Ordering::SeqCst)
    }

    /// How many puts have come.
    pub fn puts(&self) -> u64 {
        *self.shared.puts.lock().unwrap()
    }
}

impl Drop for FakeS3 {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Dropping the set with this task closes every connection.
    let mut connections = JoinSet::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let shared = shared.clone();
        connections.spawn(async move {
            let service = service_fn(|request| requests::answer(shared.clone(), request));
            // A cut connection is the client's affair, or a fault of ours.
            let served = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
            drop(served);
        });
        while connections.try_join_next().is_some() {}
    }
}

impl Shared {
    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.journal.lock().unwrap().push(format!("{:9.3} {what}", self.since.elapsed().as_secs_f64()));
    }

    /// Stores unless the condition forbids it.
    fn store(&self, key: &str, body: Bytes, if_absent: bool) -> bool {
        let mut objects = self.objects.lock().unwrap();
        if if_absent && objects.contains_key(key) {
            self.note(format_args!("exists {key}"));
            return false;
        }
        self.note(format_args!("stored {key}, {} bytes", body.len()));
        if let Some(wal) = self.wal.lock().unwrap().as_mut().filter(|_| key.contains("/wal/")) {
            wal.insert(key.to_owned(), body.clone());
        }
        objects.insert(key.to_owned(), body);
        true
    }

    fn store_late(self: &Arc<Self>, after: Duration, key: String, body: Bytes, if_absent: bool) {
        let this = self.clone();
        self.late.lock().unwrap().spawn(async move {
            tokio::time::sleep(after).await;
            this.store(&key, body, if_absent);
        });
    }
}
