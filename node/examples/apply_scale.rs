//! What the metadata state costs at scale: memory per stream, apply rate, snapshot size and time.
//!
//! `cargo run --release -p weir --example apply_scale -- [streams = 1000000] [extents per stream = 1]`
//!
//! Memory is the process's resident set, as the kernel counts it. Every stream is created, opened, committed to in as
//! many segments as asked for, and released, by one session, in log entries of 500 commands (100 where each names a thousand streams).

#![allow(clippy::print_stdout, reason = "it is a report")]

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weir::clock::Clock;
use weir::metadata::apply::apply;
use weir::metadata::codec::{decode_batch, encode_batch, read_state, state_hash, write_state};
use weir::metadata::command::*;
use weir::metadata::state::State;
use weir_api::{ClusterUid, NodeEpoch, Nonce, Offset, RaftId, SessionId, Slots, StreamEpoch, StreamId};

/// An entry of the log holds about 1 MiB at most.
const SMALL: u64 = 500;
const LARGE: u64 = 100;

struct Scale {
    clock: Clock,
    state: State,
    session: SessionId,
    number: u64,
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let streams: u64 = args.next().map_or(Ok(1_000_000), |n| n.parse()).context("number of streams")?;
    let extents: u64 = args.next().map_or(Ok(1), |n| n.parse()).context("extents per stream")?;
    let mut s = Scale::found()?;
    let empty = resident()?;
    let per_stream = |what: &str| -> Result<()> {
        let bytes = resident()?.saturating_sub(empty);
        println!(
            "{what}: {:.0} MiB resident, {} bytes per stream",
            bytes as f64 / 1048576.0,
            bytes / streams.max(1)
        );
        Ok(())
    };

    s.phase("create", SMALL, streams, |i| Command::Create {
        name: format!("tenant-{:04}/orders-{i:08}", i % 1000).into(),
        config: StreamConfig { content_type: "application/json".into(), expiry: Expiry::Never },
        closed: false,
        unborn: false,
    })?;
    per_stream("created")?;
    s.phase("open", SMALL, streams, |i| Command::Open { stream: StreamId(i + 1) })?;
    for round in 0..extents {
        let commands = streams.div_ceil(1000);
        s.phase("commit (1,000 ranges each)", LARGE, commands, |c| commit(round, c, commands, streams))?;
    }
    per_stream("committed")?;
    let releases = streams.div_ceil(1000);
    s.phase("release (1,000 streams each)", LARGE, releases, |c| {
        let of = |id| (StreamId(id), StreamEpoch(1), Offset(extents * 100));
        Command::Release { streams: ids(c, streams).map(of).collect() }
    })?;
    per_stream("released")?;
    s.snapshot(streams)
}

/// The stream ids of the c-th thousand.
fn ids(c: u64, streams: u64) -> impl Iterator<Item = u64> {
    c * 1000 + 1..=((c + 1) * 1000).min(streams)
}

fn commit(round: u64, c: u64, commands: u64, streams: u64) -> Command {
    let number = round * commands + c;
    let range = |id| SegmentRange {
        stream: StreamId(id),
        epoch: StreamEpoch(1),
        start: Offset(round * 100),
        end: Offset((round + 1) * 100),
        closed: false,
        born: false,
        dedupe: true,
    };
    Command::CommitSegment {
        origin: CommitOrigin::Own,
        segment: Some(NewSegment { number, bytes: 64 << 20 }),
        ranges: ids(c, streams).map(range).collect(),
        wal_covered: Some(number),
    }
}

impl Scale {
    fn found() -> Result<Self> {
        let session = SessionId { node: "demo-0".parse()?, epoch: NodeEpoch(1_700_000_000_000) };
        let registration = Registration {
            session: session.clone(),
            nonce: Nonce(1),
            incarnation: "pod".parse()?,
            raft_id: RaftId(1),
            boot_id: None,
            http_url: "http://demo-0:4437".into(),
            peer_address: "demo-0:4438".into(),
            slots: Slots::ONE,
            formats: (1, 1),
        };
        let founding =
            [Command::Found { uid: ClusterUid(1), identity: None, size: 1 }, Command::Register(registration)];
        let commands = founding.into_iter().map(|command| Envelope { request: None, command }).collect();
        let mut state = State::default();
        apply(&mut state, &Batch { time_ms: 1_700_000_000_000, commands });
        Ok(Self { clock: Clock::default(), state, session, number: 0 })
    }

    fn envelope(&mut self, command: Command) -> Envelope {
        self.number += 1;
        let lowest_unanswered = self.number.saturating_sub(10).max(1);
        let request = RequestId { session: self.session.clone(), number: self.number, lowest_unanswered };
        Envelope { request: Some(request), command }
    }

    /// Applies `count` commands as they come from the log, and says how fast.
    fn phase(&mut self, what: &str, group: u64, count: u64, command: impl Fn(u64) -> Command) -> Result<()> {
        let (mut applying, mut decoding) = (Duration::ZERO, Duration::ZERO);
        let mut next = 0;
        while next < count {
            let until = count.min(next + group);
            let commands = (next..until).map(|i| self.envelope(command(i))).collect();
            let bytes = encode_batch(&Batch { time_ms: 1_700_000_000_000, commands }, 1);
            let start = self.clock.monotonic();
            let batch = decode_batch(&bytes)?;
            decoding += start.elapsed();
            let start = self.clock.monotonic();
            let outcomes = apply(&mut self.state, &batch);
            applying += start.elapsed();
            if let Some(refused) = outcomes.iter().find(|o| o.is_err()) {
                bail!("{what}: {refused:?}");
            }
            next = until;
        }
        let rate = count as f64 / applying.as_secs_f64();
        println!("{what}: {count} commands, {rate:.0} per second, {applying:.2?} (decoding {decoding:.2?})");
        Ok(())
    }

    fn snapshot(&self, streams: u64) -> Result<()> {
        let start = self.clock.monotonic();
        let handle = self.state.clone();
        println!("clone: {:.2?}", start.elapsed());
        let before = resident()?;
        let start = self.clock.monotonic();
        let mut count = Count(0);
        write_state(&handle, &mut count)?;
        let grown = resident()?.saturating_sub(before);
        let size = count.0 as f64 / 1048576.0;
        println!(
            "write: {size:.0} MiB, {} bytes per stream, {:.2?}, {} KiB more resident",
            count.0 / streams.max(1),
            start.elapsed(),
            grown / 1024
        );
        let start = self.clock.monotonic();
        let hash = state_hash(&handle);
        println!("hash: {hash:016x}, {:.2?}", start.elapsed());
        let mut bytes = Vec::new();
        write_state(&handle, &mut bytes)?;
        let before = resident()?;
        let start = self.clock.monotonic();
        let restored = read_state(&mut bytes.as_slice())?;
        let took = start.elapsed();
        let grown = resident()?.saturating_sub(before);
        println!("read: {took:.2?}, {} bytes per stream resident", grown / streams.max(1));
        if state_hash(&restored) != hash {
            bail!("the restored state is another one");
        }
        Ok(())
    }
}

struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes this process has in memory.
fn resident() -> Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).context("the second field is the resident set")?.parse()?;
    Ok(pages * 4096)
}
