//! Random logs. Operations are small numbers; what they mean is looked up in the state they meet, so that most commands
//! nearly fit, and shrinking works. Every rule is checked at every step.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_api::{Nonce, Offset, SessionId, Slots, StreamEpoch, StreamId};

use super::{rules, world::*};
use crate::metadata::apply::apply;
use crate::metadata::command::*;
use crate::metadata::consistency::check_consistency;
use crate::metadata::placement::pick;
use crate::metadata::query::Disposition;
use crate::metadata::state::{Ownership, State};

/// What to do, by whom, with what, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Op {
    kind: u8,
    who: u8,
    what: u8,
    how: u8,
}

pub(crate) fn operations(max: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = (0..KINDS, any::<u8>(), any::<u8>(), any::<u8>());
    let op = op.prop_map(|(kind, who, what, how)| Op { kind, who, what, how });
    prop::collection::vec(op, 1..max)
}

/// Makes commands out of operations and keeps what a state alone does not tell.
struct Player {
    state: State,
    time_ms: u64,
    registrations: Vec<Registration>,
    numbers: BTreeMap<SessionId, u64>,
    segments: u64,
    nonces: u128,
    openings: rules::Openings,
}

const KINDS: u8 = 58;
const NODES: [&str; 3] = ["a", "b", "c"];

/// Plays operations on a fresh cluster, checking every rule at every step; the log that came of it and its state.
pub(crate) fn play(operations: &[Op]) -> (Vec<Batch>, State) {
    let mut p = Player {
        state: State::default(),
        time_ms: START_MS,
        registrations: Vec::new(),
        numbers: BTreeMap::new(),
        segments: 0,
        nonces: 0,
        openings: BTreeMap::new(),
    };
    let uid = weir_api::ClusterUid(7);
    let mut log = vec![p.entry(None, Command::Found { uid, identity: Some("i".into()), size: 3 })];
    p.step(&log[0]);
    for (how, node) in (1..).zip(NODES) {
        let command = p.register(node, 5, how);
        let entry = p.entry(None, command);
        p.step(&entry);
        log.push(entry);
    }
    for op in operations {
        let entry = p.batch(*op);
        p.step(&entry);
        log.push(entry);
    }
    (log, p.state)
}

impl Player {
    fn entry(&self, request: Option<RequestId>, command: Command) -> Batch {
        Batch { time_ms: self.time_ms, commands: vec![Envelope { request, command }] }
    }

    fn batch(&mut self, op: Op) -> Batch {
        self.time_ms += match op.how {
            0..=5 => 61 * 60 * 1000,
            6..=20 => 11 * 60 * 1000,
            n => u64::from(n) * 20,
        };
        let by = self.session(op);
        let command = self.command(op, &by);
        let founding =
            matches!(command, Command::Found { .. } | Command::AllocateRaftId { .. } | Command::Register(_));
        let request = (!founding).then(|| self.request(by, op));
        self.entry(request, command)
    }

    fn request(&mut self, session: SessionId, op: Op) -> RequestId {
        let next = self.numbers.entry(session.clone()).or_insert(0);
        *next += 1;
        // Now and then an older number comes again, or the session says that it has its answers.
        let number =
            if op.how % 16 == 3 { (*next).saturating_sub(u64::from(op.what % 4)).max(1) } else { *next };
        let lowest_unanswered = if op.how % 4 == 1 { number.saturating_sub(2).max(1) } else { 1 };
        RequestId { session, number, lowest_unanswered }
    }

    /// Mostly a live session, now and then one of the past.
    fn session(&self, op: Op) -> SessionId {
        let live: Vec<_> =
            self.state.sessions.values().filter(|s| s.ended.is_none()).map(|s| &s.id).collect();
        if live.is_empty() || op.who > 240 {
            return self.registrations[usize::from(op.what) % self.registrations.len()].session.clone();
        }
        live[usize::from(op.who) % live.len()].clone()
    }

    /// Mostly a stream that is there.
    fn stream(&self, n: u8) -> StreamId {
        let there: Vec<_> = self.state.streams.keys().collect();
        match there.is_empty() || n > 240 {
            true => StreamId(u64::from(n % 8)),
            false => *there[usize::from(n) % there.len()],
        }
    }

    /// A stream the session has open, if there is one.
    fn held(&self, by: &SessionId, n: u8) -> StreamId {
        let no = self.state.session_by_id(by).map(|(no, _)| no);
        let open_here = |o: Ownership| matches!(o, Ownership::Open(at) if Some(at) == no);
        let held: Vec<_> = self.state.streams.iter().filter(|(_, s)| open_here(s.ownership)).collect();
        match held.is_empty() || n > 230 {
            true => self.stream(n),
            false => *held[usize::from(n) % held.len()].0,
        }
    }

    fn epoch(&self, id: StreamId, how: u8) -> StreamEpoch {
        let epoch = self.state.stream(id).map_or(StreamEpoch(1), |s| s.epoch);
        match how {
            250.. => epoch.next(),
            245..250 => StreamEpoch(epoch.0.saturating_sub(1)),
            _ => epoch,
        }
    }

    fn committed(&self, id: StreamId) -> u64 {
        self.state.stream(id).map_or(0, |s| s.committed.0)
    }

    fn epoch_if_open(&self, id: StreamId, how: u8) -> Option<StreamEpoch> {
        let open = matches!(self.state.disposition(id), Some(Disposition::OpenAt(..)));
        (open != (how % 16 == 7)).then(|| self.epoch(id, how))
    }

    /// A session that awaits recovery, if there is one, and the number of its claim.
    fn ended(&self, n: u8) -> (SessionId, u64, Option<SessionId>) {
        let ended: Vec<_> = self.state.sessions.values().filter(|s| s.ended.is_some()).collect();
        if ended.is_empty() {
            return (self.registrations[usize::from(n) % self.registrations.len()].session.clone(), 0, None);
        }
        let s = ended[usize::from(n) % ended.len()];
        let claim = s.claim.as_ref();
        (s.id.clone(), claim.map_or(0, |c| c.number), claim.map(|c| c.claimant.clone()))
    }

    fn register(&mut self, node: &str, epoch: u64, how: u8) -> Command {
        let mut r = registration(node, epoch);
        self.nonces += 1;
        r.nonce = Nonce(self.nonces);
        r.incarnation = incarnation(&format!("{node}-{}", how % 3));
        r.boot_id = (!how.is_multiple_of(4)).then(|| Nonce(u128::from(how % 4)));
        r.formats = (1, if how.is_multiple_of(5) { 1 } else { 2 });
        self.registrations.push(r.clone());
        Command::Register(r)
    }

    fn command(&mut self, op: Op, by: &SessionId) -> Command {
        let Op { what, how, .. } = op;
        let some = self.stream(what);
        let held = self.held(by, what);
        match op.kind {
            0 => {
                let node = NODES[usize::from(what) % NODES.len()];
                let recorded = self.state.nodes.get(&super::world::node(node)).map_or(0, |n| n.epoch.0);
                self.register(node, (recorded + u64::from(how % 8)).saturating_sub(1), how)
            }
            1 => Command::Register(self.registrations[usize::from(what) % self.registrations.len()].clone()),
            2 => Command::EndSession,
            3 => {
                let of = self.session(Op { who: what, ..op });
                let to = (how % 3 == 0).then(|| format!("{}-{}", of.node, how % 2));
                let reason = if how % 2 == 0 { FenceReason::Silence } else { FenceReason::Admin };
                fence(&of, to.as_deref(), reason)
            }
            4 => Command::AllocateRaftId { nonce: Nonce(u128::from(what % 4)) },
            5 => Command::RaiseFormat { version: u32::from(how % 3) },
            6 | 7 => {
                let slots = Slots::try_from(u64::from(how % 4)).unwrap();
                let resource = (how % 2 == 0).then(|| ("uid".to_owned(), u64::from(what % 4)));
                Command::SetSlots { node: by.node.clone(), slots, resource }
            }
            8..=12 => {
                let content_type = if how % 5 == 0 { "text/html" } else { "text/plain" };
                let expiry = match how % 7 {
                    0..=3 => Expiry::Never,
                    4 | 5 => Expiry::Ttl(u64::from(what) * 10),
                    _ => Expiry::At(self.time_ms + u64::from(what) * 1000),
                };
                let config = StreamConfig { content_type: content_type.into(), expiry };
                let name = format!("n{}", what % 8).into();
                Command::Create { name, config, closed: how % 9 == 0, unborn: how % 3 == 0 }
            }
            13 => Command::Born { streams: vec![(held, self.epoch(held, how))] },
            14 => Command::Place { stream: some },
            15..=21 => Command::Open { stream: some },
            22..=24 => {
                let tail = self.committed(held) + u64::from(how % 8 == 0);
                Command::Release {
                    streams: vec![(held, self.epoch(held, how), Offset(tail)); 1 + usize::from(how % 2)],
                }
            }
            25..=31 => self.commit(op, by, CommitOrigin::Own),
            32 => {
                let (ended, held, _) = self.ended(what);
                Command::Claim { ended, claimant: by.clone(), replaces: held + u64::from(how > 240) }
            }
            33 | 34 => {
                let (ended, claim, _) = self.ended(what);
                self.commit(op, by, CommitOrigin::Recovery { ended, claim: claim + u64::from(how > 240) })
            }
            35 => {
                let (ended, claim, _) = self.ended(what);
                Command::Recovered { ended, claim }
            }
            36 => Command::Touch { touches: vec![(some, self.time_ms + u64::from(how) * 1000)] },
            37 | 38 => {
                let now_ms = self.time_ms + u64::from(what) - 100;
                Command::Expire { streams: vec![(some, self.epoch_if_open(some, how))], now_ms }
            }
            39 => Command::Delete { stream: held, epoch: self.epoch_if_open(held, how) },
            40 => Command::Delete { stream: some, epoch: self.epoch_if_open(some, how) },
            41..=43 => {
                let at = self.committed(some) / u64::from(1 + how % 3) + u64::from(how > 240);
                let mut fork = fork(some, at, &format!("n{}", how % 8));
                if let Command::Fork { unborn, closed, .. } = &mut fork {
                    (*unborn, *closed) = (how.is_multiple_of(5), how.is_multiple_of(3));
                }
                fork
            }
            44 => {
                let segments = self.state.segments.keys().chain([&SegmentId(1)]).copied().collect();
                Command::Sweep { segments }
            }
            45 => Command::ReapUnborn { streams: vec![(some, self.epoch_if_open(some, how))] },
            46 => Command::RemoveNode { node: node(NODES[usize::from(what) % NODES.len()]) },
            47 | 48 => {
                let node = node(NODES[usize::from(what) % NODES.len()]);
                Command::SetDraining { node, draining: how % 2 == 0 }
            }
            49 => Command::GiveUpDrain { why: "stuck".into() },
            50..=52 => {
                let tail = Offset(self.committed(held) + u64::from(how % 8 == 0));
                let open = self.epoch_if_open(held, how).map(|epoch| (epoch, tail));
                Command::HandOver { streams: vec![(held, open), (some, None)] }
            }
            53..=56 => {
                let to = self.session(Op { who: how, ..op });
                Command::BeginTransfer { stream: held, to }
            }
            _ => {
                let pending = self.state.transfers.iter().nth(usize::from(what) % 2);
                let named = pending.and_then(|(id, t)| Some((*id, self.state.session(t.target)?.id.clone())));
                let (stream, to) = named.unwrap_or((some, by.clone()));
                Command::AbortTransfer { stream, to }
            }
        }
    }

    /// Ranges of a few streams that the origin has open, nearly always fitting.
    fn commit(&mut self, op: Op, by: &SessionId, origin: CommitOrigin) -> Command {
        let Op { what, how, .. } = op;
        let of = match &origin {
            CommitOrigin::Own => by.clone(),
            CommitOrigin::Recovery { ended, .. } => ended.clone(),
        };
        let mut ids: Vec<_> = (0..1 + how % 3).map(|i| self.held(&of, what.wrapping_add(i))).collect();
        ids.sort();
        ids.dedup();
        let ranges = ids.into_iter().map(|id| {
            let start = self.committed(id).saturating_sub(u64::from(what % 4 == 0)) + u64::from(how == 77);
            let r = range(id, self.epoch(id, how), start, start + u64::from(how % 5));
            SegmentRange { closed: how % 8 == 1, born: how % 2 == 0, dedupe: how % 3 == 1, ..r }
        });
        let ranges = ranges.collect::<Vec<_>>();
        self.segments += u64::from(what % 3 > 0);
        let covered = (how % 4 > 0).then(|| self.segments + u64::from(how));
        let mut command = commit(origin, self.segments, &ranges, covered);
        if let Command::CommitSegment { segment, .. } = &mut command
            && how % 16 == 5
        {
            *segment = None;
        }
        command
    }

    /// Applies an entry and checks all that must hold.
    fn step(&mut self, entry: &Batch) {
        let before = self.state.clone();
        let outcome = apply(&mut self.state, entry).pop().unwrap();
        let envelope = &entry.commands[0];
        check_consistency(&self.state).unwrap_or_else(|e| panic!("{e} after {envelope:?}: {outcome:?}"));
        rules::check_effect(&before, &self.state, envelope, &outcome);
        rules::check_retry(&self.state, entry, &outcome);
        rules::check_growth(&before, &self.state);
        rules::check_moves(&before, &self.state, envelope);
        rules::check_ownership(&mut self.openings, &before, &self.state, envelope, &outcome);
        rules::check_placement(&before, &self.state, envelope, &outcome);
        assert_eq!(pick(&self.state), rules::exhaustive_pick(&self.state));
    }
}
