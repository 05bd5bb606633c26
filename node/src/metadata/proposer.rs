//! Group commit: commands that wait become one log entry, and each gets its answer.
//!
//! Invariant: a command either never entered the log (`Unavailable`), or is followed until its outcome is definite: an
//! entry whose fate is unknown is submitted again with the same request numbers, which apply recognises (I9). A number
//! is given only when its command enters. The number of waiting commands is bounded by permits. One task collects and
//! submits, so entries stand in the log in the order of submission; one task per entry sees it through.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::command::{Answer, Batch, Command, Envelope, Outcome, Refusal, RequestId};
use super::raft::{Log, SubmitError, Submitted};
use super::requests::{NoNumber, Requests};
use super::{Leadership, ProposeError, codec};
use crate::clock::Clock;
use crate::tasks::Tasks;

/// An encoded command is at most this long.
pub const COMMAND_MAX: usize = 256 << 10;
/// The commands of one entry are at most this long together, so that replicating one never starves a heartbeat.
const ENTRY_MAX: usize = 1 << 20;
/// Commands of one entry: bounds how long apply holds the view's lock.
const ENTRY_COMMANDS: usize = 1024;
/// What an envelope adds to a command at most: session, two numbers, and a few bytes of framing.
const ENVELOPE: usize = 128;
/// Entries under way at once: while one is synced the next is collected.
const ENTRIES: usize = 2;
/// How long an entry waits between two attempts where nothing tells it sooner.
const RETRY: Duration = Duration::from_millis(100);
/// How long entries under way may take to finish when the node stops.
const FINISH: Duration = Duration::from_secs(5);

type Reply = oneshot::Sender<Result<Answer, ProposeError>>;

/// A command that waits to enter.
pub(super) struct Ask {
    pub(super) command: Command,
    /// One of those that carry their own idempotence and come before a session.
    pub(super) founding: bool,
    /// See [`size`].
    pub(super) bytes: usize,
    /// Until when it waits for a leader.
    pub(super) deadline: Instant,
    pub(super) reply: Reply,
    pub(super) permit: OwnedSemaphorePermit,
}

impl Ask {
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

/// The collecting task.
pub(super) struct Proposer {
    pub(super) shared: Arc<Shared>,
    pub(super) asks: mpsc::Receiver<Ask>,
    pub(super) leadership: watch::Receiver<Leadership>,
    /// Cancelled when nothing more may enter.
    pub(super) closing: CancellationToken,
    /// Cancelled by the proposer once nothing is under way any more.
    pub(super) drained: CancellationToken,
}

/// What the collecting task and the entries under way share.
pub(super) struct Shared {
    pub(super) log: Log,
    pub(super) requests: Arc<Mutex<Requests>>,
    pub(super) clock: Clock,
    pub(super) tasks: Tasks,
}

/// The waiting side of one command in an entry.
struct Waiter {
    request: Option<RequestId>,
    reply: Reply,
    _permit: OwnedSemaphorePermit,
}

/// One entry's commands and who waits for them.
struct Group {
    batch: Batch,
    waiters: Vec<Waiter>,
}

impl Proposer {
    /// Runs until `closing`; then refuses what waits and sees through what has entered.
    pub(super) async fn run(mut self) {
        let turns = Arc::new(Semaphore::new(ENTRIES));
        let mut next = None;
        while !self.closing.is_cancelled() {
            let turn = turns.clone().acquire_owned().await.expect("never closed");
            let Some(first) = self.first(&mut next).await else { break };
            let group = self.collect(first, &mut next);
            let Some(group) = self.shared.stamp(group) else { continue };
            let submitted = self.shared.submit(&group).await;
            let entry = Entry {
                group,
                shared: self.shared.clone(),
                leadership: self.leadership.clone(),
                closing: self.closing.clone(),
            };
            self.shared.tasks.spawn(async move {
                entry.see_through(submitted).await;
                drop(turn);
            });
        }
        self.asks.close();
        let stops = || Err(ProposeError::Unavailable("the node stops".to_owned()));
        if let Some(ask) = next {
            ask.answer(stops());
        }
        while let Some(ask) = self.asks.recv().await {
            ask.answer(stops());
        }
        let all = u32::try_from(ENTRIES).expect("a small number");
        if tokio::time::timeout(FINISH, turns.acquire_many(all)).await.is_err() {
            tracing::warn!("metadata entries are still under way after {FINISH:?}; their outcome stays unknown");
        }
        self.drained.cancel();
    }

    /// The next command that may enter, once this node leads; `None` when closing.
    async fn first(&mut self, next: &mut Option<Ask>) -> Option<Ask> {
        loop {
            if next.is_none() {
                *next = tokio::select! {
                    biased;
                    () = self.closing.cancelled() => return None,
                    ask = self.asks.recv() => Some(ask?),
                };
            }
            let deadline = next.as_ref()?.deadline;
            let leads = tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                leads = tokio::time::timeout_at(deadline, self.leadership.wait_for(|l| l.me)) => leads.is_ok(),
            };
            let ask = next.take()?;
            if leads {
                return Some(ask);
            }
            ask.answer(Err(ProposeError::Unavailable("this node does not lead the metadata log".to_owned())));
        }
    }

    /// `first` and what waits behind it, as far as it fits into one entry. What does not fit is left in `next`.
    fn collect(&mut self, first: Ask, next: &mut Option<Ask>) -> Vec<Ask> {
        let mut bytes = first.bytes;
        let mut group = vec![first];
        while group.len() < ENTRY_COMMANDS {
            let Ok(ask) = self.asks.try_recv() else { break };
            bytes += ask.bytes;
            if bytes > ENTRY_MAX {
                *next = Some(ask);
                break;
            }
            group.push(ask);
        }
        group
    }
}

impl Shared {
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
                    waiters.push(Waiter { request, reply: ask.reply, _permit: ask.permit });
                }
                Err(why) => ask.answer(Err(why.into())),
            }
        }
        let batch = Batch { time_ms: self.clock.wall_ms(), commands };
        (!waiters.is_empty()).then_some(Group { batch, waiters })
    }

    async fn submit(&self, group: &Group) -> Result<Submitted, SubmitError> {
        self.log.submit(codec::encode_batch(&group.batch)).await
    }

    /// Tells every waiter what its command came to.
    fn settle(&self, waiters: Vec<Waiter>, outcomes: Vec<Outcome>) {
        if waiters.len() != outcomes.len() {
            self.tasks.fail(format!("{} commands got {} outcomes", waiters.len(), outcomes.len()));
            return;
        }
        for (waiter, outcome) in waiters.into_iter().zip(outcomes) {
            let result = {
                let mut requests = self.requests.lock();
                if let Some(request) = &waiter.request {
                    requests.settle(request);
                    if matches!(outcome, Err(Refusal::SessionNotCurrent) | Ok(Answer::SessionEnded { .. })) {
                        requests.end(&request.session);
                    }
                }
                understand(waiter.request.as_ref(), outcome)
            };
            drop(waiter.reply.send(result));
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

/// An entry on its way.
struct Entry {
    group: Group,
    shared: Arc<Shared>,
    leadership: watch::Receiver<Leadership>,
    closing: CancellationToken,
}

impl Entry {
    /// Follows the entry until its outcome is known, or cannot be any more.
    async fn see_through(mut self, mut submitted: Result<Submitted, SubmitError>) {
        loop {
            let outcomes = match submitted {
                Ok(submitted) => submitted.outcomes().await,
                Err(e) => Err(e),
            };
            match outcomes {
                Ok(outcomes) => return self.shared.settle(self.group.waiters, outcomes),
                Err(SubmitError::NotLeading) if self.leads_again().await => {}
                Err(SubmitError::NotLeading | SubmitError::Stopped) => break,
            }
            self.group.batch.time_ms = self.shared.clock.wall_ms();
            submitted = self.shared.submit(&self.group).await;
        }
        for waiter in self.group.waiters {
            drop(waiter.reply.send(Err(ProposeError::Unknown)));
        }
    }

    /// Waits until this node leads once more; `false` when closing.
    async fn leads_again(&mut self) -> bool {
        // What the watch says now may be what it said when the entry was refused: wait for news, or a moment.
        self.leadership.mark_unchanged();
        let again = async {
            // An error only means that a moment has passed.
            drop(tokio::time::timeout(RETRY, self.leadership.changed()).await);
            self.leadership.wait_for(|l| l.me).await.is_ok()
        };
        tokio::select! {
            again = again => again,
            () = self.closing.cancelled() => false,
        }
    }
}
