//! One stream that is open at this node: its log, its records not yet in segments, and who waits for more.
//!
//! Invariant: what enters the order does so under this stream's short lock, which is never held across an await, and
//! enters the WAL in the same order; nobody reads past the durable end (I3); any answer that follows from a record not
//! yet durable waits for that record. Made by `ownership`, used by every stream operation, told of durability by the
//! WAL's sink and of commits by `flush`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use weir_api::{Offset, StreamEpoch, StreamId};

use super::error::StreamError;
use super::life::{Life, Now, Tell, tell};
use super::log::{Append, Appended, StreamLog, Verdict};
use super::signal::Signal;
use crate::metadata::command::{Expiry, StreamConfig};
use crate::metadata::state;
use crate::mutant::{self, Mutant};
use crate::storage::record::{Dedupe, Frame, Intro, Payload};
use crate::storage::tail::TailBuffer;
use crate::storage::wal::{Kick, Ticket, Wal, WalBusy};

/// What is fixed while a stream is open.
#[derive(Debug)]
pub struct OpenStream {
    pub(super) id: StreamId,
    pub(super) epoch: StreamEpoch,
    pub(super) name: Arc<str>,
    pub(super) config: Arc<StreamConfig>,
    pub(super) start: Offset,
    pub(super) signal: Arc<Signal>,
    core: Mutex<Core>,
}

/// Whether a stream takes appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// A release or delete is under way: wait for what comes of it.
    Stopping,
    /// No longer open here.
    Gone,
}

#[derive(Debug)]
struct Core {
    phase: Phase,
    log: StreamLog,
    /// Of the newest frame: every answer waits for it.
    newest: Option<Ticket>,
    /// Records from the committed end on.
    tail: TailBuffer,
    durable: Durable,
    /// Frames accepted and not yet committed to a segment. A frame may be empty, so offsets do not tell.
    uncommitted_frames: u64,
    /// Dedupe state as of the last commit: what the next segment builds on.
    committed_dedupe: Dedupe,
    /// The WAL of this session has the stream's name and configuration.
    introduced: bool,
    last_used: Duration,
    /// Followers were not told of the newest durable records yet.
    unannounced: bool,
    life: Life,
    /// So many of the oldest frames in the backlog were committed ahead of it.
    ahead: u64,
}

/// What readers may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durable {
    /// The tail: records below are durable.
    pub end: Offset,
    /// The record that closes the stream is durable.
    pub closed: bool,
    /// So is the one that gave it birth.
    pub born: bool,
}

/// What trying to append came to.
pub(super) enum Attempt {
    /// Decided; the answer holds once the ticket's batch is durable.
    Decided(Result<Appended, StreamError>, Option<Ticket>),
    /// Wait for the signal and look again.
    Stopping,
    /// Look the stream up anew.
    Gone,
}

/// What giving birth came to.
pub(super) enum Birth {
    /// This call did it, once the ticket's batch is durable.
    Given(Appended, Ticket),
    /// It was born before; so much is durable with the ticket.
    Before(Option<Ticket>),
    /// Nothing entered the order.
    Refused(StreamError),
    /// As in [`Attempt`].
    Stopping,
    /// As in [`Attempt`].
    Gone,
}

impl OpenStream {
    /// A stream just opened at `epoch`, as the metadata state had it.
    pub(super) fn new(
        id: StreamId,
        epoch: StreamEpoch,
        committed: &state::Stream,
        dedupe: Dedupe,
        signal: Arc<Signal>,
        now: Now,
    ) -> Self {
        let durable = Durable {
            end: committed.committed,
            closed: committed.closed,
            born: committed.unborn_since_ms.is_none(),
        };
        let log = StreamLog {
            tail: durable.end,
            closed: durable.closed,
            born: durable.born,
            dedupe: dedupe.clone(),
        };
        let core = Core {
            phase: Phase::Serving,
            log,
            newest: None,
            tail: TailBuffer::new(durable.end),
            durable,
            uncommitted_frames: 0,
            committed_dedupe: dedupe,
            introduced: false,
            last_used: now.boot,
            unannounced: false,
            life: Life::new(&committed.config, committed.deadline_ms, now),
            ahead: 0,
        };
        Self {
            id,
            epoch,
            name: committed.name.clone(),
            config: committed.config.clone(),
            start: committed.start,
            signal,
            core: Mutex::new(core),
        }
    }

    /// What readers may see now.
    pub fn durable(&self) -> Durable {
        let core = self.core.lock();
        let mut durable = core.durable;
        if mutant::on(Mutant::ReadPastDurable) {
            durable.end = core.log.tail;
        }
        durable
    }

    /// Checks and, if it may, orders one append.
    pub(super) fn append(&self, append: &Append, wal: &Wal, max_producers: usize, now: Duration) -> Attempt {
        let mut core = self.core.lock();
        match core.phase {
            Phase::Serving => {}
            Phase::Stopping => return Attempt::Stopping,
            Phase::Gone => return Attempt::Gone,
        }
        core.last_used = now;
        core.life.used(now);
        let mut ordered = None;
        let decided = match core.log.check(append, max_producers) {
            Ok(Verdict::Already(done)) => Ok(done),
            Err(refused) => Err(refused),
            Ok(Verdict::Accept) => {
                let payload = match &append.content {
                    Some(Ok(payload)) => payload.clone(),
                    Some(Err(_)) | None => Payload::Bytes(bytes::Bytes::new()),
                };
                let frame = self.frame(&core, payload, append, false);
                match core.push(frame, wal) {
                    Ok((done, kick)) => {
                        ordered = Some(kick);
                        Ok(done)
                    }
                    // It follows from no record, so it waits for none.
                    Err(refused) => return Attempt::Decided(Err(refused), None),
                }
            }
        };
        let early = ordered.is_none() && mutant::on(Mutant::DuplicateBeforeDurable);
        let attempt = Attempt::Decided(decided, core.newest.clone().filter(|_| !early));
        drop(core);
        ordered.into_iter().for_each(|kick| wal.go(kick));
        attempt
    }

    /// Orders the record that gives an unborn stream its first bytes.
    pub(super) fn give_birth(&self, first: &Append, wal: &Wal, now: Duration) -> Birth {
        let mut core = self.core.lock();
        match core.phase {
            Phase::Serving => {}
            Phase::Stopping => return Birth::Stopping,
            Phase::Gone => return Birth::Gone,
        }
        core.last_used = now;
        if core.log.born {
            return Birth::Before(core.newest.clone());
        }
        core.life.used(now);
        let payload = match &first.content {
            Some(Ok(payload)) => payload.clone(),
            Some(Err(bad)) => return Birth::Refused(bad.clone()),
            None => Payload::Bytes(bytes::Bytes::new()),
        };
        let frame = self.frame(&core, payload, first, true);
        match core.push(frame, wal) {
            Ok((done, kick)) => {
                let newest = core.newest.clone();
                drop(core);
                wal.go(kick);
                match newest {
                    Some(ticket) => Birth::Given(done, ticket),
                    None => Birth::Refused(StreamError::OutcomeUnknown),
                }
            }
            Err(refused) => Birth::Refused(refused),
        }
    }

    fn frame(&self, core: &Core, payload: Payload, append: &Append, births: bool) -> Frame {
        let intro =
            (!core.introduced).then(|| Intro { name: self.name.clone(), config: self.config.clone() });
        Frame {
            stream: self.id,
            epoch: self.epoch,
            offset: core.log.tail,
            payload,
            producer: append.producer.clone(),
            seq: append.seq.clone(),
            closes: append.closes,
            births,
            intro,
        }
    }

    /// Told by the WAL, in order, once `frame` is durable. `true`: it is the first since [`Self::announced`], which
    /// has to follow.
    pub(super) fn on_durable(&self, frame: &Frame, now: Duration) -> bool {
        let mut core = self.core.lock();
        core.life.used(now);
        core.durable.end = frame.end();
        core.durable.closed |= frame.closes;
        core.durable.born |= frame.births;
        core.tail.mark_durable(frame.end());
        !std::mem::replace(&mut core.unannounced, true)
    }

    /// Followers are told of what is durable now.
    pub(super) fn announced(&self) {
        self.core.lock().unannounced = false;
    }

    /// Dedupe state as of the last commit.
    pub(super) fn committed_dedupe(&self) -> Dedupe {
        self.core.lock().committed_dedupe.clone()
    }

    /// Told by the flusher: `frames` more are committed, up to `end`, and this is the dedupe state there.
    pub(super) fn on_committed(&self, end: Offset, frames: u64, dedupe: Dedupe) {
        let mut core = self.core.lock();
        core.uncommitted_frames = core.uncommitted_frames.saturating_sub(frames);
        core.committed_dedupe = dedupe;
        core.tail.drop_below(end);
    }

    /// Whatever of `from` on is in memory, at most about `max` bytes and never past the durable end. `None`: it begins
    /// below what is in memory.
    pub(super) fn read_tail(&self, from: Offset, max: usize, now: Duration) -> Option<Vec<Payload>> {
        let mut core = self.core.lock();
        core.last_used = now;
        core.tail.read(from, max)
    }

    /// It is used: what the log has to hear. `None`: it does not serve any more.
    pub(super) fn touch(&self, now: Now) -> Option<Tell> {
        let mut core = self.core.lock();
        if core.phase != Phase::Serving {
            return None;
        }
        core.life.used(now.boot);
        Some(tell(&self.config, core.life.recorded_ms(), now.wall_ms))
    }

    /// The log holds this deadline.
    pub(super) fn recorded(&self, deadline_ms: u64) {
        self.core.lock().life.recorded(deadline_ms);
    }

    /// Its time is over, and it is born: an unborn one ends otherwise.
    pub(super) fn is_over(&self, now: Now) -> bool {
        if self.config.expiry == Expiry::Never {
            return false;
        }
        let core = self.core.lock();
        core.log.born && core.life.is_over(&self.config, now)
    }

    /// Stops appends if the stream serves and its time is over.
    pub(super) fn stop_if_over(&self, now: Now) -> bool {
        let mut core = self.core.lock();
        let over = core.phase == Phase::Serving && core.log.born && core.life.is_over(&self.config, now);
        if over {
            core.phase = Phase::Stopping;
        }
        over
    }

    /// Of a stream that [`Self::stop_if_over`] stopped: nothing that was in flight then has used it since.
    pub(super) fn is_over_still(&self, now: Now) -> bool {
        self.core.lock().life.is_over(&self.config, now)
    }

    /// The log did not let it end.
    pub(super) fn not_over_before(&self, boot: Duration) {
        self.core.lock().life.not_before(boot);
    }

    /// How many of the oldest frames in the backlog the flusher committed ahead of it; it sets what is left of them.
    pub(super) fn committed_ahead(&self) -> u64 {
        self.core.lock().ahead
    }

    /// See [`Self::committed_ahead`].
    pub(super) fn set_committed_ahead(&self, frames: u64) {
        self.core.lock().ahead = frames;
    }

    /// The ticket of the newest frame: once it is durable, everything accepted before is.
    pub(super) fn newest(&self) -> Option<Ticket> {
        self.core.lock().newest.clone()
    }

    /// Born or about to be: a birth is in the order.
    pub(super) fn birth_ordered(&self) -> bool {
        self.core.lock().log.born
    }

    /// Stops appends (and births) for a delete, but only if no birth is in the order.
    pub(super) fn stop_if_unborn(&self) -> bool {
        let mut core = self.core.lock();
        let may = core.phase == Phase::Serving && !core.log.born;
        if may {
            core.phase = Phase::Stopping;
        }
        may
    }

    /// When it was used last, on the clock that counts from boot.
    pub(super) fn last_used(&self) -> Duration {
        self.core.lock().last_used
    }

    /// Stops appends for a delete. `false`: something else is stopping it, or it is gone.
    pub(super) fn stop(&self) -> bool {
        let mut core = self.core.lock();
        let serving = core.phase == Phase::Serving;
        if serving {
            core.phase = Phase::Stopping;
        }
        serving
    }

    /// Stops appends for a release if everything is committed and nobody used the stream since `idle_since`.
    /// Answers the tail to release at.
    pub(super) fn stop_if_settled(&self, idle_since: Option<Duration>) -> Option<Offset> {
        let mut core = self.core.lock();
        let idle = idle_since.is_none_or(|since| core.last_used <= since);
        if core.phase != Phase::Serving || core.uncommitted_frames > 0 || !idle {
            return None;
        }
        core.phase = Phase::Stopping;
        Some(core.log.tail)
    }

    /// Of a stopped stream: the tail to release at, once everything is committed.
    pub(super) fn settled_tail(&self) -> Option<Offset> {
        let core = self.core.lock();
        (core.uncommitted_frames == 0).then_some(core.log.tail)
    }

    /// The release or delete did not happen: take appends again.
    pub(super) fn resume(&self) {
        {
            let mut core = self.core.lock();
            if core.phase == Phase::Stopping {
                core.phase = Phase::Serving;
            }
        }
        self.signal.wake();
    }

    /// No longer open here.
    pub(super) fn gone(&self) {
        self.core.lock().phase = Phase::Gone;
        self.signal.wake();
    }

    /// Still open here.
    pub(super) fn is_serving(&self) -> bool {
        self.core.lock().phase == Phase::Serving
    }
}

impl Core {
    /// Puts a checked frame into the WAL's order and into the log; if the WAL does not take it, nothing changed. The kick is
    /// for when the lock is released.
    fn push(&mut self, frame: Frame, wal: &Wal) -> Result<(Appended, Kick), StreamError> {
        let (ticket, kick) = wal.order(frame.clone()).map_err(|busy| match busy {
            WalBusy::TooLarge(bytes) => StreamError::Invalid(format!(
                "the body takes {bytes} bytes in the WAL, which is more than one record may: send it in parts"
            )),
            busy @ (WalBusy::Full | WalBusy::Stalled(_) | WalBusy::Sealed) => {
                StreamError::unavailable(busy.to_string())
            }
        })?;
        self.introduced = true;
        self.newest = Some(ticket);
        self.uncommitted_frames += 1;
        let done = self.log.accept(&frame);
        self.tail.push(frame.payload);
        Ok((done, kick))
    }
}
