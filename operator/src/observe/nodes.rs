//! Asks the nodes.
//!
//! Invariant: all at once; once one has shown the record, the others get half a second more. The record is taken from the
//! node that has applied most of it, the membership from the leader alone.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use kube::ResourceExt;
use weir_api::NodeId;
use weir_api::admin::{ClusterStatus, ReadyStatus};

use crate::admin::{Admin, AdminError, Target};
use crate::crd::StreamCluster;
use crate::names;
use crate::observed::{LogView, PodView, Probe};

/// What the others get once one node has answered.
const PATIENCE: Duration = Duration::from_millis(500);

/// What the nodes said.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) log: Option<LogView>,
    pub(super) probes: BTreeMap<String, Probe>,
    pub(super) targets: Vec<Target>,
}

struct Answer {
    target: Target,
    ready: Result<ReadyStatus, AdminError>,
    cluster: Result<ClusterStatus, AdminError>,
}

pub(super) async fn ask(
    admin: &Admin,
    cluster: &StreamCluster,
    pods: &[PodView],
    token: Option<&str>,
) -> Asked {
    let Some(token) = token else { return Asked::default() };
    let targets = pods.iter().filter(|p| p.running).filter_map(|p| {
        let node = names::node_id(&cluster.name_any(), p.ordinal)?;
        Some(Target::new(node, p.ip.as_deref()?, token))
    });
    let asked: Vec<Target> = targets.collect();
    let answers = answers(admin, &asked).await;
    let mut this = Asked::default();
    for target in &asked {
        let silent = Probe { error: Some("no answer in time".to_owned()), ..Probe::default() };
        this.probes.insert(target.node.to_string(), silent);
    }
    let mut shown: Vec<(ClusterStatus, Target)> = Vec::new();
    for Answer { target, ready, cluster: shows } in answers {
        let error = ready.as_ref().err().map(ToString::to_string);
        let mut probe = Probe { ready: ready.ok(), version: None, error };
        match shows {
            Ok(status) if is_of(cluster, &status) => {
                probe.version = Some(status.answered_by.version.clone());
                shown.push((status, target.clone()));
            }
            Ok(status) => {
                probe.error =
                    Some(format!("it is of the cluster of {:?}", status.identity.unwrap_or_default()));
            }
            Err(e) => probe.error = probe.error.or(Some(e.to_string())),
        }
        this.probes.insert(target.node.to_string(), probe);
    }
    shown.sort_by_key(|(status, _)| std::cmp::Reverse(status.log.applied_index));
    let leader = shown.first().and_then(|(status, _)| status.log.leader_node.clone());
    let (log, refused) = record(admin, &shown, leader.as_ref()).await;
    this.log = log;
    for (node, why) in refused {
        if let Some(probe) = this.probes.get_mut(node.as_str()) {
            probe.error.get_or_insert(why);
        }
    }
    this.targets = shown.into_iter().map(|(_, target)| target).collect();
    this.targets.sort_by_key(|t| Some(&t.node) != leader.as_ref());
    this
}

/// Whether a node belongs to this StreamCluster: founded for it, for nobody by name, or for one that is no more and whose
/// bucket and volumes it takes over.
fn is_of(cluster: &StreamCluster, status: &ClusterStatus) -> bool {
    let adopted = cluster.spec.object_store.adopt_cluster_uid.as_ref();
    status.identity.is_none()
        || status.identity == cluster.uid()
        || adopted.is_some_and(|uid| *uid == status.uid.to_string())
}

async fn answers(admin: &Admin, asked: &[Target]) -> Vec<Answer> {
    let ask = |target: &Target| {
        let (admin, target) = (admin.clone(), target.clone());
        async move {
            let (ready, cluster) = tokio::join!(admin.ready(&target), admin.cluster(&target));
            Answer { target, ready, cluster }
        }
    };
    let mut waiting: FuturesUnordered<_> = asked.iter().map(ask).collect();
    let mut all = Vec::new();
    while let Some(answer) = waiting.next().await {
        let shown = answer.cluster.is_ok();
        all.push(answer);
        if shown {
            break;
        }
    }
    let rest = async {
        while let Some(answer) = waiting.next().await {
            all.push(answer);
        }
    };
    // Who is late is told as such.
    drop(tokio::time::timeout(PATIENCE, rest).await);
    all
}

/// The record, from the first node that shows all of it; and who did not, and why.
async fn record(
    admin: &Admin,
    shown: &[(ClusterStatus, Target)],
    leader: Option<&NodeId>,
) -> (Option<LogView>, Vec<(NodeId, String)>) {
    let at_leader = shown.iter().find(|(_, t)| Some(&t.node) == leader).map(|(_, t)| t);
    let mut refused = Vec::new();
    for (status, target) in shown {
        let members = async {
            match at_leader {
                Some(leader) => admin.members(leader).await.map(Some),
                None => Ok(None),
            }
        };
        let (nodes, members) = tokio::join!(admin.nodes(target), members);
        let nodes = match nodes {
            Ok(nodes) => nodes.nodes,
            Err(e) => {
                refused.push((target.node.clone(), format!("it does not show the cluster's record: {e}")));
                continue;
            }
        };
        let (members, members_error) = match members {
            // Who has just ceased to lead cannot say.
            Ok(members) => (members.filter(|m| m.quorum_healthy.is_some()), None),
            Err(e) => (None, Some(e.to_string())),
        };
        let draining = nodes.iter().filter(|n| n.draining || !n.alive);
        let drains = join_all(draining.map(|n| admin.drain_status(target, &n.id))).await;
        let log = LogView {
            uid: status.uid.to_string(),
            applied_index: status.log.applied_index,
            leader: leader.cloned(),
            members,
            members_error,
            drains: drains.into_iter().flatten().map(|d| (d.node.clone(), d)).collect(),
            streams: status.streams,
            awaiting_recovery: status.awaiting_recovery,
            nodes,
        };
        return (Some(log), refused);
    }
    (None, refused)
}
