//! Questions to the state that more than one part asks, so that all answer them alike.
//!
//! Invariant: reads only; each costs O(log n). Used by `apply`, routing, streams, recovery and admin.

use weir_api::{SessionId, StreamEpoch, StreamId};

use super::command::{Expiry, Ineligible, Owner, StreamConfig};
use super::state::{Ownership, Session, SessionNo, State, Stream, Transfer};
use crate::format;

/// What a stream's recorded ownership amounts to now, given how its session fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Placed at a live session that has not opened it.
    PlacedAt(SessionNo),
    /// Open at a live session, at this epoch.
    OpenAt(SessionNo, StreamEpoch),
    /// Open at a session that has ended and is not recovered.
    AwaitingRecovery(SessionNo),
    /// Nobody has it: released, its session recovered, or placed at a session that ended without opening it.
    Released,
}

impl State {
    /// The version in which everything is written.
    pub fn format(&self) -> u32 {
        self.cluster.as_ref().map_or(format::FOUNDED, |c| c.format)
    }

    /// A session that is alive or awaits recovery.
    pub fn session(&self, no: SessionNo) -> Option<&Session> {
        self.sessions.get(&no)
    }

    /// A session that is alive.
    pub fn live(&self, no: SessionNo) -> Option<&Session> {
        self.session(no).filter(|s| s.ended.is_none())
    }

    /// A session that is alive or awaits recovery, by node and epoch.
    pub fn session_by_id(&self, id: &SessionId) -> Option<(SessionNo, &Session)> {
        let no = *self.session_numbers.get(id)?;
        Some((no, self.session(no)?))
    }

    /// A session that is alive, by node and epoch.
    pub fn live_by_id(&self, id: &SessionId) -> Option<(SessionNo, &Session)> {
        self.session_by_id(id).filter(|(_, s)| s.ended.is_none())
    }

    /// Whether commands of this session still count.
    pub fn is_current(&self, id: &SessionId) -> bool {
        self.live_by_id(id).is_some()
    }

    /// The stream that has a name, unborn ones and tombstones included.
    pub fn stream_by_name(&self, name: &str) -> Option<(StreamId, &Stream)> {
        let id = *self.names.get(name)?;
        Some((id, self.stream(id)?))
    }

    /// A stream by number, unborn ones and tombstones included.
    pub fn stream(&self, id: StreamId) -> Option<&Stream> {
        self.streams.get(&id).map(AsRef::as_ref)
    }

    /// Where a stream is.
    pub fn disposition(&self, id: StreamId) -> Option<Disposition> {
        Some(self.disposition_of(self.stream(id)?))
    }

    /// See [`State::disposition`].
    pub fn disposition_of(&self, stream: &Stream) -> Disposition {
        match stream.ownership {
            Ownership::Released => Disposition::Released,
            Ownership::Placed(no) => match self.live(no) {
                Some(_) => Disposition::PlacedAt(no),
                None => Disposition::Released,
            },
            Ownership::Open(no) => match self.session(no) {
                Some(s) if s.ended.is_none() => Disposition::OpenAt(no, stream.epoch),
                Some(_) => Disposition::AwaitingRecovery(no),
                None => Disposition::Released,
            },
        }
    }

    /// The pending transfer of a stream that is open, if there is one.
    pub fn transfer(&self, id: StreamId) -> Option<&Transfer> {
        self.transfers.get(&id)
    }

    /// The streams that are meant to leave a session or to come to it.
    pub fn transfers_of(&self, no: SessionNo) -> impl Iterator<Item = (StreamId, &Transfer)> {
        let sides = self.transfer_sides.range((no, StreamId(0))..=(no, StreamId(u64::MAX)));
        sides.filter_map(|(_, id)| Some((*id, self.transfers.get(id)?)))
    }

    /// Why a node's session takes no streams now, if so.
    pub fn ineligible(&self, id: &SessionId) -> Option<Ineligible> {
        let node = self.nodes.get(&id.node);
        match node.filter(|_| self.is_current(id)) {
            None => Some(Ineligible::NotAlive),
            Some(node) if node.draining => Some(Ineligible::Draining),
            Some(node) if node.slots.get() == 0 => Some(Ineligible::NoSlots),
            Some(_) => None,
        }
    }

    /// The live session that has a stream, if one does.
    pub fn owner_of(&self, stream: &Stream) -> Option<Owner> {
        let (no, open) = match self.disposition_of(stream) {
            Disposition::PlacedAt(no) => (no, None),
            Disposition::OpenAt(no, epoch) => (no, Some(epoch)),
            Disposition::AwaitingRecovery(_) | Disposition::Released => return None,
        };
        Some(Owner { session: self.session(no)?.id.clone(), open })
    }
}

impl StreamConfig {
    /// The deadline that a touch at `now_ms` gives a stream of this configuration. A TTL is recorded with a tenth on
    /// top, so that not every touch needs a command.
    pub fn deadline_from(&self, now_ms: u64) -> Option<u64> {
        match self.expiry {
            Expiry::Never => None,
            Expiry::Ttl(seconds) => {
                let ttl = seconds.saturating_mul(1000);
                Some(now_ms.saturating_add(ttl).saturating_add(ttl / 10))
            }
            Expiry::At(ms) => Some(ms),
        }
    }

    /// When a stream ends that was not touched since the touch that gave it this deadline.
    pub fn end_from(&self, deadline_ms: u64) -> u64 {
        match self.expiry {
            Expiry::Never | Expiry::At(_) => deadline_ms,
            Expiry::Ttl(seconds) => deadline_ms.saturating_sub(seconds.saturating_mul(1000) / 10),
        }
    }
}
