//! The WAL in a local folder: preallocated files, one writer thread, one fdatasync per group of appends.
//!
//! Under `<bucket>/g<generation>/wal/<node>/<epoch>/` lie
//!
//! ```text
//! owner            created by the session's one writer, exclusively; says `begun` once there is a log
//! <seq>.log        records from number <seq> (20 digits) on, then zeros or what an earlier use left
//! spare-<n>        zero-filled ahead of need, or trimmed and to be used again; renamed to <seq>.log
//! seal             created by whoever seals first; from then on the writer acknowledges nothing
//! end              where the WAL ends, decided once by the first sealer that has read it
//! ```
//!
//! Invariant: the writer writes, syncs, and only then, before it acknowledges, looks for the seal; a sealer creates the
//! seal, syncs the folder, and only then reads. Either the sealer sees the record or the writer sees the seal. A record
//! is exactly a WAL object's bytes. For file systems of one machine only: on a network file system the look could be
//! answered from a cache.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use weir_api::{ClusterUid, SessionId};

use super::{FIRST_SEQ, WalError, WalObject, WalStore, WalWriter};
use crate::storage::keys;
use crate::storage::seal::SealNote;
use crate::tasks::Tasks;

mod disk;
mod log;
mod reader;
mod sealer;
mod spare;

use disk::Disk;
use spare::Spares;

/// How large the files of a session are: the first, and from doubling to doubling the last.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    first: u64,
    last: u64,
    /// Filled at a time, and between two syncs: a long sync there would hold up those of the log.
    chunk: usize,
}

/// What `owner` says from the first log on.
const BEGUN: &[u8] = b"begun\n";

const SIZES: Sizes = Sizes { first: 1 << 20, last: 64 << 20, chunk: 1 << 20 };

/// WALs in a local folder.
pub struct LocalWal {
    place: Place,
    tasks: Tasks,
    sizes: Sizes,
    /// The sessions that this process writes: trimmed files go back to them.
    live: Arc<Mutex<BTreeMap<SessionId, Spares>>>,
}

/// Which bucket folder, which cluster; and the door to the disk.
#[derive(Clone)]
struct Place {
    bucket: PathBuf,
    generation: u64,
    cluster: ClusterUid,
    disk: Disk,
}

/// The folder of one session's WAL.
#[derive(Clone)]
struct Folder {
    /// The bucket's own folder, which exists.
    bucket: PathBuf,
    path: PathBuf,
    cluster: ClusterUid,
    session: SessionId,
    disk: Disk,
}

impl LocalWal {
    /// Under the bucket folder `bucket`, which exists.
    pub fn new(bucket: &Path, generation: u64, cluster: ClusterUid, tasks: Tasks) -> Self {
        let place = Place { bucket: bucket.to_owned(), generation, cluster, disk: Disk::default() };
        Self { place, tasks, sizes: SIZES, live: Arc::default() }
    }

    /// Files so small that a test crosses many.
    #[cfg(test)]
    pub(super) fn with_small_files(mut self) -> Self {
        self.sizes = Sizes { first: 4096, last: 16384, chunk: 1 << 20 };
        self
    }

    fn folder(&self, session: &SessionId) -> Folder {
        let Place { bucket, generation, cluster, disk } = self.place.clone();
        let path = bucket.join(keys::wal_folder(generation, session));
        Folder { bucket, path, cluster, session: session.clone(), disk }
    }
}

impl WalStore for LocalWal {
    fn create<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Arc<dyn WalWriter>, WalError>> {
        let (folder, tasks, sizes, live) =
            (self.folder(session), self.tasks.clone(), self.sizes, self.live.clone());
        blocking(&self.tasks, move || {
            let writer = log::start(&folder, &tasks, sizes)?;
            live.lock().insert(folder.session, writer.spares());
            Ok(Arc::new(writer) as Arc<dyn WalWriter>)
        })
    }

    fn seal<'a>(
        &'a self,
        ended: &'a SessionId,
        from: u64,
        by: &'a SealNote,
        skip: &'a BTreeSet<u64>,
        each: mpsc::Sender<WalObject>,
    ) -> BoxFuture<'a, Result<u64, WalError>> {
        let (folder, by, skip) = (self.folder(ended), by.clone(), skip.clone());
        blocking(&self.tasks, move || sealer::seal(&folder, from.max(FIRST_SEQ), &by, &skip, &each))
    }

    fn trim<'a>(&'a self, session: &'a SessionId, below: u64) -> BoxFuture<'a, Result<(), WalError>> {
        let folder = self.folder(session);
        let spares = self.live.lock().get(session).cloned();
        blocking(&self.tasks, move || sealer::trim(&folder, below, spares.as_ref()))
    }
}

/// Runs what blocks on files away from the tasks.
fn blocking<T: Send + 'static>(
    tasks: &Tasks,
    work: impl FnOnce() -> Result<T, WalError> + Send + 'static,
) -> BoxFuture<'_, Result<T, WalError>> {
    async move { tasks.blocking(work).await.map_err(|e| WalError::Unavailable(e.to_string()))? }.boxed()
}

impl Folder {
    fn seal(&self) -> PathBuf {
        self.path.join("seal")
    }

    fn end(&self) -> PathBuf {
        self.path.join("end")
    }

    fn owner(&self) -> PathBuf {
        self.path.join("owner")
    }

    fn log(&self, first: u64) -> PathBuf {
        self.path.join(format!("{first:020}.log"))
    }

    /// Creates the folder, and makes it last.
    fn make(&self) -> io::Result<()> {
        self.disk.make_folders(&self.bucket, &self.path)
    }

    /// The numbers the log files begin with, in order.
    fn logs(&self) -> io::Result<Vec<u64>> {
        let names = self.disk.list(&self.path)?;
        let mut firsts: Vec<u64> = names.iter().filter_map(|n| log_number(n)).collect();
        firsts.sort_unstable();
        Ok(firsts)
    }
}

fn log_number(name: &str) -> Option<u64> {
    let digits =
        name.strip_suffix(".log").filter(|d| d.len() == 20 && d.bytes().all(|b| b.is_ascii_digit()))?;
    digits.parse().ok()
}

/// An IO error that says where, as "try again".
fn at(path: &Path) -> impl Fn(io::Error) -> WalError {
    move |e| WalError::Unavailable(format!("{}: {e}", path.display()))
}

/// Whether the disk, or the account's share of it, is full.
fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests;
