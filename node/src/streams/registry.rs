//! Which streams are open here, who follows which stream, and who changes whose ownership.
//!
//! Invariant: a stream is in here from the moment this node has loaded it after `Open` until its release or delete is
//! decided; memory follows streams that are open or followed, never streams that exist. Changes of one stream's
//! ownership are serialised by its own gate, so one stuck stream blocks no other. Used by the files of this folder.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use weir_api::StreamId;

use super::open::OpenStream;
use super::signal::Signal;

/// See the file.
#[derive(Debug, Default)]
pub(super) struct Registry {
    by_name: RwLock<HashMap<Arc<str>, Arc<OpenStream>>>,
    by_id: RwLock<BTreeMap<StreamId, Arc<OpenStream>>>,
    signals: Weaks<Signal>,
    gates: Weaks<tokio::sync::Mutex<()>>,
}

impl Registry {
    pub(super) fn by_name(&self, name: &str) -> Option<Arc<OpenStream>> {
        self.by_name.read().get(name).cloned()
    }

    pub(super) fn by_id(&self, id: StreamId) -> Option<Arc<OpenStream>> {
        self.by_id.read().get(&id).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.read().len()
    }

    /// All, by id. For drains and sweeps.
    pub(super) fn all(&self) -> Vec<Arc<OpenStream>> {
        self.by_id.read().values().cloned().collect()
    }

    pub(super) fn insert(&self, stream: Arc<OpenStream>) {
        self.by_id.write().insert(stream.id, stream.clone());
        self.by_name.write().insert(stream.name.clone(), stream);
    }

    /// Takes the stream out. A newer stream of the same name stays.
    pub(super) fn remove(&self, stream: &OpenStream) {
        let mut by_name = self.by_name.write();
        if by_name.get(&stream.name).is_some_and(|s| s.id == stream.id) {
            by_name.remove(&stream.name);
        }
        drop(by_name);
        self.by_id.write().remove(&stream.id);
    }

    /// The signal that followers of a stream share, whether it is open or not.
    pub(super) fn signal(&self, id: StreamId) -> Arc<Signal> {
        self.signals.get(id)
    }

    /// Wakes every follower of every stream.
    pub(super) fn wake_all(&self) {
        self.signals.all().iter().for_each(|signal| signal.wake());
    }

    /// Held while a stream is opened, released or deleted.
    pub(super) fn gate(&self, id: StreamId) -> Arc<tokio::sync::Mutex<()>> {
        self.gates.get(id)
    }
}

/// Values that live as long as somebody holds them.
#[derive(Debug)]
pub(crate) struct Weaks<T>(Mutex<WeaksInner<T>>);

#[derive(Debug)]
struct WeaksInner<T> {
    map: HashMap<StreamId, Weak<T>>,
    /// Dead entries are cleared when the map has grown to this.
    prune_at: usize,
}

impl<T> Default for Weaks<T> {
    fn default() -> Self {
        Self(Mutex::new(WeaksInner { map: HashMap::new(), prune_at: 64 }))
    }
}

impl<T: Default> Weaks<T> {
    fn all(&self) -> Vec<Arc<T>> {
        self.0.lock().map.values().filter_map(Weak::upgrade).collect()
    }

    /// The stream's value: the one that others hold, or a new one.
    pub(crate) fn get(&self, id: StreamId) -> Arc<T> {
        let mut inner = self.0.lock();
        if let Some(value) = inner.map.get(&id).and_then(Weak::upgrade) {
            return value;
        }
        if inner.map.len() >= inner.prune_at {
            inner.map.retain(|_, weak| weak.strong_count() > 0);
            inner.prune_at = (inner.map.len() * 2).max(64);
            let keep = inner.prune_at;
            inner.map.shrink_to(keep);
        }
        let value = Arc::new(T::default());
        inner.map.insert(id, Arc::downgrade(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_shared_while_held_and_forgotten_after() {
        let weaks: Weaks<Signal> = Weaks::default();
        let first = weaks.get(StreamId(1));
        assert!(Arc::ptr_eq(&first, &weaks.get(StreamId(1))));
        drop(first);
        for id in 0..10_000 {
            drop(weaks.get(StreamId(id)));
        }
        assert!(weaks.0.lock().map.len() <= 128);
    }
}
