//! TEMPORARY stand-in for the `wal` branch's store.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::{ObjectStore, path::Path};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("not found: {0}")]
    NotFound(String),
    #[error(transparent)]
    Other(#[from] object_store::Error),
}

#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    prefix: String,
}

impl Store {
    pub fn over(inner: Arc<dyn ObjectStore>, prefix: &str) -> Self {
        Self { inner, prefix: prefix.to_owned() }
    }

    pub async fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, StoreError> {
        let path = Path::from(format!("{}/{key}", self.prefix));
        match self.inner.get_ranges(&path, ranges).await {
            Err(object_store::Error::NotFound { path, .. }) => Err(StoreError::NotFound(path)),
            other => Ok(other?),
        }
    }

    pub async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<(), StoreError> {
        let path = Path::from(format!("{}/{key}", self.prefix));
        self.inner.put_opts(&path, bytes.into(), object_store::PutMode::Create.into()).await?;
        Ok(())
    }
}
