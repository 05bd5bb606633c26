//! What happens to a world: to its processes, pods, volumes and hosts.

use serde_json::json;

use super::World;

impl World {
    /// A container's process dies and is started again.
    pub(crate) fn kill(&self, ordinal: u32) {
        let mut nodes = self.nodes.lock();
        if let Some(p) = nodes.processes.values_mut().find(|p| p.node == format!("demo-{ordinal}")) {
            p.epoch = None;
        }
    }

    /// Somebody deletes a pod without grace.
    pub(crate) fn lose_pod(&self, ordinal: u32) {
        let name = format!("demo-{ordinal}");
        let Some(pod) = self.pod(ordinal) else { return };
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        let host = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if !self.down.contains_key(host) {
            self.nodes.lock().processes.remove(uid);
        }
        self.api.store.lock().remove("pods", &name);
    }

    /// Pod and volume are gone.
    pub(crate) fn lose_volume(&self, ordinal: u32) {
        let Some(pod) = self.pod(ordinal) else { return };
        let claim = Self::claim_of(&pod);
        self.lose_pod(ordinal);
        self.api.store.lock().remove("persistentvolumeclaims", &claim);
    }

    /// Somebody deletes a claim whose pod goes on.
    pub(crate) fn delete_volume(&self, ordinal: u32) {
        let claim = Self::claim_of(&self.pod(ordinal).unwrap());
        let mut store = self.api.store.lock();
        let time = store.time();
        store.edit("persistentvolumeclaims", &claim, |c| c["metadata"]["deletionTimestamp"] = json!(time));
    }

    /// Its owner gives a volume up.
    pub(crate) fn abandon_volume(&self, ordinal: u32) {
        self.api.store.lock().edit("persistentvolumeclaims", &format!("data-demo-{ordinal}"), |c| {
            c["metadata"]["annotations"]["weir.dev/abandoned"] = json!("by hand");
        });
    }

    pub(crate) fn lose_host(&mut self, host: &str) {
        let now = self.now();
        self.down.entry(host.to_owned()).or_insert(now);
    }

    /// The host is cut off from everything.
    pub(crate) fn cut(&self, host: &str) {
        self.nodes.lock().cut.insert(host.to_owned());
    }

    pub(crate) fn host_returns(&mut self, host: &str) {
        self.down.remove(host);
        self.nodes.lock().cut.remove(host);
    }

    /// The host's object is deleted; nobody cleans up after it, and what runs there runs on.
    pub(crate) fn delete_host(&mut self, host: &str) {
        self.lose_host(host);
        self.hosts.retain(|h| h != host);
        self.api.store.lock().remove("nodes", host);
    }

    /// Somebody declares a host dead, or takes that back.
    pub(crate) fn declare_dead(&self, host: &str, dead: bool) {
        let taint = json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
        self.api.store.lock().edit("nodes", host, |n| {
            n["spec"]["taints"] = if dead { json!([taint]) } else { json!([]) };
        });
    }

    /// The host is removed from the cluster, its pods with it.
    pub(crate) fn remove_host(&mut self, host: &str) {
        let of = |w: &Self, n: u32| w.pod(n).is_some_and(|p| p["spec"]["nodeName"] == host);
        for n in (0..10).filter(|n| of(self, *n)).collect::<Vec<_>>() {
            self.lose_pod(n);
        }
        self.hosts.retain(|h| h != host);
        self.api.store.lock().remove("nodes", host);
    }
}
