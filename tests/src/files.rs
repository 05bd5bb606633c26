//! Directories of tests, and damage to the files in them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A directory that goes away with the test, unless the test fails: then it stays and its path is printed.
#[derive(Debug)]
pub struct Scratch(Option<TempDir>);

impl Scratch {
    #[allow(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        Self(Some(tempfile::Builder::new().prefix("weir-test-").tempdir().unwrap()))
    }

    /// Leaves it on the disk, for whoever looks into a failure.
    pub fn keep(mut self) {
        if let Some(dir) = self.0.take() {
            eprintln!("kept for you: {}", dir.keep().display());
        }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.as_ref().unwrap().path().join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(dir) = self.0.take()
            && std::thread::panicking()
        {
            eprintln!("kept for you: {}", dir.keep().display());
        }
    }
}

/// Copies a directory tree. Sparse and preallocated space becomes plain bytes; lengths stay.
pub fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// All files below `root`, relative to it, sorted.
pub fn files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            } else {
                found.push(entry.path().strip_prefix(root).expect("below root").to_path_buf());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// What may happen to a file. Places are meant within the part in use: preallocated zeros at the end do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// Cut to nothing.
    Empty,
    /// The second half is gone.
    Half,
    /// The second half is gone, up to a border of blocks, as a file system's repair cuts.
    HalfOfBlocks,
    /// The last byte is gone, and what was preallocated behind it.
    LastByte,
    /// Bytes that nobody acknowledged follow the end, as after a torn write.
    TornTail,
    /// The middle has other bytes.
    Middle,
    /// The file is gone.
    Gone,
}

impl Damage {
    pub const ALL: [Self; 7] = [
        Self::Empty,
        Self::Half,
        Self::HalfOfBlocks,
        Self::LastByte,
        Self::TornTail,
        Self::Middle,
        Self::Gone,
    ];

    /// Does it.
    pub fn to(self, file: &Path) -> io::Result<()> {
        match self.to_bytes(fs::read(file)?) {
            Some(bytes) => fs::write(file, bytes),
            None => fs::remove_file(file),
        }
    }

    /// What is left of a file's bytes; `None` if the file is gone.
    pub fn to_bytes(self, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let used = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
        match self {
            Self::Empty => bytes.clear(),
            Self::Half => bytes.truncate(used / 2),
            Self::HalfOfBlocks => bytes.truncate((used / 2).next_multiple_of(4096).min(bytes.len())),
            Self::LastByte => bytes.truncate(used.saturating_sub(1)),
            Self::TornTail => {
                let garbage = (0..997_u32).map(|i| (i * 131 % 251) as u8);
                bytes.splice(used..bytes.len().min(used + 997), garbage);
            }
            Self::Middle => bytes[used / 2..used.min(used / 2 + 64)].iter_mut().for_each(|b| *b ^= 0x5A),
            Self::Gone => return None,
        }
        Some(bytes)
    }
}
