//! The log's file: one redb database, written by one thread.
//!
//! Invariant: a job's `done` is called with success only after the transaction that holds it was synced; all jobs that
//! wait share one transaction, in the order in which they were sent. After one failed write every later one fails
//! (redb refuses them), so nothing is acknowledged over a gap. Purging is lazy: what counts is the recorded bound, the
//! entries below it go a few per transaction. Knows bytes only; `log_store` gives them meaning.
//!
//! Every commit has two phases: written and synced, then named the newest and synced again. With one sync, damage to
//! the newest transaction looks like a power cut in the middle of it, and redb would silently go back to the one before:
//! a stream that was acknowledged would be gone. So damage is an error, and only what was never acknowledged is dropped.
//! The second sync costs a fifth of the commands per second of one or eight proposers at a time (0.09 ms syncs), a tenth
//! of those of 32, and nothing that can be measured at 128.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, StorageBackend, StorageError,
    TableDefinition, WriteTransaction,
};

use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;

use super::bytes;
use crate::fault;

const ENTRIES: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("entries");
const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");
const RAFT_ID: &str = "raft_id";
const VOTE: &str = "vote";
const PURGED: &str = "purged";
const COMMITTED: &str = "committed";

/// Pages redb keeps in memory. Recent entries have a cache of their own.
const PAGE_CACHE: usize = 16 << 20;
/// Jobs that share one transaction at most.
const GROUP: usize = 64;
/// Where redb keeps its flags, and those that it sets for one process: which slot is the newest, a repair is due, the
/// newest was committed in two phases.
const FLAGS_AT: u64 = 9;
const FLAGS: u8 = 0b111;
/// Entries that one transaction removes at most on behalf of a purge.
const PURGE_STEP: u64 = 256;
/// The log's file cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum DiskError {
    #[error("{0} is open in another process")]
    Busy(String),
    #[error("{path} does not verify: {why}")]
    Corrupt { path: String, why: String },
    #[error("{path}: {why}")]
    Io { path: String, why: String },
    #[error("{0} is missing or empty, but there is a snapshot: the log was lost")]
    Lost(String),
    #[error("{path} belongs to raft id {found}, this process is {wanted}")]
    Foreign { path: String, found: u64, wanted: u64 },
    #[error("{0} is closed")]
    Closed(String),
}

/// Called when a job is on disk, or surely never acknowledged.
pub(super) type Done = Box<dyn FnOnce(Result<(), DiskError>) + Send>;

/// What the writer does.
pub(super) enum Job {
    /// Stores entries.
    Append { records: Vec<(u64, Vec<u8>)>, done: Done },
    /// Stores the vote.
    Vote { record: Vec<u8>, done: Done },
    /// Removes every entry from this one on.
    Truncate { from: u64, done: Done },
    /// Entries up to this one no longer count. On disk with the next transaction.
    Purge { upto: u64, record: Vec<u8> },
    /// Entries up to this one are committed. On disk with the next transaction that has another reason.
    Committed { record: Vec<u8> },
    /// Ends the writer and closes the file.
    Close { done: Done },
}

/// What the file holds besides the entries.
pub(super) struct Loaded {
    pub(super) vote: Option<Vec<u8>>,
    pub(super) purged: Option<Vec<u8>>,
    pub(super) committed: Option<Vec<u8>>,
    pub(super) last: Option<(u64, Vec<u8>)>,
}

/// A handle for reading, and the writer's own.
pub(super) struct Disk {
    name: String,
    db: RwLock<Option<Database>>,
}

/// The one byte of redb's head that has no checksum tells which of two transactions is the newest. Of it only three bits
/// are in use here; others mean that it is damaged, and that another transaction may be taken for the newest.
fn check_flags(name: &str, backend: &impl StorageBackend) -> Result<(), DiskError> {
    let io = |e: io::Error| DiskError::Io { path: name.to_owned(), why: e.to_string() };
    let mut flags = [0];
    if backend.len().map_err(io)? > FLAGS_AT {
        backend.read(FLAGS_AT, &mut flags).map_err(io)?;
    }
    if flags[0] & !FLAGS != 0 {
        let why = format!("byte {FLAGS_AT} is {:#04x}", flags[0]);
        return Err(DiskError::Corrupt { path: name.to_owned(), why });
    }
    Ok(())
}

/// The file at `path`, made durable in its folder if new.
pub(super) fn file_backend(path: &Path) -> io::Result<FileBackend> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    FileBackend::new(file).map_err(io::Error::other)
}

impl Disk {
    /// Opens the database in `backend`, which `name` names in errors, and verifies all of it. A new one is given
    /// `raft_id`; with `must_exist` a new one is an error. Blocks.
    pub(super) fn open(
        name: String,
        backend: impl StorageBackend,
        raft_id: u64,
        must_exist: bool,
    ) -> Result<(Arc<Self>, Loaded), DiskError> {
        check_flags(&name, &backend)?;
        let opened = Builder::new()
            .set_cache_size(PAGE_CACHE)
            // Reads the whole file, which snapshots keep small; without it a damaged one may panic later.
            .set_check_integrity_on_open(true)
            .create_with_backend(backend);
        let db = match opened {
            Ok(db) => db,
            Err(DatabaseError::DatabaseAlreadyOpen) => return Err(DiskError::Busy(name)),
            Err(DatabaseError::Storage(StorageError::Io(e))) if e.kind() != io::ErrorKind::InvalidData => {
                return Err(DiskError::Io { path: name, why: e.to_string() });
            }
            Err(e) => return Err(DiskError::Corrupt { path: name, why: e.to_string() }),
        };
        let disk = Self { name, db: RwLock::new(Some(db)) };
        disk.claim(raft_id, must_exist)?;
        let loaded = disk.load()?;
        Ok((Arc::new(disk), loaded))
    }

    /// Checks whose log this is, or makes it this one's.
    fn claim(&self, raft_id: u64, must_exist: bool) -> Result<(), DiskError> {
        let found = self.with(|db| {
            let tx = begin_write(db)?;
            drop(tx.open_table(ENTRIES)?);
            let found = {
                let mut meta = tx.open_table(META)?;
                let found = meta.get(RAFT_ID)?.map(|v| v.value().to_vec());
                if found.is_none() && !must_exist {
                    meta.insert(RAFT_ID, bytes::encode_number(raft_id).as_slice())?;
                }
                found
            };
            tx.commit()?;
            Ok(found)
        })?;
        match found {
            None if must_exist => Err(DiskError::Lost(self.name.clone())),
            None => Ok(()),
            Some(record) => match bytes::decode_number(&record).map_err(|e| self.corrupt(e))? {
                found if found == raft_id => Ok(()),
                found => Err(DiskError::Foreign { path: self.name.clone(), found, wanted: raft_id }),
            },
        }
    }

    fn load(&self) -> Result<Loaded, DiskError> {
        self.with(|db| {
            let tx = db.begin_read()?;
            let meta = tx.open_table(META)?;
            let get = |key: &str| Ok::<_, redb::Error>(meta.get(key)?.map(|v| v.value().to_vec()));
            let entries = tx.open_table(ENTRIES)?;
            let last = entries.last()?.map(|(k, v)| (k.value(), v.value().to_vec()));
            Ok(Loaded { vote: get(VOTE)?, purged: get(PURGED)?, committed: get(COMMITTED)?, last })
        })
    }

    /// The entries in `range` that are there, in order, until `max_bytes` are exceeded; at least one. Blocks.
    pub(super) fn read(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<(u64, Vec<u8>)>, DiskError> {
        self.with(|db| {
            let tx = db.begin_read()?;
            let mut found = Vec::new();
            let mut bytes = 0;
            for entry in tx.open_table(ENTRIES)?.range(range)? {
                let (index, record) = entry?;
                bytes += record.value().len();
                found.push((index.value(), record.value().to_vec()));
                if bytes >= max_bytes {
                    break;
                }
            }
            Ok(found)
        })
    }

    fn with<T>(&self, f: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, DiskError> {
        match &*self.db.read() {
            None => Err(DiskError::Closed(self.name.clone())),
            Some(db) => f(db).map_err(|e| match e {
                redb::Error::Corrupted(_) => self.corrupt(e),
                e => DiskError::Io { path: self.name.clone(), why: e.to_string() },
            }),
        }
    }

    /// The error that says that what is stored makes no sense.
    pub(super) fn corrupt(&self, why: impl ToString) -> DiskError {
        DiskError::Corrupt { path: self.name.clone(), why: why.to_string() }
    }
}

/// The writer's loop; runs on a thread of its own until told to close or nobody can send any more. Goes on with the
/// purge up to `purge_to` that an earlier process left.
pub(super) fn write(disk: &Disk, jobs: &mut Receiver<Job>, purge_to: Option<u64>) {
    let mut writer = Writer { disk, purge_to, committed: None };
    let close = loop {
        let first = if writer.has_work() {
            match jobs.try_recv() {
                Ok(job) => Some(job),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => break None,
            }
        } else {
            match jobs.blocking_recv() {
                None => break None,
                job => job,
            }
        };
        let close = writer.run(group(first, jobs));
        if close.is_some() {
            break close;
        }
    };
    writer.end(close);
}

/// The same on a simulated machine, as a task. What waits for the disk when the machine fails was never written.
#[cfg(feature = "simulation")]
pub(super) async fn write_on(
    machine: &Arc<dyn crate::simulation::Machine>,
    disk: &Disk,
    mut jobs: Receiver<Job>,
    purge_to: Option<u64>,
) {
    let mut writer = Writer { disk, purge_to, committed: None };
    let close = loop {
        let first = match jobs.try_recv() {
            Ok(job) => Some(job),
            Err(TryRecvError::Empty) if writer.has_work() => None,
            Err(_) => match jobs.recv().await {
                None => break None,
                job => job,
            },
        };
        tokio::time::sleep(machine.sync_time()).await;
        let close = writer.run(group(first, &mut jobs));
        if close.is_some() {
            break close;
        }
    };
    writer.end(close);
}

/// The first job and those that wait behind it.
fn group(first: Option<Job>, jobs: &mut Receiver<Job>) -> Vec<Job> {
    let behind = first.is_some();
    first
        .into_iter()
        .chain(std::iter::from_fn(|| behind.then(|| jobs.try_recv().ok())?).take(GROUP - 1))
        .collect()
}

struct Writer<'a> {
    disk: &'a Disk,
    /// Entries up to here are to be removed.
    purge_to: Option<u64>,
    /// Waits for the next transaction.
    committed: Option<Vec<u8>>,
}

impl Writer<'_> {
    /// There is something to do without a job.
    fn has_work(&self) -> bool {
        self.purge_to.is_some()
    }

    fn end(self, close: Option<Done>) {
        self.disk.db.write().take();
        if let Some(done) = close {
            done(Ok(()));
        }
    }

    /// One transaction for all of `group`. Returns the request to close, if it was among them.
    fn run(&mut self, group: Vec<Job>) -> Option<Done> {
        let mut dones = Vec::new();
        let mut close = None;
        let mut changes = Vec::new();
        let mut appends = false;
        for job in group {
            match job {
                Job::Append { records, done } => {
                    appends = true;
                    changes.push(Change::Put(records));
                    dones.push(done);
                }
                Job::Vote { record, done } => {
                    changes.push(Change::Meta(VOTE, record));
                    dones.push(done);
                }
                Job::Truncate { from, done } => {
                    changes.push(Change::Remove(from..u64::MAX));
                    dones.push(done);
                }
                Job::Purge { upto, record } => {
                    self.purge_to = self.purge_to.max(Some(upto));
                    changes.push(Change::Meta(PURGED, record));
                }
                Job::Committed { record } => self.committed = Some(record),
                Job::Close { done } => close = Some(done),
            }
        }
        if changes.is_empty() && self.purge_to.is_none() {
            return close;
        }
        let result = self.commit(changes, appends);
        for done in dones {
            done(result.clone());
        }
        if result.is_err() {
            // The same would fail again and again; the next start takes it up.
            self.purge_to = None;
        }
        close
    }

    fn commit(&mut self, mut changes: Vec<Change>, appends: bool) -> Result<(), DiskError> {
        changes.extend(self.committed.take().map(|record| Change::Meta(COMMITTED, record)));
        let purge_to = self.purge_to;
        let rest = self.disk.with(|db| {
            let tx = begin_write(db)?;
            for change in changes {
                change.make(&tx)?;
            }
            let rest = match purge_to {
                Some(upto) => purge_some(&tx, upto)?,
                None => None,
            };
            if appends {
                fault::point("metadata.log.append.before_sync");
            }
            tx.commit()?;
            Ok(rest)
        })?;
        if appends {
            fault::point("metadata.log.append.synced");
        }
        self.purge_to = rest;
        Ok(())
    }
}

/// A transaction whose commit is told from a torn one.
fn begin_write(db: &Database) -> Result<WriteTransaction, redb::Error> {
    let mut tx = db.begin_write()?;
    tx.set_two_phase_commit(true);
    Ok(tx)
}

enum Change {
    Put(Vec<(u64, Vec<u8>)>),
    Meta(&'static str, Vec<u8>),
    Remove(Range<u64>),
}

impl Change {
    fn make(self, tx: &WriteTransaction) -> Result<(), redb::Error> {
        match self {
            Self::Put(records) => {
                let mut entries = tx.open_table(ENTRIES)?;
                for (index, record) in records {
                    entries.insert(index, record.as_slice())?;
                }
            }
            Self::Meta(key, record) => {
                tx.open_table(META)?.insert(key, record.as_slice())?;
            }
            Self::Remove(range) => tx.open_table(ENTRIES)?.retain_in(range, |_, _| false)?,
        }
        Ok(())
    }
}

/// Removes the first entries, none above `upto`. Returns the bound if some are left.
fn purge_some(tx: &WriteTransaction, upto: u64) -> Result<Option<u64>, redb::Error> {
    let mut entries = tx.open_table(ENTRIES)?;
    let Some(first) = entries.first()?.map(|(index, _)| index.value()) else { return Ok(None) };
    if first > upto {
        return Ok(None);
    }
    let end = upto.min(first + PURGE_STEP - 1);
    entries.retain_in(first..=end, |_, _| false)?;
    Ok((end < upto).then_some(upto))
}
