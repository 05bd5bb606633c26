//! The writer of a session's local WAL: writes, syncs, looks for the seal, and only then acknowledges. It begins as a
//! thread that takes puts; a pipeline takes it over and calls it where it is.
//!
//! Invariant: one record at a time, so that all before the last one are synced. After a failed fdatasync nothing is
//! known about the pages that were dirty (the kernel may have dropped them and reports it once): the session's WAL has
//! failed, nothing more is acknowledged, the process must end, and the recovery of its session reads what is there. A
//! full disk is no failure: what is already written is rewritten, same bytes, same place, when there is room.

use std::fs::File;
use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::spare::{Spares, usable};
use super::{BEGUN, Folder, Sizes, at, is_full};
use crate::fault;
use crate::storage::wal::{BlockingLog, FIRST_SEQ, PutError, WalError, WalWriter};
use crate::tasks::Tasks;

/// Claims the folder for this session's one writer and starts its threads.
pub(super) fn start(folder: &Folder, tasks: &Tasks, sizes: Sizes) -> Result<LocalWriter, WalError> {
    folder.make().map_err(at(&folder.path))?;
    let owner = folder.owner();
    match folder.disk.create(&owner) {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(WalError::SessionExists(folder.session.clone()));
        }
        Err(e) => return Err(at(&owner)(e)),
    }
    fault::point("wal.local.created");
    let started = start_threads(folder, tasks, sizes);
    if started.is_err() {
        drop(folder.disk.remove(&owner));
    }
    started.map_err(at(&folder.path))
}

fn start_threads(folder: &Folder, tasks: &Tasks, sizes: Sizes) -> io::Result<LocalWriter> {
    folder.disk.sync_folder(&folder.path)?;
    let spares = Spares::start(folder, tasks, sizes)?;
    let (jobs, inbox) = mpsc::sync_channel(2);
    let log =
        Log { folder: folder.clone(), spares: spares.clone(), current: None, next: FIRST_SEQ, over: None };
    tasks.spawn_unawaited_thread("weir-wal", move || log.run(&inbox))?;
    Ok(LocalWriter { jobs, spares })
}

enum Job {
    Put { seq: u64, object: Bytes, done: oneshot::Sender<Result<(), PutError>> },
    HandOver(SyncSender<Log>),
}

/// The tasks' end of the writer.
pub(super) struct LocalWriter {
    jobs: SyncSender<Job>,
    spares: Spares,
}

impl LocalWriter {
    pub(super) fn spares(&self) -> Spares {
        self.spares.clone()
    }
}

impl WalWriter for LocalWriter {
    fn put(&self, seq: u64, object: Bytes) -> BoxFuture<'_, Result<(), PutError>> {
        async move {
            let ended = || PutError::Failed("the WAL's writer thread has ended".to_owned());
            let (done, outcome) = oneshot::channel();
            match self.jobs.try_send(Job::Put { seq, object, done }) {
                Ok(()) => outcome.await.unwrap_or_else(|_e| Err(ended())),
                // Only if earlier puts were cancelled and the disk hangs.
                Err(TrySendError::Full(_)) => Err(PutError::Unknown("the disk is still busy".to_owned())),
                Err(TrySendError::Disconnected(_)) => Err(ended()),
            }
        }
        .boxed()
    }

    fn hand_over(&self) -> Option<Box<dyn BlockingLog>> {
        let (giver, taker) = mpsc::sync_channel(1);
        self.jobs.try_send(Job::HandOver(giver)).ok()?;
        let log = taker.recv().ok()?;
        Some(Box::new(log))
    }

    fn max_in_flight(&self) -> usize {
        1
    }

    fn pays_per_object(&self) -> bool {
        false
    }
}

/// The file being written.
struct Current {
    file: File,
    /// Where the next record goes.
    at: u64,
    /// Up to where records may go.
    size: u64,
}

struct Log {
    folder: Folder,
    spares: Spares,
    current: Option<Current>,
    next: u64,
    over: Option<PutError>,
}

impl Log {
    fn run(mut self, inbox: &Receiver<Job>) {
        while let Ok(job) = inbox.recv() {
            match job {
                Job::Put { seq, object, done } => {
                    let outcome = self.put(seq, &object);
                    // A receiver that has gone was cancelled: the outcome is unknown to it, as promised.
                    drop(done.send(outcome));
                }
                Job::HandOver(taker) => {
                    // Whoever asked waits for it.
                    drop(taker.send(self));
                    return;
                }
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.spares.stop();
    }
}

impl BlockingLog for Log {
    fn put(&mut self, seq: u64, object: &[u8]) -> Result<(), PutError> {
        if let Some(over) = &self.over {
            return Err(over.clone());
        }
        let outcome = self.write(seq, object);
        match &outcome {
            Ok(()) => {
                self.next += 1;
                if let Some(current) = &mut self.current {
                    current.at += object.len() as u64;
                }
            }
            Err(e @ (PutError::Sealed | PutError::Failed(_))) => self.over = Some(e.clone()),
            Err(PutError::Unknown(_) | PutError::NoRoom(_)) => {}
        }
        outcome
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.current.as_ref().is_some_and(|c| c.at + bytes <= c.size)
    }
}

impl Log {
    fn write(&mut self, seq: u64, object: &[u8]) -> Result<(), PutError> {
        if seq != self.next {
            return Err(PutError::Failed(format!("record {seq} came where {} was due", self.next)));
        }
        let length = object.len() as u64;
        let fits = self.current.take_if(|c| c.at + length <= c.size);
        let current = match fits {
            Some(current) => current,
            None => self.rotate(seq, length)?,
        };
        let current = self.current.insert(current);
        let disk = &self.folder.disk;
        fault::point("wal.local.write.before");
        disk.write_at(&current.file, object, current.at).map_err(|e| no_room_or_failed("write", &e))?;
        fault::point("wal.local.write.after");
        disk.sync(&current.file).map_err(|e| failed("fdatasync", &e))?;
        fault::point("wal.local.sync.after");
        let seal = self.folder.seal();
        match disk.exists(&seal) {
            Ok(false) => Ok(()),
            Ok(true) => Err(PutError::Sealed),
            Err(e) => Err(PutError::Unknown(format!("{}: {e}", seal.display()))),
        }
    }

    /// Puts the next file into the row, under the number it begins with.
    fn rotate(&mut self, seq: u64, length: u64) -> Result<Current, PutError> {
        let spare = self.spares.take(length).map_err(|e| no_room_or_failed("new file", &e))?;
        fault::point("wal.local.rotate.before");
        if let Err(e) = self.folder.disk.rename(&spare.path, &self.folder.log(seq)) {
            let outcome = no_room_or_failed("rename", &e);
            self.spares.give_back(spare);
            return Err(outcome);
        }
        fault::point("wal.local.rotate.renamed");
        self.folder.disk.sync_folder(&self.folder.path).map_err(|e| failed("fsync of the folder", &e))?;
        if seq == FIRST_SEQ {
            self.mark_begun().map_err(|e| no_room_or_failed("mark", &e))?;
        }
        fault::point("wal.local.rotate.after");
        Ok(Current { file: spare.file, at: 0, size: usable(spare.size) })
    }

    /// Says, before anything is acknowledged, that there is a first file: its absence is damage from now on.
    fn mark_begun(&self) -> io::Result<()> {
        let owner = self.folder.disk.open(&self.folder.owner())?;
        self.folder.disk.write_at(&owner, BEGUN, 0)?;
        self.folder.disk.sync(&owner)
    }
}

fn no_room_or_failed(what: &str, e: &io::Error) -> PutError {
    if is_full(e) { PutError::NoRoom(format!("WAL {what}: {e}")) } else { failed(what, e) }
}

fn failed(what: &str, e: &io::Error) -> PutError {
    PutError::Failed(format!("WAL {what}: {e}"))
}
