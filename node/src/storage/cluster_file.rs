//! `cluster.json` in the bucket: which cluster the bucket belongs to.
//!
//! Invariant (I10): written once, put-if-absent, by a founder, and believed only when read back; two founders on one
//! bucket end with one cluster. Used by `founding`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use weir_api::ClusterUid;

use super::store::{Store, StoreError};

/// The object's key.
pub const CLUSTER_KEY: &str = "cluster.json";
const VERSION: u32 = 1;

/// What the object says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterFile {
    /// Format of this object.
    pub version: u32,
    /// The cluster.
    pub uid: ClusterUid,
    /// The configured identity, if any (on Kubernetes the StreamCluster's UID).
    pub identity: Option<String>,
}

/// Why the object could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterFileError {
    /// The store did not answer; try again.
    #[error("cannot read or write {CLUSTER_KEY} in the store: {0}")]
    Store(#[from] StoreError),
    /// It is not ours to read.
    #[error("{CLUSTER_KEY} in the store does not verify: {0}")]
    Damaged(String),
}

impl ClusterFile {
    /// A founder's.
    pub fn new(uid: ClusterUid, identity: Option<String>) -> Self {
        Self { version: VERSION, uid, identity }
    }

    /// Reads it; `None` if the bucket has none.
    pub async fn read(store: &Store) -> Result<Option<Self>, ClusterFileError> {
        let Some(bytes) = store.get(CLUSTER_KEY).await? else { return Ok(None) };
        let file: Self =
            serde_json::from_slice(&bytes).map_err(|e| ClusterFileError::Damaged(e.to_string()))?;
        if file.version != VERSION {
            let version = file.version;
            return Err(ClusterFileError::Damaged(format!(
                "version {version} is not {VERSION}, which this build reads"
            )));
        }
        Ok(Some(file))
    }

    /// Writes it if there is none, then reads what is there: this one or another's.
    pub async fn write_and_read(&self, store: &Store) -> Result<Self, ClusterFileError> {
        let text = serde_json::to_vec_pretty(self).map_err(|e| ClusterFileError::Damaged(e.to_string()))?;
        store.put_if_absent(CLUSTER_KEY, Bytes::from(text)).await?;
        match Self::read(store).await? {
            Some(file) => Ok(file),
            None => Err(ClusterFileError::Damaged("written, but not there".to_owned())),
        }
    }
}
