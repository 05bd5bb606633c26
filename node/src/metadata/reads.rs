//! Read indexes, one confirmation of leadership for all that ask at once.
//!
//! Invariant: a caller is answered by a confirmation that began after it asked. Who asks while one is under way waits
//! for the next. A node that does not lead asks the leader, once for all of its own callers; what other nodes ask is
//! answered here or not at all. Run as one task by `metadata`.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::raft::Log;
use super::{Leadership, forward};
use crate::peers::Peers;

/// A question for a read index.
pub(super) struct ReadAsk {
    /// Where the index, or why there is none, goes.
    pub(super) reply: oneshot::Sender<Result<u64, String>>,
    /// Another node asks, which takes this one for the leader.
    pub(super) of_peer: bool,
}

/// A confirmation that takes longer is given up; callers have deadlines of their own.
const CONFIRM: Duration = Duration::from_secs(5);
/// One attempt with a leader: a hung one must not hold up what its successor could answer.
const ATTEMPT: Duration = Duration::from_secs(2);
/// The pause between two attempts where no news comes sooner.
const RETRY: Duration = Duration::from_millis(25);

/// What confirming takes.
pub(super) struct Reads {
    pub(super) log: Log,
    pub(super) peers: Option<Peers>,
    pub(super) leadership: watch::Receiver<Leadership>,
}

impl Reads {
    /// Serves until `closing`.
    pub(super) async fn run(mut self, mut asks: mpsc::Receiver<ReadAsk>, closing: CancellationToken) {
        loop {
            let first = tokio::select! {
                biased;
                () = closing.cancelled() => return,
                ask = asks.recv() => ask,
            };
            let Some(first) = first else { return };
            let mut waiting = vec![first];
            while let Ok(ask) = asks.try_recv() {
                waiting.push(ask);
            }
            if !self.leadership.borrow().me {
                let (peers, own): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|ask| ask.of_peer);
                answer(peers, &Err("this node does not lead".to_owned()));
                waiting = own;
            }
            // Who has gone is not asked for.
            waiting.retain(|ask| !ask.reply.is_closed());
            if waiting.is_empty() {
                continue;
            }
            let index = tokio::select! {
                biased;
                () = closing.cancelled() => return,
                index = self.confirm() => index,
            };
            answer(waiting, &index);
        }
    }

    /// Tries until somebody who leads has confirmed it.
    async fn confirm(&mut self) -> Result<u64, String> {
        let end = tokio::time::Instant::now() + CONFIRM;
        loop {
            let news = *self.leadership.borrow_and_update();
            let attempt = async {
                match (news.leader, &self.peers) {
                    _ if news.me && self.log.is_yielding() => Err("the leader hands over".to_owned()),
                    _ if news.me => self.log.confirm().await,
                    (Some(leader), Some(peers)) => {
                        forward::read_index(&self.log, peers, leader.0, ATTEMPT).await
                    }
                    (Some(_), None) | (None, _) => Err("the metadata log has no leader".to_owned()),
                }
            };
            let mut leadership = self.leadership.clone();
            let why = tokio::select! {
                attempt = tokio::time::timeout_at(end.min(tokio::time::Instant::now() + ATTEMPT), attempt) => match attempt {
                    Ok(Ok(index)) => return Ok(index),
                    Ok(Err(why)) => why,
                    Err(_late) => "leadership was not confirmed in time".to_owned(),
                },
                _ = leadership.changed() => "the leader has changed".to_owned(),
            };
            if tokio::time::Instant::now() + RETRY >= end {
                return Err(why);
            }
            // An error only means that a moment has passed.
            drop(tokio::time::timeout(RETRY, self.leadership.changed()).await);
        }
    }
}

fn answer(asks: Vec<ReadAsk>, index: &Result<u64, String>) {
    for ask in asks {
        // The caller may have gone.
        drop(ask.reply.send(index.clone()));
    }
}
