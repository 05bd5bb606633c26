//! The leader's care for the log's members and for the format version.
//!
//! Invariant: only the leader acts, one change at a time, by the rules of `raft::membership`. Silence counts over rounds
//! in which this process was awake and led: a leader that slept, or has just begun, holds nobody for lost. A change that
//! hangs is left when the leadership is; whoever leads next finishes it. One task of `metadata`.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::announce::Asking;
use super::command::Command;
use super::raft::membership::{self, Change, Member, Observed, Standing};
use super::state::State;
use super::{Metadata, MetadataConfig};
use crate::{fault, format};

/// A raise of the format that failed is tried again after this.
const FORMAT_AGAIN: Duration = Duration::from_secs(5);

/// How long each member was silent, as far as this leader can say.
#[derive(Default)]
struct Silence {
    looked: Option<Instant>,
    unheard: HashMap<u64, Duration>,
}

impl Silence {
    /// Counts one more round; none of them counts for more than two of the usual length.
    fn look(&mut self, now: Instant, usual: Duration, heard: impl Fn(u64) -> Option<Instant>, ids: &[u64]) {
        let looked = self.looked.replace(now).unwrap_or(now);
        let round = now.duration_since(looked).min(usual * 2);
        self.unheard.retain(|id, _| ids.contains(id));
        for &id in ids {
            let unheard = self.unheard.entry(id).or_default();
            match heard(id) {
                Some(heard) if heard >= looked => *unheard = Duration::ZERO,
                Some(_) | None => *unheard += round,
            }
        }
    }
}

/// Runs until `closing`.
pub(super) async fn run(metadata: Metadata, cfg: MetadataConfig, asking: Asking, closing: CancellationToken) {
    let mut leadership = metadata.leadership();
    let mut tick = tokio::time::interval(cfg.tend_every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut silence = Silence::default();
    let mut format_tried: Option<Instant> = None;
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            _ = tick.tick() => {}
            () = asking.news() => {}
        }
        if !leadership.borrow_and_update().me || metadata.shared.log.is_yielding() {
            silence = Silence::default();
            continue;
        }
        let log = &metadata.shared.log;
        let ids: Vec<u64> = log.members().iter().map(|m| m.raft_id.0).filter(|id| *id != log.me()).collect();
        silence.look(Instant::now(), cfg.tend_every, |id| log.last_heard(id), &ids);
        let seen = observe(&metadata, &cfg, &asking, &silence);
        if let Some(change) = membership::next(&seen) {
            tracing::info!(?change, "changing the metadata log's members");
            fault::point("members.before_change");
            let leader_lost = async {
                // An error means that the log has stopped.
                drop(leadership.wait_for(|l| !l.me).await);
            };
            tokio::select! {
                () = closing.cancelled() => return,
                () = leader_lost => {}
                changed = log.change(change.clone()) => match changed {
                    // The next look comes at once: changes that follow from one another need not wait for each other.
                    Ok(()) => {
                        fault::point("members.changed");
                        asking.settle(&change);
                        tick.reset_immediately();
                    }
                    Err(why) => tracing::warn!(?change, why, "the metadata log's members did not change"),
                },
            }
            continue;
        }
        let due = format_tried.is_none_or(|tried| tried.elapsed() >= FORMAT_AGAIN);
        if let Some(version) = metadata.read(|state| raise(state, format::max())).filter(|_| due) {
            format_tried = Some(Instant::now());
            match metadata.propose(Command::RaiseFormat { version }).await {
                Ok(_) => tracing::info!(version, "the cluster writes a newer format from now on"),
                Err(e) => tracing::debug!(version, error = %e, "the format was not raised"),
            }
        }
    }
}

fn observe(metadata: &Metadata, cfg: &MetadataConfig, asking: &Asking, silence: &Silence) -> Observed {
    let log = &metadata.shared.log;
    let voters = usize::try_from(cfg.voters).unwrap_or(usize::MAX);
    let members = log.members();
    metadata.read(|state| {
        let member = |m: super::MemberStatus| {
            let id = m.raft_id.0;
            // A founder of a build before this one did not write down whose it is.
            let own = || metadata.shared.peers.as_ref().filter(|_| id == log.me()).map(|p| p.node().clone());
            let node = m.node.or_else(own);
            let record = node.as_ref().and_then(|n| state.nodes.get(n));
            let member = Member {
                voter: m.voter,
                standing: membership::standing(state, m.raft_id, node.as_ref()),
                draining: record.is_some_and(|n| n.raft_id == m.raft_id && n.draining),
                node,
                address: m.address,
                caught_up: m.caught_up,
                unheard: silence.unheard.get(&id).copied().unwrap_or_default(),
            };
            (id, member)
        };
        let registered = state.nodes.values().filter(|n| !n.removed).count();
        let asks = asking.all().into_iter();
        let may = |(id, node, _): &(u64, weir_api::NodeId, String)| {
            let standing = membership::standing(state, weir_api::RaftId(*id), Some(node));
            matches!(standing, Standing::New | Standing::Registered(_))
        };
        Observed {
            me: log.me(),
            unfinished: log.unfinished(),
            members: members.into_iter().map(member).collect::<BTreeMap<_, _>>(),
            target: membership::voter_target(voters, registered),
            asking: asks.filter(may).collect(),
            patience: cfg.voter_timeout,
        }
    })
}

/// The format version to raise the cluster to: the highest that this build and every registered node read, if it is
/// above the cluster's.
fn raise(state: &State, own: u32) -> Option<u32> {
    let format = state.cluster.as_ref()?.format;
    let nodes = state.nodes.values().filter(|n| !n.removed);
    let read_by_all = nodes.map(|n| n.formats.1).min()?.min(own);
    (read_by_all > format).then_some(read_by_all)
}

impl Asking {
    /// What was asked for was done.
    fn settle(&self, change: &Change) {
        if let Change::Entry(id, ..) = change {
            self.forget(*id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_only_while_the_leader_is_awake() {
        let (usual, begin) = (Duration::from_secs(1), Instant::now());
        let at = |s: u64| begin + Duration::from_secs(s);
        let mut silence = Silence::default();
        silence.look(at(0), usual, |_| None, &[2]);
        assert_eq!(silence.unheard[&2], Duration::ZERO, "a leader begins with what it hears itself");
        silence.look(at(1), usual, |_| None, &[2]);
        silence.look(at(2), usual, |_| None, &[2]);
        assert_eq!(silence.unheard[&2], Duration::from_secs(2));
        silence.look(at(10_000), usual, |_| None, &[2]);
        assert_eq!(silence.unheard[&2], Duration::from_secs(4), "it slept");
        silence.look(at(10_001), usual, |id| (id == 2).then(|| at(10_000)), &[2, 3]);
        assert_eq!((silence.unheard[&2], silence.unheard[&3]), (Duration::ZERO, usual));
        silence.look(at(10_002), usual, |_| None, &[3]);
        assert_eq!(silence.unheard.len(), 1);
    }

    #[test]
    fn the_format_goes_up_only_when_all_read_it() {
        use crate::metadata::apply::tests::world::World;
        let (world, _) = World::with(["a"]);
        let mut state = world.state.clone();
        assert_eq!(raise(&state, 2), None, "a reads 1 only");
        let a: weir_api::NodeId = "a".parse().unwrap();
        state.nodes.get_mut(&a).unwrap().formats = (1, 3);
        assert_eq!(raise(&state, 2), Some(2));
        assert_eq!(raise(&state, 1), None);
        assert_eq!(raise(&State::default(), 9), None);
    }
}
