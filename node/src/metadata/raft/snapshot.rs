//! Snapshot files: `<dir>/<last index, 20 digits>.snap`, a header and the state's own bytes.
//!
//! Invariant: a file has its final name only once all of it is on disk, so one that does not verify is damage, not a
//! crash, and stops the node with its name; it is never skipped, because the log before it may be gone. Older files
//! go only after a newer one is complete. Everything here blocks; `state_machine` calls it from blocking tasks.

use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use openraft::{BasicNode, SnapshotMeta};
use parking_lot::Mutex;

use super::bytes;
use crate::fault;
use crate::files::{self, File};
use crate::metadata::codec;
use crate::metadata::state::State;

pub(super) type Meta = SnapshotMeta<u64, BasicNode>;

const MAGIC: &[u8; 8] = b"weirsnap";
const BUFFER: usize = 256 << 10;
/// A header holds a log id and the members: more than this is damage.
const HEADER_MAX: u32 = 16 << 20;

/// A snapshot that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotError {
    #[error("snapshot {path} does not verify: {why}")]
    Corrupt { path: PathBuf, why: String },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// A snapshot as openraft hands it on: an open file, at its start. One that is being received goes when dropped.
#[derive(Debug)]
pub(crate) struct SnapshotFile {
    path: PathBuf,
    file: File,
    received: bool,
}

impl SnapshotFile {
    fn open(path: &Path) -> Result<Self, SnapshotError> {
        let file = File::open(path).map_err(at(path))?;
        Ok(Self { path: path.to_owned(), file, received: false })
    }

    /// The open file at its start, and its length: its name may be gone by now.
    pub(super) fn contents(&self) -> io::Result<(File, u64)> {
        let file = self.file.try_clone()?;
        (&file).seek(SeekFrom::Start(0))?;
        let length = file.len()?;
        Ok((file, length))
    }

    /// Adds bytes to one that is being received.
    pub(super) fn extend(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.file).write_all(bytes)
    }
}

impl Drop for SnapshotFile {
    fn drop(&mut self) {
        if self.received {
            // Left-overs are removed at the next start.
            drop(files::remove_file(&self.path));
        }
    }
}

/// The folder of snapshots and the newest one in it.
pub(super) struct Snapshots {
    dir: PathBuf,
    current: Mutex<Option<(Meta, PathBuf)>>,
    temporary: AtomicU64,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> SnapshotError {
    let path = path.to_owned();
    |source| SnapshotError::Io { path, source }
}

impl Snapshots {
    /// Opens the folder, tidies it and loads the newest snapshot.
    pub(super) fn open(dir: &Path) -> Result<(Self, Option<(Meta, State)>), SnapshotError> {
        files::create_dir_all(dir).map_err(at(dir))?;
        let mut found: Vec<(u64, PathBuf)> = Vec::new();
        for path in files::list(dir).map_err(at(dir))? {
            let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
            match (path.extension().and_then(|e| e.to_str()), stem.parse()) {
                (Some("snap"), Ok(index)) => found.push((index, path)),
                (Some("tmp"), _) => files::remove_file(&path).map_err(at(&path))?,
                _ => tracing::warn!(path = %path.display(), "not a snapshot: left alone"),
            }
        }
        found.sort();
        let newest = found.pop().map(|(_, path)| path);
        let loaded = match &newest {
            Some(path) => Some(read(&SnapshotFile::open(path)?)?),
            None => None,
        };
        for (_, path) in found {
            files::remove_file(&path).map_err(at(&path))?;
        }
        let current = loaded.as_ref().map(|(meta, _)| meta.clone()).zip(newest);
        let this = Self { dir: dir.to_owned(), current: Mutex::new(current), temporary: AtomicU64::new(0) };
        Ok((this, loaded))
    }

    /// The newest snapshot's description.
    pub(super) fn meta(&self) -> Option<Meta> {
        self.current.lock().as_ref().map(|(meta, _)| meta.clone())
    }

    /// The newest snapshot, opened.
    pub(super) fn current(&self) -> Result<Option<(Meta, SnapshotFile)>, SnapshotError> {
        // Under the lock, so that a newer one does not remove the file in between.
        match &*self.current.lock() {
            Some((meta, path)) => Ok(Some((meta.clone(), SnapshotFile::open(path)?))),
            None => Ok(None),
        }
    }

    /// A file to receive a snapshot in.
    pub(super) fn receive(&self) -> Result<SnapshotFile, SnapshotError> {
        let (path, file) = self.temporary()?;
        Ok(SnapshotFile { path, file, received: true })
    }

    /// What a received file holds, all of it verified.
    pub(super) fn read(&self, file: &SnapshotFile) -> Result<(Meta, State), SnapshotError> {
        read(file)
    }

    /// Makes `state` the newest snapshot, unless a newer one is there already. Returns the newest, opened.
    pub(super) fn save(&self, meta: &Meta, state: &State) -> Result<(Meta, SnapshotFile), SnapshotError> {
        let index = meta.last_log_id.map_or(0, |id| id.index);
        let path = self.dir.join(format!("{index:020}.snap"));
        let (temporary, file) = self.temporary()?;
        let file = SnapshotFile { path: temporary, file, received: true };
        write(&file, meta, state).map_err(at(&file.path))?;
        fault::point("metadata.snapshot.written");
        let mut current = self.current.lock();
        if let Some((newest, path)) = &*current
            && newest.last_log_id > meta.last_log_id
        {
            return Ok((newest.clone(), SnapshotFile::open(path)?));
        }
        files::rename(&file.path, &path).map_err(at(&path))?;
        files::sync_dir(&self.dir).map_err(at(&self.dir))?;
        fault::point("metadata.snapshot.renamed");
        let older = current.replace((meta.clone(), path.clone()));
        if let Some((_, older)) = older.filter(|(_, older)| *older != path) {
            files::remove_file(&older).map_err(at(&older))?;
        }
        Ok((meta.clone(), SnapshotFile::open(&path)?))
    }

    fn temporary(&self) -> Result<(PathBuf, File), SnapshotError> {
        let n = self.temporary.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(format!("{n}.tmp"));
        let file = File::create(&path).map_err(at(&path))?;
        Ok((path, file))
    }
}

fn write(file: &SnapshotFile, meta: &Meta, state: &State) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER, &file.file);
    let header = bytes::encode_snapshot_meta(meta);
    let length = u32::try_from(header.len()).map_err(io::Error::other)?;
    out.write_all(MAGIC)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&header)?;
    codec::write_state(state, &mut out)?;
    out.flush()?;
    drop(out);
    file.file.sync_all()
}

fn read(file: &SnapshotFile) -> Result<(Meta, State), SnapshotError> {
    let corrupt = |why: String| SnapshotError::Corrupt { path: file.path.clone(), why };
    let cut = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof => corrupt("it ends in its header".to_owned()),
        _ => SnapshotError::Io { path: file.path.clone(), source: e },
    };
    let mut from = &file.file;
    from.seek(SeekFrom::Start(0)).map_err(at(&file.path))?;
    let mut from = BufReader::with_capacity(BUFFER, from);
    let mut start = [0; 12];
    from.read_exact(&mut start).map_err(cut)?;
    let (magic, length) = start.split_first_chunk::<8>().expect("twelve bytes have a first eight");
    if magic != MAGIC {
        return Err(corrupt("it does not begin like one".to_owned()));
    }
    let length = length.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b));
    if length > HEADER_MAX {
        return Err(corrupt(format!("its header is said to be {length} bytes long")));
    }
    let mut header = vec![0; length as usize];
    from.read_exact(&mut header).map_err(cut)?;
    let meta = bytes::decode_snapshot_meta(&header).map_err(|e| corrupt(e.to_string()))?;
    let state = codec::read_state(&mut from).map_err(|e| corrupt(e.to_string()))?;
    match from.read(&mut [0]).map_err(at(&file.path))? {
        0 => Ok((meta, state)),
        _ => Err(corrupt("something follows its end".to_owned())),
    }
}
