//! A disk that fails, stops or loses power at a chosen step.
//!
//! Every change is noted with what takes it back. Losing power takes back a part of what was not synced: writes each for
//! itself (or half of one), names only from the last one backwards, as a journalling file system would.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

/// A change about to be made.
pub(in super::super) enum Step<'a> {
    Folder,
    Create(&'a Path),
    Write(&'a File, &'a [u8], u64),
    Reserve,
    Sync,
    SyncFolder,
    Rename(&'a Path, &'a Path),
    Link(&'a Path),
    Remove(&'a Path),
    Look,
}

impl Step<'_> {
    fn name(&self) -> &'static str {
        match self {
            Step::Folder => "folder",
            Step::Create(_) => "create",
            Step::Write(..) => "write",
            Step::Reserve => "reserve",
            Step::Sync => "sync",
            Step::SyncFolder => "sync-folder",
            Step::Rename(..) => "rename",
            Step::Link(_) => "link",
            Step::Remove(_) => "remove",
            Step::Look => "look",
        }
    }
}

enum Undo {
    /// Bytes of a file, by inode.
    Bytes {
        inode: u64,
        file: File,
        at: u64,
        old: Vec<u8>,
        length: u64,
    },
    Created(PathBuf),
    Renamed(PathBuf, PathBuf),
    /// Kept under another name until the folder is synced.
    Removed(PathBuf, PathBuf),
}

#[derive(Default)]
struct State {
    steps: u64,
    stop_at: Option<u64>,
    fail: VecDeque<(&'static str, i32, u32)>,
}

/// What was changed and not synced, by whichever process.
pub(in super::super) struct Kernel {
    undo: Mutex<Vec<Undo>>,
    /// Removed files are kept here until their removal is synced.
    graveyard: PathBuf,
}

/// What goes wrong for one process.
pub(in super::super) struct Faults {
    state: Mutex<State>,
    kernel: Arc<Kernel>,
}

impl Faults {
    pub(in super::super) fn new(kernel: Arc<Kernel>) -> Self {
        Self { state: Mutex::default(), kernel }
    }

    /// Nothing succeeds from the `n`-th step on (counted from 0): the process is dead.
    pub(in super::super) fn stop_at(&self, n: u64) {
        self.state.lock().stop_at = Some(n);
    }

    /// The next `times` steps of that name fail with `errno`.
    pub(in super::super) fn fail(&self, name: &'static str, errno: i32, times: u32) {
        self.state.lock().fail.push_back((name, errno, times));
    }

    /// No more programmed failures.
    pub(in super::super) fn heal(&self) {
        self.state.lock().fail.clear();
    }

    pub(in super::super) fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    pub(in super::super) fn step(&self, step: Step<'_>) -> io::Result<()> {
        let mut state = self.state.lock();
        let now = state.steps;
        state.steps += 1;
        if state.stop_at.is_some_and(|n| now >= n) {
            return Err(io::Error::other("dead"));
        }
        if let Some((_, errno, times)) =
            state.fail.iter_mut().find(|(name, _, times)| *name == step.name() && *times > 0)
        {
            *times -= 1;
            return Err(io::Error::from_raw_os_error(*errno));
        }
        let undo = match step {
            Step::Folder | Step::Reserve | Step::Sync | Step::SyncFolder | Step::Look => return Ok(()),
            Step::Write(file, bytes, at) => {
                let length = file.metadata()?.len();
                let mut old = vec![0; bytes.len().min(usize::try_from(length.saturating_sub(at)).unwrap())];
                file.read_exact_at(&mut old, at)?;
                let inode = file.metadata()?.ino();
                Undo::Bytes { inode, file: file.try_clone()?, at, old, length }
            }
            Step::Create(path) | Step::Link(path) => {
                if path.exists() {
                    return Ok(());
                }
                Undo::Created(path.to_owned())
            }
            Step::Rename(from, to) => Undo::Renamed(from.to_owned(), to.to_owned()),
            Step::Remove(path) => {
                if !path.exists() {
                    return Ok(());
                }
                let grave = self.kernel.graveyard.join(crate::clock::random_u64().to_string());
                std::fs::hard_link(path, &grave)?;
                Undo::Removed(path.to_owned(), grave)
            }
        };
        self.kernel.undo.lock().push(undo);
        Ok(())
    }

    pub(in super::super) fn synced(&self, file: &File) {
        let inode = file.metadata().unwrap().ino();
        self.kernel.undo.lock().retain(|u| !matches!(u, Undo::Bytes { inode: i, .. } if *i == inode));
    }

    pub(in super::super) fn synced_folder(&self, path: &Path) {
        let inside = |p: &PathBuf| p.parent() == Some(path);
        self.kernel.undo.lock().retain(|u| match u {
            Undo::Bytes { .. } => true,
            Undo::Created(p) | Undo::Renamed(p, _) | Undo::Removed(p, _) => !inside(p),
        });
    }
}

impl Kernel {
    pub(in super::super) fn new(graveyard: &Path) -> Self {
        Self { undo: Mutex::default(), graveyard: graveyard.to_owned() }
    }

    /// The power fails: `random` decides what of the unsynced changes had reached the disk.
    pub(in super::super) fn cut_power(&self, mut random: impl FnMut() -> u64) {
        let undo = std::mem::take(&mut *self.undo.lock());
        let names = undo.iter().filter(|u| !matches!(u, Undo::Bytes { .. })).count() as u64;
        let mut names_lost = random() % (names + 1);
        for change in undo.into_iter().rev() {
            match change {
                Undo::Bytes { file, at, old, length, .. } => match random() % 3 {
                    0 => {}
                    kind => {
                        // Lost, or torn: only the end of it lost.
                        let keep = if kind == 1 {
                            0
                        } else {
                            usize::try_from(random()).unwrap_or(0) % (old.len() + 1)
                        };
                        file.write_all_at(&old[keep..], at + keep as u64).unwrap();
                        if keep == 0 && old.is_empty() {
                            file.set_len(length).unwrap();
                        }
                    }
                },
                _ if names_lost == 0 => {}
                Undo::Created(path) => {
                    names_lost -= 1;
                    std::fs::remove_file(path).unwrap();
                }
                Undo::Renamed(from, to) => {
                    names_lost -= 1;
                    std::fs::rename(to, from).unwrap();
                }
                Undo::Removed(path, grave) => {
                    names_lost -= 1;
                    std::fs::rename(grave, path).unwrap();
                }
            }
        }
    }
}
