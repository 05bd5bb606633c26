//! Objects of one kind as they are at the API server, kept up to date by a watch, and waiting for what they come to say.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long anything is waited for: only there to end a test that hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// By name.
pub(crate) type Objects<K> = BTreeMap<String, Arc<K>>;

pub(crate) struct Watched<K> {
    state: watch::Receiver<Objects<K>>,
    /// Ends with this.
    _task: JoinSet<()>,
}

/// What a watch saw: an object that is there, or one that was deleted, as it was last.
pub(crate) enum Seen<'a, K> {
    There(&'a K),
    Gone(&'a K),
}

impl<K> Watched<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default,
{
    /// Begins to watch; `look` sees every change.
    pub(crate) fn start(api: Api<K>, look: impl FnMut(Seen<'_, K>) + Send + 'static) -> Self {
        let (tell, state) = watch::channel(Objects::new());
        let mut task = JoinSet::new();
        task.spawn(follow(api, tell, look));
        Self { state, _task: task }
    }

    /// As they are now.
    pub(crate) fn now(&self) -> Objects<K> {
        self.state.borrow().clone()
    }

    /// Waits until `look` gives something.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        mut look: impl FnMut(&Objects<K>) -> Option<T>,
    ) -> Result<T> {
        let mut state = self.state.clone();
        let end = tokio::time::Instant::now() + LIMIT;
        loop {
            if let Some(found) = look(&state.borrow_and_update()) {
                return Ok(found);
            }
            match tokio::time::timeout_at(end, state.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_closed)) => bail!("the watch ended while waiting for {what}"),
                Err(_late) => bail!("waited {LIMIT:?} for {what}"),
            }
        }
    }
}

async fn follow<K>(api: Api<K>, tell: watch::Sender<Objects<K>>, mut look: impl FnMut(Seen<'_, K>))
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let mut listed = Objects::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                look(Seen::There(&object));
                listed.insert(object.name_any(), Arc::new(object));
            }
            Ok(Event::InitDone) => {
                let new = std::mem::take(&mut listed);
                let old = tell.send_replace(new.clone());
                old.iter()
                    .filter(|(name, _)| !new.contains_key(*name))
                    .for_each(|(_, o)| look(Seen::Gone(o)));
            }
            Ok(Event::Apply(object)) => {
                look(Seen::There(&object));
                tell.send_modify(|all| drop(all.insert(object.name_any(), Arc::new(object))));
            }
            Ok(Event::Delete(object)) => {
                look(Seen::Gone(&object));
                tell.send_modify(|all| drop(all.remove(&object.name_any())));
            }
            Err(error) => println!("a watch: {error}"),
        }
    }
}
