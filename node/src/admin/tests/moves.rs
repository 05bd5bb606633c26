//! Drains and transfers over the admin API, on a real state.

use super::*;
use crate::metadata::apply::tests::world::{World, create, drain, hand_over, release, transfer};
use crate::metadata::command::FenceReason;

/// Nodes a, b and c, asked through a; `x` is open at a and has one stream placed beside it.
struct Cluster {
    world: Arc<Mutex<World>>,
    admin: Fixture,
    sessions: [SessionId; 3],
    x: StreamId,
    epoch: StreamEpoch,
}

fn cluster() -> Cluster {
    let (mut world, sessions) = World::with(["a", "b", "c"]);
    let [a, ..] = &sessions;
    let x = world.create(a, "x");
    let epoch = world.open(a, x);
    let world = Arc::new(Mutex::new(world));
    let admin = over(world.clone(), a.clone());
    Cluster { world, admin, sessions, x, epoch }
}

/// The API of a node with this session, whose commands are applied at once.
fn over(world: Arc<Mutex<World>>, by: SessionId) -> Fixture {
    let proposed = Arc::new(Mutex::new(vec![]));
    let (read, write, log) = (world.clone(), world, proposed.clone());
    let (slot, skips) = (Slot::default(), Skips::default());
    slot.fill_with(Sources {
        view: Arc::new(move || Seen { state: read.lock().state.clone(), applied: 1, leader: None, term: 1 }),
        propose: Arc::new(move |command| {
            log.lock().push(command.clone());
            let outcome = write.lock().run(&by, command).map(drop).map_err(ProposeFailure::Refused);
            Box::pin(std::future::ready(outcome))
        }),
        skips: skips.clone(),
        local: Arc::new(|_| Local::default()),
        tail: Arc::new(|_| None),
    });
    let (readiness, tasks) = (Readiness::default(), Tasks::default());
    let node = "a".parse().unwrap();
    let admin = Admin { node, slot, readiness, tokens: None, metrics_open: false, tasks };
    Fixture { admin, proposed, skips }
}

impl Cluster {
    async fn drain(&self, method: &str, node: &str) -> Told {
        self.admin.ask(method, &format!("/admin/nodes/{node}/drain"), &[], b"").await
    }

    async fn transfer(&self, method: &str, stream: &str, to: &str) -> Told {
        let body = json!({"stream": stream, "toNode": to}).to_string();
        let kind = [("content-type", "application/json")];
        self.admin.ask(method, "/admin/transfer", &kind, body.as_bytes()).await
    }

    fn run(&self, by: usize, command: Command) {
        self.world.lock().run(&self.sessions[by], command).unwrap();
    }
}

#[tokio::test]
async fn a_drain_is_begun_watched_and_cancelled() {
    let c = cluster();
    let idle = c.drain("GET", "a").await;
    assert_eq!((idle.status, idle.json()["state"].as_str()), (200, Some("notDraining")));
    let begun = c.drain("POST", "a").await;
    let expected = json!({
        "node": "a", "epoch": 10, "state": "draining", "remainingStreams": 1, "openStreams": 1,
        "sinceMs": c.world.lock().state.time_ms
    });
    assert_eq!((begun.status, begun.json()), (202, expected.clone()));
    let again = c.drain("POST", "a").await;
    assert_eq!((again.status, again.json()), (202, expected.clone()), "it is left alone");
    assert_eq!((c.drain("GET", "a").await.status, c.drain("GET", "a").await.json()), (200, expected));
    c.run(0, Command::GiveUpDrain { why: "nothing went".into() });
    let stuck = c.drain("GET", "a").await.json();
    assert_eq!((stuck["state"].as_str(), stuck["detail"].as_str()), (Some("gaveUp"), Some("nothing went")));
    assert_eq!(c.drain("POST", "a").await.json()["state"], "draining", "it is tried again");
    c.run(0, hand_over(c.x, Some((c.epoch, 0))));
    let done = c.drain("POST", "a").await;
    assert_eq!((done.status, done.json()["state"].as_str()), (200, Some("drained")));
    assert_eq!(done.json()["remainingStreams"], 0);
    let nodes = c.admin.get("/admin/nodes").await.json();
    assert_eq!(nodes["nodes"][0]["draining"], true);
    let cancelled = c.drain("DELETE", "a").await;
    assert_eq!((cancelled.status, cancelled.json()["state"].as_str()), (200, Some("notDraining")));
    assert_eq!(c.drain("DELETE", "a").await.status, 200, "cancelling twice is cancelling");
}

#[tokio::test]
async fn a_drain_counts_what_awaits_recovery() {
    let c = cluster();
    c.run(1, drain("a", true));
    c.world.lock().silence(&c.sessions[1], &c.sessions[0]);
    let admin = over(c.world.clone(), c.sessions[1].clone());
    let told = admin.get("/admin/nodes/a/drain").await.json();
    assert_eq!((told["state"].as_str(), told["remainingStreams"].as_u64()), (Some("draining"), Some(1)));
    assert!(told["detail"].as_str().unwrap().contains("recovered"), "{told}");
}

#[tokio::test]
async fn what_a_drain_refuses() {
    let c = cluster();
    c.drain("POST", "z").await.problem(404, "no-such-node");
    c.drain("GET", "z").await.problem(404, "no-such-node");
    c.drain("POST", "-").await.problem(400, "bad-node-id");
    let wrong = c.drain("PUT", "a").await;
    assert_eq!(wrong.headers[ALLOW], "GET, HEAD, POST, DELETE");
    wrong.problem(405, "method-not-allowed");
    c.run(0, drain("b", true));
    c.world.lock().silence(&c.sessions[0], &c.sessions[2]);
    let detail = c.drain("POST", "a").await.problem(409, "last-node");
    assert!(detail.contains("start another node"), "{detail}");
    assert!(!c.world.lock().state.nodes[&"a".parse::<NodeId>().unwrap()].draining);
}

#[tokio::test]
async fn a_transfer_is_pending_then_handed_over_then_done() {
    let c = cluster();
    let begun = c.transfer("POST", "x", "b").await;
    let now = c.world.lock().state.time_ms;
    let expected = json!({
        "stream": "x", "id": c.x, "fromNode": "a", "toNode": "b", "state": "pending", "sinceMs": now
    });
    assert_eq!((begun.status, begun.json()), (202, expected.clone()));
    let again = c.transfer("POST", "x", "b").await;
    assert_eq!((again.status, again.json()), (202, expected.clone()));
    let stream = c.admin.get("/admin/streams/x").await.json();
    assert_eq!((stream["transfer"].clone(), stream["ownership"]["node"].as_str()), (expected, Some("a")));
    c.run(0, release(c.x, c.epoch, 0));
    let handed = c.transfer("POST", "x", "b").await;
    assert_eq!((handed.status, handed.json()["state"].as_str()), (202, Some("handedOver")));
    assert_eq!(c.admin.get("/admin/streams/x").await.json().get("transfer"), None);
    c.run(1, Command::Open { stream: c.x });
    let done = c.transfer("POST", "x", "b").await;
    assert_eq!(
        (done.status, done.json()),
        (200, json!({"stream": "x", "id": c.x, "toNode": "b", "state": "done"}))
    );
}

#[tokio::test]
async fn a_transfer_is_called_off() {
    let c = cluster();
    c.transfer("DELETE", "x", "b").await.problem(404, "no-such-transfer");
    c.transfer("POST", "x", "b").await;
    c.transfer("DELETE", "x", "c").await.problem(404, "no-such-transfer");
    let off = c.transfer("DELETE", "x", "b").await;
    assert_eq!((off.status, off.json()["state"].as_str()), (200, Some("aborted")));
    assert_eq!(c.world.lock().owner(c.x).as_ref(), Some(&c.sessions[0]));
    c.transfer("DELETE", "x", "b").await.problem(404, "no-such-transfer");
}

#[tokio::test]
async fn what_a_transfer_refuses() {
    let c = cluster();
    c.transfer("POST", "none", "b").await.problem(404, "no-such-stream");
    c.transfer("DELETE", "none", "b").await.problem(404, "no-such-stream");
    c.transfer("POST", "x", "z").await.problem(404, "no-such-node");
    c.transfer("POST", "x", "-").await.problem(400, "bad-body");
    c.transfer("POST", "", "b").await.problem(400, "bad-body");
    c.admin.post("/admin/transfer", r#"{"stream": "x"}"#).await.problem(400, "bad-body");
    let wrong = c.admin.get("/admin/transfer").await;
    assert_eq!(wrong.headers[ALLOW], "POST, DELETE");
    c.run(0, transfer(c.x, &c.sessions[1]));
    let pending = c.transfer("POST", "x", "c").await.problem(409, "transfer-pending");
    assert!(pending.contains("node b"), "{pending}");
    c.run(0, Command::AbortTransfer { stream: c.x, to: c.sessions[1].clone() });

    let none = Slots::try_from(0).unwrap();
    c.run(0, Command::SetSlots { node: "b".parse().unwrap(), slots: none, resource: None });
    let why = c.transfer("POST", "x", "b").await.problem(409, "not-eligible");
    assert!(why.contains("has no slots"), "{why}");
    c.run(0, drain("c", true));
    let why = c.transfer("POST", "x", "c").await.problem(409, "not-eligible");
    assert!(why.contains("draining"), "{why}");
    c.world.lock().silence(&c.sessions[0], &c.sessions[2]);
    let why = c.transfer("POST", "x", "c").await.problem(409, "not-eligible");
    assert!(why.contains("has ended"), "{why}");

    // What its last owner left behind goes nowhere before it is recovered.
    c.run(1, Command::SetSlots { node: "b".parse().unwrap(), slots: Slots::ONE, resource: None });
    let (node, epoch) = (c.sessions[0].node.clone(), c.sessions[0].epoch);
    c.run(1, Command::Fence { node, epoch, incarnation: None, reason: FenceReason::Silence });
    c.run(1, create("y"));
    let asked = Cluster { admin: over(c.world.clone(), c.sessions[1].clone()), ..c };
    asked.transfer("POST", "x", "b").await.problem(409, "awaiting-recovery");
}
