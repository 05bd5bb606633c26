//! The few things done to files, each one step between which the power may fail.
//!
//! Invariant: everything that the local WAL changes on the disk goes through here, so that a test can fail any step,
//! stop after it, or take back what was not synced.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The door. Without faults in production.
#[derive(Clone, Default)]
pub(super) struct Disk {
    #[cfg(test)]
    pub(super) faults: Option<std::sync::Arc<super::tests::cut::Faults>>,
}

/// Asks the test's faults, if there are any, before a change.
macro_rules! step {
    ($self:ident, $($event:tt)*) => {
        #[cfg(test)]
        if let Some(faults) = &$self.faults {
            faults.step(super::tests::cut::Step::$($event)*)?;
        }
    };
}

impl Disk {
    /// Creates `path` and what is missing between it and `root`, and syncs every level's parent: another process may
    /// have created a level without having synced it yet.
    pub(super) fn make_folders(&self, root: &Path, path: &Path) -> io::Result<()> {
        let below = path.strip_prefix(root).expect("a session's folder is inside the bucket");
        let mut at = root.to_owned();
        for part in below {
            let parent = at.clone();
            at.push(part);
            step!(self, Folder);
            match std::fs::create_dir(&at) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => self.sync_folder(&parent)?,
            }
        }
        Ok(())
    }

    /// A new file; an error if it exists.
    pub(super) fn create(&self, path: &Path) -> io::Result<File> {
        step!(self, Create(path));
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    }

    /// An existing file, to write.
    pub(super) fn open(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(path)
    }

    /// Writes all of `bytes`.
    pub(super) fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        step!(self, Write(file, bytes, at));
        file.write_all_at(bytes, at)
    }

    /// Sets room aside, if the file system can, so that a full disk shows before anything is written.
    pub(super) fn reserve(&self, file: &File, bytes: u64) -> io::Result<()> {
        step!(self, Reserve);
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
            Err(e)
                if matches!(
                    io::Error::from(e).kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                Err(e.into())
            }
            // Not supported here: writing will tell.
            _ => Ok(()),
        }
    }

    /// Makes a file end at `bytes`, for good: a file that grew back would look damaged.
    pub(super) fn cut(&self, file: &File, bytes: u64) -> io::Result<()> {
        step!(self, Reserve);
        file.set_len(bytes)?;
        file.sync_all()
    }

    /// Makes a file's content last.
    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        step!(self, Sync);
        #[cfg(test)]
        if let Some(faults) = &self.faults {
            // What lasts is what the test's bookkeeping says.
            faults.synced(file);
            return Ok(());
        }
        file.sync_data()
    }

    /// Makes a folder's names last.
    pub(super) fn sync_folder(&self, path: &Path) -> io::Result<()> {
        step!(self, SyncFolder);
        #[cfg(test)]
        if let Some(faults) = &self.faults {
            faults.synced_folder(path);
            return Ok(());
        }
        File::open(path)?.sync_all()
    }

    /// Renames within one folder.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        step!(self, Rename(from, to));
        std::fs::rename(from, to)
    }

    /// A second name for a file; an error if that name exists.
    pub(super) fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        step!(self, Link(to));
        std::fs::hard_link(from, to)
    }

    /// Removes a file.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        step!(self, Remove(path));
        std::fs::remove_file(path)
    }

    /// Whether there is something of that name.
    pub(super) fn exists(&self, path: &Path) -> io::Result<bool> {
        step!(self, Look);
        match std::fs::symlink_metadata(path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The names in a folder; none if there is no folder.
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(path) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        // Nothing of ours has a name that is not UTF-8.
        let name = |e: io::Result<std::fs::DirEntry>| e.map(|e| e.file_name().into_string().ok()).transpose();
        entries.filter_map(name).collect()
    }
}
