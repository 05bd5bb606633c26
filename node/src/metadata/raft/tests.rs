//! openraft's own storage suite, and the log on disks that fail or lose what was not synced.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use openraft::testing::{StoreBuilder, Suite};
use openraft::{EntryPayload, RaftLogReader};
use parking_lot::Mutex;
use redb::backends::InMemoryBackend;
use tempfile::TempDir;

use super::disk::{Disk, DiskError};
use super::*;

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError> {
        let dir = tempfile::tempdir().unwrap();
        let tasks = Tasks::default();
        let store = LogStore::open("log".into(), InMemoryBackend::new(), 1, false, 1 << 20, &tasks).unwrap();
        let (snapshots, none) = Snapshots::open(dir.path()).unwrap();
        let view = Arc::new(View::new(none, u64::MAX));
        Ok((dir, store, StateMachine::new(view, Arc::new(snapshots), tasks)))
    }
}

#[test]
fn the_storage_passes_openrafts_suite() {
    Suite::test_all(Builder).unwrap();
}

/// A disk in memory that can be asked for what a power cut would leave, and told to fail.
#[derive(Debug, Clone, Default)]
pub(in crate::metadata) struct TestDisk {
    inner: Arc<Mutex<Image>>,
    pub(in crate::metadata) fail_sync: Arc<AtomicBool>,
    pub(in crate::metadata) syncs: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Image {
    now: Vec<u8>,
    synced: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
}

fn put(image: &mut Vec<u8>, at: usize, data: &[u8]) {
    if image.len() < at + data.len() {
        image.resize(at + data.len(), 0);
    }
    image[at..at + data.len()].copy_from_slice(data);
}

impl TestDisk {
    /// What is left after a power cut now: all that was synced, and of the rest those writes for which `kept` says so,
    /// each perhaps torn after that many bytes.
    pub(in crate::metadata) fn cut(&self, mut kept: impl FnMut(usize) -> Option<usize>) -> Self {
        let image = self.inner.lock();
        let mut left = image.synced.clone();
        left.resize(image.now.len().max(left.len()), 0);
        for (at, data) in &image.pending {
            if let Some(bytes) = kept(data.len()) {
                put(&mut left, *at, &data[..bytes.min(data.len())]);
            }
        }
        Self::holding(left)
    }

    /// A disk that holds these bytes.
    pub(in crate::metadata) fn holding(bytes: Vec<u8>) -> Self {
        let image = Image { now: bytes.clone(), synced: bytes, pending: Vec::new() };
        Self { inner: Arc::new(Mutex::new(image)), ..Self::default() }
    }

    /// What was synced.
    pub(in crate::metadata) fn synced(&self) -> Vec<u8> {
        self.inner.lock().synced.clone()
    }
}

impl StorageBackend for TestDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.inner.lock().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let at = offset as usize;
        let image = self.inner.lock();
        let from = image.now.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(from);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.lock().now.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.fail_sync.load(Ordering::SeqCst) {
            return Err(io::Error::other("this disk fails"));
        }
        let mut image = self.inner.lock();
        let Image { now, synced, pending } = &mut *image;
        synced.resize(now.len(), 0);
        for (at, data) in pending.drain(..) {
            put(synced, at, &data);
        }
        synced.truncate(now.len());
        self.syncs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut image = self.inner.lock();
        put(&mut image.now, offset as usize, data);
        image.pending.push((offset as usize, data.to_vec()));
        Ok(())
    }
}

/// Makes a log that has no members yet lead, as a founder's start does.
pub(in crate::metadata) async fn lead(log: &Log, raft_id: u64) {
    log.raft.initialize(BTreeMap::from([(raft_id, BasicNode::default())])).await.unwrap();
}

fn entry(index: u64, bytes: usize) -> Entry {
    let payload = EntryPayload::Normal(EntryData(vec![index as u8; bytes].into()));
    Entry { log_id: LogId::new(openraft::CommittedLeaderId::new(1, 1), index), payload }
}

async fn append(
    store: &mut LogStore,
    entries: impl IntoIterator<Item = Entry> + Send,
) -> Result<(), StorageError> {
    let entries: Vec<Entry> = entries.into_iter().collect();
    openraft::storage::RaftLogStorageExt::blocking_append(store, entries).await
}

fn store(disk: &TestDisk, cache: usize) -> LogStore {
    LogStore::open("log".into(), disk.clone(), 1, false, cache, &Tasks::default()).unwrap()
}

async fn indexes(store: &mut LogStore, range: std::ops::Range<u64>) -> Vec<u64> {
    let entries = store.try_get_log_entries(range).await.unwrap();
    entries.iter().map(|e| e.log_id.index).collect()
}

#[tokio::test]
async fn entries_are_read_alike_from_memory_and_from_disk() {
    for cache in [0, 1000, 1 << 20] {
        let mut log = store(&TestDisk::default(), cache);
        append(&mut log, (0..50).map(|i| entry(i, 100))).await.unwrap();
        append(&mut log, (50..60).map(|i| entry(i, 100))).await.unwrap();
        assert_eq!(indexes(&mut log, 0..100).await, (0..60).collect::<Vec<_>>());
        assert_eq!(indexes(&mut log, 40..55).await, (40..55).collect::<Vec<_>>());
        assert_eq!(log.try_get_log_entries(30..31).await.unwrap(), [entry(30, 100)]);
        assert!(log.cached_bytes() <= cache as u64);
        // Replication takes what fits, at least one.
        let some = log.limited_get_log_entries(0, 60).await.unwrap();
        assert!(!some.is_empty());
    }
}

#[tokio::test]
async fn an_append_rpc_is_cut_by_bytes() {
    for cache in [0, 64 << 20] {
        let mut log = store(&TestDisk::default(), cache);
        append(&mut log, (0..8).map(|i| entry(i, 400 << 10))).await.unwrap();
        assert_eq!(log.limited_get_log_entries(0, 8).await.unwrap().len(), 2, "cache {cache}");
        append(&mut log, [entry(8, 3 << 20)]).await.unwrap();
        assert_eq!(log.limited_get_log_entries(8, 9).await.unwrap().len(), 1, "cache {cache}");
    }
}

#[tokio::test]
async fn a_failed_sync_is_reported_and_everything_after_it_fails() {
    let disk = TestDisk::default();
    let mut log = store(&disk, 1 << 20);
    append(&mut log, [entry(0, 10)]).await.unwrap();
    disk.fail_sync.store(true, Ordering::SeqCst);
    append(&mut log, [entry(1, 10)]).await.unwrap_err();
    disk.fail_sync.store(false, Ordering::SeqCst);
    append(&mut log, [entry(2, 10)]).await.unwrap_err();
    openraft::storage::RaftLogStorage::save_vote(&mut log, &Vote::new(1, 1)).await.unwrap_err();
}

#[tokio::test]
async fn a_purge_goes_on_after_a_restart_and_hides_at_once() {
    use openraft::storage::RaftLogStorage;
    let disk = TestDisk::default();
    let mut log = store(&disk, 0);
    append(&mut log, (0..2000).map(|i| entry(i, 10))).await.unwrap();
    log.purge(entry(1899, 0).log_id).await.unwrap();
    assert_eq!(indexes(&mut log, 0..3000).await, (1900..2000).collect::<Vec<_>>());
    // The bound is on disk with the next append at the latest.
    append(&mut log, [entry(2000, 10)]).await.unwrap();
    let mut again = store(&disk.cut(|_| None), 0);
    assert_eq!(again.purged(), Some(1899));
    assert_eq!(indexes(&mut again, 0..3000).await, (1900..2001).collect::<Vec<_>>());
    again.close().await;
}

#[tokio::test]
async fn a_log_cut_at_the_power_keeps_what_was_synced() {
    use openraft::storage::RaftLogStorage;
    let disk = TestDisk::default();
    let mut log = store(&disk, 1 << 20);
    append(&mut log, (0..30).map(|i| entry(i, 1000))).await.unwrap();
    log.truncate(entry(20, 0).log_id).await.unwrap();
    log.save_vote(&Vote::new(7, 2)).await.unwrap();
    let mut again = store(&disk.cut(|_| None), 0);
    assert_eq!(indexes(&mut again, 0..100).await, (0..20).collect::<Vec<_>>());
    assert_eq!(again.read_vote().await.unwrap(), Some(Vote::new(7, 2)));
    assert_eq!(again.get_log_state().await.unwrap().last_log_id, Some(entry(19, 0).log_id));
}

#[tokio::test]
async fn a_restarted_leader_is_none_but_keeps_its_promise() {
    use openraft::storage::RaftLogStorage;
    let disk = TestDisk::default();
    let mut log = store(&disk, 0);
    log.save_vote(&Vote::new_committed(7, 1)).await.unwrap();
    let again = store(&disk.cut(|_| None), 0).read_vote().await.unwrap();
    assert_eq!(again, Some(Vote::new(7, 1)));
    log.save_vote(&Vote::new_committed(8, 2)).await.unwrap();
    let again = store(&disk.cut(|_| None), 0).read_vote().await.unwrap();
    assert_eq!(again, Some(Vote::new_committed(8, 2)), "another's leadership is news");
}

#[test]
fn a_log_knows_whose_it_is() {
    let disk = TestDisk::default();
    drop(Disk::open("log".into(), disk.clone(), 4, false).unwrap());
    let other = Disk::open("log".into(), disk.clone(), 5, false).map(drop).unwrap_err();
    assert!(matches!(other, DiskError::Foreign { found: 4, wanted: 5, .. }), "{other}");
    let lost = Disk::open("log".into(), TestDisk::default(), 4, true).map(drop).unwrap_err();
    assert!(matches!(lost, DiskError::Lost(_)), "{lost}");
}
