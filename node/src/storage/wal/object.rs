//! The WAL in a bucket: one object per number, put-if-absent, the seal at the first absent number.
//!
//! Invariant: whichever of object and seal is stored first under a number stays there, so that writer and sealer cannot
//! both succeed at it. "Exists" proves nothing by itself: the object is read and compared.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::sync::mpsc;
use weir_api::{ClusterUid, SessionId};

use super::{FIRST_SEQ, PutError, WalError, WalObject, WalStore, WalWriter, check_header, corrupt_at};
use crate::fault;
use crate::mutant::{self, Mutant};
use crate::storage::keys;
use crate::storage::record::codec;
use crate::storage::seal::{self, Seal, SealNote};
use crate::storage::store::{Listed, Put, Store, StoreError, jittered};

/// How many objects recovery reads at a time, as long as they are small.
const READ_AHEAD: u64 = 32;
/// How many numbers behind a hole are looked at before it counts as the end.
const LOOK_BEYOND: u64 = 8;
/// How many bytes recovery reads ahead, about.
const READ_AHEAD_BYTES: u64 = 64 << 20;
/// How often in a row sealing tries without coming any further before it gives up for now.
const SEAL_TRIES: u32 = 6;
/// How often it loses the race for a number before it blocks the writer further ahead.
const LOST_RACES: u32 = 3;
/// How many deletes run at once.
const DELETES: usize = 16;
/// How many objects one listing names.
const LIST: usize = 1000;

/// WALs in a bucket.
pub struct ObjectWal {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    generation: u64,
    cluster: ClusterUid,
}

/// What stands under a number.
enum Found {
    Object(WalObject),
    Seal,
}

/// What one pass over the WAL came to.
enum Pass {
    Sealed(u64),
    /// The first absent number.
    Open(u64),
}

impl ObjectWal {
    /// Over `store`, in one generation of it.
    pub fn new(store: Store, generation: u64, cluster: ClusterUid) -> Self {
        Self { inner: Arc::new(Inner { store, generation, cluster }) }
    }
}

impl WalStore for ObjectWal {
    fn create<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Arc<dyn WalWriter>, WalError>> {
        async move {
            let first = keys::wal(self.inner.generation, session, FIRST_SEQ);
            match self.inner.store.get(&first).await.map_err(unavailable)? {
                Some(object) if !Seal::looks_like(&object) => Err(WalError::SessionExists(session.clone())),
                // Sealed before it wrote anything: the first put says so.
                _ => {
                    let (wal, session) = (self.inner.clone(), session.clone());
                    Ok(Arc::new(ObjectWriter { wal, session }) as Arc<dyn WalWriter>)
                }
            }
        }
        .boxed()
    }

    fn seal<'a>(
        &'a self,
        ended: &'a SessionId,
        from: u64,
        by: &'a SealNote,
        skip: &'a BTreeSet<u64>,
        each: mpsc::Sender<WalObject>,
    ) -> BoxFuture<'a, Result<u64, WalError>> {
        async move { self.inner.seal(ended, from.max(FIRST_SEQ), by, skip, &each).await }.boxed()
    }

    fn trim<'a>(&'a self, session: &'a SessionId, below: u64) -> BoxFuture<'a, Result<(), WalError>> {
        async move {
            let folder = keys::wal_folder(self.inner.generation, session);
            loop {
                let listed = self.inner.store.list(&folder, LIST).await.map_err(unavailable)?;
                let more = listed.len() == LIST;
                let deletes = listed.into_iter().map(|o| self.inner.trim_one(o, below));
                let deleted: Vec<bool> =
                    stream::iter(deletes).buffer_unordered(DELETES).try_collect().await?;
                if !more || !deleted.contains(&true) {
                    return Ok(());
                }
            }
        }
        .boxed()
    }
}

impl Inner {
    async fn seal(
        &self,
        ended: &SessionId,
        from: u64,
        by: &SealNote,
        skip: &BTreeSet<u64>,
        each: &mpsc::Sender<WalObject>,
    ) -> Result<u64, WalError> {
        let (mut at, mut tries, mut lost, mut why) = (from, 0, 0, String::new());
        loop {
            let open = match self.replay(ended, at, skip, each).await? {
                Pass::Sealed(end) => return Ok(end),
                Pass::Open(seq) => seq,
            };
            // A busy zombie may win the race for a number; each time it does, the replay comes further.
            (tries, lost) = if open > at { (0, lost + 1) } else { (tries + 1, lost) };
            at = open;
            if lost > LOST_RACES {
                self.block(ended, at + (1 << lost.min(20)), by).await;
            }
            if tries > SEAL_TRIES {
                return Err(WalError::Unavailable(format!("the seal cannot be put: {why}")));
            }
            if tries > 1 {
                tokio::time::sleep(jittered(Duration::from_millis(50) * (1 << tries))).await;
            }
            if mutant::on(Mutant::NoSeal) {
                return Ok(at);
            }
            fault::point("wal.object.seal.before");
            let seal = Seal { cluster: self.cluster, ended: ended.clone(), seq: at, note: by.clone() };
            let key = keys::wal(self.generation, ended, at);
            match self.store.put_if_absent(&key, seal.encode()).await {
                Ok(Put::Stored) => {
                    fault::point("wal.object.seal.after");
                    return Ok(at);
                }
                // Somebody was faster, or nobody knows: what stands there now decides.
                Ok(Put::Exists) => "the store says that it exists, and it does not".clone_into(&mut why),
                Err(e) => why = e.to_string(),
            }
        }
    }

    /// Puts a seal ahead of a zombie that wins every race for the first absent number: it gets no further than that, and
    /// so the race ends. What lies before is replayed and sealed as ever; the first seal in the row is the end.
    async fn block(&self, ended: &SessionId, seq: u64, by: &SealNote) {
        let seal = Seal { cluster: self.cluster, ended: ended.clone(), seq, note: by.clone() };
        if let Err(e) = self.store.put_if_absent(&keys::wal(self.generation, ended, seq), seal.encode()).await
        {
            tracing::debug!(session = %ended, seq, "a seal ahead of the writer is not confirmed: {e}");
        }
    }

    /// Sends every object from `from` to the seal or the first absent number.
    async fn replay(
        &self,
        ended: &SessionId,
        from: u64,
        skip: &BTreeSet<u64>,
        each: &mpsc::Sender<WalObject>,
    ) -> Result<Pass, WalError> {
        let (mut at, mut width) = (from, READ_AHEAD);
        loop {
            let (mut hole, mut filled) = (None, false);
            let mut reads = stream::iter(at..at.saturating_add(width))
                .map(|seq| self.read(ended, seq))
                .buffered(usize::try_from(width).unwrap_or(1));
            while let Some((seq, read)) = reads.next().await {
                let object = match (read?, hole) {
                    (Some(object), None) => object,
                    (None, None) => {
                        hole = Some(seq);
                        continue;
                    }
                    // The writer has two puts under way at most. So what stands two after the hole shows that the
                    // hole was filled once: just now, or its object is lost.
                    (Some(object), Some(h)) if seq > h + 1 && !Seal::looks_like(&object) => {
                        self.insist(ended, h, skip).await?;
                        filled = true;
                        break;
                    }
                    _ => continue,
                };
                let size = object.len() as u64;
                let object = match self.verify(ended, seq, &object) {
                    Ok(Found::Seal) => return Ok(Pass::Sealed(seq)),
                    Ok(Found::Object(object)) => object,
                    // It stays where it is: whatever stands there keeps the writer out.
                    Err(_skipped) if skip.contains(&seq) => WalObject { seq, bytes: 0, frames: Vec::new() },
                    Err(damaged) => return Err(damaged),
                };
                each.send(object).await.map_err(|_e| WalError::Abandoned)?;
                at = seq + 1;
                width = width.min((READ_AHEAD_BYTES / size.max(1)).max(2));
            }
            drop(reads);
            let Some(seq) = hole.filter(|_| !filled) else { continue };
            if !self.stands_beyond(ended, seq).await? {
                return Ok(Pass::Open(seq));
            }
            self.insist(ended, seq, skip).await?;
        }
    }

    async fn read(&self, session: &SessionId, seq: u64) -> (u64, Result<Option<Bytes>, WalError>) {
        let key = keys::wal(self.generation, session, seq);
        (seq, self.store.get(&key).await.map_err(unavailable))
    }

    /// Whether a record stands two or more behind the hole `seq`, where the pass that met it may not have looked.
    async fn stands_beyond(&self, session: &SessionId, seq: u64) -> Result<bool, WalError> {
        let first = seq.saturating_add(2);
        let mut reads = stream::iter(first..first.saturating_add(LOOK_BEYOND))
            .map(|seq| self.read(session, seq))
            .buffer_unordered(usize::try_from(LOOK_BEYOND).unwrap_or(1));
        while let Some((_, read)) = reads.next().await {
            if read?.is_some_and(|object| !Seal::looks_like(&object)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What stands at `seq` is to be read again, for it must be there: or it is lost. In the place of one that is to be
    /// skipped an object without records is put, or else a writer that lives on could fill the hole behind our back.
    async fn insist(&self, session: &SessionId, seq: u64, skip: &BTreeSet<u64>) -> Result<(), WalError> {
        if self.read(session, seq).await.1?.is_some() {
            return Ok(());
        }
        let key = keys::wal(self.generation, session, seq);
        if !skip.contains(&seq) {
            return Err(corrupt_at(seq, key, 0, "it is missing although later ones are there"));
        }
        let empty = codec::encode(&self.cluster.into(), session, seq, &[]);
        self.store.put_if_absent(&key, empty).await.map_err(unavailable)?;
        Ok(())
    }

    fn verify(&self, session: &SessionId, seq: u64, object: &Bytes) -> Result<Found, WalError> {
        let bad = |why: String| corrupt_at(seq, keys::wal(self.generation, session, seq), 0, why);
        if Seal::looks_like(object) {
            let seal = Seal::decode(object).map_err(|e| bad(e.to_string()))?;
            return if seal.cluster == self.cluster && seal.ended == *session && seal.seq == seq {
                Ok(Found::Seal)
            } else {
                Err(bad("it is the seal of another session, place or cluster".to_owned()))
            };
        }
        let (header, frames) = codec::decode(object).map_err(|e| bad(e.to_string()))?;
        check_header(&header, self.cluster, session, seq).map_err(bad)?;
        Ok(Found::Object(WalObject { seq, bytes: object.len() as u64, frames }))
    }

    /// Deletes one listed object if it is below `below` and no seal; says whether it did.
    async fn trim_one(&self, listed: Listed, below: u64) -> Result<bool, WalError> {
        let Some(keys::Key::Wal { seq, .. }) = keys::parse(self.generation, &listed.key) else {
            return Ok(false);
        };
        let seals_too = mutant::on(Mutant::SealDeleted);
        if seq >= below && !(seals_too && seq == below) {
            return Ok(false);
        }
        // No caller should ask for it, but a seal deleted would let a zombie in: look before what could be one.
        if listed.bytes == seal::LENGTH as u64 && !seals_too {
            let object = self.store.get(&listed.key).await.map_err(unavailable)?;
            if object.is_none_or(|o| Seal::looks_like(&o)) {
                return Ok(false);
            }
        }
        fault::point("wal.object.trim");
        self.store.delete(&listed.key).await.map_err(unavailable)?;
        Ok(true)
    }
}

struct ObjectWriter {
    wal: Arc<Inner>,
    session: SessionId,
}

impl WalWriter for ObjectWriter {
    fn put(&self, seq: u64, object: Bytes) -> BoxFuture<'_, Result<(), PutError>> {
        async move {
            let key = keys::wal(self.wal.generation, &self.session, seq);
            fault::point("wal.object.put.before");
            let put = self.wal.store.put_if_absent(&key, object.clone()).await;
            fault::point("wal.object.put.after");
            match put {
                Ok(Put::Stored) => Ok(()),
                Ok(Put::Exists) => self.compare(seq, &key, &object).await,
                Err(e) => Err(PutError::Unknown(e.to_string())),
            }
        }
        .boxed()
    }

    fn max_in_flight(&self) -> usize {
        2
    }

    fn pays_per_object(&self) -> bool {
        true
    }
}

impl ObjectWriter {
    /// What an object that exists already means.
    async fn compare(&self, seq: u64, key: &str, ours: &Bytes) -> Result<(), PutError> {
        let there = match self.wal.store.get(key).await {
            Ok(Some(object)) => object,
            Ok(None) => {
                return Err(PutError::Unknown(format!("put {key}: exists, said the store, but it does not")));
            }
            Err(e) => return Err(PutError::Unknown(e.to_string())),
        };
        if there == *ours {
            return Ok(());
        }
        match self.wal.verify(&self.session, seq, &there) {
            Ok(Found::Seal) => Err(PutError::Sealed),
            Ok(Found::Object(_)) => Err(PutError::Failed(format!(
                "{key} holds other records: another process runs as session {}",
                self.session
            ))),
            Err(e) => Err(PutError::Failed(format!("somebody else's data is in this session's place: {e}"))),
        }
    }
}

fn unavailable(e: StoreError) -> WalError {
    WalError::Unavailable(e.to_string())
}
