//! What is particular to files: torn and damaged ends, full disks, failed syncs, death and power loss at every step.

mod crash;
pub(super) mod cut;
mod damage;
mod room;

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::storage::wal::PutError;
use crate::storage::wal::tests::rig::{CLUSTER, session};
use cut::{Faults, Kernel};

/// A bucket folder, and processes that open it one after the other.
struct Bench {
    folder: TempDir,
    kernel: Arc<Kernel>,
    _graves: TempDir,
}

impl Bench {
    fn new() -> Self {
        let graves = tempfile::tempdir().unwrap();
        let kernel = Arc::new(Kernel::new(graves.path()));
        Self { folder: tempfile::tempdir().unwrap(), kernel, _graves: graves }
    }

    /// A process whose disk can be broken.
    fn process(&self) -> (Arc<dyn WalStore>, Arc<Faults>) {
        let mut wal = LocalWal::new(self.folder.path(), 1, CLUSTER, Tasks::default()).with_small_files();
        let faults = Arc::new(Faults::new(self.kernel.clone()));
        wal.place.disk.faults = Some(faults.clone());
        (Arc::new(wal), faults)
    }

    /// A file in the session's folder.
    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(keys::wal_folder(1, &session(1))).join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names = Disk::default().list(&self.file("")).unwrap();
        names.sort();
        names
    }

    /// The session's logs, in order.
    fn logs(&self) -> Vec<PathBuf> {
        let logs = self.names().into_iter().filter(|n| n.ends_with(".log"));
        logs.map(|n| self.file(&n)).collect()
    }

    /// Removes what sealing left, so that the same log can be read under other damage.
    fn unseal(&self) {
        for name in ["seal", "end"] {
            drop(std::fs::remove_file(self.file(name)));
        }
    }
}

/// Waits until no thread of a process that was let go touches its disk any more.
fn until_dead(faults: &Arc<Faults>) {
    while Arc::strong_count(faults) > 1 {
        std::thread::yield_now();
    }
}
