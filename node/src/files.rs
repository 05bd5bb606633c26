//! The only door to the data directory: files, folders, renames and what makes them last.
//!
//! Invariant: what a node keeps on its own disk passes through here, so that a simulated disk, which drops what was
//! not synced, can take the real one's place. Blocks. Called by `data_dir`, `session` (its mark) and `metadata/raft`.
//! The store in a local directory is no part of it.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

#[cfg(feature = "simulation")]
use crate::simulation::{Open, machine};

/// An open file. Clones share the place at which is read and written, as the system's do.
#[derive(Debug)]
pub struct File(Inner);

#[derive(Debug)]
enum Inner {
    System(fs::File),
    #[cfg(feature = "simulation")]
    Simulated(simulated::File),
}

/// Runs the second on the machine's disk if the machine is a simulated one, else the first.
macro_rules! either {
    ($system:expr, $disk:ident => $simulated:expr) => {{
        #[cfg(feature = "simulation")]
        let machine = machine();
        #[cfg(feature = "simulation")]
        let simulated = machine.as_ref().map(|machine| {
            let $disk = machine.disk();
            $simulated
        });
        #[cfg(not(feature = "simulation"))]
        let simulated = None;
        match simulated {
            Some(done) => done,
            None => $system,
        }
    }};
}

impl File {
    /// Opens a file for reading.
    pub fn open(path: &Path) -> io::Result<Self> {
        either!(
            fs::File::open(path).map(|f| Self(Inner::System(f))),
            disk => disk.open(path, Open::Existing).map(Self::simulated)
        )
    }

    /// A new and empty file, for writing and reading, instead of the one that may be there.
    pub fn create(path: &Path) -> io::Result<Self> {
        either!(
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(path)
                .map(|f| Self(Inner::System(f))),
            disk => disk.open(path, Open::Empty).map(Self::simulated)
        )
    }

    #[cfg(feature = "simulation")]
    fn simulated(inode: std::sync::Arc<dyn crate::simulation::Inode>) -> Self {
        Self(Inner::Simulated(simulated::File::new(inode)))
    }

    /// Another handle on it.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(match &self.0 {
            Inner::System(file) => Inner::System(file.try_clone()?),
            #[cfg(feature = "simulation")]
            Inner::Simulated(file) => Inner::Simulated(file.clone()),
        }))
    }

    /// Its length.
    pub fn len(&self) -> io::Result<u64> {
        match &self.0 {
            Inner::System(file) => file.metadata().map(|m| m.len()),
            #[cfg(feature = "simulation")]
            Inner::Simulated(file) => file.len(),
        }
    }

    /// It holds nothing.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// What was written lasts.
    pub fn sync_all(&self) -> io::Result<()> {
        match &self.0 {
            Inner::System(file) => file.sync_all(),
            #[cfg(feature = "simulation")]
            Inner::Simulated(file) => file.sync(),
        }
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            Inner::System(file) => (&*file).read(buf),
            #[cfg(feature = "simulation")]
            Inner::Simulated(file) => file.read(buf),
        }
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Inner::System(file) => (&*file).write(buf),
            #[cfg(feature = "simulation")]
            Inner::Simulated(file) => file.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match &self.0 {
            Inner::System(file) => (&*file).seek(to),
            #[cfg(feature = "simulation")]
            Inner::Simulated(file) => file.seek(to),
        }
    }
}

/// Makes a folder and those above it. The names of those that were not there before last: a crash that took a folder
/// away would take with it what was synced in it.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|p| !exists(p)).collect();
    either!(fs::create_dir_all(path), disk => disk.create_dir_all(path))?;
    let parents = missing.iter().filter_map(|made| made.parent());
    parents.filter(|parent| !parent.as_os_str().is_empty()).try_for_each(sync_dir)
}

/// What was done to the names in a folder lasts.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    either!(fs::File::open(path)?.sync_all(), disk => disk.sync_dir(path))
}

/// The paths in a folder.
pub fn list(path: &Path) -> io::Result<Vec<PathBuf>> {
    either!(fs::read_dir(path)?.map(|entry| entry.map(|e| e.path())).collect(), disk => disk.list(path))
}

/// Something is there.
pub fn exists(path: &Path) -> bool {
    either!(path.exists(), disk => disk.exists(path))
}

/// A file's text.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    (&File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}

/// Replaces a file's content. May be torn by a crash.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    (&File::create(path)?).write_all(content)
}

/// Moves a file or folder onto another name.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    either!(fs::rename(from, to), disk => disk.rename(from, to))
}

/// Removes a file's name.
pub fn remove_file(path: &Path) -> io::Result<()> {
    either!(fs::remove_file(path), disk => disk.remove_file(path))
}

/// Holds a lock while it lives; the kernel drops it with the process.
pub struct Lock(#[allow(dead_code, reason = "held, never looked at")] Box<dyn Send + Sync>);

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock")
    }
}

/// Takes the lock at `path` that one process at a time may have. `None`: another has it.
pub fn lock(path: &Path) -> io::Result<Option<Lock>> {
    either!(
        {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
            match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(Some(Lock(Box::new(file)))),
                Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
                Err(e) => Err(e.into()),
            }
        },
        disk => disk.lock(path).map(|held| held.map(Lock))
    )
}

/// A database's file on the machine's disk, made if missing, its name made to last. `None`: the machine is no simulated
/// one.
#[cfg(feature = "simulation")]
pub fn simulated_database(path: &Path) -> io::Result<Option<impl redb::StorageBackend + use<>>> {
    let Some(machine) = machine() else { return Ok(None) };
    let inode = machine.disk().open(path, Open::OrNew)?;
    if let Some(folder) = path.parent() {
        sync_dir(folder)?;
    }
    Ok(Some(simulated::Database(inode)))
}

#[cfg(feature = "simulation")]
mod simulated {
    use std::io::{self, SeekFrom};
    use std::sync::Arc;

    use parking_lot::Mutex;

    use crate::simulation::Inode;

    /// A file of a simulated disk and the place in it.
    #[derive(Debug, Clone)]
    pub(super) struct File {
        inode: Arc<dyn Inode>,
        at: Arc<Mutex<u64>>,
    }

    impl File {
        pub(super) fn new(inode: Arc<dyn Inode>) -> Self {
            Self { inode, at: Arc::default() }
        }

        pub(super) fn len(&self) -> io::Result<u64> {
            self.inode.len()
        }

        pub(super) fn sync(&self) -> io::Result<()> {
            self.inode.sync()
        }

        pub(super) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
            let mut at = self.at.lock();
            let n = self.inode.read_at(*at, buf)?;
            *at += n as u64;
            Ok(n)
        }

        pub(super) fn write(&self, buf: &[u8]) -> io::Result<usize> {
            let mut at = self.at.lock();
            self.inode.write_at(*at, buf)?;
            *at += buf.len() as u64;
            Ok(buf.len())
        }

        pub(super) fn seek(&self, to: SeekFrom) -> io::Result<u64> {
            let mut at = self.at.lock();
            let moved = match to {
                SeekFrom::Start(n) => Some(n),
                SeekFrom::Current(n) => at.checked_add_signed(n),
                SeekFrom::End(n) => self.inode.len()?.checked_add_signed(n),
            };
            *at = moved.ok_or(io::ErrorKind::InvalidInput)?;
            Ok(*at)
        }
    }

    /// redb's file on a simulated disk.
    #[derive(Debug)]
    pub(super) struct Database(pub(super) Arc<dyn Inode>);

    impl redb::StorageBackend for Database {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            match self.0.read_at(offset, out)? {
                n if n == out.len() => Ok(()),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.0.sync()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.0.write_at(offset, data)
        }
    }
}
