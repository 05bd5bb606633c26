//! openraft's log storage over `disk`: what entries, vote and bounds mean, and the recent entries in memory.
//!
//! Invariant: an entry can be read once `append` has returned, but counts as stored only when its callback came back
//! after the sync. The cache holds a gapless end of the log, at most so many bytes of it, and never lets go of an entry
//! that is not on disk yet. Called by openraft only.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, EntryPayload, LogState, OptionalSend, RaftLogReader, StorageIOError};
use parking_lot::Mutex;
use redb::StorageBackend;
use tokio::sync::{mpsc, oneshot};

use super::bytes::{self, BytesError};
use super::disk::{self, Disk, DiskError, Done, Job, Loaded};
use super::{Entry, LogId, StorageError, TypeConfig, Vote};
use crate::fault;
use crate::tasks::Tasks;

/// Jobs that may wait for the writer. openraft waits for each append, so few ever do.
const JOBS: usize = 64;
/// What an append to another node carries at most, so that heartbeats never wait long behind one.
const READ_BYTES: usize = 1 << 20;
/// What an entry costs in the cache besides its bytes.
const ENTRY_COST: usize = 96;

/// A handle; clones share the log. openraft's log reader is one, too.
#[derive(Clone)]
pub(super) struct LogStore {
    shared: Arc<Shared>,
}

struct Shared {
    disk: Arc<Disk>,
    jobs: mpsc::Sender<Job>,
    memory: Mutex<Memory>,
    tasks: Tasks,
}

struct Memory {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    last: Option<LogId>,
    /// No entry below this was ever stored: 0 in any log but a test's.
    first: u64,
    cache: VecDeque<Entry>,
    cache_bytes: usize,
    cache_max: usize,
    /// Entries below are on disk.
    durable: u64,
}

impl LogStore {
    /// Opens the log in `backend` and starts its writer. Blocks.
    pub(super) fn open(
        name: String,
        backend: impl StorageBackend,
        raft_id: u64,
        must_exist: bool,
        cache_max: usize,
        tasks: &Tasks,
    ) -> Result<Self, DiskError> {
        let (disk, loaded) = Disk::open(name, backend, raft_id, must_exist)?;
        let memory = Memory::load(&loaded, raft_id, cache_max).map_err(|e| disk.corrupt(e))?;
        let purge_to = memory.purged.map(|id| id.index);
        let (jobs, waiting) = mpsc::channel(JOBS);
        start_writer(disk.clone(), waiting, purge_to, tasks)?;
        let shared = Shared { disk, jobs, memory: Mutex::new(memory), tasks: tasks.clone() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Nothing was ever stored: no vote, no entry.
    pub(super) fn is_pristine(&self) -> bool {
        let memory = self.shared.memory.lock();
        memory.vote.is_none() && memory.last.is_none()
    }

    /// The last entry that no longer counts.
    pub(super) fn purged(&self) -> Option<u64> {
        self.shared.memory.lock().purged.map(|id| id.index)
    }

    /// The last entry below the cached ones: what a purge may take without costing a reader its entries in memory.
    pub(super) fn below_cache(&self) -> Option<u64> {
        let memory = self.shared.memory.lock();
        memory.first_cached().checked_sub(1)
    }

    /// Bytes of the entries in memory.
    pub(super) fn cached_bytes(&self) -> u64 {
        self.shared.memory.lock().cache_bytes as u64
    }

    /// Lets the writer finish what it has and closes the file.
    pub(super) async fn close(&self) {
        let (done, closed) = done();
        if self.send(Job::Close { done }).is_ok() {
            // An error means that the writer is gone already, and so is its hold on the file.
            drop(closed.await);
        }
    }

    /// Runs one job and waits until it is on disk.
    async fn run(&self, job: impl FnOnce(Done) -> Job) -> Result<(), DiskError> {
        let (done, finished) = done();
        self.send(job(done))?;
        finished.await.unwrap_or_else(|_gone| Err(self.shared.closed()))
    }

    /// Never blocks: openraft waits for each of its writes, so that the queue is full only if nothing moves.
    fn send(&self, job: Job) -> Result<(), DiskError> {
        self.shared.jobs.try_send(job).map_err(|_full_or_gone| self.shared.closed())
    }

    /// The entries of `range` that count, in order; cut once they exceed `max_bytes`, at least one.
    async fn read(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<Entry>, StorageError> {
        let (cold, mut hot) = self.shared.memory.lock().split(range);
        if cold.is_empty() {
            cut(&mut hot, max_bytes);
            return Ok(hot);
        }
        let shared = self.shared.clone();
        let wanted = cold.clone();
        let read = move || shared.read_cold(wanted, max_bytes);
        let failed = |e: AnyError| StorageIOError::read_logs(e);
        let mut entries = match self.shared.tasks.blocking(read).await {
            Ok(entries) => entries.map_err(|e| failed(AnyError::new(&e)))?,
            Err(panicked) => return Err(failed(AnyError::new(&panicked)).into()),
        };
        if entries.last().is_some_and(|e| e.log_id.index + 1 == cold.end) {
            entries.append(&mut hot);
        }
        cut(&mut entries, max_bytes);
        Ok(entries)
    }
}

/// Starts the thread that writes: a task where the machine is a simulated one.
fn start_writer(
    disk: Arc<Disk>,
    mut jobs: mpsc::Receiver<Job>,
    purge_to: Option<u64>,
    tasks: &Tasks,
) -> Result<(), DiskError> {
    #[cfg(feature = "simulation")]
    if let Some(machine) = crate::simulation::machine() {
        tasks.spawn(async move { disk::write_on(&machine, &disk, jobs, purge_to).await });
        return Ok(());
    }
    let run = move || {
        disk::write(&disk, &mut jobs, purge_to);
        Ok(())
    };
    tasks
        .spawn_thread("metadata-log", run)
        .map_err(|e| DiskError::Io { path: "the log's writer".to_owned(), why: e.to_string() })
}

impl Shared {
    fn closed(&self) -> DiskError {
        DiskError::Closed("the metadata log's writer".to_owned())
    }

    /// Entries that are on disk only. A missing one is an error unless it was purged meanwhile.
    fn read_cold(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<Entry>, DiskError> {
        let mut entries = Vec::new();
        let mut next = range.start;
        for (index, record) in self.disk.read(range.clone(), max_bytes)? {
            if index != next {
                self.check_purged(next, index)?;
                entries.clear();
            }
            let entry = bytes::decode_entry(index, &record)
                .map_err(|e| self.disk.corrupt(format!("entry {index}: {e}")))?;
            entries.push(entry);
            next = index + 1;
        }
        if entries.is_empty() {
            self.check_purged(range.start, range.end)?;
        }
        Ok(entries)
    }

    /// All of `from..to` was purged, else they are missing.
    fn check_purged(&self, from: u64, to: u64) -> Result<(), DiskError> {
        let purged = self.memory.lock().purged.map_or(0, |id| id.index + 1);
        if to <= purged {
            return Ok(());
        }
        Err(self.disk.corrupt(format!("entry {} is missing", from.max(purged))))
    }

    fn flushed(&self, next: u64) {
        let mut memory = self.memory.lock();
        memory.durable = memory.durable.max(next);
        memory.shrink();
    }
}

impl Memory {
    fn load(loaded: &Loaded, raft_id: u64, cache_max: usize) -> Result<Self, BytesError> {
        let mut vote = loaded.vote.as_deref().map(bytes::decode_vote).transpose()?;
        if let Some(vote) = &mut vote
            && vote.leader_id.node_id == raft_id
        {
            // A process never resumes the leadership of the one before it: a term names one process's reign, and a
            // leader that died before its first entry would come back unable to commit. The promise of the vote stays.
            vote.committed = false;
        }
        let id = |record: &Option<Vec<u8>>| record.as_deref().map(bytes::decode_log_id).transpose();
        let purged = id(&loaded.purged)?;
        let last = match &loaded.last {
            Some((index, record)) => Some(bytes::decode_entry(*index, record)?.log_id),
            None => None,
        };
        let last = last.max(purged);
        let durable = next(last);
        let committed = id(&loaded.committed)?;
        let cache = VecDeque::new();
        Ok(Self { vote, committed, purged, last, first: 0, cache, cache_bytes: 0, cache_max, durable })
    }

    fn first_cached(&self) -> u64 {
        self.cache.front().map_or(next(self.last), |e| e.log_id.index)
    }

    /// Splits a range, cut to what counts, into what is on disk only and the cached entries.
    fn split(&self, range: Range<u64>) -> (Range<u64>, Vec<Entry>) {
        let start = range.start.max(next(self.purged)).max(self.first);
        let end = range.end.min(next(self.last));
        let first = self.first_cached();
        let hot = start.max(first)..end;
        let skip = usize::try_from(hot.start - first).unwrap_or(usize::MAX);
        let take = usize::try_from(hot.end.saturating_sub(hot.start)).unwrap_or(usize::MAX);
        let hot = self.cache.iter().skip(skip).take(take).cloned().collect();
        (start..end.min(first), hot)
    }

    fn push(&mut self, entry: Entry) {
        if !self.cache.is_empty() && entry.log_id.index != next(self.last) {
            self.cache.clear();
            self.cache_bytes = 0;
        }
        if self.last.is_none() {
            self.first = entry.log_id.index;
        }
        self.last = Some(entry.log_id);
        self.cache_bytes += cost(&entry);
        self.cache.push_back(entry);
        self.shrink();
    }

    /// Lets the oldest cached entries go while there are too many bytes.
    fn shrink(&mut self) {
        while self.cache_bytes > self.cache_max
            && self.cache.front().is_some_and(|e| e.log_id.index < self.durable)
        {
            let gone = self.cache.pop_front().expect("just looked at");
            self.cache_bytes -= cost(&gone);
        }
    }

    fn truncate(&mut self, from: u64, last: Option<LogId>) {
        while self.cache.back().is_some_and(|e| e.log_id.index >= from) {
            let gone = self.cache.pop_back().expect("just looked at");
            self.cache_bytes -= cost(&gone);
        }
        self.last = last;
        self.durable = self.durable.min(from);
    }

    fn purge(&mut self, upto: LogId) {
        while self.cache.front().is_some_and(|e| e.log_id.index <= upto.index) {
            let gone = self.cache.pop_front().expect("just looked at");
            self.cache_bytes -= cost(&gone);
        }
        self.purged = self.purged.max(Some(upto));
        self.last = self.last.max(Some(upto));
        self.durable = self.durable.max(upto.index + 1);
    }
}

fn next(id: Option<LogId>) -> u64 {
    id.map_or(0, |id| id.index + 1)
}

fn cost(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(data) => data.0.len() + ENTRY_COST,
        EntryPayload::Blank | EntryPayload::Membership(_) => ENTRY_COST,
    }
}

/// Keeps the first entries up to the one that exceeds `max_bytes`; at least one.
fn cut(entries: &mut Vec<Entry>, max_bytes: usize) {
    let mut sum = 0;
    let fit = entries.iter().take_while(|e| {
        sum += cost(e);
        sum <= max_bytes
    });
    let fit = fit.count();
    entries.truncate(fit.max(1));
}

fn done() -> (Done, oneshot::Receiver<Result<(), DiskError>>) {
    let (tx, rx) = oneshot::channel();
    // Nobody waits any more: the job is done all the same.
    (Box::new(move |result| drop(tx.send(result))), rx)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, StorageError> {
        let start = match range.start_bound() {
            Bound::Included(n) => *n,
            Bound::Excluded(n) => n + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(n) => n + 1,
            Bound::Excluded(n) => *n,
            Bound::Unbounded => u64::MAX,
        };
        self.read(start..end, usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, StorageError> {
        self.read(start..end, READ_BYTES).await
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError> {
        let memory = self.shared.memory.lock();
        Ok(LogState { last_purged_log_id: memory.purged, last_log_id: memory.last })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let record = bytes::encode_vote(vote);
        self.run(|done| Job::Vote { record, done })
            .await
            .map_err(|e| StorageIOError::write_vote(AnyError::new(&e)))?;
        fault::point("metadata.vote.saved");
        self.shared.memory.lock().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.shared.memory.lock().vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        let Some(id) = committed else { return Ok(()) };
        self.shared.memory.lock().committed = committed;
        // A hint for the next start; it need not be on disk before anything.
        let record = bytes::encode_log_id(&id);
        self.send(Job::Committed { record }).map_err(|e| StorageIOError::write_logs(AnyError::new(&e)))?;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        Ok(self.shared.memory.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<TypeConfig>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let records: Vec<_> = entries.iter().map(|e| (e.log_id.index, bytes::encode_entry(e))).collect();
        let end = records.last().map_or(0, |(index, _)| index + 1);
        {
            let mut memory = self.shared.memory.lock();
            entries.into_iter().for_each(|entry| memory.push(entry));
        }
        let shared = self.shared.clone();
        let done: Done = Box::new(move |result| {
            if result.is_ok() {
                shared.flushed(end);
            }
            callback.log_io_completed(result.map_err(io::Error::other));
        });
        self.send(Job::Append { records, done })
            .map_err(|e| StorageIOError::write_logs(AnyError::new(&e)))?;
        Ok(())
    }

    async fn truncate(&mut self, since: LogId) -> Result<(), StorageError> {
        let before = since.index.saturating_sub(1)..since.index;
        let last = self.read(before, usize::MAX).await?.last().map(|e| e.log_id);
        {
            let mut memory = self.shared.memory.lock();
            let last = last.max(memory.purged);
            memory.truncate(since.index, last);
        }
        self.run(|done| Job::Truncate { from: since.index, done })
            .await
            .map_err(|e| StorageIOError::write_logs(AnyError::new(&e)))?;
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), StorageError> {
        fault::point("metadata.log.before_purge");
        self.shared.memory.lock().purge(upto);
        let record = bytes::encode_log_id(&upto);
        self.send(Job::Purge { upto: upto.index, record })
            .map_err(|e| StorageIOError::write_logs(AnyError::new(&e)))?;
        Ok(())
    }
}
