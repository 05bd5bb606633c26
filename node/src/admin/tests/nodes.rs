//! Nodes set, fenced and removed over requests, decided by the real state machine.

use super::*;
use crate::metadata::apply::tests::world::{World, node as id, session};
use crate::metadata::command::FenceReason;

/// `a` answers and lives, `b` lives and has an open stream, `c` was fenced with one open, `d` left cleanly; all at
/// epoch 10, incarnation `X-at-10`.
fn four() -> (Fixture, Arc<Mutex<World>>) {
    let (mut world, [a, b, c, d]) = World::with(["a", "b", "c", "d"]);
    for n in 0..4 {
        let stream = world.create(&a, &format!("s{n}"));
        let owner = world.owner(stream).unwrap();
        if owner == b || owner == c {
            world.open(&owner, stream);
        }
    }
    world.silence(&a, &c);
    world.run(&d, Command::EndSession).unwrap();
    let world = Arc::new(Mutex::new(world));
    let (read, wrote) = (world.clone(), world.clone());
    let mut f = fixture(Ok(()));
    let log = f.proposed.clone();
    f.admin.node = id("a");
    f.admin.slot = Slot::default();
    f.admin.slot.fill_with(Sources {
        view: Arc::new(move || Seen {
            state: read.lock().state.clone(),
            applied: 42,
            leader: Some(RaftId(97)),
            term: 3,
        }),
        propose: Arc::new(move |command| {
            log.lock().push(command.clone());
            let decided = wrote.lock().run(&a, command).map(drop).map_err(ProposeFailure::Refused);
            Box::pin(std::future::ready(decided))
        }),
        local: Arc::new(|_| Local::default()),
        skips: f.skips.clone(),
        tail: Arc::new(|_| None),
    });
    (f, world)
}

/// Method, path, body; status, code and what the answer names.
type Row = (&'static str, &'static str, &'static str, u16, &'static str, &'static str);

const REFUSED: &[Row] = &[
    // Weights.
    ("POST", "/admin/nodes/b", r#"{"slots": -1}"#, 400, "bad-body", "slots: "),
    ("POST", "/admin/nodes/b", r#"{"slots": 1000001}"#, 400, "bad-body", "0 to 1000000"),
    ("POST", "/admin/nodes/b", r#"{"slots": 18446744073709551616}"#, 400, "bad-body", "slots"),
    ("POST", "/admin/nodes/b", r#"{"slots": 0.5}"#, 400, "bad-body", "slots"),
    ("POST", "/admin/nodes/b", r#"{"slots": null}"#, 400, "bad-body", "slots"),
    ("POST", "/admin/nodes/b", r#"{"slots": 1, "resourceUid": "u"}"#, 400, "bad-body", "resourceGeneration"),
    ("POST", "/admin/nodes/e", r#"{"slots": 1}"#, 404, "no-such-node", "these have: a, b, c, d"),
    ("POST", "/admin/nodes/B", r#"{"slots": 1}"#, 400, "bad-node-id", "a-z"),
    ("POST", "/admin/nodes/%62", r#"{"slots": 1}"#, 400, "bad-node-id", "a-z"),
    // Fences.
    ("POST", "/admin/nodes/b/fence", r#"{"epoch": 9}"#, 409, "other-epoch", "registered at epoch 10"),
    ("POST", "/admin/nodes/b/fence", r#"{"epoch": 11}"#, 409, "other-epoch", "registered at epoch 10"),
    (
        "POST",
        "/admin/nodes/b/fence",
        r#"{"epoch": 18446744073709551615}"#,
        409,
        "other-epoch",
        "registered at epoch 10",
    ),
    (
        "POST",
        "/admin/nodes/b/fence",
        r#"{"epoch": 11, "incarnation": "new"}"#,
        409,
        "other-epoch",
        "registered at epoch 10",
    ),
    ("POST", "/admin/nodes/b/fence", r#"{"epoch": -1}"#, 400, "bad-body", "epoch"),
    ("POST", "/admin/nodes/b/fence", r#"{"epoch": "10"}"#, 400, "bad-body", "epoch"),
    ("POST", "/admin/nodes/b/fence", "{}", 400, "bad-body", "epoch"),
    ("POST", "/admin/nodes/b/fence", "", 400, "bad-body", "body"),
    ("POST", "/admin/nodes/b/fence", r#"{"epoch": 10, "incarnation": ""}"#, 400, "bad-body", "1 to 128"),
    ("POST", "/admin/nodes/b/fence", r#"{"epoch": 10, "incarnation": "a b"}"#, 400, "bad-body", "1 to 128"),
    ("POST", "/admin/nodes/b/fence", r#"{"epoch": 10, "force": true}"#, 400, "bad-body", "force"),
    ("POST", "/admin/nodes/e/fence", r#"{"epoch": 10}"#, 404, "no-such-node", "these have: a, b, c, d"),
    ("POST", "/admin/nodes/-/fence", r#"{"epoch": 10}"#, 400, "bad-node-id", "a-z"),
    ("GET", "/admin/nodes/b/fence", "", 405, "method-not-allowed", "POST"),
    ("DELETE", "/admin/nodes/b/fence", "", 405, "method-not-allowed", "POST"),
    // Removal.
    ("DELETE", "/admin/nodes/a", "", 409, "node-alive", "at epoch 10: stop its process"),
    ("DELETE", "/admin/nodes/b", "", 409, "node-alive", "or fence it"),
    ("DELETE", "/admin/nodes/c", "", 409, "awaiting-recovery", "c@10"),
    ("DELETE", "/admin/nodes/e", "", 404, "no-such-node", "these have: a, b, c, d"),
    ("DELETE", "/admin/nodes/A", "", 400, "bad-node-id", "a-z"),
    ("DELETE", "/admin/nodes/", "", 404, "no-such-path", "/admin/nodes/"),
    // Reading.
    ("GET", "/admin/nodes/e", "", 404, "no-such-node", "these have: a, b, c, d"),
    ("GET", "/admin/nodes/a_b", "", 400, "bad-node-id", "a-z"),
    ("GET", "/admin/nodes/b/slots", "", 404, "no-such-path", "/admin/nodes/b/slots"),
    ("PUT", "/admin/nodes/b", r#"{"slots": 1}"#, 405, "method-not-allowed", "GET, HEAD, POST, DELETE"),
    ("POST", "/admin/members", "{}", 405, "method-not-allowed", "GET, HEAD"),
];

#[tokio::test]
async fn what_cannot_be_done_is_refused_with_what_would_be_allowed_and_changes_nothing() {
    for (method, path, body, status, code, names) in REFUSED {
        let (f, world) = four();
        let before = world.lock().state.nodes.clone();
        let json = [("content-type", "application/json")];
        let told = f.ask(method, path, &json, body.as_bytes()).await;
        let detail = told.problem(*status, code);
        assert!(detail.contains(names), "{method} {path} {body}: {detail}");
        assert!(world.lock().state.nodes == before, "{method} {path} {body} changed something");
    }
    assert!(REFUSED.len() >= 25);
}

#[tokio::test]
async fn a_fence_ends_the_session_once_and_says_where_the_node_stands() {
    let (f, world) = four();
    for again in [false, true] {
        let told = f.post("/admin/nodes/b/fence", r#"{"epoch": 10}"#).await;
        assert_eq!((told.status, &told.json()["alive"]), (200, &json!(false)), "again: {again}");
        assert_eq!(told.json().get("pinnedTo"), None);
    }
    let expected =
        Command::Fence { node: id("b"), epoch: NodeEpoch(10), incarnation: None, reason: FenceReason::Admin };
    assert_eq!(*f.proposed.lock(), [expected.clone(), expected]);
    // A person cannot know that the process is gone: whoever recovers it outwaits the lease.
    let world = world.lock();
    assert_eq!(world.session(&session("b", 10)).ended.as_ref().map(|e| e.lease_over), Some(false));
}

#[tokio::test]
async fn a_fence_with_an_incarnation_pins_and_ends_no_session_of_that_one() {
    let (f, _) = four();
    let told = f.post("/admin/nodes/b/fence", r#"{"epoch": 10, "incarnation": "pod-2"}"#).await.json();
    assert_eq!((&told["alive"], &told["pinnedTo"]), (&json!(false), &json!("pod-2")));
    let (f, _) = four();
    for epoch in [3, 10] {
        let body = json!({"epoch": epoch, "incarnation": "b-at-10"}).to_string();
        let told = f.post("/admin/nodes/b/fence", &body).await.json();
        assert_eq!((&told["alive"], &told["pinnedTo"]), (&json!(true), &json!("b-at-10")), "{epoch}");
    }
}

#[tokio::test]
async fn a_node_that_fenced_itself_says_so_though_its_session_is_over() {
    for (why, expected) in [(ProposeFailure::Unknown, 504), (ProposeFailure::Unavailable("x".into()), 503)] {
        let mut f = fixture(Err(why));
        let told = f.post("/admin/nodes/node-0/fence", r#"{"epoch": 200}"#).await;
        assert_eq!(told.status, expected, "it lives");
        f.admin.node = "node-1".parse().unwrap();
        let told = f.post("/admin/nodes/node-1/fence", r#"{"epoch": 100}"#).await;
        assert_eq!((told.status, &told.json()["alive"]), (200, &json!(false)));
        // Pinned it is not, as far as one can see.
        let told = f.post("/admin/nodes/node-1/fence", r#"{"epoch": 100, "incarnation": "p"}"#).await;
        assert_eq!(told.status, expected);
    }
}

#[tokio::test]
async fn a_node_that_has_left_is_removed_and_stays_out_of_sight() {
    let (f, _) = four();
    for again in [false, true] {
        let told = f.ask("DELETE", "/admin/nodes/d", &[], b"").await;
        let kept = json!({"id": "d", "epoch": 10, "incarnation": "d-at-10"});
        assert_eq!((told.status, told.json()), (200, kept), "again: {again}");
    }
    assert!(f.get("/admin/nodes/d").await.problem(404, "no-such-node").contains("d was removed"));
    f.post("/admin/nodes/d", r#"{"slots": 1}"#).await.problem(404, "no-such-node");
    f.post("/admin/nodes/d/fence", r#"{"epoch": 10}"#).await.problem(404, "no-such-node");
    assert_eq!(f.get("/admin/nodes").await.json()["nodes"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn transfers_and_drains_are_shown_while_they_last() {
    let (f, world) = four();
    {
        let mut world = world.lock();
        let (a, b) = (session("a", 10), session("b", 10));
        let its = world.state.names.iter().map(|(_, id)| *id).find(|s| world.owner(*s) == Some(b.clone()));
        world.run(&a, Command::BeginTransfer { stream: its.unwrap(), to: a.clone() }).unwrap();
        world.run(&a, Command::SetDraining { node: id("b"), draining: true }).unwrap();
    }
    let told = f.get("/admin/cluster").await.json();
    assert_eq!((&told["pendingTransfers"], told["transfers"].as_array().unwrap().len()), (&json!(1), 1));
    let transfer = &told["transfers"][0];
    assert_eq!(
        (&transfer["fromNode"], &transfer["toNode"], &transfer["state"]),
        (&json!("b"), &json!("a"), &json!("pending"))
    );
    let node = f.get("/admin/nodes/b").await.json();
    assert_eq!((&node["draining"], &node["drainingSinceMs"]), (&json!(true), &json!(1_000_000)));
    assert_eq!(node["fairShare"], 0);
}

#[tokio::test]
async fn fair_shares_go_by_slots_among_those_that_take_streams() {
    let (f, _) = four();
    let shares = async || {
        let nodes = f.get("/admin/nodes").await.json();
        let nodes = nodes["nodes"].as_array().unwrap().clone();
        nodes
            .iter()
            .map(|n| (n["assignedStreams"].as_u64().unwrap(), n["fairShare"].as_u64().unwrap()))
            .collect::<Vec<_>>()
    };
    // Of four streams, one went with each of the two that ended.
    assert_eq!(shares().await, [(1, 1), (1, 1), (0, 0), (0, 0)]);
    f.post("/admin/nodes/b", r#"{"slots": 3}"#).await;
    assert_eq!(shares().await, [(1, 1), (1, 2), (0, 0), (0, 0)], "2 × 1/4 is rounded up, 2 × 3/4 too");
    f.post("/admin/nodes/a", r#"{"slots": 0}"#).await;
    assert_eq!(shares().await, [(1, 0), (1, 2), (0, 0), (0, 0)]);
    f.post("/admin/nodes/b", r#"{"slots": 0}"#).await;
    assert_eq!(shares().await, [(1, 0), (1, 0), (0, 0), (0, 0)], "nobody takes any");
    let one = f.get("/admin/nodes/b").await.json();
    assert_eq!((&one["id"], &one["openStreams"], &one["slots"]), (&json!("b"), &json!(1), &json!(0)));
}

#[tokio::test]
async fn a_newer_generation_of_the_same_resource_sets_the_slots_and_an_older_does_not() {
    let (f, _) = four();
    let set = async |slots: u64, uid: &str, generation: u64| {
        let body = json!({"slots": slots, "resourceUid": uid, "resourceGeneration": generation}).to_string();
        f.post("/admin/nodes/b", &body).await
    };
    assert_eq!(set(2, "u", 5).await.json()["slots"], 2);
    assert_eq!(set(3, "u", 5).await.json()["slots"], 3, "the same generation may say more");
    assert!(set(4, "u", 4).await.problem(409, "older-generation").contains("generation 5"));
    let other = set(4, "v", 1).await.json();
    assert_eq!(other["slotsSetBy"], json!({"uid": "v", "generation": 1}), "another resource begins anew");
    // A person's word counts without changing whose generation is known.
    let person = f.post("/admin/nodes/b", r#"{"slots": 9}"#).await.json();
    assert_eq!((&person["slots"], &person["slotsSetBy"]["uid"]), (&json!(9), &json!("v")));
}
