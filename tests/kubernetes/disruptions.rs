//! I10 as the API shows it: the operator never disturbs a node while another is disturbed.
//!
//! Every change of a cluster's pods, and of what its status says of drains and of the wanted number, is written down with
//! the API server's revision, which orders changes over all kinds of objects. [`judge`] goes over them in that order.
//! Pure but for [`Log`].

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};
use weir_operator::crd::StreamCluster;
use weir_operator::names;

use crate::watched::Seen;

/// A node that merely is not ready for this long when another is disturbed was so before the operator looked: what it goes by
/// may be a moment old.
const SLACK: Duration = Duration::from_secs(5);

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Pod {
        ordinal: u32,
        uid: String,
        ready: bool,
        terminating: bool,
    },
    PodGone {
        ordinal: u32,
        uid: String,
    },
    /// Which nodes drain, and how many are wanted.
    Status {
        draining: BTreeSet<u32>,
        wanted: u32,
    },
}

/// All changes so far.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    began: Instant,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    changes: Vec<(u64, Duration, Change)>,
    /// UIDs of pods that the test itself deletes.
    ours: HashSet<String>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), inner: Arc::default() }
    }

    /// The test is about to delete this pod.
    pub(crate) fn ours(&self, uid: &str) {
        self.inner.lock().unwrap().ours.insert(uid.to_owned());
    }

    /// Notes a change of a pod, if it is one of this cluster's.
    pub(crate) fn pod_of(&self, cluster: &str, seen: &Seen<'_, Pod>) {
        let (Seen::There(pod) | Seen::Gone(pod)) = seen;
        if pod.labels().get(names::CLUSTER).is_none_or(|c| c != cluster) {
            return;
        }
        let ordinal = pod.labels().get(names::ORDINAL).and_then(|o| o.parse().ok());
        let (Some(ordinal), Some(uid)) = (ordinal, pod.uid()) else { return };
        let change = match seen {
            Seen::Gone(_) => Change::PodGone { ordinal, uid },
            Seen::There(pod) => Change::Pod {
                ordinal,
                uid,
                ready: is_ready(pod),
                terminating: pod.metadata.deletion_timestamp.is_some(),
            },
        };
        self.add(*pod, change);
    }

    /// Notes a change of the StreamCluster of this name.
    pub(crate) fn cluster_named(&self, name: &str, seen: &Seen<'_, StreamCluster>) {
        let Seen::There(cluster) = seen else { return };
        if cluster.name_any() != name {
            return;
        }
        let nodes = cluster.status.iter().flat_map(|s| &s.nodes);
        let draining = nodes.filter(|n| n.draining).map(|n| n.ordinal).collect();
        self.add(*cluster, Change::Status { draining, wanted: cluster.spec.replicas });
    }

    fn add(&self, object: &impl Resource, change: Change) {
        let revision = object.meta().resource_version.as_ref().and_then(|r| r.parse().ok()).unwrap_or(0);
        self.inner.lock().unwrap().changes.push((revision, self.began.elapsed(), change));
    }

    /// What the operator must not have done.
    pub(crate) fn verdict(&self) -> Vec<String> {
        let inner = self.inner.lock().unwrap();
        let mut changes = inner.changes.clone();
        changes.sort_by_key(|(revision, ..)| *revision);
        judge(changes.into_iter().map(|(_, at, change)| (at, change)), &inner.ours)
    }
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}

#[derive(Debug, Default)]
struct Node {
    uid: Option<String>,
    ready: bool,
    terminating: bool,
    draining: bool,
    /// It has served: what was never there is not taken away.
    served: bool,
    /// Since when it is disturbed.
    since: Option<Duration>,
    /// The operator has disturbed it, and it is not back.
    by_operator: bool,
}

impl Node {
    fn is_disturbed(&self, wanted: bool) -> bool {
        let away = self.uid.is_none() || !self.ready;
        self.terminating || self.draining || (wanted && self.served && away)
    }
}

/// What the operator did to one node while another was disturbed.
pub(crate) fn judge(
    changes: impl Iterator<Item = (Duration, Change)>,
    ours: &HashSet<String>,
) -> Vec<String> {
    let mut nodes: BTreeMap<u32, Node> = BTreeMap::new();
    let mut wanted = u32::MAX;
    let mut found = Vec::new();
    for (at, change) in changes {
        let mut begun = Vec::new();
        match change {
            Change::Pod { ordinal, uid, ready, terminating } => {
                let node = nodes.entry(ordinal).or_default();
                let same = node.uid.as_ref() == Some(&uid);
                if same && terminating && !node.terminating && node.ready && !ours.contains(&uid) {
                    begun.push((ordinal, "its pod is deleted"));
                }
                node.served |= ready;
                (node.uid, node.ready, node.terminating) = (Some(uid), ready, terminating);
            }
            Change::PodGone { ordinal, uid } => {
                let node = nodes.entry(ordinal).or_default();
                if node.uid.as_ref() == Some(&uid) {
                    // Deleted in one step, by force.
                    if node.ready && !node.terminating && !ours.contains(&uid) {
                        begun.push((ordinal, "its pod is deleted by force"));
                    }
                    (node.uid, node.ready, node.terminating) = (None, false, false);
                }
            }
            Change::Status { draining, wanted: now } => {
                wanted = now;
                for ordinal in &draining {
                    let node = nodes.entry(*ordinal).or_default();
                    if !node.draining && !node.terminating {
                        begun.push((*ordinal, "it drains"));
                    }
                }
                nodes.iter_mut().for_each(|(ordinal, node)| node.draining = draining.contains(ordinal));
            }
        }
        for (ordinal, what) in begun {
            let others = nodes.iter().filter(|(other, _)| **other != ordinal);
            for (other, node) in others {
                let Some(since) = node.since else { continue };
                if node.by_operator || at.saturating_sub(since) > SLACK {
                    let by = if node.by_operator { ", by the operator" } else { "" };
                    found.push(format!(
                        "at {at:.1?} node {ordinal}: {what}; node {other} was disturbed since {since:.1?}{by}: {node:?}"
                    ));
                }
            }
            nodes.entry(ordinal).or_default().by_operator = true;
        }
        for (ordinal, node) in &mut nodes {
            match node.is_disturbed(*ordinal < wanted) {
                true => drop(node.since.get_or_insert(at)),
                false => (node.since, node.by_operator) = (None, false),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(ordinal: u32, ready: bool, terminating: bool) -> Change {
        Change::Pod { ordinal, uid: format!("uid-{ordinal}"), ready, terminating }
    }

    fn status(draining: &[u32]) -> Change {
        Change::Status { draining: draining.iter().copied().collect(), wanted: 3 }
    }

    fn judged(changes: &[(u64, Change)], ours: &[&str]) -> usize {
        let three_ready = (0..3).map(|n| (Duration::ZERO, pod(n, true, false)));
        let then = changes.iter().map(|(at, c)| (Duration::from_secs(*at), c.clone()));
        judge(three_ready.chain(then), &ours.iter().map(ToString::to_string).collect()).len()
    }

    #[test]
    fn one_after_the_other_is_as_it_should_be() {
        let gone = Change::PodGone { ordinal: 2, uid: "uid-2".to_owned() };
        let changes = [
            (1, status(&[2])),
            (2, pod(2, true, true)),
            (3, gone),
            (4, pod(2, false, false)),
            (9, pod(2, true, false)),
            (9, status(&[])),
            (10, status(&[1])),
            (11, pod(1, true, true)),
        ];
        assert_eq!(judged(&changes, &[]), 0);
    }

    #[test]
    fn two_drains_or_two_deleted_pods_at_once_are_found() {
        assert_eq!(judged(&[(1, status(&[2])), (2, status(&[1, 2]))], &[]), 1);
        assert_eq!(judged(&[(1, pod(2, true, true)), (1, pod(0, true, true))], &[]), 1);
        assert_eq!(judged(&[(1, pod(2, true, true)), (1, status(&[1]))], &[]), 1);
        let forced = Change::PodGone { ordinal: 0, uid: "uid-0".to_owned() };
        assert_eq!(judged(&[(1, pod(2, true, true)), (1, forced)], &[]), 1);
    }

    #[test]
    fn a_drain_beside_a_node_that_has_long_been_unready_is_found() {
        assert_eq!(judged(&[(1, pod(2, false, false)), (9, status(&[1]))], &[]), 1);
        // The operator may not have seen it yet.
        assert_eq!(judged(&[(1, pod(2, false, false)), (2, status(&[1]))], &[]), 0);
    }

    #[test]
    fn what_the_test_itself_deletes_is_no_deed_of_the_operator() {
        let both = [(1, pod(2, true, true)), (1, pod(1, true, true))];
        assert_eq!(judged(&both, &["uid-1", "uid-2"]), 0);
        assert_eq!(judged(&[(1, pod(2, true, true)), (7, status(&[1]))], &["uid-2"]), 1);
    }

    #[test]
    fn a_pod_that_does_not_serve_may_be_given_up_beside_another() {
        let changes = [(1, pod(2, false, false)), (1, pod(1, false, false)), (9, pod(2, false, true))];
        assert_eq!(judged(&changes, &[]), 0);
    }
}
