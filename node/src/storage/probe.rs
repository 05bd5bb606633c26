//! Tries at start whether the bucket keeps the promises that everything rests on.
//!
//! Invariant: a node whose store fails here takes no writes; the error names the broken promise. Probe objects have
//! keys of their own and are deleted again. Called by `run`.

use bytes::Bytes;

use super::store::{Put, Store, StoreError};
use crate::clock;

/// What is wrong with the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// It accepts the condition and ignores it: two writers would overwrite each other. Never usable.
    #[error(
        "the object store does not honour put-if-absent (If-None-Match: *): {0}; it cannot keep appends safe"
    )]
    PutIfAbsent(&'static str),
    /// A stored object is not there, or is another. Never usable.
    #[error("the object store lacks read-after-write consistency: {0}")]
    ReadAfterWrite(&'static str),
    /// Ranges come back wrong. Never usable.
    #[error("the object store does not serve ranged reads: {0}")]
    RangedReads(&'static str),
    /// No answer, or no permission: nothing is known yet. Try again.
    #[error("the object store could not be probed: {0}")]
    Store(#[from] StoreError),
}

/// Probes `store`.
pub async fn probe(store: &Store) -> Result<(), ProbeError> {
    let key = format!("probe/{}", clock::random_nonce());
    let outcome = run(store, &key).await;
    // Also after a failure; what cannot be deleted now is a few bytes under a name that says what it is.
    let cleaned = store.delete(&key).await;
    let gone = async {
        outcome?;
        cleaned?;
        match store.get(&key).await? {
            None => Ok(()),
            Some(_) => Err(ProbeError::ReadAfterWrite("a deleted object can still be read")),
        }
    };
    gone.await.map_err(|e| match e {
        ProbeError::Store(e) => ProbeError::Store(e.called("probe/…")),
        other => other,
    })
}

async fn run(store: &Store, key: &str) -> Result<(), ProbeError> {
    let (ours, other) = (Bytes::from_static(b"0123456789abcdef"), Bytes::from_static(b"something else"));
    if store.get(key).await?.is_some() {
        return Err(ProbeError::ReadAfterWrite("an object that nobody stored can be read"));
    }
    if store.put_if_absent(key, ours.clone()).await? == Put::Exists {
        return Err(ProbeError::PutIfAbsent("a put of a new key was refused"));
    }
    match store.get(key).await? {
        Some(read) if read == ours => {}
        Some(_) => return Err(ProbeError::ReadAfterWrite("an object just stored reads back differently")),
        None => return Err(ProbeError::ReadAfterWrite("an object just stored cannot be read")),
    }
    if store.put_if_absent(key, other).await? == Put::Stored {
        return Err(ProbeError::PutIfAbsent("a second put of the same key was accepted"));
    }
    if store.get(key).await? != Some(ours.clone()) {
        return Err(ProbeError::PutIfAbsent("a refused put changed the object"));
    }
    match store.get_ranges(key, &[2..5, 10..16]).await? {
        Some(parts) if parts == [ours.slice(2..5), ours.slice(10..16)] => Ok(()),
        Some(_) => Err(ProbeError::RangedReads("a range reads back differently")),
        None => Err(ProbeError::RangedReads("an object that is there cannot be read by range")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::faults::{Fault, FaultStore};

    #[tokio::test]
    async fn a_good_store_passes_and_is_left_clean() {
        let faults = FaultStore::new();
        let store = Store::over(faults.clone(), "pre/fix");
        probe(&store).await.unwrap();
        assert_eq!(store.list("probe", 10).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_local_folder_passes() {
        let folder = tempfile::tempdir().unwrap();
        let url = super::super::store::StoreUrl::File(folder.path().join("b"));
        let store = Store::open(&url, Default::default()).unwrap();
        probe(&store).await.unwrap();
        assert_eq!(store.list("probe", 10).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_store_that_ignores_the_condition_is_refused_by_name() {
        let faults = FaultStore::new();
        faults.ignore_put_if_absent(true);
        let store = Store::over(faults.clone(), "");
        let error = probe(&store).await.unwrap_err();
        assert_eq!(error, ProbeError::PutIfAbsent("a second put of the same key was accepted"));
        assert!(error.to_string().contains("put-if-absent"), "{error}");
        assert_eq!(store.list("probe", 10).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_store_that_answers_exists_but_overwrites_is_refused_by_name() {
        let faults = FaultStore::new();
        faults.lie_about_put_if_absent(true);
        let error = probe(&Store::over(faults, "")).await.unwrap_err();
        assert_eq!(error, ProbeError::PutIfAbsent("a refused put changed the object"));
    }

    #[tokio::test]
    async fn a_store_that_forgets_what_it_stored_is_refused_by_name() {
        let faults = FaultStore::new();
        faults.on_put("probe", Fault::SayStored);
        let error = probe(&Store::over(faults, "")).await.unwrap_err();
        assert_eq!(error, ProbeError::ReadAfterWrite("an object just stored cannot be read"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_down_is_not_judged() {
        let faults = FaultStore::in_memory();
        faults.down(true);
        let error = probe(&Store::over(faults, "")).await.unwrap_err();
        assert!(matches!(error, ProbeError::Store(_)), "{error}");
    }
}
