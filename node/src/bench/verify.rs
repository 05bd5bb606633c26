//! Reads streams back and compares every byte, in order.
//!
//! Invariant: each record that was acknowledged is there once, whole, and after those its connection sent before; what was
//! never sent is not there. Of records whose outcome is unknown each may be there, once. Called by `append` and `mixed`.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::content::{self, Maker};
use super::report::Verified;
use super::setup;
use super::wire::{Conn, Look};
use super::{BenchError, Common};

/// Read at a time.
const BUFFER: usize = 256 << 10;

/// What is known of one request's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Surely,
    Maybe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    sent: Sent,
    seen: bool,
}

/// What one connection sent to one stream.
#[derive(Debug, Default)]
struct Lane {
    records: Vec<Record>,
    /// What is found next has at least this number.
    next: u64,
}

/// What was sent, by stream and connection.
#[derive(Debug, Default)]
pub(super) struct Verifier {
    streams: HashMap<usize, HashMap<u32, Lane>>,
}

impl Verifier {
    /// Notes a request; numbers of one lane come in order, from 0.
    pub(super) fn sent(&mut self, stream: usize, lane: u32, number: u64, sent: Sent) {
        let lane = self.streams.entry(stream).or_default().entry(lane).or_default();
        debug_assert_eq!(lane.records.len() as u64, number, "numbers are gapless");
        lane.records.push(Record { sent, seen: false });
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (stream, lanes) in other.streams {
            self.streams.entry(stream).or_default().extend(lanes);
        }
    }

    /// Reads all streams back.
    pub(super) async fn check(
        self,
        common: &Common,
        names: &Arc<[String]>,
        maker: &Arc<Maker>,
    ) -> Result<Verified, BenchError> {
        let workers = common.connections.clamp(1, 8);
        let mut shares: Vec<Vec<(usize, Stream)>> = (0..workers).map(|_| Vec::new()).collect();
        for (n, (stream, lanes)) in self.streams.into_iter().enumerate() {
            shares[n % workers].push((stream, Stream::new(lanes, maker.clone())));
        }
        let mut tasks = JoinSet::new();
        for share in shares {
            let (common, names) = (common.clone(), names.clone());
            tasks.spawn(async move {
                let mut found = Verified::default();
                for (at, mut stream) in share {
                    let bytes = read_all(&common, &names[at], &mut |piece| stream.feed(piece)).await?;
                    found.bytes += bytes;
                    stream.finish(&mut found);
                }
                Ok::<_, BenchError>(found)
            });
        }
        let mut all = Verified::default();
        while let Some(done) = tasks.join_next().await {
            let failed = |e| BenchError::Server(format!("a task of the client failed: {e}"));
            all.add(&done.map_err(failed)??);
        }
        Ok(all)
    }
}

/// Reads a stream from its start to its tail; answers how many bytes came.
pub(super) async fn read_all(
    common: &Common,
    name: &str,
    each: &mut impl FnMut(&[u8]),
) -> Result<u64, BenchError> {
    let failed = |e| BenchError::Server(format!("reading {name} back failed: {e}"));
    let mut conn = setup::connect(common, BUFFER).await?;
    let mut offset = "-1".to_owned();
    let mut bytes = 0;
    loop {
        let request = common.target.request("GET", name, &format!("?offset={offset}"), "");
        let answer = conn
            .exchange_with(&request, Look::Progress, |piece| {
                bytes += piece.len() as u64;
                each(piece);
            })
            .await
            .map_err(failed)?;
        if answer.status != 200 {
            let status = answer.status;
            return Err(BenchError::Server(format!("reading {name} back was answered {status}")));
        }
        let next = answer.next.ok_or_else(|| {
            BenchError::Server(format!("the answer to a read of {name} lacks Stream-Next-Offset"))
        })?;
        if answer.up_to_date || answer.closed {
            return Ok(bytes);
        }
        if next == offset {
            return Err(BenchError::Server(format!("reads of {name} do not get past offset {offset}")));
        }
        offset = next;
        if !conn.reusable() {
            conn = Conn::open(&common.target, BUFFER, common.timeout).await.map_err(failed)?;
        }
    }
}

/// A stream as it is read.
struct Stream {
    lanes: HashMap<u32, Lane>,
    maker: Arc<Maker>,
    record: Vec<u8>,
    expected: Vec<u8>,
    found: Verified,
}

impl Stream {
    fn new(lanes: HashMap<u32, Lane>, maker: Arc<Maker>) -> Self {
        let expected = vec![0; maker.size()];
        Self {
            lanes,
            record: Vec::with_capacity(expected.len()),
            expected,
            maker,
            found: Verified::default(),
        }
    }

    fn feed(&mut self, mut piece: &[u8]) {
        let size = self.expected.len();
        while !piece.is_empty() {
            if self.record.is_empty() && self.maker.is_json() {
                // Between the elements of an array.
                let skip = piece.iter().position(|b| *b == b'"').unwrap_or(piece.len());
                piece = &piece[skip..];
            }
            let take = piece.len().min(size - self.record.len());
            self.record.extend_from_slice(&piece[..take]);
            piece = &piece[take..];
            if self.record.len() == size {
                self.judge();
                self.record.clear();
            }
        }
    }

    fn judge(&mut self) {
        let inner = self.record.strip_prefix(b"\"").unwrap_or(&self.record);
        let Some((lane, number)) = content::mark(inner) else {
            self.found.damaged += 1;
            return;
        };
        self.maker.fill(lane, number, &mut self.expected);
        if self.expected != self.record {
            self.found.damaged += 1;
            return;
        }
        let lane = self.lanes.get_mut(&lane);
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let Some((lane, record)) = lane.and_then(|l| l.records.get(at).copied().map(|r| (l, r))) else {
            self.found.foreign += 1;
            return;
        };
        if record.seen {
            self.found.doubled += 1;
        } else if number < lane.next {
            self.found.disordered += 1;
        }
        lane.records[at].seen = true;
        lane.next = lane.next.max(number + 1);
        self.found.records += 1;
    }

    fn finish(mut self, into: &mut Verified) {
        if !self.record.is_empty() {
            self.found.damaged += 1;
        }
        let all = self.lanes.values().flat_map(|l| &l.records);
        self.found.lost += all.filter(|r| r.sent == Sent::Surely && !r.seen).count() as u64;
        into.add(&self.found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lane 3 sent numbers 0 to 3, number 2 without an answer.
    fn stream(json: bool) -> (Stream, Vec<Vec<u8>>) {
        let maker = Arc::new(Maker::new(40, json));
        let mut verifier = Verifier::default();
        for number in 0..4 {
            verifier.sent(0, 3, number, if number == 2 { Sent::Maybe } else { Sent::Surely });
        }
        let lanes = verifier.streams.remove(&0).unwrap();
        let records = (0..4).map(|n| maker.make(3, n)).collect();
        (Stream::new(lanes, maker), records)
    }

    fn judged(json: bool, content: impl Fn(&[Vec<u8>]) -> Vec<u8>) -> Verified {
        let (mut stream, records) = stream(json);
        // Cut anywhere, as the network does.
        for piece in content(&records).chunks(7) {
            stream.feed(piece);
        }
        let mut found = Verified::default();
        stream.finish(&mut found);
        found
    }

    #[test]
    fn what_was_sent_is_found_whether_the_unknown_one_is_there_or_not() {
        let all = judged(false, |r| r.concat());
        assert_eq!(all, Verified { records: 4, ..Verified::default() });
        let without = judged(false, |r| [r[0].clone(), r[1].clone(), r[3].clone()].concat());
        assert_eq!(without, Verified { records: 3, ..Verified::default() });
        let json = judged(true, |r| [b"[", r.join(&b", "[..]).as_slice(), b"]"].concat());
        assert_eq!(json, Verified { records: 4, ..Verified::default() });
    }

    #[test]
    fn every_kind_of_fault_is_found() {
        assert_eq!(judged(false, |r| [r[0].clone(), r[2].clone(), r[3].clone()].concat()).lost, 1);
        assert_eq!(judged(false, |r| [r.concat(), r[1].clone()].concat()).doubled, 1);
        assert_eq!(judged(false, |r| [&r[1], &r[0], &r[2], &r[3]].map(Clone::clone).concat()).disordered, 1);
        let cut = judged(false, |r| r.concat()[..150].to_vec());
        assert_eq!((cut.damaged, cut.lost), (1, 1));
        let flipped = judged(false, |r| {
            let mut all = r.concat();
            all[39] ^= 1;
            all
        });
        assert_eq!((flipped.damaged, flipped.lost), (1, 1));
        let foreign = judged(false, |r| [r.concat(), Maker::new(40, false).make(9, 0)].concat());
        assert_eq!(foreign.foreign, 1);
    }
}
