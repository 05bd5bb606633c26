//! The applied state: what the log amounts to on this node, and its snapshots.
//!
//! Invariant: the view changes by one whole entry at a time, in log order, under a short lock; `applied` moves after the
//! view holds the entry. An entry that does not decode stops the node; it is never skipped. A snapshot is a clone of
//! persistent maps, written by a blocking task while entries go on being applied. Applied by openraft only; read by
//! everyone through the handle.

use std::sync::Arc;

use openraft::storage::RaftStateMachine;
use openraft::{
    AnyError, BasicNode, EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, StorageIOError,
    StoredMembership,
};
use parking_lot::RwLock;
use tokio::sync::{Notify, watch};

use super::snapshot::{Meta, SnapshotError, SnapshotFile, Snapshots};
use super::{Entry, LogId, Outcomes, StorageError, TypeConfig, bytes};
use crate::format::Writing;
use crate::metadata::state::State;
use crate::metadata::{apply, codec};
use crate::tasks::Tasks;
use crate::witness::{self, Seen};

type Members = StoredMembership<u64, BasicNode>;

/// Entries applied in a row before other tasks get a turn.
const TURN: usize = 64;

/// The state as of the last applied entry.
pub(super) struct View {
    inner: RwLock<Applied>,
    applied: watch::Sender<u64>,
    /// The log has grown enough for a snapshot.
    pub(super) grown: Notify,
    snapshot_log_bytes: u64,
    writing: Writing,
}

#[derive(Clone, Default)]
struct Applied {
    state: State,
    last: Option<LogId>,
    members: Members,
    /// Bytes applied since this process started.
    bytes: u64,
    /// What `bytes` was at the entry with which the newest snapshot ends.
    bytes_in_snapshot: u64,
}

impl View {
    pub(super) fn new(snapshot: Option<(Meta, State)>, snapshot_log_bytes: u64) -> Self {
        let applied = match snapshot {
            None => Applied::default(),
            Some((meta, state)) => {
                Applied { state, last: meta.last_log_id, members: meta.last_membership, ..Applied::default() }
            }
        };
        let index = applied.index();
        let writing = Writing::default();
        writing.set(applied.state.format());
        Self {
            writing,
            inner: RwLock::new(applied),
            applied: watch::Sender::new(index),
            grown: Notify::new(),
            snapshot_log_bytes,
        }
    }

    /// Looks at the state. No entry is applied meanwhile.
    pub(super) fn read<T>(&self, f: impl FnOnce(&State) -> T) -> T {
        f(&self.inner.read().state)
    }

    /// The state and the index of the last entry in it.
    pub(super) fn snapshot(&self) -> (State, u64) {
        let inner = self.inner.read();
        (inner.state.clone(), inner.index())
    }

    /// The index of the last entry that the view holds.
    pub(super) fn applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// The format version that the state names.
    pub(super) fn writing(&self) -> &Writing {
        &self.writing
    }

    /// Bytes of log applied since the newest snapshot.
    pub(super) fn log_bytes(&self) -> u64 {
        self.inner.read().since_snapshot()
    }

    /// A snapshot is due.
    pub(super) fn is_due(&self) -> bool {
        self.log_bytes() >= self.snapshot_log_bytes
    }

    #[allow(clippy::result_large_err, reason = "openraft's own error, and the end of the node")]
    fn apply(&self, entry: Entry) -> Result<Outcomes, StorageError> {
        let id = entry.log_id;
        // Decoded before the lock, so that readers wait for the change alone.
        let (batch, members, bytes) = match entry.payload {
            EntryPayload::Blank => (None, None, 0),
            EntryPayload::Membership(m) => (None, Some(m), 0),
            EntryPayload::Normal(data) => {
                let (batch, only_in) = codec::decode_entry(&data.0).map_err(|e| {
                    StorageIOError::apply(id, AnyError::error(format!("the entry does not decode: {e}")))
                })?;
                // A leader's word that came too late: it says nothing of the term in which it got into the log.
                let counts = only_in.is_none_or(|term| term == id.leader_id.term);
                (Some(batch).filter(|_| counts), None, data.0.len())
            }
        };
        let (outcomes, due) = {
            let mut inner = self.inner.write();
            let outcomes = batch.as_ref().map(|b| apply::apply(&mut inner.state, b)).unwrap_or_default();
            let (index, batch, state) = (id.index, batch.as_ref(), &inner.state);
            witness::tell(Seen::Applied { index, batch, outcomes: &outcomes, state });
            if let Some(members) = members {
                inner.members = Members::new(Some(id), members);
            }
            inner.last = Some(id);
            inner.bytes += bytes as u64;
            self.writing.set(inner.state.format());
            (outcomes, inner.since_snapshot() >= self.snapshot_log_bytes)
        };
        self.applied.send_replace(id.index);
        if due {
            self.grown.notify_one();
        }
        Ok(Outcomes(outcomes))
    }

    fn replace(&self, meta: &Meta, state: State) {
        let index = meta.last_log_id.map_or(0, |id| id.index);
        let replaced = {
            let mut inner = self.inner.write();
            let bytes = inner.bytes;
            self.writing.set(state.format());
            let new = Applied {
                state,
                last: meta.last_log_id,
                members: meta.last_membership.clone(),
                bytes,
                bytes_in_snapshot: bytes,
            };
            witness::tell(Seen::Installed { index, state: &new.state });
            std::mem::replace(&mut *inner, new)
        };
        // Freeing a large state takes time that readers need not wait for.
        drop(replaced);
        self.applied.send_replace(index);
    }

    fn snapshot_taken(&self, bytes: u64) {
        let mut inner = self.inner.write();
        inner.bytes_in_snapshot = inner.bytes_in_snapshot.max(bytes);
    }
}

impl Applied {
    fn index(&self) -> u64 {
        self.last.map_or(0, |id| id.index)
    }

    fn since_snapshot(&self) -> u64 {
        self.bytes - self.bytes_in_snapshot
    }
}

/// What openraft applies to.
pub(super) struct StateMachine {
    view: Arc<View>,
    snapshots: Arc<Snapshots>,
    tasks: Tasks,
}

impl StateMachine {
    pub(super) fn new(view: Arc<View>, snapshots: Arc<Snapshots>, tasks: Tasks) -> Self {
        Self { view, snapshots, tasks }
    }
}

/// Writes one snapshot: the state as it was when this was made.
pub(super) struct SnapshotBuilder {
    applied: Applied,
    view: Arc<View>,
    snapshots: Arc<Snapshots>,
    tasks: Tasks,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<TypeConfig>, StorageError> {
        let Applied { state, last, members, bytes, .. } = self.applied.clone();
        let meta = bytes::snapshot_meta(last, members);
        let snapshots = self.snapshots.clone();
        let (meta, file) = blocking(&self.tasks, move || snapshots.save(&meta, &state))
            .await
            .map_err(|e| StorageIOError::write_snapshot(None, AnyError::error(e)))?;
        self.view.snapshot_taken(bytes);
        Ok(Snapshot { meta, snapshot: Box::new(file) })
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Members), StorageError> {
        let inner = self.view.inner.read();
        Ok((inner.last, inner.members.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Outcomes>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut outcomes = Vec::new();
        for (n, entry) in entries.into_iter().enumerate() {
            outcomes.push(self.view.apply(entry)?);
            if n % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(outcomes)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        let applied = self.view.inner.read().clone();
        let (view, snapshots) = (self.view.clone(), self.snapshots.clone());
        SnapshotBuilder { applied, view, snapshots, tasks: self.tasks.clone() }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotFile>, StorageError> {
        let snapshots = self.snapshots.clone();
        let file = blocking(&self.tasks, move || snapshots.receive())
            .await
            .map_err(|e| StorageIOError::write_snapshot(None, AnyError::error(e)))?;
        Ok(Box::new(file))
    }

    async fn install_snapshot(&mut self, meta: &Meta, file: Box<SnapshotFile>) -> Result<(), StorageError> {
        let snapshots = self.snapshots.clone();
        let wanted = meta.clone();
        let install = move || {
            let (found, state) = snapshots.read(&file)?;
            if found.last_log_id == wanted.last_log_id {
                // Written anew: one way of making a snapshot durable, whatever the file's own folder and state.
                drop(snapshots.save(&wanted, &state)?);
            }
            Ok((found, state))
        };
        let (found, state) = blocking(&self.tasks, install)
            .await
            .map_err(|e| StorageIOError::write_snapshot(Some(meta.signature()), AnyError::error(e)))?;
        if found.last_log_id != meta.last_log_id {
            let why =
                format!("a snapshot up to {:?} came as one up to {:?}", found.last_log_id, meta.last_log_id);
            return Err(StorageIOError::read_snapshot(Some(meta.signature()), AnyError::error(why)).into());
        }
        self.view.replace(meta, state);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<TypeConfig>>, StorageError> {
        let current =
            self.snapshots.current().map_err(|e| StorageIOError::read_snapshot(None, AnyError::new(&e)))?;
        Ok(current.map(|(meta, file)| Snapshot { meta, snapshot: Box::new(file) }))
    }
}

/// Runs file work and flattens its two ways to fail.
async fn blocking<T: Send + 'static>(
    tasks: &Tasks,
    work: impl FnOnce() -> Result<T, SnapshotError> + Send + 'static,
) -> Result<T, String> {
    match tasks.blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(e)) => Err(e.to_string()),
        Err(panicked) => Err(panicked.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use openraft::CommittedLeaderId;
    use weir_api::ClusterUid;

    use super::super::EntryData;
    use super::*;
    use crate::format;
    use crate::metadata::command::{Batch, Command, Envelope};

    /// An entry of `term` with the bytes that were meant for term 2.
    fn entry(term: u64) -> Entry {
        let command = Command::Found { uid: ClusterUid(1), identity: None, size: 1 };
        let batch = Batch { time_ms: 1, commands: vec![Envelope { request: None, command }] };
        let bytes = codec::encode_batch_of_term(&batch, format::FOUNDED, 2);
        let log_id = LogId::new(CommittedLeaderId::new(term, 1), term);
        Entry { log_id, payload: EntryPayload::Normal(EntryData(Arc::from(bytes))) }
    }

    #[test]
    fn what_a_leader_said_in_one_term_is_void_in_another() {
        let view = View::new(None, u64::MAX);
        assert_eq!(view.apply(entry(3)).unwrap(), Outcomes::default());
        assert!(view.read(|state| state.cluster.is_none()));
        assert_eq!(*view.applied().borrow(), 3, "it is an entry all the same");
        let view = View::new(None, u64::MAX);
        assert_eq!(view.apply(entry(2)).unwrap().0.len(), 1);
        assert!(view.read(|state| state.cluster.is_some()));
    }
}
