//! Ends streams whose time is over: when somebody asks for one, and in the background.
//!
//! Invariant (I1, I2): a stream that is open here ends only after it stopped appends and settled its puts, and only if
//! nobody used it until then; whether a time is over the log decides, so that an answer that follows from an end holds
//! everywhere. A stream that is not open ends at its recorded deadline. `ownership` and the reads call in here; the
//! sweep is one vital task, over idle streams at the node that leads the log only.

use std::sync::Arc;
use std::time::Duration;

use weir_api::{StreamEpoch, StreamId};

use super::Inner;
use super::error::StreamError;
use super::flush::proposal_failed;
use super::life::{Now, Tell, tell};
use super::name::StreamName;
use super::open::OpenStream;
use super::ownership::{Named, look};
use crate::fault;
use crate::metadata::ProposeError;
use crate::metadata::command::{Answer, Command, Expiry, Refusal};
use crate::metadata::query::Disposition;
use crate::metadata::state::Stream;

/// How often deadlines are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// Streams ended by one command.
const PER_COMMAND: usize = 1_000;
/// Deadlines looked at in one pass: those of streams that wait for a recovery stay where they are.
const LOOK_AT_MOST: usize = 100_000;
/// The log's clock was behind: not asked again before.
const DISAGREED: Duration = Duration::from_millis(100);
const ATTEMPTS: usize = 8;

impl Inner {
    pub(super) fn now(&self) -> Now {
        Now { boot: self.clock.since_boot(), wall_ms: self.clock.wall_ms() }
    }

    /// A use of a stream that is open here; what has to be recorded first is. `false`: it is over or on its way out;
    /// look again.
    pub(super) async fn touched(self: &Arc<Self>, stream: &Arc<OpenStream>) -> Result<bool, StreamError> {
        if stream.config.expiry == Expiry::Never {
            return Ok(true);
        }
        if self.is_over(stream).await? {
            return Ok(false);
        }
        match stream.touch(self.now()) {
            None => Ok(false),
            Some(Tell::Nothing) => Ok(true),
            Some(Tell::Soon(deadline_ms)) => {
                self.note_touch(stream.id, deadline_ms);
                Ok(true)
            }
            Some(Tell::First(deadline_ms)) => self.record_touch(stream.id, deadline_ms).await,
        }
    }

    /// A read begins: whatever has the name is used, or ended if its time is over. What is served elsewhere the read
    /// itself finds out.
    pub(super) async fn touched_by_name(self: &Arc<Self>, name: &StreamName) -> Result<(), StreamError> {
        let mut confirmed = false;
        for _ in 0..ATTEMPTS {
            if let Some(stream) = self.serving_by_name(name.as_str()).await? {
                if self.touched(&stream).await? {
                    return Ok(());
                }
                continue;
            }
            match self.metadata.read(|state| look(state, name.as_str())) {
                Named::Missing | Named::Tombstone if confirmed => return Ok(()),
                // The view may lag, and what is there must not be read without a trace.
                Named::Missing | Named::Tombstone => {
                    self.read_index().await?;
                    confirmed = true;
                }
                Named::Known(_, stream, _) if stream.config.expiry == Expiry::Never => return Ok(()),
                Named::Known(id, stream, Disposition::Released) => {
                    if self.touched_idle(id, &stream).await? {
                        return Ok(());
                    }
                }
                Named::Known(id, _, Disposition::AwaitingRecovery(_)) => self.recovered(id).await?,
                Named::Known(id, stream, Disposition::PlacedAt(owner)) if owner == self.number => {
                    if self.touched_idle(id, &stream).await? {
                        return Ok(());
                    }
                }
                // Open at this session and not in memory: a load has failed or is under way.
                Named::Known(id, _, Disposition::OpenAt(owner, _)) if owner == self.number => {
                    drop(self.open(id).await?);
                }
                Named::Known(_, _, Disposition::PlacedAt(_) | Disposition::OpenAt(..)) => return Ok(()),
            }
        }
        Err(StreamError::unavailable("the stream keeps changing hands"))
    }

    async fn touched_idle(self: &Arc<Self>, id: StreamId, stream: &Stream) -> Result<bool, StreamError> {
        if stream.unborn_since_ms.is_some() {
            return Ok(true);
        }
        if self.ended_idle(id, stream).await? {
            return Ok(false);
        }
        let wall_ms = self.clock.wall_ms();
        match tell(&stream.config, stream.deadline_ms.unwrap_or(u64::MAX), wall_ms) {
            Tell::Nothing => Ok(true),
            Tell::Soon(deadline_ms) => {
                self.note_touch(id, deadline_ms);
                Ok(true)
            }
            Tell::First(deadline_ms) => self.record_touch(id, deadline_ms).await,
        }
    }

    /// Ends a stream that is open here if its time is over. `true`: it is not there any more, or about to go.
    pub(super) async fn is_over(self: &Arc<Self>, stream: &Arc<OpenStream>) -> Result<bool, StreamError> {
        if !stream.is_over(self.now()) {
            return Ok(false);
        }
        let (this, over) = (self.clone(), vec![stream.clone()]);
        self.to_the_end(async move { this.end_open(over).await }).await?;
        Ok(!stream.is_serving())
    }

    /// Ends a stream that is not open if its recorded deadline has passed. `true`: it changed; look again.
    pub(super) async fn ended_idle(&self, id: StreamId, stream: &Stream) -> Result<bool, StreamError> {
        let now_ms = self.clock.wall_ms();
        if stream.deadline_ms.is_none_or(|d| now_ms < d) || stream.unborn_since_ms.is_some() {
            return Ok(false);
        }
        let answers = self.expire(vec![(id, None)], now_ms).await.map_err(proposal_failed)?;
        let kept = matches!(answers.first(), Some(Err(Refusal::NotExpired { .. })));
        if matches!(answers.first(), Some(Ok(()))) {
            self.registry.signal(id).wake();
        }
        // Kept although its deadline has passed here: another use was recorded, or the log's clock is behind.
        Ok(!kept)
    }

    async fn expire(
        &self,
        streams: Vec<(StreamId, Option<StreamEpoch>)>,
        now_ms: u64,
    ) -> Result<Vec<Result<(), Refusal>>, ProposeError> {
        fault::point("expire.before_propose");
        let answer = self.metadata.propose(Command::Expire { streams, now_ms }).await?;
        fault::point("expire.after_propose");
        match answer {
            Answer::Ended(each) => {
                self.meters.expired.add(each.iter().filter(|answer| answer.is_ok()).count() as u64);
                Ok(each)
            }
            other => Err(ProposeError::Unavailable(format!("unexpected answer {other:?}"))),
        }
    }

    /// Ends those of these open streams whose time is over. Runs to its end or leaves them stopped: not to be dropped.
    async fn end_open(&self, streams: Vec<Arc<OpenStream>>) -> Result<(), StreamError> {
        let now = self.now();
        let mut stopped: Vec<_> = streams.into_iter().filter(|s| s.stop_if_over(now)).collect();
        for stream in &stopped {
            let Some(newest) = stream.newest() else { continue };
            let settled = self.patiently("the stream's records to be stored", newest.wait()).await;
            if !matches!(settled, Ok(Ok(()))) {
                stopped.iter().for_each(|s| s.resume());
                return Err(settled
                    .err()
                    .unwrap_or(StreamError::unavailable("this node's session was fenced")));
            }
        }
        // Records that became durable only now are a use.
        let now = self.now();
        stopped.retain(|stream| {
            let over = stream.is_over_still(now);
            if !over {
                stream.resume();
            }
            over
        });
        if stopped.is_empty() {
            return Ok(());
        }
        let each = stopped.iter().map(|s| (s.id, Some(s.epoch))).collect();
        let answers = self.expire(each, now.wall_ms).await.map_err(|e| {
            stopped.iter().for_each(|s| self.undecided(s, &e));
            proposal_failed(e)
        })?;
        for (stream, answer) in stopped.iter().zip(answers) {
            match answer {
                Ok(()) => {
                    self.registry.remove(stream);
                    stream.gone();
                }
                Err(refusal) => {
                    tracing::debug!(stream = %stream.id, %refusal, "not expired");
                    stream.not_over_before(now.boot + DISAGREED);
                    stream.resume();
                }
            }
        }
        Ok(())
    }

    /// Ends what is over, as far as it is this node's business; answers whether there may be more.
    pub(super) async fn sweep_expired(&self) -> bool {
        let (state, _) = self.metadata.snapshot();
        let leads = self.metadata.leadership().borrow().me;
        let now = self.now();
        let (mut open, mut idle) = (Vec::new(), Vec::new());
        let passed = state.deadlines.iter().take_while(|(deadline, _)| *deadline <= now.wall_ms);
        for &(_, id) in passed.take(LOOK_AT_MOST) {
            let Some(stream) = state.stream(id) else { continue };
            match state.disposition_of(stream) {
                Disposition::OpenAt(owner, _) if owner == self.number => {
                    // One on its way out is somebody else's to end: it is no reason to look again at once.
                    let over = |s: &Arc<OpenStream>| s.is_serving() && s.is_over(now);
                    open.extend(self.registry.by_id(id).filter(over));
                }
                Disposition::Released | Disposition::PlacedAt(_) if leads => {
                    if stream.unborn_since_ms.is_none() {
                        idle.push((id, None));
                    }
                }
                Disposition::OpenAt(..)
                | Disposition::AwaitingRecovery(_)
                | Disposition::Released
                | Disposition::PlacedAt(_) => {}
            }
            if open.len() + idle.len() == PER_COMMAND {
                break;
            }
        }
        let full = open.len() + idle.len() == PER_COMMAND;
        if !open.is_empty()
            && let Err(e) = self.end_open(open).await
        {
            tracing::debug!(error = %e, "open streams not expired; the next sweep tries again");
            return false;
        }
        if idle.is_empty() {
            return full;
        }
        let ids: Vec<StreamId> = idle.iter().map(|(id, _)| *id).collect();
        match self.expire(idle, now.wall_ms).await {
            Ok(answers) => {
                let ended = ids.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
                ended.clone().for_each(|(id, _)| self.registry.signal(*id).wake());
                full && ended.count() > 0
            }
            Err(e) => {
                tracing::debug!(error = %e, "streams not expired; the next sweep tries again");
                false
            }
        }
    }
}

/// Runs until the node stops.
pub(super) async fn run(inner: Arc<Inner>) -> anyhow::Result<()> {
    let stopping = inner.tasks.stopping().clone();
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stopping.cancelled() => return Ok(()),
            _ = tick.tick() => {}
        }
        let work = async { while inner.sweep_expired().await {} };
        tokio::select! {
            () = stopping.cancelled() => return Ok(()),
            () = work => {}
        }
    }
}
