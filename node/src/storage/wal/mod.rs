//! A session's write-ahead log: numbered objects, put once, ended by a seal.
//!
//! Invariant: an object that a writer reports as stored is among those that every later [`WalStore::seal`] of the
//! session returns, and after a seal has returned nothing more is reported as stored. That makes takeover safe (I1,
//! I2); time does not enter. Two kinds: [`ObjectWal`] in a bucket, [`LocalWal`] in a local folder; [`Wal`] batches
//! appends over either. Called by `streams` (appends), `recovery` (seal) and whoever commits segments (trim).

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use weir_api::{ClusterUid, SessionId};

use super::record::Frame;
use super::record::codec;
use super::seal::SealNote;
use super::store::Store;
use crate::tasks::Tasks;

mod direct;
mod local;
mod object;
mod pipeline;
mod queue;
mod status;

pub use local::LocalWal;
pub use object::ObjectWal;
pub use pipeline::{DurableBatch, Fenced, Kick, Ticket, Wal, WalBusy, WalSink};
pub use status::{WalLimits, WalStatus};

/// The first number a session writes. Numbers below count as covered, so a recorded start of 0 means the same.
pub const FIRST_SEQ: u64 = 1;

/// An object read back at a seal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalObject {
    /// Its number.
    pub seq: u64,
    /// What it takes in the WAL.
    pub bytes: u64,
    /// What it holds.
    pub frames: Vec<Frame>,
}

/// Why a WAL could not be created, sealed or trimmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WalError {
    /// Try again later; nothing is lost and nothing half done (sealing and trimming are idempotent).
    #[error("the WAL is out of reach: {0}")]
    Unavailable(String),
    /// An object that should hold records does not verify. Recovery of the session stops here until a person decides.
    #[error("{object}, position {position}: {why}")]
    Corrupt {
        /// The object or file.
        object: String,
        /// Where in it.
        position: u64,
        /// Which number is damaged or missing, if recovery could go on without it.
        seq: Option<u64>,
        /// What is wrong.
        why: String,
    },
    /// The session has a WAL already: two processes with one session id. Do not serve.
    #[error("session {0} has a WAL already")]
    SessionExists(SessionId),
    /// Whoever wanted the records has gone.
    #[error("the receiver of the records has gone")]
    Abandoned,
}

/// Why a put was not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// The session was fenced: nothing unconfirmed ever will be confirmed.
    #[error("the session's WAL is sealed")]
    Sealed,
    /// It may be stored or not, or yet be: put the same bytes again.
    #[error("{0}")]
    Unknown(String),
    /// Surely not stored, for lack of room: put the same bytes again later, and take no new appends meanwhile.
    #[error("{0}")]
    NoRoom(String),
    /// This session's WAL cannot go on; whether the object is stored is unknown. The process must end.
    #[error("{0}")]
    Failed(String),
}

/// Where sessions keep their WALs.
pub trait WalStore: Send + Sync {
    /// The WAL of a new session.
    fn create<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Arc<dyn WalWriter>, WalError>>;

    /// Ends the WAL of `ended`: sends its objects from `from` on, in order, then makes sure that no more can follow, and
    /// returns the number after the last. Idempotent and safe to race: everyone gets the same objects and end. The
    /// caller may use what it is sent at once, but must not call the session recovered before this returns. Objects
    /// whose numbers are in `skip` count as empty where they do not verify or are missing.
    fn seal<'a>(
        &'a self,
        ended: &'a SessionId,
        from: u64,
        by: &'a SealNote,
        skip: &'a BTreeSet<u64>,
        each: mpsc::Sender<WalObject>,
    ) -> BoxFuture<'a, Result<u64, WalError>>;

    /// Deletes what lies below `below`: at most the recorded start, or the end that [`WalStore::seal`] returned once
    /// the session is recovered, or `u64::MAX` for a session that is over and needs no recovery. Never deletes a seal.
    fn trim<'a>(&'a self, session: &'a SessionId, below: u64) -> BoxFuture<'a, Result<(), WalError>>;
}

/// A session's log that blocks its caller. Dropped, it is closed.
pub trait BlockingLog: Send {
    /// As [`WalWriter::put`].
    fn put(&mut self, seq: u64, object: &[u8]) -> Result<(), PutError>;

    /// Whether an object of at most so many bytes takes nothing but a write and a sync.
    fn has_room(&self, bytes: u64) -> bool;
}

/// One session's end of its WAL. At most [`WalWriter::max_in_flight`] puts at a time, numbers in order.
pub trait WalWriter: Send + Sync {
    /// Stores an object made by [`codec::encode`] under `seq`. Ok is a promise for ever. Safe to cancel: the outcome
    /// is unknown then.
    fn put(&self, seq: u64, object: Bytes) -> BoxFuture<'_, Result<(), PutError>>;

    /// The log itself, for a pipeline that saves itself the changes of thread; then [`Self::put`] is over. `None`: it takes
    /// puts only.
    fn hand_over(&self) -> Option<Box<dyn BlockingLog>> {
        None
    }

    /// How many puts may be under way at once.
    fn max_in_flight(&self) -> usize;

    /// Whether recovery pays per object, so that their number has to be bounded, or only per byte.
    fn pays_per_object(&self) -> bool;
}

/// The WAL that suits `store`: a local folder gets the kind made for it.
pub fn open(store: &Store, generation: u64, cluster: ClusterUid, tasks: &Tasks) -> Arc<dyn WalStore> {
    match store.local_dir() {
        Some(folder) => Arc::new(LocalWal::new(folder, generation, cluster, tasks.clone())),
        None => Arc::new(ObjectWal::new(store.clone(), generation, cluster)),
    }
}

/// Checks that a header is of this cluster, session and place.
fn check_header(
    header: &codec::Header,
    cluster: ClusterUid,
    session: &SessionId,
    seq: u64,
) -> Result<(), String> {
    if header.cluster != cluster {
        return Err(format!("it belongs to cluster {}, not {cluster}", header.cluster));
    }
    if header.session != *session || header.seq != seq {
        let (s, n) = (&header.session, header.seq);
        return Err(format!("it holds number {n} of session {s} where number {seq} of {session} belongs"));
    }
    Ok(())
}

fn corrupt(object: impl Into<String>, position: u64, why: impl ToString) -> WalError {
    WalError::Corrupt { object: object.into(), position, seq: None, why: why.to_string() }
}

/// The same, of one object that can be skipped.
fn corrupt_at(seq: u64, object: impl Into<String>, position: u64, why: impl ToString) -> WalError {
    WalError::Corrupt { object: object.into(), position, seq: Some(seq), why: why.to_string() }
}

#[cfg(test)]
mod tests;
