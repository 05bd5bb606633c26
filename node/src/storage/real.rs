//! The bucket that the store's tests run over: in memory, or in a real S3 server where the gate provides one.
//!
//! The part `s3` of the gate runs the same tests a second time with the server. Tests that stop the clock, or count on
//! what a few turns of the runtime do, name [`FaultStore::in_memory`](super::faults::FaultStore::in_memory) instead.

use std::net::SocketAddr;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use weir_tests::s3::{Access, RealBucket, wanted};

use super::store::{S3Env, Store, StoreUrl};

/// An empty bucket; the real one goes away with this.
#[derive(Clone)]
pub(crate) struct Bucket {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) real: Option<Arc<RealBucket>>,
}

impl Bucket {
    /// Of the kind that this run is about.
    pub(crate) fn new() -> Self {
        if wanted() { Self::real() } else { Self::in_memory() }
    }

    pub(crate) fn in_memory() -> Self {
        Self { objects: Arc::new(InMemory::new()), real: None }
    }

    /// In the real server.
    pub(crate) fn real() -> Self {
        let bucket = RealBucket::new().expect("a bucket in the S3 server");
        Self { objects: open(&bucket.access()).objects(), real: Some(Arc::new(bucket)) }
    }
}

/// A bucket as a node opens it.
fn open(access: &Access) -> Store {
    let env = S3Env {
        endpoint: Some(access.endpoint.clone()),
        region: Some("us-east-1".to_owned()),
        access_key_id: Some(access.key.clone()),
        secret_access_key: Some(access.secret.clone()),
        ..S3Env::default()
    };
    let url = StoreUrl::S3 { bucket: access.bucket.clone(), prefix: "p".to_owned() };
    Store::open(&url, env).expect("the configuration is good")
}

/// The same through whoever listens at `door`.
pub(crate) fn open_at(bucket: &RealBucket, door: SocketAddr) -> Store {
    open(&bucket.access_at(door))
}
