//! The admin listener asked over real requests: answers, refusals, tokens.

mod nodes;
mod page;

use std::sync::Arc;

use http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Method, Request};
use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_api::{NodeEpoch, Nonce, SessionId, Slots, StreamEpoch};

use super::*;
use crate::metadata::command::{Expiry, StreamConfig};
use crate::metadata::state::{
    ClaimRecord, Cluster, CommitProgress, Node, Ownership, Session, SessionEnd, SessionNo, Stream,
};
use crate::storage::skips::Stop;

mod moves;

const TOKEN: &str = "a-token-of-some-length";

fn session(node: &str, epoch: u64) -> Session {
    Session {
        id: SessionId { node: node.parse().unwrap(), epoch: NodeEpoch(epoch) },
        assigned: 5,
        open: 3,
        wal_start: 1,
        boot_id: None,
        raft_id: RaftId(1),
        ended: None,
        claim: None,
        commits: CommitProgress::default(),
        answers: imbl::OrdMap::new(),
        lowest_unanswered: 1,
    }
}

fn node(epoch: u64, session: Option<u64>) -> Node {
    Node {
        epoch: NodeEpoch(epoch),
        nonce: Nonce(1),
        incarnation: "pod-1".parse().unwrap(),
        raft_id: RaftId(1),
        boot_id: None,
        http_url: "http://127.0.0.1:4437".to_owned(),
        peer_address: "127.0.0.1:4438".to_owned(),
        slots: Slots::ONE,
        slots_by: Some(("uid-1".to_owned(), 4)),
        formats: (1, 1),
        pinned: None,
        draining: false,
        session: session.map(SessionNo),
        earlier: vec![],
        removed: false,
        draining_since_ms: None,
        drain_gave_up: None,
    }
}

fn stream(name: &str, ownership: Ownership) -> Stream {
    Stream {
        name: name.into(),
        config: Arc::new(StreamConfig { content_type: "text/plain".to_owned(), expiry: Expiry::Ttl(60) }),
        epoch: StreamEpoch(2),
        ownership,
        start: Offset(0),
        committed: Offset(10),
        closed: false,
        unborn_since_ms: None,
        deadline_ms: Some(99),
        extents: vec![],
        dedupe: None,
        forked_from: None,
        forks: 0,
        tombstone: false,
    }
}

/// node-0 lives (session 2); node-1's session 1 has ended and is claimed; node-2 was removed.
fn state() -> State {
    let mut s = State {
        cluster: Some(Cluster { uid: weir_api::ClusterUid(7), identity: None, size: 1, format: 1 }),
        time_ms: 1234,
        ..State::default()
    };
    s.nodes.insert("node-0".parse().unwrap(), node(200, Some(2)));
    s.nodes.insert("node-1".parse().unwrap(), Node { raft_id: RaftId(2), ..node(100, None) });
    s.nodes.insert("node-2".parse().unwrap(), Node { removed: true, ..node(50, None) });
    let ended = Session {
        ended: Some(SessionEnd { at_ms: 1000, lease_over: false }),
        claim: Some(ClaimRecord { number: 1, claimant: session("node-0", 200).id }),
        ..session("node-1", 100)
    };
    s.sessions.insert(SessionNo(1), ended);
    s.sessions.insert(SessionNo(2), session("node-0", 200));
    let streams = [
        ("a/b c", Ownership::Open(SessionNo(2))),
        ("placed", Ownership::Placed(SessionNo(2))),
        ("void", Ownership::Placed(SessionNo(1))),
        ("waits", Ownership::Open(SessionNo(1))),
        ("recovered", Ownership::Open(SessionNo(99))),
        ("released", Ownership::Released),
    ];
    for (n, (name, ownership)) in streams.into_iter().enumerate() {
        let id = StreamId(n as u64 + 1);
        s.names.insert(name.into(), id);
        s.streams.insert(id, Arc::new(stream(name, ownership)));
    }
    s
}

fn member(id: u64, node: &str, matched: u64) -> MemberStatus {
    MemberStatus {
        raft_id: RaftId(id),
        node: Some(node.parse().unwrap()),
        address: format!("{node}:4438"),
        voter: id == 1,
        leader: id == 1,
        matched: Some(matched),
        caught_up: id == 1,
        heard: None,
    }
}

/// node-0 leads and answers; node-1's log is behind.
fn local() -> Local {
    Local {
        epoch: NodeEpoch(200),
        alive: true,
        draining: false,
        lease: Duration::from_millis(4_321),
        members: vec![member(2, "node-1", 30), member(1, "node-0", 43)],
        voter_target: 1,
        quorum_healthy: Some(true),
        last_index: 43,
        unformed: None,
        silent: BTreeMap::from([(session("node-0", 200).id, Duration::from_millis(700))]),
    }
}

/// An admin API over a state that `SetSlots` changes, without a token unless said.
struct Fixture {
    admin: Admin,
    proposed: Arc<Mutex<Vec<Command>>>,
    skips: Skips,
}

fn fixture(answer: Result<(), ProposeFailure>) -> Fixture {
    let held = Arc::new(Mutex::new(state()));
    let proposed = Arc::new(Mutex::new(vec![]));
    let (read, wrote, log) = (held.clone(), held, proposed.clone());
    let (slot, skips) = (Slot::default(), Skips::default());
    slot.fill_with(Sources {
        view: Arc::new(move || Seen {
            state: read.lock().clone(),
            applied: 42,
            leader: Some(RaftId(1)),
            term: 3,
        }),
        propose: Arc::new(move |command| {
            if let (Command::SetSlots { node, slots, .. }, Ok(())) = (&command, &answer)
                && let Some(n) = wrote.lock().nodes.get_mut(node)
            {
                n.slots = *slots;
            }
            log.lock().push(command);
            Box::pin(std::future::ready(answer.clone()))
        }),
        skips: skips.clone(),
        local: Arc::new(|_| local()),
        tail: Arc::new(|id| (id == StreamId(1)).then_some(Tail { end: Offset(15), closed: true })),
    });
    let node = "node-0".parse().unwrap();
    let (readiness, tasks) = (Readiness::default(), Tasks::default());
    let admin = Admin { node, slot, readiness, tokens: None, metrics_open: false, tasks };
    Fixture { admin, proposed, skips }
}

fn with_token(mut f: Fixture, metrics_open: bool) -> Fixture {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), TOKEN).unwrap();
    // The file stays, so that the tokens' stamp does.
    let path = file.into_temp_path().keep().unwrap();
    f.admin.tokens = Some(Tokens::open(path).unwrap());
    f.admin.metrics_open = metrics_open;
    f
}

struct Told {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Told {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// That this is a problem of this status and code, and its detail.
    fn problem(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.headers[CONTENT_TYPE], "application/problem+json");
        let p: weir_api::admin::Problem = serde_json::from_str(&self.body).unwrap();
        assert_eq!((p.status, p.code.as_str()), (status, code));
        assert_eq!(p.r#type, format!("https://weir.dev/problems/{code}"));
        assert!(!p.title.is_empty());
        p.detail
    }
}

impl Fixture {
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Told {
        let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap()).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response =
            self.admin.answer(request.body(Full::new(Bytes::copy_from_slice(body))).unwrap()).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Told {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    async fn get(&self, path: &str) -> Told {
        self.ask("GET", path, &[], b"").await
    }

    async fn post(&self, path: &str, body: &str) -> Told {
        self.ask("POST", path, &[("content-type", "application/json")], body.as_bytes()).await
    }
}

#[tokio::test]
async fn health_answers_with_reasons() {
    let f = fixture(Ok(()));
    assert_eq!(f.get("/livez").await.status, 200);
    let ready = f.get("/readyz").await;
    assert_eq!((ready.status, ready.json()), (200, json!({"ready": true, "reasons": []})));
    f.admin.readiness.set("store", "put: timed out");
    let not = f.get("/readyz").await;
    assert_eq!(not.status, 503);
    assert_eq!(not.json()["reasons"][0]["code"], "store");
    assert_eq!(not.json()["reasons"][0]["detail"], "put: timed out");
    assert_eq!(f.get("/livez").await.status, 200);
    assert_eq!(f.ask("HEAD", "/readyz", &[], b"").await.status, 503);
}

#[tokio::test]
async fn the_cluster_shows_leader_counts_and_recoveries() {
    let told = fixture(Ok(())).get("/admin/cluster").await.json();
    assert_eq!(told["uid"], "00000000000000000000000000000007");
    assert_eq!(
        told["log"],
        json!({
            "leader": 1, "leaderNode": "node-0", "term": 3, "appliedIndex": 42, "lastIndex": 43, "timeMs": 1234
        })
    );
    assert_eq!((&told["nodes"], &told["nodesAlive"], &told["streams"]), (&json!(2), &json!(1), &json!(6)));
    assert_eq!(told["awaitingRecovery"], 1);
    let expected =
        json!([{"node": "node-1", "epoch": 100, "endedAtMs": 1000, "openStreams": 3, "claimedBy": "node-0"}]);
    assert_eq!(told["recoveries"], expected);
    assert_eq!(
        (&told["answeredBy"]["node"], &told["answeredBy"]["leaseMs"]),
        (&json!("node-0"), &json!(4321))
    );
    assert_eq!((&told["voterTarget"], &told["quorumHealthy"]), (&json!(1), &json!(true)));
    assert_eq!((&told["openStreams"], &told["pendingTransfers"]), (&json!(3), &json!(0)));
    assert_eq!(told.get("unformed"), None);
}

#[tokio::test]
async fn members_are_listed_by_raft_id_with_what_the_leader_alone_knows() {
    let f = fixture(Ok(()));
    let told = f.get("/admin/members").await.json();
    assert_eq!((&told["voterTarget"], &told["quorumHealthy"]), (&json!(1), &json!(true)));
    let behind = json!({
        "raftId": 2, "node": "node-1", "peerAddress": "node-1:4438", "voter": false, "leader": false,
        "matchedIndex": 30, "caughtUp": false
    });
    assert_eq!((&told["members"][0]["raftId"], &told["members"][1]), (&json!(1), &behind));
    let nodes = f.get("/admin/nodes").await.json()["nodes"].clone();
    assert_eq!((&nodes[0]["logLag"], &nodes[0]["silentMs"]), (&json!(0), &json!(700)));
    assert_eq!((&nodes[1]["logLag"], nodes[1].get("silentMs")), (&json!(13), None), "it is not alive");
    // A follower knows of itself alone, which says nothing.
    let follows = Local { quorum_healthy: None, silent: BTreeMap::new(), ..local() };
    let told = members::list(&follows);
    assert!(told.members.iter().all(|m| m.matched_index.is_none() && m.caught_up.is_none()));
    let told = super::nodes::list(&state(), &follows);
    assert!(told.nodes.iter().all(|n| n.log_lag.is_none() && n.silent_ms.is_none()));
}

#[tokio::test]
async fn the_state_is_hashed_on_demand() {
    let f = fixture(Ok(()));
    let hash = format!("{:016x}", codec::state_hash(&state()));
    assert_eq!(f.get("/admin/cluster?hash=true").await.json()["log"]["stateHash"], json!(hash));
    assert_eq!(f.get("/admin/cluster?hash=false").await.json()["log"].get("stateHash"), None);
    let bad = f.get("/admin/cluster?hash=yes").await.problem(400, "bad-query");
    assert!(bad.contains("hash=yes") && bad.contains("hash=true"), "{bad}");
}

#[tokio::test]
async fn only_the_object_that_a_recovery_has_stopped_on_is_skipped() {
    let f = fixture(Ok(()));
    let ask = async |seq: u64| {
        let body = json!({"node": "node-1", "epoch": 100, "seq": seq}).to_string();
        f.post("/admin/recovery/skip", &body).await
    };
    let nothing = ask(7).await.problem(409, "not-stopped-there");
    assert!(nothing.contains("node-1@100"), "{nothing}");
    let stop = Stop { seq: 7, why: "g0/wal/node-1/100/7: it is missing".to_owned() };
    f.skips.stopped(&session("node-1", 100).id, Some(stop));
    let shown = f.get("/admin/cluster").await.json()["recoveries"][0]["stoppedOn"].clone();
    assert_eq!(shown, json!({"seq": 7, "why": "g0/wal/node-1/100/7: it is missing"}));
    let another = ask(8).await.problem(409, "not-stopped-there");
    assert!(another.contains("stopped on 7, not on 8"), "{another}");
    let done = ask(7).await;
    assert_eq!((done.status, &done.json()["seq"]), (200, &json!(7)));
    ask(7).await.problem(409, "not-stopped-there");
    let bad = f.post("/admin/recovery/skip", r#"{"node": "node-1", "epoch": 100}"#).await;
    assert!(bad.problem(400, "bad-body").contains("seq"));
    assert!(f.get("/admin/recovery/skip").await.problem(405, "method-not-allowed").contains("POST"));
}

#[tokio::test]
async fn nodes_are_listed_without_removed_ones() {
    let told = fixture(Ok(())).get("/admin/nodes").await.json();
    let nodes = told["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 2);
    assert_eq!(
        (&nodes[0]["id"], &nodes[0]["alive"], &nodes[0]["assignedStreams"]),
        (&json!("node-0"), &json!(true), &json!(5))
    );
    assert_eq!(
        (&nodes[1]["id"], &nodes[1]["alive"], &nodes[1]["openStreams"]),
        (&json!("node-1"), &json!(false), &json!(0))
    );
    assert_eq!(nodes[0]["slotsSetBy"], json!({"uid": "uid-1", "generation": 4}));
}

#[tokio::test]
async fn a_stream_shows_who_has_it() {
    let f = fixture(Ok(()));
    for (path, expected) in [
        ("a/b%20c", json!({"state": "open", "node": "node-0", "nodeEpoch": 200})),
        ("a%2Fb%20c", json!({"state": "open", "node": "node-0", "nodeEpoch": 200})),
        ("placed", json!({"state": "placed", "node": "node-0", "nodeEpoch": 200})),
        ("void", json!({"state": "released"})),
        ("waits", json!({"state": "awaitingRecovery", "node": "node-1", "nodeEpoch": 100})),
        ("recovered", json!({"state": "released"})),
        ("released", json!({"state": "released"})),
    ] {
        let told = f.get(&format!("/admin/streams/{path}")).await;
        assert_eq!((told.status, &told.json()["ownership"]), (200, &expected), "{path}");
    }
    let owned = f.get("/admin/streams/a/b%20c").await.json();
    assert_eq!(
        (&owned["committedOffset"], &owned["tailOffset"], &owned["closed"]),
        (&json!(10), &json!(15), &json!(true))
    );
    assert_eq!((&owned["ttlSeconds"], &owned["expiresAtMs"]), (&json!(60), &json!(99)));
    f.get("/admin/streams/none").await.problem(404, "no-such-stream");
    f.get("/admin/streams/%ff").await.problem(400, "bad-stream-name");
    f.get("/admin/streams/").await.problem(404, "no-such-path");
}

#[tokio::test]
async fn slots_are_set_and_the_answer_shows_them() {
    let f = fixture(Ok(()));
    let body = r#"{"slots": 7, "resourceUid": "u", "resourceGeneration": 2}"#;
    let told = f.post("/admin/nodes/node-0", body).await;
    assert_eq!((told.status, &told.json()["slots"]), (200, &json!(7)), "{}", told.body);
    let expected = Command::SetSlots {
        node: "node-0".parse().unwrap(),
        slots: Slots::try_from(7).unwrap(),
        resource: Some(("u".to_owned(), 2)),
    };
    assert_eq!(*f.proposed.lock(), [expected]);
}

#[tokio::test]
async fn a_bad_body_is_refused_by_field_and_never_proposed() {
    let f = fixture(Ok(()));
    for (body, named) in [
        ("", "body"),
        ("{", "body"),
        ("[]", "body"),
        ("{}", "slots"),
        (r#"{"slots": -1}"#, "slots: "),
        (r#"{"slots": 1.5}"#, "slots: "),
        (r#"{"slots": "1"}"#, "slots: "),
        (r#"{"slots": 1000001}"#, "0 to 1000000"),
        (r#"{"slots": 1, "slot": 2}"#, "slot"),
        (r#"{"slots": 1} x"#, "trailing"),
        (r#"{"slots": 1, "resourceUid": "u"}"#, "resourceGeneration"),
        (r#"{"slots": 1, "resourceGeneration": 1}"#, "resourceUid"),
        (r#"{"slots": 1, "resourceUid": "", "resourceGeneration": 1}"#, "resourceUid"),
        (r#"{"slots": 1, "resourceUid": 5, "resourceGeneration": 1}"#, "resourceUid"),
        (r#"{"slots": 1, "resourceUid": "u", "resourceGeneration": -1}"#, "resourceGeneration"),
    ] {
        let detail = f.post("/admin/nodes/node-0", body).await.problem(400, "bad-body");
        assert!(detail.contains(named), "{body}: {detail}");
    }
    let long = format!(r#"{{"slots": 1, "resourceUid": "{}", "resourceGeneration": 1}}"#, "u".repeat(129));
    f.post("/admin/nodes/node-0", &long).await.problem(400, "bad-body");
    f.post("/admin/nodes/node-0", &" ".repeat(BODY_MAX + 1)).await.problem(413, "too-large");
    f.post("/admin/nodes/Node", r#"{"slots": 1}"#).await.problem(400, "bad-node-id");
    for kind in ["", "text/plain", "application/jsonx"] {
        let told = f.ask("POST", "/admin/nodes/node-0", &[("content-type", kind)], br#"{"slots": 1}"#).await;
        told.problem(415, "media-type");
    }
    let declared = [("content-type", "application/json"), ("content-length", "99999999")];
    f.ask("POST", "/admin/nodes/node-0", &declared, b"").await.problem(413, "too-large");
    assert!(f.proposed.lock().is_empty());
}

#[tokio::test]
async fn what_the_log_says_reaches_the_caller() {
    let told =
        |answer| async move { fixture(Err(answer)).post("/admin/nodes/node-0", r#"{"slots": 1}"#).await };
    told(ProposeFailure::Refused(Refusal::NoSuchNode)).await.problem(404, "no-such-node");
    let older = told(ProposeFailure::Refused(Refusal::OlderGeneration { known: 9 })).await;
    assert!(older.problem(409, "older-generation").contains('9'));
    let late = told(ProposeFailure::Unavailable("no leader".to_owned())).await;
    assert_eq!(late.headers[RETRY_AFTER], "1");
    assert_eq!(late.problem(503, "unavailable"), "no leader");
    told(ProposeFailure::Unknown).await.problem(504, "outcome-unknown");
    told(ProposeFailure::Refused(Refusal::SessionNotCurrent)).await.problem(503, "unavailable");
    told(ProposeFailure::Refused(Refusal::Limit("x".to_owned()))).await.problem(409, "refused");
}

#[tokio::test]
async fn other_paths_and_methods_are_problems_too() {
    let f = fixture(Ok(()));
    for path in ["/admin", "/admin/", "/admin/nodes/", "/admin/nodes/a/b", "/v1/stream/x", "/metrics/"] {
        f.get(path).await.problem(404, "no-such-path");
    }
    for (method, path, allowed) in [
        ("POST", "/readyz", "GET, HEAD"),
        ("DELETE", "/admin/cluster", "GET, HEAD"),
        ("GET", "/admin/nodes/node-0/fence", "POST"),
        ("OPTIONS", "/admin/nodes/node-0", "GET, HEAD, POST, DELETE"),
        ("PUT", "/admin/streams/a", "GET, HEAD"),
        ("NONSENSE", "/metrics", "GET, HEAD"),
    ] {
        let told = f.ask(method, path, &[], b"").await;
        assert!(told.problem(405, "method-not-allowed").contains(method));
        assert_eq!(told.headers[ALLOW], allowed);
    }
}

#[tokio::test]
async fn before_the_log_is_there_only_health_and_metrics_are() {
    let mut f = fixture(Ok(()));
    f.admin.slot = Slot::default();
    assert_eq!(f.get("/livez").await.status, 200);
    assert_eq!(f.get("/metrics").await.status, 200);
    assert_eq!(f.get("/").await.status, 200);
    for path in
        ["/admin/cluster", "/admin/members", "/admin/nodes", "/admin/nodes/node-0", "/admin/streams/a"]
    {
        f.get(path).await.problem(503, "unavailable");
    }
    f.post("/admin/nodes/node-0/fence", r#"{"epoch": 1}"#).await.problem(503, "unavailable");
    f.post("/admin/nodes/node-0", r#"{"slots": 1}"#).await.problem(503, "unavailable");
}

#[tokio::test]
async fn a_token_is_asked_for_everywhere_but_for_health() {
    let f = with_token(fixture(Ok(())), false);
    let bearer = format!("Bearer {TOKEN}");
    for path in [
        "/admin/cluster",
        "/admin/members",
        "/admin/nodes",
        "/admin/nodes/node-0",
        "/admin/streams/placed",
        "/metrics",
    ] {
        let refused = f.get(path).await;
        assert_eq!(refused.headers[WWW_AUTHENTICATE], "Bearer");
        refused.problem(401, "unauthorized");
        let wrong = f.ask("GET", path, &[("authorization", "Bearer another-token-12345")], b"").await;
        wrong.problem(401, "unauthorized");
        assert_eq!(f.ask("GET", path, &[("authorization", &bearer)], b"").await.status, 200, "{path}");
    }
    // Nor does a path that does not exist tell itself from one that does.
    f.get("/nowhere").await.problem(401, "unauthorized");
    f.ask("DELETE", "/admin/nodes", &[], b"").await.problem(401, "unauthorized");
    f.post("/admin/nodes/node-0", r#"{"slots": 1}"#).await.problem(401, "unauthorized");
    f.post("/admin/nodes/node-0/fence", r#"{"epoch": 200}"#).await.problem(401, "unauthorized");
    assert!(f.proposed.lock().is_empty());
    assert_eq!(f.get("/livez").await.status, 200);
    assert_eq!(f.get("/readyz").await.status, 200);
    assert_eq!(with_token(fixture(Ok(())), true).get("/metrics").await.status, 200);
}

#[tokio::test]
async fn without_a_token_only_requests_to_an_address_are_answered() {
    let f = fixture(Ok(()));
    for host in ["127.0.0.1:9090", "[::1]:9090", "localhost:9090", "LOCALHOST", "10.0.0.1", "[::1]"] {
        assert_eq!(f.ask("GET", "/admin/nodes", &[("host", host)], b"").await.status, 200, "{host}");
    }
    for host in ["evil.example", "evil.example:9090", "localhost.evil.example", "127.0.0.1.evil.example:1"] {
        let told = f.ask("GET", "/admin/nodes", &[("host", host)], b"").await;
        assert!(told.problem(421, "foreign-host").contains(host));
    }
}

#[tokio::test]
async fn metrics_show_state_and_readiness() {
    let f = fixture(Ok(()));
    let told = f.get("/metrics").await;
    assert_eq!(told.headers[CONTENT_TYPE], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    for line in [
        "weir_nodes 2",
        "weir_nodes_alive 1",
        "weir_sessions_awaiting_recovery 1",
        "weir_metadata_applied_index 42",
        "weir_metadata_voter_target 1",
        "weir_metadata_quorum_lost 0",
        "weir_node_epoch 200",
        "weir_session_alive 1",
        "weir_lease_remaining_seconds 4.321",
    ] {
        assert!(told.body.contains(line), "{line} not in\n{}", told.body);
    }
}

#[tokio::test]
async fn a_listener_serves_and_stops_with_the_node() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let tasks = Tasks::default();
    let listener = crate::net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let f = fixture(Ok(()));
    tasks.spawn_vital("admin", server::accept(listener, Arc::new(f.admin), tasks.clone()));
    let mut connection = crate::net::connect(&address.to_string(), Duration::from_secs(5)).await.unwrap();
    connection.write_all(b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 4096];
    let n = connection.read(&mut answer).await.unwrap();
    assert!(answer[..n].starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&answer[..n]));
    tokio::time::timeout(Duration::from_secs(60), tasks.stop()).await.unwrap();
    assert_eq!(connection.read(&mut answer).await.unwrap(), 0);
}
