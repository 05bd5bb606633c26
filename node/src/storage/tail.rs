//! The in-memory run of one stream's records that are not yet in segments.
//!
//! Invariants: the buffer is gapless from `start` to `end`; a read never passes the durable end (I3) and never copies
//! content; what is not durable is never dropped. Pure. One per open stream, owned by its task: it pushes under the
//! same short lock under which the frame enters the WAL, marks durable as batches are stored, and drops what a segment
//! commit has covered.

use std::collections::VecDeque;

use weir_api::Offset;

use crate::mutant::{self, Mutant};
use crate::storage::record::Payload;

#[cfg(test)]
mod tests;

/// See the module.
#[derive(Debug, Clone)]
pub struct TailBuffer {
    /// Not empty payloads, in order, gapless.
    runs: VecDeque<Run>,
    /// The offset after the last.
    end: Offset,
    /// Readers stop here.
    durable: Offset,
    /// The sum of the payloads' sizes.
    bytes: usize,
}

#[derive(Debug, Clone)]
struct Run {
    start: Offset,
    payload: Payload,
}

impl Run {
    fn end(&self) -> Offset {
        Offset(self.start.0 + self.payload.length())
    }
}

impl TailBuffer {
    /// An empty buffer of a stream whose tail, all durable, is `at`.
    pub fn new(at: Offset) -> Self {
        Self { runs: VecDeque::new(), end: at, durable: at, bytes: 0 }
    }

    /// The first offset held; the end if nothing is.
    pub fn start(&self) -> Offset {
        self.runs.front().map_or(self.end, |run| run.start)
    }

    /// The offset after the last one pushed.
    pub fn end(&self) -> Offset {
        self.end
    }

    /// The offset after the last one that readers may see.
    pub fn durable(&self) -> Offset {
        self.durable
    }

    /// Bytes of payload held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a payload at the end and returns the offset it got. An empty one changes nothing.
    pub fn push(&mut self, payload: Payload) -> Offset {
        let start = self.end;
        if payload.length() > 0 {
            self.bytes += payload.size();
            let run = Run { start, payload };
            self.end = run.end();
            self.runs.push_back(run);
        }
        start
    }

    /// Everything below `to` is stored. Never goes back, never passes the end.
    pub fn mark_durable(&mut self, to: Offset) {
        self.durable = self.durable.max(to.min(self.end));
    }

    /// What is durable from `from` on: whole elements, at most `max_bytes` but at least one element if there is one.
    /// `None` if `from` lies below the buffer: those records are in segments. Empty at or beyond the durable end.
    pub fn read(&self, from: Offset, max_bytes: usize) -> Option<Vec<Payload>> {
        if from < self.start() {
            return None;
        }
        let durable = if mutant::on(Mutant::ReadPastDurable) { self.end } else { self.durable };
        let mut parts = Vec::new();
        let mut left = max_bytes;
        let first = self.runs.partition_point(|run| run.end() <= from);
        for run in self.runs.range(first..).take_while(|run| run.start < durable) {
            let lo = from.0.saturating_sub(run.start.0);
            let hi = durable.min(run.end()).0 - run.start.0;
            if lo >= hi {
                break;
            }
            let mut fits = run.payload.fitting(lo, hi, left);
            if fits == 0 && parts.is_empty() {
                fits = 1;
            }
            if fits == 0 {
                break;
            }
            let part = run.payload.slice(lo, lo + fits);
            left = left.saturating_sub(part.size());
            parts.push(part);
            if lo + fits < hi {
                break;
            }
        }
        Some(parts)
    }

    /// Segments hold everything below `committed`: drops the payloads that lie wholly below it and are durable. One
    /// that `committed` cuts stays whole, because a part of it would keep all of its memory anyway.
    pub fn drop_below(&mut self, committed: Offset) {
        let floor = committed.min(self.durable);
        while let Some(run) = self.runs.front()
            && run.end() <= floor
        {
            self.bytes -= run.payload.size();
            self.runs.pop_front();
        }
    }
}
