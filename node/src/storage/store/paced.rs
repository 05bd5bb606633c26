//! A large object into a local folder, synced piece by piece.
//!
//! One sync of 64 MiB holds up every sync of the WAL beside it for as long as it takes, and appends with them. Invariant: as
//! for every put: the name appears only once all of the content is on the disk, never replaces another, and lasts when this
//! returns. Temporary files are named as object_store names its own, which listings pass over. Called by `store`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::clock;

/// Smaller objects are not worth it.
pub(super) const LARGE: usize = 4 << 20;
/// Written between two syncs.
const PIECE: usize = 1 << 20;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paced {
    Stored,
    /// The name is taken.
    Exists,
    /// The folder is missing: somebody else has to make it, with all above it.
    NoFolder,
}

/// Stores `body` as `path`, unless that is taken.
pub(super) fn put(path: &Path, body: &Bytes) -> io::Result<Paced> {
    let staged = staged(path);
    let mut file = match OpenOptions::new().write(true).create_new(true).open(&staged) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Paced::NoFolder),
        Err(e) => return Err(e),
    };
    let linked = write(&mut file, body).and_then(|()| match fs::hard_link(&staged, path) {
        Ok(()) => Ok(Paced::Stored),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(Paced::Exists),
        Err(e) => Err(e),
    });
    // Room that is short must not be held.
    let removed = fs::remove_file(&staged);
    let paced = linked?;
    removed?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(paced)
}

fn write(file: &mut File, body: &[u8]) -> io::Result<()> {
    for piece in body.chunks(PIECE) {
        file.write_all(piece)?;
        file.sync_data()?;
    }
    file.sync_all()
}

fn staged(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("#{}", clock::random_u64()));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_object_is_stored_once_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("00000001");
        let body = Bytes::from((0..PIECE * 2 + 77).map(|n| (n % 251) as u8).collect::<Vec<_>>());
        assert_eq!(put(&path, &body).unwrap(), Paced::Stored);
        assert_eq!(fs::read(&path).unwrap(), body);
        assert_eq!(put(&path, &Bytes::from_static(b"other")).unwrap(), Paced::Exists);
        assert_eq!(fs::read(&path).unwrap(), body);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let deep = folder.path().join("a/b");
        assert_eq!(put(&deep, &body).unwrap(), Paced::NoFolder);
        assert!(!deep.exists());
    }
}
