//! What the metadata state costs at scale: memory per stream, apply rate, snapshot size and time.
//!
//! `cargo run --release -p weir --example apply_scale -- [streams = 1000000] [extents per stream = 1] [nodes = 1]`
//!
//! Memory is the process's resident set, as the kernel counts it. Every stream is created at the nodes in turns, opened,
//! committed to in as many segments as asked for, and released by the node where it was placed, in log entries of 500
//! commands (100 where each names a thousand streams).

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
const SMALL: usize = 500;
const LARGE: usize = 100;

struct Scale {
    clock: Clock,
    state: State,
    nodes: Vec<Node>,
}

/// A node's session, and the number of its last request.
struct Node {
    session: SessionId,
    number: u64,
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let streams: u64 = args.next().map_or(Ok(1_000_000), |n| n.parse()).context("number of streams")?;
    let extents: u64 = args.next().map_or(Ok(1), |n| n.parse()).context("extents per stream")?;
    let nodes: usize = args.next().map_or(Ok(1), |n| n.parse()).context("number of nodes")?;
    let nodes = nodes.max(1);
    let mut s = Scale::found(nodes)?;
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

    let creates = (0..streams).map(|i| {
        let create = Command::Create {
            name: format!("tenant-{:04}/orders-{i:08}", i % 1000).into(),
            config: StreamConfig { content_type: "application/json".into(), expiry: Expiry::Never },
            closed: false,
            unborn: false,
        };
        (i as usize % nodes, create)
    });
    s.phase("create", SMALL, creates)?;
    per_stream("created")?;
    let placed = s.placed(streams)?;
    let opens = turns(&placed, 1).map(|(node, ids)| (node, Command::Open { stream: ids[0] }));
    s.phase("open", SMALL, opens)?;
    for round in 0..extents {
        let commits = turns(&placed, 1000).map(|(node, ids)| (node, commit(round, ids)));
        s.phase("commit (up to 1,000 ranges each)", LARGE, commits)?;
    }
    per_stream("committed")?;
    let releases = turns(&placed, 1000).map(|(node, ids)| {
        let of = |id: &StreamId| (*id, StreamEpoch(1), Offset(extents * 100));
        (node, Command::Release { streams: ids.iter().map(of).collect() })
    });
    s.phase("release (up to 1,000 streams each)", LARGE, releases)?;
    per_stream("released")?;
    s.snapshot(streams)
}

/// Each node's streams, up to so many at a time, the nodes taking turns.
fn turns(placed: &[Vec<StreamId>], of: usize) -> impl Iterator<Item = (usize, &[StreamId])> {
    let rounds = placed.iter().map(|ids| ids.len().div_ceil(of)).max().unwrap_or(0);
    let round = move |round: usize| {
        let nodes = placed.iter().enumerate();
        nodes.filter_map(move |(node, ids)| Some((node, ids.chunks(of).nth(round)?)))
    };
    (0..rounds).flat_map(round)
}

fn commit(round: u64, ids: &[StreamId]) -> Command {
    let range = |id: &StreamId| SegmentRange {
        stream: *id,
        epoch: StreamEpoch(1),
        start: Offset(round * 100),
        end: Offset((round + 1) * 100),
        closed: false,
        born: false,
        dedupe: true,
    };
    // The number is given when it is proposed.
    Command::CommitSegment {
        origin: CommitOrigin::Own,
        segment: Some(NewSegment { number: 0, bytes: 64 << 20 }),
        ranges: ids.iter().map(range).collect(),
        wal_covered: Some(0),
    }
}

impl Scale {
    fn found(nodes: usize) -> Result<Self> {
        let mut commands = vec![Command::Found { uid: ClusterUid(1), identity: None, size: nodes as u32 }];
        let mut all = Vec::new();
        for n in 0..nodes {
            let session =
                SessionId { node: format!("demo-{n}").parse()?, epoch: NodeEpoch(1_700_000_000_000) };
            commands.push(Command::Register(Registration {
                session: session.clone(),
                nonce: Nonce(1 + n as u128),
                incarnation: format!("pod-{n}").parse()?,
                raft_id: RaftId(1 + n as u64),
                boot_id: None,
                http_url: format!("http://demo-{n}:4437"),
                peer_address: format!("demo-{n}:4438"),
                slots: Slots::ONE,
                formats: (1, 1),
            }));
            all.push(Node { session, number: 0 });
        }
        let commands = commands.into_iter().map(|command| Envelope { request: None, command }).collect();
        let mut state = State::default();
        let outcomes = apply(&mut state, &Batch { time_ms: 1_700_000_000_000, commands });
        if let Some(refused) = outcomes.iter().find(|o| o.is_err()) {
            bail!("founding: {refused:?}");
        }
        Ok(Self { clock: Clock::default(), state, nodes: all })
    }

    /// Where the streams are, by node.
    fn placed(&self, streams: u64) -> Result<Vec<Vec<StreamId>>> {
        let mut placed = vec![Vec::new(); self.nodes.len()];
        for id in (1..=streams).map(StreamId) {
            let stream = self.state.stream(id).context("it was created")?;
            let owner = self.state.owner_of(stream).context("it was placed")?.session;
            let at = self.nodes.iter().position(|n| n.session == owner).context("a node of the cluster")?;
            placed[at].push(id);
        }
        if let (Some(least), Some(most)) =
            (placed.iter().map(Vec::len).min(), placed.iter().map(Vec::len).max())
        {
            println!("nodes: {}, with {least} to {most} streams each", placed.len());
        }
        Ok(placed)
    }

    fn envelope(&mut self, node: usize, mut command: Command) -> Envelope {
        let node = &mut self.nodes[node];
        node.number += 1;
        if let Command::CommitSegment { segment: Some(segment), wal_covered, .. } = &mut command {
            segment.number = node.number;
            *wal_covered = Some(node.number);
        }
        let lowest_unanswered = node.number.saturating_sub(10).max(1);
        let request = RequestId { session: node.session.clone(), number: node.number, lowest_unanswered };
        Envelope { request: Some(request), command }
    }

    /// Applies commands as they come from the log, and says how fast.
    fn phase(
        &mut self,
        what: &str,
        group: usize,
        mut commands: impl Iterator<Item = (usize, Command)>,
    ) -> Result<()> {
        let (mut applying, mut decoding) = (Duration::ZERO, Duration::ZERO);
        let mut count = 0;
        loop {
            let some: Vec<_> = commands.by_ref().take(group).collect();
            if some.is_empty() {
                break;
            }
            count += some.len();
            let commands = some.into_iter().map(|(node, command)| self.envelope(node, command)).collect();
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
