//! Streams that leave this node, or come to it, because somebody said so: transfers from either side, and drains.
//!
//! Invariant (I1, I2): a stream is let go of only after it stopped appends and all it accepted is in segments, by a
//! command that the log refuses otherwise; one that does not get there resumes, and appends that came meanwhile find
//! it here or where it went, with nothing of them in the order. What was stopped is never left so: the steps between are
//! not dropped midway. Nobody waits for another's: one that is ready goes while others are not. An open stream costs
//! nothing for this: the task looks at what the view says of this session. One vital task.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_api::{Offset, StreamEpoch, StreamId};

use super::Inner;
use super::error::StreamError;
use super::open::OpenStream;
use crate::fault;
use crate::metadata::command::{Answer, Command};
use crate::metadata::placement;
use crate::metadata::query::Disposition;
use crate::metadata::state::{Ownership, State};
use crate::metrics::DrainOutcome;

/// Streams that are stopped at a time.
const BATCH: usize = 2_500;
/// Up to so many streams are committed ahead of the backlog; for more of them all of it is.
const AHEAD: usize = 64;
/// However busy the metadata log is, transfers are looked at this often at most.
const PAUSE: Duration = Duration::from_millis(20);
/// A drain that gets nowhere for so long gives up.
const STUCK: Duration = Duration::from_secs(10);
/// Streams handed over with one command.
const PER_COMMAND: usize = 2_000;
/// Streams that a target opens at a time, ahead of their first request.
const OPENING: usize = 64;
/// Streams that are not in memory and are let go of at a time.
const UNLOADED: usize = 64;

/// Why a stream is let go of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Its transfer says where to; without one it is anybody's.
    Release,
    /// The node drains.
    Drain,
}

/// What a drain came to.
enum Drained {
    /// This node has nothing any more.
    Empty,
    /// It was cancelled.
    Off,
    /// So it says.
    Stuck(String),
}

impl Drained {
    fn outcome(&self) -> DrainOutcome {
        match self {
            Self::Empty => DrainOutcome::Drained,
            Self::Off => DrainOutcome::Cancelled,
            Self::Stuck(_) => DrainOutcome::GaveUp,
        }
    }
}

/// What the view says of this session's transfers.
struct Todo {
    /// Streams open here that are to go, and that nobody sees to yet.
    leaving: Vec<StreamId>,
    /// Streams that are to come here.
    coming: BTreeSet<StreamId>,
}

/// Streams that are being handed over.
#[derive(Default)]
struct UnderWay {
    ids: Mutex<BTreeSet<StreamId>>,
    /// Some are not any more.
    fewer: Notify,
}

/// Some of those under way; dropped, they are not.
struct Batch {
    of: Arc<UnderWay>,
    ids: Vec<StreamId>,
}

impl UnderWay {
    fn begin(self: &Arc<Self>, ids: Vec<StreamId>) -> Batch {
        self.ids.lock().extend(&ids);
        Batch { of: self.clone(), ids }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let mut under_way = self.of.ids.lock();
        for id in &self.ids {
            under_way.remove(id);
        }
        drop(under_way);
        self.of.fewer.notify_one();
    }
}

/// Runs until the node stops.
pub(super) async fn run(inner: Arc<Inner>) -> anyhow::Result<()> {
    let stopping = inner.tasks.stopping().clone();
    let work = async {
        tokio::join!(follow_transfers(&inner), follow_drains(&inner));
    };
    tokio::select! {
        () = work => stopping.cancelled().await,
        () = stopping.cancelled() => {}
    }
    Ok(())
}

async fn follow_transfers(inner: &Arc<Inner>) {
    let mut applied = inner.metadata.applied();
    let mut expected = BTreeSet::new();
    let under_way = Arc::new(UnderWay::default());
    loop {
        applied.borrow_and_update();
        let Todo { leaving, coming } = {
            let known = under_way.ids.lock().clone();
            inner.metadata.read(|state| todo(inner, state, &known))
        };
        let arrived: Vec<StreamId> = expected.difference(&coming).copied().collect();
        expected = coming;
        if !arrived.is_empty() {
            let this = inner.clone();
            inner.tasks.spawn(async move { this.open_ahead(arrived).await });
        }
        if !leaving.is_empty() {
            let (this, batch) = (inner.clone(), under_way.begin(leaving));
            inner.tasks.spawn(async move {
                let stopping = this.tasks.stopping().clone();
                let _done: Option<()> = stopping.run_until_cancelled(this.transfer_out(&batch.ids)).await;
            });
        }
        tokio::select! {
            changed = applied.changed() => if changed.is_err() {
                // The log stopped: so does the node.
                return;
            },
            // What is not gone is tried again.
            () = under_way.fewer.notified() => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn follow_drains(inner: &Arc<Inner>) {
    let mut applied = inner.metadata.applied();
    loop {
        applied.borrow_and_update();
        if inner.metadata.read(|state| is_to_drain(inner, state)) {
            tracing::info!("draining: every stream of this node goes to another");
            let began = inner.clock.monotonic();
            let drained = inner.give_everything_away().await;
            inner.meters.moves.drained(drained.outcome(), began.elapsed());
            match drained {
                Drained::Empty => tracing::info!("drained"),
                Drained::Off => tracing::info!("the drain was cancelled"),
                Drained::Stuck(why) => {
                    tracing::warn!(why, "the drain gives up");
                    // Where not even that can be said it goes on.
                    drop(inner.metadata.propose(Command::GiveUpDrain { why }).await);
                }
            }
        } else if applied.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn todo(inner: &Inner, state: &State, under_way: &BTreeSet<StreamId>) -> Todo {
    let me = inner.number;
    let (mut leaving, mut coming) = (Vec::new(), BTreeSet::new());
    for (id, transfer) in state.transfers_of(me) {
        if transfer.target == me {
            coming.insert(id);
        } else if under_way.len() + leaving.len() < BATCH && !under_way.contains(&id) {
            leaving.push(id);
        }
    }
    Todo { leaving, coming }
}

/// The node is to give everything away, and has something.
fn is_to_drain(inner: &Inner, state: &State) -> bool {
    drains(inner, state) && state.live(inner.number).is_some_and(|s| s.assigned > 0)
}

fn drains(inner: &Inner, state: &State) -> bool {
    state.nodes.get(&inner.session.node).is_some_and(|n| n.draining && n.drain_gave_up.is_none())
}

impl Inner {
    /// Waits, bounded, while the stream is on its way to this node.
    pub(super) async fn handed_over(&self, id: StreamId) -> Result<(), StreamError> {
        let mut applied = self.metadata.applied();
        let wait = async {
            while self.metadata.read(|state| self.is_coming(state, id)) && applied.changed().await.is_ok() {}
        };
        self.patiently("the stream to be handed over to this node", wait).await
    }

    /// A transfer is to bring it here.
    pub(super) fn is_coming(&self, state: &State, id: StreamId) -> bool {
        state.transfer(id).is_some_and(|t| t.target == self.number)
    }

    /// Opens what was handed over to this node, so that the first request need not wait for it.
    async fn open_ahead(self: &Arc<Self>, arrived: Vec<StreamId>) {
        fault::point("handover.arrived");
        for some in arrived.chunks(OPENING) {
            let handed: Vec<StreamId> = self.metadata.read(|state| {
                let mine = |id: &&StreamId| {
                    matches!(state.disposition(**id), Some(Disposition::PlacedAt(at)) if at == self.number)
                };
                some.iter().filter(mine).copied().collect()
            });
            let opening = handed.into_iter().map(async |id| {
                if let Err(e) = self.open(id).await {
                    tracing::debug!(stream = %id, error = %e, "not opened ahead of its first request");
                }
            });
            futures::future::join_all(opening).await;
        }
    }

    /// Lets go of streams for which a transfer is pending.
    async fn transfer_out(self: &Arc<Self>, ids: &[StreamId]) {
        let (mut open, mut unloaded) = (Vec::new(), Vec::new());
        for id in ids {
            match self.registry.by_id(*id) {
                Some(stream) => open.push(stream),
                None => unloaded.push(*id),
            }
        }
        let unloaded = futures::stream::iter(unloaded).for_each_concurrent(UNLOADED, |id| {
            let this = self.clone();
            async move { this.let_go_unloaded(id, Way::Release).await }
        });
        let wanted = |state: &State, id| state.transfer(id).is_some_and(|t| t.source == self.number);
        let (ids, began) = (open.iter().map(|s| s.id).collect::<Vec<_>>(), self.clock.monotonic());
        let loaded = async {
            let gone = self.let_go(open, Way::Release, wanted).await;
            let kept = |state: &State, id| {
                let mine =
                    matches!(state.disposition(id), Some(Disposition::OpenAt(at, _)) if at == self.number);
                mine && !wanted(state, id)
            };
            let aborted = self.metadata.read(|state| ids.iter().filter(|id| kept(state, **id)).count());
            self.meters.moves.transferred(gone, aborted, began.elapsed());
        };
        tokio::join!(loaded, unloaded);
    }

    /// Stops the streams, brings all they accepted into segments, and lets go of each that is ready; answers how many went.
    /// Those that are not `wanted` to go any more, or cannot within half of an append's patience, resume.
    async fn let_go(
        self: &Arc<Self>,
        streams: Vec<Arc<OpenStream>>,
        way: Way,
        wanted: impl Fn(&State, StreamId) -> bool,
    ) -> usize {
        let mut stopped: Vec<_> = streams.into_iter().filter(|stream| stream.stop()).collect();
        fault::point("handover.stopped");
        let began = self.clock.monotonic();
        let within = self.limits.patience / 2;
        let mut gone = 0;
        loop {
            let kept: Vec<bool> =
                self.metadata.read(|state| stopped.iter().map(|s| wanted(state, s.id)).collect());
            let (mut ready, mut unsettled) = (Vec::new(), Vec::new());
            for (stream, keep) in stopped.into_iter().zip(kept) {
                match stream.settled_tail() {
                    _ if !keep => stream.resume(),
                    Some(tail) => ready.push((stream, tail)),
                    None => unsettled.push(stream),
                }
            }
            let mut ready = ready.into_iter();
            loop {
                let batch: Vec<_> = ready.by_ref().take(PER_COMMAND).collect();
                if batch.is_empty() {
                    break;
                }
                gone += self.release_batch(batch, way).await;
            }
            stopped = unsettled;
            let left = within.saturating_sub(began.elapsed());
            if stopped.is_empty() || left.is_zero() {
                break;
            }
            self.hurry_along(&stopped, left).await;
        }
        stopped.iter().for_each(|stream| stream.resume());
        gone
    }

    /// Gets the flusher to commit what these streams have accepted; looks again soon.
    async fn hurry_along(&self, streams: &[Arc<OpenStream>], within: Duration) {
        if streams.len() > AHEAD {
            // What is not durable yet is not in the backlog: another look asks for it.
            drop(tokio::time::timeout(within.min(PAUSE * 10), self.backlog.flush()).await);
            return;
        }
        let mut applied = self.metadata.applied();
        applied.borrow_and_update();
        streams.iter().for_each(|stream| self.backlog.want_ahead(stream.id));
        drop(tokio::time::timeout(within.min(PAUSE), applied.changed()).await);
    }

    /// The command that lets go of these.
    pub(super) fn let_go_command(batch: &[(Arc<OpenStream>, Offset)], way: Way) -> Command {
        let each = batch.iter().map(|(s, tail)| (s.id, s.epoch, *tail));
        match way {
            Way::Release => Command::Release { streams: each.collect() },
            Way::Drain => Command::HandOver {
                streams: each.map(|(id, epoch, tail)| (id, Some((epoch, tail)))).collect(),
            },
        }
    }

    /// Lets go of a stream that the log says is open here and that is not in memory: nothing of it can be in flight.
    async fn let_go_unloaded(self: &Arc<Self>, id: StreamId, way: Way) {
        let gate = self.registry.gate(id);
        let Ok(_held) = self.patiently("another operation on the stream", gate.lock()).await else { return };
        if self.registry.by_id(id).is_some() {
            return;
        }
        let at = self.metadata.read(|state| {
            let stream = state.stream(id)?;
            (stream.ownership == Ownership::Open(self.number)).then_some((stream.epoch, stream.committed))
        });
        let Some((epoch, committed)) = at else { return };
        let command = match way {
            Way::Release => Command::Release { streams: vec![(id, epoch, committed)] },
            Way::Drain => Command::HandOver { streams: vec![(id, Some((epoch, committed)))] },
        };
        if let Err(e) = self.metadata.propose(command).await {
            tracing::debug!(stream = %id, error = %e, "not let go of yet");
        }
    }

    /// Gives away every stream of this node, in batches.
    async fn give_everything_away(self: &Arc<Self>) -> Drained {
        // While they serve, so that little is left to do for those that are stopped.
        drop(tokio::time::timeout(self.limits.patience / 2, self.backlog.flush()).await);
        let mut least = u64::MAX;
        let mut progress = self.clock.since_boot();
        loop {
            let (wanted, assigned, taken) = self.metadata.read(|state| {
                let assigned = state.live(self.number).map_or(0, |session| session.assigned);
                (drains(self, state), assigned, placement::pick(state).is_some())
            });
            if !wanted || self.tasks.stopping().is_cancelled() {
                return Drained::Off;
            }
            if assigned == 0 {
                return Drained::Empty;
            }
            if assigned < least {
                (least, progress) = (assigned, self.clock.since_boot());
            }
            if self.clock.since_boot().saturating_sub(progress) >= STUCK {
                let why = if taken { "nothing could be committed" } else { "no other node took streams" };
                return Drained::Stuck(format!("{why} for {} s; streams left: {assigned}", STUCK.as_secs()));
            }
            if !taken {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            let open: Vec<_> = self.registry.all().into_iter().take(BATCH).collect();
            let all = open.len() < BATCH;
            let mut gone = self.let_go(open, Way::Drain, |state, _| drains(self, state)).await;
            if gone == 0 || all {
                gone += self.give_back_the_rest().await;
            }
            self.meters.moves.drained_streams.add(gone as u64);
            if gone == 0 {
                tokio::time::sleep(PAUSE * 5).await;
            }
        }
    }

    /// What is placed here and was never opened, and what is open here and not in memory. Looks through all streams of
    /// the cluster, which only a drain does.
    async fn give_back_the_rest(self: &Arc<Self>) -> usize {
        let open = self.registry.len() as u64;
        if self.metadata.read(|state| state.live(self.number).map_or(0, |s| s.assigned)) <= open {
            return 0;
        }
        let (state, _) = self.metadata.snapshot();
        let me = self.number;
        let looked = self.tasks.blocking(move || {
            let (mut placed, mut open) = (Vec::new(), Vec::new());
            for (id, stream) in &state.streams {
                match stream.ownership {
                    Ownership::Placed(at) if at == me => placed.push(*id),
                    Ownership::Open(at) if at == me => open.push(*id),
                    Ownership::Placed(_) | Ownership::Open(_) | Ownership::Released => {}
                }
            }
            (placed, open)
        });
        let Ok((placed, open)) = looked.await else { return 0 };
        let mut gone = 0;
        for some in placed.chunks(PER_COMMAND) {
            let streams: Vec<(StreamId, Option<(StreamEpoch, Offset)>)> =
                some.iter().map(|id| (*id, None)).collect();
            match self.metadata.propose(Command::HandOver { streams }).await {
                Ok(Answer::Released(each)) => gone += each.iter().filter(|one| one.is_ok()).count(),
                Ok(other) => tracing::warn!(?other, "unexpected answer to a handover"),
                Err(e) => tracing::debug!(error = %e, "not given back yet"),
            }
        }
        for id in open {
            if self.registry.by_id(id).is_none() {
                self.let_go_unloaded(id, Way::Drain).await;
            }
        }
        gone
    }
}
