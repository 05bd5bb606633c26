//! What clients were told, and where that must be found from then on.
//!
//! Bookkeeping of the model, not of the nodes: nothing here decides what happens next. Called by `nodes` when something
//! is acknowledged, readable or committed; read by `properties`.

use crate::state::{Append, Frame, Life, Ownership, RECORDS, SessionNo, State, StreamId};

impl State {
    /// An append is acknowledged at an offset.
    pub fn note_ack(&mut self, session: SessionNo, frame: Frame) {
        let told = &mut self.told[frame.stream.index()];
        let acker = &mut told.acker[usize::from(frame.epoch - 1)];
        self.broken.i1 |= acker.is_some_and(|other| other != session);
        *acker = Some(session);

        let offset = usize::from(frame.offset);
        let committed = &self.metadata.streams[frame.stream.index()].committed;
        self.broken.i4 |= (0..RECORDS).any(|o| {
            o != offset && (told.acked[o] == Some(frame.append) || committed.get(o) == Some(&frame.append))
        });
        let stands = committed.get(offset).copied().or(told.acked[offset]);
        self.broken.i2 |= stands.is_some_and(|other| other != frame.append);
        if committed.get(offset).is_none() {
            told.acked[offset] = Some(frame.append);
        }
    }

    /// A reader sees a record. The model's readers read everything as soon as they may: no later read can ask for more.
    pub fn note_read(&mut self, frame: Frame) {
        let offset = usize::from(frame.offset);
        let committed = self.metadata.streams[frame.stream.index()].committed.get(offset).copied();
        let read = &mut self.told[frame.stream.index()].read[offset];
        self.broken.i3 |= committed.or(*read).is_some_and(|other| other != frame.append);
        if committed.is_none() {
            *read = Some(frame.append);
        }
    }

    /// Committed records are readable by all. They never change, so what was told of them before is compared once.
    pub fn note_committed(&mut self) {
        for (told, stream) in self.told.iter_mut().zip(&self.metadata.streams) {
            for (offset, committed) in stream.committed.iter().enumerate() {
                self.broken.i2 |= told.acked[offset].take().is_some_and(|a| a != *committed);
                self.broken.i3 |= told.read[offset].take().is_some_and(|r| r != *committed);
            }
        }
    }

    /// The record is in the part of a WAL that is not covered by segments yet, of a session at which the stream is
    /// open and that is live or waits for recovery; and a recovery that begins now reads it.
    pub fn in_wal(&self, stream: StreamId, offset: u8, append: Append) -> bool {
        let at = &self.metadata.streams[stream.index()];
        let Ownership::Open(owner) = at.ownership else { return false };
        let session = self.metadata.sessions[owner.index()];
        if !matches!(session.life, Life::Live | Life::Ended) {
            return false;
        }
        let wal = &self.wals[owner.index()];
        let end = wal.end_of_objects(session.wal_start);
        let frame = Frame { stream, epoch: at.epoch, offset, append };
        wal.sent[usize::from(session.wal_start)..usize::from(end)].contains(&frame)
    }
}
