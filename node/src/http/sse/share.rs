//! Pieces of streams that several readers send at about the same time, encoded once for all of them.
//!
//! Invariant: readers at the same offset get the same piece, and the same bytes of it; what a piece holds is durable.
//! The shelf of a stream lives as long as somebody follows it, and holds a few pieces at most: one that all have
//! taken goes at once, so that a stream at rest costs nothing. Used by `events`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use weir_api::Offset;

use super::encode::{self, Coding, Control};
use crate::storage::record::Payload;
use crate::streams::{Claim, Weaks};

/// The shelves of all streams that are followed here.
pub(in crate::http) type Shelves = Weaks<Shelf>;

/// Pieces on one shelf.
const MOST_PIECES: usize = 4;
/// Their content together, bytes; the newest may be larger.
const MOST_BYTES: usize = 64 << 10;

/// One stream's pieces.
#[derive(Debug, Default)]
pub(in crate::http) struct Shelf {
    readers: AtomicUsize,
    pieces: Mutex<VecDeque<Kept>>,
}

#[derive(Debug)]
struct Kept {
    piece: Arc<Piece>,
    taken: usize,
}

/// A run of records.
#[derive(Debug)]
pub(super) struct Piece {
    start: Offset,
    /// The offset after it.
    pub(super) next: Offset,
    coding: Coding,
    parts: Vec<Payload>,
    /// By what is claimed at its end.
    wires: [OnceLock<Wire>; 3],
}

/// A piece as it is sent: its data event and the control event after it.
#[derive(Debug)]
pub(super) struct Wire {
    bytes: Bytes,
    /// Where the control event begins.
    data: usize,
    /// In that event.
    cursor: u64,
}

/// A reader's share in a shelf.
#[derive(Debug)]
pub(super) struct Place(Arc<Shelf>);

impl Place {
    pub(super) fn at(shelf: Arc<Shelf>) -> Self {
        shelf.readers.fetch_add(1, Ordering::Relaxed);
        Self(shelf)
    }

    /// The piece that begins at `start`: one that another reader made, or what `make` finds.
    pub(super) fn take<E>(
        &self,
        start: Offset,
        make: impl FnOnce() -> Result<Piece, E>,
    ) -> Result<Arc<Piece>, E> {
        let readers = self.0.readers.load(Ordering::Relaxed);
        let mut pieces = self.0.pieces.lock();
        if let Some(at) = pieces.iter().position(|kept| kept.piece.start == start) {
            pieces[at].taken += 1;
            let piece = pieces[at].piece.clone();
            if pieces[at].taken >= readers {
                pieces.remove(at);
            }
            return Ok(piece);
        }
        let piece = Arc::new(make()?);
        if readers > 1 {
            pieces.retain(|kept| kept.taken < readers);
            pieces.push_back(Kept { piece: piece.clone(), taken: 1 });
            let mut bytes: usize = pieces.iter().map(|kept| kept.piece.size()).sum();
            while pieces.len() > 1 && (pieces.len() > MOST_PIECES || bytes > MOST_BYTES) {
                bytes -= pieces.pop_front().map_or(0, |old| old.piece.size());
            }
        }
        Ok(piece)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.0.readers.fetch_sub(1, Ordering::Relaxed) <= 2 {
            // The one that stays, if any, shares with nobody.
            self.0.pieces.lock().clear();
        }
    }
}

impl Piece {
    /// `parts` hold something, and begin at `start`.
    pub(super) fn new(start: Offset, coding: Coding, parts: Vec<Payload>) -> Self {
        let length: u64 = parts.iter().map(Payload::length).sum();
        Self { start, next: Offset(start.0 + length), coding, parts, wires: Default::default() }
    }

    fn size(&self) -> usize {
        self.parts.iter().map(Payload::size).sum()
    }

    /// The piece with `claim` made at its end. Only who is the first to ask says what the cursor is.
    pub(super) fn wire(&self, claim: Claim, cursor: u64) -> &Wire {
        let slot = match claim {
            Claim::Nothing => 0,
            Claim::UpToDate => 1,
            Claim::Closed => 2,
        };
        self.wires[slot].get_or_init(|| {
            let mut out = Vec::new();
            encode::data(&mut out, self.coding, &self.parts);
            let data = out.len();
            encode::control(&mut out, &Control { next: self.next, claim, cursor });
            out.shrink_to_fit();
            Wire { bytes: out.into(), data, cursor }
        })
    }
}

impl Wire {
    /// Data and control in one; what its cursor is.
    pub(super) fn whole(&self) -> (Bytes, u64) {
        (self.bytes.clone(), self.cursor)
    }

    /// The data event alone.
    pub(super) fn data(&self) -> &[u8] {
        &self.bytes[..self.data]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, text: &str) -> Piece {
        Piece::new(Offset(start), Coding::Text, vec![Payload::Bytes(Bytes::copy_from_slice(text.as_bytes()))])
    }

    fn made(start: u64) -> Result<Piece, ()> {
        Ok(piece(start, "text"))
    }

    fn none() -> Result<Piece, ()> {
        Err(())
    }

    #[test]
    fn one_encoding_serves_all_and_goes_when_all_have_it() {
        let shelf = Arc::new(Shelf::default());
        let places: Vec<Place> = (0..3).map(|_| Place::at(shelf.clone())).collect();
        let first = places[0].take(Offset(5), || made(5)).unwrap();
        let (bytes, _) = first.wire(Claim::UpToDate, 8).whole();
        for place in &places[1..] {
            let same = place.take(Offset(5), none).unwrap();
            assert!(Arc::ptr_eq(&first, &same));
            let (again, cursor) = same.wire(Claim::UpToDate, 9).whole();
            assert_eq!((again.as_ptr(), cursor), (bytes.as_ptr(), 8), "encoded once");
        }
        assert!(shelf.pieces.lock().is_empty());
        assert_eq!(first.next, Offset(9));
        let (behind, _) = first.wire(Claim::Nothing, 8).whole();
        assert_ne!(behind, bytes, "who is behind by now is not told that it is up to date");
    }

    #[test]
    fn a_shelf_is_bounded_and_its_oldest_goes_first() {
        let shelf = Arc::new(Shelf::default());
        let (slow, fast) = (Place::at(shelf.clone()), Place::at(shelf.clone()));
        for n in 0..10 {
            fast.take(Offset(n), || made(n)).unwrap();
        }
        assert_eq!(shelf.pieces.lock().len(), MOST_PIECES);
        assert_eq!(slow.take(Offset(5), none).unwrap_err(), ());
        assert!(slow.take(Offset(9), none).is_ok());
        let big = "x".repeat(MOST_BYTES);
        fast.take(Offset(10), || Ok::<_, ()>(piece(10, &big))).unwrap();
        assert_eq!(shelf.pieces.lock().len(), 1);
        drop(slow);
        assert!(shelf.pieces.lock().is_empty(), "one reader shares with nobody");
        fast.take(Offset(11), || made(11)).unwrap();
        assert!(shelf.pieces.lock().is_empty());
    }
}
