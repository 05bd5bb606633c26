//! The folder of a local cluster: whose it is, and that one `weir dev up` uses it.
//!
//! Invariant: one process at a time, by a file lock that the kernel drops with it; nothing is deleted in a folder that
//! does not carry our mark, and nothing in which a node is at work. Used by `up`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::super::ExitCode;
use super::super::stop::Stop;
use super::plan::Ports;
use crate::config::process_environment;
use crate::data_dir::{DataDir, DataDirError};

const VERSION: u32 = 1;
/// The mark, and what is kept from run to run.
const MARK: &str = "dev.json";
const LOCK: &str = "lock";

/// What is kept: how many nodes, and where each was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    version: u32,
    pub(super) nodes: Vec<Ports>,
}

impl Kept {
    pub(super) fn new(nodes: Vec<Ports>) -> Self {
        Self { version: VERSION, nodes }
    }
}

/// A locked folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Holds the lock while it lives.
    _lock: File,
}

/// Where it is if nobody says.
pub(super) fn usual() -> Result<PathBuf, Stop> {
    let set = |name| process_environment(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    let state = state.filter(|path| path.is_absolute());
    state.map(|path| path.join("weir/dev")).ok_or_else(|| {
        Stop::usage("neither XDG_STATE_HOME nor HOME names a folder to keep the cluster in")
            .hint("name one with --dir DIR")
    })
}

impl Folder {
    /// Makes the folder if need be, and locks it.
    pub(super) fn open(path: &Path) -> Result<Self, Stop> {
        let path = std::path::absolute(path).map_err(|e| failed(path, &e))?;
        // The store is named by a URL and everything by TOML, which are text.
        if path.to_str().is_none_or(|text| text.contains(char::is_control)) {
            return Err(Stop::usage(format!("--dir: {path:?} is not plain UTF-8 text")));
        }
        fs::create_dir_all(&path).map_err(|e| failed(&path, &e))?;
        ours(&path)?;
        let file = path.join(LOCK);
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).read(true).write(true).open(&file);
        let mut lock = lock.map_err(|e| failed(&file, &e))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let holder = fs::read_to_string(&file).unwrap_or_default();
                let holder =
                    holder.trim().parse::<u32>().map_or(String::new(), |pid| format!(" (process {pid})"));
                let why = format!("{} is in use by another `weir dev up`{holder}", path.display());
                return Err(
                    Stop::new(ExitCode::InUse, why).hint("stop that one, or name another folder with --dir")
                );
            }
            Err(e) => return Err(failed(&file, &e.into())),
        }
        let written = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        written.map_err(|e| failed(&file, &e))?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What an earlier run has left; none in a new folder.
    pub(super) fn kept(&self) -> Result<Option<Kept>, Stop> {
        let file = self.path.join(MARK);
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(&file, &e)),
        };
        let wrong = |why: String| {
            Stop::new(ExitCode::Foreign, format!("{}: {why}", file.display())).hint("begin anew with --fresh")
        };
        let kept: Kept = serde_json::from_slice(&text).map_err(|e| wrong(e.to_string()))?;
        if kept.version != VERSION || kept.nodes.is_empty() {
            return Err(wrong(format!(
                "version {} with {} nodes is not for this weir",
                kept.version,
                kept.nodes.len()
            )));
        }
        Ok(Some(kept))
    }

    /// Writes down what is kept; before anything else is written into the folder.
    pub(super) fn keep(&self, kept: &Kept) -> Result<(), Stop> {
        let text = serde_json::to_vec(kept).map_err(|e| Stop::new(ExitCode::Failure, e.to_string()))?;
        self.replace(MARK, &text)
    }

    /// Replaces a small file in one step.
    pub(super) fn replace(&self, name: &str, content: &[u8]) -> Result<(), Stop> {
        let (path, new) = (self.path.join(name), self.path.join(format!("{name}.new")));
        fs::write(&new, content).and_then(|()| fs::rename(&new, &path)).map_err(|e| failed(&path, &e))
    }

    /// Refuses if a process is at work in one of the data directories: one that was started by hand, say.
    pub(super) fn idle(&self, ids: impl Iterator<Item = String>) -> Result<(), Stop> {
        for path in ids.map(|id| self.path.join(id)).filter(|path| path.exists()) {
            match DataDir::open(&path) {
                Ok(_free) => {}
                Err(e @ DataDirError::InUse(_)) => {
                    return Err(Stop::new(ExitCode::InUse, e.to_string()).hint("stop that process first"));
                }
                Err(e) => return Err(Stop::new(ExitCode::Failure, e.to_string())),
            }
        }
        Ok(())
    }

    /// Deletes the cluster. The mark goes last: what is cut off half-way can be done again.
    pub(super) fn clear(&self) -> Result<(), Stop> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(|e| failed(&self.path, &e))? {
            let entry = entry.map_err(|e| failed(&self.path, &e))?;
            if entry.file_name().to_str().is_some_and(|name| name.starts_with("node-") || name == "store") {
                found.push(entry.path());
            }
        }
        let directories = found.iter().filter(|path| path.is_dir() && !path.ends_with("store"));
        self.idle(directories.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())))?;
        found.sort();
        found.push(self.path.join(MARK));
        for path in found {
            let gone = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            match gone {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(&path, &e)),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A folder with other things in it is somebody else's.
fn ours(path: &Path) -> Result<(), Stop> {
    if path.join(MARK).exists() {
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(|e| failed(path, &e))? {
        let name = entry.map_err(|e| failed(path, &e))?.file_name();
        if name != LOCK && name.to_str() != Some(&format!("{MARK}.new")) {
            let why = format!("{} holds {name:?}, and no cluster of `weir dev up`", path.display());
            return Err(Stop::usage(why).hint("name another folder with --dir, or one that is not there yet"));
        }
    }
    Ok(())
}

pub(super) fn failed(path: &Path, e: &io::Error) -> Stop {
    Stop::new(ExitCode::Failure, format!("{}: {e}", path.display()))
}
