//! A simulated machine: where the doors of a node lead while it is simulated.
//!
//! Invariant: without the cargo feature `simulation` (never in a release) this is not there. With it, a node whose
//! future runs [`On`] a machine finds that machine behind `clock`, `net`, `tasks` and `files`, as does all that it
//! spawns; other nodes of the process, and everything else in it, find the system. A machine that stands still polls
//! nothing, while its clocks go on: what SIGSTOP does to a process. Implemented by the crate `weir-sim`.

pub mod sockets;

use std::cell::RefCell;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use weir_api::Nonce;

/// What a node asks of the machine it runs on.
pub trait Machine: Send + Sync {
    /// Which of the run's machines it is.
    fn number(&self) -> u16;
    /// Wall time, milliseconds since 1970.
    fn wall_ms(&self) -> u64;
    /// Time since boot, suspension included.
    fn since_boot(&self) -> Duration;
    /// Differs from boot to boot.
    fn boot_id(&self) -> Nonce;
    /// Fills `bytes` by chance.
    fn random(&self, bytes: &mut [u8]);
    /// Nothing of the node runs now. `waker` is woken when that is over.
    fn stands_still(&self, waker: &Waker) -> bool;
    /// A listening socket.
    fn bind(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Listener>>>;
    /// A connection to `host:port`.
    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Box<dyn Socket>>>;
    /// How long the disk takes for the next write that is to last.
    fn sync_time(&self) -> Duration;
    /// Its files.
    fn disk(&self) -> &dyn Disk;
}

/// A simulated listening socket.
pub trait Listener: Send + Sync + Debug {
    /// The next connection and where it comes from.
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Socket>, SocketAddr)>>;
    /// Where it listens.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A simulated connection.
pub trait Socket: AsyncRead + AsyncWrite + Send + Sync + Unpin + Debug {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin + Debug> Socket for T {}

/// A simulated disk, as far as nodes use one. What is not synced, names in a folder included, may be lost.
pub trait Disk: Send + Sync {
    /// Makes a folder and those above it.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// What was done to the names in a folder lasts.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// The paths in a folder, in order.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;
    /// Something is there.
    fn exists(&self, path: &Path) -> bool;
    /// Opens a file.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn Inode>>;
    /// Moves a file or folder onto another name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Takes the lock of a folder that one process at a time may have. `None`: it is taken.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>>;
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// It must be there.
    Existing,
    /// Made if missing.
    OrNew,
    /// Made if missing, emptied if not.
    Empty,
}

/// An open file of a simulated disk.
pub trait Inode: Send + Sync + Debug {
    /// Its length.
    fn len(&self) -> io::Result<u64>;
    /// It holds nothing.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Reads at most so much from a place, and less only at the end.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes all of it at a place.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts or lengthens it, with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// What was written lasts.
    fn sync(&self) -> io::Result<()>;
}

thread_local! {
    static MACHINE: RefCell<Option<Arc<dyn Machine>>> = const { RefCell::new(None) };
}

/// The machine on which the code that calls this runs, if it is a simulated one.
pub fn machine() -> Option<Arc<dyn Machine>> {
    MACHINE.with_borrow(Clone::clone)
}

/// Puts a machine back when dropped, however the code between ends.
struct Restore(Option<Arc<dyn Machine>>);

impl Restore {
    fn enter(machine: &Arc<dyn Machine>) -> Self {
        Self(MACHINE.replace(Some(machine.clone())))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        MACHINE.set(self.0.take());
    }
}

/// A future that runs on a machine.
pub struct On<F> {
    machine: Option<Arc<dyn Machine>>,
    /// Taken when this is dropped.
    future: Option<Pin<Box<F>>>,
}

impl<F> Debug for On<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("On").finish_non_exhaustive()
    }
}

impl<F: Future> On<F> {
    /// Runs `future`, and all that it spawns, on `machine`.
    pub fn new(machine: Arc<dyn Machine>, future: F) -> Self {
        Self { machine: Some(machine), future: Some(Box::pin(future)) }
    }

    /// Runs `future` on the machine on which this is called, if that is a simulated one.
    pub fn here(future: F) -> Self {
        Self { machine: machine(), future: Some(Box::pin(future)) }
    }
}

impl<F: Future> Future for On<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { machine, future } = &mut *self;
        let future = future.as_mut().expect("only a drop takes it");
        match machine {
            None => future.as_mut().poll(cx),
            Some(machine) if machine.stands_still(cx.waker()) => Poll::Pending,
            Some(machine) => {
                let _restore = Restore::enter(machine);
                future.as_mut().poll(cx)
            }
        }
    }
}

impl<F> Drop for On<F> {
    fn drop(&mut self) {
        let _restore = self.machine.as_ref().map(Restore::enter);
        self.future.take();
    }
}
