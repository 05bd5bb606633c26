//! Files made ready ahead of need, so that no append waits for the allocation of a file.
//!
//! Invariant: a spare is synced, its blocks written, before it is handed out, so that a later fdatasync of overwritten
//! data needs no change of metadata. Whoever asks waits for the block that is being filled at most: what is filled so far
//! is the file then. Served by one thread per live session; asked by that session's log, and by trimming,
//! which gives files back.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};

use super::disk::Disk;
use super::{Folder, Sizes, is_full};
use crate::fault;
use crate::tasks::Tasks;

/// How many files are kept ready.
const KEEP: usize = 2;
/// Sizes are multiples of it.
const BLOCK: u64 = 4096;

/// Ends every file. A file without it was cut: no crash does that, for it is synced before the file is used.
pub(super) const FENCE: &[u8; 8] = b"weir-end";

/// What of a file of `size` holds records.
pub(super) fn usable(size: u64) -> u64 {
    size.saturating_sub(FENCE.len() as u64)
}

/// A file ready to become a log.
pub(super) struct Spare {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) size: u64,
}

enum Ask {
    /// A spare of at least this size.
    Take(u64, SyncSender<io::Result<Spare>>),
    /// It could not be used.
    GiveBack(Spare),
    /// A trimmed log.
    Recycle(PathBuf),
    Stop,
}

/// A handle on the thread.
#[derive(Clone)]
pub(super) struct Spares {
    asks: SyncSender<Ask>,
}

impl Spares {
    /// Starts the thread, which makes the first spare at once.
    pub(super) fn start(folder: &Folder, tasks: &Tasks, sizes: Sizes) -> io::Result<Self> {
        let (asks, inbox) = mpsc::sync_channel(16);
        let maker = Maker {
            inbox,
            asked: None,
            folder: folder.path.clone(),
            disk: folder.disk.clone(),
            ready: VecDeque::new(),
            size: sizes.first,
            sizes,
            number: 0,
        };
        tasks.spawn_unawaited_thread("weir-wal-spare", move || maker.run())?;
        Ok(Self { asks })
    }

    /// A spare with room for `size` bytes of records; waits until one is made.
    pub(super) fn take(&self, size: u64) -> io::Result<Spare> {
        let (reply, answer) = mpsc::sync_channel(1);
        let gone = || io::Error::other("the thread that makes WAL files has ended");
        self.asks.send(Ask::Take(size, reply)).map_err(|_e| gone())?;
        answer.recv().map_err(|_e| gone())?
    }

    /// Takes back a spare that could not be used.
    pub(super) fn give_back(&self, spare: Spare) {
        // If the thread has ended, the file is just not used again.
        drop(self.asks.send(Ask::GiveBack(spare)));
    }

    /// Takes a trimmed log, or says that the caller has to remove it.
    pub(super) fn recycle(&self, log: PathBuf) -> Result<(), PathBuf> {
        self.asks.try_send(Ask::Recycle(log)).map_err(|e| match e {
            TrySendError::Full(Ask::Recycle(log)) | TrySendError::Disconnected(Ask::Recycle(log)) => log,
            TrySendError::Full(_) | TrySendError::Disconnected(_) => PathBuf::new(),
        })
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        drop(self.asks.send(Ask::Stop));
    }
}

struct Maker {
    folder: PathBuf,
    disk: Disk,
    ready: VecDeque<Spare>,
    /// How large the next one is made.
    size: u64,
    sizes: Sizes,
    number: u64,
    inbox: Receiver<Ask>,
    /// Came while a file was being filled.
    asked: Option<Ask>,
}

impl Maker {
    fn run(mut self) {
        self.prepare();
        while let Some(ask) = self.asked.take().or_else(|| self.inbox.recv().ok()) {
            match ask {
                Ask::Take(size, reply) => {
                    let taken = self.take(size);
                    if let Err(mpsc::SendError(Ok(spare))) = reply.send(taken) {
                        self.ready.push_back(spare);
                    }
                    self.prepare();
                }
                Ask::GiveBack(spare) => self.ready.push_front(spare),
                Ask::Recycle(log) => self.recycle(&log),
                Ask::Stop => return,
            }
        }
    }

    fn take(&mut self, size: u64) -> io::Result<Spare> {
        let fits = self.ready.iter().position(|s| usable(s.size) >= size);
        let spare = match fits.and_then(|at| self.ready.remove(at)) {
            Some(spare) => spare,
            None => self.make(size)?,
        };
        self.size = (spare.size * 2).clamp(self.sizes.first, self.sizes.last);
        Ok(spare)
    }

    /// Makes one for the next time. If that fails, whoever needs it will see why.
    fn prepare(&mut self) {
        if self.ready.is_empty() {
            match self.make(0) {
                Ok(spare) => self.ready.push_back(spare),
                Err(e) => {
                    tracing::warn!(folder = %self.folder.display(), "no WAL file can be made ready: {e}")
                }
            }
        }
    }

    /// A new file of the size that is due; a smaller one, but with room for `least` bytes, if the disk is nearly full.
    fn make(&mut self, least: u64) -> io::Result<Spare> {
        let least = (least + FENCE.len() as u64).next_multiple_of(BLOCK).max(self.sizes.first);
        let mut size = self.size.max(least);
        loop {
            match self.fill(least, size) {
                Err(e) if is_full(&e) && size > least => size = (size / 2).max(least),
                made => return made,
            }
        }
    }

    fn fill(&mut self, least: u64, size: u64) -> io::Result<Spare> {
        self.number += 1;
        let path = self.folder.join(format!("spare-{}", self.number));
        let file = self.disk.create(&path)?;
        let filled = self.zero(&file, least, size);
        if filled.is_err() {
            // Room that is short must not be held.
            drop(self.disk.remove(&path));
        }
        filled.map(|size| Spare { file, path, size })
    }

    /// Fills `size` bytes, or at least `least` once somebody asks; answers how many.
    fn zero(&mut self, file: &File, least: u64, size: u64) -> io::Result<u64> {
        self.disk.reserve(file, size)?;
        let most = self.sizes.chunk;
        let zeros = vec![0; most.min(usize::try_from(size).unwrap_or(most))];
        let mut at = 0;
        while at < size {
            let chunk = &zeros[..usize::try_from(size - at).unwrap_or(most).min(zeros.len())];
            self.disk.write_at(file, chunk, at)?;
            at += chunk.len() as u64;
            fault::point("wal.local.spare.fill");
            self.disk.sync(file)?;
            if at >= least && at < size && self.is_asked() {
                self.disk.cut(file, at)?;
                break;
            }
        }
        self.disk.write_at(file, FENCE, usable(at))?;
        self.disk.sync(file)?;
        Ok(at)
    }

    fn is_asked(&mut self) -> bool {
        if self.asked.is_none() {
            self.asked = self.inbox.try_recv().ok();
        }
        self.asked.is_some()
    }

    /// What it holds is of this session and of lower numbers than anything written later, so that no reader takes it
    /// for a record.
    fn recycle(&mut self, log: &std::path::Path) {
        let keep = self.ready.len() < KEEP;
        let size = std::fs::metadata(log).map_or(0, |m| m.len());
        let kept = if keep && size >= self.size { self.rename_to_spare(log, size) } else { Ok(false) };
        match kept {
            Ok(true) => {}
            Ok(false) => drop(self.disk.remove(log)),
            Err(e) => tracing::warn!(log = %log.display(), "a trimmed WAL file cannot be used again: {e}"),
        }
    }

    fn rename_to_spare(&mut self, log: &std::path::Path, size: u64) -> io::Result<bool> {
        self.number += 1;
        let path = self.folder.join(format!("spare-{}", self.number));
        self.disk.rename(log, &path)?;
        fault::point("wal.local.trim.recycled");
        let file = self.disk.open(&path)?;
        self.ready.push_back(Spare { file, path, size });
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_gets_what_is_filled_so_far_with_its_end_marked() {
        let folder = tempfile::tempdir().unwrap();
        let (asks, inbox) = mpsc::sync_channel(16);
        let sizes = Sizes { first: 4096, last: 1 << 20, chunk: 4096 };
        let mut maker = Maker {
            inbox,
            asked: None,
            folder: folder.path().to_owned(),
            disk: Disk::default(),
            ready: VecDeque::new(),
            size: sizes.last,
            sizes,
            number: 0,
        };
        let length = |spare: &Spare| std::fs::metadata(&spare.path).unwrap().len();
        let marked = |spare: &Spare| {
            let content = std::fs::read(&spare.path).unwrap();
            let (zeros, end) = content.split_at(content.len() - FENCE.len());
            zeros.iter().all(|b| *b == 0) && end == FENCE
        };
        let whole = maker.make(0).unwrap();
        assert_eq!((whole.size, length(&whole)), (1 << 20, 1 << 20));
        assert!(marked(&whole));

        let (reply, _answer) = mpsc::sync_channel(1);
        asks.send(Ask::Take(1, reply)).unwrap();
        let part = maker.make(0).unwrap();
        assert_eq!((part.size, length(&part)), (4096, 4096));
        assert!(marked(&part));
        // Not less than what is needed, however it presses.
        let large = maker.make(10_000).unwrap();
        assert_eq!((large.size, length(&large)), (12_288, 12_288));
        assert!(marked(&large));
        assert!(matches!(maker.asked, Some(Ask::Take(1, _))), "and then it is answered");
    }
}
