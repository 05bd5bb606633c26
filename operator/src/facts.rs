//! What the observation means, node by node.
//!
//! Invariant: pure; nothing is decided here. A fact that cannot be known (no node shows the record, the leader does not
//! answer) is `None`, never an old value. Used by `plan` and `status`.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use weir_api::NodeId;
use weir_api::admin::{DrainStatus, MemberStatus, NodeStatus};

use crate::crd::{StreamCluster, StreamClusterStatus};
use crate::names;
use crate::observed::{LogView, Observed, PodView, VolumeView};
use crate::resources::{Unbuildable, pod};

/// A host that was not ready for this long is given up.
pub const HOST_TIMEOUT_MS: i64 = 60_000;
/// A pod that is younger than this is waited for before another is touched.
pub const TRANSIT_MS: i64 = 300_000;
/// One look at which nobody leads is no lost majority.
const MISSED_MS: i64 = 10_000;
/// A voter that was heard of within this time counts as alive.
const HEARD_MS: u64 = 3_000;

/// Why a container does not run, as the kubelet says it, where waiting does not help by itself.
pub(crate) const BROKEN: &[&str] = &[
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// How a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It has no pod.
    Absent,
    /// Its pod is being deleted.
    Stopping,
    /// Its pod has no host.
    Pending(String),
    /// Its pod is not up yet.
    Starting(String),
    /// Its process runs and is not ready.
    Unready(String),
    /// Its container does not run, and waiting does not help.
    Broken(String),
    /// Its host is lost.
    Stranded(String),
    /// It serves.
    Ready,
}

/// One node: wanted, there, or both.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    /// Its number.
    pub ordinal: u32,
    /// Its name.
    pub id: NodeId,
    /// The spec wants it.
    pub wanted: bool,
    /// Its pod.
    pub pod: Option<&'a PodView>,
    /// The cluster's record of it.
    pub log: Option<&'a NodeStatus>,
    /// Its present data directory's part in the metadata log.
    pub member: Option<&'a MemberStatus>,
    /// Its drain, if one is under way.
    pub drain: Option<&'a DrainStatus>,
    /// Since when it drains. Its record begins anew when it gives up and is asked again; the status knows of the first time.
    pub draining_since_ms: Option<i64>,
    /// The volume that its pod has, or would get.
    pub volume: Option<&'a VolumeView>,
    /// How it is.
    pub health: Health,
    /// Its pod was made from another template.
    pub outdated: bool,
    /// Its weight by the spec.
    pub slots: u32,
    /// The spec wants it drained.
    pub drain_wanted: bool,
    /// Its host takes no new pods.
    pub cordoned: bool,
    /// Kubernetes hears nothing of its host, or the node says itself that it is ready: that its pod is not is no fault of
    /// the pod's.
    pub blameless: bool,
}

impl Node<'_> {
    /// Its present pod is the one in the record, with a live session.
    pub fn is_serving(&self) -> bool {
        self.is_registered() && self.log.is_some_and(|l| l.alive)
    }

    /// Its present pod is the one in the record.
    pub fn is_registered(&self) -> bool {
        matches!((self.pod, self.log), (Some(pod), Some(log)) if log.incarnation.as_str() == pod.uid)
    }

    /// It was, or is, part of the metadata log: an empty volume makes it another member.
    pub fn was_member(&self, status: Option<&StreamClusterStatus>) -> bool {
        let told = |s: &StreamClusterStatus| {
            s.nodes.iter().any(|n| n.ordinal == self.ordinal && n.raft_id.is_some())
        };
        self.log.is_some() || status.is_some_and(told)
    }

    /// Its pod's claim names a volume that is not there.
    pub fn lacks_claim(&self) -> bool {
        self.pod.is_some() && self.volume.is_none()
    }

    /// Its volume must not be used again, or will not be there for its next pod: a claim that is deleted goes with the pod.
    pub fn has_spoiled_volume(&self) -> bool {
        self.pod.is_some() && self.volume.is_some_and(|v| v.abandoned || v.lost || v.deleting)
    }

    /// Its volume is bound to a host that is not there any more: no host will ever do, by the scheduler's own words.
    pub fn has_unreachable_volume(&self, now_ms: i64) -> bool {
        let Some(pod) = self.pod.filter(|p| p.host.is_none() && p.deleting_since_ms.is_none()) else {
            return false;
        };
        let waited = now_ms - pod.created_ms >= TRANSIT_MS;
        waited && pod.unscheduled.as_deref().is_some_and(fits_nowhere)
    }

    /// It drains, and that is not over, or not asked for by the spec. One that is drained for good and was restarted is
    /// back when it serves, or has had its time.
    pub fn is_disturbed_by_drain(&self, now_ms: i64) -> bool {
        let asked = self.drain_wanted || self.cordoned;
        let had_its_time = |p: &PodView| p.deleting_since_ms.is_none() && now_ms - p.created_ms >= TRANSIT_MS;
        let back = self.health == Health::Ready || self.pod.is_some_and(had_its_time);
        let drained = self.drain.is_some_and(|d| d.remaining_streams == 0);
        self.log.is_some_and(|l| l.draining) && !(asked && drained && back)
    }

    /// It was disturbed lately and may still come up by itself.
    pub fn is_in_transit(&self, now_ms: i64) -> bool {
        let young = || self.pod.is_some_and(|p| now_ms - p.created_ms < TRANSIT_MS);
        match &self.health {
            Health::Stopping => true,
            Health::Starting(_) | Health::Unready(_) => young(),
            Health::Absent | Health::Pending(_) | Health::Broken(_) | Health::Stranded(_) | Health::Ready => {
                false
            }
        }
    }

    /// Why it is not ready, for people.
    pub fn trouble(&self) -> String {
        match &self.health {
            Health::Ready => String::new(),
            Health::Absent => "has no pod".to_owned(),
            Health::Stopping => "its pod is stopping".to_owned(),
            Health::Pending(why) | Health::Starting(why) | Health::Unready(why) => why.clone(),
            Health::Broken(why) | Health::Stranded(why) => why.clone(),
        }
    }
}

/// Everything that the plan goes by.
#[derive(Debug)]
pub struct Facts<'a> {
    /// What is wanted.
    pub cluster: &'a StreamCluster,
    /// What there is.
    pub observed: &'a Observed,
    /// The image that nodes should run.
    pub image: String,
    /// The cluster's record, if it is this cluster's.
    pub log: Option<&'a LogView>,
    /// Whose record was shown instead, in words.
    pub foreign_log: Option<String>,
    /// Nodes by number.
    pub nodes: BTreeMap<u32, Node<'a>>,
    /// The pods cannot be built.
    pub unbuildable: Option<Unbuildable>,
}

impl<'a> Facts<'a> {
    /// Reads the facts out of an observation.
    pub fn new(cluster: &'a StreamCluster, observed: &'a Observed, default_image: &str) -> Self {
        let (log, foreign_log) = own_log(cluster, observed);
        let image = image(cluster, observed, default_image);
        let unbuildable = try_build(cluster, &image).err();
        let mut this =
            Self { cluster, observed, image, log, foreign_log, nodes: BTreeMap::new(), unbuildable };
        let name = cluster.name_any();
        let mut ordinals: BTreeSet<u32> = (0..cluster.spec.replicas).collect();
        ordinals.extend(observed.pods.iter().map(|p| p.ordinal));
        let logged = log.into_iter().flat_map(|l| &l.nodes);
        ordinals.extend(logged.filter_map(|n| names::ordinal_of(&name, n.id.as_str())));
        if log.is_none() {
            // Who belongs to the log is not forgotten while nobody shows it.
            let told = cluster.status.iter().flat_map(|s| &s.nodes).filter(|n| n.raft_id.is_some());
            ordinals.extend(told.map(|n| n.ordinal));
        }
        for ordinal in ordinals {
            if let Some(id) = names::node_id(&name, ordinal) {
                let node = this.node(ordinal, id);
                this.nodes.insert(ordinal, node);
            }
        }
        this
    }

    fn node(&self, ordinal: u32, id: NodeId) -> Node<'a> {
        let spec = &self.cluster.spec;
        let own = spec.nodes.iter().find(|n| n.ordinal == ordinal);
        let pod = self.observed.pods.iter().find(|p| p.ordinal == ordinal);
        let log = self.log.and_then(|l| l.nodes.iter().find(|n| n.id == id));
        let members = self.log.and_then(|l| l.members.as_ref());
        let member = log.and_then(|l| members?.members.iter().find(|m| m.raft_id == l.raft_id));
        let mut node = Node {
            ordinal,
            wanted: ordinal < spec.replicas,
            pod,
            log,
            member,
            drain: self.log.and_then(|l| l.drains.get(&id)),
            draining_since_ms: self.draining_since(ordinal, &id, log),
            volume: self.volume_of(ordinal, pod),
            health: Health::Absent,
            outdated: pod.is_some_and(|p| self.is_outdated(p)),
            slots: own.and_then(|n| n.slots).unwrap_or(spec.slots),
            drain_wanted: own.is_some_and(|n| n.drain),
            cordoned: false,
            blameless: false,
            id,
        };
        if let Some(pod) = pod {
            let hosts = self.observed.hosts.as_ref();
            let host = pod.host.as_ref().and_then(|h| hosts?.get(h));
            node.cordoned = host.is_some_and(|h| h.cordoned);
            let probe = self.observed.probes.get(&pod.name).and_then(|p| p.ready.as_ref());
            node.blameless =
                host.is_some_and(|h| h.unready_since_ms.is_some()) || probe.is_some_and(|r| r.ready);
            node.health = self.health(pod, &node);
        }
        node
    }

    fn draining_since(&self, ordinal: u32, id: &NodeId, log: Option<&NodeStatus>) -> Option<i64> {
        // What cannot be read now is remembered.
        if self.log.is_some() && !log.is_some_and(|l| l.draining) {
            return None;
        }
        let mut before = self.cluster.status.iter().flat_map(|s| &s.nodes);
        let told = before.find(|n| n.ordinal == ordinal).and_then(|n| n.draining_since.as_ref());
        let drain = self.log.and_then(|l| l.drains.get(id));
        let now = drain.and_then(|d| i64::try_from(d.since_ms?).ok());
        told.map(|t| t.0.as_millisecond()).into_iter().chain(now).min()
    }

    fn is_outdated(&self, pod: &PodView) -> bool {
        if self.unbuildable.is_some() {
            return false;
        }
        let other = pod::template(self.cluster, pod.ordinal, &self.image) != pod.template;
        // What cannot be read now is no reason to restart.
        let credentials = match &self.observed.credentials {
            crate::observed::CredentialsView::Found(digest) => {
                pod.annotations.get(names::CREDENTIALS).is_some_and(|had| had != digest)
            }
            crate::observed::CredentialsView::NotNeeded | crate::observed::CredentialsView::Missing(_) => {
                false
            }
        };
        other || credentials
    }

    fn health(&self, pod: &PodView, node: &Node<'_>) -> Health {
        if let Some(why) = self.lost_host(pod) {
            return Health::Stranded(why);
        }
        if pod.deleting_since_ms.is_some() {
            return Health::Stopping;
        }
        if let Some(why) = &pod.finished {
            return Health::Broken(format!("its pod is over: {why}"));
        }
        let last = |reason: &str, text: &str| match &pod.ended {
            Some((code, words)) if reason == "CrashLoopBackOff" => {
                format!("its container ends with code {code}: {}", cut(words))
            }
            _ => format!("{reason}: {}", cut(text)),
        };
        match &pod.waiting {
            Some((reason, text)) if BROKEN.contains(&reason.as_str()) => {
                return Health::Broken(last(reason, text));
            }
            _ if pod.beside.is_some() => {
                return Health::Broken(pod.beside.as_deref().map(cut).unwrap_or_default());
            }
            Some((reason, text)) if !text.is_empty() => {
                return Health::Starting(format!("{reason}: {}", cut(text)));
            }
            Some(_) | None => {}
        }
        if pod.host.is_none() {
            let why = pod.unscheduled.as_deref().unwrap_or("no host was chosen yet");
            return Health::Pending(unbound(node, why).unwrap_or_else(|| cut(why)));
        }
        if !pod.running {
            return Health::Starting("its container is being made".to_owned());
        }
        match (pod.ready, self.log.is_none() || node.is_serving()) {
            (true, true) => Health::Ready,
            (true, false) => Health::Starting("its session is not in the cluster's record yet".to_owned()),
            (false, _) => Health::Unready(self.own_words(pod)),
        }
    }

    /// What a node says of its unreadiness.
    fn own_words(&self, pod: &PodView) -> String {
        let probe = self.observed.probes.get(&pod.name);
        let reasons = probe.and_then(|p| p.ready.as_ref()).map(|r| {
            let all = r.reasons.iter().map(|r| format!("{}: {}", r.code, cut(&r.detail)));
            all.collect::<Vec<_>>().join("; ")
        });
        match (reasons, probe.and_then(|p| p.error.as_ref())) {
            (Some(reasons), _) if !reasons.is_empty() => reasons,
            (_, Some(error)) => format!("cannot be asked: {}", cut(error)),
            _ => "not ready".to_owned(),
        }
    }

    fn lost_host(&self, pod: &PodView) -> Option<String> {
        let host = pod.host.as_ref()?;
        let hosts = self.observed.hosts.as_ref()?;
        let Some(view) = hosts.get(host) else {
            let old = self.observed.now_ms - pod.created_ms >= HOST_TIMEOUT_MS;
            return old.then(|| format!("its host {host} is gone"));
        };
        if view.out_of_service {
            return Some(format!("its host {host} is out of service"));
        }
        let since = view.unready_since_ms?;
        // How long would be another text at every look.
        (self.observed.now_ms - since >= HOST_TIMEOUT_MS).then(|| {
            let at = jiff::Timestamp::from_millisecond(since / 1000 * 1000).unwrap_or_default();
            format!("its host {host} has not been ready since {at}")
        })
    }

    /// Volumes of this StreamCluster, or of the one that it takes over from.
    pub fn own_volumes(&self, ordinal: u32) -> impl Iterator<Item = &'a VolumeView> + use<'a> {
        let uid = self.cluster.uid().unwrap_or_default();
        let adopts = self.cluster.spec.object_store.adopt_cluster_uid.is_some();
        let ours = move |v: &&VolumeView| v.ordinal == ordinal && (adopts || v.resource_uid == uid);
        self.observed.volumes.iter().filter(ours)
    }

    fn volume_of(&self, ordinal: u32, pod: Option<&PodView>) -> Option<&'a VolumeView> {
        match pod {
            Some(pod) => self.observed.volumes.iter().find(|v| v.name == pod.claim),
            None => {
                let usable = |v: &&VolumeView| !v.deleting && !v.abandoned && !v.lost;
                self.own_volumes(ordinal).filter(usable).max_by_key(|v| v.index)
            }
        }
    }

    /// The first after the node's volumes whose name is free: `data-a-1-1` may be one of node 1 of `a`, and is the first of
    /// node 1 of `a-1`.
    pub fn next_volume_index(&self, ordinal: u32) -> u32 {
        let own = self.observed.volumes.iter().filter(|v| v.ordinal == ordinal).map(|v| v.index);
        let name = self.cluster.name_any();
        let taken =
            |index: &u32| self.observed.foreign_claims.contains(&names::volume(&name, ordinal, *index));
        let first = own.max().map_or(0, |max| max + 1);
        (first..).find(|index| !taken(index)).unwrap_or(first)
    }

    /// Nodes that the spec wants.
    pub fn wanted(&self) -> impl DoubleEndedIterator<Item = &Node<'a>> {
        self.nodes.values().filter(|n| n.wanted)
    }

    /// The uid of the metadata log, if there is or was one.
    pub fn cluster_uid(&self) -> Option<String> {
        let told = self.cluster.status.as_ref().and_then(|s| s.cluster_uid.clone());
        told.or_else(|| self.log.map(|l| l.uid.clone()))
    }

    /// Whether a majority of the voters is there; `None` where that is not known.
    pub fn quorum(&self) -> Option<bool> {
        self.log?.members.as_ref()?.quorum_healthy
    }

    /// A majority is there, or may well be: the leader that others hear cannot be asked.
    pub fn may_have_quorum(&self) -> bool {
        let unasked = |l: &LogView| l.leader.is_some() && l.members.is_none();
        self.quorum() == Some(true) || self.log.is_some_and(unasked)
    }

    /// For how long nobody has said that a majority is there, by the status; for ever where there was no log yet. One look
    /// at which no node answers is no outage.
    pub fn quorum_missed_ms(&self) -> i64 {
        let conditions = self.cluster.status.iter().flat_map(|s| &s.conditions);
        let said = conditions.into_iter().find(|c| c.type_ == "QuorumHealthy");
        match said {
            _ if self.cluster_uid().is_none() => i64::MAX,
            Some(c) if c.status != "True" => self.observed.now_ms - c.last_transition_time.0.as_millisecond(),
            Some(_) | None => 0,
        }
    }

    /// For how long nobody has shown the cluster's record, by the status: who is heard now and then may be heard next.
    pub fn record_missed_ms(&self) -> i64 {
        let conditions = self.cluster.status.iter().flat_map(|s| &s.conditions);
        let said = conditions.into_iter().find(|c| c.type_ == "SlotsSynced" && c.status == "Unknown");
        match said {
            _ if self.log.is_some() || self.cluster_uid().is_none() => i64::MAX,
            Some(c) => self.observed.now_ms - c.last_transition_time.0.as_millisecond(),
            None => 0,
        }
    }

    /// Whether stopping a node leaves a majority of voters that are alive and hold the log. The error says why not.
    pub fn safe_without(&self, node: &Node<'_>) -> Result<(), String> {
        let members = self.log.and_then(|l| l.members.as_ref());
        let Some(members) = members else {
            let why =
                self.log.and_then(|l| l.members_error.as_ref()).map_or(String::new(), |e| format!(": {e}"));
            return Err(format!("the metadata log's leader does not answer{why}"));
        };
        if members.quorum_healthy != Some(true) {
            return Err("the metadata log has no healthy majority".to_owned());
        }
        let voters: Vec<_> = members.members.iter().filter(|m| m.voter).collect();
        let is_its = |m: &&&MemberStatus| node.log.is_some_and(|l| l.raft_id == m.raft_id);
        if !voters.iter().any(|m| is_its(&m)) {
            return Ok(());
        }
        // Nothing but its own return, or another taking the vote first, brings the log back: see `has_only_vote`.
        if voters.len() == 1 {
            return Ok(());
        }
        // Still heard, and about to be gone: one that is being stopped, and one whose pod is another by now, so that its
        // process is dead or, where it lives on, ends by the pin.
        let stops = |m: &MemberStatus| {
            let its = self.nodes.values().find(|n| n.log.is_some_and(|l| l.raft_id == m.raft_id));
            its.is_some_and(|n| n.health == Health::Stopping || !n.is_registered())
        };
        let left = voters.iter().filter(|m| !is_its(m) && is_good_voter(m) && !stops(m)).count();
        let majority = voters.len() / 2 + 1;
        if left >= majority {
            return Ok(());
        }
        Err(format!("without {} only {left} of {} voters would hold the metadata log", node.id, voters.len()))
    }

    /// Whether a node may go with all that it holds. The error says why not.
    pub fn safe_for_good(&self, node: &Node<'_>) -> Result<(), String> {
        self.safe_without(node)?;
        match self.has_only_vote(node) {
            true => Err(format!("{} has the only vote in the metadata log", node.id)),
            false => Ok(()),
        }
    }

    /// Nobody else votes. Without its volume there would be no metadata log any more.
    pub fn has_only_vote(&self, node: &Node<'_>) -> bool {
        let Some(members) = self.log.and_then(|l| l.members.as_ref()) else { return false };
        let mut voters = members.members.iter().filter(|m| m.voter);
        let only = voters.next().filter(|_| voters.next().is_none());
        only.is_some_and(|m| node.log.is_some_and(|l| l.raft_id == m.raft_id))
    }

    /// It has the only vote, and another member could take it: a node that drains gives it away.
    pub fn sole_voter(&self, node: &Node<'_>) -> bool {
        let members = self.log.and_then(|l| l.members.as_ref());
        let able = |m: &MemberStatus| !m.voter && m.caught_up == Some(true);
        self.has_only_vote(node) && members.is_some_and(|l| l.members.iter().any(able))
    }

    /// Every member is a node's present data directory: no change of membership is under way.
    pub fn members_settled(&self) -> bool {
        let Some(log) = self.log else { return false };
        let Some(members) = &log.members else { return false };
        let known = |m: &MemberStatus| log.nodes.iter().any(|n| n.raft_id == m.raft_id);
        members.members.iter().all(known) && members.members.len() == log.nodes.len()
    }

    /// Fewer vote than the cluster aims at; how many, and at how many it aims.
    pub fn voters_missing(&self) -> Option<(usize, usize)> {
        let members = self.log?.members.as_ref()?;
        let (have, want) =
            (members.members.iter().filter(|m| m.voter).count(), members.voter_target as usize);
        (have < want).then_some((have, want))
    }

    /// Another node that keeps a node from being disturbed, and why.
    pub fn unsettled_beside(&self, ordinal: u32) -> Option<String> {
        let leaving = |n: &&Node<'_>| {
            let unready = n.pod.is_some() && n.health != Health::Ready;
            !n.wanted && (unready || n.log.is_some_and(|l| l.draining || !l.alive))
        };
        if let Some(n) = self.nodes.values().filter(|n| n.ordinal != ordinal).find(leaving) {
            return Some(format!("{}: it is being removed", n.id));
        }
        if let Some((have, want)) = self.voters_missing() {
            return Some(format!("the metadata log: {have} of {want} nodes vote"));
        }
        self.wanted().filter(|n| n.ordinal != ordinal).find_map(|n| {
            let why = match &n.health {
                Health::Ready if n.log.is_none() => "it is not in the cluster's record".to_owned(),
                Health::Ready if n.is_disturbed_by_drain(self.observed.now_ms) => {
                    "it is being drained".to_owned()
                }
                Health::Ready => match n.member {
                    Some(m) if m.leader || m.caught_up == Some(true) => return None,
                    Some(_) => "it does not hold all of the metadata log yet".to_owned(),
                    None => "it is no member of the metadata log yet".to_owned(),
                },
                _ => n.trouble(),
            };
            Some(format!("{}: {why}", n.id))
        })
    }

    /// Not wanted any more, but a part of the metadata log whose volume is there while a majority is missing: without it
    /// there may never be one again.
    pub fn is_needed_for_quorum(&self, node: &Node<'_>) -> bool {
        let status = self.cluster.status.as_ref();
        let missed = self.quorum() != Some(true) && self.quorum_missed_ms() >= MISSED_MS;
        !node.wanted && node.was_member(status) && node.volume.is_some() && missed
    }

    /// Another wanted node that was disturbed lately.
    pub fn in_transit_beside(&self, ordinal: u32) -> Option<&Node<'a>> {
        self.wanted().find(|n| n.ordinal != ordinal && n.is_in_transit(self.observed.now_ms))
    }

    /// Another wanted node that is giving its streams away, or was made to for something that is off now.
    pub fn draining_beside(&self, ordinal: u32) -> Option<&Node<'a>> {
        self.wanted().filter(|n| n.ordinal != ordinal).find(|n| n.is_disturbed_by_drain(self.observed.now_ms))
    }

    /// Another node whose volume was replaced and that is not back yet.
    pub fn replacement_beside(&self, ordinal: u32) -> Option<&Node<'a>> {
        self.wanted().filter(|n| n.ordinal != ordinal).find(|n| {
            let (Some(log), Some(volume)) = (n.log, n.volume) else { return false };
            let first = volume.created_ms.try_into().unwrap_or(0u64);
            !(n.is_registered() || log.epoch.0 >= first)
        })
    }
}

/// "0/N nodes are available: N node(s) had volume node affinity conflict", in either wording of the scheduler. A host that
/// is cordoned or not ready counts under another reason, so that this is never said of a volume that may come back.
fn fits_nowhere(message: &str) -> bool {
    let Some(rest) = message.strip_prefix("0/") else { return false };
    let Some((total, rest)) = rest.split_once(" nodes are available: ") else { return false };
    let Some((count, why)) = rest.split_once(" node(s) ") else { return false };
    let said = ["had volume node affinity conflict", "didn't match PersistentVolume's node affinity"];
    total == count && said.iter().any(|s| why.starts_with(s))
}

/// That its claim has no volume, with what the scheduler leaves out: which claim it is, and what that asks for.
fn unbound(node: &Node<'_>, why: &str) -> Option<String> {
    let said = why.to_ascii_lowercase();
    let v = node.volume.filter(|v| v.empty_at.is_some())?;
    let of_class = match &v.class {
        Some(class) => format!("storage class {class}"),
        None => "no storage class, and the cluster has no default".to_owned(),
    };
    ["persistentvolumeclaim", "persistent volume", "storageclass"]
        .iter()
        .any(|word| said.contains(word))
        .then(|| format!("its volume claim {} ({of_class}) is not bound: {}", v.name, cut(why)))
}

fn is_good_voter(m: &MemberStatus) -> bool {
    m.leader || (m.heard_ms_ago.is_some_and(|ms| ms <= HEARD_MS) && m.caught_up == Some(true))
}

/// A record of another cluster is not this one's, whoever showed it.
fn own_log<'a>(cluster: &StreamCluster, observed: &'a Observed) -> (Option<&'a LogView>, Option<String>) {
    let Some(log) = &observed.log else { return (None, None) };
    let told = cluster.status.as_ref().and_then(|s| s.cluster_uid.as_ref());
    match told {
        Some(uid) if *uid != log.uid => {
            (None, Some(format!("the nodes are of cluster {}, this StreamCluster's is {uid}", log.uid)))
        }
        _ => (Some(log), None),
    }
}

/// A cluster that names no image keeps the one it has: an operator of another version restarts nobody.
fn image(cluster: &StreamCluster, observed: &Observed, default: &str) -> String {
    if let Some(image) = &cluster.spec.image {
        return image.clone();
    }
    if let Some(image) = cluster.status.as_ref().and_then(|s| s.image.clone()) {
        return image;
    }
    let had = observed.pods.iter().filter(|p| p.running).map(|p| &p.image).find(|i| !i.is_empty());
    had.cloned().unwrap_or_else(|| default.to_owned())
}

fn try_build(cluster: &StreamCluster, image: &str) -> Result<(), Unbuildable> {
    let input = pod::PodInput { ordinal: 0, image, claim: "", annotations: BTreeMap::new() };
    pod::pod(cluster, &input).map(drop)
}

/// Texts of others, at a length that fits a status.
pub fn cut(text: &str) -> String {
    let line = text.trim().lines().next_back().unwrap_or_default();
    match line.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_volume_that_fits_no_host_at_all_is_out_of_reach() {
        assert!(fits_nowhere(
            "0/3 nodes are available: 3 node(s) had volume node affinity conflict. preemption: 0/3"
        ));
        assert!(fits_nowhere(
            "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity."
        ));
        for other in [
            "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) had volume node affinity conflict.",
            "0/3 nodes are available: 2 node(s) had volume node affinity conflict, 1 Insufficient cpu.",
            "0/3 nodes are available: 3 Insufficient memory.",
            "persistentvolumeclaim \"data-demo-0\" not found",
        ] {
            assert!(!fits_nowhere(other), "{other}");
        }
    }

    #[test]
    fn a_text_of_others_is_cut_to_its_last_line() {
        assert_eq!(cut("INFO a\nERROR the store\n"), "ERROR the store");
        assert_eq!(cut(&"x".repeat(400)).chars().count(), 301);
    }
}
