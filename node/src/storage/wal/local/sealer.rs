//! Ends a session's local WAL and reads it; removes what is no longer needed.
//!
//! Invariant: the seal is there, and its folder synced, before the first record is read. The writer may finish one record
//! more; whether that one counts is decided once, by the file `end`, so that every sealer gives the same answer. What
//! counts is synced before `end` says so. Neither file is ever removed.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use tokio::sync::mpsc;

use super::reader::Reader;
use super::spare::Spares;
use super::{Folder, at};
use crate::clock;
use crate::fault;
use crate::storage::seal::{Seal, SealNote};
use crate::storage::wal::{WalError, WalObject, corrupt};

/// See [`WalStore::seal`](crate::storage::wal::WalStore::seal).
pub(super) fn seal(
    folder: &Folder,
    from: u64,
    by: &SealNote,
    skip: &BTreeSet<u64>,
    each: &mpsc::Sender<WalObject>,
) -> Result<u64, WalError> {
    folder.make().map_err(at(&folder.path))?;
    fault::point("wal.local.seal.before");
    settle(folder, &folder.seal(), from, by)?;
    fault::point("wal.local.seal.created");
    let known = read_seal(folder, &folder.end())?;
    let mut replay = Replay { folder, skip, each, reader: None, at: from, held: None };
    if known.as_ref().is_some_and(|end| end.seq == from) {
        return Ok(from);
    }
    replay.reader = Reader::open(folder, from, skip)?;
    match known {
        Some(end) => replay.up_to(end.seq),
        None => {
            while replay.step()? {}
            replay.sync()?;
            fault::point("wal.local.end.before");
            let end = settle(folder, &folder.end(), replay.at, by)?;
            fault::point("wal.local.end.after");
            replay.up_to(end.seq)
        }
    }
}

/// The records on their way to the receiver; the newest is held back until it is known to count.
struct Replay<'a> {
    folder: &'a Folder,
    skip: &'a BTreeSet<u64>,
    each: &'a mpsc::Sender<WalObject>,
    reader: Option<Reader<'a>>,
    at: u64,
    held: Option<WalObject>,
}

impl Replay<'_> {
    /// Reads one record; false at the end of the row.
    fn step(&mut self) -> Result<bool, WalError> {
        let Some(reader) = &mut self.reader else { return Ok(false) };
        let Some(object) = reader.next()? else { return Ok(false) };
        self.at += 1;
        let before = self.held.replace(object);
        self.send(before)?;
        Ok(true)
    }

    fn send(&self, object: Option<WalObject>) -> Result<(), WalError> {
        match object {
            Some(o) => self.each.blocking_send(o).map_err(|_e| WalError::Abandoned),
            None => Ok(()),
        }
    }

    fn sync(&self) -> Result<(), WalError> {
        self.reader.as_ref().map_or(Ok(()), Reader::sync)
    }

    /// Sends what is below `end`, which somebody has decided.
    fn up_to(mut self, end: u64) -> Result<u64, WalError> {
        while self.at < end {
            if self.step()? {
                continue;
            }
            // It may stand in a file that is newer than the list of files this began with.
            self.reader = Reader::open(self.folder, self.at, self.skip)?;
            if !self.step()? {
                let why = format!("record {} is missing, and the WAL ends at {end}", self.at);
                return Err(corrupt(self.folder.path.display().to_string(), 0, why));
            }
        }
        let counts = self.held.take_if(|o| o.seq < end);
        // One record at a time: only the newest read could have been in flight when the end was decided.
        if self.at > end + 1 || self.at > end && self.held.is_none() {
            let why = format!("the WAL ends at {end}, but record {} was read", self.at - 1);
            return Err(corrupt(self.folder.path.display().to_string(), 0, why));
        }
        self.send(counts)?;
        Ok(end)
    }
}

/// Creates the file `path` with a seal that says `seq`, unless somebody did; returns what it says, surely to stay.
fn settle(folder: &Folder, path: &Path, seq: u64, by: &SealNote) -> Result<Seal, WalError> {
    if read_seal(folder, path)?.is_none() {
        let seal = Seal { cluster: folder.cluster, ended: folder.session.clone(), seq, note: by.clone() };
        let temporary = folder.path.join(format!("tmp-{}", clock::random_nonce()));
        let created = create(folder, &temporary, path, &seal);
        drop(folder.disk.remove(&temporary));
        created.map_err(at(path))?;
    }
    // Also if somebody else created it: they may not have come so far.
    folder.disk.sync_folder(&folder.path).map_err(at(&folder.path))?;
    let settled = read_seal(folder, path)?;
    settled.ok_or_else(|| WalError::Unavailable(format!("{} has vanished", path.display())))
}

fn create(folder: &Folder, temporary: &Path, path: &Path, seal: &Seal) -> io::Result<()> {
    let file = folder.disk.create(temporary)?;
    folder.disk.write_at(&file, &seal.encode(), 0)?;
    folder.disk.sync(&file)?;
    fault::point("wal.local.seal.written");
    match folder.disk.link(temporary, path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

fn read_seal(folder: &Folder, path: &Path) -> Result<Option<Seal>, WalError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(at(path)(e)),
    };
    let bad = |why: String| corrupt(path.display().to_string(), 0, why);
    let seal = Seal::decode(&bytes).map_err(|e| bad(e.to_string()))?;
    if seal.cluster != folder.cluster || seal.ended != folder.session {
        return Err(bad("it is the seal of another session or cluster".to_owned()));
    }
    Ok(Some(seal))
}

/// Removes the files that lie wholly below `below`, lowest first; all of them if the WAL ends there, or if `below` is
/// `u64::MAX`: then the caller knows that the session is over, be it without a seal.
pub(super) fn trim(folder: &Folder, below: u64, spares: Option<&Spares>) -> Result<(), WalError> {
    let logs = folder.logs().map_err(at(&folder.path))?;
    let ended = || Ok::<_, WalError>(read_seal(folder, &folder.end())?.is_some_and(|end| end.seq <= below));
    let over = below == u64::MAX || ended()?;
    for (i, &first) in logs.iter().enumerate() {
        let wholly_below = logs.get(i + 1).is_some_and(|&next| next <= below);
        if !wholly_below && !over {
            break;
        }
        fault::point("wal.local.trim");
        let log = folder.log(first);
        let left = match spares.filter(|_| !over) {
            Some(spares) => spares.recycle(log).err(),
            None => Some(log),
        };
        if let Some(log) = left {
            remove(folder, &log)?;
        }
    }
    if over {
        for name in folder.disk.list(&folder.path).map_err(at(&folder.path))? {
            if name.starts_with("spare-") || name.starts_with("tmp-") {
                remove(folder, &folder.path.join(name))?;
            }
        }
    }
    Ok(())
}

fn remove(folder: &Folder, path: &Path) -> Result<(), WalError> {
    match folder.disk.remove(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at(path)(e)),
        _ => Ok(()),
    }
}
