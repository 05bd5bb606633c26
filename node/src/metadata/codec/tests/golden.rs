//! The bytes of every command, answer and refusal, and of a small state, held fast.

use super::*;
use std::collections::BTreeSet;
use weir_api::*;

const GOLDEN: &str = include_str!("golden.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The variant's name. No wildcard: a new command does not compile until it is named and, below, sampled.
fn name(command: &Command) -> &'static str {
    match command {
        Command::Found { .. } => "found",
        Command::AllocateRaftId { .. } => "allocate-raft-id",
        Command::RaiseFormat { .. } => "raise-format",
        Command::Register(_) => "register",
        Command::EndSession => "end-session",
        Command::Fence { .. } => "fence",
        Command::SetSlots { .. } => "set-slots",
        Command::Create { .. } => "create",
        Command::Born { .. } => "born",
        Command::Place { .. } => "place",
        Command::Open { .. } => "open",
        Command::Release { .. } => "release",
        Command::CommitSegment { .. } => "commit-segment",
        Command::Claim { .. } => "claim",
        Command::Recovered { .. } => "recovered",
        Command::Touch { .. } => "touch",
        Command::Expire { .. } => "expire",
        Command::Delete { .. } => "delete",
        Command::Fork { .. } => "fork",
        Command::Sweep { .. } => "sweep",
        Command::ReapUnborn { .. } => "reap-unborn",
        Command::RemoveNode { .. } => "remove-node",
        Command::SetDraining { .. } => "set-draining",
        Command::GiveUpDrain { .. } => "give-up-drain",
        Command::HandOver { .. } => "hand-over",
        Command::BeginTransfer { .. } => "begin-transfer",
        Command::AbortTransfer { .. } => "abort-transfer",
    }
}

const COMMANDS: usize = 27;

fn commands() -> Vec<Command> {
    let (x, y) = (StreamId(300), StreamId(301));
    let (one, two) = (StreamEpoch(1), StreamEpoch(2));
    let full = SegmentRange { closed: true, born: true, dedupe: true, ..range(x, one, 5, 70_000) };
    let ended = session("a", 1_700_000_000_000);
    let registration = Registration { boot_id: Some(Nonce(5)), ..registration("a", 1_700_000_000_000) };
    let config = |expiry| StreamConfig { content_type: "application/json".into(), expiry };
    vec![
        Command::Found { uid: ClusterUid(u128::MAX), identity: Some("identity".into()), size: 3 },
        Command::AllocateRaftId { nonce: Nonce(1) },
        Command::RaiseFormat { version: 2 },
        Command::Register(registration),
        Command::EndSession,
        fence(&ended, None, FenceReason::Silence),
        fence(&ended, Some("pod-uid"), FenceReason::Admin),
        Command::SetSlots { node: node("a"), slots: Slots::ONE, resource: None },
        Command::SetSlots { node: node("a"), slots: Slots::ONE, resource: Some(("uid".into(), 7)) },
        Command::Create { name: "n".into(), config: config(Expiry::Never), closed: true, unborn: false },
        Command::Create { name: "n".into(), config: config(Expiry::Ttl(60)), closed: false, unborn: true },
        Command::Create {
            name: "n".into(),
            config: config(Expiry::At(1 << 41)),
            closed: false,
            unborn: false,
        },
        Command::Born { streams: vec![(x, one)] },
        Command::Place { stream: x },
        Command::Open { stream: x },
        Command::Release { streams: vec![(x, one, Offset(5)), (y, two, Offset(0))] },
        commit(CommitOrigin::Own, 9, &[full.clone(), range(y, two, 0, 1)], Some(12)),
        commit(CommitOrigin::Recovery { ended: ended.clone(), claim: 4 }, 9, &[full], None),
        Command::CommitSegment {
            origin: CommitOrigin::Own,
            segment: None,
            ranges: vec![],
            wal_covered: Some(1),
        },
        Command::Claim { ended: ended.clone(), claimant: session("b", 2), replaces: 3 },
        Command::Recovered { ended, claim: 4 },
        Command::Touch { touches: vec![(x, 1 << 41)] },
        Command::Expire { streams: vec![(x, None), (y, Some(two))], now_ms: 1 << 41 },
        Command::Delete { stream: x, epoch: Some(one) },
        fork(x, 5, "f"),
        Command::Sweep { segments: vec![SegmentId(1), SegmentId(2)] },
        Command::ReapUnborn { streams: vec![(x, Some(one))] },
        Command::RemoveNode { node: node("a") },
        Command::SetDraining { node: node("a"), draining: true },
        Command::GiveUpDrain { why: "w".into() },
        Command::HandOver { streams: vec![(x, Some((one, Offset(5)))), (y, None)] },
        Command::BeginTransfer { stream: x, to: session("b", 2) },
        Command::AbortTransfer { stream: x, to: session("b", 2) },
    ]
}

/// One of each, in the order of their definition. `listed` keeps the list whole.
fn outcomes() -> Vec<Outcome> {
    let owner = Owner { session: session("a", 10), open: Some(StreamEpoch(2)) };
    let each = || vec![Ok(()), Err(Refusal::NotOpen)];
    vec![
        Ok(Answer::Done),
        Ok(Answer::Founded { uid: ClusterUid(1) }),
        Ok(Answer::RaftId(RaftId(2))),
        Ok(Answer::Registered { slots: Slots::ONE, format: 1 }),
        Ok(Answer::SessionEnded { clean: true }),
        Ok(Answer::Created { stream: StreamId(1), owner: session("a", 10) }),
        Ok(Answer::Exists { stream: StreamId(1) }),
        Ok(Answer::Placed(owner.clone())),
        Ok(Answer::Opened { epoch: StreamEpoch(1) }),
        Ok(Answer::Released(each())),
        Ok(Answer::Committed(vec![RangeOutcome::Committed, RangeOutcome::Skipped])),
        Ok(Answer::Claimed { number: 1, wal_start: 2 }),
        Ok(Answer::Ended(each())),
        Ok(Answer::Swept(vec![SegmentId(1)])),
        Ok(Answer::Born(each())),
        Err(Refusal::SessionNotCurrent),
        Err(Refusal::StaleRequest),
        Err(Refusal::WrongCluster(Some(ClusterUid(1)))),
        Err(Refusal::EpochTooLow { recorded: NodeEpoch(1) }),
        Err(Refusal::Superseded { by: NodeEpoch(1) }),
        Err(Refusal::Pinned { to: incarnation("i") }),
        Err(Refusal::FormatUnreadable { cluster: 2 }),
        Err(Refusal::Removed),
        Err(Refusal::FormatNotRaised { wanted: 2, cluster: 1 }),
        Err(Refusal::NoSuchNode),
        Err(Refusal::FenceMismatch { registered: NodeEpoch(1) }),
        Err(Refusal::OlderGeneration { known: 1 }),
        Err(Refusal::NoEligibleNode),
        Err(Refusal::NoSuchStream),
        Err(Refusal::ConfigMismatch { stream: StreamId(1) }),
        Err(Refusal::Tombstone),
        Err(Refusal::NotOwner(owner)),
        Err(Refusal::AwaitingRecovery(session("a", 10))),
        Err(Refusal::NotCommitted { committed: Offset(1) }),
        Err(Refusal::BeforeStart { start: Offset(1) }),
        Err(Refusal::Gap { stream: StreamId(1), committed: Offset(1) }),
        Err(Refusal::ClaimNotCurrent { held: 1 }),
        Err(Refusal::NotExpired { deadline_ms: Some(1) }),
        Err(Refusal::Limit("l".into())),
        Err(Refusal::AlreadyOpen { epoch: StreamEpoch(1) }),
        Err(Refusal::NotOpen),
        Err(Refusal::ClaimantNotLive),
        Err(Refusal::SegmentFinished),
        Err(Refusal::Malformed("m".into())),
        Err(Refusal::NodeAlive(session("a", 10))),
        Err(Refusal::LastNode),
        Err(Refusal::NotDraining),
        Err(Refusal::NotEligible { to: session("a", 10), why: Ineligible::NoSlots }),
        Err(Refusal::TransferPending { to: session("a", 10) }),
        Err(Refusal::NoSuchTransfer),
    ]
}

/// The place in `outcomes`. No wildcard: a new answer or refusal does not compile until it is sampled there.
fn listed(outcome: &Outcome) -> usize {
    match outcome {
        Ok(answer) => match answer {
            Answer::Done => 0,
            Answer::Founded { .. } => 1,
            Answer::RaftId(_) => 2,
            Answer::Registered { .. } => 3,
            Answer::SessionEnded { .. } => 4,
            Answer::Created { .. } => 5,
            Answer::Exists { .. } => 6,
            Answer::Placed(_) => 7,
            Answer::Opened { .. } => 8,
            Answer::Released(_) => 9,
            Answer::Committed(_) => 10,
            Answer::Claimed { .. } => 11,
            Answer::Ended(_) => 12,
            Answer::Swept(_) => 13,
            Answer::Born(_) => 14,
        },
        Err(refusal) => match refusal {
            Refusal::SessionNotCurrent => 15,
            Refusal::StaleRequest => 16,
            Refusal::WrongCluster(_) => 17,
            Refusal::EpochTooLow { .. } => 18,
            Refusal::Superseded { .. } => 19,
            Refusal::Pinned { .. } => 20,
            Refusal::FormatUnreadable { .. } => 21,
            Refusal::Removed => 22,
            Refusal::FormatNotRaised { .. } => 23,
            Refusal::NoSuchNode => 24,
            Refusal::FenceMismatch { .. } => 25,
            Refusal::OlderGeneration { .. } => 26,
            Refusal::NoEligibleNode => 27,
            Refusal::NoSuchStream => 28,
            Refusal::ConfigMismatch { .. } => 29,
            Refusal::Tombstone => 30,
            Refusal::NotOwner(_) => 31,
            Refusal::AwaitingRecovery(_) => 32,
            Refusal::NotCommitted { .. } => 33,
            Refusal::BeforeStart { .. } => 34,
            Refusal::Gap { .. } => 35,
            Refusal::ClaimNotCurrent { .. } => 36,
            Refusal::NotExpired { .. } => 37,
            Refusal::Limit(_) => 38,
            Refusal::AlreadyOpen { .. } => 39,
            Refusal::NotOpen => 40,
            Refusal::ClaimantNotLive => 41,
            Refusal::SegmentFinished => 42,
            Refusal::Malformed(_) => 43,
            Refusal::NodeAlive(_) => 44,
            Refusal::LastNode => 45,
            Refusal::NotDraining => 46,
            Refusal::NotEligible { .. } => 47,
            Refusal::TransferPending { .. } => 48,
            Refusal::NoSuchTransfer => 49,
        },
    }
}

/// A state with something of each kind: every item, ownership and optional field.
fn small_state() -> State {
    let (mut w, [a, b]) = World::with(["a", "b"]);
    w.found(Command::AllocateRaftId { nonce: Nonce(3) }).unwrap();
    let slots = Command::SetSlots { node: node("a"), slots: Slots::ONE, resource: Some(("uid".into(), 7)) };
    w.run(&b, slots).unwrap();
    let (x, e) = w.opened(&a, "x");
    let full = SegmentRange { dedupe: true, closed: true, ..range(x, e, 0, 5) };
    w.commit(&a, 1, &[full]).unwrap();
    w.commit(&a, 2, &[range(x, e, 0, 5)]).unwrap();
    w.run(&b, fork(x, 3, "fork")).unwrap();
    w.create_unborn(&b, "unborn");
    let gone = created(w.run(&b, create_expiring("gone", Expiry::Ttl(9))));
    w.run(&b, fork(gone, 0, "kept")).unwrap();
    w.run(&b, Command::Delete { stream: gone, epoch: None }).unwrap();
    w.run(&b, fence(&a, Some("a-next"), FenceReason::Admin)).unwrap();
    let (claim, _) = w.claim(&b, &a, 0);
    let origin = CommitOrigin::Recovery { ended: a, claim };
    w.run(&b, commit(origin, 1, &[range(x, e, 5, 6)], None)).unwrap();
    let c = w.later(7).join("c", 4);
    let moving = w.create(&c, "moving");
    let from = w.owner(moving).unwrap();
    w.open(&from, moving);
    let to = if from == c { b.clone() } else { c.clone() };
    w.run(&b, Command::BeginTransfer { stream: moving, to }).unwrap();
    w.run(&b, Command::SetDraining { node: from.node.clone(), draining: true }).unwrap();
    w.run(&from, Command::GiveUpDrain { why: "stuck".into() }).unwrap();
    assert!(w.state.transfer(moving).is_some());
    let no = w.state.session_by_id(&b).unwrap().0;
    let answers = &mut w.state.sessions.get_mut(&no).unwrap().answers;
    answers.clear();
    for (number, outcome) in (1..).zip(outcomes()) {
        answers.insert(number, std::sync::Arc::new(outcome));
    }
    w.state
}

fn samples() -> Vec<(String, String)> {
    let mut samples = Vec::new();
    for command in commands() {
        let name = name(&command);
        let nth =
            samples.iter().filter(|(n, _): &&(String, _)| n.starts_with(&format!("{name}-"))).count() + 1;
        let request = RequestId { session: session("a", 10), number: 300, lowest_unanswered: 299 };
        let envelope = Envelope { request: Some(request), command };
        let batch = Batch { time_ms: 1_700_000_000_000, commands: vec![envelope] };
        samples.push((format!("{name}-{nth}"), hex(&encode_batch(&batch, format::FOUNDED))));
    }
    let plain = Envelope { request: None, command: Command::EndSession };
    let several = Batch { time_ms: 0, commands: vec![plain.clone(), plain] };
    samples.push(("several".into(), hex(&encode_batch(&several, format::FOUNDED))));
    samples.push(("state".into(), hex(&bytes_of(&small_state()))));
    samples
}

#[test]
fn every_variant_is_sampled() {
    let sampled: BTreeSet<_> = commands().iter().map(name).collect();
    assert_eq!(sampled.len(), COMMANDS);
    let outcomes = outcomes();
    for (at, outcome) in outcomes.iter().enumerate() {
        assert_eq!(listed(outcome), at);
    }
    assert_eq!(outcomes.len(), listed(&Err(Refusal::NoSuchTransfer)) + 1);
}

#[test]
fn the_bytes_are_as_they_were() {
    let now: String = samples().iter().map(|(name, hex)| format!("{name} {hex}\n")).collect();
    let drifted: Vec<_> = now.lines().filter(|line| !GOLDEN.lines().any(|l| l == *line)).collect();
    assert!(
        now == GOLDEN,
        "The bytes of log entries or snapshots have changed. Data written before could not be read any more, so a \
         change needs a new format version. If nothing was released in this format yet, make golden.txt:\n{now}\n\
         Drifted: {:?}",
        drifted.iter().map(|l| l.split(' ').next()).collect::<Vec<_>>()
    );
}

#[test]
fn the_golden_bytes_still_decode() {
    for line in GOLDEN.lines() {
        let (name, hex) = line.split_once(' ').unwrap();
        let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        match name {
            "state" => assert_eq!(bytes_of(&restored(&bytes)), bytes),
            _ => assert_eq!(encode_batch(&decode_batch(&bytes).unwrap(), format::FOUNDED), bytes),
        }
    }
}
