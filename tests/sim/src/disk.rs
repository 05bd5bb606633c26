//! A simulated disk: folders and files in memory that keep, when the power fails, what was synced, and of the rest
//! whatever chance says.
//!
//! Invariant: a file's bytes last only once the file was synced, a name only once its folder was; after a crash handles
//! from before it fail, so that what a dying process still does has no effect. A killed process loses nothing that it
//! wrote, a machine without power everything that was not synced, or a part of it, its last write torn. Used by
//! `machine`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use weir::simulation::{Disk, Inode, Open};
use weir_tests::rng::Rng;

/// The disk of one machine. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct SimDisk(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// Grows with each crash: handles carry theirs.
    life: u64,
    next: u64,
    names: Names,
    lasting: Names,
    files: BTreeMap<u64, Content>,
    locks: BTreeSet<PathBuf>,
}

/// What stands under a name in a folder. The root is folder 0.
type Names = BTreeMap<(u64, String), Node>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Folder(u64),
    File(u64),
}

#[derive(Debug, Default)]
struct Content {
    now: Vec<u8>,
    lasting: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>, torn_at: Option<usize>) {
        match self {
            Self::Write(at, data) => {
                let data = &data[..torn_at.unwrap_or(data.len()).min(data.len())];
                let at = usize::try_from(*at).unwrap_or(usize::MAX);
                if bytes.len() < at + data.len() {
                    bytes.resize(at + data.len(), 0);
                }
                bytes[at..at + data.len()].copy_from_slice(data);
            }
            Self::Length(len) => bytes.resize(usize::try_from(*len).unwrap_or(usize::MAX), 0),
        }
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn dead() -> io::Error {
    io::Error::other("the machine is down")
}

impl Inner {
    fn parts(path: &Path) -> io::Result<Vec<String>> {
        let names = path.components().filter_map(|part| match part {
            Component::RootDir => None,
            Component::Normal(name) => Some(Ok(name.to_string_lossy().into_owned())),
            _ => Some(Err(io::ErrorKind::InvalidInput.into())),
        });
        names.collect()
    }

    fn node(&self, path: &Path) -> io::Result<Node> {
        Self::parts(path)?.into_iter().try_fold(Node::Folder(0), |node, name| match node {
            Node::Folder(id) => self.names.get(&(id, name)).copied().ok_or_else(missing),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        })
    }

    fn folder(&self, path: &Path) -> io::Result<u64> {
        match self.node(path)? {
            Node::Folder(id) => Ok(id),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// The folder and the name in it.
    fn place(&self, path: &Path) -> io::Result<(u64, String)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
        Ok((self.folder(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?, name))
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The power fails: of what was not synced, `rng` keeps some.
    fn lose(&mut self, rng: &mut Rng) {
        let changed: Vec<(u64, String)> = self
            .names
            .keys()
            .chain(self.lasting.keys())
            .filter(|name| self.names.get(name) != self.lasting.get(name))
            .cloned()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        // A rename is two names, and neither alone is lost with the other: all of a folder's, or none.
        let folders: BTreeSet<u64> = changed.iter().map(|(folder, _)| *folder).collect();
        for folder in folders {
            if rng.one_in(2) {
                continue;
            }
            for name in changed.iter().filter(|(f, _)| *f == folder) {
                match self.names.get(name) {
                    Some(node) => self.lasting.insert(name.clone(), *node),
                    None => self.lasting.remove(name),
                };
            }
        }
        self.names = self.lasting.clone();
        for content in self.files.values_mut() {
            let unsynced = std::mem::take(&mut content.unsynced);
            if unsynced.is_empty() {
                continue;
            }
            match rng.below(3) {
                0 => {}
                1 => {
                    let kept = rng.index(unsynced.len() + 1);
                    for change in &unsynced[..kept] {
                        change.apply(&mut content.lasting, None);
                    }
                    if let Some(torn @ Change::Write(_, data)) = unsynced.get(kept) {
                        torn.apply(&mut content.lasting, Some(rng.index(data.len() + 1)));
                    }
                }
                // The disk has an order of its own.
                _ => {
                    for change in &unsynced {
                        if rng.one_in(2) {
                            change.apply(&mut content.lasting, None);
                        }
                    }
                }
            }
            content.now = content.lasting.clone();
        }
    }
}

impl SimDisk {
    /// The process is gone: what it still does has no effect. With `power`, the machine lost its power.
    pub fn crash(&self, power: bool, rng: &mut Rng) {
        let mut inner = self.0.lock();
        inner.life += 1;
        inner.locks.clear();
        if power {
            inner.lose(rng);
        }
    }

    /// The disk is another one, and empty.
    pub fn replace(&self) {
        let mut inner = self.0.lock();
        *inner = Inner { life: inner.life + 1, ..Inner::default() };
    }

    /// For this process.
    pub fn mount(&self) -> Mounted {
        Mounted { disk: self.clone(), life: self.0.lock().life }
    }
}

/// The disk as one process sees it.
#[derive(Debug, Clone)]
pub struct Mounted {
    disk: SimDisk,
    life: u64,
}

impl Mounted {
    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> io::Result<T>) -> io::Result<T> {
        let mut inner = self.disk.0.lock();
        if inner.life == self.life { f(&mut inner) } else { Err(dead()) }
    }
}

impl Disk for Mounted {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.with(|inner| {
            let mut at = 0;
            for name in Inner::parts(path)? {
                at = match inner.names.get(&(at, name.clone())) {
                    Some(Node::Folder(id)) => *id,
                    Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                    None => {
                        let id = inner.fresh();
                        inner.names.insert((at, name), Node::Folder(id));
                        id
                    }
                };
            }
            Ok(())
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.with(|inner| {
            let id = inner.folder(path)?;
            inner.lasting.retain(|(folder, _), _| *folder != id);
            let all = inner.names.iter().filter(|((folder, _), _)| *folder == id);
            let all: Vec<_> = all.map(|(name, node)| (name.clone(), *node)).collect();
            inner.lasting.extend(all);
            Ok(())
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.with(|inner| {
            let id = inner.folder(path)?;
            Ok(inner
                .names
                .keys()
                .filter(|(folder, _)| *folder == id)
                .map(|(_, name)| path.join(name))
                .collect())
        })
    }

    fn exists(&self, path: &Path) -> bool {
        self.with(|inner| inner.node(path)).is_ok()
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn Inode>> {
        let id = self.with(|inner| {
            let place = inner.place(path)?;
            match (inner.names.get(&place).copied(), how) {
                (Some(Node::Folder(_)), _) => Err(io::ErrorKind::IsADirectory.into()),
                (Some(Node::File(id)), Open::Existing | Open::OrNew) => Ok(id),
                (Some(Node::File(id)), Open::Empty) => {
                    let content = inner.files.entry(id).or_default();
                    content.now.clear();
                    content.unsynced.push(Change::Length(0));
                    Ok(id)
                }
                (None, Open::Existing) => Err(missing()),
                (None, Open::OrNew | Open::Empty) => {
                    let id = inner.fresh();
                    inner.files.insert(id, Content::default());
                    inner.names.insert(place, Node::File(id));
                    Ok(id)
                }
            }
        })?;
        Ok(Arc::new(OpenFile { on: self.clone(), id }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.with(|inner| {
            let (from, to) = (inner.place(from)?, inner.place(to)?);
            let node = inner.names.remove(&from).ok_or_else(missing)?;
            inner.names.insert(to, node);
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.with(|inner| {
            let place = inner.place(path)?;
            match inner.names.get(&place) {
                Some(Node::File(_)) => {
                    inner.names.remove(&place);
                    Ok(())
                }
                Some(Node::Folder(_)) => Err(io::ErrorKind::IsADirectory.into()),
                None => Err(missing()),
            }
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        drop(self.open(path, Open::OrNew)?);
        self.with(|inner| {
            let taken = inner.locks.insert(path.to_owned());
            // Made only if it is: what is dropped here would let go of another's, and wait for this disk meanwhile.
            let lock =
                || Box::new(Locked { on: self.clone(), path: path.to_owned() }) as Box<dyn Send + Sync>;
            Ok(taken.then(lock))
        })
    }
}

struct Locked {
    on: Mounted,
    path: PathBuf,
}

impl Drop for Locked {
    fn drop(&mut self) {
        // After a crash nobody holds anything.
        self.on
            .with(|inner| {
                inner.locks.remove(&self.path);
                Ok(())
            })
            .ok();
    }
}

#[derive(Debug)]
struct OpenFile {
    on: Mounted,
    id: u64,
}

impl OpenFile {
    fn with<T>(&self, f: impl FnOnce(&mut Content) -> T) -> io::Result<T> {
        self.on.with(|inner| Ok(f(inner.files.entry(self.id).or_default())))
    }
}

impl Inode for OpenFile {
    fn len(&self) -> io::Result<u64> {
        self.with(|content| content.now.len() as u64)
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.with(|content| {
            let rest = content.now.get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default();
            let n = rest.len().min(into.len());
            into[..n].copy_from_slice(&rest[..n]);
            n
        })
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|content| {
            let change = Change::Write(at, bytes.to_vec());
            change.apply(&mut content.now, None);
            content.unsynced.push(change);
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|content| {
            let change = Change::Length(len);
            change.apply(&mut content.now, None);
            content.unsynced.push(change);
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|content| {
            for change in std::mem::take(&mut content.unsynced) {
                change.apply(&mut content.lasting, None);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(disk: &Mounted, path: &str, content: &[u8]) -> Arc<dyn Inode> {
        let file = disk.open(Path::new(path), Open::Empty).unwrap();
        file.write_at(0, content).unwrap();
        file
    }

    fn read(disk: &Mounted, path: &str) -> Option<Vec<u8>> {
        let file = disk.open(Path::new(path), Open::Existing).ok()?;
        let mut content = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_at(0, &mut content).unwrap();
        Some(content)
    }

    #[test]
    fn what_was_synced_with_its_folder_is_there_after_every_crash() {
        for seed in 0..50 {
            let disk = SimDisk::default();
            let before = disk.mount();
            before.create_dir_all(Path::new("/d")).unwrap();
            before.sync_dir(Path::new("/")).unwrap();
            let file = write(&before, "/d/a", b"first");
            file.sync().unwrap();
            before.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
            before.sync_dir(Path::new("/d")).unwrap();
            file.write_at(0, b"later").unwrap();
            disk.crash(true, &mut Rng::new(seed));
            assert!(file.write_at(0, b"never").is_err());
            let after = disk.mount();
            let left = read(&after, "/d/b").unwrap();
            let torn = |n: usize| [&b"later"[..n], &b"first"[n..]].concat();
            assert!((0..=5).any(|n| left == torn(n)), "{left:?}");
            assert_eq!(read(&after, "/d/a"), None);
        }
    }

    #[test]
    fn what_was_not_synced_is_lost_by_a_power_cut_at_times_and_never_by_a_kill() {
        let left = |power, seed| {
            let disk = SimDisk::default();
            let before = disk.mount();
            before.create_dir_all(Path::new("/d")).unwrap();
            write(&before, "/d/a", b"bytes");
            disk.crash(power, &mut Rng::new(seed));
            read(&disk.mount(), "/d/a")
        };
        assert!((0..50).all(|seed| left(false, seed).as_deref() == Some(b"bytes")));
        let cut: BTreeSet<_> = (0..50).map(|seed| left(true, seed)).collect();
        assert!(cut.contains(&None) && cut.contains(&Some(b"bytes".to_vec())) && cut.len() > 2, "{cut:?}");
    }

    #[test]
    fn one_process_has_the_lock_until_it_dies() {
        let disk = SimDisk::default();
        let first = disk.mount();
        let held = first.lock(Path::new("/lock")).unwrap();
        assert!(held.is_some());
        assert!(first.lock(Path::new("/lock")).unwrap().is_none());
        disk.crash(false, &mut Rng::new(1));
        assert!(disk.mount().lock(Path::new("/lock")).unwrap().is_some());
    }
}
