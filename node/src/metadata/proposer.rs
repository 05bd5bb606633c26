//! Group commit: commands that wait become one log entry, and each gets its answer.
//!
//! Invariant: a command either never entered the log (`Unavailable`), or is followed until its outcome is definite: an
//! entry whose fate is unknown is submitted again with the same request numbers, which apply recognises (I9). Who takes
//! a waiting command first decides: the proposer, and it enters, or its caller, whose patience ended. A number is given
//! only when a command enters. The number of waiting commands is bounded by permits. Where another node leads, the entry
//! is sent to it, and its answer counts once this node's own view holds it.
//!
//! One task, one entry at a time: openraft writes one entry after the other, so a second one under way would only make
//! both smaller. Run by `metadata`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::command::{Answer, Batch, Command, Envelope, Outcome, Refusal, RequestId};
use super::forward::{self, Failed};
use super::raft::{Log, SubmitError};
use super::requests::{NoNumber, Requests};
use super::{Leadership, ProposeError, codec};
use crate::clock::Clock;
use crate::peers::Peers;
use crate::tasks::{self, Tasks};

/// An encoded command is at most this long.
pub const COMMAND_MAX: usize = 256 << 10;
/// The commands of one entry are at most this long together, so that replicating one never starves a heartbeat.
pub(super) const ENTRY_MAX: usize = 1 << 20;
/// Commands of one entry: bounds how long apply holds the view's lock.
pub(super) const ENTRY_COMMANDS: usize = 1024;
/// What an envelope adds to a command at most: session, two numbers, and a few bytes of framing.
const ENVELOPE: usize = 128;
/// The longest wait for proposers that were answered a moment ago and are likely to come back.
const LINGER: Duration = Duration::from_micros(200);
/// How long an entry waits between two attempts where nothing tells it sooner.
const RETRY: Duration = Duration::from_millis(100);
/// How long the entry under way may take to finish when the node stops.
const FINISH: Duration = Duration::from_secs(5);

type Reply = oneshot::Sender<Result<Answer, ProposeError>>;

/// A command that waits to enter.
pub(super) struct Ask {
    pub(super) command: Command,
    /// One of those that carry their own idempotence and come before a session.
    pub(super) founding: bool,
    /// See [`size`].
    pub(super) bytes: usize,
    /// Set by whoever takes the command: the proposer, or its caller, who has waited long enough.
    pub(super) taken: Arc<AtomicBool>,
    pub(super) reply: Reply,
    pub(super) permit: OwnedSemaphorePermit,
}

impl Ask {
    /// Nobody waits for it any more, and nobody can.
    fn is_void(&self) -> bool {
        self.reply.is_closed() || self.taken.swap(true, Ordering::SeqCst)
    }

    fn answer(self, result: Result<Answer, ProposeError>) {
        // The caller may have gone.
        drop(self.reply.send(result));
    }
}

/// How long a command is, encoded, with what carries it.
pub(super) fn size(command: &Command) -> usize {
    let len = postcard::experimental::serialized_size(command).expect("plain values in memory always encode");
    len + ENVELOPE
}

/// The task.
pub(super) struct Proposer {
    pub(super) log: Log,
    /// `None`: there are no others.
    pub(super) peers: Option<Peers>,
    pub(super) requests: Arc<Mutex<Requests>>,
    pub(super) clock: Clock,
    pub(super) tasks: Tasks,
    pub(super) asks: mpsc::Receiver<Ask>,
    pub(super) leadership: watch::Receiver<Leadership>,
    /// How long an entry that surely did not enter is tried.
    pub(super) leader_wait: Duration,
    /// Cancelled when nothing more may enter.
    pub(super) closing: CancellationToken,
    /// Cancelled by the proposer once nothing is under way any more.
    pub(super) drained: CancellationToken,
}

/// The waiting side of one command in an entry.
struct Waiter {
    request: Option<RequestId>,
    reply: Reply,
    permit: OwnedSemaphorePermit,
}

impl Waiter {
    fn answer(self, result: Result<Answer, ProposeError>) {
        let Self { reply, permit, .. } = self;
        // Before the answer, so that who has one is no longer counted. The caller may have gone.
        drop(permit);
        drop(reply.send(result));
    }
}

/// One entry's commands and who waits for them.
struct Group {
    batch: Batch,
    waiters: Vec<Waiter>,
}

/// Why an attempt has no outcomes.
enum Attempt {
    Failed(Failed),
    /// The log or the node has stopped.
    Stopped,
}

/// What did not fit into the last entry, and how that one went.
#[derive(Default)]
struct Pace {
    next: Option<Ask>,
    commands: usize,
    took: Duration,
}

impl Proposer {
    /// Runs until `closing`; then refuses what waits.
    pub(super) async fn run(mut self) {
        let mut pace = Pace::default();
        while let Some(asks) = self.collect(&mut pace).await {
            let Some(group) = self.stamp(asks) else { continue };
            let began = self.clock.monotonic();
            pace.commands = group.waiters.len();
            self.see_through(group).await;
            pace.took = began.elapsed();
        }
        self.asks.close();
        let mut next = pace.next;
        while let Some(ask) = next {
            if !ask.is_void() {
                ask.answer(Err(ProposeError::Unavailable("the node stops".to_owned())));
            }
            next = self.asks.recv().await;
        }
        self.drained.cancel();
    }

    /// What waits, as far as it fits into one entry, once somebody leads; `None` when closing.
    async fn collect(&mut self, pace: &mut Pace) -> Option<Vec<Ask>> {
        if pace.next.is_none() {
            pace.next = tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                ask = self.asks.recv() => Some(ask?),
            };
        }
        tokio::select! {
            biased;
            () = self.closing.cancelled() => return None,
            // The watch ends with the log, and `closing` then comes first.
            leads = self.leadership.wait_for(Leadership::is_known) => drop(leads.ok()?),
        }
        let patience = self.clock.monotonic() + LINGER.min(pace.took / 8);
        let mut group = Vec::new();
        let mut bytes = 0;
        loop {
            while let Some(ask) = pace.next.take().or_else(|| self.asks.try_recv().ok()) {
                if group.len() == ENTRY_COMMANDS || bytes + ask.bytes > ENTRY_MAX {
                    pace.next = Some(ask);
                    return Some(group);
                }
                if !ask.is_void() {
                    bytes += ask.bytes;
                    group.push(ask);
                }
            }
            // Who was answered with the last entry is about to ask again: an entry for all of them costs one sync.
            if group.len() >= pace.commands || self.clock.monotonic() >= patience {
                return Some(group);
            }
            tasks::turn().await;
        }
    }

    /// Gives every command its number. Those that can have none are answered; `None` if no command is left.
    fn stamp(&self, asks: Vec<Ask>) -> Option<Group> {
        let mut commands = Vec::with_capacity(asks.len());
        let mut waiters = Vec::with_capacity(asks.len());
        let mut requests = self.requests.lock();
        for ask in asks {
            let request = match ask.founding {
                true => Ok(None),
                false => requests.take().map(Some),
            };
            match request {
                Ok(request) => {
                    commands.push(Envelope { request: request.clone(), command: ask.command });
                    waiters.push(Waiter { request, reply: ask.reply, permit: ask.permit });
                }
                Err(why) => ask.answer(Err(why.into())),
            }
        }
        let batch = Batch { time_ms: 0, commands };
        (!waiters.is_empty()).then_some(Group { batch, waiters })
    }

    /// Submits an entry until its outcome is known, or cannot be known any more.
    async fn see_through(&mut self, mut group: Group) {
        let began = self.clock.monotonic();
        let mut entered = false;
        loop {
            let why = match self.attempt(&mut group.batch).await {
                Ok(outcomes) => return self.settle(group.waiters, outcomes),
                Err(Attempt::Failed(Failed::NotEntered(why))) => why,
                Err(Attempt::Failed(Failed::Perhaps(why))) => {
                    tracing::debug!("a metadata entry of unknown fate is proposed again: {why}");
                    entered = true;
                    why
                }
                Err(Attempt::Stopped) => {
                    entered = true;
                    break;
                }
            };
            if !entered && began.elapsed() >= self.leader_wait {
                return self.withdraw(group.waiters, &why);
            }
            if !self.may_try_again().await {
                break;
            }
        }
        match entered {
            false => self.withdraw(group.waiters, "the node stops"),
            true => group.waiters.into_iter().for_each(|waiter| waiter.answer(Err(ProposeError::Unknown))),
        }
    }

    /// One attempt, here or at the node that leads.
    async fn attempt(&mut self, batch: &mut Batch) -> Result<Vec<Outcome>, Attempt> {
        let not_entered = |why: &str| Attempt::Failed(Failed::NotEntered(why.to_owned()));
        // What is news after this ends the wait for a leader that is none any more.
        let now = *self.leadership.borrow_and_update();
        match (now.leader, self.peers.clone()) {
            _ if now.me && self.log.is_yielding() => Err(not_entered("the leader hands over")),
            _ if now.me => {
                batch.time_ms = forward::stamp(&self.log, &self.clock);
                self.attempt_here(batch).await
            }
            (Some(leader), Some(peers)) => {
                batch.time_ms = 0;
                self.attempt_there(&peers, leader.0, batch).await
            }
            (Some(_), None) | (None, _) => Err(not_entered("the metadata log has no leader")),
        }
    }

    async fn attempt_here(&self, batch: &Batch) -> Result<Vec<Outcome>, Attempt> {
        let perhaps = |e: SubmitError| match e {
            SubmitError::NotLeading => {
                Attempt::Failed(Failed::Perhaps("this node has lost the leadership".to_owned()))
            }
            SubmitError::Stopped => Attempt::Stopped,
        };
        let submitted =
            self.log.submit(codec::encode_batch(batch, self.log.format())).await.map_err(perhaps)?;
        tokio::select! {
            biased;
            outcomes = submitted.outcomes() => outcomes.map(|(_, outcomes)| outcomes).map_err(perhaps),
            late = self.too_late() => Err(late),
        }
    }

    async fn attempt_there(
        &self,
        peers: &Peers,
        leader: u64,
        batch: &Batch,
    ) -> Result<Vec<Outcome>, Attempt> {
        let mut leadership = self.leadership.clone();
        let answered = async {
            let (index, outcomes) = forward::propose(&self.log, peers, leader, batch).await?;
            // The watch ends only with the view, which the log holds.
            match self.log.applied().wait_for(|applied| *applied >= index).await {
                Ok(_) => Ok(outcomes),
                Err(e) => Err(Failed::Perhaps(e.to_string())),
            }
        };
        let changed = async {
            while leadership.changed().await.is_ok() {
                if leadership.borrow().leader.is_some_and(|l| l.0 != leader) {
                    return;
                }
            }
            std::future::pending().await
        };
        tokio::select! {
            biased;
            answered = answered => answered.map_err(Attempt::Failed),
            () = changed => Err(Attempt::Failed(Failed::Perhaps("another node leads now".to_owned()))),
            late = self.too_late() => Err(late),
        }
    }

    /// Resolves when the node stops and has waited long enough for what is under way.
    async fn too_late(&self) -> Attempt {
        self.closing.cancelled().await;
        tokio::time::sleep(FINISH).await;
        tracing::warn!("a metadata entry is not done {FINISH:?} after the stop; its outcome stays unknown");
        Attempt::Stopped
    }

    /// Waits for news of who leads, or a moment; `false` when closing.
    async fn may_try_again(&mut self) -> bool {
        // What the watch says now may be what it said when the entry was refused: wait for news, or a moment.
        let again = async {
            // An error only means that a moment has passed.
            drop(tokio::time::timeout(RETRY, self.leadership.changed()).await);
        };
        tokio::select! {
            () = again => true,
            () = self.closing.cancelled() => false,
        }
    }

    /// Nothing of this entry stands in the log, or ever will: its numbers count as answered.
    fn withdraw(&self, waiters: Vec<Waiter>, why: &str) {
        for waiter in waiters {
            if let Some(request) = &waiter.request {
                self.requests.lock().settle(request);
            }
            waiter.answer(Err(ProposeError::Unavailable(why.to_owned())));
        }
    }

    /// Tells every waiter what its command came to.
    fn settle(&self, waiters: Vec<Waiter>, outcomes: Vec<Outcome>) {
        if waiters.len() != outcomes.len() {
            self.tasks.fail(format!("{} metadata commands got {} outcomes", waiters.len(), outcomes.len()));
            return;
        }
        for (waiter, outcome) in waiters.into_iter().zip(outcomes) {
            if let Some(request) = &waiter.request {
                let mut requests = self.requests.lock();
                requests.settle(request);
                if matches!(outcome, Err(Refusal::SessionNotCurrent) | Ok(Answer::SessionEnded { .. })) {
                    requests.end(&request.session);
                }
            }
            let result = understand(waiter.request.as_ref(), outcome);
            waiter.answer(result);
        }
    }
}

fn understand(request: Option<&RequestId>, outcome: Outcome) -> Result<Answer, ProposeError> {
    match outcome {
        Ok(answer) => Ok(answer),
        Err(Refusal::SessionNotCurrent) if request.is_some() => Err(ProposeError::SessionOver),
        Err(Refusal::StaleRequest) => {
            // Never by our own numbers: a number stays open until its answer is here.
            tracing::error!(?request, "a request number was taken for answered");
            Err(ProposeError::Unknown)
        }
        Err(refusal) => Err(ProposeError::Refused(refusal)),
    }
}

impl From<NoNumber> for ProposeError {
    fn from(why: NoNumber) -> Self {
        match why {
            NoNumber::NoSession => Self::Unavailable("no session has begun".to_owned()),
            NoNumber::Over => Self::SessionOver,
        }
    }
}
